package oauth2_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

// The accounts of a pool have tokens of their own. An account whose token is refused makes room for the next one, whatever
// the method, because nothing has been done yet; and so does one that gets no token.
func TestPool(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		status   int // that the first account's token gets; 0: it gets no token
		state    hedgerow.ResourceState
		attempts uint64
	}{
		{"429", http.StatusTooManyRequests, hedgerow.ResourceCooling, 2},
		{"401", http.StatusUnauthorized, hedgerow.ResourceDisabled, 2},
		{"no token", 0, hedgerow.ResourceHealthy, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			bed.Each(t, func(t *testing.T, proto string) {
				s := newService()
				if test.status == 0 {
					s.refused = map[string]struct{}{"one": {}}
				} else {
					s.spent = map[string]int{"one": test.status}
				}
				srv := bed.Serve(t, proto, s.handler())
				pool := newAccounts(t, srv)
				tr := bed.New(t, hedgerow.Config{Base: pool.Wrap(bed.Mark(srv.Base)), Hedge: bed.Soon()})
				client := &http.Client{Transport: tr}

				resp, err := client.Post(srv.URL+"/api", "text/plain", strings.NewReader(large))
				bed.RequireWhole(t, resp, err)
				require.Equal(t, test.state, pool.Snapshot()[0].State)
				require.EqualValues(t, 2, s.grants.Load())
				stats := pool.Stats()
				require.Zero(t, stats.InFlight)
				require.EqualValues(t, 1, stats.CallsOK)
				require.Equal(t, test.attempts, stats.Attempts)
				require.Zero(t, tr.Stats().Total.Errors)
			})
		})
	}
}

// A hedge goes by another account.
func TestPoolHedges(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		s := newService()
		srv := bed.Serve(t, proto, s.handler())
		pool := newAccounts(t, srv)
		tr := bed.New(t, hedgerow.Config{Base: pool.Wrap(bed.Mark(srv.Base)), Hedge: bed.Soon()})
		resp, err := (&http.Client{Transport: tr}).Get(srv.URL + "/held")
		bed.RequireWhole(t, resp, err)
		tokens := s.tokens()
		require.Equal(t, []string{"one-1"}, tokens["primary"])
		require.Equal(t, []string{"two-2"}, tokens["hedge"])
		require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
		require.Zero(t, pool.Stats().InFlight)
	})
}
