package hedgerow_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
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

// budgetEvent is what happened to a budget: a call, or a hedge (-1 for one given back), and the cap in force after it.
type budgetEvent struct {
	calls, hedges int64
	limit         int64
}

// Over any span of events, hedges <= share x calls + the largest cap in the span, in integers, whatever the clock does.
func TestBudgetInvariant(t *testing.T) {
	t.Parallel()
	clocks := map[string]func(*rand.Rand) time.Duration{
		"1 per second":      func(*rand.Rand) time.Duration { return time.Second },
		"10000 per second":  func(*rand.Rand) time.Duration { return 100 * time.Microsecond },
		"standing still":    func(*rand.Rand) time.Duration { return 0 },
		"bursts and pauses": func(r *rand.Rand) time.Duration { return oneOf(r, 0, 0, 0, 0, 0, 0, 0, 40*time.Second) },
		"any pace": func(r *rand.Rand) time.Duration {
			return time.Duration(r.ExpFloat64() * float64(oneOf(r, time.Microsecond, time.Millisecond, time.Second, 10*time.Second)))
		},
		"back and forth": func(r *rand.Rand) time.Duration {
			return time.Duration(r.NormFloat64() * float64(oneOf(r, time.Millisecond, time.Second, time.Minute)))
		},
		"only back": func(*rand.Rand) time.Duration { return -time.Second },
	}
	for name, tick := range clocks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(40) {
				r := rand.New(rand.NewPCG(seed, 1))
				percent := oneOf(r, 0.1, 1, 3.7, 10, 50, 100)
				b := hedgerow.NewBudgetCore(percent, 0, oneOf(r, 100*time.Millisecond, 10*time.Second))
				events := randomBudgetLife(r, b, 400, tick)
				for from := range events {
					var calls, hedges, limit int64
					for to, e := range events[from:] {
						calls, hedges, limit = calls+e.calls, hedges+e.hedges, max(limit, e.limit)
						if hedges*hedgerow.BudgetToken > calls*b.Share()+limit {
							require.Fail(t, "too many hedges", "seed %d, events %d to %d: %d hedges, %d calls at %v %%, cap %v",
								seed, from, from+to, hedges, calls, percent, float64(limit)/hedgerow.BudgetToken)
						}
					}
				}
			}
		})
	}
}

// randomBudgetLife makes n calls, each followed by a few asks for a hedge (greedy spells alternate with frugal ones, so
// that tokens are saved up and spent) and now and then by a hedge given back.
func randomBudgetLife(r *rand.Rand, b hedgerow.BudgetCore, n int, tick func(*rand.Rand) time.Duration) []budgetEvent {
	now, greedy, sent := coreEpoch, true, 0
	events := make([]budgetEvent, 0, 2*n)
	for range n {
		now = now.Add(tick(r))
		b.Deposit(now)
		events = append(events, budgetEvent{calls: 1, limit: b.Cap(now)})
		if r.IntN(50) == 0 {
			greedy = !greedy
		}
		for range 3 {
			if !greedy {
				break
			}
			now = now.Add(tick(r) / 10)
			if b.Take(now) {
				sent++
				events = append(events, budgetEvent{hedges: 1, limit: b.Cap(now)})
			}
		}
		if sent > 0 && r.IntN(10) == 0 {
			b.Refund(now)
			sent--
			events = append(events, budgetEvent{hedges: -1, limit: b.Cap(now)})
		}
	}
	return events
}

// The same for a pinned budget: over any span, hedges <= refill + burst + 1, for time that passed at most once.
func TestBudgetPinnedInvariant(t *testing.T) {
	t.Parallel()
	type event struct {
		hedges int
		at     time.Duration // the furthest that the budget's clock has been
	}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		estimate := oneOf(r, 0.5, 14, 100, 3000)
		perSecond := estimate / 10
		burst := float64(int(max(1, 2*perSecond)))
		b := hedgerow.NewBudgetCore(10, estimate, 10*time.Second)
		var events []event
		var at, furthest time.Duration
		b.Take(coreEpoch) // the clock has been at 0
		sent := 0
		for range 400 {
			at += time.Duration((r.NormFloat64() + 0.3) * 2 / perSecond * float64(time.Second))
			furthest = max(furthest, at)
			switch {
			case sent > 0 && r.IntN(3) == 0:
				b.Refund(coreEpoch.Add(at))
				sent--
				events = append(events, event{-1, furthest})
			default:
				for range 1 + r.IntN(int(burst)*2) {
					if b.Take(coreEpoch.Add(at)) {
						sent++
						events = append(events, event{1, furthest})
					}
				}
			}
		}
		for from := range events {
			hedges := 0
			for to, e := range events[from:] {
				hedges += e.hedges
				if refill := (e.at - events[from].at).Seconds() * perSecond; float64(hedges) > refill+burst+1+1e-6 {
					require.Fail(t, "too many hedges", "seed %d, events %d to %d: %d hedges, refill %v, burst %v",
						seed, from, from+to, hedges, refill, burst)
				}
			}
		}
	}
}

func TestBudgetConcurrent(t *testing.T) {
	t.Parallel()
	const workers, calls = 8, 2000
	for name, pinned := range map[string]float64{"filled by calls": 0, "filled by time": 100} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := hedgerow.NewBudgetCore(10, pinned, 10*time.Second)
			granted := make(chan int, workers)
			var wg sync.WaitGroup
			for w := range workers {
				wg.Go(func() {
					n := 0
					for i := range calls {
						// Each worker's clock is a little off, as clocks read before a lock are.
						now := coreEpoch.Add(time.Duration(i*10+w) * time.Microsecond)
						b.Deposit(now)
						if b.Take(now) {
							n++
						}
						if i%100 == 50 && n > 0 {
							b.Refund(now)
							n--
						}
						b.Rate(now)
					}
					granted <- n
				})
			}
			wg.Wait()
			close(granted)
			total := 0
			for n := range granted {
				total += n
			}
			if pinned > 0 {
				require.LessOrEqual(t, total, 21)
				require.GreaterOrEqual(t, total, 20)
				return
			}
			require.InDelta(t, workers*calls/10, total, 1)
		})
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

func oneOf[T any](r *rand.Rand, from ...T) T {
	return from[r.IntN(len(from))]
}
