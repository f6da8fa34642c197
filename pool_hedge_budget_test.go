package hedgerow_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// TestBudgetOfAHedgeThatComesTooLate has a hook take so long, before a hedge is handed to the pool, that the call is over by then. The
// next call has what the budget had for it.
func TestBudgetOfAHedgeThatComesTooLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		status, took := http.StatusInternalServerError, time.Duration(0)
		slow := false
		pool := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(3)})
		tr := contractNew(t, hedgerow.Config{
			Base: pool.Wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
				time.Sleep(took)
				return sharedAnswer(req, status, ""), nil
			})),
			Breaker: hedgerow.BreakerConfig{MinSamples: 2, Cooldown: time.Second},
			Hedge:   hedgerow.HedgeConfig{Delay: 10 * time.Millisecond, MaxHedges: 1, BudgetPercent: 1},
			Hooks: hedgerow.Hooks{CircuitChange: func(hedgerow.CircuitEvent) {
				if slow {
					time.Sleep(100 * time.Millisecond)
				}
			}},
		})
		get := func() {
			resp, err := tr.RoundTrip(contractGet(t.Context(), t, pspecURL))
			require.NoError(t, err)
			contractRead(t, resp)
			time.Sleep(time.Second) // all is back by then
		}
		get()
		get() // the circuits are open now
		time.Sleep(10 * time.Second)
		status, took, slow = http.StatusOK, 50*time.Millisecond, true
		get()
		require.Zero(t, tr.Stats().Total.Hedges)
		slow = false
		get()
		require.EqualValues(t, 1, tr.Stats().Total.Hedges)
		require.Zero(t, tr.Stats().Total.Skipped)
	})
}
