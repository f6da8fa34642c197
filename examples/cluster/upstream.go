package main

import (
	"context"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// writeHeader tells the upstreams which write a request is for.
const writeHeader = "Write-Id"

// A bulk is what the cluster has written.
type bulk struct {
	mu   sync.Mutex     // guards the field below
	seen map[string]int // how often, by write
}

func (b *bulk) write(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen[id]++
}

// twice returns how many writes came more than once.
func (b *bulk) twice() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, times := range b.seen {
		if times > 1 {
			n++
		}
	}
	return n
}

// An upstream is a member of the cluster. Its methods are for one goroutine at a time.
type upstream struct {
	name    string
	addr    string // "": not started yet
	latency time.Duration
	bulk    *bulk

	http   *http.Server  // nil: it is dead
	done   chan struct{} // closed when it has stopped
	served atomic.Int64

	mu sync.Mutex // serialises start and die
}

// start starts the upstream: on a free loopback port the first time, then on the same one.
func (u *upstream) start(ctx context.Context) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	addr := u.addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{index}/_search", u.search)
	mux.HandleFunc("POST /_bulk", u.write)
	server, done := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}, make(chan struct{})
	u.addr, u.http, u.done = l.Addr().String(), server, done
	go func() {
		defer close(done)
		_ = server.Serve(l) // until it dies
	}()
	return nil
}

// die ends the upstream with all its connections, as a crash does.
func (u *upstream) die() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.http == nil {
		return
	}
	_ = u.http.Close() // it is to be dead
	<-u.done
	u.http = nil
}

func (u *upstream) search(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	if !pause(r.Context(), u.draw()) {
		return // a hedge has won elsewhere
	}
	u.served.Add(1)
	_, _ = io.WriteString(w, `{"hits": {"total": 1}}`) // the client may be gone
}

func (u *upstream) write(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	u.bulk.write(r.Header.Get(writeHeader))
	u.served.Add(1)
	if pause(r.Context(), u.draw()) {
		_, _ = io.WriteString(w, `{"errors": false}`) // the client may be gone
	}
}

// draw draws how long one request takes: lognormal around the upstream's latency.
func (u *upstream) draw() time.Duration {
	return time.Duration(float64(u.latency) * math.Exp(0.3*rand.NormFloat64())) //nolint:gosec // a simulation, not a secret
}
