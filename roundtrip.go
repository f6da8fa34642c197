package hedgerow

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// A call is one RoundTrip.
type call struct {
	t     *Transport
	req   *http.Request   // the caller's; not read after RoundTrip has returned
	ctx   context.Context //nolint:containedctx // a call is what the context is of
	ep    *endpoint       // nil: none was found
	start time.Time
	delay time.Duration
	trial *trial // given by the circuits that fail fast; nil: none

	done     func(CallInfo)  // Call.Done
	stopped  <-chan struct{} // the request's Cancel
	noHedge  bool            // Call.NoHedge
	declared bool            // idempotent, by Call or by the endpoint
	warming  bool            // the delay is that of an endpoint that is warming up
	learned  bool            // the latency was, with what the caller saw
	told     bool            // done was called
	closed   bool
	method   uint8 // see identity
}

// open finds the endpoint of the call and counts it there. An error ends the call: nothing is sent, the body is closed.
func (c *call) open() error {
	if c.req == nil {
		return errNilRequest
	}
	c.ctx = c.req.Context()
	c.stopped = c.req.Cancel //nolint:staticcheck // http.Client.Timeout closes it
	opts := callFrom(c.ctx)
	if opts != nil {
		_, opts = inherited(c.req)
	}
	err := c.enter(opts)
	if err != nil {
		if c.req.Body != nil {
			_ = c.req.Body.Close() // the call has its error
		}
		c.finish(time.Now(), nil, err, CallInfo{})
	}
	return err
}

// enter is open with what the caller has set for the call; nil: nothing.
func (c *call) enter(opts *Call) error {
	var name string
	var delay time.Duration
	if opts != nil {
		name, delay = opts.Endpoint, opts.Delay
		c.done, c.noHedge, c.declared = opts.Done, opts.NoHedge, opts.Idempotent
	}
	if err := checkRequest(c.req); err != nil {
		return err
	}
	host := hostOf(c.req.URL)
	rt, err := c.t.routes.Load().find(name, c.req, host)
	if err != nil {
		return err
	}
	c.ep = c.t.endpoints.get(rt, host)
	c.declared = c.declared || c.ep.idempotent
	c.start = time.Now()
	c.count(countRequests)
	if gone, _ := callerGone(c.ctx, c.stopped); gone {
		return goneError(c.ctx)
	}
	if err := c.failFast(); err != nil {
		return err
	}
	c.ep.budget.deposit(c.start)
	if delay > 0 {
		c.delay = max(delay, c.ep.hedge.MinDelay)
	} else {
		c.delay, c.warming = c.ep.delay(c.start)
	}
	return nil
}

// failFast asks the circuits that refuse calls, if there are any.
func (c *call) failFast() error {
	host, ep := c.ep.host.circuit.refuser(), c.ep.circuit.refuser()
	if host == nil && ep == nil {
		return nil
	}
	trial, admitted := admitBoth(c.start, host, ep)
	c.trial = trial.held()
	told := false
	defer func() {
		if !told { // the hook has ended the goroutine
			closeRequest(c.req)
			c.freeTrial(c.trial)
			c.finishAbandoned(0)
		}
	}()
	c.report(trial.hostMoves, trial.endpointMoves)
	told = true
	if admitted {
		return nil
	}
	err := &CircuitOpenError{Scope: trial.refusedBy, Host: c.ep.key.Host}
	if err.Scope == CircuitHost {
		err.Until = host.until(c.start)
	} else {
		err.Endpoint, err.Until = c.ep.key.Name, ep.until(c.start)
	}
	return err
}

// pass sends a call that is not hedged. An [http.Transport] gets the caller's own request, without goroutine or timer;
// any other base a shallow copy that carries the attempt.
func (c *call) pass(reason SkipReason) (*http.Response, error) {
	a := attempt{ep: c.ep, req: c.req, trial: c.trial}
	var p *passing
	defer func() { c.abandon(&a, p) }()
	c.skip(reason)
	if c.t.plain {
		a.resp, a.err = outcome(carry(c.t.base, c.req))
		a.err = ownError(c.ctx, a.err)
		a.badBody = a.err != nil && mayBeBodyError(a.err, c.req)
	} else {
		p = &passing{attempt: attempt{Context: c.ctx, ep: c.ep, declared: c.declared}, hooks: &c.t.hooks}
		a.req = p.copy(c.req)
		a.resp, a.err = outcome(c.t.base.RoundTrip(a.req))
		a.err = ownError(c.ctx, a.err)
		a.badBody = p.reqBody != nil && p.reqBody.failed.Load()
		if a.resp != nil {
			a.resp.Request = c.req
		}
		if n, pooled := p.shared.of(&p.attempt); pooled {
			c.hear(&a, n)
			if a.beside() && !a.unsent() {
				p.shared.answered()
			}
		}
	}
	a.ended = time.Since(c.start)
	info := CallInfo{Attempts: p.attempts(), Winner: a.who()}
	c.judge(&a)
	if reason == SkipDisabled || reason == SkipDeadline { // it may be hedged another time
		c.learnPassed(&a)
	}
	c.book(&a)
	c.attemptDone(&a, true, false)
	c.finish(c.at(a.ended), a.resp, a.err, info)
	return a.resp, a.err
}

// at returns the instant that long after the start of the call.
func (c *call) at(d time.Duration) time.Time { return c.start.Add(d) }

// A passing is what a call that is not hedged allocates over a base that is no http.Transport.
type passing struct {
	attempt // the context

	shared flight
	ident  identity
	hooks  *Hooks
	sent   http.Request
}

func (p *passing) identity() identity { return p.ident }

func (p *passing) flight() *flight {
	p.ep.markPooled()
	return &p.shared
}

func (p *passing) sending(a *attempt, now time.Time, pool, resource string) (Attempt, bool) {
	id, _, before := p.shared.send(a, true, now, pool, resource)
	if before != nil {
		before.Endpoint, before.Host = p.ep.key.Name, p.ep.key.Host
		p.hooks.attemptDone(p.Context, *before)
	}
	return id, true
}

func (*passing) passes(*attempt) {}

// attempts returns how many attempts were sent: one, if no pool beneath counts them. p is nil over an http.Transport.
func (p *passing) attempts() int {
	if p == nil {
		return 1
	}
	if _, pooled := p.shared.of(&p.attempt); !pooled {
		return 1
	}
	return p.shared.count()
}

// copy returns the request to send.
func (p *passing) copy(req *http.Request) *http.Request {
	p.carrier, p.ident = p, identify(req)
	p.sent = *req.WithContext(&p.attempt)
	if hasBody(&p.sent) && !inMemory(p.sent.Body) {
		p.own(&p.sent)
	}
	return &p.sent
}

// hear takes over what a pool beneath has said of an attempt that has ended.
func (c *call) hear(a *attempt, n note) {
	a.heard = &n
	if !n.sentAt.IsZero() {
		a.began = n.sentAt.Sub(c.start)
	}
}

// learnPassed takes in the latency of a call that was not hedged, if another one like it may be.
func (c *call) learnPassed(a *attempt) {
	if _, unfit := c.unfit(); unfit {
		return
	}
	c.countWarming()
	if a.acceptable && c.ep.hedge.Signal == SignalFirstByte && !bodiless(a.resp) {
		b := &responseBody{rc: a.resp.Body, cancel: func(error) {}}
		a.resp.Body = b
		_, err := b.peek(1)
		a.breaks(err)
		a.ended = time.Since(c.start)
	}
	if a.acceptable {
		c.learn(a)
	}
}

// learn takes in the latency of a primary that has succeeded, which is what the caller sees, unless
// it had to wait for a resource first.
func (c *call) learn(a *attempt) {
	c.learned = a.began == 0
	c.ep.delays.completed(c.at(a.ended), a.ended-a.began, c.learned)
}

// judge asks the policy functions what they make of the attempt's outcome. A panic in one passes through.
func (c *call) judge(a *attempt) {
	if a.err != nil {
		a.acceptable = false
		a.failure = failure{host: true, endpoint: true}
		return
	}
	a.acceptable = c.ep.hedge.Accept(a.resp) && !a.refused()
	a.failure = failure{
		host:     c.ep.host.circuit.cfg.Failure(a.resp),
		endpoint: c.ep.circuit.cfg.Failure(a.resp),
	}
}

// A failure says for which circuits the outcome of an attempt is one.
type failure struct{ host, endpoint bool }

// book enters the outcome of an attempt that ran to its end: what the host asks for, and in the circuits. What the
// caller has cancelled says nothing of the host, nor does a hedge that was cut by the caller's deadline, for which
// the primary speaks.
func (c *call) book(a *attempt) {
	if a.unsent() {
		c.free(a)
		return
	}
	if a.resp != nil {
		c.ep.host.pushback.note(c.at(a.ended), a.resp)
	}
	if a.err != nil || a.broken {
		gone, deadline := callerGone(c.ctx, c.stopped)
		local := a.badBody || untried(a.err) || c.t.wire && unsendable(a.req)
		if local || gone && (!deadline || a.hedge) {
			c.free(a)
			return
		}
	}
	a.trial.take() // it keeps its places
	now := c.at(a.ended)
	c.report(c.ep.host.circuit.record(now, a.failure.host), c.ep.circuit.record(now, a.failure.endpoint))
}

// untried reports whether err says that a pool had nothing to send the call with. Of the one right beneath the attempt knows it.
func untried(err error) bool {
	e, ok := errors.AsType[*ExhaustedError](err)
	return ok && e.Attempts == 0
}

// free gives back the places that an attempt without an outcome has in the circuits.
func (c *call) free(a *attempt) {
	c.freeTrial(a.trial)
}

func (c *call) freeTrial(t *trial) {
	if t.take() {
		c.ep.host.circuit.release(t.host)
		c.ep.circuit.release(t.endpoint)
	}
}

// report tells the hook of the transitions of both circuits.
func (c *call) report(host, endpoint transitions) {
	if len(host)+len(endpoint) == 0 {
		return
	}
	key := c.ep.key
	for _, m := range host {
		c.t.hooks.circuitChange(CircuitEvent{Scope: CircuitHost, Host: key.Host, From: m.from, To: m.to})
	}
	for _, m := range endpoint {
		c.t.hooks.circuitChange(
			CircuitEvent{Scope: CircuitEndpoint, Endpoint: key.Name, Host: key.Host, From: m.from, To: m.to})
	}
}

// attemptDone tells the hook of the end of an attempt.
func (c *call) attemptDone(a *attempt, won, superseded bool) {
	if c.t.hooks.AttemptDone == nil || a.unsent() {
		return
	}
	e := AttemptEvent{
		Endpoint: c.ep.key.Name, Host: c.ep.key.Host, Attempt: a.who(), Err: a.err,
		Latency: a.ended - a.began, Won: won, Superseded: superseded,
	}
	if a.resp != nil {
		e.Status = a.resp.StatusCode
	}
	if a.heard != nil && a.heard.done != nil { // the attempt went on from its latest send, but to no other
		last := a.heard.done
		e.Status, e.Err, e.Latency = last.Status, last.Err, last.Latency
		if last.Superseded { // by a sibling's verdict, and what is returned says so
			e.Won, e.Superseded = false, true
		}
	}
	c.t.hooks.attemptDone(c.ctx, e)
}

// sendEnded tells the hook of a send that another one of its attempt follows.
func (c *call) sendEnded(e AttemptEvent) {
	e.Endpoint, e.Host = c.ep.key.Name, c.ep.key.Host
	c.t.hooks.attemptDone(c.ctx, e)
}

// finish counts how the call ended and tells its caller.
func (c *call) finish(now time.Time, resp *http.Response, err error, info CallInfo) {
	if c.ep != nil {
		info.Endpoint, info.Host = c.ep.key.Name, c.ep.key.Host
		if err == nil || !c.canceled() {
			if err != nil || resp.StatusCode >= http.StatusInternalServerError {
				c.count(countErrors)
			}
			if info.Attempts > 0 && !c.learned {
				c.ep.delays.latencies.Observe(now, now.Sub(c.start))
			}
		}
	}
	c.tell(info)
	c.closed = true
}

// tell tells the caller, once.
func (c *call) tell(info CallInfo) {
	c.told = true
	if c.done != nil {
		defer ignorePanic()
		c.done(info)
	}
}

// abandon ends a call whose base transport or policy function has panicked or ended the goroutine, if that is how it
// ended.
func (c *call) abandon(a *attempt, p *passing) {
	if c.closed {
		return
	}
	if a.resp != nil && a.resp.Body != nil {
		_ = a.resp.Body.Close()
	}
	if a.req.Body != nil {
		_ = a.req.Body.Close()
	}
	c.free(a)
	c.finishAbandoned(p.attempts())
}

// finishAbandoned tells the caller of a call that ends without an outcome.
func (c *call) finishAbandoned(attempts int) {
	if !c.told {
		c.count(countErrors)
		c.tell(CallInfo{Endpoint: c.ep.key.Name, Host: c.ep.key.Host, Attempts: attempts})
	}
	c.closed = true
}

// count counts in the endpoint and in the total.
func (c *call) count(n counter) {
	c.ep.counters[n].Add(1)
	c.t.total[n].Add(1)
}

// countWarming counts a call that is learned from, if its endpoint is warming up.
func (c *call) countWarming() {
	if c.warming {
		c.count(countWarmup)
	}
}

// skip counts a refusal to hedge the call.
func (c *call) skip(reason SkipReason) {
	c.count(countSkipped + counter(reason))
	c.t.hooks.hedgeSkipped(c.ctx, SkipEvent{Endpoint: c.ep.key.Name, Host: c.ep.key.Host, Reason: reason})
}
