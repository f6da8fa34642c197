package hedgerow_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// requireBudget checks hedges <= share x calls + most over every span of the run. Calls and hedges of one instant belong
// to the same spans.
func (o *simOutcome) requireBudget(t *testing.T, share, most float64) {
	t.Helper()
	type event struct {
		at     time.Duration
		amount float64 // what it adds to hedges - share x calls
	}
	var events []event
	for _, c := range o.calls {
		events = append(events, event{c.at, -share})
		for _, at := range c.hedges {
			events = append(events, event{at, 1})
		}
	}
	slices.SortFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })

	sum, least, worst := 0.0, 0.0, 0.0 // now, at its lowest before any instant, greatest rise since
	for k := 0; k < len(events); {
		least = min(least, sum)
		for at := events[k].at; k < len(events) && events[k].at == at; k++ {
			sum += events[k].amount
		}
		worst = max(worst, sum-least)
	}
	require.LessOrEqual(t, worst, most+1e-6, "hedges beyond %v of the calls in one span", share)
}

// simCap is the most that the bucket holds at that rate of calls.
func simCap(share, rate float64) float64 { return max(1, 2*share*rate) }

// TestOutage shows that no outage is answered by more hedges than the budget allows.
func TestOutage(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	healthy := simLognormal(5*ms, 2*ms)
	fates := []struct {
		name string
		fate func(drawn time.Duration) simAnswer
	}{
		{"slow", func(d time.Duration) simAnswer { return simAnswer{after: 200 * d} }},
		{"failing late", func(d time.Duration) simAnswer { return simAnswer{after: 30 * d, status: http.StatusBadGateway} }},
		{"failing at once", func(time.Duration) simAnswer { return simAnswer{after: ms / 10, status: http.StatusBadGateway} }},
	}
	configs := []struct {
		name string
		cfg  hedgerow.Config
	}{
		{"default", hedgerow.Config{}},
		{"tiny delay", hedgerow.Config{Hedge: hedgerow.HedgeConfig{Delay: time.Microsecond, MinDelay: time.Microsecond}}},
		{"no circuits", hedgerow.Config{Breaker: hedgerow.BreakerConfig{Disabled: true}}},
		{"tiny delay, no circuits, eight hedges", hedgerow.Config{
			Hedge:   hedgerow.HedgeConfig{Delay: ms, MaxHedges: 8},
			Breaker: hedgerow.BreakerConfig{Disabled: true},
		}},
	}
	for _, load := range []struct {
		rate  float64
		calls int
	}{{1, 3_000}, {100, 20_000}, {10_000, 50_000}} {
		for k, f := range fates {
			for n, c := range configs {
				if load.rate > 1 && (k+n)%2 != 0 || simRaced && (load.rate > 1 && k != n || load.rate > 100 && k == 1) {
					continue // half of them will do, and fewer where they take long
				}
				t.Run(fmt.Sprintf("%v calls a second/%s/%s", load.rate, f.name, c.name), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						span := time.Duration(float64(load.calls) / load.rate * float64(time.Second))
						s := simulation{cfg: c.cfg, seed: 3, calls: load.calls, rate: load.rate, regular: true, service: healthy}
						s.fate = func(at, drawn time.Duration) simAnswer {
							if at < span/5 || at > span*4/5 {
								return simAnswer{after: drawn}
							}
							return f.fate(drawn)
						}
						o := s.run(t)
						// One call more than the rate is seen in the first second.
						o.requireBudget(t, 0.10, simCap(0.10, load.rate+1))
						require.LessOrEqual(t, o.sent(), 0.10+simCap(0.10, load.rate+1)/float64(load.calls))
						require.Greater(t, o.sent(), 0.01, "hedging was on")
						if c.cfg.Breaker.Disabled {
							require.Empty(t, o.stats.Total.Skipped[hedgerow.SkipCircuit])
						} else if f.name == "failing late" {
							require.NotZero(t, o.stats.Total.Skipped[hedgerow.SkipCircuit])
						}
					})
				})
			}
		}
	}
}

// TestBursts shows the same for calls that come in bursts, where the rate observed is at most the greatest that any
// second has seen.
func TestBursts(t *testing.T) {
	t.Parallel()
	for _, percent := range []float64{0.7, 10, 33, 100} {
		t.Run(fmt.Sprintf("%v percent", percent), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				base := &simBase{start: time.Now()}
				tr, err := hedgerow.New(hedgerow.Config{Base: base, Hedge: hedgerow.HedgeConfig{
					BudgetPercent: percent, Delay: 5 * time.Millisecond, MaxHedges: 3,
				}})
				require.NoError(t, err)
				rng := rand.New(rand.NewPCG(8, 8))
				done := make(chan *simCall)
				var arrivals []time.Duration
				at := time.Duration(0)
				for range 60 {
					for range 1 + rng.IntN(60) {
						arrivals = append(arrivals, at)
						at += time.Duration(rng.Int64N(int64(2 * time.Millisecond)))
					}
					at += time.Duration(rng.ExpFloat64() * float64(4*time.Second))
				}
				for _, at := range arrivals {
					go func() {
						time.Sleep(time.Until(base.start.Add(at)))
						c := &simCall{at: at}
						for k := range c.service {
							c.service[k] = time.Minute
						}
						c.make(t.Context(), tr, "")
						done <- c
					}()
				}
				o := &simOutcome{}
				for range arrivals {
					o.calls = append(o.calls, <-done)
				}
				synctest.Wait()
				peak := 0.0 // calls per second, over any span of a second or more
				for i := range arrivals {
					for j := i; j < len(arrivals); j++ {
						peak = max(peak, float64(j-i+1)/max(1, (arrivals[j]-arrivals[i]).Seconds()))
					}
				}
				// The estimate slides over two windows of ten seconds, and so may be off by a second of them.
				o.requireBudget(t, percent/100, simCap(percent/100, 1.1*peak))
				require.NotZero(t, o.sent())
			})
		})
	}
}

// TestLowRate calls a slow service once per second: the first call has the token that the bucket starts with, and then
// every tenth saves one up.
func TestLowRate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		percent      float64
		calls, every int
	}{{10, 500, 10}, {5, 500, 20}, {50, 100, 2}, {100, 100, 1}, {0.5, 1000, 200}} {
		t.Run(fmt.Sprintf("%v percent", tt.percent), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := simulation{
					cfg: hedgerow.Config{Hedge: hedgerow.HedgeConfig{
						BudgetPercent: tt.percent, Delay: 20 * time.Millisecond, MaxHedges: 1,
					}},
					calls: tt.calls, rate: 1, regular: true, service: simConstant(900 * time.Millisecond),
				}
				o := s.run(t)
				for k, c := range o.calls {
					want := 0
					if k%tt.every == 0 {
						want = 1
					}
					require.Len(t, c.hedges, want, "call %d", k)
				}
				hedged := uint64(math.Ceil(float64(tt.calls) / float64(tt.every)))
				refused := uint64(tt.calls) - hedged
				want := hedgerow.Counters{
					Requests: uint64(tt.calls), Hedged: hedged, Hedges: hedged, PrimaryWins: hedged,
				}
				if refused > 0 {
					want.Skipped = map[hedgerow.SkipReason]uint64{hedgerow.SkipBudget: refused}
				}
				require.Equal(t, want, o.stats.Total)
				require.InDelta(t, 1, o.endpoint.RatePerSecond, 0.1)
				require.Equal(t, 20*time.Millisecond, o.endpoint.Delay)
				require.InEpsilon(t, 900*time.Millisecond, o.endpoint.Latency.P50, 0.01)
			})
		})
	}
}
