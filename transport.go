package hedgerow

import (
	"net/http"
	"sync"
	"sync/atomic"
)

const defaultMaxEndpoints = 10_000

// Config configures a [Transport]. The zero value works: it learns the latency of each host and hedges the calls that are
// safe to send twice.
//
// For every number here and below zero means the default; a negative value or one out of range is an error from [New] or
// [Transport.Register] that names the field, except where a field says otherwise.
type Config struct {
	// Base carries the attempts; nil: [http.DefaultTransport]. The Transport never changes or closes it. It must be safe
	// for concurrent use, and should end an attempt when its request's context ends: see Detach.
	Base http.RoundTripper
	// Hedge holds the defaults for every endpoint; zero: on, with the defaults named there.
	Hedge HedgeConfig
	// Breaker configures the circuits of hosts and endpoints; zero: on, with the defaults named there.
	Breaker BreakerConfig
	// Hooks are told what happens; zero: nobody is.
	Hooks Hooks
	// MaxEndpoints is how many learned states, one per endpoint and host, are kept; the least recently used are dropped
	// first; zero: 10,000. A state that was dropped starts anew, so there should be room for those in use.
	MaxEndpoints int
	// Detach runs the primary of a call that can be hedged in a goroutine of its own; default false. It is for a Base
	// that ignores contexts. Without it RoundTrip returns when the primary does, also when a hedge has won before.
	Detach bool
}

// A Transport is an [http.RoundTripper] that hedges slow calls of the one below it. It is made by [New], safe for
// concurrent use, starts no goroutine but for attempts and for closing what they leave behind, and needs no closing.
//
// As with any RoundTripper, the caller must close the response body, which also frees what the attempt holds.
type Transport struct {
	base    http.RoundTripper
	plain   bool // base is an http.Transport
	wire    bool // or a pool over one
	shares  bool // base leaves the headers of a request alone
	hedge   HedgeConfig
	breaker BreakerConfig
	hooks   Hooks
	detach  bool

	hedgingOff atomic.Bool
	total      counters
	endpoints  registry
	routes     atomic.Pointer[routes]

	registering sync.Mutex // held by Register, so that no change of routes is lost
}

// New returns a Transport. The error joins every fault of cfg, each with its field and its bound.
func New(cfg Config) (*Transport, error) {
	f := faults{path: "Config"}
	f.add(cfg.Hedge.validate("Config.Hedge")...)
	hedge := cfg.Hedge.withDefaults()
	f.add(hedge.validateMerged("Config.Hedge")...)
	f.add(cfg.Breaker.validate("Config.Breaker")...)
	f.check("MaxEndpoints", cfg.MaxEndpoints, cfg.MaxEndpoints >= 0, "must not be negative")
	if err := f.join(); err != nil {
		return nil, err
	}

	if cfg.Base == nil {
		cfg.Base = http.DefaultTransport
	}
	setDefault(&cfg.MaxEndpoints, defaultMaxEndpoints)
	t := &Transport{
		base:    cfg.Base,
		hedge:   hedge,
		breaker: cfg.Breaker.withDefaults(),
		hooks:   cfg.Hooks,
		detach:  cfg.Detach,
	}
	_, t.plain = cfg.Base.(*http.Transport)
	pool, _ := cfg.Base.(*pooled)
	t.wire = t.plain || pool != nil && pool.plain
	t.shares = t.plain || pool != nil && (pool.plain || pool.pool.hosts == nil) // else what it passes on is not its own
	t.endpoints.init(cfg.MaxEndpoints, &t.breaker)
	t.routes.Store(&routes{unmatched: &route{hedge: t.hedge, breaker: t.breaker}})
	return t, nil
}

// RoundTrip implements [http.RoundTripper]. It returns the first acceptable response of the attempts it makes, or the
// outcome of the first attempt. What it returns belongs to the caller as with any RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	c := call{t: t, req: req}
	if err := c.open(); err != nil {
		return nil, err
	}
	if reason, refused := c.gate(); refused {
		return c.pass(reason)
	}
	return newRace(&c).run()
}

// SetHedging is the operator's switch. Off, a call is refused its hedges as [SkipDisabled]; learning goes on, and so do
// hedges that are in flight. On does not undo [HedgeConfig].Disabled. A new Transport is on.
func (t *Transport) SetHedging(on bool) { t.hedgingOff.Store(!on) }

// Unwrap returns the base transport.
func (t *Transport) Unwrap() http.RoundTripper { return t.base }

// CloseIdleConnections closes the idle connections of the base transport, if it has such a method.
func (t *Transport) CloseIdleConnections() { closeIdle(t.base) }

// closeIdle closes the idle connections of rt, in the way of [http.Client.CloseIdleConnections].
func closeIdle(rt http.RoundTripper) {
	if c, ok := rt.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
