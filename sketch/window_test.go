package sketch_test

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/DataDog/sketches-go/ddsketch"
	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow/sketch"
)

const ms = time.Millisecond

// epoch is when every test starts.
var epoch = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

func newWindow(tb testing.TB, accuracy float64, width time.Duration) *sketch.Window {
	tb.Helper()
	w, err := sketch.NewWindow(accuracy, width)
	require.NoError(tb, err)
	return w
}

// quantiles returns the quantiles qs and the number of completed samples.
func quantiles(w *sketch.Window, now time.Time, qs ...float64) ([]time.Duration, uint64) {
	out := make([]time.Duration, len(qs))
	n := w.Quantiles(now, qs, out)
	return out, n
}

func TestNewWindow(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		accuracy float64
		width    time.Duration
		want     string
	}{
		{"defaults", 0, 0, ""},
		{"finest", 0.001, time.Nanosecond, ""},
		{"coarsest", math.Nextafter(1, 0), math.MaxInt64, ""},
		{"accuracy one", 1, 0, "hedgerow/sketch: accuracy: 1: must be in [0.001, 1)"},
		{"accuracy negative", -0.5, 0, "hedgerow/sketch: accuracy: -0.5: must be in [0.001, 1)"},
		{"accuracy too fine", 1e-20, 0, "hedgerow/sketch: accuracy: 1e-20: must be in [0.001, 1)"},
		{"accuracy not a number", math.NaN(), 0, "hedgerow/sketch: accuracy: NaN: must be in [0.001, 1)"},
		{"width negative", 0, -time.Second, "hedgerow/sketch: width: -1s: must not be negative"},
		{
			"both", 2, -1,
			"hedgerow/sketch: accuracy: 2: must be in [0.001, 1)\nhedgerow/sketch: width: -1ns: must not be negative",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, err := sketch.NewWindow(tt.accuracy, tt.width)
			if tt.want != "" {
				require.EqualError(t, err, tt.want)
				return
			}
			require.NoError(t, err)
			w.Add(epoch, time.Second)
			got, n := quantiles(w, epoch, 0.5)
			require.EqualValues(t, 1, n)
			require.InEpsilon(t, time.Second, got[0], max(tt.accuracy, 0.01))
		})
	}
}

func TestDefaultsAreOnePercentAndThirtySeconds(t *testing.T) {
	t.Parallel()
	zero, explicit := newWindow(t, 0, 0), newWindow(t, 0.01, 30*time.Second)
	for _, w := range []*sketch.Window{zero, explicit} {
		w.Add(epoch, 7*ms)
		require.EqualValues(t, 1, w.Count(epoch.Add(60*time.Second-1)))
	}
	a, _ := quantiles(zero, epoch, 0.5)
	b, _ := quantiles(explicit, epoch, 0.5)
	require.Equal(t, b, a)
	require.Zero(t, zero.Count(epoch.Add(60*time.Second)))
}

func TestRotation(t *testing.T) {
	t.Parallel()
	const width = 10 * time.Second
	type step struct {
		at   time.Duration
		do   string // add, censor or read
		want uint64 // samples live after it
	}
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"one window", []step{{0, "add", 1}, {4 * time.Second, "censor", 2}, {width - 1, "read", 2}}},
		{"becomes previous, then drops", []step{{0, "add", 1}, {width, "add", 2}, {2*width - 1, "read", 2}, {2 * width, "read", 1}, {3 * width, "read", 0}}},
		{"rotation on read alone", []step{{0, "add", 1}, {width, "read", 1}, {2 * width, "read", 0}}},
		{"boundaries stay aligned", []step{{0, "add", 1}, {19 * time.Second, "add", 2}, {20 * time.Second, "read", 1}, {29 * time.Second, "read", 1}, {30 * time.Second, "read", 0}}},
		{"idle for two widths", []step{{0, "add", 1}, {2 * width, "add", 1}, {3*width - 1, "read", 1}, {4*width - 1, "read", 1}, {4 * width, "read", 0}}},
		{"start moves after a long idle", []step{{0, "add", 1}, {25 * time.Second, "add", 1}, {34 * time.Second, "add", 2}, {44 * time.Second, "add", 3}, {45 * time.Second, "read", 1}}},
		{"censored rotate too", []step{{0, "censor", 1}, {width, "censor", 2}, {2 * width, "read", 1}}},
		{"time goes backwards", []step{{0, "add", 1}, {width, "add", 2}, {3 * time.Second, "add", 3}, {-time.Hour, "censor", 4}, {2*width - 1, "read", 4}, {2 * width, "read", 3}}},
		{"far backwards and far forwards", []step{{0, "add", 1}, {math.MinInt64, "add", 2}, {math.MaxInt64, "read", 0}, {math.MaxInt64, "add", 1}, {0, "read", 1}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWindow(t, 0.01, width)
			for k, s := range tt.steps {
				now := epoch.Add(s.at)
				switch s.do {
				case "add":
					w.Add(now, ms)
				case "censor":
					w.AddCensored(now, ms)
				}
				require.Equalf(t, s.want, w.Count(now), "step %d at %v", k, s.at)
			}
		})
	}
}

// TestForget drops what survival is estimated from, of both generations, and nothing of what callers saw.
func TestForget(t *testing.T) {
	t.Parallel()
	w := newWindow(t, 0.01, 10*time.Second)
	w.Forget()
	w.Add(epoch, 5*ms)
	w.AddCensored(epoch, 7*ms)
	later := epoch.Add(10 * time.Second)
	w.Add(later, 6*ms)
	w.AddUnseen(later, 8*ms)
	w.Observe(later, 9*ms)
	w.Forget()
	require.Zero(t, w.Count(later))
	var s sketch.Survival
	w.Survival(later, &s)
	require.Zero(t, s.Count())
	got, n := quantiles(w, later, 0, 1)
	require.EqualValues(t, 3, n)
	require.InEpsilon(t, 5*ms, got[0], 0.01)
	require.InEpsilon(t, 9*ms, got[1], 0.01)

	w.Add(later, 40*ms)
	w.Survival(later, &s)
	require.EqualValues(t, 1, s.Count())
	median, ok := s.Quantile(0.5)
	require.True(t, ok)
	require.InEpsilon(t, 40*ms, median, 0.02)
	require.InDelta(t, 1, s.At(30*ms), 0)
}

func TestGreatestWidthNeverRotates(t *testing.T) {
	t.Parallel()
	w := newWindow(t, 0.01, math.MaxInt64-1)
	w.Add(epoch, ms)
	w.Add(epoch.Add(math.MaxInt64), ms)
	require.EqualValues(t, 2, w.Count(epoch.Add(math.MaxInt64)))
}

// TestMergeIsUnion spreads samples over two generations and compares with one sketch of them all, this package's and
// the reference implementation's.
func TestMergeIsUnion(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	qs := []float64{0, 0.01, 0.25, 0.5, 0.9, 0.95, 0.99, 0.999, 1}
	for range 20 {
		reference, err := ddsketch.LogUnboundedDenseDDSketch(0.01)
		require.NoError(t, err)
		merged, single := newWindow(t, 0.01, time.Second), newWindow(t, 0.01, time.Second)
		n := 1 + rng.IntN(2000)
		for k := range n {
			d, now := workload(rng), epoch
			if k > n/3 {
				d, now = 10*d, epoch.Add(time.Second) // slower than before: the generations differ
			}
			merged.Add(now, d)
			single.Add(epoch, d)
			require.NoError(t, reference.Add(float64(max(d, time.Microsecond))))
		}
		want, err := reference.GetValuesAtQuantiles(qs)
		require.NoError(t, err)
		got, count := quantiles(merged, epoch.Add(time.Second), qs...)
		require.EqualValues(t, n, count)
		one, _ := quantiles(single, epoch, qs...)
		require.Equal(t, one, got)
		for k := range qs {
			require.Equalf(t, time.Duration(math.Round(want[k])), got[k], "q=%v", qs[k])
		}
	}
}

func TestQuantilesArguments(t *testing.T) {
	t.Parallel()
	w := newWindow(t, 0.01, time.Minute)
	out := []time.Duration{1, 2, 3}
	require.Zero(t, w.Quantiles(epoch, []float64{0.1, 0.5, 0.9}, out))
	require.Equal(t, []time.Duration{0, 0, 0}, out, "no sample")

	w.AddCensored(epoch, ms)
	out = []time.Duration{1, 2, 3}
	require.Zero(t, w.Quantiles(epoch, []float64{0.1, 0.5}, out))
	require.Equal(t, []time.Duration{0, 0, 3}, out, "censored samples only; beyond qs nothing is written")

	for k := range 10 {
		w.Add(epoch, time.Duration(k+1)*10*ms)
	}
	at := func(qs ...float64) []time.Duration {
		got, n := quantiles(w, epoch, qs...)
		require.EqualValues(t, 10, n)
		return got
	}
	lowest, median, highest := at(0)[0], at(0.5)[0], at(1)[0]
	require.InEpsilon(t, 10*ms, lowest, 0.01)
	require.InEpsilon(t, 50*ms, median, 0.01, "rank floor(0.5*9) = 4")
	require.InEpsilon(t, 100*ms, highest, 0.01)
	require.Equal(t, []time.Duration{lowest, lowest, highest, highest}, at(-1, math.NaN(), 7, math.Inf(1)), "clamped")
	require.Equal(t, []time.Duration{highest, lowest, median, lowest, median}, at(1, 0, 0.5, 0.05, 0.5), "any order")
	require.EqualValues(t, 10, w.Quantiles(epoch, []float64{0.5}, nil), "no room: the count alone")
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	const workers, each = 8, 500
	w := newWindow(t, 0.01, time.Hour)
	var wg sync.WaitGroup
	for k := range workers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(k), 3))
			var s sketch.Survival
			out := make([]time.Duration, 2)
			for range each {
				w.Add(epoch, workload(rng))
				w.AddCensored(epoch, workload(rng))
				w.Quantiles(epoch, []float64{0.5, 0.9}, out)
				w.Survival(epoch, &s)
				s.At(10 * ms)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 2*workers*each, w.Count(epoch))
	_, n := quantiles(w, epoch, 0.5)
	require.EqualValues(t, workers*each, n)
}
