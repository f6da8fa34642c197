package hedgerow_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// hostServer is a server on a loopback socket that counts its connections.
type hostServer struct {
	*httptest.Server

	conns atomic.Int64
}

func newHostServer(t *testing.T, http2 bool, handler http.HandlerFunc) *hostServer {
	t.Helper()
	s := &hostServer{Server: httptest.NewUnstartedServer(handler)}
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.conns.Add(1)
		}
	}
	if http2 {
		s.EnableHTTP2 = true
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// transport returns a transport to the server, which the test may change before its first request.
func (s *hostServer) transport(t *testing.T) *http.Transport {
	t.Helper()
	tr, ok := s.Client().Transport.(*http.Transport)
	require.True(t, ok)
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// hostGet returns a GET whose context ends in good time, should it hang.
func hostGet(t *testing.T, url string) *http.Request {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	return req
}

// hostCount counts the calls of the transport that it is.
type hostCount struct {
	http.RoundTripper

	calls atomic.Int64
}

func (c *hostCount) RoundTrip(req *http.Request) (*http.Response, error) {
	c.calls.Add(1)
	return c.RoundTripper.RoundTrip(req)
}

// With one connection a hedge waits in line behind its primary, and must neither keep it nor lose it.
func TestC73OneConnectionPerHost(t *testing.T) {
	t.Parallel()
	srv := newHostServer(t, false, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			time.Sleep(60 * time.Millisecond)
		}
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, strings.Repeat("x", 100))
	})
	base := srv.transport(t)
	base.MaxConnsPerHost = 1
	tr := craceNew(t, hedgerow.Config{
		Base:  base,
		Hedge: hedgerow.HedgeConfig{Delay: 20 * time.Millisecond, MaxHedges: 2, Accept: func(*http.Response) bool { return true }},
	})
	for range 5 {
		a := craceCall(tr, hostGet(t, srv.URL+"/slow"))
		require.NoError(t, a.Err)
		require.Len(t, a.Body, 100)
		a = craceCall(tr, hostGet(t, srv.URL+"/"))
		require.NoError(t, a.Err)
		require.Less(t, a.At, 5*time.Second)
	}
}

// A losing 429 gives its connection up while the call it belongs to still waits: the next call needs it.
func TestC73LosingResponseFreesItsConnection(t *testing.T) {
	t.Parallel()
	var seen atomic.Int64
	release := make(chan struct{})
	srv := newHostServer(t, false, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/next":
		case r.Header.Get("X-Attempt") == "primary":
			seen.Add(1)
			<-release
		default:
			seen.Add(1)
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, strings.Repeat("x", 100))
		}
	})
	base := srv.transport(t)
	base.MaxConnsPerHost = 2
	tr := craceNew(t, hedgerow.Config{Base: contractMark{base}, Hedge: hedgerow.HedgeConfig{Delay: 20 * time.Millisecond}})
	first := make(chan craceAnswer, 1)
	req := hostGet(t, srv.URL)
	go func() { first <- craceCall(tr, req) }()
	require.Eventually(t, func() bool { return seen.Load() == 2 }, 10*time.Second, time.Millisecond)
	a := craceCall(tr, hostGet(t, srv.URL+"/next"))
	require.NoError(t, a.Err)
	require.EqualValues(t, 2, srv.conns.Load(), "the small body was drained, and its connection used again")
	close(release)
	require.Equal(t, 200, (<-first).Status)
}

// What is read of a losing response is little, in bytes and in time, whatever its body does.
func TestC74DrainIsBounded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		body func() *craceStream
	}{
		{"never comes", func() *craceStream { return newCraceStream(time.Hour, 1, false) }},
		{"a byte per second", func() *craceStream { return newCraceStream(time.Second, 1, false) }},
		{"a byte per millisecond", func() *craceStream { return newCraceStream(time.Millisecond, 1, false) }},
		{"a flood", func() *craceStream { return newCraceStream(0, 1<<20, false) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			craceModes(t, func(t *testing.T, detach bool) {
				t.Helper()
				body := tt.body()
				base := scripted.New(
					scripted.Step{After: 3 * time.Second, Body: "fine"}, scripted.Step{Status: 503, BodyReader: body})
				tr := craceNew(t, hedgerow.Config{Base: base, Detach: detach})
				req := base.NewRequest(t, http.MethodGet, craceURL, "")
				closed := make(chan time.Duration, 1)
				start := time.Now()
				go func() {
					<-body.closed
					closed <- time.Since(start)
				}()
				require.Equal(t, craceAnswer{Status: 200, Body: "fine", At: 3 * time.Second}, craceCall(tr, req))
				require.LessOrEqual(t, body.total(), 64<<10)
				require.LessOrEqual(t, <-closed, time.Second+10*time.Millisecond)
				synctest.Wait()
				base.Check(t)
			})
		})
	}
}

// The caller waits for no losing body, also when its headers end the race.
func TestC74DrainIsOffTheCallersPath(t *testing.T) {
	t.Parallel()
	for _, deaf := range []bool{false, true} {
		t.Run(fmt.Sprintf("deaf=%t", deaf), func(t *testing.T) {
			t.Parallel()
			craceModes(t, func(t *testing.T, detach bool) {
				t.Helper()
				base := scripted.New(
					scripted.Step{After: 1500 * time.Millisecond, Err: errCrace},
					scripted.Step{After: time.Second, Status: 503, BodyReader: newCraceStream(time.Hour, 1, deaf)})
				tr := craceNew(t, hedgerow.Config{Base: base, Detach: detach})
				require.Equal(t, craceAnswer{Err: errCrace, At: 2 * time.Second},
					craceCall(tr, base.NewRequest(t, http.MethodGet, craceURL, "")))
				time.Sleep(2 * time.Hour)
				base.Check(t)
			})
		})
	}
}

// A documented limit of net/http: a dial that hangs keeps its place among the connections of the host, also after its
// call was cancelled. So the next call waits for it, and gets through when it ends; nothing here makes that worse.
func TestC76HangingDial(t *testing.T) {
	t.Parallel()
	srv := newHostServer(t, false, func(http.ResponseWriter, *http.Request) {})
	base := srv.transport(t)
	base.MaxConnsPerHost = 1
	release := make(chan struct{})
	var dials atomic.Int64
	base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials.Add(1) == 1 {
			<-release // deaf to its context, as some resolvers are
			return nil, errCrace
		}
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}
	tr := craceNew(t, hedgerow.Config{Base: base, Hedge: hedgerow.HedgeConfig{Delay: 10 * time.Millisecond}})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	a := craceCall(tr, hostGet(t, srv.URL).WithContext(ctx))
	require.ErrorIs(t, a.Err, context.DeadlineExceeded)
	require.Less(t, a.At, 5*time.Second, "the caller is not held")
	time.AfterFunc(50*time.Millisecond, func() { close(release) })
	require.Equal(t, 200, craceCall(tr, hostGet(t, srv.URL)).Status)
}

// Over HTTP/2 a hedge that loses costs a stream, not the connection.
func TestC77LosersKeepTheirConnection(t *testing.T) {
	t.Parallel()
	var begun, reset atomic.Int64
	srv := newHostServer(t, true, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Slow") != "" {
			begun.Add(1)
			<-r.Context().Done() // by the RST_STREAM of a loser
			reset.Add(1)
			return
		}
		_, _ = io.WriteString(w, r.Proto)
	})
	base := roundTripper(func(req *http.Request) (*http.Response, error) {
		if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Number == 0 && req.URL.Path == "/slow" {
			req.Header.Set("X-Slow", "1")
		}
		return srv.transport(t).RoundTrip(req)
	})
	tr := craceNew(t, hedgerow.Config{Base: base, Hedge: hedgerow.HedgeConfig{Delay: time.Millisecond}})
	// Both attempts of a first call would dial.
	require.NoError(t, craceCall(srv.transport(t), hostGet(t, srv.URL)).Err)
	for range 100 {
		a := craceCall(tr, hostGet(t, srv.URL+"/slow"))
		require.NoError(t, a.Err)
		require.Equal(t, "HTTP/2.0", a.Body)
	}
	require.EqualValues(t, 100, tr.Stats().Total.HedgeWins)
	require.EqualValues(t, 1, srv.conns.Load())
	require.Greater(t, begun.Load(), int64(50), "some lose before their headers are sent")
	require.Eventually(t, func() bool { return reset.Load() == begun.Load() }, 10*time.Second, time.Millisecond)
}

// hostIdle is a base that counts how often its idle connections are closed.
type hostIdle struct {
	http.RoundTripper

	closed int
}

func (i *hostIdle) CloseIdleConnections() { i.closed++ }

func TestC79CloseIdleConnections(t *testing.T) {
	t.Parallel()
	base := &hostIdle{}
	inner := craceNew(t, hedgerow.Config{Base: base})
	(&http.Client{Transport: craceNew(t, hedgerow.Config{Base: inner})}).CloseIdleConnections()
	require.Equal(t, 1, base.closed)
	// Without the method there is nothing to do.
	craceNew(t, hedgerow.Config{Base: roundTripper(nil)}).CloseIdleConnections()
}

func TestC79IdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	srv := newHostServer(t, false, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") })
	tr := craceNew(t, hedgerow.Config{Base: srv.transport(t)})
	client := &http.Client{Transport: tr}
	for i := range 3 {
		require.Equal(t, "x", craceCall(tr, hostGet(t, srv.URL)).Body)
		require.EqualValues(t, i+1, srv.conns.Load())
		client.CloseIdleConnections()
	}
}

func TestC98Unwrap(t *testing.T) {
	t.Parallel()
	before := http.DefaultTransport
	base := &http.Transport{}
	tr, err := hedgerow.New(hedgerow.Config{Base: base})
	require.NoError(t, err)
	var rt http.RoundTripper = tr
	w, ok := rt.(interface{ Unwrap() http.RoundTripper })
	require.True(t, ok)
	require.Same(t, base, w.Unwrap())

	tr, err = hedgerow.New(hedgerow.Config{})
	require.NoError(t, err)
	require.Same(t, before, tr.Unwrap())
	require.Same(t, before, http.DefaultTransport)
}

// No file of the package sets what belongs to the whole process.
func TestC98DefaultsAreLeftAlone(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		src, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NotRegexp(t, `http\.Default\w+ =[^=]`, string(src), file)
	}
}
