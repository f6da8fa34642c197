package hedgerow

import (
	"context"
	"math"
	"slices"
	"time"

	"golang.org/x/time/rate"
)

// A member is one stay of a resource in the pool: removing and adding an ID again makes a new one. All its fields are
// guarded by the pool's mutex.
//
// Attempts are ordered by the pool's sequence number. A cooldown counts, and so moves on in the table, only if its
// attempt was acquired after the last one that counted: one burst is one step. Failures in a row are counted likewise,
// and an OK clears only what is older than its attempt.
type member struct {
	*spec

	// What every pick looks at stands together, for the sake of the processor's cache.
	disabled bool
	cooling  bool // as stored: it ends at until, which is noticed at the next pick
	probing  bool // recovering: one attempt at a time
	gone     bool
	tier     int                   // of the spec
	limit    int                   // MaxInFlight of the spec
	limiter  *rate.Limiter         // nil: no limit
	scopes   map[string]*scopeRest // nil: there were none
	slots    []*slot               // the attempts that hold one
	used     uint64                // seq of the latest acquisition; 0: never
	lags     []time.Time           // each attempt that has lost a race counts as one more in flight until then
	rest     time.Time             // after transport failures, a preference only

	byAdmin bool      // disabled by the admin, so never probed
	probeAt time.Time // disabled by a verdict: when a probe is let through; zero: never
	until   time.Time
	ended   time.Time // when the latest cooldown ended by itself
	cool    escalation
	reason  string // of the last cooldown or disable
	probe   *slot  // the attempt that decides on recovery

	fail escalation // transport failures in a row

	candidate Candidate // as a Selector sees it, but for InFlight
	latency   float64   // moving average in ns
	latencyAt time.Time // of the latest sample

	attempts, successes, cooldowns, disables, siblings uint64
}

// An escalation counts bad outcomes in a row.
type escalation struct {
	count int
	seq   uint64 // attempts up to this one belong to the burst that was counted last
}

// step counts one more, unless the attempt belongs to the burst that was counted last. latest is the pool's seq.
func (e *escalation) step(attempt, latest uint64) {
	if attempt > e.seq {
		e.count++
		e.seq = latest
	}
}

// A scopeRest is the cooldown of a member for one scope key.
type scopeRest struct {
	until time.Time
	cool  escalation
}

// A slot is the place of one attempt on a member, from acquisition to the end of its response body.
type slot struct {
	m          *member
	spec       *spec // as it was at acquisition
	seq        uint64
	start      time.Time
	key        string // scope key
	replayable bool   // siblings may cancel it
	committed  bool   // it has its response: siblings leave it alone
	released   bool
	cancelled  bool   // by a sibling, before it had its response
	doomed     Action // not ActionDefault: a sibling has cancelled it, and by what
	cancel     context.CancelCauseFunc
}

func newMember(s *spec) *member {
	m := &member{limiter: s.newLimiter()}
	m.configure(s)
	return m
}

// configure gives the member its spec. mu must be held if the member is in a pool.
func (m *member) configure(s *spec) {
	m.spec, m.tier, m.limit = s, s.Tier, s.MaxInFlight
	m.candidate.ID, m.candidate.Group, m.candidate.Weight = s.ID, s.Group, s.Weight
}

// plain reports whether nothing keeps the member from carrying an attempt, as far as a glance can tell. mu must be held.
func (m *member) plain() bool {
	return !m.disabled && !m.cooling && !m.probing && m.limiter == nil && m.scopes == nil &&
		(m.limit == 0 || len(m.slots) < m.limit)
}

// state returns the state as of now.
func (m *member) state(now time.Time) ResourceState {
	switch {
	case m.disabled:
		return ResourceDisabled
	case m.cooling && m.until.After(now):
		return ResourceCooling
	}
	return ResourceHealthy
}

// inFlightLocked returns how many attempts count toward MaxInFlight: also those that drain on an earlier stay of the ID. mu
// must be held.
func (p *Pool) inFlightLocked(m *member) int {
	if len(p.drains) == 0 {
		return len(m.slots)
	}
	return len(m.slots) + p.drains[m.ID]
}

// fullLocked reports whether m is at its cap. mu must be held.
func (p *Pool) fullLocked(m *member) bool {
	return m.limit > 0 && p.inFlightLocked(m) >= m.limit
}

// recoverLocked notices the end of a cooldown. mu must be held.
func (p *Pool) recoverLocked(m *member, now time.Time) {
	if !m.cooling || m.until.After(now) {
		return
	}
	m.cooling = false
	m.ended, m.until = m.until, time.Time{}
	if m.disabled {
		return
	}
	m.probing, m.probe = p.cfg.ProbeOnRecovery, nil
	p.eventLocked(m, ResourceEvent{From: ResourceCooling, To: ResourceHealthy})
}

// releaseLocked gives the slot back, once. mu must be held.
func (p *Pool) releaseLocked(s *slot) {
	if s.released {
		return
	}
	s.released = true
	m := s.m
	wake := m.gone || p.fullLocked(m) // when m is gone, a later stay of the ID may have been full
	i := slices.Index(m.slots, s)
	m.slots[i] = m.slots[len(m.slots)-1]
	m.slots = m.slots[:len(m.slots)-1]
	if m.gone {
		if p.drains[m.ID]--; p.drains[m.ID] == 0 {
			delete(p.drains, m.ID)
		}
	}
	if s == m.probe {
		m.probe = nil // it ended without a verdict on the resource
		wake = true
	}
	if wake {
		p.changeLocked()
	}
}

// leaveLocked ends the stay of a member, whose attempts drain. mu must be held.
func (p *Pool) leaveLocked(m *member) {
	m.gone = true
	if n := len(m.slots); n > 0 {
		p.drains[m.ID] += n
	}
	bare := *m.spec // without the secrets
	bare.Credential, bare.Proxy = Credential{}, Proxy{}
	m.spec = &bare
}

// changeLocked wakes the waiters, who look again. mu must be held.
func (p *Pool) changeLocked() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// learnLocked takes in a latency of the member; atLeast says that it would have taken longer. mu must be held.
func (m *member) learnLocked(d time.Duration, atLeast bool, now time.Time) {
	old := m.latencyLocked(now)
	if atLeast && float64(d) <= old {
		return
	}
	if m.latencyAt.IsZero() {
		m.latency = float64(d)
	} else {
		m.latency = old + latencyWeight*(float64(d)-old)
	}
	m.latencyAt = now
}

// The moving average of a member's latency gives a new sample this weight, and loses half of itself in this time, so that
// a resource that was slow is tried again.
const (
	latencyWeight = 0.2
	latencyFades  = 10 * time.Second
)

// lagFactor says for how long a resource counts as busier after one of its attempts has lost a race: for so many times the
// age of that. The upstream goes on with what was cancelled, and else the slow one of several would be the first to be
// free again, and get the more calls the sooner they are hedged.
const lagFactor = 4

// lagLocked takes in that an attempt of that age has lost a race. mu must be held.
func (m *member) lagLocked(age time.Duration, now time.Time) {
	m.lags = slices.DeleteFunc(m.lags, func(end time.Time) bool { return !end.After(now) })
	if len(m.lags) < maxLags {
		m.lags = append(m.lags, now.Add(lagFactor*age))
	}
}

// maxLags bounds the lost attempts that one member remembers.
const maxLags = 64

// latencyLocked returns the moving average as of now. mu must be held.
func (m *member) latencyLocked(now time.Time) float64 {
	if m.latencyAt.IsZero() {
		return 0
	}
	return m.latency * math.Exp2(-float64(max(now.Sub(m.latencyAt), 0))/float64(latencyFades))
}

// latest returns the later of two times.
func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// earliest returns the earlier of two times.
func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
