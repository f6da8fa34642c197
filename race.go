package hedgerow

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// maxAsks is how often a call may ask for a hedge, granted or refused.
const maxAsks = 8

// A race is a call that can be hedged, from its first send to its outcome.
//
// The primary runs in the caller's goroutine, or with [Config].Detach in one of its own. A timer starts the hedges, each
// in the goroutine that the timer gives it. Whoever runs an attempt delivers its outcome by arrive, under the mutex,
// which decides the race once: by the first acceptable outcome, by the last attempt in flight to fail, by the caller
// who gives up, or by a policy function that panics. Then the attempts still in flight are superseded; each goroutine
// disposes of what it gets, and the caller's waits for none of them.
type race struct {
	call

	primary attempt
	sent    http.Request           // the primary's
	shared  atomic.Pointer[flight] // nil: no attempt has reached a pool

	mu      sync.Mutex  // guards the fields below
	timer   *time.Timer // of the next hedge
	winner  *attempt    // once over: whose outcome is returned; nil if nobody's
	contest *contest    // nil: the primary is alone
	bodies  []*sentBody // of the requests
	path    string      // see identity; does not change
	over    atomic.Bool // decided: nothing starts any more, and what arrives has lost; may be read without mu
	running int8        // attempts in flight
	asks    int8        // hedges asked for
	sends   int8        // hedges sent, or on their way to a pool that may send them
	held    bool        // the primary has failed and waits for the hedges in flight
}

// A contest is what a race has besides once the primary is not alone any more, or runs in a goroutine of its own. It is
// guarded by the mutex of the race.
type contest struct {
	hedges   []*attempt    // granted
	rest     []*attempt    // once over: those that were in flight at the decision
	starting chan struct{} // not nil: a hedge is being made of the caller's request; closed when that is over
	hedged   bool          // a hedge was counted
	decided  chan struct{} // closed when the decision is booked; never, if the caller made it by giving up
	panicked any           // once over: what a policy function panicked with outside of the caller's goroutine
	skipped  [skipReasons]bool
}

func newRace(c *call) *race {
	c.countWarming()
	r := &race{call: *c, running: 1}
	id := identify(c.req)
	r.method, r.path = id.method, id.path
	a := &r.primary
	a.ep, a.trial = c.ep, c.trial
	r.begin(a)
	if c.t.shares && !c.t.detach {
		r.sent = *c.req.WithContext(a)
	} else {
		cloneInto(&r.sent, c.req, a) // the base may change it, or with Detach read it when RoundTrip has returned
	}
	a.own(&r.sent)
	if a.reqBody != nil {
		r.enter(a)
	}
	return r
}

func (r *race) identity() identity { return identity{r.method, r.path} }

// cloneInto is [http.Request.Clone] without an allocation for the request.
func cloneInto(dst, req *http.Request, ctx context.Context) { //nolint:revive // dst first, as in copy
	if req.Form != nil || req.PostForm != nil || req.MultipartForm != nil || req.Pattern != "" {
		*dst = *req.Clone(ctx) // a server's
		return
	}
	*dst = *req.WithContext(ctx)
	u := *req.URL
	if u.User != nil {
		user := *u.User
		u.User = &user
	}
	dst.URL = &u
	dst.Header, dst.Trailer = req.Header.Clone(), req.Trailer.Clone()
	dst.TransferEncoding = slices.Clone(req.TransferEncoding)
}

// begin gives an attempt its context, and the way to the race.
func (r *race) begin(a *attempt) {
	a.carrier, a.declared = r, r.declared
	a.begin(r.ctx)
}

// run is the race as the caller sees it.
func (r *race) run() (*http.Response, error) {
	defer r.leave()
	r.mu.Lock()
	r.timer = time.AfterFunc(r.delay, r.fire)
	if r.t.detach {
		r.contestLocked()
	}
	r.mu.Unlock()

	if r.t.detach {
		go r.runAttempt(&r.primary, func() {})
	} else {
		r.primary.run(r.t.base)
		r.arrive(&r.primary)
	}
	r.await()
	return r.conclude()
}

// contestLocked returns the contest, and makes it if need be. mu must be held.
func (r *race) contestLocked() *contest {
	if r.contest == nil {
		r.contest = &contest{decided: make(chan struct{})}
	}
	return r.contest
}

// fire runs when a hedge is due, in a goroutine of its own, which becomes the hedge's.
func (r *race) fire() {
	r.mu.Lock()
	if r.gone() || r.over.Load() || r.waits() {
		r.mu.Unlock() // a primary that waits for a resource sets the timer when it is sent
		return
	}
	if time.Since(r.start) < r.dueLocked() { // it was sent just now
		r.setTimerLocked()
		r.mu.Unlock()
		return
	}
	r.asks++
	made := make(chan struct{})
	c := r.contestLocked()
	c.starting = made
	h := hedging{race: r, number: int32(len(c.hedges) + 1)} //nolint:gosec // at most maxAsks
	if f := r.shared.Load(); f != nil {
		h.number = f.upcoming()
	}
	r.mu.Unlock()

	defer h.rescue(made)
	h.make()

	r.mu.Lock()
	c.starting = nil
	over := r.over.Load()
	sent := h.attempt != nil && !over
	if sent {
		r.startLocked(h.attempt)
	}
	refused := h.refused && !over && !c.skipped[h.reason]
	if refused {
		c.skipped[h.reason] = true
	}
	r.setTimerLocked()
	r.mu.Unlock()
	h.made = true
	close(made)

	report := func() { r.report(h.trial.hostMoves, h.trial.endpointMoves) }
	if sent {
		r.runAttempt(h.attempt, report)
		return
	}
	h.giveBack()
	report()
	if refused {
		r.skip(h.reason)
	}
}

// dueLocked returns when the next hedge is due, from the start of the call. mu must be held.
func (r *race) dueLocked() time.Duration {
	var clock time.Duration
	if f := r.shared.Load(); f != nil {
		clock = f.clock
	}
	if n := time.Duration(r.asks + 1); r.delay > (math.MaxInt64-clock)/n {
		return math.MaxInt64 // never
	}
	return clock + time.Duration(r.asks+1)*r.delay
}

// setTimerLocked sets the timer to when the next hedge is due, if the call may have one and none is being made. mu must
// be held.
func (r *race) setTimerLocked() {
	making := r.contest != nil && r.contest.starting != nil // which sets the timer when it is over
	if !r.over.Load() && !making && int(r.sends) < r.ep.hedge.MaxHedges && r.asks < maxAsks {
		r.timer.Reset(time.Until(r.at(r.dueLocked())))
	}
}

// enter makes the request body of an attempt one of the race's. The turn to call GetBody must be held, unless it is the first.
func (r *race) enter(a *attempt) {
	a.reqBody.beside = r.anotherBody
	others := r.copies()
	for _, c := range a.reqBody.all() {
		c.second = slices.ContainsFunc(others, func(o *requestBody) bool { return sameBody(o.rc, c.rc) })
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bodies = append(r.bodies, a.reqBody)
}

// anotherBody calls get for a hedge, or for an attempt that has sent the copies in own. If there is but one reader, it would be
// rewound in the middle of what another attempt sends; an endpoint that is known for that gets none beside an upload.
func (r *race) anotherBody(get getBody, own []*requestBody) (io.ReadCloser, error) {
	others := slices.DeleteFunc(r.copies(), func(c *requestBody) bool { return slices.Contains(own, c) })
	if r.ep.rewinds.Load() && slices.ContainsFunc(others, (*requestBody).sending) {
		return nil, errBodyShared
	}
	body, err := bodyFrom(get, own, others)
	if errors.Is(err, errBodyShared) || slices.ContainsFunc(others, (*requestBody).robbed) {
		r.ep.rewinds.Store(true)
	}
	return body, err
}

// copies returns the request bodies of the attempts so far.
func (r *race) copies() (all []*requestBody) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.bodies {
		all = append(all, b.all()...)
	}
	return all
}

// startLocked puts a hedge in flight. With a pool beneath it counts when the pool has a resource for it. mu must be held.
func (r *race) startLocked(a *attempt) {
	r.running++
	r.contest.hedges = append(r.contest.hedges, a)
	r.sends++
	if !r.ep.pooled.Load() {
		r.countHedgeLocked(a)
	}
	a.began = time.Since(r.start)
}

// countHedgeLocked counts a hedge that is sent, once, and reports whether it was the time. mu must be held.
func (r *race) countHedgeLocked(a *attempt) bool {
	if a.placed {
		return false
	}
	a.placed = true
	if !r.contest.hedged {
		r.contest.hedged = true
		r.count(countHedged)
	}
	r.count(countHedges)
	return true
}

// runAttempt makes an attempt in a goroutine of its own. first is called before, and may end the goroutine.
func (r *race) runAttempt(a *attempt, first func()) {
	sent := false
	defer func() {
		if a.delivered {
			return
		}
		switch v := recover(); {
		case v == nil: // the goroutine is ending
			r.dispose(a)
			a.err = errGoexit
		case sent || !a.hedge || r.policyPanicked(a):
			// A policy function, or the base in the primary: without the race it would have been in the caller's goroutine.
			r.dispose(a)
			r.free(a)
			r.fail(v)
			return
		default:
			r.dispose(a)
			_, pooled := r.shared.Load().of(a)
			a.err = panicError(v, pooled)
		}
		r.arrive(a)
	}()
	first()
	if a.placed {
		a.announce(a.id()) // else when the pool has a resource for it
	}
	if a.hedge && r.over.Load() { // meanwhile
		closeRequest(a.req)
		a.err = ErrSuperseded
		if !a.placed { // and nobody has heard of it
			a.delivered = true
			a.cancel(ErrSuperseded)
			r.free(a)
			r.ep.budget.refund(time.Now())
			return
		}
	} else {
		a.run(r.t.base)
	}
	sent = true
	r.arrive(a)
}

// dispose ends what an attempt holds that did not come to its end.
func (r *race) dispose(a *attempt) {
	a.discard()
	a.resp = nil
	closeRequest(a.req) // the base may have left it open
}

// closeRequest closes the body of a request.
func closeRequest(req *http.Request) {
	if req.Body != nil {
		closeQuietly(req.Body)
	}
}

// arrive delivers the outcome of an attempt, in the goroutine that made it.
func (r *race) arrive(a *attempt) {
	a.ended = time.Since(r.start)
	if n, entered := r.shared.Load().of(a); entered {
		r.hear(a, n)
		switch {
		case n.unplaced && a.resp == nil:
			r.unplace(a)
			return
		case a.beside() && !a.unsent():
			r.bypassed(a)
			if !a.hedge || a.placed {
				r.shared.Load().answered()
			}
		}
	} else {
		r.bypassed(a)
	}
	if r.over.Load() {
		r.lose(a)
		return
	}
	r.judge(a)
	if a.acceptable && r.ep.hedge.Signal == SignalFirstByte {
		a.breaks(a.firstByte())
		a.ended = time.Since(r.start)
	}

	r.mu.Lock()
	late := r.over.Load()
	if !late {
		r.arriveLocked(a)
	}
	decides := r.over.Load() && !late
	kept := a == r.winner || a == &r.primary
	c := r.contest
	r.mu.Unlock()

	if late {
		r.lose(a)
		return
	}
	if !kept {
		defer a.discard() // after the caller was told, and whatever the hooks do
	}
	if decides && c != nil {
		defer close(c.decided)
		r.supersedeRest()
	}
	r.book(a)
	if !kept {
		r.attemptDone(a, false, false)
	}
}
