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
