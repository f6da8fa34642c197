package hedgerow_test

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// psimPool returns a pool of resources 0, 1, ...
func psimPool(t *testing.T, resources int, cfg hedgerow.PoolConfig) *hedgerow.Pool {
	t.Helper()
	for i := range resources {
		cfg.Resources = append(cfg.Resources, hedgerow.Resource{ID: strconv.Itoa(i)})
	}
	p, err := hedgerow.NewPool(cfg)
	require.NoError(t, err)
	return p
}

// TestPoolOneSlowUpstream has one of three upstreams ten times slower than the others: hedges to another one keep the
// p99 within twice that of healthy ones.
func TestPoolOneSlowUpstream(t *testing.T) {
	t.Parallel()
	const (
		calls = 30_000
		extra = 0.102
	)
	seeds := []uint64{1, 2, 3}
	if simRaced {
		seeds = seeds[:1]
	}
	for _, strategy := range []hedgerow.Strategy{hedgerow.RoundRobin, hedgerow.LeastLatency} {
		for _, seed := range seeds {
			t.Run(fmt.Sprint(strategy, " seed ", seed), func(t *testing.T) {
				t.Parallel()
				run := func(slow string) (o *simOutcome, share float64) {
					synctest.Test(t, func(t *testing.T) {
						s := simulation{
							seed: seed, calls: calls, rate: 500,
							service: simLognormal(5*time.Millisecond, 2*time.Millisecond),
							pool:    psimPool(t, 3, hedgerow.PoolConfig{Strategy: strategy}),
							fateOn: func(resource string, _, drawn time.Duration) simAnswer {
								if resource == slow {
									drawn *= 10
								}
								return simAnswer{after: drawn}
							},
						}
						o = s.run(t)
						all := s.pool.Stats()
						share = float64(all.Resources[0].Attempts) / float64(all.Attempts)
					})
					return o, share
				}
				healthy, _ := run("none")
				o, share := run("0")
				t.Logf("p50, p99, p99.9 in ms: healthy %.1f %.1f %.1f, one slow %.1f %.1f %.1f; extra load %.2f %%; %.1f %% on the slow one",
					simMillis(healthy.quantile(0.5)), simMillis(healthy.quantile(0.99)), simMillis(healthy.quantile(0.999)),
					simMillis(o.quantile(0.5)), simMillis(o.quantile(0.99)), simMillis(o.quantile(0.999)), 100*o.sent(), 100*share)
				require.LessOrEqual(t, o.quantile(0.99), 2*healthy.quantile(0.99))
				require.LessOrEqual(t, o.sent(), extra)
			})
		}
	}
}

// A psimKeys plays keys that a provider limits to so many requests per minute, in fixed windows.
type psimKeys struct {
	rpm []int

	mu     sync.Mutex     // guards the fields below
	used   map[[2]int]int // by key and window
	denied map[[2]int][]psimDenial
}

// A psimDenial is a request that was answered with a 429, unless it was cancelled before.
type psimDenial struct{ at, done time.Duration }

const psimWindow = time.Minute

// answer counts one request.
func (k *psimKeys) answer(key int, at, drawn time.Duration) simAnswer {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := [2]int{key, int(at / psimWindow)}
	if k.used[w] >= k.rpm[key] {
		k.denied[w] = append(k.denied[w], psimDenial{at, at + drawn})
		return simAnswer{after: drawn, status: http.StatusTooManyRequests, retryAfter: psimWindow - at%psimWindow}
	}
	k.used[w]++
	return simAnswer{after: drawn}
}

// allowed returns how many 429s there may be: one per key and window, and the older siblings that are in flight when it
// comes, or those sent at the same instant, which may be older. late is how many requests were sent although a 429 had come.
func (k *psimKeys) allowed() (n, late int) {
	for _, denials := range k.denied {
		first := slices.MinFunc(denials, func(a, b psimDenial) int { return cmp.Compare(a.done, b.done) })
		for _, d := range denials {
			switch {
			case d.at <= first.at: // also the first itself
				n++
			case d.at > first.done:
				late++
			}
		}
	}
	return n, late
}

// TestPoolRateLimitedKeys spreads Poisson traffic over five keys of different limits that the pool does not know.
func TestPoolRateLimitedKeys(t *testing.T) {
	t.Parallel()
	const (
		rate = 4.8
		span = 20 * time.Minute
		wait = time.Minute
	)
	rpm := []int{30, 45, 60, 75, 90}
	for _, strategy := range []hedgerow.Strategy{hedgerow.RoundRobin, hedgerow.PrimaryBackup, hedgerow.LeastLatency} {
		t.Run(strategy.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				keys := &psimKeys{rpm: rpm, used: make(map[[2]int]int), denied: make(map[[2]int][]psimDenial)}
				s := simulation{
					cfg:  hedgerow.Config{Hedge: hedgerow.HedgeConfig{Disabled: true}},
					seed: 9, calls: int(rate * span.Seconds()), rate: rate,
					service: simLognormal(200*time.Millisecond, 80*time.Millisecond),
					pool:    psimPool(t, len(rpm), hedgerow.PoolConfig{Wait: wait, Strategy: strategy}),
					fateOn: func(resource string, at, drawn time.Duration) simAnswer {
						return keys.answer(int(resource[0]-'0'), at, drawn)
					},
				}
				o := s.run(t)
				served, perfect, failed := 0, psimPerfect(o.calls, rpm, wait), 0
				for _, c := range o.calls {
					if c.status == http.StatusOK {
						served++
					} else if perfect[c] {
						failed++
					}
				}
				all := s.pool.Stats().Cooldowns
				allowed, late := keys.allowed()
				t.Logf("%d calls, %d served by a perfect scheduler, %d by the pool; 429s: %d in %d windows, with older siblings %d; p50 %v, p99 %v",
					len(o.calls), len(perfect), served, all, len(keys.denied), allowed, o.quantile(0.5), o.quantile(0.99))
				require.Zero(t, failed)
				require.Zero(t, late)
				require.LessOrEqual(t, all, uint64(allowed))
			})
		})
	}
}

// psimPerfect returns the calls that a scheduler which knows the windows serves within wait, in order of arrival.
func psimPerfect(calls []*simCall, rpm []int, wait time.Duration) map[*simCall]bool {
	total := 0
	for _, n := range rpm {
		total += n
	}
	sorted := slices.SortedFunc(slices.Values(calls), func(a, b *simCall) int { return cmp.Compare(a.at, b.at) })
	served := make(map[*simCall]bool)
	window, left := 0, total
	for _, c := range sorted {
		if w := int(c.at / psimWindow); w > window {
			window, left = w, total
		}
		if left == 0 {
			window, left = window+1, total
		}
		if start := time.Duration(window) * psimWindow; start-c.at <= wait {
			served[c] = true
			left--
		}
	}
	return served
}

// TestPoolOutage has ten upstreams that all fail: the pool does not multiply the load.
func TestPoolOutage(t *testing.T) {
	t.Parallel()
	for _, load := range []struct {
		rate  float64
		calls int
	}{{1, 1_000}, {100, 5_000}, {2_000, 10_000}} {
		for _, hedging := range []bool{false, true} {
			t.Run(fmt.Sprint(load.rate, " calls per second, hedging ", hedging), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					n := 0
					var mu sync.Mutex // guards n
					s := simulation{
						cfg:  hedgerow.Config{Hedge: hedgerow.HedgeConfig{Disabled: !hedging}},
						seed: 3, calls: load.calls, rate: load.rate,
						service: simLognormal(5*time.Millisecond, 2*time.Millisecond),
						pool:    psimPool(t, 10, hedgerow.PoolConfig{RetryDelay: -1}),
						fateOn: func(_ string, _, drawn time.Duration) simAnswer {
							mu.Lock()
							defer mu.Unlock()
							n++
							return simAnswer{after: drawn, status: []int{502, 503, 504}[n%3]}
						},
					}
					o := s.run(t)
					p := s.pool.Stats()
					t.Logf("%d calls, %d attempts, %d hedges, %d repeats, %d refused",
						load.calls, p.Attempts, o.stats.Total.Hedges, p.Retries, p.RetriesRefused)
					require.LessOrEqual(t, float64(p.Retries), 0.2*float64(load.calls)+10)
					require.Positive(t, p.RetriesRefused)
					require.EqualValues(t, n, p.Attempts)
					for _, c := range o.calls {
						require.GreaterOrEqual(t, c.status, 502)
					}
				})
			})
		}
	}
}
