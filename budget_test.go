package hedgerow_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// coreEpoch is where the clocks of these tests start. It carries no monotonic reading, so it may be moved either way.
var coreEpoch = time.Date(2024, 5, 17, 8, 0, 0, 0, time.UTC)

// budgetStep is one line of a budget's life: calls arrive, hedges are asked for or given back, and granted says how many of
// those asked for went through.
type budgetStep struct {
	at      time.Duration
	calls   int
	refunds int
	asks    int
	granted int
}

func TestBudgetSteps(t *testing.T) {
	t.Parallel()
	const minute = time.Minute
	tests := []struct {
		name           string
		percent, pinAt float64
		steps          []budgetStep
	}{
		{"starts with one token and no call is needed for it", 10, 0, []budgetStep{
			{at: 0, asks: 3, granted: 1},
			{at: minute, asks: 3, granted: 0},
		}},
		{"ten deposits of a tenth are a whole token", 10, 0, []budgetStep{
			{at: 0, asks: 1, granted: 1},
			{at: 0, calls: 9, asks: 1, granted: 0},
			{at: 0, calls: 1, asks: 2, granted: 1},
		}},
		{"a hundred deposits of 0.7 % fall short, 143 do not", 0.7, 0, []budgetStep{
			{at: 0, asks: 1, granted: 1},
			{at: 0, calls: 142, asks: 1, granted: 0},
			{at: 0, calls: 1, asks: 2, granted: 1},
		}},
		{"a thousand deposits of 0.7 % are seven tokens, not one unit less", 0.7, 0, []budgetStep{
			{at: 0, asks: 1, granted: 1},
			{at: 0, calls: 1000, asks: 10, granted: 7},
		}},
		{"every call may be hedged at 100 %", 100, 0, []budgetStep{
			{at: 0, calls: 5, asks: 9, granted: 6},
		}},
		{"a burst at one instant saves two seconds of hedges at most", 10, 0, []budgetStep{
			{at: 0, calls: 5, asks: 0}, // five calls a second: the cap is still one token
			{at: 0, calls: 95, asks: 30, granted: 10},
			{at: minute, calls: 1, asks: 30, granted: 0},
		}},
		{"a steady flow saves two seconds of hedges", 10, 0, []budgetStep{
			{at: 0, calls: 100},
			{at: 1 * time.Second, calls: 100},
			{at: 2 * time.Second, calls: 100},
			{at: 3 * time.Second, calls: 100},
			{at: 4 * time.Second, calls: 100},
			{at: 5 * time.Second, calls: 100},
			{at: 6 * time.Second, asks: 50, granted: 20},
		}},
		{"a deposit that overshoots a cap of one token loses the rest", 33, 0, []budgetStep{
			{at: 0, asks: 1, granted: 1},
			{at: 1 * time.Second, calls: 1},
			{at: 3 * time.Second, calls: 1},
			{at: 5 * time.Second, calls: 1},
			{at: 7 * time.Second, calls: 1, asks: 2, granted: 1}, // 1.32 tokens, held to 1
			{at: 9 * time.Second, calls: 1},
			{at: 11 * time.Second, calls: 1},
			{at: 13 * time.Second, calls: 1, asks: 1, granted: 0},
			{at: 15 * time.Second, calls: 1, asks: 1, granted: 1},
		}},
		{"a slow endpoint saves one token however long it waits", 10, 0, []budgetStep{
			{at: 0, calls: 1, asks: 2, granted: 1},
			{at: 1 * minute, calls: 4},
			{at: 2 * minute, calls: 4},
			{at: 3 * minute, calls: 4},
			{at: 4 * minute, calls: 4},
			{at: 5 * minute, calls: 4},
			{at: 6 * minute, calls: 4},
			{at: 7 * minute, asks: 5, granted: 1},
		}},
		{"what was saved in busy times does not outlive them", 10, 0, []budgetStep{
			{at: 0, calls: 100}, // eleven tokens
			{at: minute, asks: 30, granted: 1},
		}},
		{"a refund gives the token back", 10, 0, []budgetStep{
			{at: 0, asks: 1, granted: 1},
			{at: 0, refunds: 1, asks: 2, granted: 1},
		}},
		{"a refund never fills above the cap", 10, 0, []budgetStep{
			{at: 0, refunds: 5, asks: 3, granted: 1},
		}},

		{"pinned: starts full with two seconds of hedges, refilled by time", 10, 100, []budgetStep{
			{at: 0, asks: 30, granted: 20},
			{at: time.Second, asks: 30, granted: 10},
			{at: minute, asks: 30, granted: 20},
		}},
		{"pinned: deposits buy nothing", 10, 100, []budgetStep{
			{at: 0, calls: 1000, asks: 30, granted: 20},
			{at: 0, calls: 1000, asks: 30, granted: 0},
		}},
		{"pinned: holds at least one token", 10, 0.5, []budgetStep{
			{at: 0, asks: 3, granted: 1},
			{at: 19 * time.Second, asks: 3, granted: 0},
			{at: 20 * time.Second, asks: 3, granted: 1},
		}},
		{"pinned: the burst is rounded down", 10, 14, []budgetStep{
			{at: 0, asks: 5, granted: 2},
		}},
		{"pinned: an enormous estimate is only a large burst", 100, 1e300, []budgetStep{
			{at: 0, asks: 1000, granted: 1000},
		}},
		{"pinned: a refund is used first, and soon after the take it is still whole", 10, 0.5, []budgetStep{
			{at: 0, asks: 1, granted: 1},
			{at: 10 * time.Millisecond, refunds: 1, asks: 2, granted: 1},
			{at: 20 * time.Second, asks: 2, granted: 1},
		}},
		{"pinned: refunds do not add to a full bucket", 10, 100, []budgetStep{
			{at: 0, asks: 20, granted: 20},
			{at: minute, refunds: 20, asks: 50, granted: 20},
		}},
		{"pinned: unused refunds are gone once time has refilled the bucket", 10, 100, []budgetStep{
			{at: 0, asks: 20, granted: 20},
			{at: 0, refunds: 20},
			{at: minute, asks: 50, granted: 20},
		}},
		{"pinned: a clock that goes back and forth refills once", 10, 100, []budgetStep{
			{at: 0, asks: 20, granted: 20},
			{at: time.Second, asks: 20, granted: 10},
			{at: 0, asks: 20, granted: 0},
			{at: time.Second, asks: 20, granted: 0},
			{at: 1100 * time.Millisecond, asks: 1, granted: 1},
			{at: 0, asks: 1, granted: 0},
			{at: 1200 * time.Millisecond, asks: 20, granted: 1},
			{at: 500 * time.Millisecond, asks: 1, granted: 0},
			{at: 1200 * time.Millisecond, asks: 1, granted: 0},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := hedgerow.NewBudgetCore(tt.percent, tt.pinAt, 10*time.Second)
			for i, s := range tt.steps {
				now := coreEpoch.Add(s.at)
				for range s.calls {
					b.Deposit(now)
				}
				for range s.refunds {
					b.Refund(now)
				}
				granted := 0
				for range s.asks {
					if b.Take(now) {
						granted++
					}
				}
				require.Equal(t, s.granted, granted, "step %d at %v", i, s.at)
			}
		})
	}
}

// A clock that only ever steps back and then forward by the same second shows a limiter the same second again and again.
func TestBudgetPinnedSwingingClock(t *testing.T) {
	t.Parallel()
	b := hedgerow.NewBudgetCore(10, 100, 10*time.Second)
	granted := 0
	for b.Take(coreEpoch) {
		granted++
	}
	for i := range 1000 {
		if b.Take(coreEpoch.Add(time.Duration(i%2) * time.Second)) {
			granted++
		}
	}
	require.Equal(t, 30, granted, "20 at the start and one second of refill")
}

func TestBudgetShare(t *testing.T) {
	t.Parallel()
	for percent, want := range map[float64]int64{
		100: 1e9, 50: 5e8, 33.3: 333e6, 10: 1e8, 0.7: 7e6, 0.1: 1e6, 0.07: 7e5, 1e-7: 1,
	} {
		require.Equal(t, want, hedgerow.NewBudgetCore(percent, 0, time.Second).Share(), "%v percent", percent)
	}
}

func TestBudgetRate(t *testing.T) {
	t.Parallel()
	const window = 10 * time.Second
	type step struct {
		at    time.Duration
		calls int
		want  float64
	}
	sec := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	tests := []struct {
		name  string
		steps []step
	}{
		{"nothing yet", []step{{0, 0, 0}, {window, 0, 0}, {-window, 0, 0}}},
		{"a first call is one a second, not a billion", []step{{0, 1, 1}, {sec(0.001), 0, 1}, {sec(2), 0, 0.5}}},
		{"one second after the start the rate is right", []step{{0, 0, 0}, {0, 50, 50}, {sec(1), 50, 100}, {sec(4), 300, 100}}},
		{"the time before the first call does not count", []step{{0, 0, 0}, {sec(100), 50, 50}, {sec(101), 50, 100}}},
		{"no jump when the first window ends", []step{{0, 1000, 1000}, {sec(9.999), 0, 1000 / 9.999}, {window, 0, 100}}},
		{"the previous window fades", []step{{0, 1000, 1000}, {sec(12.5), 0, 75}, {sec(12.5), 50, 80}, {sec(15), 0, 55}, {sec(19), 0, 15}}},
		{"the second rotation", []step{{0, 100, 100}, {sec(15), 200, 25}, {sec(20), 0, 20}, {sec(25), 0, 10}, {sec(30), 0, 0}}},
		{"two windows later all is forgotten and a new start is a start", []step{{0, 1000, 1000}, {sec(20), 0, 0}, {sec(33), 50, 50}, {sec(34), 50, 100}}},
		{"so also if a look in between rotated the windows", []step{{0, 10, 10}, {sec(15), 0, 0.5}, {sec(25), 0, 0}, {sec(26), 50, 50}, {sec(27), 50, 100}}},
		{"a clock that goes back counts into the current window", []step{{sec(5), 10, 10}, {0, 10, 20}, {-sec(3600), 10, 30}, {sec(10), 0, 6}}},
		{"also in a later window", []step{{0, 100, 100}, {sec(10), 100, 20}, {sec(1), 100, 30}, {sec(15), 0, 25}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := hedgerow.NewBudgetCore(10, 0, window)
			for i, s := range tt.steps {
				for range s.calls {
					b.Deposit(coreEpoch.Add(s.at))
				}
				require.InDelta(t, s.want, b.Rate(coreEpoch.Add(s.at)), 1e-9, "step %d at %v", i, s.at)
			}
		})
	}

	t.Run("pinned budgets observe too", func(t *testing.T) {
		t.Parallel()
		b := hedgerow.NewBudgetCore(10, 7, window)
		b.Deposit(coreEpoch)
		require.InDelta(t, 1.0, b.Rate(coreEpoch), 1e-9)
	})
	t.Run("windows below a second are taken as they are", func(t *testing.T) {
		t.Parallel()
		b := hedgerow.NewBudgetCore(10, 0, 100*time.Millisecond)
		b.Deposit(coreEpoch)
		require.InDelta(t, 10.0, b.Rate(coreEpoch), 1e-9)
	})
}

// A client that hedges whenever it may uses its share and no more, at any rate.
func TestBudgetShareIsUsed(t *testing.T) {
	t.Parallel()
	for _, perSecond := range []int{1, 7, 100, 10_000} {
		for _, percent := range []float64{0.1, 1, 10, 50} {
			t.Run(fmt.Sprintf("%d per second at %v percent", perSecond, percent), func(t *testing.T) {
				t.Parallel()
				const calls = 20_000
				b := hedgerow.NewBudgetCore(percent, 0, 10*time.Second)
				hedges := 0
				for i := range calls {
					now := coreEpoch.Add(time.Duration(i) * time.Second / time.Duration(perSecond))
					b.Deposit(now)
					if b.Take(now) {
						hedges++
					}
				}
				// The first token is extra, what is left of a token at the end is missing.
				require.InDelta(t, calls*percent/100, hedges, 1)
			})
		}
	}
}

func BenchmarkBudget(b *testing.B) {
	for name, pinned := range map[string]float64{"calls": 0, "time": 100} {
		core := hedgerow.NewBudgetCore(10, pinned, 10*time.Second)
		now := coreEpoch
		b.Run("deposit/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Microsecond)
				core.Deposit(now)
			}
		})
		b.Run("take/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Microsecond)
				core.Take(now)
			}
		})
	}
}
