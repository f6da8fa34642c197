package hedgerow

import "time"

// This is what a race hears from a pool beneath.

// flight returns what the attempts share with the pool, and makes it if need be.
func (r *race) flight() *flight {
	if f := r.shared.Load(); f != nil {
		return f
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shared.Load() == nil {
		f := new(flight)
		if r.contest != nil {
			f.next = int32(len(r.contest.hedges)) //nolint:gosec // at most maxAsks
		}
		r.shared.Store(f)
	}
	return r.shared.Load()
}

// sendBegun is told that an attempt is sent. The clock of the hedges starts with the primary: to wait for a resource is no
// slowness of the upstream.
func (r *race) sendBegun(a *attempt, now time.Time) {
	r.mu.Lock()
	if !a.hedge {
		r.clock = now.Sub(r.start)
		if r.asks == 0 {
			r.setTimerLocked()
		}
		r.mu.Unlock()
		return
	}
	r.countHedgeLocked(a)
	r.mu.Unlock()
	a.announce()
}

// sendEnded is told of a send that another one of its attempt follows.
func (r *race) sendEnded(e AttemptEvent) {
	e.Endpoint, e.Host = r.ep.key.Name, r.ep.key.Host
	r.t.hooks.attemptDone(r.ctx, e)
}

// waits reports whether the primary has reached a pool and waits for a resource.
func (r *race) waits() bool {
	f := r.shared.Load()
	if f == nil {
		return false
	}
	n, entered := f.of(&r.primary)
	return entered && n.sentAt.IsZero()
}

// primarySent returns when the primary was sent last, from the start of the call, and whether it was.
func (r *race) primarySent() (began time.Duration, sent bool) {
	f := r.shared.Load()
	if f == nil {
		return 0, true
	}
	n, entered := f.of(&r.primary)
	switch {
	case !entered:
		return 0, true
	case n.sentAt.IsZero():
		return 0, false
	}
	return n.sentAt.Sub(r.start), true
}

// policyPanicked reports whether a panic of the attempt came from a policy function of the pool.
func (r *race) policyPanicked(a *attempt) bool {
	f := r.shared.Load()
	if f == nil {
		return false
	}
	n, _ := f.of(a)
	return n.policy
}

// unplace takes back a hedge for which the pool had no resource. It counts nowhere.
func (r *race) unplace(a *attempt) {
	a.discard()
	r.mu.Lock()
	a.delivered = true
	r.running--
	r.sends--
	c := r.contest
	first := !r.over.Load() && !c.skipped[SkipNoResource]
	c.skipped[SkipNoResource] = true
	if !r.over.Load() && r.running == 0 { // the primary has failed meanwhile
		r.decideLocked(&r.primary)
		defer close(c.decided)
	}
	r.setTimerLocked()
	r.mu.Unlock()
	r.free(a)
	r.ep.budget.refund(time.Now())
	if first {
		r.skip(SkipNoResource)
	}
}
