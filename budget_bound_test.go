package hedgerow_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

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

func oneOf[T any](r *rand.Rand, from ...T) T {
	return from[r.IntN(len(from))]
}
