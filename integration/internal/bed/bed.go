// Package bed has what the tests of this module share: servers, transports, handlers that hold a request, and checks.
package bed

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// HedgeDelay is the fixed hedge delay of the tests whose primary is held until its hedge has won. It is long enough for a
// call whose primary answers at once to end without a hedge on a busy machine.
const HedgeDelay = 50 * time.Millisecond

// How long to wait for what happens off the path of a call, and how often to look.
const (
	Patience = 30 * time.Second
	Tick     = time.Millisecond
)

// Timeout returns a context that ends a test which would hang.
func Timeout(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// New returns a Transport with cfg.
func New(t *testing.T, cfg hedgerow.Config) *hedgerow.Transport {
	t.Helper()
	tr, err := hedgerow.New(cfg)
	require.NoError(t, err)
	return tr
}

// NewPool returns a Pool with cfg.
func NewPool(t *testing.T, cfg hedgerow.PoolConfig) *hedgerow.Pool {
	t.Helper()
	p, err := hedgerow.NewPool(cfg)
	require.NoError(t, err)
	return p
}

// Soon hedges every call that may be hedged after [HedgeDelay], whatever its endpoint has learned.
func Soon() hedgerow.HedgeConfig {
	return hedgerow.HedgeConfig{Delay: HedgeDelay, BudgetPercent: 100}
}

// Once is [Soon] with one hedge a call.
func Once() hedgerow.HedgeConfig {
	cfg := Soon()
	cfg.MaxHedges = 1
	return cfg
}

// Off hedges nothing.
func Off() hedgerow.HedgeConfig { return hedgerow.HedgeConfig{Disabled: true} }

// SpentAndGood are a pool's resources by bearer tokens, of which a server behind [Keyed] refuses the first.
func SpentAndGood() []hedgerow.Resource {
	return []hedgerow.Resource{
		{ID: "spent", Credential: hedgerow.Bearer("spent")},
		{ID: "good", Credential: hedgerow.Bearer("good")},
	}
}

// Keyed lets in those whose key is good, and answers the others with status, before it has read what they send.
func Keyed(status int, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if Key(r) != "good" {
			http.Error(w, http.StatusText(status), status)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Refuse answers those who have key with status, and asks them to wait for an hour. It leaves the others to next.
func Refuse(key string, status int, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if Key(r) == key {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(status)
			return
		}
		next.ServeHTTP(w, r)
	})
}
