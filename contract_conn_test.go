package hedgerow_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
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
		case seen.Add(1) == 1:
			<-release
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, strings.Repeat("x", 100))
		}
	})
	base := srv.transport(t)
	base.MaxConnsPerHost = 2
	tr := craceNew(t, hedgerow.Config{Base: base, Hedge: hedgerow.HedgeConfig{Delay: 20 * time.Millisecond}})
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
	base := ccanFunc(func(req *http.Request) (*http.Response, error) {
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

// hostRefusing is an HTTP/2 server that refuses the first stream of each connection, and answers 200 to the others.
func hostRefusing(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			serving.Go(func() { hostServeRefusing(c) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		serving.Wait()
	})
	return "http://" + ln.Addr().String()
}

// hostServeRefusing speaks as much of HTTP/2 as one client with one stream at a time needs.
func hostServeRefusing(c net.Conn) {
	defer func() { _ = c.Close() }()
	const (
		data, headers, rstStream, settings    = 0, 1, 3, 4
		endStream, ack, endHeaders            = 1, 1, 4
		refusedStream                         = 7
		prefaceLen, frameHeaderLen, settings0 = 24, 9, 0
	)
	r := bufio.NewReader(c)
	write := func(kind, flags byte, stream uint32, payload ...byte) {
		frame := []byte{0, 0, byte(len(payload)), kind, flags}
		frame = binary.BigEndian.AppendUint32(frame, stream)
		_, _ = c.Write(append(frame, payload...))
	}
	if _, err := r.Discard(prefaceLen); err != nil {
		return
	}
	write(settings, 0, settings0)
	refused := false
	for {
		var h [frameHeaderLen]byte
		if _, err := io.ReadFull(r, h[:]); err != nil {
			return
		}
		length := int(h[0])<<16 | int(h[1])<<8 | int(h[2])
		kind, flags, stream := h[3], h[4], binary.BigEndian.Uint32(h[5:])
		if _, err := r.Discard(length); err != nil {
			return
		}
		switch {
		case kind == settings && flags&ack == 0:
			write(settings, ack, 0)
		case (kind == headers || kind == data) && flags&endStream != 0 && !refused:
			refused = true
			write(rstStream, 0, stream, 0, 0, 0, refusedStream)
		case (kind == headers || kind == data) && flags&endStream != 0:
			write(headers, endStream|endHeaders, stream, 0x88) // :status: 200
		}
	}
}

// What http.Transport sends again by itself is one attempt for us, and its error is passed on as it is.
func TestC78RefusedStream(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		body  func(*http.Request)
		fault string
	}{
		{"no body", func(*http.Request) {}, ""},
		{"GetBody", func(r *http.Request) {
			r.Method = http.MethodPost
			r.ContentLength = 7
			r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("payload")), nil }
			r.Body, _ = r.GetBody()
		}, ""},
		{"no GetBody", func(r *http.Request) {
			r.Method = http.MethodPost
			r.ContentLength = 7
			r.Body = io.NopCloser(strings.NewReader("payload"))
		}, "define Request.GetBody"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var protocols http.Protocols
			protocols.SetUnencryptedHTTP2(true)
			wire := &http.Transport{Protocols: &protocols}
			t.Cleanup(wire.CloseIdleConnections)
			base := &hostCount{RoundTripper: wire}
			tr := craceNew(t, hedgerow.Config{Base: base, Hedge: hedgerow.HedgeConfig{Delay: time.Minute}})
			req := hostGet(t, hostRefusing(t))
			tt.body(req)
			a := craceCall(tr, req.WithContext(hedgerow.WithCall(req.Context(), hedgerow.Call{Idempotent: true})))
			if tt.fault == "" {
				require.Equal(t, 200, a.Status)
			} else {
				require.ErrorContains(t, a.Err, tt.fault)
				require.NotContains(t, a.Err.Error(), "hedgerow")
			}
			require.EqualValues(t, 1, base.calls.Load())
		})
	}
}

// A server that shuts down says GOAWAY. The calls go on over another connection, or fail like those of the bare transport.
func TestC78GoAway(t *testing.T) {
	t.Parallel()
	srv := newHostServer(t, true, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) })
	base := &hostCount{RoundTripper: srv.transport(t)}
	tr := craceNew(t, hedgerow.Config{Base: base})
	require.Equal(t, "HTTP/2.0", craceCall(tr, hostGet(t, srv.URL)).Body)
	require.NoError(t, srv.Config.Shutdown(t.Context()))
	a := craceCall(tr, hostGet(t, srv.URL))
	_, refused := errors.AsType[*net.OpError](a.Err)
	require.True(t, refused, "%v", a.Err)
	require.EqualValues(t, 2, base.calls.Load())
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
	craceNew(t, hedgerow.Config{Base: ccanFunc(nil)}).CloseIdleConnections()
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

// hostProxy is a reverse proxy to upstream over a Transport that hedges after a time.
func hostProxy(t *testing.T, upstream *hostServer, delay time.Duration) (*httptest.Server, *hostCount, *hedgerow.Transport) {
	t.Helper()
	target, err := url.Parse(upstream.URL)
	require.NoError(t, err)
	base := &hostCount{RoundTripper: upstream.transport(t)}
	tr := craceNew(t, hedgerow.Config{Base: base, Hedge: hedgerow.HedgeConfig{Delay: delay}})
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = tr
	proxy.FlushInterval = -1
	proxy.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	front := httptest.NewUnstartedServer(proxy)
	front.Config.ErrorLog = proxy.ErrorLog
	front.Start()
	t.Cleanup(front.Close)
	return front, base, tr
}

func TestC97ReverseProxy(t *testing.T) {
	t.Parallel()
	var seen atomic.Int64
	gone := make(chan struct{}, 1)
	upstream := newHostServer(t, false, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slow-once":
			if seen.Add(1) == 1 {
				<-r.Context().Done()
				return
			}
			_, _ = io.WriteString(w, "hedge")
		case "/limited":
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, "limited")
		case "/trailer":
			w.Header().Set("Trailer", "X-Sum")
			_, _ = io.WriteString(w, strings.Repeat("x", 100_000))
			w.Header().Set("X-Sum", "42")
			w.Header().Set(http.TrailerPrefix+"X-More", "43")
		case "/abort":
			_, _ = io.WriteString(w, "part")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case "/endless":
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, strings.Repeat("x", 1000))
				_ = http.NewResponseController(w).Flush()
				time.Sleep(time.Millisecond)
			}
			gone <- struct{}{}
		}
	})

	t.Run("hedged", func(t *testing.T) {
		t.Parallel()
		front, base, _ := hostProxy(t, upstream, 20*time.Millisecond)
		a := craceCall(front.Client().Transport, hostGet(t, front.URL+"/slow-once"))
		require.Equal(t, "hedge", a.Body)
		require.EqualValues(t, 2, base.calls.Load())
	})
	t.Run("inbound body", func(t *testing.T) {
		t.Parallel()
		front, base, _ := hostProxy(t, upstream, time.Millisecond)
		req := hostGet(t, front.URL+"/limited")
		req.Body = io.NopCloser(strings.NewReader(strings.Repeat("x", 100_000)))
		a := craceCall(front.Client().Transport, req)
		require.Equal(t, "limited", a.Body)
		require.Equal(t, http.StatusTooManyRequests, a.Status)
		require.EqualValues(t, 1, base.calls.Load())
	})
	t.Run("trailers", func(t *testing.T) {
		t.Parallel()
		front, _, _ := hostProxy(t, upstream, time.Minute)
		resp, err := front.Client().Transport.RoundTrip(hostGet(t, front.URL+"/trailer"))
		require.NoError(t, err)
		n, err := io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		require.EqualValues(t, 100_000, n)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.Header{"X-Sum": {"42"}, "X-More": {"43"}}, resp.Trailer)
	})
	t.Run("aborted by the upstream", func(t *testing.T) {
		t.Parallel()
		front, base, _ := hostProxy(t, upstream, time.Minute)
		a := craceCall(front.Client().Transport, hostGet(t, front.URL+"/abort"))
		require.Error(t, a.Err, "the client must not take the part for the whole")
		require.EqualValues(t, 1, base.calls.Load())
	})
	t.Run("client goes away", func(t *testing.T) {
		t.Parallel()
		front, base, tr := hostProxy(t, upstream, time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		resp, err := front.Client().Transport.RoundTrip(hostGet(t, front.URL+"/endless").WithContext(ctx))
		require.NoError(t, err)
		_, err = io.ReadFull(resp.Body, make([]byte, 10_000))
		require.NoError(t, err)
		cancel()
		require.NoError(t, resp.Body.Close())
		<-gone // the upstream sees it
		require.EqualValues(t, 1, base.calls.Load())
		require.Zero(t, tr.Stats().Total.Errors)
	})
}

func TestC97ReverseProxyUpgrade(t *testing.T) {
	t.Parallel()
	upstream := newHostServer(t, false, func(w http.ResponseWriter, _ *http.Request) {
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = buf.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = buf.Flush()
		_, _ = io.Copy(conn, buf)
	})
	front, base, _ := hostProxy(t, upstream, time.Millisecond)
	req := hostGet(t, front.URL)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	// And a Transport on the client's side.
	client := craceNew(t, hedgerow.Config{Base: front.Client().Transport, Hedge: hedgerow.HedgeConfig{Delay: time.Millisecond}})
	resp, err := client.RoundTrip(req)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	rw, ok := resp.Body.(io.ReadWriteCloser)
	require.True(t, ok)
	for range 3 {
		_, err = io.WriteString(rw, "ping")
		require.NoError(t, err)
		got := make([]byte, 4)
		_, err = io.ReadFull(rw, got)
		require.NoError(t, err)
		require.Equal(t, "ping", string(got))
		time.Sleep(5 * time.Millisecond) // longer than the hedge delay
	}
	require.NoError(t, rw.Close())
	require.EqualValues(t, 1, base.calls.Load())
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
