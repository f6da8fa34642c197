//go:build !race

package hedgerow_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// The cores stand on the path of every call: they allocate nothing. Not parallel, as AllocsPerRun demands.
func TestCoresDoNotAllocate(t *testing.T) { //nolint:paralleltest // AllocsPerRun panics in parallel tests
	now := coreEpoch
	tick := func() time.Time {
		now = now.Add(time.Millisecond)
		return now
	}
	byCalls := hedgerow.NewBudgetCore(10, 0, 10*time.Second)
	byTime := hedgerow.NewBudgetCore(10, 100, 10*time.Second)
	closed := hedgerow.NewCircuitCore(hedgerow.BreakerConfig{}.WithDefaults())
	open := openCircuit(5)
	half := openCircuit(5)
	_, ok, _ := half.Admit(coreEpoch.Add(time.Hour))
	require.True(t, ok)

	for name, run := range map[string]func(){
		"budget by calls": func() { byCalls.Deposit(tick()); byCalls.Take(now); byCalls.Refund(now); byCalls.Rate(now) },
		"budget by time":  func() { byTime.Deposit(tick()); byTime.Take(now); byTime.Refund(now); byTime.Rate(now) },
		"closed": func() {
			closed.Peek(tick())
			_, _, _ = closed.Admit(now)
			closed.Record(now, false)
		},
		"open": func() {
			open.Peek(coreEpoch)
			_, _, _ = open.Admit(coreEpoch)
			open.Record(coreEpoch, true)
			open.State(coreEpoch)
			open.Until(coreEpoch)
		},
		"half-open": func() {
			ticket, _, _ := half.Admit(coreEpoch)
			half.Release(ticket)
		},
		"both": func() { hedgerow.AdmitBoth(tick(), closed, closed) },
	} {
		require.Zero(t, testing.AllocsPerRun(1000, run), name)
	}
}
