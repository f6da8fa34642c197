package hedgerow

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// Add puts r at the end of the order, fresh. With [ErrDuplicateResource], or another error that names the fault, the pool is
// unchanged.
func (p *Pool) Add(r Resource) error {
	f := faults{path: "Resource"}
	fresh := p.parseOne(&f, r)
	if err := f.join(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.findLocked(r.ID) != nil {
		return fmt.Errorf("%w %q", ErrDuplicateResource, r.ID)
	}
	p.members = append(p.members, fresh)
	p.changeLocked()
	return nil
}

// Enable makes a resource healthy, with every counter of escalation at 0; it also ends a cooldown. [ErrUnknownResource].
func (p *Pool) Enable(id string) error {
	return p.admin(id, func(m *member, _ time.Time) { p.enableLocked(m) })
}

// Disable takes a resource out until Enable: it is never probed. Running attempts go on. [ErrUnknownResource].
func (p *Pool) Disable(id string) error {
	return p.admin(id, func(m *member, now time.Time) {
		m.byAdmin, m.probeAt, m.probe = true, time.Time{}, nil
		if !m.disabled {
			p.takeOutLocked(m, now, "by the administrator")
		}
		p.changeLocked()
	})
}

// Remove ends the stay of a resource at once. Running attempts go on; their verdicts are dropped. Removing all is allowed.
// [ErrUnknownResource].
func (p *Pool) Remove(id string) error {
	return p.admin(id, func(m *member, _ time.Time) {
		p.members = slices.DeleteFunc(p.members, func(other *member) bool { return other == m })
		p.leaveLocked(m)
		p.changeLocked()
	})
}

// admin runs do on a member.
func (p *Pool) admin(id string, do func(*member, time.Time)) error {
	defer p.deliver() // not under the lock
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.findLocked(id)
	if m == nil {
		return fmt.Errorf("%w %q", ErrUnknownResource, id)
	}
	now := time.Now()
	p.recoverLocked(m, now)
	do(m, now)
	return nil
}

// Report is a verdict from outside, such as a late error in a stream, as if an attempt started now had ended so: no running
// attempt is cancelled by it. scopeKey is that of the call, "" for none. [ActionRetry] counts as one transport failure;
// [ActionDefault] is an error. [ErrUnknownResource].
//
// The Winner that [Call].Done is given says who served a call. Without a Transport a layer beneath the pool can tell, by
// [AttemptFromContext].
func (p *Pool) Report(id, scopeKey string, v Verdict) error {
	if v.Action <= ActionDefault || v.Action > ActionDisable {
		return fmt.Errorf("hedgerow: pool: report of action %s", v.Action)
	}
	var e effect
	err := p.admin(id, func(m *member, now time.Time) { e = p.judgeLocked(m, nil, scopeKey, v, true, now) })
	e.run(p)
	return err
}

// SetResources replaces the resources, all or nothing. State is kept by ID, unless the credential has changed: such a
// resource starts fresh, also from disabled, and late verdicts of the old one are dropped. Two [CredentialFunc] values cannot
// be compared, so one made anew counts as changed: keep the value. The other fields apply from the next pick on. An empty list
// is an error, as is every fault of a resource.
func (p *Pool) SetResources(rs []Resource) error {
	if len(rs) == 0 {
		return errors.New("hedgerow: Resources: empty: at least one is required")
	}
	fresh, err := p.parse("Resources", rs)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	stays := make(map[*member]bool, len(rs))
	for i, m := range fresh {
		old := p.findLocked(m.ID)
		if old == nil || !old.Credential.same(m.Credential) {
			continue
		}
		if old.RateLimit != m.RateLimit || old.RateBurst != m.RateBurst {
			old.limiter = m.limiter
		}
		old.configure(m.spec)
		fresh[i] = old
		stays[old] = true
	}
	for _, m := range p.members {
		if !stays[m] {
			p.leaveLocked(m)
		}
	}
	p.members = fresh
	p.changeLocked()
	return nil
}

// findLocked returns the member with an ID, nil if there is none. mu must be held.
func (p *Pool) findLocked(id string) *member {
	for _, m := range p.members {
		if m.ID == id {
			return m
		}
	}
	return nil
}

// proxies returns the URLs of those that the pool has, and of one more.
func (p *Pool) proxies(more Proxy) map[string]bool {
	all := map[string]bool{more.get().url.String(): true}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.members {
		if !m.Proxy.IsZero() {
			all[m.Proxy.get().url.String()] = true
		}
	}
	return all
}

// bases returns the transports that resources bring along.
func (p *Pool) bases() []http.RoundTripper {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []http.RoundTripper
	for _, m := range p.members {
		if m.Base != nil {
			all = append(all, m.Base)
		}
	}
	return all
}
