package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A key is one of the provider's.
type key struct {
	id, secret string
	tier       int
	limit      int // requests per window
	revoked    bool
}

// A tally is what the provider has seen of a key.
type tally struct{ served, limited, refused int }

// A provider serves completions, to those who have a key that may.
type provider struct {
	url, host string
	http      *http.Server
	done      chan struct{} // closed when it has stopped
	window    time.Duration
	start     time.Time
	keys      map[string]key // by secret

	mu      sync.Mutex // guards the fields below
	current int        // number of the window
	used    map[string]int
	tallies map[string]tally
	cut     int // streams that their client has given up
	streams int // running
}

// startProvider starts a provider on a free loopback port.
func startProvider(ctx context.Context, keys []key, window time.Duration) (*provider, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &provider{
		url: "http://" + l.Addr().String(), host: l.Addr().String(), done: make(chan struct{}), window: window,
		start: time.Now(), keys: make(map[string]key), used: make(map[string]int), tallies: make(map[string]tally),
	}
	for _, k := range keys {
		p.keys[k.secret] = k
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", p.serve)
	p.http = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(p.done)
		_ = p.http.Serve(l) // until close
	}()
	return p, nil
}

func (p *provider) close() {
	_ = p.http.Close() // it serves nobody any more
	<-p.done
}

// serve answers one request: with 401 without a good key, with 429 and the time to wait beyond its limit.
func (p *provider) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		return
	}
	k, known := p.keys[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	if !known || k.revoked {
		p.count(k.id, func(t *tally) { t.refused++ })
		fail(w, http.StatusUnauthorized, "invalid_api_key")
		return
	}
	left, reset := p.take(k)
	h := w.Header()
	h.Set("X-Ratelimit-Limit-Requests", strconv.Itoa(k.limit))
	h.Set("X-Ratelimit-Remaining-Requests", strconv.Itoa(max(left, 0)))
	if left < 0 {
		p.count(k.id, func(t *tally) { t.limited++ })
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(reset.Seconds()))))
		fail(w, http.StatusTooManyRequests, "rate_limit_exceeded")
		return
	}
	p.count(k.id, func(t *tally) { t.served++ })
	if strings.Contains(string(body), `"stream": true`) {
		p.stream(w, r)
		return
	}
	if pause(r.Context(), 30*time.Millisecond) {
		h.Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices": [{"message": {"content": "A rose is a rose."}}]}`) // the client may be gone
	}
}

// stream sends a token now and then until all are sent, or the client goes.
func (p *provider) stream(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.streams++
	p.mu.Unlock()
	cut := false
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.streams--
		if cut {
			p.cut++
		}
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	for n := range 100 {
		if _, err := fmt.Fprintf(w, "data: {\"token\": %d}\n\n", n); err != nil {
			cut = true
			return
		}
		_ = http.NewResponseController(w).Flush() // the next write tells
		if !pause(r.Context(), 20*time.Millisecond) {
			cut = true
			return
		}
	}
}

// settle waits for streams whose client has gone, so long at most.
func (p *provider) settle(most time.Duration) {
	for end := time.Now().Add(most); time.Now().Before(end); time.Sleep(time.Millisecond) {
		p.mu.Lock()
		streams := p.streams
		p.mu.Unlock()
		if streams == 0 {
			return
		}
	}
}

// take takes one request of the key's window. It returns how many are left, below 0 if there was none, and how long the
// window lasts.
func (p *provider) take(k key) (left int, reset time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := time.Since(p.start)
	if n := int(at / p.window); n > p.current {
		p.current = n
		clear(p.used)
	}
	reset = p.window - at%p.window
	if p.used[k.id] >= k.limit {
		return -1, reset
	}
	p.used[k.id]++
	return k.limit - p.used[k.id], reset
}

func (p *provider) count(id string, add func(*tally)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.tallies[id]
	add(&t)
	p.tallies[id] = t
}

// seen returns what was seen of a key, and how many streams were cut.
func (p *provider) seen(id string) (t tally, cut int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tallies[id], p.cut
}

// pause waits, and reports whether the client is still there.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// fail answers with an error in the form that SDKs know.
func fail(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"error": {"code": %q}}`, code) // the client may be gone
}
