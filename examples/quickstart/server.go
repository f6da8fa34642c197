package main

import (
	"context"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"
)

// An endpoint is how a part of the service behaves and is called.
type endpoint struct {
	name       string
	method     string
	pattern    string // of the path, as the server's mux has it
	path       string // to call
	perSecond  float64
	median     time.Duration
	stragglers float64 // share of calls that take ten times as long
	fails      bool    // for a while
}

// service returns the endpoints.
func service() []endpoint {
	const ms = time.Millisecond
	return []endpoint{
		{name: "profile", method: http.MethodGet, pattern: "/profile/{id}", path: "/profile/42", perSecond: 100, median: 3 * ms, stragglers: 0.02},
		{name: "search", method: http.MethodGet, pattern: "/search", path: "/search?q=hedge", perSecond: 100, median: 20 * ms, stragglers: 0.04},
		{name: "prices", method: http.MethodGet, pattern: "/prices/{symbol}", path: "/prices/ACME", perSecond: 60, median: 8 * ms, stragglers: 0.02, fails: true},
		{name: "orders", method: http.MethodPost, pattern: "/orders", path: "/orders", perSecond: 20, median: 10 * ms, stragglers: 0.04},
	}
}

// latency draws how long one request takes: lognormal around the median, with stragglers.
func (e *endpoint) latency() time.Duration {
	d := float64(e.median) * math.Exp(0.3*rand.NormFloat64()) //nolint:gosec // a simulation, not a secret
	if chance(e.stragglers) {
		d *= 10
	}
	return time.Duration(d)
}

// chance reports true with probability p.
func chance(p float64) bool {
	return rand.Float64() < p //nolint:gosec // a simulation, not a secret
}

// orderHeader tells the server which order a request is for.
const orderHeader = "Order-Id"

// A server is one instance of the service.
type server struct {
	url  string
	host string // as in hedgerow.EndpointKey
	http *http.Server
	done chan struct{} // closed when it has stopped

	mu         sync.Mutex // guards the fields below
	failing    time.Time  // when the endpoints that fail begin to
	recovered  time.Time  // and when they end
	requests   map[string]int
	orders     map[string]bool
	duplicates int
}

// startServer starts a server on a free loopback port.
func startServer(ctx context.Context) (*server, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{
		url:      "http://" + l.Addr().String(),
		host:     l.Addr().String(),
		done:     make(chan struct{}),
		requests: make(map[string]int),
		orders:   make(map[string]bool),
	}
	mux := http.NewServeMux()
	for _, e := range service() {
		mux.HandleFunc(e.method+" "+e.pattern, func(w http.ResponseWriter, r *http.Request) { s.serve(&e, w, r) })
	}
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(s.done)
		_ = s.http.Serve(l) // until close; if it ended before, every call would fail and show it
	}()
	return s, nil
}

func (s *server) close() {
	_ = s.http.Close() // it serves nobody any more
	<-s.done
}

// fail makes the endpoints that fail do so from an instant on, for a while.
func (s *server) fail(start time.Time, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing, s.recovered = start, start.Add(d)
}

// serve answers one request. Nine of ten fail in an outage, and slowly: those are the calls that ask for hedges.
func (s *server) serve(e *endpoint, w http.ResponseWriter, r *http.Request) {
	outage := s.enter(e, r)
	d, status := e.latency(), http.StatusOK
	if outage && chance(0.9) {
		d, status = 5*e.median+d, http.StatusInternalServerError
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		w.WriteHeader(status)
		_, _ = w.Write([]byte(e.name)) // the client may be gone
	case <-r.Context().Done(): // a hedge has won elsewhere: no work for nobody
	}
}

// enter counts a request, and reports whether its endpoint is in an outage.
func (s *server) enter(e *endpoint, r *http.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[e.name]++
	if id := r.Header.Get(orderHeader); id != "" {
		if s.orders[id] {
			s.duplicates++
		}
		s.orders[id] = true
	}
	now := time.Now()
	return e.fails && !now.Before(s.failing) && now.Before(s.recovered)
}

// seen returns how many requests the server got for an endpoint.
func (s *server) seen(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[name]
}

// ordersSeenTwice returns how many requests were for an order that had arrived before.
func (s *server) ordersSeenTwice() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.duplicates
}
