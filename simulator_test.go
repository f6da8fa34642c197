package hedgerow_test

import (
	"context"
	"math"
	"math/rand/v2"
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

// A simulation is an open loop in virtual time: calls arrive whether or not earlier ones have ended, as they do at a
// service that gets slow. Each call draws the service times of all attempts it could have before it begins, from a
// stream of its own, so that runs with the same seed differ in nothing but what the Transport makes of them.
//
// It runs inside a [testing/synctest] bubble.
type simulation struct {
	cfg     hedgerow.Config
	seed    uint64
	calls   int
	rate    float64 // calls per second
	regular bool    // arrivals at equal distances; else a Poisson process

	// service draws the time one attempt takes.
	service simService
	// fate changes what was drawn for an attempt that begins at that time of the run; nil: nothing is changed.
	fate func(at, drawn time.Duration) simAnswer
	// fateOn is fate with the resource of a pool that the attempt is on; nil: it is not asked.
	fateOn func(resource string, at, drawn time.Duration) simAnswer
	// pool is between the Transport and the service; nil: nothing is.
	pool *hedgerow.Pool
	// path of a call; "": "/".
	path string
	// register is called with the Transport before the first call; nil: nothing is registered.
	register func(*hedgerow.Transport)
	// beside runs against the same Transport at the same time; only its service, path, rate, seed and calls count.
	beside *simulation
}

// simAttempts is how many attempts a call can have: the primary and as many hedges as it may ask for.
const simAttempts = 9

// A simAnswer is how an attempt ends: after that time, with that status.
type simAnswer struct {
	after  time.Duration
	status int // zero: 200

	retryAfter time.Duration // zero: none
}

// A simCall is one call of a simulation and what came of it.
type simCall struct {
	service [simAttempts]time.Duration
	opts    hedgerow.Call // but for Done

	at      time.Duration // since the start of the run
	latency time.Duration
	hedges  []time.Duration // when further attempts were sent, since the start of the run; by the base, under its mutex
	status  int             // 0: an error
	info    hedgerow.CallInfo
}

// A simOutcome is all that came of a run.
type simOutcome struct {
	calls    []*simCall
	stats    hedgerow.Stats
	endpoint hedgerow.EndpointStats
}

type simCallKey struct{}

// simBase plays the service.
type simBase struct {
	start  time.Time
	fate   func(at, drawn time.Duration) simAnswer
	fateOn func(resource string, at, drawn time.Duration) simAnswer

	mu sync.Mutex // guards the hedges of the calls
}

func (b *simBase) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	call, ok := ctx.Value(simCallKey{}).(*simCall)
	if !ok {
		panic("not a simulated call")
	}
	attempt, _ := hedgerow.AttemptFromContext(ctx)
	at := time.Since(b.start)
	if attempt.Number > 0 {
		b.mu.Lock()
		call.hedges = append(call.hedges, at)
		b.mu.Unlock()
	}
	answer := simAnswer{after: call.service[min(attempt.Number, simAttempts-1)]}
	if b.fate != nil {
		answer = b.fate(at, answer.after)
	}
	if b.fateOn != nil {
		answer = b.fateOn(attempt.Resource, at, answer.after)
	}
	timer := time.NewTimer(answer.after)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if answer.status == 0 {
		answer.status = http.StatusOK
	}
	h := http.Header{}
	if answer.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(answer.retryAfter.Seconds()))))
	}
	return &http.Response{StatusCode: answer.status, Header: h, Body: http.NoBody, Request: req}, nil
}

// run makes all calls and waits for them.
func (s *simulation) run(t *testing.T) *simOutcome {
	t.Helper()
	base := &simBase{start: time.Now(), fate: s.fate, fateOn: s.fateOn}
	cfg := s.cfg
	cfg.Base = base
	if s.pool != nil {
		cfg.Base = s.pool.Wrap(base)
	}
	tr, err := hedgerow.New(cfg)
	require.NoError(t, err)
	if s.register != nil {
		s.register(tr)
	}

	var wg sync.WaitGroup
	if s.beside != nil {
		wg.Go(func() { s.beside.send(t, tr, base) })
	}
	out := &simOutcome{calls: s.send(t, tr, base)}
	wg.Wait()
	synctest.Wait() // for the hedges that were sent as their call ended
	out.stats = tr.Stats()
	for key, ep := range out.stats.Endpoints {
		if key.Name == "" || len(out.stats.Endpoints) == 1 {
			out.endpoint = ep
		}
	}
	return out
}

func (s *simulation) send(t *testing.T, tr *hedgerow.Transport, base *simBase) []*simCall {
	t.Helper()
	arrivals := rand.New(rand.NewPCG(s.seed, math.MaxUint64))
	calls := make([]*simCall, s.calls)
	var wg sync.WaitGroup
	next := 0.0 // seconds since the start
	for n := range calls {
		c := &simCall{at: time.Duration(next * 1e9)}
		draws := rand.New(rand.NewPCG(s.seed, uint64(n)))
		for k := range c.service {
			c.service[k] = s.service(draws)
		}
		calls[n] = c
		time.Sleep(time.Until(base.start.Add(c.at)))
		wg.Go(func() { c.make(t.Context(), tr, s.path) })
		if s.regular {
			next = float64(n+1) / s.rate
		} else {
			next += arrivals.ExpFloat64() / s.rate
		}
	}
	wg.Wait()
	return calls
}

// make makes the call. It runs outside of the test's goroutine.
func (c *simCall) make(ctx context.Context, tr *hedgerow.Transport, path string) {
	c.makeAt(ctx, tr, "sim.test", path)
}

func (c *simCall) makeAt(ctx context.Context, tr *hedgerow.Transport, host, path string) {
	ctx = context.WithValue(ctx, simCallKey{}, c)
	opts := c.opts
	opts.Done = func(info hedgerow.CallInfo) { c.info = info }
	ctx = hedgerow.WithCall(ctx, opts)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+path, nil)
	if err != nil {
		panic(err)
	}
	start := time.Now()
	resp, err := tr.RoundTrip(req) //nolint:contextcheck // it is the request's
	c.latency = time.Since(start)
	if err == nil {
		c.status = resp.StatusCode
		_ = resp.Body.Close()
	}
}

// asked returns how often the call asked for a hedge. In virtual time it asks exactly at the multiples of its delay:
// until it has its answer, or as many hedges as it may have, or has asked eight times.
func (c *simCall) asked(maxHedges int) int {
	d := c.info.Delay
	if d == 0 {
		return 0
	}
	if len(c.hedges) == maxHedges {
		return int((c.hedges[maxHedges-1] - c.at) / d)
	}
	return min(int((c.latency-1)/d), simAttempts-1)
}

// within returns the outcome of the calls that were made in [from, to).
func (o *simOutcome) within(from, to time.Duration) *simOutcome {
	part := *o
	part.calls = slices.DeleteFunc(slices.Clone(o.calls), func(c *simCall) bool { return c.at < from || c.at >= to })
	return &part
}

// sent returns the hedges per call.
func (o *simOutcome) sent() float64 {
	n := 0
	for _, c := range o.calls {
		n += len(c.hedges)
	}
	return float64(n) / float64(len(o.calls))
}

// asked returns the hedges asked for per call.
func (o *simOutcome) asked(maxHedges int) float64 {
	n := 0
	for _, c := range o.calls {
		n += c.asked(maxHedges)
	}
	return float64(n) / float64(len(o.calls))
}

// delay returns the median of the hedge delays in force.
func (o *simOutcome) delay() time.Duration {
	return simQuantile(o.calls, 0.5, func(c *simCall) time.Duration { return c.info.Delay })
}

// quantile returns that quantile of the latency of the calls.
func (o *simOutcome) quantile(q float64) time.Duration {
	return simQuantile(o.calls, q, func(c *simCall) time.Duration { return c.latency })
}

// unhedged returns that quantile of the latency that the calls had without hedges.
func (o *simOutcome) unhedged(q float64) time.Duration {
	return simQuantile(o.calls, q, func(c *simCall) time.Duration { return c.service[0] })
}

func simQuantile(calls []*simCall, q float64, of func(*simCall) time.Duration) time.Duration {
	all := make([]time.Duration, len(calls))
	for k, c := range calls {
		all[k] = of(c)
	}
	slices.Sort(all)
	return all[int(q*float64(len(all)-1))]
}

// A simService draws the time that one attempt takes.
type simService func(*rand.Rand) time.Duration

// simConstant takes always the same time.
func simConstant(d time.Duration) simService { return func(*rand.Rand) time.Duration { return d } }

// simLognormal draws from the lognormal distribution with that mean and standard deviation.
func simLognormal(mean, sd time.Duration) simService {
	variance := math.Log1p(math.Pow(float64(sd)/float64(mean), 2))
	location := math.Log(float64(mean)) - variance/2
	return func(r *rand.Rand) time.Duration {
		return time.Duration(math.Exp(location + math.Sqrt(variance)*r.NormFloat64()))
	}
}

// simWorkload is a service with a tail: one attempt in twenty is ten times slower.
func simWorkload() simService {
	usual := simLognormal(5*time.Millisecond, 2*time.Millisecond)
	return func(r *rand.Rand) time.Duration {
		d := usual(r)
		if r.Float64() < 0.05 {
			d *= 10
		}
		return d
	}
}

// simBimodal answers one attempt in eight from a slow store.
func simBimodal() simService {
	fast := simLognormal(4*time.Millisecond, time.Millisecond)
	slow := simLognormal(60*time.Millisecond, 15*time.Millisecond)
	return func(r *rand.Rand) time.Duration {
		if r.Float64() < 0.125 {
			return slow(r)
		}
		return fast(r)
	}
}

func simExponential(mean time.Duration) simService {
	return func(r *rand.Rand) time.Duration { return time.Duration(float64(mean) * r.ExpFloat64()) }
}

func simPareto(least time.Duration, shape float64) simService {
	return func(r *rand.Rand) time.Duration {
		return time.Duration(float64(least) * math.Pow(1-r.Float64(), -1/shape))
	}
}
