package hedgerow_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// TestUnsendableRequests makes requests that net/http refuses when it has a connection for them. That is nobody's fault but theirs:
// no resource rests, nothing is repeated, and no circuit opens.
func TestUnsendableRequests(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*http.Request){
		"control character in the query": func(r *http.Request) { r.URL.RawQuery = "q=a\tb" },
		"control character in Opaque":    func(r *http.Request) { r.URL.Opaque = "/a\x7fb" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			t.Cleanup(srv.Close)
			base := &http.Transport{}
			t.Cleanup(base.CloseIdleConnections)
			p := pspecPool(t, hedgerow.PoolConfig{Hosts: []string{srv.URL}, Resources: pspecKeys(3)})
			breaker := hedgerow.BreakerConfig{MinSamples: 1, FailFast: true}
			for _, below := range []http.RoundTripper{base, p.Wrap(base)} {
				tr := contractNew(t, hedgerow.Config{Base: below, Breaker: breaker, Hedge: hedgerow.HedgeConfig{Delay: time.Hour}})
				req := contractGet(t.Context(), t, srv.URL)
				spoil(req)
				_, err := tr.RoundTrip(req)
				require.Error(t, err)
				resp, err := tr.RoundTrip(contractGet(t.Context(), t, srv.URL))
				require.NoError(t, err, "the circuits are closed")
				contractRead(t, resp)
			}
			for _, r := range p.Snapshot() {
				require.Zero(t, r.ConsecutiveFailures)
			}
			s := p.Stats()
			require.Zero(t, s.Retries)
			require.EqualValues(t, 1, s.CallsFailed)
			require.Zero(t, s.CallsExhausted)
		})
	}
}
