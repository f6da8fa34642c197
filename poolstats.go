package hedgerow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A ResourceState is the state of a resource.
type ResourceState int

const (
	// ResourceHealthy is one that may be picked.
	ResourceHealthy ResourceState = iota
	// ResourceCooling is one that rests until a known instant.
	ResourceCooling
	// ResourceDisabled is one that is out.
	ResourceDisabled
)

// String returns healthy, cooling or disabled.
func (s ResourceState) String() string {
	return enumName("ResourceState", int(s), "healthy", "cooling", "disabled")
}

// MarshalText returns what String returns.
func (s ResourceState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// A ResourceStatus is what is known of one resource.
type ResourceStatus struct {
	// ID and Group are those of the resource.
	ID, Group string
	// State is as of now: a cooldown that has ended reads as healthy.
	State ResourceState
	// Probing says that one attempt at a time is let through.
	Probing bool
	// InFlight is how many attempts hold a slot, also those that drain on an earlier stay of the ID.
	InFlight int
	// MaxInFlight is the cap in force: 1 while probing; 0: unlimited.
	MaxInFlight int
	// ConsecutiveCooldowns are the cooldowns counted since the last OK, ConsecutiveFailures the transport failures, and the
	// attempts that failed before they were sent, such as by an error of a [CredentialFunc].
	ConsecutiveCooldowns, ConsecutiveFailures int
	// Until is the end of the cooldown; zero when not cooling.
	Until time.Time
	// LimitedUntil is when RateLimit lets the next attempt start; zero: it does so now, or there is no limit.
	LimitedUntil time.Time
	// Scopes are the scope keys that rest, with the end of their rest; nil: none.
	Scopes map[string]time.Time
	// Oldest is the age of the oldest attempt that holds a slot; 0: none does.
	Oldest time.Duration
	// Attempts counts sends, Successes verdicts OK, Cooldowns and Disables those accepted, SiblingCancels the attempts
	// cancelled by them; all of this stay in the pool.
	Attempts, Successes, Cooldowns, Disables, SiblingCancels uint64
	// Reason is that of the last cooldown or disable; "" when healthy.
	Reason string
}

// PoolStats is a snapshot of a pool.
type PoolStats struct {
	// InFlight counts the attempts that hold a slot, Eligible the resources that may be picked now, Saturated those that are
	// healthy but at their cap.
	InFlight, Eligible, Saturated int
	// Healthy, Cooling and Disabled count the resources by state.
	Healthy, Cooling, Disabled int
	// CallsOK counts the calls that ended in a response with verdict OK or neutral.
	CallsOK uint64
	// CallsExhausted counts those that ended in a response with another verdict, or in an *ExhaustedError of the pool or its
	// synthetic 429.
	CallsExhausted uint64
	// CallsFailed counts those that ended in another error, such as the *ExhaustedError of a pool beneath.
	CallsFailed uint64
	// CallsCanceled counts those whose caller gave up. Each call counts in exactly one of the four. Under a Transport a hedge
	// is a call here, and an attempt that loses is cancelled, but one that lost with its response already here counts by that:
	// with [SignalFirstByte] most losers do.
	CallsCanceled uint64
	// PassedThrough counts the calls that were none of the pool's business: see [PoolConfig].Hosts.
	PassedThrough uint64
	// Attempts, Successes, Cooldowns, Disables and SiblingCancels are as in ResourceStatus, and kept over Remove.
	Attempts, Successes, Cooldowns, Disables, SiblingCancels uint64
	// Retries counts the attempts started after another one of their call ended badly, RetriesRefused those not started for
	// want of retry budget.
	Retries, RetriesRefused uint64
	// Resources are as in [Pool.Snapshot].
	Resources []ResourceStatus
}

// poolTotals are the counters of a pool.
type poolTotals struct {
	CallsOK, CallsExhausted, CallsFailed, CallsCanceled, PassedThrough uint64

	Attempts, Successes, Cooldowns, Disables, SiblingCancels, Retries, RetriesRefused uint64
}

func (p *Pool) count(add func(*poolTotals)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	add(&p.total)
}

// Snapshot returns the resources in pool order, as of now.
func (p *Pool) Snapshot() []ResourceStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.snapshotLocked(time.Now())
}

func (p *Pool) snapshotLocked(now time.Time) []ResourceStatus {
	all := make([]ResourceStatus, len(p.members))
	for i, m := range p.members {
		all[i] = p.statusLocked(m, now)
	}
	return all
}

// statusLocked describes a member without changing it. mu must be held.
func (p *Pool) statusLocked(m *member, now time.Time) ResourceStatus {
	s := ResourceStatus{
		ID: m.ID, Group: m.Group, State: m.state(now), InFlight: p.inFlightLocked(m), MaxInFlight: m.MaxInFlight,
		ConsecutiveCooldowns: m.cool.count, ConsecutiveFailures: m.fail.count, LimitedUntil: m.limitedUntil(now),
		Attempts: m.attempts, Successes: m.successes, Cooldowns: m.cooldowns, Disables: m.disables, SiblingCancels: m.siblings,
	}
	recovered := m.cooling && !m.until.After(now) && p.cfg.ProbeOnRecovery // at the next pick
	s.Probing = s.State != ResourceCooling && (m.probing || recovered && !m.disabled || m.disabled && m.probe != nil)
	if s.Probing {
		s.MaxInFlight = 1
	}
	if s.State == ResourceCooling {
		s.Until = m.until
	}
	if s.State != ResourceHealthy {
		s.Reason = m.reason
	}
	for key, r := range m.scopes {
		if r.until.After(now) {
			if s.Scopes == nil {
				s.Scopes = make(map[string]time.Time)
			}
			s.Scopes[key] = r.until
		}
	}
	for _, slot := range m.slots {
		s.Oldest = max(s.Oldest, now.Sub(slot.start))
	}
	return s
}

// Stats returns a snapshot of the pool, as of now.
func (p *Pool) Stats() PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	t := p.total
	s := PoolStats{
		CallsOK: t.CallsOK, CallsExhausted: t.CallsExhausted, CallsFailed: t.CallsFailed, CallsCanceled: t.CallsCanceled,
		PassedThrough: t.PassedThrough, Attempts: t.Attempts, Successes: t.Successes, Cooldowns: t.Cooldowns,
		Disables: t.Disables, SiblingCancels: t.SiblingCancels, Retries: t.Retries, RetriesRefused: t.RetriesRefused,
		Resources: p.snapshotLocked(now),
	}
	for i, m := range p.members {
		r := &s.Resources[i]
		s.InFlight += len(m.slots)
		switch r.State {
		case ResourceHealthy:
			s.Healthy++
			switch {
			case p.fullLocked(m) || r.Probing && m.probe != nil:
				s.Saturated++
			case m.hasToken(now):
				s.Eligible++
			}
		case ResourceCooling:
			s.Cooling++
		case ResourceDisabled:
			s.Disabled++
		}
	}
	for _, n := range p.drains {
		s.InFlight += n
	}
	return s
}

// A ResourceEvent is a change of a resource's state.
type ResourceEvent struct {
	// Pool and ID say whose.
	Pool, ID string
	// From and To are the states before and after.
	From, To ResourceState
	// Seq counts the events of the pool from 1, without gaps, in order of the changes.
	Seq uint64
	// Reason is the verdict's.
	Reason string
	// Until is the end of a cooldown; zero for other events.
	Until time.Time
	// ScopeKey, if not empty, says that only calls with this key rest. From and To are the resource's own state then.
	ScopeKey string
}

// eventLocked notes an event. mu must be held.
func (p *Pool) eventLocked(m *member, e ResourceEvent) {
	p.told++
	if p.cfg.ResourceChange == nil {
		return
	}
	e.Pool, e.ID, e.Seq = p.cfg.Name, m.ID, p.told
	p.events = append(p.events, e)
}

// deliver tells the hook of the events noted, in order. If somebody is about it already, that one goes on with them: also
// the hook itself, when it makes some. No lock may be held.
func (p *Pool) deliver() {
	if p.cfg.ResourceChange == nil {
		return
	}
	p.mu.Lock()
	if p.telling {
		p.mu.Unlock()
		return
	}
	p.telling = true
	for len(p.events) > 0 {
		batch := p.events
		p.events = nil
		p.mu.Unlock()
		p.tell(batch)
		p.mu.Lock()
	}
	p.telling = false
	p.mu.Unlock()
}

// tell calls the hook for each event. One that ends the goroutine does not keep the others from being told later.
func (p *Pool) tell(batch []ResourceEvent) {
	told := 0
	defer func() {
		if told < len(batch) {
			p.mu.Lock()
			p.events = append(batch[told:len(batch):len(batch)], p.events...)
			p.telling = false
			p.mu.Unlock()
		}
	}()
	for _, e := range batch {
		told++
		func() {
			defer ignorePanic()
			p.cfg.ResourceChange(e)
		}()
	}
}

// An ExhaustedReason says why a call got no further attempt.
type ExhaustedReason int

const (
	// ExhaustedNoResource says that nothing was eligible.
	ExhaustedNoResource ExhaustedReason = iota + 1
	// ExhaustedAttempts says that MaxAttempts was used up, or that repeating was not allowed.
	ExhaustedAttempts
	// ExhaustedDeadline says that the next resource is due after the caller's deadline.
	ExhaustedDeadline
)

// String returns no_resource, attempts or deadline.
func (r ExhaustedReason) String() string {
	return enumName("ExhaustedReason", int(r), "ExhaustedReason(0)", "no_resource", "attempts", "deadline")
}

// MarshalText returns what String returns.
func (r ExhaustedReason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// An ExhaustedError is what a call ends with for which the pool has no further attempt and no response. To the circuits of a
// Transport above it says nothing if nothing was sent.
type ExhaustedError struct {
	// Pool is the pool's name.
	Pool string
	// Reason says why there was no further attempt.
	Reason ExhaustedReason
	// Attempts is how many the call has made, also those that failed before they were sent.
	Attempts int
	// LastStatus is the status of the last response, which was too large to be kept; 0: none came.
	LastStatus int
	// NextAvailable is when the first resource is due; zero: not known, because all are disabled or at their cap, or not asked,
	// because the call may make no further attempt.
	NextAvailable time.Time
	// Err is the error of the last attempt, or says what a sibling's verdict said.
	Err error
	// Resources are those of the pool at that instant.
	Resources []ResourceStatus
}

// maxNamed is how many resources an error text names.
const maxNamed = 8

// Error names the pool, the reason, and why each resource was not to be had.
func (e *ExhaustedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "hedgerow: pool %q: ", e.Pool)
	switch e.Reason {
	case ExhaustedNoResource:
		b.WriteString("no resource is eligible")
	case ExhaustedDeadline:
		b.WriteString("no resource is eligible before the deadline")
	default:
		b.WriteString("no further attempt is allowed")
	}
	fmt.Fprintf(&b, " after %d attempts", e.Attempts)
	if len(e.Resources) == 0 && e.Reason == ExhaustedNoResource {
		b.WriteString(", the pool is empty")
	}
	if e.LastStatus != 0 {
		fmt.Fprintf(&b, ", the last one with status %d", e.LastStatus)
	}
	for i, r := range e.Resources {
		if i == maxNamed {
			fmt.Fprintf(&b, ", and %d more", len(e.Resources)-i)
			break
		}
		before := ", "
		if i == 0 {
			before = " ("
		}
		fmt.Fprintf(&b, "%s%q %s", before, r.ID, r.why())
	}
	if len(e.Resources) > 0 {
		b.WriteByte(')')
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	return b.String()
}

// why says why a resource was not to be had.
func (r *ResourceStatus) why() string {
	switch {
	case r.State == ResourceCooling:
		return "cooling until " + r.Until.Format(time.RFC3339)
	case r.State != ResourceHealthy && r.Reason != "":
		return r.State.String() + ": " + r.Reason
	case r.State != ResourceHealthy:
		return r.State.String()
	case r.MaxInFlight > 0 && r.InFlight >= r.MaxInFlight:
		return "at its cap of " + strconv.Itoa(r.MaxInFlight)
	case !r.LimitedUntil.IsZero():
		return "at its rate limit until " + r.LimitedUntil.Format(time.RFC3339)
	case len(r.Scopes) > 0:
		return "healthy but for scope keys"
	case r.ConsecutiveFailures > 0:
		return fmt.Sprintf("healthy, failures in a row: %d", r.ConsecutiveFailures)
	}
	return r.State.String()
}

// Unwrap returns Err.
func (e *ExhaustedError) Unwrap() error { return e.Err }

// Timeout reports whether Err is a timeout.
func (e *ExhaustedError) Timeout() bool { return isTimeout(e.Err) }

// response returns the 429 that SDKs understand in place of the error.
func (e *ExhaustedError) response(req *http.Request, now time.Time) *http.Response {
	type detail struct {
		Message string `json:"message"`
		Type    string `json:"type"`
	}
	body, err := json.Marshal(map[string]detail{"error": {Message: e.Error(), Type: "pool_exhausted"}})
	if err != nil {
		body = []byte("{}") // strings always marshal
	}
	h := http.Header{"Content-Type": {"application/json"}, "Content-Length": {strconv.Itoa(len(body))}}
	if !e.NextAvailable.IsZero() {
		seconds := math.Ceil(e.NextAvailable.Sub(now).Seconds())
		h.Set("Retry-After", strconv.Itoa(int(max(seconds, 1))))
	}
	return &http.Response{
		Status: "429 Too Many Requests", StatusCode: http.StatusTooManyRequests,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: req,
	}
}
