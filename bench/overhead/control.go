package main

import (
	"context"
	"io"
	"math/bits"
	"net/http"
	"sync"
	"time"
)

// A control gives each call a context of its own, which ends with the response body, and if it has a delay a timer, which
// does nothing. A hedger can do no less.
type control struct {
	base  http.RoundTripper
	delay time.Duration // zero: no timer
}

type controlBody struct {
	io.ReadCloser

	cancel context.CancelFunc
}

// RoundTrip implements [http.RoundTripper].
func (c control) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	if c.delay > 0 {
		defer time.AfterFunc(c.delay, func() {}).Stop()
	}
	resp, err := c.base.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &controlBody{resp.Body, cancel}
	return resp, nil
}

// Close closes the body and ends the context.
func (b *controlBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// A learner does the least that a call costs which could be hedged and is not, if the delay of its host is learned and the
// hedges have a budget: the host is looked up, the timer's goroutine could begin a race, the budget is refilled, and the
// clock is read twice to add to a histogram. It never hedges.
type learner struct {
	base http.RoundTripper

	mu    sync.RWMutex // guards the field below
	hosts map[string]*learned
}

// learned is what is kept of a host.
type learned struct {
	mu     sync.Mutex // guards the fields below
	budget float64
	delay  time.Duration
	counts [64]int // of latencies, by their magnitude
}

// A duel is a call of a learner.
type duel struct {
	mu     sync.Mutex // guards the two fields below
	over   bool
	hedged bool

	cancel context.CancelCauseFunc
	body   io.ReadCloser
}

func newLearner(base http.RoundTripper) *learner {
	return &learner{base: base, hosts: make(map[string]*learned)}
}

// RoundTrip implements [http.RoundTripper].
func (l *learner) RoundTrip(req *http.Request) (*http.Response, error) {
	start := time.Now()
	host := l.host(req.URL.Host)
	ctx, cancel := context.WithCancelCause(req.Context())
	d := &duel{cancel: cancel}
	timer := time.AfterFunc(host.enter(), d.fire)
	resp, err := l.base.RoundTrip(req.WithContext(ctx))
	timer.Stop()
	d.end()
	host.leave(time.Since(start))
	if err != nil {
		cancel(nil)
		return nil, err
	}
	d.body = resp.Body
	resp.Body = d
	return resp, nil
}

func (l *learner) host(name string) *learned {
	l.mu.RLock()
	h := l.hosts[name]
	l.mu.RUnlock()
	if h != nil {
		return h
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hosts[name] == nil {
		l.hosts[name] = &learned{delay: neverDue}
	}
	return l.hosts[name]
}

// enter refills the budget, and returns the delay.
func (h *learned) enter() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.budget = min(h.budget+share, 10)
	return h.delay
}

// leave takes in the latency of a call.
func (h *learned) leave(took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[bits.Len64(uint64(max(took, 0)))&63]++
}

// fire begins the race, if it is not over.
func (d *duel) fire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hedged = !d.over
}

func (d *duel) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
}

// Read reads the body of the response.
func (d *duel) Read(p []byte) (int, error) { return d.body.Read(p) }

// Close closes the body of the response, and ends the context of its attempt.
func (d *duel) Close() error {
	defer d.cancel(nil)
	return d.body.Close()
}
