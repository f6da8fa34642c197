package tail_test

import (
	"container/heap"
	"math"
	"time"
)

const (
	share    = 0.10 // hedgerow's default budget, which the oracle keeps to as well
	hedges   = 2    // and how many a call may have
	maxAsks  = attempts - 1
	coarse   = 48 // steps between the delays that the search looks at,
	fine     = 17 // and delays between the neighbours of the best of them, which is one of these
	shortest = ms / 2
	longest  = 20 * time.Second
)

// An oracle hedges after the single delay that turns out best. It asks for a hedge at each multiple of it, as hedgerow
// does, but learns nothing: it knows the delay before the first call.
type oracle struct {
	w     *workload
	group int
	// bucket bounds the hedges over any span of time, as hedgerow's budget does. Without it only those of the whole run
	// are bounded, so that all may go where they help most.
	bucket bool

	delay  time.Duration
	tokens int // in percent of a hedge, because ten tenths of one are to be a whole one
	due    asks
}

// An ask is a call's question for a hedge.
type ask struct {
	at time.Duration
	c  *call
	n  int // of the multiples of the delay
}

// asks is a heap.
type asks []ask

func (a *asks) Len() int           { return len(*a) }
func (a *asks) Less(i, j int) bool { return (*a)[i].at < (*a)[j].at }
func (a *asks) Swap(i, j int)      { (*a)[i], (*a)[j] = (*a)[j], (*a)[i] }
func (a *asks) Push(x any)         { *a = append(*a, x.(ask)) } //nolint:errcheck // only asks are pushed
func (a *asks) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

// play makes the calls with that delay, and leaves in them what a run does.
func (o *oracle) play(calls []*call, delay time.Duration) {
	most := max(100, int(100*2*o.w.rate*o.w.groups[o.group].share*share))
	o.delay, o.tokens, o.due = delay, 100, o.due[:0]
	for _, c := range calls {
		o.until(c.at)
		o.tokens = min(o.tokens+100*share, most)
		c.sends, c.latency, c.failed = c.sends[:0], math.MaxInt64, true
		o.send(c, c.at)
		if c.latency > delay {
			heap.Push(&o.due, ask{c.at + delay, c, 1})
		}
	}
	o.until(math.MaxInt64)
}

// until goes on to that time.
func (o *oracle) until(at time.Duration) {
	for len(o.due) > 0 && o.due[0].at < at {
		a, ok := heap.Pop(&o.due).(ask)
		if !ok || a.c.at+a.c.latency <= a.at {
			continue // it has ended
		}
		if !o.bucket || o.tokens >= 100 {
			o.tokens -= 100
			o.send(a.c, a.at)
		}
		if a.n < maxAsks && len(a.c.sends) <= hedges {
			heap.Push(&o.due, ask{a.at + o.delay, a.c, a.n + 1})
		}
	}
}

// send makes an attempt. The call ends with the first success, or else with the last failure, as long as no attempt is
// sent after it.
func (o *oracle) send(c *call, at time.Duration) {
	d := c.draws[len(c.sends)]
	c.sends = append(c.sends, at)
	a := o.w.answer(at, d, o.w.replica(d))
	end := at + a.after - c.at
	switch {
	case a.failed && c.failed && len(c.sends) > 1:
		c.latency = max(c.latency, end)
	case a.failed && c.failed:
		c.latency = end
	case !a.failed && c.failed:
		c.latency, c.failed = end, false
	case !a.failed:
		c.latency = min(c.latency, end)
	}
}

// search returns the delay whose median p99 over the seeds is least, and the outcomes it leads to. It looks for where that
// may be with the first seed alone.
func (o *oracle) search(seeds [][]*call) (best time.Duration, outcomes []outcome) {
	step := math.Pow(float64(longest)/float64(shortest), 1.0/coarse)
	least := math.Inf(1)
	try := func(delay time.Duration, seeds [][]*call) {
		all := make([]outcome, len(seeds))
		for k, calls := range seeds {
			o.play(calls, delay)
			all[k] = o.w.outcome(calls, o.group)
		}
		if m := median(all); m.P99 < least && m.Extra <= share {
			best, least, outcomes = delay, m.P99, all
		}
	}
	for k := range coarse + 1 {
		try(time.Duration(float64(shortest)*math.Pow(step, float64(k))), seeds[:1])
	}
	from := float64(best) / step
	least = math.Inf(1) // one seed is luckier than five
	for k := range fine {
		try(time.Duration(from*math.Pow(step, 2*float64(k)/(fine-1))), seeds)
	}
	return best, outcomes
}
