package tail_test

import (
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A call is one call of a run and what came of it.
type call struct {
	at    time.Duration // since the start of the run
	group int
	draws [attempts]drawn

	latency time.Duration
	failed  bool
	sends   []time.Duration // when its attempts were sent, since the start of the run; by the base, under its mutex
}

// draw makes the calls of a run and all that chance has a say in.
func (w *workload) draw(seed uint64) []*call {
	arrive := w.arrive
	if arrive == nil {
		arrive = poisson
	}
	at := arrive(w, rand.New(rand.NewPCG(seed, math.MaxUint64)))
	calls := make([]*call, w.calls)
	for n := range calls {
		c := &call{at: at[n]}
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		for luck := r.Float64(); c.group < len(w.groups)-1 && luck >= w.groups[c.group].share; c.group++ {
			luck -= w.groups[c.group].share
		}
		for k := range c.draws {
			c.draws[k] = drawn{service: w.groups[c.group].service(r), luck: r.Float64()}
		}
		calls[n] = c
	}
	return calls
}

// replica returns where an attempt goes that nobody steers.
func (w *workload) replica(d drawn) int { return int(d.luck * float64(max(w.replicas, 1))) }

type callKey struct{}

// base plays the service, as an [http.RoundTripper].
type base struct {
	w     *workload
	start time.Time
	// steer returns the replica of an attempt; nil: chance decides.
	steer func(context.Context) int

	mu sync.Mutex // guards the sends of the calls
}

func (b *base) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		panic("not a call of the simulation")
	}
	at := time.Since(b.start)
	b.mu.Lock()
	d := c.draws[min(len(c.sends), attempts-1)]
	c.sends = append(c.sends, at)
	b.mu.Unlock()
	replica := b.w.replica(d)
	if b.steer != nil {
		replica = b.steer(ctx)
	}
	a := b.w.answer(at, d, replica)
	timer := time.NewTimer(a.after)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	status := http.StatusOK
	if a.failed {
		status = http.StatusServiceUnavailable
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}

// run makes the calls of a seed through a contender, in a bubble of its own.
func (w *workload) run(t *testing.T, seed uint64, c contender) (calls []*call) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &base{w: w, start: time.Now()}
		rt := c.wrap(t, b)
		calls = w.draw(seed)
		var wg sync.WaitGroup
		for _, c := range calls {
			time.Sleep(time.Until(b.start.Add(c.at)))
			wg.Go(func() { c.make(t.Context(), rt, b) })
		}
		wg.Wait()
	})
	return calls
}

// make makes the call. It runs outside of the test's goroutine.
func (c *call) make(ctx context.Context, rt http.RoundTripper, b *base) {
	ctx = context.WithValue(ctx, callKey{}, c)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://tail.test/"+b.w.groups[c.group].name, nil)
	if err != nil {
		panic(err)
	}
	start := time.Now()
	resp, err := rt.RoundTrip(req)
	c.latency = time.Since(start)
	if err != nil {
		c.failed = true
		return
	}
	c.failed = resp.StatusCode >= 500
	_ = resp.Body.Close() // it is empty
}

// An outcome is what came of the calls of one group in one run. Latencies are those of the requests that did not fail.
type outcome struct {
	P50, P90, P99, P999 float64 // in ms
	Extra               float64 // attempts beyond the first, per call
	Worst               float64 // the same in the worst 10 s
	Failed              float64 // requests, as a share
}

// span is over how long the worst extra load is taken.
const span = 10 * time.Second

// outcome sums up the calls of a group.
func (w *workload) outcome(calls []*call, group int) outcome {
	latencies, failed := w.latencies(calls, group)
	o := outcome{
		P50: quantile(latencies, 0.5), P90: quantile(latencies, 0.9),
		P99: quantile(latencies, 0.99), P999: quantile(latencies, 0.999),
		Failed: rounded(float64(failed) / float64(failed+len(latencies))),
	}
	sent, extra := 0, 0
	var arrived, added []int // by span
	for _, c := range calls {
		if c.group != group {
			continue
		}
		sent++
		extra += len(c.sends) - 1
		arrived = count(arrived, c.at)
		for _, at := range c.sends[1:] {
			added = count(added, at)
		}
	}
	o.Extra = rounded(float64(extra) / float64(sent))
	for k := range min(len(arrived), len(added)) {
		// A span that only the last few calls fall into says nothing.
		if float64(arrived[k]) >= 0.1*float64(sent)/float64(len(arrived)) {
			o.Worst = max(o.Worst, rounded(float64(added[k])/float64(arrived[k])))
		}
	}
	return o
}

// latencies returns those of the requests of a group, sorted, and how many failed.
func (w *workload) latencies(calls []*call, group int) (sorted []time.Duration, failed int) {
	for request := range slices.Chunk(calls, max(w.fanOut, 1)) {
		if request[0].group != group { // those of a request are of one
			continue
		}
		var slowest time.Duration
		ok := true
		for _, c := range request {
			slowest = max(slowest, c.latency)
			ok = ok && !c.failed
		}
		if ok {
			sorted = append(sorted, slowest)
		} else {
			failed++
		}
	}
	slices.Sort(sorted)
	return sorted, failed
}

// curve returns the latencies, in ms, that a tenth, a hundredth and so on of the requests exceed, in curveSteps to a decade.
func (w *workload) curve(calls []*call, group int) []float64 {
	sorted, _ := w.latencies(calls, group)
	var all []float64
	for k := range curveDecades*curveSteps + 1 {
		exceed := math.Pow(10, -float64(k)/curveSteps)
		if exceed*float64(len(sorted)) >= 1 {
			all = append(all, quantile(sorted, 1-exceed))
		}
	}
	return all
}

const (
	curveDecades = 4
	curveSteps   = 10
)

// rounded returns a share to the hundredth of a percent.
func rounded(share float64) float64 { return math.Round(share*1e4) / 1e4 }

// count adds one to the span that at falls into.
func count(spans []int, at time.Duration) []int {
	k := int(at / span)
	for len(spans) <= k {
		spans = append(spans, 0)
	}
	spans[k]++
	return spans
}

// quantile returns that quantile of sorted latencies in ms, to the microsecond.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[int(q*float64(len(sorted)-1))].Microseconds()) / 1000
}
