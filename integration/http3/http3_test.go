package http3_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

func TestCalls(t *testing.T) {
	t.Parallel()
	srv := serve(t, http.HandlerFunc(bed.Echo))

	tr, err := hedgerow.New(hedgerow.Config{Base: srv.Base})
	require.NoError(t, err)
	client := &http.Client{Transport: tr}
	resp, err := client.Get(srv.URL)
	requireWhole(t, resp, err)
	resp, err = client.Post(srv.URL, "text/plain", strings.NewReader(large))
	requireWhole(t, resp, err)

	require.EqualValues(t, 1, srv.conns.Load())
	total := tr.Stats().Total
	require.EqualValues(t, 2, total.Requests)
	require.EqualValues(t, 1, total.Skipped[hedgerow.SkipMethod])
	require.Zero(t, total.Errors)
	tr.CloseIdleConnections()
	resp, err = client.Get(srv.URL)
	requireWhole(t, resp, err)
	require.EqualValues(t, 2, srv.conns.Load())
}

// A loser costs its stream, not the connection, which serves the next call as well.
func TestHedge(t *testing.T) {
	t.Parallel()
	held := newHolding()
	srv := serve(t, held)
	tr, client := newClient(t, bed.Mark(srv.Base))
	resp, err := client.Get(srv.URL)
	requireWhole(t, resp, err)
	require.ErrorIs(t, <-held.reset, context.Canceled)

	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, strings.NewReader(large))
	require.NoError(t, err)
	req.Header.Set("Idempotency-Key", "1")
	resp, err = client.Do(req)
	requireWhole(t, resp, err)
	require.ErrorIs(t, <-held.reset, context.Canceled)

	require.EqualValues(t, 1, srv.conns.Load())
	total := tr.Stats().Total
	require.EqualValues(t, 2, total.HedgeWins)
	require.Zero(t, total.Errors)
}

// A POST is sent once, however long it takes.
func TestSlowPostIsSentOnce(t *testing.T) {
	t.Parallel()
	slow := bed.NewGate()
	srv := serve(t, bed.WithClock(slow.Handler(http.HandlerFunc(bed.Echo))))
	tr, client := newClient(t, bed.Mark(srv.Base))
	bed.Slowly(t, tr, srv.URL, slow, func() error {
		return bed.Whole(client.Post(srv.URL, "text/plain", strings.NewReader(large)))
	})
	require.Equal(t, 1, slow.Count())
	require.EqualValues(t, 1, tr.Stats().Total.HedgeWins, "of the other call")
	require.EqualValues(t, 1, tr.Stats().Total.Skipped[hedgerow.SkipMethod])
}

// The race may be for the first byte: the winner's body streams on after that.
func TestFirstByte(t *testing.T) {
	t.Parallel()
	held, next := newHolding(), make(chan struct{})
	srv := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		if bed.IsPrimary(r) {
			held.primary(r)
			return
		}
		held.hedge(r)
		_, _ = io.WriteString(w, "one")
		_ = http.NewResponseController(w).Flush()
		bed.Await(r, next)
		_, _ = io.WriteString(w, "two")
	}))
	cfg := bed.Soon()
	cfg.Signal, cfg.MaxHedges = hedgerow.SignalFirstByte, 1
	tr := bed.New(t, hedgerow.Config{Base: bed.Mark(srv.Base), Hedge: cfg})
	resp, err := (&http.Client{Transport: tr}).Get(srv.URL)
	require.NoError(t, err)
	first := make([]byte, 3)
	_, err = io.ReadFull(resp.Body, first)
	require.NoError(t, err)
	require.Equal(t, "one", string(first))
	close(next)
	rest, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "two", string(rest))
	require.NoError(t, resp.Body.Close())
	require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
}

func TestPool(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusTooManyRequests, http.StatusUnauthorized} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			srv := serve(t, bed.Keyed(status, http.HandlerFunc(bed.Echo)))

			pool, err := hedgerow.NewPool(hedgerow.PoolConfig{
				Hosts: []string{"api.example.com"}, Strategy: hedgerow.PrimaryBackup,
				Resources: []hedgerow.Resource{
					{ID: "a", Upstream: srv.URL, Credential: hedgerow.Bearer("spent")},
					{ID: "b", Upstream: srv.URL, Credential: hedgerow.Bearer("good")},
				},
			})
			require.NoError(t, err)
			tr, err := hedgerow.New(hedgerow.Config{
				Base: pool.Wrap(srv.Base), Hedge: hedgerow.HedgeConfig{Delay: time.Hour},
			})
			require.NoError(t, err)
			client := &http.Client{Transport: tr}

			// Its first copy is refused before it is read.
			resp, err := client.Post("https://api.example.com/", "text/plain", strings.NewReader(large))
			requireWhole(t, resp, err)
			resp, err = client.Get("https://api.example.com/")
			requireWhole(t, resp, err)
			require.NotEqual(t, hedgerow.ResourceHealthy, pool.Snapshot()[0].State)
			stats := pool.Stats()
			require.Zero(t, stats.InFlight)
			require.EqualValues(t, 3, stats.Attempts)
			require.EqualValues(t, 2, stats.CallsOK)
			require.Zero(t, tr.Stats().Total.Errors)
			require.EqualValues(t, 1, srv.conns.Load())
		})
	}
}

// A hedge goes to another upstream, also to one that speaks HTTP/2: a resource may have a transport of its own.
func TestPoolHedges(t *testing.T) {
	t.Parallel()
	held := newHolding()
	h3, h2 := serve(t, held), bed.Serve(t, "h2", held)
	pool := bed.NewPool(t, hedgerow.PoolConfig{
		Hosts: []string{"api.example.com"}, Strategy: hedgerow.PrimaryBackup,
		Resources: []hedgerow.Resource{
			{ID: "h3", Upstream: h3.URL, Base: bed.Mark(h3.Base)},
			{ID: "h2", Upstream: h2.URL, Base: bed.Mark(h2.Base)},
		},
	})
	tr, client := newClient(t, pool.Wrap(nil))
	resp, err := client.Get("https://api.example.com/")
	bed.RequireWhole(t, resp, err)
	require.Equal(t, 2, resp.ProtoMajor)
	require.ErrorIs(t, <-held.reset, context.Canceled)
	require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
	require.Eventually(t, func() bool { return pool.Stats().InFlight == 0 }, bed.Patience, bed.Tick)
}

// The caller's cancel resets every stream of the call.
func TestCancel(t *testing.T) {
	t.Parallel()
	held := newHolding()
	srv := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { held.primary(r) })) // all of them

	tr, client := newClient(t, srv.Base)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-held.came
		<-held.came
		cancel()
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL, nil)
	require.NoError(t, err)
	_, err = client.Do(req)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, <-held.reset, context.Canceled)
	require.ErrorIs(t, <-held.reset, context.Canceled)
	require.EqualValues(t, 1, srv.conns.Load())
	require.EqualValues(t, 1, tr.Stats().Total.Hedges)
}
