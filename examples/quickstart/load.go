package main

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// callTimeout ends a call, and so bounds how many are in flight.
const callTimeout = 5 * time.Second

// An arrival is one call that both callers make.
type arrival struct {
	at       time.Duration // from the start
	endpoint int
}

// schedule draws the calls of all endpoints within a duration, in order. They arrive at random, as those of many users
// do, and do not wait for each other: a slow service makes a backlog, not fewer calls.
func schedule(endpoints []endpoint, duration time.Duration) []arrival {
	var all []arrival
	for i, e := range endpoints {
		gap := float64(time.Second) / e.perSecond
		for at := 0.0; ; {
			at += gap * rand.ExpFloat64() //nolint:gosec // a simulation, not a secret
			if at >= float64(duration) {
				break
			}
			all = append(all, arrival{at: time.Duration(at), endpoint: i})
		}
	}
	slices.SortFunc(all, func(a, b arrival) int { return int(a.at - b.at) })
	return all
}

// makeCalls has every caller make the calls when they are due, and returns when all have ended. Once ctx ends no more
// are made.
func makeCalls(ctx context.Context, start time.Time, arrivals []arrival, callers []*caller) {
	var calls sync.WaitGroup
	defer calls.Wait()
	for n, a := range arrivals {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(start.Add(a.at))):
		}
		for _, c := range callers {
			calls.Go(func() { c.call(ctx, n, a.endpoint) })
		}
	}
}

// A caller makes calls through one client to one server, and measures them.
type caller struct {
	name      string
	client    *http.Client
	server    *server
	endpoints []endpoint

	mu       sync.Mutex // guards the field below
	measured []measurement
}

// A measurement is what a caller saw of one endpoint.
type measurement struct {
	latencies []time.Duration // of all calls, also of those that failed
	errors    int             // errors and 5xx
}

func newCaller(name string, client *http.Client, s *server, endpoints []endpoint) *caller {
	return &caller{
		name: name, client: client, server: s, endpoints: endpoints,
		measured: make([]measurement, len(endpoints)),
	}
}

// call makes call n, to endpoint i. It ends in its own time, also when ctx does before.
func (c *caller) call(ctx context.Context, n, i int) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()

	start := time.Now()
	err := c.fetch(ctx, n, &c.endpoints[i])
	latency := time.Since(start)

	c.mu.Lock()
	defer c.mu.Unlock()
	m := &c.measured[i]
	m.latencies = append(m.latencies, latency)
	if err != nil {
		m.errors++
	}
}

// fetch sends call n and reads the response.
func (c *caller) fetch(ctx context.Context, n int, e *endpoint) error {
	var body io.Reader
	if e.method == http.MethodPost {
		body = strings.NewReader(`{"item": "rose"}`)
	}
	req, err := http.NewRequestWithContext(ctx, e.method, c.server.url+e.path, body)
	if err != nil {
		return err
	}
	if e.method == http.MethodPost {
		req.Header.Set(orderHeader, strconv.Itoa(n))
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	if _, err = io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusInternalServerError {
		return errors.New(resp.Status)
	}
	return nil
}

// results returns what was measured so far, by endpoint.
func (c *caller) results() []measurement {
	c.mu.Lock()
	defer c.mu.Unlock()
	ms := slices.Clone(c.measured)
	for i := range ms {
		ms[i].latencies = slices.Clone(ms[i].latencies)
	}
	return ms
}
