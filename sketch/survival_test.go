package sketch_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/DataDog/sketches-go/ddsketch/mapping"
	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow/sketch"
)

// observation is a sample of either kind.
type observation struct {
	d        time.Duration
	censored bool
}

func record(w *sketch.Window, now time.Time, o observation) {
	if o.censored {
		w.AddCensored(now, o.d)
	} else {
		w.Add(now, o.d)
	}
}

func survivalOf(w *sketch.Window, now time.Time) *sketch.Survival {
	var s sketch.Survival
	w.Survival(now, &s)
	return &s
}

// naiveSurvival is the product-limit estimate at t straight from its definition: one factor for each time at which
// something completed, over the observations that lasted at least that long.
func naiveSurvival[T int | time.Duration](times []T, censored []bool, t T) float64 {
	share := 1.0
	done := map[T]bool{}
	for i, at := range times {
		if censored[i] || at > t || done[at] {
			continue
		}
		done[at] = true
		var atRisk, ended float64
		for j, other := range times {
			if other >= at {
				atRisk++
			}
			if other == at && !censored[j] {
				ended++
			}
		}
		share *= 1 - ended/atRisk
	}
	return share
}

func TestSurvivalZeroValue(t *testing.T) {
	t.Parallel()
	check := func(s *sketch.Survival) {
		require.Zero(t, s.Count())
		for _, d := range []time.Duration{math.MinInt64, 0, 1, ms, math.MaxInt64} {
			require.InDelta(t, 1, s.At(d), 0)
		}
		for _, q := range []float64{0, 0.5, 1} {
			d, ok := s.Quantile(q)
			require.False(t, ok)
			require.Zero(t, d)
		}
	}
	var s sketch.Survival
	check(&s)
	w := newWindow(t, 0.01, time.Second)
	w.Survival(epoch, &s)
	check(&s)
	w.Add(epoch, ms)
	w.Survival(epoch, &s)
	require.EqualValues(t, 1, s.Count())
	_, _, limit := w.Arrays()
	require.GreaterOrEqual(t, s.Room(), limit, "the first fill makes room for all to come")
	w.Survival(epoch.Add(time.Hour), &s)
	check(&s)
}

// TestSurvivalByHand works through eight calls, of which three were given up:
//
//	10 ms  completed                     8 at risk, S = 7/8
//	20 ms  two completed, one given up   7 at risk, S = 7/8 x 5/7 = 5/8
//	30 ms  given up                      4 at risk, S stays
//	40 ms  completed                     3 at risk, S = 5/8 x 2/3 = 5/12
//	50 ms  given up                      2 at risk, S stays
//	60 ms  completed                     1 at risk, S = 0
func TestSurvivalByHand(t *testing.T) {
	t.Parallel()
	calls := []observation{
		{40 * ms, false}, {20 * ms, true}, {10 * ms, false}, {20 * ms, false}, {30 * ms, true}, {20 * ms, false}, {50 * ms, true},
	}
	w := newWindow(t, 0.01, time.Second)
	for _, o := range calls {
		record(w, epoch, o)
	}
	cut := newWindow(t, 0.01, time.Second)
	for _, o := range calls {
		record(cut, epoch, o)
	}
	record(w, epoch, observation{60 * ms, false})
	record(cut, epoch, observation{60 * ms, true})

	s, plateau := survivalOf(w, epoch), survivalOf(cut, epoch)
	require.EqualValues(t, 8, s.Count())
	for _, tt := range []struct {
		at            time.Duration
		want, wantCut float64
	}{
		{0, 1, 1},
		{9 * ms, 1, 1},
		{11 * ms, 7. / 8, 7. / 8},
		{19 * ms, 7. / 8, 7. / 8},
		{21 * ms, 5. / 8, 5. / 8},
		{39 * ms, 5. / 8, 5. / 8},
		{42 * ms, 5. / 12, 5. / 12},
		{58 * ms, 5. / 12, 5. / 12},
		{62 * ms, 0, 5. / 12},
		{math.MaxInt64, 0, 5. / 12},
	} {
		require.InDeltaf(t, tt.want, s.At(tt.at), 1e-12, "at %v", tt.at)
		require.InDeltaf(t, tt.wantCut, plateau.At(tt.at), 1e-12, "at %v, the longest call given up", tt.at)
	}
	for _, tt := range []struct {
		q           float64
		want        time.Duration
		never       bool // when the longest call was given up
		description string
	}{
		{0, 0, false, "At(0) is 1 already"},
		{1. / 8, 10 * ms, false, "the whole first step"},
		{0.3, 20 * ms, false, ""},
		{3. / 8, 20 * ms, false, "two steps"},
		{0.5, 40 * ms, false, ""},
		{7. / 12, 40 * ms, false, "as low as the plateau"},
		{0.6, 60 * ms, true, "below it"},
		{1, 60 * ms, true, ""},
	} {
		got, ok := s.Quantile(tt.q)
		require.True(t, ok)
		requireWithin(t, tt.want, got, 0.021, "q=%v %s", tt.q, tt.description)
		got, ok = plateau.Quantile(tt.q)
		require.Equalf(t, !tt.never, ok, "q=%v %s", tt.q, tt.description)
		if ok {
			requireWithin(t, tt.want, got, 0.021, "q=%v %s", tt.q, tt.description)
		}
	}
}

// TestSurvivalAgainstDefinition compares with the definition twice: exactly, for the samples as the buckets see them,
// and closely for the samples themselves.
func TestSurvivalAgainstDefinition(t *testing.T) {
	t.Parallel()
	m, err := mapping.NewLogarithmicMapping(0.01)
	require.NoError(t, err)
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 5))
		w := newWindow(t, 0.01, time.Second)
		n := 1 + rng.IntN(300)
		times, indexes, cut := make([]time.Duration, n), make([]int, n), make([]bool, n)
		for k := range n {
			d, limit := workload(rng), time.Duration(float64(8*ms)*rng.ExpFloat64())
			times[k], cut[k] = max(min(d, limit), time.Microsecond), limit < d
			indexes[k] = m.Index(float64(times[k]))
			record(w, epoch.Add(time.Duration(k)*time.Second/time.Duration(n)), observation{times[k], cut[k]})
		}
		s := survivalOf(w, epoch.Add(time.Second))
		require.EqualValues(t, n, s.Count())
		for _, i := range indexes {
			upper := time.Duration(math.Ceil(m.LowerBound(i + 1)))
			require.InDeltaf(t, naiveSurvival(indexes, cut, i), s.At(upper), 1e-3, "seed %d: bucket %d", seed, i)
		}
		if n < 100 {
			continue // too few to be close
		}
		for _, q := range []float64{0.1, 0.3, 0.5, 0.7} {
			at, ok := s.Quantile(q)
			require.True(t, ok)
			require.InDeltaf(t, naiveSurvival(times, cut, at), s.At(at), 0.05, "seed %d: at %v", seed, at)
		}
	}
}

func TestSurvivalIsContinuousAndMonotone(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(9, 9))
	w := newWindow(t, 0.01, time.Second)
	for range 500 {
		w.Add(epoch, workload(rng))
	}
	s := survivalOf(w, epoch)
	before := 1.0
	for at := time.Duration(0); at < 200*ms; at += 2 * time.Microsecond {
		share := s.At(at)
		require.LessOrEqualf(t, share, before, "at %v", at)
		require.Lessf(t, before-share, 0.005, "a jump at %v", at)
		before = share
	}
	require.Zero(t, before)
	for q := 0.0; q <= 1; q += 0.001 {
		at, ok := s.Quantile(q)
		require.True(t, ok)
		require.LessOrEqualf(t, s.At(at), 1-q+1e-9, "q=%v", q)
		if at > 0 {
			require.Greaterf(t, s.At(at-1), 1-q, "q=%v: %v is not the smallest", q, at)
		}
	}
	least, _ := s.Quantile(math.NaN())
	require.Zero(t, least)
	over, _ := s.Quantile(3)
	highest, _ := s.Quantile(1)
	require.Equal(t, highest, over)
}

// TestSurvivalWithoutCensoringIsTheSketch checks that both views of the same samples agree.
func TestSurvivalWithoutCensoringIsTheSketch(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(4, 4))
	w := newWindow(t, 0.01, time.Second)
	for range 10_000 {
		w.Add(epoch, workload(rng))
	}
	s := survivalOf(w, epoch)
	for _, q := range []float64{0.1, 0.5, 0.9, 0.95, 0.99} {
		want, _ := quantiles(w, epoch, q)
		got, ok := s.Quantile(q)
		require.True(t, ok)
		requireWithin(t, want[0], got, 0.021, "q=%v", q)
	}
}

// TestSurvivalQuantileForgivesRounding asks for quantiles that fall between two samples far apart, where an error in
// the last bit would pick the wrong one.
func TestSurvivalQuantileForgivesRounding(t *testing.T) {
	t.Parallel()
	for n := 2; n <= 40; n++ {
		w := newWindow(t, 0.01, time.Second)
		for k := range n {
			w.Add(epoch, time.Duration(k+1)*10*ms)
		}
		s := survivalOf(w, epoch)
		for k := 1; k <= n; k++ {
			got, ok := s.Quantile(float64(k) / float64(n))
			require.True(t, ok)
			requireWithin(t, time.Duration(k)*10*ms, got, 0.021, "%d of %d", k, n)
		}
	}
}

// TestSurvivalSeesPastTheTrigger is what censoring is for. A second attempt starts at d = p90, and when it answers
// first the slow one is cancelled and enters at its age. How many calls are still out at 2d decides whether another
// attempt is worth it. The truth is 5 %; a sketch that takes ages for latencies says nearly none.
func TestSurvivalSeesPastTheTrigger(t *testing.T) {
	t.Parallel()
	const n, d = 20_000, 8670 * time.Microsecond
	rng := rand.New(rand.NewPCG(21, 8))
	w, plain := newWindow(t, 0.01, time.Second), newWindow(t, 0.01, time.Second)
	var slow float64
	for range n {
		latency := workload(rng)
		if latency > 2*d {
			slow++
		}
		age := d + time.Duration(float64(4*ms)*rng.ExpFloat64())
		if latency > d && age < latency {
			w.AddCensored(epoch, age)
			plain.Add(epoch, age)
			continue
		}
		w.Add(epoch, latency)
		plain.Add(epoch, latency)
	}
	truth := slow / n
	require.InDelta(t, 0.05, truth, 0.005)
	require.InEpsilon(t, truth, survivalOf(w, epoch).At(2*d), 0.1)
	require.Less(t, survivalOf(plain, epoch).At(2*d), truth/4)
}

func TestSurvivalMax(t *testing.T) {
	t.Parallel()
	require.Zero(t, new(sketch.Survival).Max())
	w, err := sketch.NewWindow(0.01, time.Minute)
	require.NoError(t, err)
	now := time.Now()
	w.Add(now, 5*time.Millisecond)
	w.AddCensored(now, time.Second)
	var s sketch.Survival
	w.Survival(now, &s)
	require.GreaterOrEqual(t, s.Max(), time.Second)
	require.InEpsilon(t, time.Second, s.Max(), 0.021)
}

// What callers waited says nothing of how long calls take.
func TestObservedSamplesAreKeptApart(t *testing.T) {
	t.Parallel()
	w, err := sketch.NewWindow(0.01, time.Minute)
	require.NoError(t, err)
	now := time.Now()
	var s sketch.Survival
	w.Observe(now, time.Hour)
	w.Survival(now, &s)
	require.Zero(t, s.Count())
	require.Zero(t, s.Max())
	require.Zero(t, w.Count(now))

	now = now.Add(time.Hour) // the hour above is forgotten
	w.Add(now, 5*time.Millisecond)
	w.AddCensored(now, time.Second)
	w.Observe(now, time.Minute)
	w.Observe(now, 100*time.Hour)
	w.Survival(now, &s)
	require.EqualValues(t, 2, s.Count())
	require.InEpsilon(t, time.Second, s.Max(), 0.021)
	out := make([]time.Duration, 3)
	require.EqualValues(t, 3, w.Quantiles(now, []float64{0, 0.5, 1}, out))
	for i, want := range []time.Duration{5 * time.Millisecond, time.Minute, 500 * time.Second} {
		require.InEpsilon(t, want, out[i], 0.03, "the longest as far as there is room")
	}
}

// TestCeil finds the bound that no sample of the bucket exceeds, so that At is the share that does.
func TestCeil(t *testing.T) {
	t.Parallel()
	var empty sketch.Survival
	require.Equal(t, 5*ms, empty.Ceil(5*ms))
	w := newWindow(t, 0.01, 0)
	for d := ms; d < 2*ms; d += 10 * time.Microsecond {
		w.Add(epoch, d)
	}
	var s sketch.Survival
	w.Survival(epoch, &s)
	for d := ms / 2; d < 3*ms; d += 7 * time.Microsecond {
		c := s.Ceil(d)
		require.GreaterOrEqual(t, c, d)
		require.LessOrEqual(t, float64(c), 1.021*float64(d))
		longer := 0.0
		for x := ms; x < 2*ms; x += 10 * time.Microsecond {
			if x > c {
				longer++
			}
		}
		require.InDelta(t, longer/100, s.At(c), 1e-5, d)
	}
}
