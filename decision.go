package hedgerow

import (
	"net/http"
	"time"
)

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
	gone := r.gone()
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

// supersedeRest supersedes the attempts that were still in flight when the race was decided. Their places in the circuits
// are given back now: a base that ignores contexts may keep them for long.
func (r *race) supersedeRest() {
	if r.contest == nil {
		return
	}
	for _, a := range r.contest.rest {
		r.free(a)
		a.supersede()
	}
}

// lose disposes of an attempt whose outcome came after the decision. It says nothing of the host but what a response
// asks for.
func (r *race) lose(a *attempt) {
	a.delivered = true
	r.free(a)
	if a.resp != nil && !a.unsent() {
		r.ep.host.pushback.note(r.at(a.ended), a.resp)
	}
	defer func() {
		if a == &r.primary && !r.t.detach && a.resp != nil {
			go a.discard() // off the caller's path
		} else {
			a.discard()
		}
	}()
	if a.hedge && !a.placed && !a.unsent() {
		r.countLate(a)
	}
	r.attemptDone(a, false, r.winner != nil && r.winner.acceptable) // else it was cut by its caller
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
		r.supersedeRest()
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
		if !r.held && !r.waits() {
			r.bookGone()
		}
		r.supersedeRest()
	} else {
		<-c.decided // it is being booked
	}
}

// bookGone enters a primary that runs on although the caller has given up, which a deadline makes a failure.
func (r *race) bookGone() {
	if _, deadline := callerGone(r.ctx, r.stopped); deadline {
		now := time.Now()
		r.primary.trial.take() // it keeps its places
		r.report(r.ep.host.circuit.record(now, true), r.ep.circuit.record(now, true))
	}
}

// stop ends the timer of a race that is over, and waits for a hedge that is being made, and for a GetBody that the base of a
// loser has called. What was in flight at the decision calls none any more.
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
	if b := r.primary.reqBody; b != nil {
		b.gets <- struct{}{}
		<-b.gets
	}
}

// conclude returns the outcome of a race that is over.
func (r *race) conclude() (*http.Response, error) {
	if r.contest != nil && r.contest.panicked != nil {
		panic(r.contest.panicked)
	}
	w := r.winner
	r.endBodies()
	r.learnFrom(w)
	if r.held && w != &r.primary {
		r.attemptDone(&r.primary, false, false)
		r.primary.discarded = true
		go r.primary.discard() // off the caller's path
	}
	info := CallInfo{Attempts: r.attempts(), Delay: r.delay}
	if w == nil {
		err := goneError(r.ctx)
		r.finish(time.Now(), nil, err, info)
		return nil, err
	}
	info.Winner = w.who()
	ended := r.at(w.ended)
	switch {
	case r.contest == nil || !r.contest.hedged:
	case w.err != nil && r.gone(): // nobody has won
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

// endBodies ends those of all that have lost: a base may go on reading after an early answer, and the bytes are the caller's when
// RoundTrip has returned.
func (r *race) endBodies() {
	if r.contest == nil {
		return
	}
	r.mu.Lock()
	bodies := r.bodies
	r.mu.Unlock()
	for _, b := range bodies {
		if r.winner == nil || b != r.winner.reqBody {
			b.end()
		}
	}
}

// attempts returns how many attempts were sent, of a race that is over.
func (r *race) attempts() int {
	f := r.shared.Load()
	n := f.count()
	if _, entered := f.of(&r.primary); !entered {
		if !r.ep.pooled.Load() || r.primary.placed || r.held || r.winner == &r.primary {
			n++
		}
	}
	if r.contest == nil {
		return n
	}
	for _, h := range r.contest.hedges {
		if _, entered := f.of(h); h.placed && !entered {
			n++
		}
	}
	return n
}

// learnFrom takes in the latency of the primary: the time it took, or, if a hedge was faster, that it would have taken
// longer.
func (r *race) learnFrom(w *attempt) {
	switch {
	case w == nil:
	case w == &r.primary && w.acceptable:
		r.learn(w)
	case w != &r.primary && !r.held:
		if began, inFlight := r.primarySent(); inFlight {
			r.ep.delays.censored(r.at(w.ended), w.ended-began)
		}
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
	r.supersedeRest()
	r.stop()
	r.endBodies()
	r.free(&r.primary)
	if !r.t.detach {
		closeRequest(r.primary.req) // the base may have left it open
	}
	if !r.primary.discarded && (r.held || !r.t.detach || r.winner == &r.primary) {
		go r.primary.discard()
	}
	if r.winner != nil && r.winner != &r.primary {
		go r.winner.discard()
	}
	r.finishAbandoned(r.attempts())
}
