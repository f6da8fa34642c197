package hedgerow

import (
	"time"
)

// An effect is what a verdict asks for once the lock is released.
type effect struct{ victims []*slot }

// run cancels the victims of the verdict, but for those that have a response by now, whose body would end with their
// context. The lock must not be held.
func (e effect) run(p *Pool) {
	for _, s := range e.victims {
		p.mu.Lock()
		cancel := s.cancel // nil: it is not sent yet, and looks by itself
		cancels := cancel != nil && !s.committed
		s.cancelled = s.cancelled || cancels
		p.mu.Unlock()
		if cancels {
			cancel(ErrSuperseded)
		}
	}
}

// judgeLocked applies a verdict to the member of s, and to its group. s is nil for a report, which is younger than all. mu
// must be held.
func (p *Pool) judgeLocked(m *member, s *slot, key string, v Verdict, failed bool, now time.Time) effect {
	var e effect
	seq := p.seq + 1
	if s != nil {
		seq = s.seq
	} else {
		p.seq = seq
	}
	p.recoverLocked(m, now)
	switch v.Action {
	case ActionOK:
		p.okLocked(m, s, seq, key, now)
	case ActionRetry:
		if failed {
			p.failLocked(m, seq, now)
		}
	case ActionCooldown:
		scopeKey, group := v.scope(key, m.Group)
		for _, each := range p.groupLocked(m, group) {
			p.recoverLocked(each, now)
			if scopeKey == "" {
				p.coolLocked(each, s, seq, v, now, &e)
			} else {
				p.coolScopeLocked(each, s, seq, scopeKey, v, now, &e)
			}
		}
		p.changeLocked()
	case ActionDisable:
		_, group := v.scope("", m.Group)
		for _, each := range p.groupLocked(m, group) {
			p.disableLocked(each, s, seq, v, now, &e)
		}
		p.changeLocked()
	default: // nothing is said of the resource
	}
	return e
}

// scope returns the scope key and the group that the verdict applies to; "" is all keys, and the resource alone.
func (v Verdict) scope(key, group string) (string, string) {
	switch v.Scope {
	case ScopeDefault, ScopeKey:
		return key, ""
	case ScopeGroup:
		return "", group
	case ScopeGroupKey:
		return key, group
	default:
		return "", ""
	}
}

// groupLocked returns m, and with a group its other members. mu must be held.
func (p *Pool) groupLocked(m *member, group string) []*member {
	all := []*member{m}
	if group != "" && !m.gone {
		for _, other := range p.members {
			if other != m && other.Group == group {
				all = append(all, other)
			}
		}
	}
	return all
}

// okLocked takes in that an attempt went well. mu must be held.
func (p *Pool) okLocked(m *member, s *slot, seq uint64, key string, now time.Time) {
	if s != nil {
		p.total.Successes++
		m.successes++
	}
	if m.gone {
		return
	}
	probe := s != nil && s == m.probe
	switch {
	case m.disabled && probe:
		p.enableLocked(m)
		return
	case m.probing && probe:
		m.probing, m.probe = false, nil
		p.changeLocked()
	}
	if m.disabled || m.cooling {
		return
	}
	if seq > m.cool.seq {
		m.cool.count = 0
		m.reason = ""
	}
	if seq > m.fail.seq {
		m.fail.count = 0
		m.rest = time.Time{}
	}
	if r := m.scopes[key]; r != nil && key != "" && seq > r.cool.seq && !r.until.After(now) {
		delete(m.scopes, key)
	}
}

// failLocked takes in a transport failure. mu must be held.
func (p *Pool) failLocked(m *member, seq uint64, now time.Time) {
	if m.gone {
		return
	}
	m.fail.step(seq, p.seq)
	rest := p.cfg.MaxFailureBackoff
	if n := m.fail.count - 1; n < 62 && p.cfg.FailureBackoff <= rest>>max(n, 0) {
		rest = p.cfg.FailureBackoff << max(n, 0)
	}
	m.rest = latest(m.rest, now.Add(rest))
}

// cooldown returns how long the n-th cooldown in a row lasts.
func (c PoolConfig) cooldown(n int, v Verdict) time.Duration {
	d := v.Wait
	if d <= 0 {
		d = c.CooldownTable[min(max(n, 1), len(c.CooldownTable))-1]
	}
	return min(d, c.MaxCooldown)
}

// probeFailedLocked takes in that the probe of a disabled member got another answer than the one it was let through for.
// mu must be held.
func (p *Pool) probeFailedLocked(m *member, s *slot, now time.Time) {
	if m.disabled && s != nil && s == m.probe {
		m.probeAt, m.probe = now.Add(p.cfg.ProbeDisabled), nil
		p.changeLocked()
	}
}

// coolLocked rests a member for all calls. mu must be held.
func (p *Pool) coolLocked(m *member, s *slot, seq uint64, v Verdict, now time.Time, e *effect) {
	p.probeFailedLocked(m, s, now)
	if m.gone || m.disabled {
		return
	}
	from := m.state(now)
	m.cool.step(seq, p.seq)
	m.cooling = true
	m.until = latest(m.until, now.Add(p.cfg.cooldown(m.cool.count, v)))
	m.probing, m.probe = false, nil
	m.reason = v.Reason
	m.cooldowns++
	p.total.Cooldowns++
	p.eventLocked(m, ResourceEvent{From: from, To: ResourceCooling, Reason: v.Reason, Until: m.until})
	p.siblingsLocked(m, s, seq, "", ActionCooldown, e)
}

// coolScopeLocked rests a member for the calls with a scope key. mu must be held.
func (p *Pool) coolScopeLocked(m *member, s *slot, seq uint64, key string, v Verdict, now time.Time, e *effect) {
	p.probeFailedLocked(m, s, now)
	if m.gone || m.disabled {
		return
	}
	if m.probe != nil && s == m.probe {
		m.probe = nil // it said nothing of the rest
	}
	r := m.scopes[key]
	if r == nil {
		r = &scopeRest{}
		if m.scopes == nil {
			m.scopes = make(map[string]*scopeRest)
		}
		p.dropScopesLocked(m, now)
		m.scopes[key] = r
	}
	r.cool.step(seq, p.seq)
	r.until = latest(r.until, now.Add(p.cfg.cooldown(r.cool.count, v)))
	m.cooldowns++
	p.total.Cooldowns++
	state := m.state(now)
	p.eventLocked(m, ResourceEvent{From: state, To: state, Reason: v.Reason, Until: r.until, ScopeKey: key})
	p.siblingsLocked(m, s, seq, key, ActionCooldown, e)
}

// maxScopes bounds the scope keys remembered for one member.
const maxScopes = 1024

// dropScopesLocked makes room for one more scope key: it forgets those that do not rest any more, and if that is not
// enough the one whose rest ends first. mu must be held.
func (p *Pool) dropScopesLocked(m *member, now time.Time) {
	if len(m.scopes) < maxScopes {
		return
	}
	var first string
	for key, r := range m.scopes {
		if !r.until.After(now) {
			delete(m.scopes, key)
		} else if f := m.scopes[first]; f == nil || r.until.Before(f.until) {
			first = key
		}
	}
	if len(m.scopes) >= maxScopes {
		delete(m.scopes, first)
	}
}

// disableLocked takes a member out by a verdict. mu must be held.
func (p *Pool) disableLocked(m *member, s *slot, seq uint64, v Verdict, now time.Time, e *effect) {
	p.siblingsLocked(m, s, seq, "", ActionDisable, e) // also of a member that is gone
	if m.gone {
		return
	}
	if p.cfg.ProbeDisabled > 0 && !m.byAdmin {
		m.probeAt = now.Add(p.cfg.ProbeDisabled)
	}
	m.probe = nil
	if m.disabled {
		return
	}
	p.takeOutLocked(m, now, v.Reason)
}

// takeOutLocked disables a member that is not disabled. mu must be held.
func (p *Pool) takeOutLocked(m *member, now time.Time, reason string) {
	from := m.state(now)
	m.disabled = true
	m.reason = reason
	m.disables++
	p.total.Disables++
	p.eventLocked(m, ResourceEvent{From: from, To: ResourceDisabled, Reason: reason})
}

// enableLocked makes a member healthy, with every counter of escalation at 0. mu must be held.
func (p *Pool) enableLocked(m *member) {
	was := ResourceHealthy
	switch {
	case m.disabled:
		was = ResourceDisabled
	case m.cooling:
		was = ResourceCooling
	}
	m.disabled, m.byAdmin, m.probeAt = false, false, time.Time{}
	m.cooling, m.until, m.ended, m.reason = false, time.Time{}, time.Time{}, ""
	m.probing, m.probe = false, nil
	m.cool = escalation{seq: p.seq}
	m.fail, m.rest = escalation{seq: p.seq}, time.Time{}
	clear(m.scopes)
	if was != ResourceHealthy {
		p.eventLocked(m, ResourceEvent{From: was, To: ResourceHealthy})
	}
	p.changeLocked()
}

// siblingsLocked marks the younger attempts that a cooldown or disable dooms. mu must be held.
func (p *Pool) siblingsLocked(m *member, s *slot, seq uint64, key string, by Action, e *effect) {
	if p.cfg.KeepSiblings || s == nil {
		return
	}
	for _, other := range m.slots {
		if other.seq <= seq || other.committed || !other.replayable || other.doomed != ActionDefault ||
			key != "" && other.key != key {
			continue
		}
		other.doomed = by
		m.siblings++
		p.total.SiblingCancels++
		e.victims = append(e.victims, other)
	}
}
