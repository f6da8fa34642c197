package hedgerow

import (
	"math"
	"net/http"
	"strings"
	"time"
)

// The defaults of HedgeConfig.
const (
	defaultQuantile       = 0.90
	defaultBudgetPercent  = 10
	defaultRateWindow     = 10 * time.Second
	defaultMinDelay       = time.Millisecond
	defaultWarmupRequests = 20
	defaultWarmupDelay    = 10 * time.Millisecond
	defaultWindow         = 30 * time.Second
	defaultMaxHedges      = 2
	defaultMaxBodyBytes   = 1 << 20
)

// HedgeConfig says when calls are hedged. The zero value is on, with the defaults named at the fields.
//
// In [EndpointConfig] a zero field inherits from [Config].Hedge, but Disabled is taken as it stands. So an endpoint
// cannot go back to the default where Config.Hedge sets Signal, EstimatedRPS, MaxDelay or Accept.
type HedgeConfig struct {
	// Disabled turns hedging off; default false. Latencies are learned all the same.
	Disabled bool
	// Quantile of the latency of primaries is the earliest hedge delay; in (0, 1); zero: 0.90. The learned delay is the
	// smallest one at or above it at which the hedges asked for fit BudgetPercent. Above 0.9 that may be an earlier one: what
	// hedges cut off is not seen to its end. BudgetPercent is what bounds them.
	Quantile float64
	// BudgetPercent bounds the hedges of an endpoint to this share of its calls; in (0, 100]; zero: 10.
	BudgetPercent float64
	// EstimatedRPS pins the budget to a rate of calls per second: hedges are refilled by time instead of by call.
	// Zero: it follows the calls.
	EstimatedRPS float64
	// RateWindow is the window over which the rate of calls is observed; zero: 10s.
	RateWindow time.Duration
	// Delay fixes the hedge delay, floored at MinDelay and not capped by MaxDelay; latencies are recorded all the
	// same. Zero: learned. Negative: learned, also where Config.Hedge fixes one. [Call].Delay overrides it.
	Delay time.Duration
	// MinDelay is the lower bound of every hedge delay; zero: 1ms.
	MinDelay time.Duration
	// MaxDelay is the upper bound of the learned delay, not below MinDelay; zero: none. It keeps an endpoint of which
	// more than BudgetPercent is slow from learning a delay that is slow as well.
	MaxDelay time.Duration
	// WarmupRequests is how many latencies the last one to two Windows must hold for a delay to be learned from them;
	// zero: 20. With fewer the last learned delay applies, else WarmupDelay. With more than 320, latencies from before a
	// change of the service are not dropped, but leave the window in time.
	WarmupRequests int
	// WarmupDelay is the hedge delay until one was learned; zero: 10ms.
	WarmupDelay time.Duration
	// Window is the rotation of the latencies: the delay is learned from the last one to two of it; zero: 30s.
	Window time.Duration
	// MaxHedges is how many hedges one call may have; zero: 2. Hedge n is sent at n times the delay from the start of
	// the call. A call asks eight times at most, so more than 8 have no further effect.
	MaxHedges int
	// MaxBodyBytes is the greatest length of a request body that is sent again; zero: 1 MiB. A request with a
	// longer body, or one of unknown length, is not hedged.
	MaxBodyBytes int64
	// Signal is what completes an attempt; zero: [SignalHeaders].
	Signal Signal
	// Accept reports whether a response may win while another attempt of its call is in flight; nil: the default,
	// status < 500 and none of 401, 402, 408, 429. It must not read or close the body, and may run concurrently. A
	// panic in it surfaces in the goroutine that called RoundTrip.
	Accept func(*http.Response) bool
}

// A Signal is what completes an attempt in a race.
type Signal int

const (
	// SignalHeaders completes an attempt with its response headers.
	SignalHeaders Signal = iota
	// SignalFirstByte completes an attempt with the first byte, or the end, of its response body: the race is for the
	// time to the first token, also when a server flushes its headers early. RoundTrip returns with that byte still
	// to be read. A body that fails before its first byte loses the race.
	SignalFirstByte
)

// String returns headers or first_byte.
func (s Signal) String() string { return enumName("Signal", int(s), "headers", "first_byte") }

// MarshalText returns what String returns.
func (s Signal) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// validate returns what is wrong with c, whose path in the configuration is given.
func (c HedgeConfig) validate(path string) []error {
	f := faults{path: path}
	f.check("Quantile", c.Quantile, c.Quantile == 0 || c.Quantile > 0 && c.Quantile < 1, "is not in (0, 1)")
	f.check("BudgetPercent", c.BudgetPercent, c.BudgetPercent == 0 || c.BudgetPercent > 0 && c.BudgetPercent <= 100,
		"is not in (0, 100]")
	f.check("EstimatedRPS", c.EstimatedRPS, c.EstimatedRPS >= 0 && !math.IsInf(c.EstimatedRPS, 1), "is not in [0, +Inf)")
	f.notNegative("RateWindow", c.RateWindow)
	f.notNegative("MinDelay", c.MinDelay)
	f.notNegative("MaxDelay", c.MaxDelay)
	f.check("WarmupRequests", c.WarmupRequests, c.WarmupRequests >= 0, "must not be negative")
	f.notNegative("WarmupDelay", c.WarmupDelay)
	f.notNegative("Window", c.Window)
	f.check("MaxHedges", c.MaxHedges, c.MaxHedges >= 0, "must not be negative")
	f.check("MaxBodyBytes", c.MaxBodyBytes, c.MaxBodyBytes >= 0, "must not be negative")
	f.check("Signal", c.Signal, c.Signal == SignalHeaders || c.Signal == SignalFirstByte, "is not a signal")
	return f.errs
}

// validateMerged returns what is wrong between the fields of c, which has its defaults.
func (c HedgeConfig) validateMerged(path string) []error {
	f := faults{path: path}
	f.check("MaxDelay", c.MaxDelay, c.MaxDelay <= 0 || c.MaxDelay >= c.MinDelay,
		"must not be below MinDelay, "+c.MinDelay.String())
	return f.errs
}

// inherit returns c with its zero fields taken from base, but for Disabled.
func (c HedgeConfig) inherit(base HedgeConfig) HedgeConfig {
	setDefault(&c.Quantile, base.Quantile)
	setDefault(&c.BudgetPercent, base.BudgetPercent)
	setDefault(&c.EstimatedRPS, base.EstimatedRPS)
	setDefault(&c.RateWindow, base.RateWindow)
	setDefault(&c.Delay, base.Delay)
	setDefault(&c.MinDelay, base.MinDelay)
	setDefault(&c.MaxDelay, base.MaxDelay)
	setDefault(&c.WarmupRequests, base.WarmupRequests)
	setDefault(&c.WarmupDelay, base.WarmupDelay)
	setDefault(&c.Window, base.Window)
	setDefault(&c.MaxHedges, base.MaxHedges)
	setDefault(&c.MaxBodyBytes, base.MaxBodyBytes)
	setDefault(&c.Signal, base.Signal)
	if c.Accept == nil {
		c.Accept = base.Accept
	}
	return c
}

// withDefaults returns c with the defaults in place of its zero fields.
func (c HedgeConfig) withDefaults() HedgeConfig {
	return c.inherit(HedgeConfig{
		Quantile:       defaultQuantile,
		BudgetPercent:  defaultBudgetPercent,
		RateWindow:     defaultRateWindow,
		MinDelay:       defaultMinDelay,
		WarmupRequests: defaultWarmupRequests,
		WarmupDelay:    defaultWarmupDelay,
		Window:         defaultWindow,
		MaxHedges:      defaultMaxHedges,
		MaxBodyBytes:   defaultMaxBodyBytes,
		Accept:         defaultAccept,
	})
}

// defaultAccept refuses the responses that another attempt may well improve on.
func defaultAccept(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	}
	return resp.StatusCode < 500
}

// gate returns why the call cannot be hedged, and whether it cannot. The gates that may change their mind while it runs
// are asked when a hedge is due: see [hedging.ask].
func (c *call) gate() (SkipReason, bool) {
	h := c.ep.hedge
	if h.Disabled || c.noHedge || c.t.hedgingOff.Load() {
		return SkipDisabled, true
	}
	if reason, unfit := c.unfit(); unfit {
		return reason, true
	}
	if deadline, ok := c.ctx.Deadline(); ok && deadline.Sub(c.start) <= c.delay {
		return SkipDeadline, true
	}
	return 0, false
}

// unfit returns why the call can never be hedged, and whether it cannot.
func (c *call) unfit() (SkipReason, bool) {
	switch {
	case !c.replayable():
		return SkipMethod, true
	case !replayableBody(c.req, c.ep.hedge.MaxBodyBytes):
		return SkipBody, true
	case c.req.Method == http.MethodConnect || len(c.req.Trailer) > 0 || asksUpgrade(c.req.Header):
		return SkipUpgrade, true
	}
	return 0, false
}

// replayable reports whether the call may be sent more than once.
func (c *call) replayable() bool { return c.declared || replayableRequest(c.req) }

// replayableRequest is the rule of net/http's own retries: the documentation of [http.Transport].
func replayableRequest(req *http.Request) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return hasKey(req.Header, "Idempotency-Key") || hasKey(req.Header, "X-Idempotency-Key")
}

// hasKey reports whether h has key, whatever its values: net/http takes an empty list of values as a sign as well.
func hasKey(h http.Header, key string) bool {
	_, ok := h[key]
	return ok
}

// replayableBody reports whether the body of req, if it has one, can be had again and is known to be small enough. A
// body of length 0 is one of unknown length: see [http.Request].ContentLength.
func replayableBody(req *http.Request, limit int64) bool {
	if req.Body == nil || req.Body == http.NoBody {
		return true
	}
	return req.GetBody != nil && req.ContentLength > 0 && req.ContentLength <= limit
}

// asksUpgrade reports whether the response to a request with header h may take over the connection. The field is found
// in any spelling, because HTTP/1.1 sends the one that the map has.
func asksUpgrade(h http.Header) bool {
	for k := range h {
		if len(k) == len("Upgrade") && strings.EqualFold(k, "Upgrade") {
			return true
		}
	}
	for _, v := range h["Connection"] {
		if strings.Contains(strings.ToLower(v), "upgrade") {
			return true
		}
	}
	return false
}

// A hedging is one ask of a race for a hedge.
type hedging struct {
	race   *race
	number int32

	attempt *attempt  // what came of it; nil: refused
	trial   admission // by the circuits
	charged bool      // the budget was
	refused bool
	reason  SkipReason // if refused
	made    bool       // make has returned
}

// make asks the gates, and makes the hedge if they agree. While it runs RoundTrip does not return, because the hedge is
// made of the caller's request.
func (h *hedging) make() {
	if h.reason, h.refused = h.ask(time.Now()); h.refused {
		return
	}
	r := h.race
	a := &attempt{ep: r.ep, hedge: true, trial: h.trial.held()}
	a.number.Store(h.number)
	r.begin(a)
	defer func() {
		if h.attempt == nil {
			a.cancel(nil)
		}
	}()
	req := r.req.Clone(a)
	if hasBody(req) {
		gets := r.primary.reqBody.gets
		if !takeTurn(gets) {
			h.reason, h.refused = SkipBody, true // one can be done without
			return
		}
		defer func() { <-gets }()
		body, err := r.anotherBody(r.req.GetBody, nil)
		if err != nil || body == nil {
			h.reason, h.refused = SkipBody, true
			return
		}
		req.Body = body
	}
	a.own(req)
	if a.reqBody != nil {
		a.reqBody.gets = r.primary.reqBody.gets
		r.enter(a)
	}
	a.announce = h.announce
	h.attempt = a
}

// ask asks the gates that may change their mind while a call runs: whether one of them refuses, and why.
func (h *hedging) ask(now time.Time) (SkipReason, bool) {
	r := h.race
	switch {
	case r.t.hedgingOff.Load():
		return SkipDisabled, true
	case r.ep.host.pushback.active(now):
		return SkipPushback, true
	}
	var admitted bool
	if h.trial, admitted = admitBoth(now, r.ep.host.circuit, r.ep.circuit); !admitted {
		return SkipCircuit, true
	}
	if h.charged = r.ep.budget.take(now); !h.charged {
		return SkipBudget, true
	}
	return 0, false
}

// announce tells the hooks of a hedge that is sent.
func (h *hedging) announce(id Attempt) {
	e := HedgeEvent{
		Endpoint: h.race.ep.key.Name, Host: h.race.ep.key.Host,
		Method: h.attempt.req.Method, Attempt: id, Delay: h.race.delay,
	}
	setDefault(&e.Method, http.MethodGet)
	h.race.t.hooks.hedgeFired(h.race.ctx, e)
}

// giveBack undoes what was granted to a hedge that is not sent.
func (h *hedging) giveBack() {
	h.race.freeTrial(h.trial.held())
	if h.charged {
		h.race.ep.budget.refund(time.Now())
	}
	if h.attempt != nil {
		h.attempt.cancel(nil)
		closeRequest(h.attempt.req) // it was not read
	}
}

// rescue, deferred, ends a hedging whose GetBody has panicked or ended the goroutine. A panic surfaces in the caller's.
func (h *hedging) rescue(made chan struct{}) {
	if h.made {
		return
	}
	v := recover()
	h.race.mu.Lock()
	h.race.contest.starting = nil
	h.race.mu.Unlock()
	close(made)
	h.giveBack()
	if v != nil {
		h.race.fail(v)
	}
}
