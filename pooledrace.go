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
			for _, h := range r.contest.hedges {
				if h.placed {
					f.next++
				}
			}
		}
		r.ep.markPooled()
		r.shared.Store(f)
	}
	return r.shared.Load()
}

// sending is asked before an attempt is sent. Once the race is over nothing is. The clock of the hedges starts with the
// primary's first send: to wait for a resource is no slowness of the upstream.
func (r *race) sending(a *attempt, now time.Time, pool, resource string) (Attempt, bool) {
	r.mu.Lock()
	if r.over.Load() {
		r.mu.Unlock()
		return Attempt{}, false
	}
	id, first, before := r.shared.Load().send(a, !a.hedge || a.placed, now, pool, resource)
	fires := first && a.hedge && r.countHedgeLocked(a)
	if first && !a.hedge {
		r.shared.Load().clock = now.Sub(r.start)
		r.setTimerLocked()
	}
	r.mu.Unlock()
	if before != nil {
		r.sendEnded(*before)
	}
	if fires {
		a.announce(id)
	}
	return id, true
}

// passes is told that a pool does not act on the call, which is then as without a pool.
func (r *race) passes(a *attempt) {
	r.mu.Lock()
	fires := a.hedge && !r.over.Load() && r.countHedgeLocked(a)
	if !a.hedge && !r.over.Load() {
		a.placed = true
	}
	r.mu.Unlock()
	if fires {
		a.announce(a.id())
	}
}

// bypassed is told that an attempt has ended of which the pool has sent nothing: something between has answered.
func (r *race) bypassed(a *attempt) {
	if !a.hedge {
		return
	}
	r.mu.Lock()
	fires := !r.over.Load() && r.countHedgeLocked(a)
	f := r.shared.Load()
	r.mu.Unlock()
	if !fires {
		return
	}
	if f != nil {
		a.number.Store(f.skip())
	}
	a.announce(a.id())
}

// countLate counts a hedge that has lost and has not reached the pool. Something between may have sent it: the budget bounds what is
// sent, so it keeps the token.
func (r *race) countLate(a *attempt) {
	r.count(countHedges)
	if f := r.shared.Load(); f != nil {
		a.number.Store(f.skip())
	}
	a.announce(a.id())
}

// waits reports whether the primary has reached a pool and waits for a resource.
func (r *race) waits() bool {
	n, entered := r.shared.Load().of(&r.primary)
	return entered && n.sentAt.IsZero()
}

// primarySent returns when the primary was sent last, from the start of the call, and whether that send is in flight.
func (r *race) primarySent() (began time.Duration, inFlight bool) {
	n, entered := r.shared.Load().of(&r.primary)
	switch {
	case !entered:
		return 0, true
	case n.sentAt.IsZero() || n.done != nil:
		return 0, false
	}
	return n.sentAt.Sub(r.start), true
}

// policyPanicked reports whether a panic of the attempt came from a policy function of the pool.
func (r *race) policyPanicked(a *attempt) bool {
	n, _ := r.shared.Load().of(a)
	return n.policy
}

// unplace takes back a hedge of which nothing was sent, usually because the pool had no resource for it. It counts
// nowhere.
func (r *race) unplace(a *attempt) {
	a.discard()
	gone := r.gone()
	r.mu.Lock()
	a.delivered = true
	skipped := false
	if !r.over.Load() {
		r.running--
		r.sends--
		c := r.contest
		skipped = !gone && !c.skipped[SkipNoResource]
		c.skipped[SkipNoResource] = true
		if r.running == 0 { // the primary has failed meanwhile
			r.decideLocked(&r.primary)
			defer close(c.decided)
		}
		r.setTimerLocked()
	}
	r.mu.Unlock()
	r.free(a)
	r.ep.budget.refund(time.Now())
	if skipped {
		r.skip(SkipNoResource)
	}
}
