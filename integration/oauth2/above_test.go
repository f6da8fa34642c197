package oauth2_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/oauth2"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

// Above hedgerow, as [oauth2.HTTPClient] puts it, a call has its token before it is hedged, so all its attempts have the
// same. The requests for tokens go through hedgerow as well.
func TestAbove(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		s := newService()
		srv := bed.Serve(t, proto, s.handler())
		tr := bed.New(t, hedgerow.Config{Base: bed.Mark(srv.Base), Hedge: bed.Soon()})
		client := newClient(t.Context(), config(srv, "app"), tr)

		resp, err := client.Get(srv.URL + "/held")
		bed.RequireWhole(t, resp, err)
		resp, err = client.Post(srv.URL+"/api", "text/plain", strings.NewReader(large))
		bed.RequireWhole(t, resp, err)

		tokens := s.tokens()
		require.Equal(t, []string{"app-1"}, tokens["primary"])
		require.Contains(t, tokens["hedge"], "app-1")
		require.EqualValues(t, 1, s.grants.Load())
		total := tr.Stats().Total
		require.EqualValues(t, 3, total.Requests)
		require.EqualValues(t, 1, total.HedgeWins)
		require.EqualValues(t, 2, total.Skipped[hedgerow.SkipMethod], "the token and the POST")
		require.Zero(t, total.Errors)
	})
}

// A token is asked for once, however long that takes: it is held here until a call that began later has been hedged.
func TestSlowTokenIsAskedForOnce(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		s := newService()
		release := make(chan struct{})
		s.hold = map[string]<-chan struct{}{"app": release}
		srv := bed.Serve(t, proto, s.handler())
		tr := bed.New(t, hedgerow.Config{Base: bed.Mark(srv.Base), Hedge: bed.Soon()})
		plain := &http.Client{Transport: tr}
		client := newClient(t.Context(), config(srv, "app"), tr)

		done := make(chan error, 1)
		go func() { done <- bed.Whole(client.Get(srv.URL + "/api")) }()
		<-s.asked
		resp, err := plain.Get(srv.URL + "/open")
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		close(release)
		require.NoError(t, <-done)
		require.EqualValues(t, 1, s.grants.Load())
		total := tr.Stats().Total
		require.EqualValues(t, 1, total.HedgeWins)
		require.EqualValues(t, 1, total.Skipped[hedgerow.SkipMethod])
	})
}

// With a refresh token the token is a POST as well.
func TestRefreshToken(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		s := newService()
		srv := bed.Serve(t, proto, s.handler())
		tr := bed.New(t, hedgerow.Config{Base: bed.Mark(srv.Base), Hedge: bed.Soon()})
		ctx := context.WithValue(t.Context(), oauth2.HTTPClient, &http.Client{Transport: tr})
		cfg := &oauth2.Config{
			ClientID: "app", ClientSecret: "secret", Endpoint: oauth2.Endpoint{TokenURL: srv.URL + "/token"},
		}
		client := cfg.Client(ctx, &oauth2.Token{RefreshToken: "refresh"})
		for range 2 {
			resp, err := client.Get(srv.URL + "/api")
			bed.RequireWhole(t, resp, err)
		}
		require.EqualValues(t, 1, s.grants.Load())
		require.EqualValues(t, 1, tr.Stats().Total.Skipped[hedgerow.SkipMethod])
	})
}

// A refusal by the token endpoint is the error it is without hedgerow.
func TestTokenRefused(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		s := newService()
		s.refused = map[string]struct{}{"app": {}}
		srv := bed.Serve(t, proto, s.handler())
		tr := bed.New(t, hedgerow.Config{Base: srv.Base})
		client := newClient(t.Context(), config(srv, "app"), tr)
		_, err := client.Get(srv.URL + "/api")
		var refused *oauth2.RetrieveError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "invalid_client", refused.ErrorCode)
		require.EqualValues(t, 1, s.grants.Load())
		require.EqualValues(t, 1, tr.Stats().Total.Requests)
	})
}
