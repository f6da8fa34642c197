package bed

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// A Gate holds the requests that come to it until the test opens it.
type Gate struct {
	// Arrived gets a value for each request.
	Arrived chan struct{}

	open  chan struct{}
	count atomic.Int64
}

// NewGate returns a Gate that is closed.
func NewGate() *Gate { return &Gate{Arrived: make(chan struct{}, 16), open: make(chan struct{})} }

// Pass is what a handler calls when it has read its request.
func (g *Gate) Pass(r *http.Request) {
	g.count.Add(1)
	g.Arrived <- struct{}{}
	Await(r, g.open)
}

// Open lets everything through from now on.
func (g *Gate) Open() { close(g.open) }

// Count returns how many requests have come.
func (g *Gate) Count() int { return int(g.count.Load()) }

// Handler returns next behind the gate.
func (g *Gate) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.Pass(r)
		next.ServeHTTP(w, r)
	})
}

// clockPath is the path of the calls by which [Slowly] knows that the hedge delay is over.
const clockPath = "/hedge-clock"

// WithClock returns next with what [Slowly] needs at its server.
func WithClock(next http.Handler) http.Handler {
	clock := HoldPrimary(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == clockPath {
			clock.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Slowly makes call, whose request comes to g, and lets it end when a hedge of it would have been sent long since: a call
// that has started later was hedged by then. That one goes by tr to base, whose server has [WithClock].
func Slowly(t *testing.T, tr http.RoundTripper, base string, g *Gate, call func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- call() }()
	select {
	case <-g.Arrived:
	case err := <-done:
		require.Fail(t, "the call has ended before its request came", "%v", err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+clockPath, nil)
	require.NoError(t, err)
	resp, err := tr.RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusNoContent, resp.StatusCode)
	g.Open()
	require.NoError(t, <-done)
}

// An Order lets no hedge in before its primary: a hedge may be faster than the connection of the primary. It is for one
// call.
type Order struct{ primary chan struct{} }

// NewOrder returns an Order.
func NewOrder() Order { return Order{make(chan struct{})} }

// Handler returns next with every hedge held until the primary has come to it.
func (o Order) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case IsPrimary(r):
			close(o.primary)
		case IsHedge(r) && !Await(r, o.primary):
			return
		}
		next.ServeHTTP(w, r)
	})
}
