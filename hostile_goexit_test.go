package hedgerow_test

import (
	"context"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// goexiting is a transport over a base that is told its statuses. When it is armed its CircuitChange ends the goroutine once, as a
// failed assertion in it does.
func goexiting(t *testing.T, armed *atomic.Bool, breaker hedgerow.BreakerConfig, status func() int) *hedgerow.Transport {
	t.Helper()
	breaker.MinSamples, breaker.HalfOpenTrials = 1, 1
	tr, err := hedgerow.New(hedgerow.Config{
		Base: roundTrip(func(req *http.Request) (*http.Response, error) {
			resp := sharedAnswer(req, status(), "")
			if req.Body != nil {
				return resp, req.Body.Close()
			}
			return resp, nil
		}),
		Hedge: hedgerow.HedgeConfig{Delay: 35 * time.Second}, Breaker: breaker,
		Hooks: hedgerow.Hooks{CircuitChange: func(hedgerow.CircuitEvent) {
			if armed.Swap(false) {
				runtime.Goexit()
			}
		}},
	})
	require.NoError(t, err)
	return tr
}

// TestGoexitInCircuitChangeOfAHedge has the hook told of a circuit that turns half-open for a hedge. The hedge has failed with its
// goroutine, and the call ends with its primary.
func TestGoexitInCircuitChangeOfAHedge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var armed atomic.Bool
		tr := goexiting(t, &armed, hedgerow.BreakerConfig{}, func() int {
			if armed.Load() {
				time.Sleep(40 * time.Second)
			}
			return http.StatusInternalServerError
		})
		get := func() int {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			resp, err := tr.RoundTrip(contractGet(ctx, t, contractURL))
			require.NoError(t, err)
			contractRead(t, resp)
			return resp.StatusCode
		}
		require.Equal(t, http.StatusInternalServerError, get()) // opens the circuits
		armed.Store(true)
		start := time.Now()
		require.Equal(t, http.StatusInternalServerError, get())
		require.Equal(t, 40*time.Second, time.Since(start))
		require.False(t, armed.Load())
	})
}

// TestGoexitInCircuitChangeOfFailFast has the hook told of a circuit that turns half-open for a call. The call is gone with its
// goroutine; its body is closed, its Done was called, and its place is another one's.
func TestGoexitInCircuitChangeOfFailFast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var armed, good atomic.Bool
		tr := goexiting(t, &armed, hedgerow.BreakerConfig{FailFast: true}, func() int {
			if good.Load() {
				return http.StatusOK
			}
			return http.StatusInternalServerError
		})
		body := &contractBody{src: strings.NewReader(sharedPayload)}
		var infos []hedgerow.CallInfo
		put := func() (resp *http.Response, err error) {
			ctx := hedgerow.WithCall(t.Context(), hedgerow.Call{Done: func(i hedgerow.CallInfo) { infos = append(infos, i) }})
			return tr.RoundTrip(putWith(t, body, nil).WithContext(ctx))
		}
		resp, err := put()
		require.NoError(t, err)
		contractRead(t, resp)
		good.Store(true)
		armed.Store(true)
		time.Sleep(time.Minute)
		body = &contractBody{src: strings.NewReader(sharedPayload)}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = put()
		}()
		<-ended
		require.EqualValues(t, 1, body.closes.Load())
		require.Len(t, infos, 2)
		require.Zero(t, infos[1].Attempts)
		time.Sleep(time.Minute)
		resp, err = put()
		require.NoError(t, err)
		contractRead(t, resp)
	})
}

// TestGoexitInResourceChange has the hook told of the end of a cooldown, by the call that takes the resource next. The call is gone
// with its goroutine, and its place is free.
func TestGoexitInResourceChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pool, err := hedgerow.NewPool(hedgerow.PoolConfig{
			Resources: []hedgerow.Resource{{ID: "a", MaxInFlight: 1}},
			ResourceChange: func(e hedgerow.ResourceEvent) {
				if e.To == hedgerow.ResourceHealthy {
					runtime.Goexit()
				}
			},
		})
		require.NoError(t, err)
		rt := pool.Wrap(roundTrip(func(req *http.Request) (*http.Response, error) { return sharedAnswer(req, http.StatusOK, ""), nil }))
		require.NoError(t, pool.Report("a", "", hedgerow.Verdict{Action: hedgerow.ActionCooldown, Wait: time.Second}))
		time.Sleep(time.Second)
		goes, req := make(chan struct{}), contractGet(t.Context(), t, contractURL)
		go func() {
			defer close(goes)
			resp, err := rt.RoundTrip(req)
			t.Errorf("returned %v, %v", resp, err)
		}()
		<-goes
		require.Zero(t, pool.Stats().InFlight)
		resp, err := rt.RoundTrip(contractGet(t.Context(), t, contractURL))
		require.NoError(t, err)
		contractRead(t, resp)
	})
}

// TestGoexitInAttemptDone has the hook of the winner end the goroutine. The refusal of the primary is discarded by then, once.
func TestGoexitInAttemptDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refusal := &contractBody{src: strings.NewReader(strings.Repeat("no", 1000))}
		reading := 0
		refusal.onRead = func() {
			reading++ // not at once, or the race detector says so
			time.Sleep(time.Millisecond)
			if reading != 1 {
				t.Error("read twice at once")
			}
			reading--
		}
		tr := contractNew(t, hedgerow.Config{
			Base: roundTrip(func(req *http.Request) (*http.Response, error) {
				resp := sharedAnswer(req, http.StatusOK, "")
				if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Kind == hedgerow.AttemptPrimary {
					time.Sleep(50 * time.Millisecond)
					resp.StatusCode, resp.Body = http.StatusInternalServerError, refusal
				} else {
					time.Sleep(time.Second)
				}
				return resp, nil
			}),
			Hedge: hedgerow.HedgeConfig{MaxHedges: 1},
			Hooks: hedgerow.Hooks{AttemptDone: func(_ context.Context, e hedgerow.AttemptEvent) {
				if e.Won {
					runtime.Goexit()
				}
			}},
		})
		goes, req := make(chan struct{}), contractGet(t.Context(), t, contractURL)
		go func() {
			defer close(goes)
			resp, err := tr.RoundTrip(req)
			t.Errorf("returned %v, %v", resp, err)
		}()
		<-goes
		synctest.Wait()
		time.Sleep(time.Second)
		require.EqualValues(t, 1, refusal.closes.Load())
	})
}
