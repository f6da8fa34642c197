package hedgerow

import (
	"context"
	"net/http"
	"slices"
	"time"
)

// A walk is one call on its way over the resources.
type walk struct {
	p     *Pool
	via   *pooled
	req   *http.Request   // the caller's
	ctx   context.Context //nolint:containedctx // a walk is what the context is of
	opts  Call
	above marked   // the attempt above; nil: there is none
	outer *attempt // it, if it is a Transport's; nil: it is a pool's, or there is none

	racing *attempt // the Transport's attempt, also above other pools; nil: there is none
	depth  int      // of the pool among those beneath it; 0: the outermost

	stopped    <-chan struct{} // the request's Cancel
	key        string          // scope key
	replayable bool            // may be sent more than once
	rewindable bool            // has no body, or one that can be had again
	ended      bool
	owes       bool // a token of the retry budget, if no further attempt begins

	waiting  time.Duration // what may still be waited for a resource
	attempts int           // begun
	tried    []*member
	room     [4]*member // for tried

	last      *try // the latest attempt that got a response, which is kept
	lastCode  int
	lastError error     // of the latest attempt
	sibling   bool      // lastError is what a sibling's verdict said
	now       *try      // the latest attempt
	body      *sentBody // of the latest attempt that was made; nil: it has none, or one that is left as it is
	sends     int       // attempts that were sent

	first     try
	firstSlot slot // its slot
}

// run is the walk: acquire, send, judge, and on to the next resource while that is safe and makes sense.
func (w *walk) run() (*http.Response, error) {
	defer w.leave()
	if err := w.open(); err != nil {
		return nil, w.refuse(err)
	}
	var acquired *slot
	var why refusal
	for {
		if gone, _ := callerGone(w.ctx, w.stopped); gone {
			return nil, w.gone()
		}
		if acquired, why = w.acquire(); acquired == nil {
			return w.stop(why)
		}
		a, earlier := w.begin(acquired), w.body
		if err := a.make(); err != nil {
			return w.stop(refusal{reason: ExhaustedAttempts})
		}
		w.owes = false // the repeat is made
		w.keep(earlier)
		earlier.end() // its bytes are the caller's when this attempt has won
		a.send()
		if done := w.judge(a); done {
			return w.hand(a)
		}
		if !w.mayRepeat(a) {
			if a.err != nil && !a.unsent() && !w.sibling && !w.replayable && !isDialError(a.err) {
				return w.uncertain() // an earlier refusal would say that nothing was done
			}
			return w.stop(refusal{reason: ExhaustedAttempts})
		}
	}
}

// open reads what the call wants. An error ends it before a resource is picked.
func (w *walk) open() error {
	w.stopped = w.req.Cancel //nolint:staticcheck // http.Client.Timeout closes it
	w.tried = w.room[:0]
	var opts *Call
	if w.above, opts = inherited(w.req); opts != nil {
		w.opts = *opts
	}
	if w.outer, _ = w.above.(*attempt); w.outer != nil {
		w.outer.enter()
	}
	if w.above != nil {
		w.racing, w.depth = w.above.race()
	}
	if err := checkLocal(w.req); err != nil {
		return err
	}
	if gone, _ := callerGone(w.ctx, w.stopped); gone {
		return goneError(w.ctx)
	}
	w.key = w.opts.ScopeKey
	if w.key == "" && w.p.cfg.ScopeOf != nil {
		w.policy(func() { w.key = w.p.cfg.ScopeOf(w.req) })
	}
	w.replayable = replayableRequest(w.req) || w.opts.Idempotent || w.above != nil && w.above.mayRepeat()
	w.rewindable = !hasBody(w.req) || w.req.GetBody != nil
	switch {
	case w.racing != nil && w.racing.hedge || w.opts.Wait < 0:
	case w.opts.Wait > 0:
		w.waiting = w.opts.Wait
	default:
		w.waiting = w.p.cfg.Wait
	}
	if w.p.retry != nil && !w.isHedge() {
		w.p.retry.deposit(time.Now())
	}
	return nil
}

// isHedge reports whether the call is a hedge that has not been sent yet, which takes no resource that its call uses. Beneath
// another pool a hedge counts as sent, so there it takes such a resource if there is no other.
func (w *walk) isHedge() bool { return w.outer != nil && w.outer.hedge }

// tell tells the Transport above something of the attempt.
func (w *walk) tell(change func(*note)) {
	if w.outer != nil {
		w.outer.tell(change)
	}
}

// uses tells the other attempts of the call what this one uses.
func (w *walk) uses(m *member) {
	if w.racing != nil && w.depth < len(w.racing.note.using) {
		w.racing.tell(func(n *note) { n.using[w.depth] = m })
	}
}

// policy runs a function of the user's that decides something. A panic passes through, and is one for the goroutine that
// called RoundTrip, also if this is another.
func (w *walk) policy(f func()) {
	done := false
	defer func() {
		if !done {
			w.tell(func(n *note) { n.policy = true })
		}
	}()
	f()
	done = true
}

// A refusal says why a call gets no further attempt.
type refusal struct {
	reason ExhaustedReason // zero: the caller has given up
	next   time.Time       // when the first resource is due; zero: not known
}

// acquire gets a slot for the next attempt. It waits as the call may, for a resource, or for the pause before the same
// resource is tried again. nil: there is none to be had.
func (w *walk) acquire() (*slot, refusal) {
	wish := wish{
		req: w.req, key: w.key, replayable: w.replayable && w.rewindable, repeatable: w.rewindable,
		tried: w.tried, hedge: w.isHedge(), beneath: w.depth > 0,
	}
	if w.racing != nil {
		wish.others = w.racing.others()
	}
	if w.attempts == 0 {
		wish.room = &w.firstSlot
		if !wish.hedge {
			wish.affinity = w.opts.Affinity
		}
	}
	wish.untried = w.attempts > 0 && w.p.cfg.RetryDelay > 0
	for {
		s, pl, changed := w.try(&wish)
		switch {
		case s != nil:
			return s, refusal{}
		case wish.untried && wish.hedge: // which does not wait
			return nil, refusal{reason: ExhaustedNoResource}
		case wish.untried: // a tried one may do, after a pause
			if w.mayPause(&wish) {
				if stop, refused := w.pause(); stop {
					return nil, refused
				}
			}
			wish.untried = false
		default:
			if stop, refused := w.wait(pl, changed); stop {
				return nil, refused
			}
		}
	}
}

// try picks once. Without a slot it returns what there is to wait for.
func (w *walk) try(wish *wish) (s *slot, pl plan, changed <-chan struct{}) {
	p := w.p
	told := false
	defer func() {
		if !told && s != nil { // a hook has ended the goroutine
			p.release(s)
		}
	}()
	defer func() { // not under the lock
		p.deliver()
		told = true
	}()
	w.policy(func() { // a Selector
		p.mu.Lock()
		defer p.mu.Unlock()
		now := time.Now()
		m := p.pickLocked(now, wish)
		if m == nil && p.cfg.ForceSoonest && !wish.untried {
			m = p.soonestLocked(now, wish)
		}
		if m != nil {
			s = p.takeLocked(m, now, wish)
			w.uses(m)
			return
		}
		if w.waiting > 0 && !wish.untried && wish.began.IsZero() {
			wish.began, wish.end = now, now.Add(w.waiting)
			if deadline, limited := w.ctx.Deadline(); limited {
				wish.end = earliest(wish.end, deadline)
			}
			wish.spread, wish.draw = p.cfg.RetryDelay, p.jitter()
		}
		pl = p.planLocked(now, wish)
		if w.waiting > 0 {
			if p.changed == nil {
				p.changed = make(chan struct{})
			}
			changed = p.changed
		}
	})
	return s, pl, changed
}

// mayPause reports whether a resource that was tried is eligible, so that a pause is what the call needs.
func (w *walk) mayPause(wish *wish) bool {
	p := w.p
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, m := range w.tried {
		if !m.gone && p.eligibleLocked(m, now, wish) {
			return true
		}
	}
	if p.cfg.ForceSoonest {
		m := p.soonestLocked(now, wish)
		return m != nil && slices.Contains(w.tried, m)
	}
	return false
}

// pause waits before the same resource is tried again. A pause that would not end before the deadline is not begun.
func (w *walk) pause() (stop bool, why refusal) {
	d := time.Duration(min(float64(w.p.cfg.RetryDelay)*(0.5+w.p.jitter()), 1<<62))
	if deadline, ok := w.ctx.Deadline(); ok && time.Until(deadline) <= d {
		return true, refusal{reason: ExhaustedDeadline}
	}
	w.keepMeanwhile()
	w.sleep(d, nil)
	gone, _ := callerGone(w.ctx, w.stopped)
	return gone, refusal{}
}

// wait waits until a resource may have become eligible.
func (w *walk) wait(pl plan, changed <-chan struct{}) (stop bool, why refusal) {
	now := time.Now()
	why = refusal{reason: ExhaustedNoResource}
	if !pl.event { // else another one may be had before, nobody knows when
		why.next = pl.due
	}
	if w.waiting <= 0 || pl.due.IsZero() && !pl.event {
		return true, why
	}
	end := now.Add(w.waiting)
	deadline, limited := w.ctx.Deadline()
	if !pl.event {
		switch {
		case limited && !pl.due.Before(deadline):
			why.reason = ExhaustedDeadline
			return true, why
		case !pl.due.Before(end):
			return true, why
		}
	}
	until := end
	if !pl.due.IsZero() {
		until = earliest(pl.due, end)
	}
	w.keepMeanwhile()
	w.sleep(until.Sub(now), changed)
	w.waiting -= time.Since(now)
	gone, _ := callerGone(w.ctx, w.stopped)
	return gone, refusal{}
}

// sleep waits for d, until the caller gives up, or until something changes.
func (w *walk) sleep(d time.Duration, changed <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-w.ctx.Done():
	case <-w.stopped:
	}
}

// mayRepeat reports whether another attempt may follow one that ended badly.
func (w *walk) mayRepeat(a *try) bool {
	if w.attempts >= w.maxAttempts() || !w.rewindable {
		return false
	}
	switch {
	case w.sibling, a.unsent():
		return true
	case a.resp != nil && a.verdict.Action != ActionRetry: // the server has refused before it acted
		return true
	case !w.replayable && !isDialError(a.err):
		return false
	case a.verdict.Action == ActionRetry && w.p.retry != nil:
		w.owes = w.p.retry.take(a.end)
		if !w.owes {
			w.p.count(func(t *poolTotals) { t.RetriesRefused++ })
		}
		return w.owes
	}
	return true
}

func (w *walk) maxAttempts() int {
	if w.p.cfg.MaxAttempts > 0 {
		return w.p.cfg.MaxAttempts
	}
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	return min(max(len(w.p.members), minMaxAttempts), maxMaxAttempts)
}

// leave ends a walk that a policy function, a base transport or a hook has ended by a panic or by ending the goroutine, if
// that is how it ended.
func (w *walk) leave() {
	if w.ended {
		return
	}
	if w.last != nil {
		w.last.drop()
	}
	if a := w.now; a == nil {
		w.closeBody()
	} else {
		a.release(nil)
		if a.resp != nil && a.resp.Body != nil {
			_ = a.body.Close()
		}
		if a.req.Body != nil {
			_ = a.req.Body.Close() // the base may have left it open
		}
	}
	if w.isHedge() && w.sends == 0 {
		return
	}
	w.finish(func(t *poolTotals) { t.CallsFailed++ })
}
