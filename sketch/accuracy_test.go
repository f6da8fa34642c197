package sketch_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow/sketch"
)

// lognormal draws from the lognormal distribution with that mean and standard deviation.
func lognormal(rng *rand.Rand, mean, sd time.Duration) time.Duration {
	ratio := float64(sd) / float64(mean)
	sigma := math.Sqrt(math.Log(1 + ratio*ratio))
	mu := math.Log(float64(mean)) - sigma*sigma/2
	return time.Duration(math.Exp(mu + sigma*rng.NormFloat64()))
}

// workload draws a latency of a service with a tail: mean 5 ms, sd 2 ms, and one call in twenty ten times slower.
func workload(rng *rand.Rand) time.Duration {
	d := lognormal(rng, 5*ms, 2*ms)
	if rng.Float64() < 0.05 {
		d *= 10
	}
	return d
}

// exact returns the order statistic of rank floor(q*(n-1)).
func exact(sorted []time.Duration, q float64) time.Duration {
	return sorted[int(q*float64(len(sorted)-1))]
}

// requireWithin checks the relative error; durations are whole nanoseconds, hence the one that is let through.
func requireWithin(tb testing.TB, want, got time.Duration, accuracy float64, msg string, args ...any) {
	tb.Helper()
	require.InDeltaf(tb, float64(want), float64(got), accuracy*float64(want)+1, msg, args...)
}

func TestRelativeError(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		draw func(*rand.Rand) time.Duration
	}{
		{"constant", func(*rand.Rand) time.Duration { return 1234567 }},
		{"uniform", func(r *rand.Rand) time.Duration { return ms + time.Duration(r.Int64N(int64(100*ms))) }},
		{"exponential", func(r *rand.Rand) time.Duration { return time.Duration(float64(20*ms) * r.ExpFloat64()) }},
		{"lognormal", func(r *rand.Rand) time.Duration { return lognormal(r, 50*ms, 100*ms) }},
		{"pareto", func(r *rand.Rand) time.Duration { return time.Duration(float64(ms) * math.Pow(1-r.Float64(), -1/1.5)) }},
		{"bimodal", func(r *rand.Rand) time.Duration {
			if r.Float64() < 0.7 {
				return lognormal(r, 2*ms, ms/2)
			}
			return lognormal(r, 900*ms, 100*ms)
		}},
		{"workload", workload},
	} {
		for _, accuracy := range []float64{0.002, 0.01, 0.05} {
			t.Run(fmt.Sprintf("%s/%v", tt.name, accuracy), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(7, 11))
				w := newWindow(t, accuracy, time.Minute)
				samples := make([]time.Duration, 20_000)
				for k := range samples {
					samples[k] = max(tt.draw(rng), time.Microsecond)
					w.Add(epoch, samples[k])
				}
				slices.Sort(samples)
				qs := []float64{0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1}
				got, n := quantiles(w, epoch, qs...)
				require.EqualValues(t, len(samples), n)
				for k, q := range qs {
					requireWithin(t, exact(samples, q), got[k], accuracy, "q=%v", q)
				}
			})
		}
	}
}

func TestExtremes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		d, want time.Duration
	}{
		{"least", math.MinInt64, time.Microsecond},
		{"negative", -1, time.Microsecond},
		{"zero", 0, time.Microsecond},
		{"nanosecond", 1, time.Microsecond},
		{"microsecond", time.Microsecond, time.Microsecond},
		{"greatest", math.MaxInt64, math.MaxInt64},
		{"next to greatest", math.MaxInt64 - 1, math.MaxInt64},
	} {
		// The odd one puts a bound on the greatest duration, and rounding puts it a little above.
		for _, accuracy := range []float64{0.001, 0.01, 0.32382094535738726, 0.5, 0.999} {
			t.Run(fmt.Sprintf("%s/%v", tt.name, accuracy), func(t *testing.T) {
				t.Parallel()
				w := newWindow(t, accuracy, time.Minute)
				w.Add(epoch, tt.d)
				w.AddCensored(epoch, tt.d)
				got, _ := quantiles(w, epoch, 0.5)
				requireWithin(t, tt.want, got[0], accuracy, tt.name)

				var s sketch.Survival
				w.Survival(epoch, &s)
				require.EqualValues(t, 2, s.Count())
				require.InDelta(t, 0.5, s.At(math.MaxInt64), 1e-9)
				median, ok := s.Quantile(0.5)
				require.True(t, ok)
				require.LessOrEqual(t, s.At(median), 0.5+1e-9)
			})
		}
	}
}

func TestCollapse(t *testing.T) {
	t.Parallel()
	w := newWindow(t, 0.01, time.Minute)
	for range 40 {
		w.Add(epoch, time.Microsecond)
	}
	for range 50 {
		w.Add(epoch, 100*ms)
	}
	for range 10 {
		w.Add(epoch, 100*time.Second)
	}
	w.AddCensored(epoch, 2*time.Microsecond) // below the folded bucket by now

	_, size, limit := w.Arrays()
	require.Equal(t, 576, limit)
	require.Equal(t, limit, size)
	got, n := quantiles(w, epoch, 0.2, 0.5, 0.95)
	require.EqualValues(t, 100, n)
	requireWithin(t, 100*time.Second, got[2], 0.01, "above the fold")
	requireWithin(t, 100*ms, got[1], 0.01, "above the fold")
	require.InEpsilon(t, ms, got[0], 0.05, "the lowest samples read as the lowest bucket, 100 000 times below the highest")

	w.Add(epoch, math.MaxInt64)
	got, _ = quantiles(w, epoch, 0.5, 1)
	requireWithin(t, math.MaxInt64, got[1], 0.01, "the highest sample always counts in full")
	require.Equal(t, got[0], first(quantiles(w, epoch, 0)), "everything else shares one bucket")
	require.EqualValues(t, 102, w.Count(epoch))
}

// TestFoldedRangeRecovers shows that a fold lasts no longer than the samples that forced it.
func TestFoldedRangeRecovers(t *testing.T) {
	t.Parallel()
	w := newWindow(t, 0.01, time.Second)
	w.Add(epoch, ms)
	w.Add(epoch, time.Hour)
	require.Greater(t, first(quantiles(w, epoch, 0)), 30*ms)
	now := epoch.Add(2 * time.Second)
	w.Add(now, 10*time.Microsecond)
	w.Add(now, 500*ms)
	got, _ := quantiles(w, now, 0, 1)
	requireWithin(t, 10*time.Microsecond, got[0], 0.01, "lowest")
	requireWithin(t, 500*ms, got[1], 0.01, "highest")
}

func first(ds []time.Duration, _ uint64) time.Duration { return ds[0] }

func TestBucketsSaturate(t *testing.T) {
	t.Parallel()
	w := newWindow(t, 0.01, time.Minute)
	w.AddMany(epoch, 2*ms, math.MaxUint32-1)
	w.Add(epoch, 2*ms)
	require.Equal(t, uint64(math.MaxUint32), w.Count(epoch))
	w.Add(epoch, 2*ms)
	require.Equal(t, uint64(math.MaxUint32), w.Count(epoch), "a full bucket takes no more")
	w.Add(epoch, 3*ms)
	require.Equal(t, uint64(math.MaxUint32)+1, w.Count(epoch), "its neighbours do")

	// Folding two buckets into one saturates too, and the quantiles still find every rank.
	w.Add(epoch, 24*time.Hour)
	require.Equal(t, uint64(math.MaxUint32)+1, w.Count(epoch))
	got, n := quantiles(w, epoch, 0, 0.5, 1)
	require.Equal(t, uint64(math.MaxUint32)+1, n)
	require.Equal(t, got[0], got[1])
	requireWithin(t, 24*time.Hour, got[2], 0.01, "highest")
}

// TestMemory fills the two windows of an endpoint over the whole range, in both generations.
func TestMemory(t *testing.T) {
	t.Parallel()
	w := newWindow(t, 0.01, time.Second)
	for g := range 2 {
		now := epoch.Add(time.Duration(g) * time.Second)
		for d := ms; d <= time.Minute; d += d / 200 {
			w.Add(now, d)
			w.AddCensored(now, d)
		}
		w.Add(now, time.Minute)
	}
	require.LessOrEqual(t, w.Footprint(), 15*1024)
	t.Logf("a window with all kinds of samples holds %d bytes", w.Footprint())
	got, _ := quantiles(w, epoch.Add(time.Second), 0, 1)
	requireWithin(t, ms, got[0], 0.01, "nothing was folded")
	requireWithin(t, time.Minute, got[1], 0.01, "highest")

	w.Add(epoch.Add(time.Second), math.MaxInt64)
	w.AddCensored(epoch.Add(time.Second), 0)
	require.LessOrEqual(t, w.Footprint(), 15*1024, "whatever the range")
}

func TestArraysAreMadeWhenNeeded(t *testing.T) {
	t.Parallel()
	w := newWindow(t, 0.01, time.Second)
	arrays := func() int {
		n, _, _ := w.Arrays()
		return n
	}
	require.Zero(t, arrays())
	w.Observe(epoch, ms)
	require.Equal(t, 1, arrays())
	w.Add(epoch, ms)
	require.Equal(t, 2, arrays(), "no censored counts yet")
	w.AddCensored(epoch, ms)
	require.Equal(t, 3, arrays())
	w.Add(epoch.Add(time.Second), ms)
	require.Equal(t, 5, arrays())
	w.Add(epoch.Add(time.Hour), ms)
	require.Equal(t, 5, arrays(), "cleared, not dropped")
}
