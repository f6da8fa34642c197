package hedgerow

import (
	"net/http"
	"sync"
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

	mu       sync.Mutex  // guards the fields below
	timer    *time.Timer // of the next hedge
	over     bool        // decided: nothing starts any more, and what arrives has lost
	winner   *attempt    // once over: whose outcome is returned; nil if nobody's
	panicked any         // once over: what a policy function panicked with outside of the caller's goroutine
	running  int         // attempts in flight
	asks     int         // hedges asked for
	hedges   []*attempt  // sent
	skipped  [skipReasons]bool
	starting chan struct{} // not nil: a hedge is being made of the caller's request; closed when that is over
	held     bool          // the primary has failed and waits for the hedges in flight
	rest     []*attempt    // once over: still in flight at the decision
	decided  chan struct{} // made when someone else than the primary can decide; closed when the decision is booked
}

func newRace(c *call) *race {
	c.countWarming()
	r := &race{call: *c, running: 1}
	a := &r.primary
	a.id = Attempt{Endpoint: c.ep.key.Name}
	a.start, a.trial = c.start, c.trial
	a.begin(c.ctx)
	if c.t.plain && !c.t.detach {
		r.sent = *c.req.WithContext(&a.ctx)
		a.own(&r.sent)
	} else {
		a.own(c.req.Clone(&a.ctx)) // the base may change it, or still read it after RoundTrip has returned
	}
	return r
}

// run is the race as the caller sees it.
func (r *race) run() (*http.Response, error) {
	defer r.leave()
	r.mu.Lock()
	r.timer = time.AfterFunc(r.delay, r.fire)
	if r.t.detach {
		r.decided = make(chan struct{})
	}
	r.mu.Unlock()

	if r.t.detach {
		go r.runAttempt(&r.primary, nil)
	} else {
		r.primary.send(r.t.base)
		r.arrive(&r.primary)
	}
	r.await()
	r.stop()
	return r.conclude()
}

// fire runs when a hedge is due, in a goroutine of its own, which becomes the hedge's.
func (r *race) fire() {
	r.mu.Lock()
	if gone, _ := callerGone(r.ctx, r.stopped); gone || r.over {
		r.mu.Unlock()
		return
	}
	r.asks++
	made := make(chan struct{})
	r.starting = made
	h := hedging{race: r, id: Attempt{Number: len(r.hedges) + 1, Kind: AttemptHedge, Endpoint: r.ep.key.Name}}
	r.mu.Unlock()

	defer h.rescue(made)
	h.make()

	r.mu.Lock()
	r.starting = nil
	sent := h.attempt != nil && !r.over
	if sent {
		r.startLocked(h.attempt)
	}
	refused := h.refused && !r.over && !r.skipped[h.reason]
	if refused {
		r.skipped[h.reason] = true
	}
	if !r.over && len(r.hedges) < r.ep.hedge.MaxHedges && r.asks < maxAsks {
		r.timer.Reset(time.Until(r.start.Add(time.Duration(r.asks+1) * r.delay)))
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
	r.hedges = append(r.hedges, a)
	if len(r.hedges) == 1 {
		r.count(countHedged)
	}
	r.count(countHedges)
	if r.decided == nil {
		r.decided = make(chan struct{})
	}
	a.start = time.Now()
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
		case sent || a.id.Number == 0:
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
	a.end = time.Now()
	if r.isOver() {
		r.lose(a)
		return
	}
	r.judge(a)
	if a.acceptable && r.ep.hedge.Signal == SignalFirstByte {
		a.acceptable = a.firstByte() == nil
		a.end = time.Now()
	}

	r.mu.Lock()
	late := r.over
	if !late {
		r.arriveLocked(a)
	}
	decides := r.over && !late
	kept := a == r.winner || a == &r.primary
	decided := r.decided
	r.mu.Unlock()

	if late {
		r.lose(a)
		return
	}
	if !kept {
		defer a.discard() // after the caller was told, and whatever the hooks do
	}
	if decides {
		if decided != nil {
			defer close(decided)
		}
		r.supersedeRest()
	}
	r.book(a)
	if !kept {
		r.done(a, false, false)
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

func (r *race) isOver() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over
}

// decideLocked ends the race; winner is nil if nobody's outcome is returned. mu must be held.
func (r *race) decideLocked(winner *attempt) {
	r.over = true
	r.winner = winner
	if !r.primary.delivered {
		r.rest = append(r.rest, &r.primary)
	}
	for _, h := range r.hedges {
		if !h.delivered {
			r.rest = append(r.rest, h)
		}
	}
}

// supersedeRest supersedes the attempts that were still in flight when the race was decided.
func (r *race) supersedeRest() {
	for _, a := range r.rest {
		a.supersede()
	}
}

// lose disposes of an attempt whose outcome came after the decision. It says nothing of the host but what a response
// asks for.
func (r *race) lose(a *attempt) {
	a.delivered = true
	r.free(a)
	if a.resp != nil {
		r.ep.host.pushback.note(a.end, a.resp)
	}
	defer func() {
		if a == &r.primary && !r.t.detach && a.resp != nil {
			go a.discard() // off the caller's path
		} else {
			a.discard()
		}
	}()
	r.done(a, false, true)
}

// fail decides the race by a panic that has to surface in the caller's goroutine.
func (r *race) fail(v any) {
	r.mu.Lock()
	first, decided := !r.over, r.decided
	if first {
		r.decideLocked(nil)
		r.panicked = v
	}
	r.mu.Unlock()
	if first {
		r.supersedeRest()
		if decided != nil {
			close(decided)
		}
	}
}

// await waits in the caller's goroutine until the race is decided, at the latest until the caller gives up.
func (r *race) await() {
	r.mu.Lock()
	decided := r.decided
	r.mu.Unlock()
	if decided == nil {
		return // by the primary alone
	}
	select {
	case <-decided:
		return
	case <-r.ctx.Done():
	case <-r.stopped:
	}
	r.mu.Lock()
	first := !r.over
	if first {
		r.decideLocked(nil)
	}
	r.mu.Unlock()
	if first {
		r.supersedeRest()
	} else {
		<-decided // it is being booked
	}
}

// stop ends the timer of a race that is over, and sees to it that no hedge is being made of the caller's request.
func (r *race) stop() {
	r.mu.Lock()
	starting := r.starting
	r.timer.Stop()
	r.mu.Unlock()
	if starting != nil {
		<-starting
	}
}

// conclude returns the outcome of a race that is over.
func (r *race) conclude() (*http.Response, error) {
	if r.panicked != nil {
		panic(r.panicked)
	}
	w := r.winner
	r.learn(w)
	if r.held && w != &r.primary {
		r.done(&r.primary, false, false)
		go r.primary.discard() // off the caller's path
	}
	info := CallInfo{Attempts: 1 + len(r.hedges), Delay: r.delay}
	if w == nil {
		if !r.held {
			r.bookGone()
		}
		err := goneError(r.ctx)
		r.finish(time.Now(), nil, err, info)
		return nil, err
	}
	info.Winner = w.id
	if len(r.hedges) > 0 {
		if w == &r.primary {
			r.count(countPrimaryWins)
		} else {
			r.count(countHedgeWins)
		}
	}
	resp, err := w.hand(r.req)
	r.done(w, true, false)
	now := w.end
	if w != &r.primary {
		now = time.Now() // the primary had to come back
	}
	r.finish(now, resp, err, info)
	return resp, err
}

// learn takes in the latency of the primary: the time it took, or, if a hedge was faster, that it would have taken
// longer.
func (r *race) learn(w *attempt) {
	switch {
	case w == nil:
	case w == &r.primary && w.acceptable:
		r.ep.delays.completed(w.end, w.end.Sub(w.start))
	case w != &r.primary && !r.held:
		r.ep.delays.censored(w.end, w.end.Sub(r.start))
	}
}

// leave ends a call whose base transport or policy function has panicked or ended the goroutine, if that is how it
// ended.
func (r *race) leave() {
	if r.ended {
		return
	}
	r.mu.Lock()
	if !r.over {
		r.decideLocked(nil)
	}
	r.mu.Unlock()
	r.stop()
	r.supersedeRest()
	if !r.t.detach {
		r.free(&r.primary) // a detached one sees to it itself
	}
	if r.held || !r.t.detach || r.winner == &r.primary {
		go r.primary.discard()
	}
	if r.winner != nil && r.winner != &r.primary {
		go r.winner.discard()
	}
	r.finishAbandoned(1 + len(r.hedges))
}
