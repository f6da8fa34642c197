package hedgerow_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// TestWorkload holds the promise of the zero Config on a service with a tail.
func TestWorkload(t *testing.T) {
	t.Parallel()
	const (
		p99   = 16 * time.Millisecond
		p999  = 25 * time.Millisecond
		extra = 0.102
		slack = 1.05 // for one seed
	)
	seeds := []uint64{1, 2, 3, 4, 5}
	if simRaced {
		seeds = seeds[:1]
	}
	outcomes := make([]*simOutcome, len(seeds))
	t.Cleanup(func() { // when all seeds are through
		var p99s, p999s []time.Duration
		var extras []float64
		t.Logf("%4s %8s %8s %8s %8s %8s   %s", "seed", "p50", "p99", "p99.9", "extra", "asked", "unhedged p99, p99.9")
		for k, o := range outcomes {
			if o == nil {
				return // it has failed
			}
			t.Logf("%4d %8.2f %8.2f %8.2f %7.2f%% %7.2f%% %8.2f %8.2f", seeds[k], simMillis(o.quantile(0.5)),
				simMillis(o.quantile(0.99)), simMillis(o.quantile(0.999)), 100*o.sent(), 100*o.asked(2),
				simMillis(o.unhedged(0.99)), simMillis(o.unhedged(0.999)))
			p99s = append(p99s, o.quantile(0.99))
			p999s = append(p999s, o.quantile(0.999))
			extras = append(extras, o.sent())
		}
		require.LessOrEqual(t, simMedian(p99s), p99)
		require.LessOrEqual(t, simMedian(p999s), p999)
		require.LessOrEqual(t, simMedian(extras), extra)
		require.LessOrEqual(t, simMillis(slices.Max(p99s)), slack*simMillis(p99))
		require.LessOrEqual(t, simMillis(slices.Max(p999s)), slack*simMillis(p999))
		require.LessOrEqual(t, slices.Max(extras), slack*extra)
	})
	for k, seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := simulation{seed: seed, calls: 50_000, rate: 500, service: simWorkload()}
				outcomes[k] = s.run(t)
			})
		})
	}
}

func simMillis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func simMedian[T ~int64 | ~float64](all []T) T {
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

// TestTriggerFitsBudget shows that the learned delay makes calls ask for what the budget grants, whatever the
// distribution of the latency.
func TestTriggerFitsBudget(t *testing.T) {
	t.Parallel()
	const (
		ms    = time.Millisecond
		share = 0.10
	)
	for _, tt := range []struct {
		name    string
		service simService
	}{
		{"lognormal", simLognormal(50*ms, 25*ms)},
		{"bimodal", simBimodal()},
		{"exponential", simExponential(20 * ms)},
		{"pareto", simPareto(5*ms, 1.5)},
		{"workload", simWorkload()},
	} {
		if simRaced && tt.name != "bimodal" && tt.name != "pareto" {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := simulation{seed: 11, calls: 50_000, rate: 500, service: tt.service}
				o := s.run(t)
				refused := float64(o.stats.Total.Skipped[hedgerow.SkipBudget]) / float64(s.calls)
				require.LessOrEqual(t, o.sent()+refused, 1.02*share)
				require.LessOrEqual(t, refused, 0.05*(o.sent()+refused))

				later := o.within(time.Second, time.Hour) // by then the delay is learned
				sent, asked := later.sent(), later.asked(2)
				t.Logf("sent %.2f %%, %.2f %% of calls refused; after warm-up asked for %.2f %%, %.2f %% of it refused; p99 %v, unhedged %v",
					100*o.sent(), 100*refused, 100*asked, 100*(asked-sent)/asked, o.quantile(0.99), o.unhedged(0.99))
				require.LessOrEqual(t, asked, 1.02*share)
				require.LessOrEqual(t, asked-sent, 0.01*asked)
				require.GreaterOrEqual(t, sent, 0.9*share)
				require.Less(t, o.quantile(0.99), o.unhedged(0.99))
			})
		})
	}
}

// TestFastBesideSlow registers a fast and a slow endpoint of one host: the fast one does not wait for the slow one's
// delay.
func TestFastBesideSlow(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, beside bool) (p99 time.Duration) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			s := simulation{seed: 5, calls: 15_000, rate: 300, service: simWorkload(), path: "/fast/1"}
			s.register = func(tr *hedgerow.Transport) {
				require.NoError(t, tr.Register("GET /fast/{id}", hedgerow.EndpointConfig{}))
				require.NoError(t, tr.Register("GET /slow/{id}", hedgerow.EndpointConfig{}))
			}
			if beside {
				s.beside = &simulation{
					seed: 6, calls: 10_000, rate: 200, path: "/slow/1",
					service: simLognormal(250*time.Millisecond, 100*time.Millisecond),
				}
			}
			p99 = s.run(t).quantile(0.99)
		})
		return p99
	}
	var alone, beside time.Duration
	alone = run(t, false)
	beside = run(t, true)
	t.Logf("p99 alone %v, beside a slow endpoint %v", alone, beside)
	require.LessOrEqual(t, float64(beside), 1.15*float64(alone))
}
