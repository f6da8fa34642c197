package scripted

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Body is a tracked request or response body. As with those of net/http, a read that was under way when it was closed,
// and every one after, fails with [http.ErrBodyReadAfterClose].
type Body struct {
	// Kind is "request" or "response".
	Kind string

	inner io.ReadCloser
	first func() error // waits before the first read
	cause func() error // of its context's end; nil while that lives
	wake  func()       // ends the wait of first

	reads, lateReads, closes atomic.Int64
}

// Reads returns the number of reads so far, including those after Close.
func (b *Body) Reads() int { return int(b.reads.Load()) }

// ReadsAfterClose returns the number of reads that began after the first Close.
func (b *Body) ReadsAfterClose() int { return int(b.lateReads.Load()) }

// Closes returns the number of calls of Close so far.
func (b *Body) Closes() int { return int(b.closes.Load()) }

// Read reads from the body.
func (b *Body) Read(p []byte) (int, error) {
	b.reads.Add(1)
	if b.closes.Load() > 0 {
		b.lateReads.Add(1)
		return 0, http.ErrBodyReadAfterClose
	}
	if err := b.first(); err != nil {
		return 0, err
	}
	if err := b.cause(); err != nil {
		return 0, err
	}
	return b.inner.Read(p)
}

// Close closes the body.
func (b *Body) Close() error {
	b.closes.Add(1)
	b.wake()
	return b.inner.Close()
}

// upgraded is the body of a 101.
type upgraded struct {
	*Body
	io.Writer
}

func (s *Transport) track(ctx context.Context, kind string, inner io.ReadCloser, after time.Duration) io.ReadCloser {
	if inner == http.NoBody {
		return inner
	}
	closed := make(chan struct{})
	b := &Body{
		Kind:  kind,
		inner: inner,
		first: sync.OnceValue(func() error { return sleep(ctx, after, closed) }),
		cause: func() error { return context.Cause(ctx) },
		wake:  sync.OnceFunc(func() { close(closed) }),
	}
	s.mu.Lock()
	s.bodies = append(s.bodies, b)
	s.mu.Unlock()
	if w, ok := inner.(io.Writer); ok {
		return upgraded{b, w}
	}
	return b
}

// NewRequest returns a request with tb's context whose body, and each that GetBody makes, is tracked; "" means none.
func (s *Transport) NewRequest(tb testing.TB, method, url, body string) *http.Request {
	tb.Helper()
	req, err := http.NewRequestWithContext(tb.Context(), method, url, strings.NewReader(body))
	if err != nil {
		tb.Fatalf("scripted: %v", err)
	}
	if body == "" {
		return req
	}
	// The context ends attempts, not the reading of what the caller holds in memory.
	ctx := context.WithoutCancel(tb.Context())
	req.GetBody = func() (io.ReadCloser, error) {
		return s.track(ctx, "request", io.NopCloser(strings.NewReader(body)), 0), nil
	}
	req.Body = s.track(ctx, "request", io.NopCloser(strings.NewReader(body)), 0)
	return req
}

// sleep waits for d or until ctx ends or closed is closed, whichever is first.
func sleep(ctx context.Context, d time.Duration, closed <-chan struct{}) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-closed:
		return http.ErrBodyReadAfterClose
	}
}
