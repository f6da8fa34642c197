package hedgerow_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// wakePool returns a pool of one resource over a base that answers by the number of its send, from 1.
func wakePool(t *testing.T, cfg hedgerow.PoolConfig, r hedgerow.Resource, answer func(n int) int) (*hedgerow.Pool, func(wait time.Duration) int) {
	t.Helper()
	r.ID = "a"
	cfg.Resources = []hedgerow.Resource{r}
	pool, err := hedgerow.NewPool(cfg)
	require.NoError(t, err)
	n := 0
	rt := pool.Wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
		n++
		return sharedAnswer(req, answer(n), ""), nil
	}))
	return pool, func(wait time.Duration) int {
		ctx := hedgerow.WithCall(t.Context(), hedgerow.Call{Wait: wait})
		resp, err := rt.RoundTrip(contractGet(ctx, t, contractURL))
		if err != nil {
			return 0
		}
		contractRead(t, resp)
		return resp.StatusCode
	}
}

// TestWaitForTheNextProbe waits while a disabled resource is probed. The probe gets another answer than the one it was let
// through for, and the wait goes on to the next probe.
func TestWaitForTheNextProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		_, get := wakePool(t, hedgerow.PoolConfig{ProbeDisabled: 10 * time.Second}, hedgerow.Resource{}, func(n int) int {
			switch n {
			case 1:
				return http.StatusUnauthorized
			case 2:
				time.Sleep(2 * time.Second)
				return http.StatusInternalServerError
			}
			return http.StatusOK
		})
		require.Equal(t, http.StatusUnauthorized, get(-1))
		time.Sleep(10 * time.Second)
		probe := make(chan int)
		go func() { probe <- get(-1) }()
		time.Sleep(time.Second)
		waited := make(chan int, 1)
		go func() { waited <- get(time.Minute) }()
		require.Equal(t, http.StatusInternalServerError, <-probe)
		require.Equal(t, http.StatusOK, <-waited)
		require.Equal(t, 22*time.Second, time.Since(start))
	})
}

// TestDisableEndsAWait has the administrator take out what a verdict had taken out, for which a call waits: there will be no
// probe now.
func TestDisableEndsAWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pool, get := wakePool(t, hedgerow.PoolConfig{ProbeDisabled: 10 * time.Minute}, hedgerow.Resource{}, func(int) int {
			return http.StatusUnauthorized
		})
		require.Equal(t, http.StatusUnauthorized, get(-1))
		time.AfterFunc(time.Second, func() { _ = pool.Disable("a") })
		start := time.Now()
		require.Zero(t, get(time.Hour))
		require.Equal(t, time.Second, time.Since(start))
	})
}

// TestProbeKeepsTheRate probes a disabled resource no more often than its rate allows.
func TestProbeKeepsTheRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sends []time.Duration
		start := time.Now()
		_, get := wakePool(t, hedgerow.PoolConfig{ProbeDisabled: time.Second}, hedgerow.Resource{RateLimit: 0.1, RateBurst: 1},
			func(int) int {
				sends = append(sends, time.Since(start))
				return http.StatusUnauthorized
			})
		for range 25 {
			get(-1)
			time.Sleep(time.Second)
		}
		require.Equal(t, []time.Duration{0, 10 * time.Second, 20 * time.Second}, sends)
	})
}
