package hedgerow

import (
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"
)

// A Strategy picks among the eligible resources of a [Pool].
type Strategy int

const (
	// RoundRobin picks the one with the fewest attempts in flight, of these the least recently used, then by pool order. An
	// attempt that a hedge on another resource has beaten counts as in flight for a while longer. As with LeastLatency, an
	// upstream that fails at once with a response is a favourite: see the example of [Pool.Report].
	RoundRobin Strategy = iota
	// PrimaryBackup picks the first in pool order.
	PrimaryBackup
	// Random picks any, each with the same probability.
	Random
	// Weighted picks any, in proportion to Weight.
	Weighted
	// LeastLatency picks the better of two random ones, by the moving average of the latency times the attempts in flight
	// and one (Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", IEEE TPDS 2001).
	LeastLatency
)

// String returns round_robin, primary_backup, random, weighted or least_latency.
func (s Strategy) String() string {
	return enumName("Strategy", int(s), "round_robin", "primary_backup", "random", "weighted", "least_latency")
}

// MarshalText returns what String returns.
func (s Strategy) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// A Candidate is an eligible resource as a [Selector] sees it.
type Candidate struct {
	// ID and Group are those of the resource.
	ID, Group string
	// Weight is the resource's, 1 if it has none.
	Weight float64
	// InFlight is how many attempts hold a slot, also those that drain on an earlier stay of the ID.
	InFlight int
	// LastUsed is when the latest attempt was started; zero: never.
	LastUsed time.Time
}

// A Selector returns the index of its choice; any other number means none. It runs under the pool's lock: it must not
// block or call the pool, nor keep the slice. A panic reaches the caller of RoundTrip and leaves the pool usable.
type Selector func(req *http.Request, eligible []Candidate) int

// A wish is what an attempt needs of a resource.
type wish struct {
	req        *http.Request
	room       *slot     // for the slot; nil: it is to be made
	key        string    // scope key; "": none
	affinity   string    // not "": picks by rendezvous hashing
	replayable bool      // siblings may cancel the attempt
	repeatable bool      // another resource may be tried if it is a probe that fails
	tried      []*member // resources that come after the others
	untried    bool      // only those not tried
	hedge      bool      // takes none that others use, that rests, or that would be a probe
	others     []*member // what other attempts of the call use; they come last as well
	beneath    bool      // beneath another pool: what others use is better than what rests

	// Waiters do not all start at the instant at which a cooldown ends: each has its share of the spread.
	began, end time.Time // of the wait; zero: the call has not waited
	spread     time.Duration
	draw       float64 // in [0, 1)
}

// takeLocked registers an attempt on a member. mu must be held since it was picked.
func (p *Pool) takeLocked(m *member, now time.Time, w *wish) *slot {
	p.seq++
	s := w.room
	if s == nil {
		s = new(slot)
	}
	s.m, s.spec, s.seq, s.start, s.key, s.replayable = m, m.spec, p.seq, now, w.key, w.replayable
	if m.probing || m.disabled {
		m.probe = s
	}
	if m.limiter != nil {
		m.limiter.AllowN(now, 1)
	}
	m.slots = append(m.slots, s)
	m.used, m.candidate.LastUsed = p.seq, now
	return s
}

// pickLocked offers the best class of the eligible resources to the strategy. Better are resources not tried before those
// tried, then those that do not rest after failures, then those that no other attempt uses, then those of a lower tier. mu must
// be held.
func (p *Pool) pickLocked(now time.Time, w *wish) *member {
	p.offered = p.offered[:0]
	best := class{tried: true, resting: true, shared: true, tier: int(^uint(0) >> 1)}
	simple := !w.hedge && w.began.IsZero() && len(p.drains) == 0
	again := len(w.tried)+len(w.others) > 0
	for _, m := range p.members {
		if m.cooling {
			p.recoverLocked(m, now)
		}
		if (!simple || !m.plain()) && !p.eligibleLocked(m, now, w) {
			continue
		}
		c := class{resting: !m.rest.IsZero() && m.rest.After(now), tier: m.tier}
		if again {
			c.tried, c.shared = w.used(m)
		}
		if c != best {
			if c.tried && w.untried || c.resting && w.hedge || best.before(c) {
				continue
			}
			best = c
			p.offered = p.offered[:0]
		}
		p.offered = append(p.offered, m)
	}
	switch {
	case len(p.offered) == 0:
		return nil
	case best.resting:
		return slices.MinFunc(p.offered, func(a, b *member) int { return a.rest.Compare(b.rest) })
	case w.affinity != "":
		return p.rendezvousLocked(w.affinity)
	case p.cfg.Selector != nil:
		return p.selectLocked(w.req)
	}
	return p.chooseLocked(now)
}

// used reports whether the call has tried m, or is trying it; beneath another pool, whether it is only trying it.
func (w *wish) used(m *member) (tried, shared bool) {
	tried, shared = slices.Contains(w.tried, m), slices.Contains(w.others, m)
	if !w.beneath {
		return tried || shared, false
	}
	return tried, shared
}

// A class orders what is offered.
type class struct {
	tried, resting, shared bool
	tier                   int
}

func (c class) before(d class) bool {
	switch {
	case c.tried != d.tried:
		return !c.tried
	case c.resting != d.resting:
		return !c.resting
	case c.shared != d.shared:
		return !c.shared
	}
	return c.tier < d.tier
}

// eligibleLocked reports whether m may carry an attempt now. mu must be held.
func (p *Pool) eligibleLocked(m *member, now time.Time, w *wish) bool {
	switch {
	case w.hedge && slices.Contains(w.others, m):
		return false
	case m.disabled:
		return w.repeatable && !w.hedge && m.mayProbe(now) && !p.fullLocked(m) && m.hasToken(now)
	case m.cooling: // until it is over, which was looked at before
		return false
	case w.start(m.ended).After(now):
		return false
	case m.probing && (m.probe != nil || w.hedge), p.fullLocked(m):
		return false
	case !m.hasToken(now):
		return false
	}
	r := m.scopes[w.key]
	return r == nil || w.key == "" || !w.start(r.until).After(now)
}

// mayProbe reports whether a disabled member is due for a probe.
func (m *member) mayProbe(now time.Time) bool {
	return !m.byAdmin && !m.probeAt.IsZero() && !m.probeAt.After(now) && m.probe == nil
}

func (m *member) hasToken(now time.Time) bool { return m.limitedUntil(now).IsZero() }

// limitedUntil returns when the rate limit lets the next attempt start; zero: now.
func (m *member) limitedUntil(now time.Time) time.Time {
	if m.limiter == nil {
		return time.Time{}
	}
	missing := 1 - m.limiter.TokensAt(now)
	if missing <= 0 {
		return time.Time{}
	}
	return now.Add(seconds(missing / m.RateLimit))
}

// start returns when the call may use what rests until then: a waiter a little later, but before its wait ends.
func (w *wish) start(until time.Time) time.Time {
	room := min(w.spread, w.end.Sub(until))
	if w.began.IsZero() || !until.After(w.began) || room <= 0 {
		return until
	}
	return until.Add(time.Duration(w.draw * float64(room)))
}

// chooseLocked picks among what is offered by the strategy. mu must be held.
func (p *Pool) chooseLocked(now time.Time) *member {
	switch p.cfg.Strategy {
	case PrimaryBackup:
		return p.offered[0]
	case Random:
		return p.offered[rand.IntN(len(p.offered))] //nolint:gosec // spreads load, keeps no secret
	case Weighted:
		return weighted(p.offered)
	case LeastLatency:
		return p.fasterLocked(now)
	default:
		return p.fewestLocked(now)
	}
}

// fewestLocked picks for RoundRobin. mu must be held.
func (p *Pool) fewestLocked(now time.Time) *member {
	best := p.offered[0]
	busy := p.busyLocked(best, now)
	for _, m := range p.offered[1:] {
		if n := p.busyLocked(m, now); n < busy || n == busy && m.used < best.used {
			best, busy = m, n
		}
	}
	return best
}

// busyLocked is what RoundRobin compares. mu must be held.
func (p *Pool) busyLocked(m *member, now time.Time) int {
	n := p.inFlightLocked(m)
	if len(m.lags) == 0 {
		return n
	}
	for _, end := range m.lags {
		if end.After(now) {
			n++
		}
	}
	return n
}

// fasterLocked picks for LeastLatency. mu must be held.
func (p *Pool) fasterLocked(now time.Time) *member {
	n := len(p.offered)
	if n == 1 {
		return p.offered[0]
	}
	i, j := rand.IntN(n), rand.IntN(n-1) //nolint:gosec // spreads load, keeps no secret
	if j >= i {
		j++
	}
	a, b := p.offered[i], p.offered[j]
	if p.loadLocked(b, now) < p.loadLocked(a, now) {
		return b
	}
	return a
}

// loadLocked is what LeastLatency compares. mu must be held.
func (p *Pool) loadLocked(m *member, now time.Time) float64 {
	return m.latencyLocked(now) * float64(p.inFlightLocked(m)+1)
}

// weighted picks in proportion to weight. The weights are halved, so that their sum is finite.
func weighted(offered []*member) *member {
	var sum float64
	n := float64(len(offered))
	for _, m := range offered {
		sum += m.Weight / n
	}
	at := rand.Float64() * sum //nolint:gosec // spreads load, keeps no secret
	for _, m := range offered {
		if at -= m.Weight / n; at < 0 {
			return m
		}
	}
	return offered[len(offered)-1]
}

// rendezvousLocked picks by the highest hash of key and resource (Thaler and Ravishankar, "Using Name-Based Mappings to
// Increase Hit Rates", IEEE/ACM ToN 1998): when a resource drops out, only its keys move. mu must be held.
func (p *Pool) rendezvousLocked(key string) *member {
	h := hashString(key)
	best := p.offered[0]
	top := mix(h ^ best.hash)
	for _, m := range p.offered[1:] {
		if score := mix(h ^ m.hash); score > top {
			best, top = m, score
		}
	}
	return best
}

// selectLocked asks the Selector. mu must be held.
func (p *Pool) selectLocked(req *http.Request) *member {
	p.candidates = p.candidates[:0]
	for i, m := range p.offered {
		p.candidates = append(p.candidates, m.candidate)
		p.candidates[i].InFlight = p.inFlightLocked(m)
	}
	if i := p.cfg.Selector(req, p.candidates); i >= 0 && i < len(p.offered) {
		return p.offered[i]
	}
	return nil
}

// A plan says what a call that found nothing eligible can wait for.
type plan struct {
	due   time.Time // the earliest instant at which a resource is eligible by itself; zero: none is known
	event bool      // one is due, but at its cap, taken by a probe, or not what the Selector wants
}

// planLocked looks at why nothing is eligible. mu must be held.
func (p *Pool) planLocked(now time.Time, w *wish) plan {
	var pl plan
	for _, m := range p.members {
		if w.hedge && slices.Contains(w.others, m) {
			continue
		}
		due := now
		switch {
		case m.disabled && (m.byAdmin || m.probeAt.IsZero() || !w.repeatable):
			continue
		case m.disabled:
			due = latest(due, m.probeAt)
		case m.cooling:
			due = latest(due, w.start(m.until))
		default:
			due = latest(due, w.start(m.ended))
		}
		if r := m.scopes[w.key]; r != nil && w.key != "" {
			due = latest(due, w.start(r.until))
		}
		due = latest(due, m.limitedUntil(now))
		switch {
		case !due.After(now):
			pl.event = true
		case pl.due.IsZero() || due.Before(pl.due):
			pl.due = due
		}
	}
	return pl
}

// seconds returns s as a duration, rounded up; the longest one if it is too long.
func seconds(s float64) time.Duration {
	if d := math.Ceil(s * float64(time.Second)); d < math.MaxInt64 {
		return time.Duration(d)
	}
	return math.MaxInt64
}

// soonestLocked picks the cooling resource that is due first, for ForceSoonest; nil: none is cooling. mu must be held.
func (p *Pool) soonestLocked(now time.Time, w *wish) *member {
	var best *member
	var first time.Time
	for _, m := range p.members {
		if m.disabled || m.probing && m.probe != nil || p.fullLocked(m) || !m.hasToken(now) || w.hedge {
			continue
		}
		due := m.until
		if r := m.scopes[w.key]; r != nil && w.key != "" {
			due = latest(due, r.until)
		}
		if due.After(now) && (best == nil || due.Before(first)) {
			best, first = m, due
		}
	}
	return best
}

// hashString is FNV-1a, which is the same in every process.
func hashString(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// mix is the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
