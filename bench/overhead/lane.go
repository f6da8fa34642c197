package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// A lane is a contender at work in a setting: its calls all go over one base of its own.
type lane struct {
	s     setting
	rt    http.RoundTripper
	url   string
	plain *http.Transport // nil: the base is another one
	noop  *service        // nil: the base is a server

	dials atomic.Int64 // connections opened
	ids   atomic.Int64 // of calls, where hedges fire: the server has to tell one call from the other
}

// newLane returns a lane of the contender. Its requests to a server go to a path that begins with name.
func newLane(s setting, c contender, address, name string) (*lane, error) {
	l := &lane{s: s, url: "http://bench.test/v1/users/17"}
	var b http.RoundTripper
	switch s.Base {
	case noop:
		l.noop, l.plain = &service{}, &http.Transport{}
		l.plain.RegisterProtocol("http", l.noop)
		b = l.plain
	case unknown:
		l.noop = &service{}
		b = l.noop
	case http1, http2:
		l.url = "http://" + address + "/" + name + "/"
		l.plain = l.transport()
		b = l.plain
	default:
		return nil, fmt.Errorf("no such base: %s", s.Base)
	}
	rt, err := c.wrap(b, s.delay())
	if err != nil {
		return nil, err
	}
	l.rt = rt
	return l, nil
}

// transport returns an http.Transport that counts its connections and keeps all of them.
func (l *lane) transport() *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(l.s.Base == http1)
	protocols.SetUnencryptedHTTP2(l.s.Base == http2)
	dialer := net.Dialer{}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err == nil {
				l.dials.Add(1)
			}
			return conn, err
		},
		MaxIdleConnsPerHost: 4*l.s.Goroutines + 64,
		Protocols:           &protocols,
	}
}

// A caller makes calls one after the other and reads each response to its end. The requests have no headers of their
// own and a context that cannot be cancelled.
type caller struct {
	lane *lane
	req  *http.Request
	buf  [2048]byte
}

func (l *lane) newCaller() (*caller, error) {
	req, err := http.NewRequestWithContext(context.Background(), l.s.Method, l.url, nil)
	if err != nil {
		return nil, err
	}
	return &caller{lane: l, req: req}, nil
}

func (c *caller) call() error {
	req := c.req
	if c.lane.s.Fires {
		u := *req.URL
		u.Path += strconv.FormatInt(c.lane.ids.Add(1), 10)
		req = req.WithContext(req.Context())
		req.URL = &u
	}
	resp, err := c.lane.rt.RoundTrip(req)
	if err != nil {
		return err
	}
	for err == nil {
		_, err = resp.Body.Read(c.buf[:])
	}
	_ = resp.Body.Close()
	if err != io.EOF { //nolint:errorlint // io.Reader's contract is about this very value
		return fmt.Errorf("reading the response: %w", err)
	}
	return nil
}

// work makes that many calls in the goroutines of the setting, and notes how long each took if there is room for it.
func (l *lane) work(calls int, took []time.Duration) error {
	var next atomic.Int64
	loop := func() error {
		c, err := l.newCaller()
		for err == nil {
			k := next.Add(1) - 1
			if k >= int64(calls) {
				break
			}
			if took == nil {
				err = c.call()
				continue
			}
			start := time.Now()
			err = c.call()
			took[k] = time.Since(start)
		}
		return err
	}
	if l.s.Goroutines == 1 {
		return loop()
	}
	var group sync.WaitGroup
	failed := make(chan error, l.s.Goroutines)
	for range l.s.Goroutines {
		group.Go(func() {
			if err := loop(); err != nil {
				failed <- err
			}
		})
	}
	group.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// warm opens connections and fills pools. The first call is alone, so that HTTP/2 has its connection.
func (l *lane) warm() error {
	if err := l.work(1, nil); err != nil {
		return err
	}
	return l.work(max(l.s.Calls/10, 4*l.s.Goroutines), nil)
}

// A sample is one round of one contender. What is not a latency is per call, but for connections and requests.
type sample struct {
	Nanoseconds float64 `json:"ns"`
	CPU         float64 `json:"cpu_ns"` // of the client's process; zero: unknown
	Allocs      float64 `json:"allocs"`
	Bytes       float64 `json:"bytes"`
	Dials       int64   `json:"connections"`
	Requests    int64   `json:"requests"` // that the base got
	P50         float64 `json:"p50_ns"`   // zero: not measured
	P99         float64 `json:"p99_ns"`
}

// measure makes the calls of a round.
func (l *lane) measure() (sample, error) {
	var took []time.Duration
	if l.s.Base.network() {
		took = make([]time.Duration, l.s.Calls)
	}
	dials, requests := l.dials.Load(), l.served()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, start := cpuTime(), time.Now()
	if err := l.work(l.s.Calls, took); err != nil {
		return sample{}, err
	}
	elapsed, used := time.Since(start), cpuTime()-cpu
	runtime.ReadMemStats(&after)

	calls := float64(l.s.Calls)
	m := sample{
		Nanoseconds: float64(elapsed) / calls,
		CPU:         float64(used) / calls,
		Allocs:      float64(after.Mallocs-before.Mallocs) / calls,
		Bytes:       float64(after.TotalAlloc-before.TotalAlloc) / calls,
		Dials:       l.dials.Load() - dials,
		Requests:    l.served() - requests,
	}
	if took != nil {
		slices.Sort(took)
		m.P50, m.P99 = float64(took[len(took)/2]), float64(took[len(took)*99/100])
	}
	return m, nil
}

// served returns the requests that the no-op base got; zero if it is a server, which counts for itself.
func (l *lane) served() int64 {
	if l.noop == nil {
		return 0
	}
	return l.noop.requests.Load()
}

// A rest is what a process holds when its calls have ended.
type rest struct {
	Dials      int64 `json:"connections"` // opened from its start
	Goroutines int   `json:"goroutines"`  // held, beyond those it started with
}

// settles is how long goroutines that are about to end may take to do so.
const settles = 200 * time.Millisecond

// rest ends what the base holds and looks at what is left.
func (l *lane) rest(before int) rest {
	if l.plain != nil {
		l.plain.CloseIdleConnections()
	}
	for end := time.Now().Add(settles); runtime.NumGoroutine() > before && time.Now().Before(end); {
		time.Sleep(settles / 20)
	}
	runtime.GC()
	return rest{Dials: l.dials.Load(), Goroutines: runtime.NumGoroutine() - before}
}
