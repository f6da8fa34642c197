package hedgerow_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/memhttp"
)

// TestPoolStress makes calls from 16 goroutines to a real server that answers one in ten with a 429, aborts streams, and
// administers the pool meanwhile (P51, scenario 51). In the end every slot is free, every body is closed, and the
// counters add up.
func TestPoolStress(t *testing.T) {
	t.Parallel()
	for _, over := range []string{"transport", "counted base"} {
		t.Run(over, func(t *testing.T) {
			t.Parallel()
			contractEach(t, func(t *testing.T, proto memhttp.Protocol) {
				t.Helper()
				srv := contractListen(t, proto, stressHandler)
				srv.Base.MaxIdleConnsPerHost = 100
				base := &stressBase{next: srv.Base}
				if over == "transport" {
					runPoolStress(t, srv, srv.Base, nil)
				} else {
					runPoolStress(t, srv, base, base)
				}
			})
		})
	}
}

func stressHandler(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	switch n := rand.IntN(200); {
	case r.Method == http.MethodPost && string(body) != "payload":
		w.WriteHeader(http.StatusTeapot) // a body was lost
		return
	case n < 20:
		w.Header().Set("Retry-After-Ms", "3")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	case n < 22:
		w.WriteHeader(http.StatusBadGateway)
		return
	case n < 23:
		w.WriteHeader(http.StatusUnauthorized)
		return
	case n < 24:
		panic(http.ErrAbortHandler)
	case n < 34:
		time.Sleep(5 * time.Millisecond)
	}
	if r.URL.Path == "/stream" {
		for range 100 {
			if _, err := w.Write(bytes.Repeat([]byte("x"), 1<<10)); err != nil {
				return
			}
			contractFlush(w)
			select {
			case <-r.Context().Done():
				return
			case <-time.After(100 * time.Microsecond):
			}
		}
		return
	}
	_, _ = w.Write([]byte("ok"))
}

// A stressBase counts what is sent and the response bodies that are open.
type stressBase struct {
	next http.RoundTripper

	sends, open atomic.Int64
}

func (b *stressBase) RoundTrip(req *http.Request) (*http.Response, error) {
	b.sends.Add(1)
	resp, err := b.next.RoundTrip(req)
	if err == nil && resp.Body != http.NoBody {
		b.open.Add(1)
		resp.Body = &stressBody{ReadCloser: resp.Body, closed: sync.OnceFunc(func() { b.open.Add(-1) })}
	}
	return resp, err
}

type stressBody struct {
	io.ReadCloser

	closed func()
}

func (b *stressBody) Close() error {
	b.closed()
	return b.ReadCloser.Close()
}

// runPoolStress is one run; counted is what base is, if it counts.
func runPoolStress(t *testing.T, srv *contractServer, base http.RoundTripper, counted *stressBase) {
	t.Helper()
	calls := 400
	if simRaced || testing.Short() {
		calls = 150
	}
	var events, gone atomic.Uint64
	cfg := hedgerow.PoolConfig{
		Wait: 50 * time.Millisecond, RetryDelay: time.Millisecond, ProbeOnRecovery: true, ProbeDisabled: 20 * time.Millisecond,
		ResourceChange: func(e hedgerow.ResourceEvent) {
			if !events.CompareAndSwap(e.Seq-1, e.Seq) {
				t.Errorf("event %d out of order", e.Seq)
			}
		},
	}
	for i := range 8 {
		cfg.Resources = append(cfg.Resources, hedgerow.Resource{ID: fmt.Sprint("r", i), MaxInFlight: 3 * (i % 3)})
	}
	pool, err := hedgerow.NewPool(cfg)
	require.NoError(t, err)
	tr := contractNew(t, hedgerow.Config{
		Base: pool.Wrap(base), Hedge: hedgerow.HedgeConfig{Delay: 2 * time.Millisecond, BudgetPercent: 20, MaxHedges: 2},
	})

	const callers = 16
	var workers, admin sync.WaitGroup
	stop := make(chan struct{})
	admin.Go(func() {
		draw := rand.IntN
		for {
			select {
			case <-stop:
				return
			case <-time.After(300 * time.Microsecond):
			}
			if draw(10) == 0 {
				_ = pool.SetResources(cfg.Resources)
			} else {
				phRandomAdmin(draw, pool)
			}
			_ = pool.Stats()
		}
	})
	for range callers {
		workers.Go(func() {
			for range calls {
				if err := stressCall(t.Context(), tr, srv.URL, &gone); err != nil {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
	close(stop)
	admin.Wait()

	require.Eventually(t, func() bool {
		return pool.Stats().InFlight == 0 && (counted == nil || counted.open.Load() == 0)
	}, 10*time.Second, time.Millisecond, "a slot or a body leaks")
	s, c := pool.Stats(), tr.Stats().Total
	require.EqualValues(t, callers*calls, c.Requests)
	ended := s.CallsOK + s.CallsExhausted + s.CallsFailed + s.CallsCanceled
	require.LessOrEqual(t, ended, c.Requests+c.Hedges)
	require.GreaterOrEqual(t, ended+gone.Load(), c.Requests+c.Hedges) // who was gone at once has not reached the pool
	require.GreaterOrEqual(t, s.Attempts, s.Successes)
	require.NotZero(t, s.Cooldowns)
	require.NotZero(t, s.SiblingCancels)
	require.NotZero(t, c.HedgeWins)
	require.LessOrEqual(t, c.PrimaryWins+c.HedgeWins, c.Hedged)
	if counted != nil {
		require.EqualValues(t, counted.sends.Load(), s.Attempts)
	}
	for _, r := range s.Resources {
		require.Zero(t, r.InFlight, r.ID)
		require.Zero(t, r.Oldest, r.ID)
	}
	t.Logf("%d calls, %d attempts, %d hedges, %d ok, %d exhausted, %d failed, %d cancelled, %d siblings, %d cooldowns",
		c.Requests, s.Attempts, c.Hedges, s.CallsOK, s.CallsExhausted, s.CallsFailed, s.CallsCanceled, s.SiblingCancels, s.Cooldowns)
}

// stressCall makes a random call, and returns what a caller should never see.
func stressCall(ctx context.Context, rt http.RoundTripper, url string, gone *atomic.Uint64) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	method, body, path := http.MethodGet, "", "/"
	switch rand.IntN(4) {
	case 0:
		method, body = http.MethodPost, "payload"
	case 1:
		path = "/stream"
	}
	if rand.IntN(50) == 0 {
		time.AfterFunc(time.Duration(rand.IntN(3000))*time.Microsecond, cancel)
	}
	ctx = hedgerow.WithCall(ctx, hedgerow.Call{Idempotent: rand.IntN(2) == 0})
	req, err := http.NewRequestWithContext(ctx, method, url+path, bytes.NewBufferString(body))
	if err != nil {
		return err
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		if errors.Is(err, hedgerow.ErrSuperseded) {
			return fmt.Errorf("a superseded attempt shows: %w", err)
		}
		if ctx.Err() != nil {
			gone.Add(1)
		}
		return nil // the pool may be empty, or the server gone
	}
	if resp.StatusCode == http.StatusTeapot {
		err = errors.New("a request body was lost")
	}
	if path == "/stream" && rand.IntN(2) == 0 {
		_, _ = io.CopyN(io.Discard, resp.Body, 1)
	} else if _, cut := io.Copy(io.Discard, resp.Body); cut != nil && ctx.Err() == nil {
		err = fmt.Errorf("a body was cut: %w", cut)
	}
	_ = resp.Body.Close()
	return err
}
