package sketch

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/DataDog/sketches-go/ddsketch/mapping"
)

const (
	defaultAccuracy = 0.01
	minAccuracy     = 0.001
	defaultWidth    = 30 * time.Second

	// shortest is the duration that all shorter ones count as. It keeps the logarithm away from zero.
	shortest = time.Microsecond
)

// Window is a DDSketch of durations over the last one to two widths. It keeps three kinds of samples apart: how long
// completed calls took and how long those ran that were cut off, both of which [Window.Survival] weighs, and how long
// callers waited, of which [Window.Quantiles] tells. Create it with [NewWindow]; the zero value is not usable. It is safe
// for concurrent use and must not be copied.
//
// Durations below a microsecond, negative ones too, count as a microsecond.
type Window struct {
	mapping *mapping.LogarithmicMapping
	width   time.Duration

	mu sync.Mutex // guards the fields below; never held across a call out of this package

	started bool
	start   time.Time // when the current generation began, once started
	counts  buckets
}

// NewWindow returns an empty window. The accuracy is the largest relative error of a quantile: zero means 0.01, and it
// must lie in [0.001, 1), below which the buckets would be too many to be cheap. The width is how long a generation
// collects: zero means 30 s, and it must not be negative. All faults are reported at once.
func NewWindow(accuracy float64, width time.Duration) (*Window, error) {
	if accuracy == 0 {
		accuracy = defaultAccuracy
	}
	if width == 0 {
		width = defaultWidth
	}
	var faults []error
	if !(accuracy >= minAccuracy && accuracy < 1) { // written so that NaN is a fault
		faults = append(faults, fmt.Errorf("hedgerow/sketch: accuracy: %v: must be in [%v, 1)", accuracy, minAccuracy))
	}
	if width < 0 {
		faults = append(faults, fmt.Errorf("hedgerow/sketch: width: %v: must not be negative", width))
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	m, err := mapping.NewLogarithmicMapping(accuracy)
	if err != nil {
		return nil, fmt.Errorf("hedgerow/sketch: accuracy: %w", err)
	}
	return &Window{mapping: m, width: width, counts: buckets{limit: bucketLimit(m)}}, nil
}

// Add records a call that completed after d, for which its caller waited as long.
func (w *Window) Add(now time.Time, d time.Duration) {
	i := bucketOf(w.mapping, d)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rotateLocked(now)
	w.counts.add(i, completed)
	w.counts.add(i, observed)
}

// AddUnseen records a call that completed after d, for which its caller waited another time.
func (w *Window) AddUnseen(now time.Time, d time.Duration) {
	w.add(now, d, completed)
}

// AddCensored records a call that was cut off after d: it would have taken at least that long.
func (w *Window) AddCensored(now time.Time, d time.Duration) {
	w.add(now, d, censored)
}

func (w *Window) add(now time.Time, d time.Duration, k kind) {
	i := bucketOf(w.mapping, d)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rotateLocked(now)
	w.counts.add(i, k)
}

// Observe records that a caller waited for d, which does not tell how long the call would have taken. Such a sample folds
// nothing: one that is longer than the buckets in use leave room for counts in the highest there can be.
func (w *Window) Observe(now time.Time, d time.Duration) {
	i := bucketOf(w.mapping, d)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rotateLocked(now)
	if lo, _, ok := w.counts.span(); ok {
		i = min(i, lo+w.counts.limit-1)
	}
	w.counts.add(i, observed)
}

// Forget drops the samples behind [Window.Survival], completed and censored. How long callers waited is kept.
func (w *Window) Forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts.forget(completed)
	w.counts.forget(censored)
}

// Count returns the number of live samples, completed and censored.
func (w *Window) Count(now time.Time) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rotateLocked(now)
	return w.counts.total(completed) + w.counts.total(censored)
}

// Quantiles sets out[k] to the quantile qs[k] of how long callers waited and returns how many there are. It fills
// as many elements as both slices have, with zeros when there is no sample.
//
// The quantile q of n samples is the order statistic of rank floor(q*(n-1)), counted from 0; a q outside [0, 1] is
// clamped, NaN to 0. The value is within the window's relative accuracy of it, give or take the rounding to a
// nanosecond, unless it fell into a bucket that holds more than its own (see the package comment). Ascending qs take a
// single pass over the counts.
func (w *Window) Quantiles(now time.Time, qs []float64, out []time.Duration) (count uint64) {
	qs = qs[:min(len(qs), len(out))]
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rotateLocked(now)

	count = w.counts.total(observed)
	if count == 0 {
		clear(out[:len(qs)])
		return 0
	}
	c := w.counts.cursor()
	for k, q := range qs {
		out[k] = middle(w.mapping, c.seek(rank(q, count)))
	}
	return count
}

// rotateLocked brings the generations up to now. mu must be held.
func (w *Window) rotateLocked(now time.Time) {
	if !w.started {
		w.started, w.start = true, now
		return
	}
	elapsed := now.Sub(w.start)
	switch {
	case elapsed < w.width: // also when time went backwards
	case elapsed-w.width < w.width: // below two widths; the sum could overflow
		w.start = w.start.Add(w.width)
		w.counts.rotate()
	default:
		w.start = now
		w.counts.reset()
	}
}

// rank returns floor(q*(n-1)) for q clamped to [0, 1]; n must not be zero.
func rank(q float64, n uint64) uint64 {
	return uint64(clampUnit(q) * float64(n-1))
}

// clampUnit returns q clamped to [0, 1], and 0 for NaN.
func clampUnit(q float64) float64 {
	if !(q > 0) {
		return 0
	}
	return min(q, 1)
}

// bucketOf returns the index of the bucket that d belongs to.
func bucketOf(m *mapping.LogarithmicMapping, d time.Duration) int {
	return m.Index(float64(max(d, shortest)))
}

// middle returns the duration that stands for bucket i: the one with the least relative error for all the bucket holds.
func middle(m *mapping.LogarithmicMapping, i int) time.Duration {
	return toDuration(math.Round(m.Value(i)))
}

// toDuration converts nanoseconds; the last bucket reaches beyond the greatest duration, hence the clamp.
func toDuration(ns float64) time.Duration {
	if ns >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(ns)
}
