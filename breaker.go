package hedgerow

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// The defaults of BreakerConfig.
const (
	defaultErrorRateThreshold = 0.5
	defaultMinSamples         = 20
	defaultBreakerWindow      = 30 * time.Second
	defaultBreakerCooldown    = 30 * time.Second
	defaultHalfOpenTrials     = 5
)

// BreakerConfig says when a circuit opens and how it closes again. An open circuit suppresses hedges and leaves the
// primary alone, unless FailFast is set. There is a circuit per host and one per endpoint and host; a hedge needs the
// consent of both.
//
// The zero value is on, with the defaults named at the fields. [Config].Breaker applies to every host scope and to the
// endpoints that have no config of their own; [EndpointConfig].Breaker replaces it as a whole for the endpoint's scope.
type BreakerConfig struct {
	// Disabled keeps the circuit closed: nothing is recorded and nothing suppressed; default false.
	Disabled bool
	// ErrorRateThreshold is the share of failures at which a closed circuit opens and a half-open one opens again; in
	// (0, 1]; zero: 0.5.
	ErrorRateThreshold float64
	// MinSamples is the number of outcomes in the window below which a closed circuit stays closed whatever the share
	// of failures; zero: 20. It does not apply to a half-open circuit, which decides by HalfOpenTrials.
	MinSamples int
	// Window is the rotation of the outcomes: those of the last one to two of it count; zero: 30s. So where calls come at a
	// steady rate and all fail from now on, it takes half a Window to a whole one until half of what counts are failures.
	Window time.Duration
	// Cooldown is how long a circuit stays open before it turns half-open; zero: 30s.
	Cooldown time.Duration
	// HalfOpenTrials is both the number of completed attempts of any kind that decide a half-open circuit and the most
	// hedges that it admits until then (with FailFast, the most calls); zero: 5. A trial that is cancelled gives its
	// place to another. A primary that a hedge overtakes has no outcome, so failures that are slower than a hedge weigh
	// less.
	HalfOpenTrials int
	// Failure reports whether a response counts as a failure; nil: the default, status >= 500. It must not read or
	// close the body, and may run concurrently. A panic in it surfaces in the goroutine that called RoundTrip. An
	// attempt that ended in an error is a failure without being asked about; one that was cancelled counts neither way.
	Failure func(*http.Response) bool
	// FailFast makes an open circuit refuse calls with a [*CircuitOpenError], before anything is sent; default false:
	// no call is refused.
	FailFast bool
}

// withDefaults returns the config with defaults in place of zero fields.
func (c BreakerConfig) withDefaults() BreakerConfig {
	setDefault(&c.ErrorRateThreshold, defaultErrorRateThreshold)
	setDefault(&c.MinSamples, defaultMinSamples)
	setDefault(&c.Window, defaultBreakerWindow)
	setDefault(&c.Cooldown, defaultBreakerCooldown)
	setDefault(&c.HalfOpenTrials, defaultHalfOpenTrials)
	if c.Failure == nil {
		c.Failure = isServerError
	}
	return c
}

// validate returns what is wrong with c, whose path in the configuration is given.
func (c BreakerConfig) validate(path string) []error {
	f := faults{path: path}
	f.check("ErrorRateThreshold", c.ErrorRateThreshold,
		c.ErrorRateThreshold == 0 || c.ErrorRateThreshold > 0 && c.ErrorRateThreshold <= 1, "is not in (0, 1]")
	f.check("MinSamples", c.MinSamples, c.MinSamples >= 0, "must not be negative")
	f.notNegative("Window", c.Window)
	f.notNegative("Cooldown", c.Cooldown)
	f.check("HalfOpenTrials", c.HalfOpenTrials, c.HalfOpenTrials >= 0, "must not be negative")
	return f.errs
}

// isServerError is the default of BreakerConfig.Failure.
func isServerError(resp *http.Response) bool {
	return resp.StatusCode >= http.StatusInternalServerError
}

// A CircuitScope says what a circuit watches.
type CircuitScope int

const (
	// CircuitHost is the scope of all calls to one host.
	CircuitHost CircuitScope = iota
	// CircuitEndpoint is the scope of the calls of one endpoint to one host.
	CircuitEndpoint
)

// String returns host or endpoint.
func (s CircuitScope) String() string { return enumName("CircuitScope", int(s), "host", "endpoint") }

// MarshalText returns what String returns.
func (s CircuitScope) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// A CircuitState is what a circuit lets through: hedges, and with [BreakerConfig].FailFast calls.
type CircuitState int

const (
	// CircuitClosed lets everything through.
	CircuitClosed CircuitState = iota
	// CircuitOpen lets nothing through until the cooldown is over.
	CircuitOpen
	// CircuitHalfOpen lets a few trials through, while the next outcomes decide.
	CircuitHalfOpen
)

// String returns closed, open or half_open.
func (s CircuitState) String() string {
	return enumName("CircuitState", int(s), "closed", "open", "half_open")
}

// MarshalText returns what String returns.
func (s CircuitState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// circuit is one scope's circuit: closed until the share of failures among recent outcomes reaches the threshold, then
// open for the cooldown, then half-open until the next HalfOpenTrials outcomes decide. It reads no clock and runs no
// timer: an open circuit turns half-open when it is next used after its cooldown, and only reads as half-open before.
//
// Each half-open phase has a number and HalfOpenTrials places. An admitted attempt gets a ticket with the number and
// takes a place until the phase is over. Only release gives a place back, and only within the phase of the ticket, so
// a straggler of one phase cannot make room for too many in the next. No phase can get stuck on completed trials:
// when all places are taken, the outcomes of those who hold them suffice for the decision.
//
// A circuit is safe for concurrent use. A disabled one stays closed and records nothing; a nil one is the same, for a
// scope that has no say.
type circuit struct {
	cfg BreakerConfig // defaults filled in, never changed

	mu        sync.Mutex   // guards the fields below; held for arithmetic only
	last      CircuitState // as last moved to; stateLocked says what it is as of now
	recent    outcomeWindow
	openUntil time.Time // while open: the end of the cooldown
	phase     uint64    // counts half-open phases
	places    int       // taken in this phase
	trials    tally     // outcomes of this phase
}

// ticket is the proof of a place in a half-open phase. The zero ticket holds none.
type ticket struct {
	phase uint64
}

// transition is one change of a circuit's state.
type transition struct {
	from, to CircuitState
}

// transitions are the changes that one operation made, in order; nil: none. It is for the caller to report them, after the
// lock is released. There are at most two: an outcome can turn an overdue circuit half-open and also decide it.
type transitions []transition

// newCircuit returns a closed circuit. The defaults of cfg are filled in.
func newCircuit(cfg BreakerConfig) *circuit {
	return &circuit{cfg: cfg}
}

// off reports whether the circuit has no say.
func (c *circuit) off() bool {
	return c == nil || c.cfg.Disabled
}

// refuser returns c if it may refuse calls, else nil, which refuses none.
func (c *circuit) refuser() *circuit {
	if c.off() || !c.cfg.FailFast {
		return nil
	}
	return c
}

// peek reports whether admit would admit an attempt. It changes nothing.
func (c *circuit) peek(now time.Time) bool {
	if c.off() {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.stateLocked(now) {
	case CircuitClosed:
		return true
	case CircuitHalfOpen:
		// Not turned half-open yet: the coming phase has all its places.
		return c.last == CircuitOpen || c.places < c.cfg.HalfOpenTrials
	default:
		return false
	}
}

// admit reports whether an attempt may be made. The ticket goes to release if the attempt ends without an outcome, else
// to record.
func (c *circuit) admit(now time.Time) (ticket, bool, transitions) {
	var moves transitions
	if c.off() {
		return ticket{}, true, moves
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endCooldownLocked(now, &moves)
	switch {
	case c.last == CircuitClosed:
		return ticket{}, true, moves
	case c.last == CircuitHalfOpen && c.places < c.cfg.HalfOpenTrials:
		c.places++
		return ticket{c.phase}, true, moves
	default:
		return ticket{}, false, moves
	}
}

// release frees the place of an attempt that ended without an outcome: cancelled, or never sent. It does nothing for a
// ticket of another phase. A ticket is released at most once.
func (c *circuit) release(t ticket) {
	if c.off() || t.phase == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == CircuitHalfOpen && t.phase == c.phase && c.places > 0 {
		c.places--
	}
}

// record counts the outcome of a completed attempt of any kind. One that was admitted keeps its place: a completed trial is
// not followed by another in the same phase. An outcome from before the phase counts like any other.
func (c *circuit) record(now time.Time, failed bool) transitions {
	var moves transitions
	if c.off() {
		return moves
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endCooldownLocked(now, &moves)
	switch c.last {
	case CircuitClosed:
		c.recent.add(now, c.cfg.Window, failed)
		if sum := c.recent.sum(); sum.total >= c.cfg.MinSamples && sum.share() >= c.cfg.ErrorRateThreshold {
			c.openLocked(now, &moves)
		}
	case CircuitHalfOpen:
		c.trials.add(failed)
		switch {
		case c.trials.total < c.cfg.HalfOpenTrials:
		case c.trials.share() >= c.cfg.ErrorRateThreshold:
			c.openLocked(now, &moves)
		default:
			c.recent = outcomeWindow{}
			c.moveLocked(CircuitClosed, &moves)
		}
	default:
		// Open: mostly attempts that were under way when it opened. What they say is known.
	}
	return moves
}

// state returns the state as of now. It changes nothing.
func (c *circuit) state(now time.Time) CircuitState {
	if c.off() {
		return CircuitClosed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stateLocked(now)
}

// until returns the end of the cooldown while the circuit is open, else the zero time.
func (c *circuit) until(now time.Time) time.Time {
	if c.off() {
		return time.Time{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stateLocked(now) == CircuitOpen {
		return c.openUntil
	}
	return time.Time{}
}

// stateLocked returns the state as of now. mu must be held.
func (c *circuit) stateLocked(now time.Time) CircuitState {
	if c.last == CircuitOpen && !now.Before(c.openUntil) {
		return CircuitHalfOpen
	}
	return c.last
}

// endCooldownLocked starts a half-open phase if the cooldown of an open circuit is over. mu must be held.
func (c *circuit) endCooldownLocked(now time.Time, moves *transitions) {
	if c.stateLocked(now) == c.last {
		return
	}
	c.phase++
	c.places = 0
	c.trials = tally{}
	c.moveLocked(CircuitHalfOpen, moves)
}

// openLocked opens the circuit for its cooldown. mu must be held.
func (c *circuit) openLocked(now time.Time, moves *transitions) {
	c.openUntil = now.Add(c.cfg.Cooldown)
	c.moveLocked(CircuitOpen, moves)
}

// moveLocked changes the state and notes the change in moves. mu must be held.
func (c *circuit) moveLocked(to CircuitState, moves *transitions) {
	*moves = append(*moves, transition{c.last, to})
	c.last = to
}

// places are what the circuits of an attempt have given it.
type places struct {
	host, endpoint ticket
}

// admission is what both circuits of an attempt said to it. The transitions are to be reported also when it was
// refused.
type admission struct {
	places

	hostMoves, endpointMoves transitions
	refusedBy                CircuitScope // meaningful only if it was refused; the host if both did
}

// admitBoth asks the circuits of a host and of an endpoint, either of which may be nil, to admit one attempt. Both are
// looked at before either changes, so a circuit never turns half-open or gives up a place for an attempt that the other
// refuses. A place that the host gave in vain, because the endpoint's last one went to someone else between look and
// admission, is freed.
func admitBoth(now time.Time, host, endpoint *circuit) (admission, bool) {
	var a admission
	if !host.peek(now) {
		return a, false
	}
	a.refusedBy = CircuitEndpoint
	if !endpoint.peek(now) {
		return a, false
	}
	var ok bool
	if a.host, ok, a.hostMoves = host.admit(now); !ok {
		a.refusedBy = CircuitHost
		return a, false
	}
	if a.endpoint, ok, a.endpointMoves = endpoint.admit(now); !ok {
		host.release(a.host)
		a.host = ticket{}
		return a, false
	}
	return a, true
}

// held returns the places that were given, nil if there are none.
func (a *admission) held() *trial {
	if a.places == (places{}) {
		return nil
	}
	return &trial{places: a.places}
}

// A trial is an attempt that has places in the circuits. nil is one that has none.
type trial struct {
	places
	taken atomic.Bool
}

// take reports whether the places are still to be given back, or kept, and it is for the caller to do so.
func (t *trial) take() bool { return t != nil && t.taken.CompareAndSwap(false, true) }

// tally counts outcomes.
type tally struct {
	total, failed int
}

func (t *tally) add(failed bool) {
	t.total++
	if failed {
		t.failed++
	}
}

// share returns the share of failures. It divides, because the product of a threshold such as 0.07 and 100 outcomes is a
// little more than 7, and seven failures would not reach it.
func (t *tally) share() float64 {
	return float64(t.failed) / float64(t.total)
}

// outcomeWindow counts recent outcomes in two windows of the same length, the current one and the one before it, and
// rotates them when an outcome is added. The sum of both spans one to two windows. An instant before the current
// window counts in it. The zero value is empty.
type outcomeWindow struct {
	start             time.Time // of the current window
	current, previous tally
}

func (w *outcomeWindow) add(now time.Time, window time.Duration, failed bool) {
	switch windowsPassed(w.start, now, window) {
	case 0:
	case 1:
		w.start = w.start.Add(window)
		w.previous, w.current = w.current, tally{}
	default:
		*w = outcomeWindow{start: now}
	}
	w.current.add(failed)
}

func (w *outcomeWindow) sum() tally {
	return tally{w.current.total + w.previous.total, w.current.failed + w.previous.failed}
}
