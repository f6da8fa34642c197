package sketch

import (
	"math"
	"slices"
	"sort"
	"time"

	"github.com/DataDog/sketches-go/ddsketch/mapping"
)

// slack is how far above 1-q [Survival.Quantile] accepts the estimate. Without it a rounding error in the product of
// factors would push a quantile that falls between two buckets to the far one.
const slack = 1e-9

// Survival is the Kaplan-Meier estimate of the share of samples that take longer than a given time, as
// [Window.Survival] found it. The zero value knows no sample and holds 1 for all times. Its methods may be called
// concurrently, but not while it is being filled.
type Survival struct {
	mapping *mapping.LogarithmicMapping
	count   uint64
	first   int       // index of the lowest bucket in use
	share   []float64 // share[k] is the estimate at the upper bound of bucket first+k
}

// Survival fills dst with the estimate over the live samples of both kinds. It reuses the memory of dst, which has
// enough after the first fill from a window of the same accuracy.
//
// Bucket by bucket, from the lowest, the estimate falls by the share of the samples at risk, those not yet completed
// or given up, that completed there. Samples censored in a bucket count as at risk in it.
func (w *Window) Survival(now time.Time, dst *Survival) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rotateLocked(now)

	b := &w.counts
	atRisk := b.total(completed) + b.total(censored)
	dst.mapping, dst.count, dst.share = w.mapping, atRisk, dst.share[:0]
	lo, hi, ok := b.span()
	if !ok || atRisk == 0 {
		return
	}
	dst.first = lo
	dst.share = slices.Grow(dst.share, b.limit)[:hi-lo+1]
	share := 1.0
	for k := range dst.share {
		pos := lo - b.base + k
		ended := b.at(completed, pos)
		if ended > 0 {
			share *= float64(atRisk-ended) / float64(atRisk)
		}
		atRisk -= ended + b.at(censored, pos)
		dst.share[k] = share
		if atRisk == 0 {
			dst.share = dst.share[:k+1]
			break
		}
	}
}

// Count returns the number of samples behind the estimate, completed and censored.
func (s *Survival) Count() uint64 {
	return s.count
}

// At returns the estimated share of samples that take longer than t. It is continuous and never increases: within a
// bucket it is interpolated linearly. Above the highest bucket in use it keeps its last value, which is above zero
// when the longest samples are censored.
func (s *Survival) At(t time.Duration) float64 {
	if t <= 0 || len(s.share) == 0 {
		return 1
	}
	k := s.mapping.Index(float64(t)) - s.first
	if k < 0 {
		return 1
	}
	if k >= len(s.share) {
		return s.share[len(s.share)-1]
	}
	from, to := 1.0, s.share[k]
	if k > 0 {
		from = s.share[k-1]
	}
	if from == to {
		return to
	}
	lower, upper := s.bounds(k)
	if !(lower < upper) {
		return to
	}
	// Logarithm and exponential need not agree to the last bit about which bucket a bound belongs to.
	part := min(max((float64(t)-lower)/(upper-lower), 0), 1)
	return max(to, from-part*(from-to))
}

// Ceil returns the upper bound of the bucket that t falls into, where At is exact; without a sample, t.
func (s *Survival) Ceil(t time.Duration) time.Duration {
	if s.mapping == nil {
		return t
	}
	_, upper := s.bounds(bucketOf(s.mapping, t) - s.first)
	return max(t, toDuration(upper*(1+slack)+1))
}

// Quantile returns the smallest t with At(t) <= 1-q, accepting an excess of 1e-9 so that rounding errors do not count.
// It returns false when the estimate never falls that low, because all later samples are censored, or when there is no
// sample. A q outside [0, 1] is clamped, NaN to 0.
func (s *Survival) Quantile(q float64) (time.Duration, bool) {
	if len(s.share) == 0 {
		return 0, false
	}
	most := 1 - clampUnit(q) + slack
	if most >= 1 {
		return 0, true
	}
	k := sort.Search(len(s.share), func(k int) bool { return s.share[k] <= most })
	if k == len(s.share) {
		return 0, false
	}
	// Search At itself, so that the answer agrees with it to the nanosecond.
	lower, upper := s.bounds(k)
	lo, hi := toDuration(lower*(1-slack)), toDuration(upper*(1+slack)+1)
	for lo < hi {
		mid := lo + (hi-lo)/2
		if s.At(mid) <= most {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return hi, true
}

// bounds returns the bounds of bucket first+k in nanoseconds. The upper one ends at the greatest duration.
func (s *Survival) bounds(k int) (lower, upper float64) {
	i := s.first + k
	return s.mapping.LowerBound(i), min(s.mapping.LowerBound(i+1), math.MaxInt64)
}

// Max returns the upper bound of the highest bucket in use: no sample is known to have taken longer. It is 0 without a
// sample.
func (s *Survival) Max() time.Duration {
	if len(s.share) == 0 {
		return 0
	}
	_, upper := s.bounds(len(s.share) - 1)
	return toDuration(upper)
}
