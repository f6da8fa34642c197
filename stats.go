package hedgerow

import (
	"sync/atomic"
	"time"
)

// Stats is a snapshot of a [Transport], which shares nothing with it. Counters read while calls run may be a few calls
// apart from each other.
type Stats struct {
	// Total sums up all calls. It never goes back, also when endpoints are dropped: see [Config].MaxEndpoints.
	Total Counters
	// Endpoints holds what is known of each endpoint and host.
	Endpoints map[EndpointKey]EndpointStats
	// Hosts holds what is known of each host.
	Hosts map[string]HostStats
}

// An EndpointKey names the state that is kept for one endpoint and host.
type EndpointKey struct {
	// Name is the endpoint's; "": the unmatched calls of the host.
	Name string
	// Host is hostname[:port], lower case, without the scheme's default port.
	Host string
}

// String returns "name @ host", or the host alone for its unmatched calls.
func (k EndpointKey) String() string {
	if k.Name == "" {
		return k.Host
	}
	return k.Name + " @ " + k.Host
}

// MarshalText returns what String returns.
func (k EndpointKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Counters count calls since the Transport was made or, for an endpoint and host, since what is kept for them was.
type Counters struct {
	// Requests counts the calls that reached an endpoint, sent or not.
	Requests uint64
	// Hedged counts the calls for which a hedge was sent, Hedges the hedges. One that a layer has kept from the pool beneath, and
	// that has lost, counts in Hedges alone.
	Hedged, Hedges uint64
	// HedgeWins and PrimaryWins count the hedged calls by the attempt whose outcome was returned. Those whose caller gave up
	// are in neither.
	HedgeWins, PrimaryWins uint64
	// Warmup counts the calls made while their endpoint was warming up: see [HedgeConfig].WarmupRequests. Calls that are
	// never hedged, and so not learned from, are left out.
	Warmup uint64
	// Errors counts the calls that ended in an error or a 5xx, a caller's deadline included, a caller's cancel not.
	Errors uint64
	// Skipped counts the calls that were refused a hedge, or a further one, each once per reason. Reasons that never
	// occurred are left out; it may be nil.
	Skipped map[SkipReason]uint64
}

// EndpointStats is what is known of one endpoint and host.
type EndpointStats struct {
	Counters
	// Delay is the hedge delay in force.
	Delay time.Duration
	// Latency is the time to RoundTrip's return as callers saw it, over the last one to two [HedgeConfig].Window. Calls
	// that failed in it because their caller cancelled them are left out, and so are calls of which nothing was sent.
	Latency Quantiles
	// RatePerSecond is the observed rate of calls over [HedgeConfig].RateWindow.
	RatePerSecond float64
	// Circuit is the state of the endpoint's own circuit.
	Circuit CircuitState
}

// Quantiles describe a distribution of latencies. That for q of n latencies is within 1 % of the one of rank floor(q (n-1)),
// counted from 0 for the smallest, so the greatest of a few does not show. All are zero if Count is.
type Quantiles struct {
	// Count is the number of latencies.
	Count uint64
	// P50 to P999 are the quantiles 0.50, 0.90, 0.95, 0.99 and 0.999.
	P50, P90, P95, P99, P999 time.Duration
}

// HostStats is what is known of one host.
type HostStats struct {
	// Circuit is the state of the host's circuit.
	Circuit CircuitState
}

// A SkipReason is the gate that refused a call a hedge.
type SkipReason int

const (
	// SkipDisabled says that hedging is off for the endpoint or the call, or by [Transport.SetHedging].
	SkipDisabled SkipReason = iota
	// SkipMethod says that the call may not be sent twice.
	SkipMethod
	// SkipBody says that the request body cannot be had again, or is too large or of unknown length.
	SkipBody
	// SkipUpgrade says that the request is a CONNECT, asks for an upgrade, or has trailers.
	SkipUpgrade
	// SkipDeadline says that the caller's deadline is not after the hedge delay.
	SkipDeadline
	// SkipCircuit says that a circuit is open.
	SkipCircuit
	// SkipBudget says that the budget is used up.
	SkipBudget
	// SkipPushback says that the host has asked for less.
	SkipPushback
	// SkipNoResource says that no resource is left that the call does not use yet.
	SkipNoResource

	skipReasons // how many there are
)

// String returns the reason in lower snake case, such as no_resource.
func (r SkipReason) String() string {
	return enumName("SkipReason", int(r), "disabled", "method", "body", "upgrade", "deadline", "circuit", "budget",
		"pushback", "no_resource")
}

// MarshalText returns what String returns.
func (r SkipReason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// A counter is the place of one of Counters in its live form.
type counter int

const (
	countRequests counter = iota
	countHedged
	countHedges
	countHedgeWins
	countPrimaryWins
	countWarmup
	countErrors
	countSkipped // and a place for each further SkipReason

	counterPlaces = countSkipped + counter(skipReasons)
)

// counters are the live form of Counters.
type counters [counterPlaces]atomic.Uint64

func (c *counters) snapshot() Counters {
	s := Counters{
		Requests:    c[countRequests].Load(),
		Hedged:      c[countHedged].Load(),
		Hedges:      c[countHedges].Load(),
		HedgeWins:   c[countHedgeWins].Load(),
		PrimaryWins: c[countPrimaryWins].Load(),
		Warmup:      c[countWarmup].Load(),
		Errors:      c[countErrors].Load(),
	}
	for r := range skipReasons {
		if n := c[countSkipped+counter(r)].Load(); n > 0 {
			if s.Skipped == nil {
				s.Skipped = make(map[SkipReason]uint64)
			}
			s.Skipped[r] = n
		}
	}
	return s
}

// Stats returns a snapshot of what the Transport has counted and learned, as of now: an open circuit whose cooldown has
// ended reads as half-open.
func (t *Transport) Stats() Stats {
	now := time.Now()
	eps, hosts := t.endpoints.all()
	s := Stats{
		Total:     t.total.snapshot(),
		Endpoints: make(map[EndpointKey]EndpointStats, len(eps)),
		Hosts:     make(map[string]HostStats, len(hosts)),
	}
	for _, ep := range eps {
		s.Endpoints[ep.key] = ep.stats(now)
	}
	for _, h := range hosts {
		s.Hosts[h.name] = HostStats{Circuit: h.circuit.state(now)}
	}
	return s
}

// Circuit returns the state of a circuit as of now: an open circuit whose cooldown has ended reads as half-open. The
// host scope looks at key.Host alone. An unknown key is closed.
func (t *Transport) Circuit(scope CircuitScope, key EndpointKey) CircuitState {
	if c := t.endpoints.circuit(scope, key); c != nil {
		return c.state(time.Now())
	}
	return CircuitClosed
}
