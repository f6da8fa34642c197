package hedgerow

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hedgerow-go/hedgerow/sketch"
)

// accuracy is the relative error of the sketches.
const accuracy = 0.01

// EndpointConfig configures a registered endpoint. The zero value behaves like the unmatched calls, with what is learned
// kept apart.
type EndpointConfig struct {
	// Name of the endpoint in stats, events and [Call].Endpoint, unique in the Transport; default "": the pattern.
	Name string
	// Hedge overrides [Config].Hedge; default nil: as there. Its zero fields inherit, but Disabled is taken as it stands.
	Hedge *HedgeConfig
	// Breaker replaces [Config].Breaker for the endpoint's own circuit, as a whole; default nil: as there. The circuits of
	// hosts always go by Config.Breaker.
	Breaker *BreakerConfig
	// Idempotent declares that these calls may be sent more than once, whatever the method; default false.
	Idempotent bool
}

// Register adds an endpoint: the calls that the pattern matches learn their own delay and have a budget and a circuit of
// their own, for each host. It may be called while calls are running. A fault of the pattern or of cfg is an error that
// names it, and so is a pattern or a name that is taken; the endpoints are unchanged then.
//
// A pattern is "[METHOD ][HOST]/PATH" as for [http.ServeMux]: {name} and * match one segment that is not empty, a
// final {name...} the rest of the path. Paths match exactly, trailing slash included. Without a method every method
// matches; GET does not match HEAD. Without a host every host matches, and a host without a port every port of it. Of
// several patterns that match, one with a host wins, then the one with literal segments further to the left, then the
// one with a method. Matching is on the escaped path, segment by segment.
func (t *Transport) Register(pattern string, cfg EndpointConfig) error {
	rt, err := t.newRoute(pattern, cfg)
	if err != nil {
		return err
	}
	t.registering.Lock()
	defer t.registering.Unlock()
	rs, err := t.routes.Load().with(pattern, rt)
	if err != nil {
		return err
	}
	t.routes.Store(rs)
	return nil
}

// newRoute returns the route that cfg describes.
func (t *Transport) newRoute(pattern string, cfg EndpointConfig) (*route, error) {
	rt := &route{name: cfg.Name, hedge: t.hedge, breaker: t.breaker, idempotent: cfg.Idempotent}
	setDefault(&rt.name, pattern)
	var f faults
	if cfg.Hedge != nil {
		path := fmt.Sprintf("pattern %q: EndpointConfig.Hedge", pattern)
		f.add(cfg.Hedge.validate(path)...)
		rt.hedge = cfg.Hedge.inherit(t.hedge)
		f.add(rt.hedge.validateMerged(path)...)
	}
	if cfg.Breaker != nil {
		f.add(cfg.Breaker.validate(fmt.Sprintf("pattern %q: EndpointConfig.Breaker", pattern))...)
		rt.breaker = cfg.Breaker.withDefaults()
	}
	return rt, f.join()
}

// A route is a registered endpoint, or that of the unmatched calls, whose name is empty.
type route struct {
	name       string
	hedge      HedgeConfig
	breaker    BreakerConfig
	idempotent bool
}

// routes are the endpoints by name and by pattern. They never change: Register replaces them.
type routes struct {
	unmatched *route
	names     map[string]*route
	patterns  *matcher[*route] // nil: none
}

// with returns the routes and one more.
func (rs *routes) with(pattern string, rt *route) (*routes, error) {
	if _, taken := rs.names[rt.name]; taken {
		return nil, fmt.Errorf("hedgerow: pattern %q: the name %q is taken", pattern, rt.name)
	}
	patterns, err := rs.patterns.with(pattern, rt)
	if err != nil {
		return nil, err
	}
	names := make(map[string]*route, len(rs.names)+1)
	maps.Copy(names, rs.names)
	names[rt.name] = rt
	return &routes{unmatched: rs.unmatched, names: names, patterns: patterns}, nil
}

// find returns the route of a call: the one with the name, if it names one, else the one that matches.
func (rs *routes) find(name string, req *http.Request, host string) (*route, error) {
	if name != "" {
		if rt, ok := rs.names[name]; ok {
			return rt, nil
		}
		return nil, fmt.Errorf("%w %q", ErrUnknownEndpoint, name)
	}
	if rt, ok := rs.patterns.match(req.Method, host, req.URL); ok {
		return rt, nil
	}
	return rs.unmatched, nil
}

// hostOf returns the host of u in the form that keys have: lower case, without the scheme's default port.
func hostOf(u *url.URL) string {
	host := u.Host
	plain := true
	for i := range len(host) {
		c := host[i]
		plain = plain && c != ':' && (c < 'A' || c > 'Z') && c < 0x80
	}
	if plain {
		return host
	}
	if port := u.Port(); port == schemePort(u.Scheme) {
		host = strings.TrimSuffix(host, port)
	}
	return lowerASCII(strings.TrimSuffix(host, ":"))
}

// lowerASCII lowers only A to Z: strings.ToLower makes of U+0130 an i, which is another host to IDNA.
func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, s)
}

// An endpoint is all that is kept for one route and host. It is one object, found by one lookup.
type endpoint struct {
	key        EndpointKey
	hedge      *HedgeConfig
	idempotent bool
	host       *host

	counters counters
	budget   *budget
	circuit  *circuit
	delays   delays      // latencies, and the delay learned from them
	pooled   atomic.Bool // its calls have reached a pool beneath
	rewinds  atomic.Bool // a GetBody of its calls has returned the body that was sent

	prev, next *endpoint // in the registry's list; guarded by its mutex
}

// markPooled notes that a call has reached a pool beneath.
func (e *endpoint) markPooled() {
	if !e.pooled.Load() {
		e.pooled.Store(true)
	}
}

// A host is what is kept for one host, whatever the endpoint.
type host struct {
	name     string
	circuit  *circuit
	pushback pushback

	endpoints int // that refer to it; guarded by the registry's mutex
}

func newEndpoint(rt *route, h *host) *endpoint {
	return &endpoint{
		key:        EndpointKey{Name: rt.name, Host: h.name},
		hedge:      &rt.hedge,
		idempotent: rt.idempotent,
		host:       h,
		budget:     newBudget(rt.hedge.BudgetPercent, rt.hedge.EstimatedRPS, rt.hedge.RateWindow),
		circuit:    newCircuit(rt.breaker),
		delays:     delays{latencies: newWindow(rt.hedge.Window)},
	}
}

// newWindow returns a sketch with the accuracy that [Quantiles] promises.
func newWindow(width time.Duration) *sketch.Window {
	w, err := sketch.NewWindow(accuracy, width)
	if err != nil {
		panic(err) // the width was validated
	}
	return w
}

// stats returns a snapshot of e.
func (e *endpoint) stats(now time.Time) EndpointStats {
	delay, _ := e.delay(now)
	s := EndpointStats{
		Counters:      e.counters.snapshot(),
		Delay:         delay,
		RatePerSecond: e.budget.rate(now),
		Circuit:       e.circuit.state(now),
	}
	var qs [5]time.Duration
	s.Latency.Count = e.delays.latencies.Quantiles(now, []float64{0.50, 0.90, 0.95, 0.99, 0.999}, qs[:])
	s.Latency.P50, s.Latency.P90, s.Latency.P95, s.Latency.P99, s.Latency.P999 = qs[0], qs[1], qs[2], qs[3], qs[4]
	return s
}

// The registry holds the endpoints and their hosts, and bounds them: the least recently used endpoint goes first, and a
// host with its last endpoint. Calls that still run on a dropped endpoint keep it until they end.
type registry struct {
	limit   int
	breaker *BreakerConfig           // of the hosts
	latest  atomic.Pointer[endpoint] // the most recently used, written under mu

	mu        sync.Mutex // guards the fields below, and the links and counts in them
	endpoints map[EndpointKey]*endpoint
	hosts     map[string]*host
	dropped   bool     // some endpoint was
	ring      endpoint // its next is the most recently used, its prev the least
}

func (r *registry) init(limit int, breaker *BreakerConfig) {
	r.limit, r.breaker = limit, breaker
	r.endpoints = make(map[EndpointKey]*endpoint)
	r.hosts = make(map[string]*host)
	r.ring.prev, r.ring.next = &r.ring, &r.ring
}

// get returns the endpoint of rt for the host with this name, and makes it if need be.
func (r *registry) get(rt *route, name string) *endpoint {
	key := EndpointKey{Name: rt.name, Host: name}
	if e := r.latest.Load(); e != nil && e.key == key {
		return e
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.endpoints[key]
	if !ok {
		e = r.addLocked(rt, name)
	} else {
		e.unlink()
		r.ring.link(e)
	}
	r.latest.Store(e)
	return e
}

// addLocked makes an endpoint. mu must be held.
func (r *registry) addLocked(rt *route, name string) *endpoint {
	name = strings.Clone(name) // not a part of the caller's URL
	h, ok := r.hosts[name]
	if !ok {
		h = &host{name: name, circuit: newCircuit(*r.breaker)}
		r.hosts[name] = h
	}
	h.endpoints++
	e := newEndpoint(rt, h)
	if r.dropped { // it may be an old one that comes back, and has had its first hedge
		e.budget.empty(time.Now())
	}
	r.endpoints[e.key] = e
	r.ring.link(e)
	if len(r.endpoints) > r.limit {
		r.dropLocked(r.ring.prev)
		r.dropped = true
	}
	return e
}

// dropLocked forgets an endpoint. mu must be held.
func (r *registry) dropLocked(e *endpoint) {
	e.unlink()
	delete(r.endpoints, e.key)
	if e.host.endpoints--; e.host.endpoints == 0 {
		delete(r.hosts, e.host.name)
	}
}

// link puts f behind e in the ring.
func (e *endpoint) link(f *endpoint) {
	f.prev, f.next = e, e.next
	e.next.prev = f
	e.next = f
}

func (e *endpoint) unlink() {
	e.prev.next, e.next.prev = e.next, e.prev
}

// all returns the endpoints and the hosts there are.
func (r *registry) all() ([]*endpoint, []*host) {
	r.mu.Lock()
	defer r.mu.Unlock()
	eps := make([]*endpoint, 0, len(r.endpoints))
	for e := r.ring.next; e != &r.ring; e = e.next {
		eps = append(eps, e)
	}
	hosts := make([]*host, 0, len(r.hosts))
	for _, h := range r.hosts {
		hosts = append(hosts, h)
	}
	return eps, hosts
}

// circuit returns the circuit of a scope and key, nil if there is none.
func (r *registry) circuit(scope CircuitScope, key EndpointKey) *circuit {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch scope {
	case CircuitHost:
		if h, ok := r.hosts[key.Host]; ok {
			return h.circuit
		}
	case CircuitEndpoint:
		if e, ok := r.endpoints[key]; ok {
			return e.circuit
		}
	}
	return nil
}

// A pushback remembers until when a host has asked not to be sent more than it must be.
type pushback struct {
	until atomic.Int64 // Unix time in ns; only ever moves forward
}

const (
	pushbackDefault = time.Second // after a 429 without a hint
	pushbackMax     = time.Minute // a hint that asks for longer counts as this
)

// note takes in a response. A 429 asks for less, for as long as it says; so does a 503, if it says how long.
func (p *pushback) note(now time.Time, resp *http.Response) {
	throttled := resp.StatusCode == http.StatusTooManyRequests
	if !throttled && resp.StatusCode != http.StatusServiceUnavailable {
		return
	}
	wait, hinted := RetryHint(resp.Header, now)
	if !hinted {
		if !throttled {
			return
		}
		wait = pushbackDefault
	}
	until := now.Add(min(wait, pushbackMax)).UnixNano()
	for {
		old := p.until.Load()
		if until <= old || p.until.CompareAndSwap(old, until) {
			return
		}
	}
}

// active reports whether the host still asks for less.
func (p *pushback) active(now time.Time) bool {
	left := p.until.Load() - now.UnixNano()
	return left > 0 && left <= int64(pushbackMax) // more: the clock was set back
}
