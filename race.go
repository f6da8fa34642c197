package hedgerow

import (
	"net/http"
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
	sent    http.Request // the primary's, if it may share the caller's headers

	mu      sync.Mutex  // guards the fields below
	timer   *time.Timer // of the next hedge
	winner  *attempt    // once over: whose outcome is returned; nil if nobody's
	contest *contest    // nil: the primary is alone
	over    atomic.Bool // decided: nothing starts any more, and what arrives has lost; may be read without mu
	running int8        // attempts in flight
	asks    int8        // hedges asked for
	held    bool        // the primary has failed and waits for the hedges in flight
}

// A contest is what a race has besides once the primary is not alone any more, or runs in a goroutine of its own. It is
// guarded by the mutex of the race.
type contest struct {
	hedges   []*attempt    // sent
	rest     []*attempt    // once over: those that were in flight at the decision
	starting chan struct{} // not nil: a hedge is being made of the caller's request; closed when that is over
	decided  chan struct{} // closed when the decision is booked, unless the caller's goroutine made it
	panicked any           // once over: what a policy function panicked with outside of the caller's goroutine
	skipped  [skipReasons]bool
}

func newRace(c *call) *race {
	c.countWarming()
	r := &race{call: *c, running: 1}
	a := &r.primary
	a.ep, a.trial = c.ep, c.trial
	a.begin(c.ctx)
	if c.t.plain && !c.t.detach {
		r.sent = *c.req.WithContext(a)
		a.own(&r.sent)
	} else {
		a.own(c.req.Clone(a)) // the base may change it, or still read it after RoundTrip has returned
	}
	return r
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
		go r.runAttempt(&r.primary, nil)
	} else {
		r.primary.send(r.t.base)
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
	if gone, _ := callerGone(r.ctx, r.stopped); gone || r.over.Load() {
		r.mu.Unlock()
		return
	}
	r.asks++
	made := make(chan struct{})
	c := r.contestLocked()
	c.starting = made
	h := hedging{race: r, number: int32(len(c.hedges) + 1)} //nolint:gosec // at most maxAsks
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
	if !over && len(c.hedges) < r.ep.hedge.MaxHedges && r.asks < maxAsks {
		r.timer.Reset(time.Until(r.at(time.Duration(r.asks+1) * r.delay)))
	}
	r.mu.Unlock()
	h.made = true
	close(made)

	if sent {
		r.runAttempt(h.attempt, h.announce)
		return
	}
	h.giveBack()
	h.reportMoves()
	if refused {
		r.skip(h.reason)
	}
}

// startLocked puts a hedge in flight. mu must be held.
func (r *race) startLocked(a *attempt) {
	r.running++
	r.contest.hedges = append(r.contest.hedges, a)
	if len(r.contest.hedges) == 1 {
		r.count(countHedged)
	}
	r.count(countHedges)
	a.began = time.Since(r.start)
}

// runAttempt makes an attempt in a goroutine of its own, after it has announced it.
func (r *race) runAttempt(a *attempt, announce func()) {
	sent := false
	defer func() {
		if a.delivered {
			return
		}
		switch v := recover(); {
		case v == nil: // the goroutine is ending
			r.dispose(a)
			a.err = errGoexit
		case sent || !a.hedge:
			// A policy function, or the base in the primary: without us it were in the caller's goroutine.
			r.dispose(a)
			r.free(a)
			r.fail(v)
			return
		default:
			r.dispose(a)
			a.err = panicError(v)
		}
		r.arrive(a)
	}()
	if announce != nil {
		announce()
	}
	a.send(r.t.base)
	sent = true
	r.arrive(a)
}

// dispose ends what an attempt holds that did not come to its end.
func (r *race) dispose(a *attempt) {
	a.discard()
	a.resp = nil
	if a.req.Body != nil {
		_ = a.req.Body.Close() // the base may have left it open
	}
}

// arrive delivers the outcome of an attempt, in the goroutine that made it.
func (r *race) arrive(a *attempt) {
	a.ended = time.Since(r.start)
	if r.over.Load() {
		r.lose(a)
		return
	}
	r.judge(a)
	if a.acceptable && r.ep.hedge.Signal == SignalFirstByte {
		a.acceptable = a.firstByte() == nil
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
		c.supersedeRest()
	}
	r.book(a)
	if !kept {
		r.attemptDone(a, false, false)
	}
}

// arriveLocked decides the race if the outcome of an attempt does. mu must be held.
func (r *race) arriveLocked(a *attempt) {
	a.delivered = true
	r.running--
	if a.acceptable {
		r.decideLocked(a)
		return
	}
	waited := r.held // the call was in a wait of its own
	r.held = r.held || a == &r.primary
	gone, _ := callerGone(r.ctx, r.stopped)
	switch {
	case gone && waited:
		r.decideLocked(nil)
	case r.running == 0, gone && a == &r.primary: // all have failed, or will
		r.decideLocked(&r.primary)
	}
}

// decideLocked ends the race; winner is nil if nobody's outcome is returned. mu must be held.
func (r *race) decideLocked(winner *attempt) {
	r.winner = winner
	if c := r.contest; c != nil {
		if !r.primary.delivered {
			c.rest = append(c.rest, &r.primary)
		}
		for _, h := range c.hedges {
			if !h.delivered {
				c.rest = append(c.rest, h)
			}
		}
	}
	r.over.Store(true) // last: who sees it reads the rest without mu
}

// supersedeRest supersedes the attempts that were still in flight when the race was decided.
func (c *contest) supersedeRest() {
	for _, a := range c.rest {
		a.supersede()
	}
}

// lose disposes of an attempt whose outcome came after the decision. It says nothing of the host but what a response
// asks for.
func (r *race) lose(a *attempt) {
	a.delivered = true
	r.free(a)
	if a.resp != nil {
		r.ep.host.pushback.note(r.at(a.ended), a.resp)
	}
	defer func() {
		if a == &r.primary && !r.t.detach && a.resp != nil {
			go a.discard() // off the caller's path
		} else {
			a.discard()
		}
	}()
	r.attemptDone(a, false, true)
}

// fail decides the race by a panic that has to surface in the caller's goroutine.
func (r *race) fail(v any) {
	r.mu.Lock()
	first, c := !r.over.Load(), r.contest
	if first {
		r.decideLocked(nil)
		c.panicked = v
	}
	r.mu.Unlock()
	if first {
		c.supersedeRest()
		close(c.decided)
	}
}

// await waits in the caller's goroutine until the race is decided, at the latest until the caller gives up, and until no
// hedge is being made of the caller's request. Once the race is over, what mu guards is read without it: it does not
// change any more, but for starting.
func (r *race) await() {
	if r.over.Load() && r.contest == nil { // decided by the primary, alone
		r.timer.Stop()
		return
	}
	r.mu.Lock()
	c := r.contest
	r.mu.Unlock()
	select {
	case <-c.decided:
	case <-r.ctx.Done():
		r.giveUp()
	case <-r.stopped:
		r.giveUp()
	}
	r.stop()
}

// giveUp decides the race for the caller, who does not wait any longer.
func (r *race) giveUp() {
	r.mu.Lock()
	first, c := !r.over.Load(), r.contest
	if first {
		r.decideLocked(nil)
	}
	r.mu.Unlock()
	if first {
		c.supersedeRest()
	} else {
		<-c.decided // it is being booked
	}
}

// stop ends the timer of a race that is over, and waits for a hedge that is being made.
func (r *race) stop() {
	r.timer.Stop()
	if r.contest == nil {
		return
	}
	r.mu.Lock()
	starting := r.contest.starting
	r.mu.Unlock()
	if starting != nil {
		<-starting
	}
}

// conclude returns the outcome of a race that is over.
func (r *race) conclude() (*http.Response, error) {
	if r.contest != nil && r.contest.panicked != nil {
		panic(r.contest.panicked)
	}
	w := r.winner
	r.learnFrom(w)
	if r.held && w != &r.primary {
		r.attemptDone(&r.primary, false, false)
		go r.primary.discard() // off the caller's path
	}
	info := CallInfo{Attempts: 1 + r.hedges(), Delay: r.delay}
	if w == nil {
		if !r.held {
			r.bookGone()
		}
		err := goneError(r.ctx)
		r.finish(time.Now(), nil, err, info)
		return nil, err
	}
	info.Winner = w.id()
	ended := r.at(w.ended)
	switch {
	case r.hedges() == 0:
	case w == &r.primary:
		r.count(countPrimaryWins)
	default:
		r.count(countHedgeWins)
		ended = time.Now() // the primary had to come back
	}
	resp, err := w.hand(r.req, r.t.plain)
	r.attemptDone(w, true, false)
	r.finish(ended, resp, err, info)
	return resp, err
}

// hedges returns how many hedges were sent, of a race that is over.
func (r *race) hedges() int {
	if r.contest == nil {
		return 0
	}
	return len(r.contest.hedges)
}

// learnFrom takes in the latency of the primary: the time it took, or, if a hedge was faster, that it would have taken
// longer.
func (r *race) learnFrom(w *attempt) {
	switch {
	case w == nil:
	case w == &r.primary && w.acceptable:
		r.learn(w)
	case w != &r.primary && !r.held:
		r.ep.delays.censored(r.at(w.ended), w.ended)
	}
}

// leave ends a call whose base transport or policy function has panicked or ended the goroutine, if that is how it
// ended.
func (r *race) leave() {
	if r.closed {
		return
	}
	r.mu.Lock()
	if !r.over.Load() {
		r.decideLocked(nil)
	}
	r.mu.Unlock()
	r.stop()
	if r.contest != nil {
		r.contest.supersedeRest()
	}
	if !r.t.detach {
		r.free(&r.primary) // a detached one sees to it itself
	}
	if r.held || !r.t.detach || r.winner == &r.primary {
		go r.primary.discard()
	}
	if r.winner != nil && r.winner != &r.primary {
		go r.winner.discard()
	}
	r.finishAbandoned(1 + r.hedges())
}
