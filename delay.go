package hedgerow

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hedgerow-go/hedgerow/sketch"
)

// The learned delay is computed anew when it is older than delayMaxAge, or when the latencies it was learned from have
// grown by one in delayGrowth, but not for fewer than delayMinGrowth of them. In between it is a load of an atomic.
const (
	delayMaxAge    = time.Second
	delayGrowth    = 16
	delayMinGrowth = 8
)

// budgetReserve is the part of the budget's share that the learned delay leaves alone when the bucket is empty.
const budgetReserve = 0.3

// delays learn the hedge delay of an endpoint from the latencies of its primaries. They also keep what callers saw.
type delays struct {
	latencies *sketch.Window
	added     atomic.Uint64 // latencies since the delay was computed

	learned  atomic.Int64  // the delay in ns; 0: none was learned yet
	warming  atomic.Bool   // there were too few latencies when it was last looked at
	due      atomic.Uint64 // how many more latencies make it due
	computed atomic.Int64  // Unix time in ns; 0: never

	mark atomic.Int64  // what drift compares latencies with, in ns
	over atomic.Uint64 // latencies so far that were longer than the mark was when they came

	computing sync.Mutex // guards the fields below; held by the one that computes, the others go on with what there is
	drift     drift
}

// completed takes in the latency of a primary that succeeded, and whether its caller saw the same.
func (d *delays) completed(now time.Time, latency time.Duration, seen bool) {
	if seen {
		d.latencies.Add(now, latency)
	} else {
		d.latencies.AddUnseen(now, latency)
	}
	d.count(latency)
}

// censored takes in the age of a primary that was cancelled because a hedge had won: it would have taken longer.
func (d *delays) censored(now time.Time, age time.Duration) {
	d.latencies.AddCensored(now, age)
	d.count(age)
}

// count counts a latency, or an age, which is above the mark as a rule: the hedge was sent after the delay.
func (d *delays) count(latency time.Duration) {
	d.added.Add(1)
	if int64(latency) > d.mark.Load() {
		d.over.Add(1)
	}
}

// delay returns the hedge delay in force, and whether the endpoint is warming up.
func (e *endpoint) delay(now time.Time) (delay time.Duration, warming bool) {
	if e.hedge.Delay > 0 {
		return max(e.hedge.Delay, e.hedge.MinDelay), false
	}
	d := &e.delays
	if d.stale(now) && d.computing.TryLock() {
		d.compute(now, e.hedge, e.budget.level(now))
		d.computing.Unlock()
	}
	if delay = time.Duration(d.learned.Load()); delay == 0 {
		delay = e.hedge.clamp(e.hedge.WarmupDelay)
	}
	return delay, d.warming.Load()
}

// stale reports whether the delay should be computed.
func (d *delays) stale(now time.Time) bool {
	age := now.UnixNano() - d.computed.Load()
	return age >= int64(delayMaxAge) || age < 0 || d.added.Load() >= d.due.Load()
}

// compute learns the delay, or keeps the one there is while there are too few latencies, also because the service has
// changed and those from before were dropped. computing must be held.
func (d *delays) compute(now time.Time, cfg *HedgeConfig, level float64) {
	d.computed.Store(now.UnixNano())
	n := d.latencies.Count(now)
	relearns := cfg.WarmupRequests <= driftLast // with more, to learn anew takes longer than to wait
	if d.drift.found(now, d.added.Swap(0), d.over.Load(), n) && relearns {
		d.latencies.Forget()
		n = 0
	}
	if n < uint64(cfg.WarmupRequests) { //nolint:gosec // validated: not negative
		d.warming.Store(true)
		d.due.Store(uint64(cfg.WarmupRequests) - n) //nolint:gosec // validated: not negative
		return
	}
	var s sketch.Survival
	d.latencies.Survival(now, &s)
	if delay, ok := fitDelay(&s, cfg, level); ok {
		d.learned.Store(int64(cfg.clamp(delay)))
	}
	if !d.drift.running() {
		mark := s.Ceil(time.Duration(d.learned.Load())) // between bounds a share is an estimate
		d.mark.Store(int64(mark))
		d.drift.start(now, s.At(mark), s.Count(), d.over.Load())
	}
	d.due.Store(max(s.Count()/delayGrowth, delayMinGrowth))
	d.warming.Store(false)
}

// clamp bounds a delay that is not fixed.
func (c HedgeConfig) clamp(d time.Duration) time.Duration {
	if c.MaxDelay > 0 {
		d = min(d, c.MaxDelay)
	}
	return max(d, c.MinDelay)
}

// fitDelay returns the smallest delay at or above the quantile at which the hedges asked for fit the budget, whose bucket
// is full to level. With a delay that asks for more, the budget would refuse at random, and the calls that it refused
// would be slow ones.
//
// What is learned from a window is off by chance, in the order of 2 % of the share. A bucket that is less than half
// full lowers the share, so that such errors are made up for before it runs dry.
//
// When more primaries hang than the budget has hedges for, no delay fits. Then it is the smallest one that asks for no
// more than the greatest does: to wait longer would help none of them, and the ages at which they are cut off, from
// which the next delay is learned, would grow without end. It is false if no primary has completed.
//
// Where hedges cut off so many calls that the quantile cannot be seen, the budget alone decides. To wait for what has not
// been seen would be to wait for calls that hang.
func fitDelay(s *sketch.Survival, cfg *HedgeConfig, level float64) (time.Duration, bool) {
	high := s.Max()
	if s.At(high) == 1 {
		return 0, false
	}
	share := cfg.BudgetPercent / 100 * (1 - budgetReserve*max(0, 1-2*level))
	share = max(share, asked(s, high, cfg.MaxHedges)+1e-9) // and a rounding error
	low, ok := s.Quantile(cfg.Quantile)
	if ok && asked(s, low, cfg.MaxHedges) <= share {
		return low, true
	}
	high = max(high, low)
	for high-low > low/1024+1 { // what is asked for falls with the delay
		mid := low + (high-low)/2
		if asked(s, mid, cfg.MaxHedges) <= share {
			high = mid
		} else {
			low = mid
		}
	}
	return high, true
}

// asked returns how many hedges a call asks for on average with delay d. Hedge n is sent at n x d, if by then neither the
// primary nor any hedge before it has answered, the k-th of which has had (n-k) x d for it:
// S(d) + S(2d)S(d) + S(3d)S(2d)S(d) + ..., with S the survival function of the latency.
func asked(s *sketch.Survival, d time.Duration, hedges int) float64 {
	sum, all := 0.0, 1.0
	for n := 1; n <= min(hedges, maxAsks) && all > 0; n++ {
		all *= s.At(time.Duration(n) * d)
		sum += all
	}
	return sum
}
