// Package scripted is an [http.RoundTripper] that plays a script instead of calling anyone, and keeps account of what
// was sent and of every body.
//
//	base := scripted.New(
//		scripted.Step{After: time.Second, Status: http.StatusOK, Body: "slow"}, // the first attempt
//		scripted.Step{After: 10 * time.Millisecond, Body: "fast"},             // the second
//	)
//	req := base.NewRequest(t, http.MethodPost, "http://api.test/", "payload")
//	...
//	synctest.Wait() // for what the call left running
//	base.Check(t)
//
// It waits by time.Sleep's clock, so inside a [testing/synctest] bubble a script takes no time. Outside one it works too.
package scripted

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Step says how one attempt goes. The zero value answers 200 without content, at once.
//
// As a network would, an attempt first reads the request's body to its end and closes it, then waits for After; a
// request body that fails ends it with that error. It obeys its request's context throughout, the response's body
// included: what is cancelled fails with the context's cause.
type Step struct {
	// After is the wait before the outcome.
	After time.Duration
	// IgnoreContext makes the attempt and its body deaf to their context.
	IgnoreContext bool
	// LeaveBody closes the request's body without reading it, as a server does that answers early.
	LeaveBody bool

	// Status is the response's status; zero means 200.
	Status int
	// Header is the response's header; it is copied.
	Header http.Header
	// Body is the content of the response.
	Body string
	// BodyReader replaces Body; a read that blocks in it is not interrupted by the context. If it is an io.Writer, so is
	// the response's body, as after a 101. http.NoBody is handed out as it is, and not tracked.
	BodyReader io.ReadCloser
	// BodyAfter is the wait before the first read of the response's body.
	BodyAfter time.Duration

	// Err is the attempt's error. With a Status both are returned, which a RoundTripper should not do.
	Err error
	// Panic, if not nil, is panicked with.
	Panic any
	// Goexit ends the goroutine.
	Goexit bool
	// Do replaces everything but After, IgnoreContext and the closing of the request's body, which it may read. The
	// body of its response is tracked.
	Do func(*http.Request) (*http.Response, error)
}

// Transport is the scripted RoundTripper. It may be used concurrently.
type Transport struct {
	script func(attempt int, req *http.Request) (Step, bool)

	mu      sync.Mutex // guards the fields below; never held during an attempt
	records []*Record
	bodies  []*Body
	unknown int // attempts beyond the script
}

// New returns a Transport whose attempts, counted over all calls in the order in which they begin, go by steps. An
// attempt beyond the last step fails, and so does [Transport.Check].
func New(steps ...Step) *Transport {
	return &Transport{script: func(attempt int, _ *http.Request) (Step, bool) {
		if attempt >= len(steps) {
			return Step{}, false
		}
		return steps[attempt], true
	}}
}

// Func returns a Transport that asks f for the step of each attempt, counted from 0 over all calls in the order in which
// they begin. It is called concurrently, in the attempt's goroutine, and must not touch the request's body.
func Func(f func(attempt int, req *http.Request) Step) *Transport {
	return &Transport{script: func(attempt int, req *http.Request) (Step, bool) { return f(attempt, req), true }}
}

// RoundTrip plays the next step.
func (s *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	attempt, rec := s.begin(req)
	closeBody := sync.OnceFunc(func() {
		if req.Body != nil {
			_ = req.Body.Close() // net/http ignores it as well
		}
	})
	defer func() { // also when the step panics or exits
		closeBody()
		s.end(req, rec)
	}()
	step, ok := s.script(attempt, req)
	if !ok {
		s.mu.Lock()
		s.unknown++
		s.mu.Unlock()
		return nil, fmt.Errorf("scripted: no step for attempt %d", attempt)
	}
	ctx := req.Context()
	if step.IgnoreContext {
		ctx = context.WithoutCancel(ctx)
	}
	if req.Body != nil && !step.LeaveBody && step.Do == nil {
		err := s.readBody(ctx, req.Body, rec)
		closeBody()
		if err != nil {
			return nil, err
		}
	}
	if err := sleep(ctx, step.After, nil); err != nil {
		return nil, err
	}
	return s.outcome(ctx, req, step)
}

func (s *Transport) outcome(ctx context.Context, req *http.Request, step Step) (*http.Response, error) {
	if step.Do != nil {
		resp, err := step.Do(req)
		if resp != nil && resp.Body != nil {
			resp.Body = s.track(ctx, "response", resp.Body, 0)
		}
		return resp, err
	}
	if step.Panic != nil {
		panic(step.Panic)
	}
	if step.Goexit {
		runtime.Goexit()
	}
	if step.Err != nil && step.Status == 0 {
		return nil, step.Err
	}
	resp := &http.Response{
		StatusCode:    step.Status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        step.Header.Clone(),
		ContentLength: int64(len(step.Body)),
		Request:       req,
	}
	if step.Status == 0 {
		resp.StatusCode = http.StatusOK
	}
	resp.Status = fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	if resp.Header == nil {
		resp.Header = make(http.Header)
	}
	body := io.NopCloser(strings.NewReader(step.Body))
	if step.BodyReader != nil {
		body = step.BodyReader
		resp.ContentLength = -1
	}
	resp.Body = s.track(ctx, "response", body, step.BodyAfter)
	return resp, step.Err
}

func (s *Transport) begin(req *http.Request) (attempt int, rec *Record) {
	rec = &Record{
		Request: req,
		Method:  req.Method,
		Header:  req.Header.Clone(),
		Start:   time.Now(),
	}
	if req.URL != nil {
		rec.URL = req.URL.String()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = append(s.records, rec)
	return len(s.records) - 1, rec
}

func (s *Transport) end(req *http.Request, rec *Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec.End = time.Now()
	rec.Cause = context.Cause(req.Context())
}

// readBody keeps what it reads in rec. A read that blocks is not interrupted, as with net/http over HTTP/1.1.
func (s *Transport) readBody(ctx context.Context, body io.Reader, rec *Record) error {
	var buf bytes.Buffer
	chunk := make([]byte, 4<<10)
	for {
		n, err := body.Read(chunk)
		buf.Write(chunk[:n])
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			s.mu.Lock()
			rec.Body = buf.Bytes()
			s.mu.Unlock()
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}
