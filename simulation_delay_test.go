package hedgerow_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// A simClient makes single calls in virtual time.
type simClient struct {
	t  *testing.T
	tr *hedgerow.Transport
	b  *simBase
}

func newSimClient(t *testing.T, cfg hedgerow.Config) *simClient {
	t.Helper()
	b := &simBase{start: time.Now()}
	cfg.Base = b
	tr, err := hedgerow.New(cfg)
	require.NoError(t, err)
	return &simClient{t: t, tr: tr, b: b}
}

// call makes a call all of whose attempts take that time, and waits for it. Its hedges are to be read after synctest.Wait.
func (c *simClient) call(takes time.Duration, opts hedgerow.Call) *simCall {
	call := &simCall{at: time.Since(c.b.start), opts: opts}
	for k := range call.service {
		call.service[k] = takes
	}
	call.make(c.t.Context(), c.tr, "/")
	return call
}

// fired returns when the hedges of a call were sent, since its start.
func (c *simCall) fired() []time.Duration {
	fired := make([]time.Duration, len(c.hedges))
	for k, at := range c.hedges {
		fired[k] = at - c.at
	}
	return fired
}

// simMultiples returns 1 to n times d.
func simMultiples(d time.Duration, n int) []time.Duration {
	all := make([]time.Duration, n)
	for k := range all {
		all[k] = time.Duration(k+1) * d
	}
	return all
}

// TestFiringTimes shows hedge n at n times the delay, to the nanosecond, and at most eight of them.
func TestFiringTimes(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, tt := range []struct {
		name  string
		hedge hedgerow.HedgeConfig
		opts  hedgerow.Call
		delay time.Duration
		fired int
	}{
		{"warm-up", hedgerow.HedgeConfig{}, hedgerow.Call{}, 10 * ms, 2},
		{"warm-up of its own", hedgerow.HedgeConfig{WarmupDelay: 25 * ms}, hedgerow.Call{}, 25 * ms, 2},
		{"warm-up below the minimum", hedgerow.HedgeConfig{WarmupDelay: ms, MinDelay: 4 * ms}, hedgerow.Call{}, 4 * ms, 2},
		{"warm-up above the maximum", hedgerow.HedgeConfig{WarmupDelay: 30 * ms, MaxDelay: 12 * ms}, hedgerow.Call{}, 12 * ms, 2},
		{"fixed", hedgerow.HedgeConfig{Delay: 30 * ms}, hedgerow.Call{}, 30 * ms, 2},
		{"fixed and odd", hedgerow.HedgeConfig{Delay: 30*ms + 1}, hedgerow.Call{}, 30*ms + 1, 2},
		{"fixed below the minimum", hedgerow.HedgeConfig{Delay: ms / 5}, hedgerow.Call{}, ms, 2},
		{"fixed above the maximum", hedgerow.HedgeConfig{Delay: 30 * ms, MaxDelay: 10 * ms}, hedgerow.Call{}, 30 * ms, 2},
		{"negative is learned", hedgerow.HedgeConfig{Delay: -1}, hedgerow.Call{}, 10 * ms, 2},
		{"the call's", hedgerow.HedgeConfig{Delay: 30 * ms}, hedgerow.Call{Delay: 7 * ms}, 7 * ms, 2},
		{"the call's below the minimum", hedgerow.HedgeConfig{MinDelay: 3 * ms}, hedgerow.Call{Delay: 1}, 3 * ms, 2},
		{"the call's above the maximum", hedgerow.HedgeConfig{MaxDelay: 3 * ms}, hedgerow.Call{Delay: 7 * ms}, 7 * ms, 2},
		{"the call's is negative", hedgerow.HedgeConfig{Delay: 30 * ms}, hedgerow.Call{Delay: -1}, 30 * ms, 2},
		{"one hedge", hedgerow.HedgeConfig{Delay: 30 * ms, MaxHedges: 1}, hedgerow.Call{}, 30 * ms, 1},
		{"three hedges", hedgerow.HedgeConfig{Delay: 30 * ms, MaxHedges: 3}, hedgerow.Call{}, 30 * ms, 3},
		{"eight hedges", hedgerow.HedgeConfig{Delay: 30 * ms, MaxHedges: 8}, hedgerow.Call{}, 30 * ms, 8},
		{"eight asks", hedgerow.HedgeConfig{Delay: 30 * ms, MaxHedges: 100}, hedgerow.Call{}, 30 * ms, 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tt.hedge.BudgetPercent, tt.hedge.EstimatedRPS = 100, 1000
				c := newSimClient(t, hedgerow.Config{Hedge: tt.hedge})
				call := c.call(time.Hour, tt.opts)
				synctest.Wait()
				require.Equal(t, tt.delay, call.info.Delay)
				require.Equal(t, simMultiples(tt.delay, tt.fired), call.fired())
				require.Equal(t, 1+tt.fired, call.info.Attempts)
				require.Equal(t, time.Hour, call.latency)
			})
		})
	}
}

// TestAsksAfterRefusals empties the bucket and fills it again by other calls, before or after the eighth multiple of
// the delay of one that waits for it.
func TestAsksAfterRefusals(t *testing.T) {
	t.Parallel()
	const delay = 100 * time.Millisecond
	for _, tt := range []struct {
		name   string
		refill time.Duration // when the bucket gets its token
		fired  []time.Duration
	}{
		{"before the second", delay * 3 / 2, simMultiples(delay, 8)[1:2]},
		{"before the eighth", delay * 15 / 2, simMultiples(delay, 8)[7:]},
		{"after the eighth", delay * 17 / 2, []time.Duration{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var skipped []hedgerow.SkipReason
				c := newSimClient(t, hedgerow.Config{
					Hedge: hedgerow.HedgeConfig{Delay: delay, BudgetPercent: 10},
					Hooks: hedgerow.Hooks{HedgeSkipped: func(_ context.Context, e hedgerow.SkipEvent) {
						mu.Lock()
						defer mu.Unlock()
						skipped = append(skipped, e.Reason)
					}},
				})
				first := c.call(delay+1, hedgerow.Call{})
				synctest.Wait()
				require.Len(t, first.hedges, 1, "takes the token of the start")
				go func() {
					time.Sleep(tt.refill)
					for range 10 {
						c.call(0, hedgerow.Call{})
					}
				}()
				call := c.call(20*delay, hedgerow.Call{})
				synctest.Wait()
				require.Equal(t, tt.fired, call.fired())
				require.Equal(t, []hedgerow.SkipReason{hedgerow.SkipBudget}, skipped, "once per call and reason")
			})
		})
	}
}

// TestLearnedDelay feeds calls of 1 to 100 ms, each once, without hedges.
func TestLearnedDelay(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, tt := range []struct {
		name  string
		hedge hedgerow.HedgeConfig
		want  time.Duration
	}{
		{"default", hedgerow.HedgeConfig{}, 90 * ms},
		{"median", hedgerow.HedgeConfig{Quantile: 0.5, BudgetPercent: 100}, 50 * ms},
		{"median beyond the budget", hedgerow.HedgeConfig{Quantile: 0.5}, 90 * ms},
		{"small budget", hedgerow.HedgeConfig{BudgetPercent: 2}, 98 * ms},
		{"large budget", hedgerow.HedgeConfig{BudgetPercent: 100}, 90 * ms},
		{"late quantile", hedgerow.HedgeConfig{Quantile: 0.97}, 97 * ms},
		{"minimum", hedgerow.HedgeConfig{MinDelay: 150 * ms}, 150 * ms},
		{"maximum", hedgerow.HedgeConfig{MaxDelay: 40 * ms}, 40 * ms},
		{"more warm-up", hedgerow.HedgeConfig{WarmupRequests: 102}, 10 * ms},
		{"enough for warm-up", hedgerow.HedgeConfig{WarmupRequests: 100}, 90 * ms},
		{"fixed", hedgerow.HedgeConfig{Delay: 33 * ms}, 33 * ms},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newSimClient(t, hedgerow.Config{Hedge: tt.hedge})
				for k := range 100 {
					c.call(time.Duration(k+1)*ms, hedgerow.Call{NoHedge: true})
				}
				time.Sleep(time.Second) // the delay is refreshed once per second at least
				call := c.call(0, hedgerow.Call{})
				require.InEpsilon(t, tt.want, call.info.Delay, 0.021)

				ep := c.tr.Stats().Endpoints[hedgerow.EndpointKey{Host: "sim.test"}]
				require.Equal(t, call.info.Delay, ep.Delay)
				require.EqualValues(t, 101, ep.Latency.Count)
				require.InEpsilon(t, 90*ms, ep.Latency.P90, 0.021, "recorded with a fixed delay too")
			})
		})
	}
	t.Run("negative for one endpoint", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := newSimClient(t, hedgerow.Config{Hedge: hedgerow.HedgeConfig{Delay: 33 * ms}})
			require.NoError(t, c.tr.Register("/", hedgerow.EndpointConfig{
				Name: "learned", Hedge: &hedgerow.HedgeConfig{Delay: -1, Quantile: 0.7, BudgetPercent: 50},
			}))
			for k := range 100 {
				c.call(time.Duration(k+1)*ms, hedgerow.Call{NoHedge: true})
			}
			time.Sleep(time.Second)
			require.InEpsilon(t, 70*ms, c.call(0, hedgerow.Call{}).info.Delay, 0.021)
		})
	})
}

// TestEstimatedRPS pins the budget to a rate: two seconds of hedges at once, and then as many per second as that
// allows, however few calls there are.
func TestEstimatedRPS(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newSimClient(t, hedgerow.Config{Hedge: hedgerow.HedgeConfig{
			Delay: 10 * time.Millisecond, MaxHedges: 1, EstimatedRPS: 100,
		}})
		burst := func(calls int) (hedges int) {
			all := make([]*simCall, calls)
			var wg sync.WaitGroup
			for k := range all {
				wg.Go(func() { all[k] = c.call(15*time.Millisecond, hedgerow.Call{}) })
			}
			wg.Wait()
			synctest.Wait()
			for _, call := range all {
				hedges += len(call.hedges)
			}
			return hedges
		}
		require.Equal(t, 20, burst(50), "two seconds of 10 % of 100")
		time.Sleep(985 * time.Millisecond)
		require.Equal(t, 10, burst(50), "a second later")
		time.Sleep(time.Minute)
		require.Equal(t, 20, burst(50), "full again, and no more than that")
	})
}

// TestDelayFollows changes a service while it is used, and looks at the delays before, soon after, and two windows after.
func TestDelayFollows(t *testing.T) {
	t.Parallel()
	const (
		window = 30 * time.Second
		change = 3 * window // when the service changes
		end    = 3 * change
	)
	for _, tt := range []struct {
		name  string
		fate  func(at, drawn time.Duration) simAnswer
		ratio float64 // of the delay two windows after the change to the one before
		again float64 // of the delay at the end
	}{
		{"four times slower", func(at, d time.Duration) simAnswer {
			if at < change {
				return simAnswer{after: d}
			}
			return simAnswer{after: 4 * d}
		}, 4, 4},
		{"four times faster", func(at, d time.Duration) simAnswer {
			if at < change {
				return simAnswer{after: d}
			}
			return simAnswer{after: d / 4}
		}, 0.25, 0.25},
		{"slow for a while", func(at, d time.Duration) simAnswer {
			if at < change || at > 2*change {
				return simAnswer{after: d}
			}
			return simAnswer{after: 50 * d}
		}, 50, 1},
		{"failing for a while", func(at, d time.Duration) simAnswer {
			if at < change || at > 2*change {
				return simAnswer{after: d}
			}
			return simAnswer{after: d / 10, status: http.StatusInternalServerError}
		}, 1, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const rate = 100
				s := simulation{
					seed: 4, calls: int(end/time.Second) * rate, rate: rate, fate: tt.fate,
					service: simLognormal(20*time.Millisecond, 8*time.Millisecond),
				}
				o := s.run(t)
				before := o.within(change-10*time.Second, change)
				soon := o.within(change+8*time.Second, change+12*time.Second)
				after := o.within(change+2*window, change+2*window+10*time.Second)
				last := o.within(end-10*time.Second, end)
				t.Logf("delay %v, soon %v, then %v, at the end %v; sent %.2f %%",
					before.delay(), soon.delay(), after.delay(), last.delay(), 100*o.sent())
				require.InEpsilon(t, before.unhedged(0.9), before.delay(), 0.06)
				require.InEpsilon(t, tt.ratio, float64(soon.delay())/float64(before.delay()), 0.15)
				require.InEpsilon(t, tt.ratio, float64(after.delay())/float64(before.delay()), 0.06)
				require.InEpsilon(t, tt.again, float64(last.delay())/float64(before.delay()), 0.06)
				o.requireBudget(t, 0.10, simCap(0.10, 1.2*rate))
				if tt.again == tt.ratio {
					require.InDelta(t, 0.098, last.within(0, end).sent(), 0.03, "hedging goes on")
				}
			})
		})
	}
}

// TestNoDrift shows that nothing is forgotten of a service that stays as it is: only the first calls are made while
// warming up.
func TestNoDrift(t *testing.T) {
	t.Parallel()
	for name, rate := range map[string]float64{"slow": 5, "usual": 500, "fast": 5000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := simulation{seed: 8, calls: 50_000, rate: rate, service: simWorkload()}
				require.Less(t, s.run(t).stats.Total.Warmup, uint64(20+0.3*rate), "those of the first moment")
			})
		})
	}
}

// TestNoDriftOfAConstant is the same for a service that always takes equally long, whatever bucket that falls into.
func TestNoDriftOfAConstant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for d := 10 * time.Millisecond; d < 11*time.Millisecond; d += 50 * time.Microsecond {
			s := simulation{calls: 2000, rate: 500, regular: true, service: simConstant(d)}
			require.Less(t, s.run(t).stats.Total.Warmup, uint64(30), d)
		}
	})
}

// TestHangsBesideOutliers has six in a hundred calls hang for ever, and a few that really take 20 s. What can be seen of the
// tail is not much, and none of it may make the delay one that helps nobody.
func TestHangsBesideOutliers(t *testing.T) {
	t.Parallel()
	for _, q := range []float64{0.9, 0.94, 0.95} {
		t.Run(fmt.Sprint(q), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				usual := simLognormal(5*time.Millisecond, 2*time.Millisecond)
				s := simulation{
					cfg:  hedgerow.Config{Hedge: hedgerow.HedgeConfig{Quantile: q}},
					seed: 3, calls: 24_000, rate: 200,
					service: func(r *rand.Rand) time.Duration {
						d := usual(r)
						if r.Float64() < 0.06 {
							return 10 * time.Hour
						}
						return d
					},
					beside: &simulation{seed: 9, calls: 12, rate: 0.1, service: simConstant(20 * time.Second)},
				}
				o := s.run(t)
				for at := 5 * time.Second; at < 115*time.Second; at += 10 * time.Second {
					require.Less(t, o.within(at, at+5*time.Second).delay(), 100*time.Millisecond, at)
				}
			})
		})
	}
}

// TestDelayAfterIdling lets everything that was learned fall out of the window: the last learned delay holds until
// there are enough calls again.
func TestDelayAfterIdling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newSimClient(t, hedgerow.Config{})
		const ms = time.Millisecond
		teach := func(takes time.Duration, calls int) {
			for range calls {
				c.call(takes, hedgerow.Call{NoHedge: true})
			}
			time.Sleep(time.Second)
		}
		warmup := func() uint64 { return c.tr.Stats().Total.Warmup }

		teach(200*ms, 100)
		require.InEpsilon(t, 200*ms, c.call(0, hedgerow.Call{}).info.Delay, 0.03)
		require.EqualValues(t, 20, warmup())

		time.Sleep(time.Hour)
		require.InEpsilon(t, 200*ms, c.call(0, hedgerow.Call{}).info.Delay, 0.03, "not the 10 ms of warm-up")
		require.EqualValues(t, 21, warmup())

		teach(50*ms, 18)
		require.InEpsilon(t, 200*ms, c.call(50*ms, hedgerow.Call{}).info.Delay, 0.03, "19 latencies are too few")
		require.EqualValues(t, 40, warmup())
		require.InEpsilon(t, 50*ms, c.call(50*ms, hedgerow.Call{}).info.Delay, 0.03)
		require.EqualValues(t, 40, warmup())
	})
}
