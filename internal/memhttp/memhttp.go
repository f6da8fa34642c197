// Package memhttp is an HTTP server and a transport to it that share one process and no socket.
//
// Both sides are net/http's own; only the network between them is replaced, by [net.Pipe]. Waiting on a pipe is durably
// blocking in the sense of [testing/synctest], so that inside a bubble a handler that sleeps for three seconds costs
// none, and everything also works outside of one. A pipe has no buffer: a side that writes waits for the other to read.
//
//	memhttp.Each(t, func(t *testing.T, proto memhttp.Protocol) {
//		srv := memhttp.NewServer(t, proto, handler)
//		tr, err := hedgerow.New(hedgerow.Config{Base: srv.Transport()})
//		...
//		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL()+"/path", nil)
//
// There is nothing to close: the cleanup of the test ends the connections and waits for the handlers, and the bubble
// then reports what is left. Neither side has an idle timeout or sends pings, so time stands still between calls.
package memhttp

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// Protocol is the version of HTTP that a [Server] and its transport speak.
type Protocol int

const (
	// HTTP1 is HTTP/1.1.
	HTTP1 Protocol = iota
	// HTTP2 is HTTP/2 without TLS, with prior knowledge.
	HTTP2
)

// String returns "h1" or "h2".
func (p Protocol) String() string {
	if p == HTTP2 {
		return "h2"
	}
	return "h1"
}

func (p Protocol) protocols() *http.Protocols {
	var ps http.Protocols
	ps.SetHTTP1(p == HTTP1)
	ps.SetUnencryptedHTTP2(p == HTTP2)
	return &ps
}

// Each runs f as a parallel subtest for each protocol, each in a bubble of its own.
func Each(t *testing.T, f func(t *testing.T, proto Protocol)) {
	t.Helper()
	for _, proto := range []Protocol{HTTP1, HTTP2} {
		t.Run(proto.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { f(t, proto) })
		})
	}
}

// Server is an HTTP server reached through [Server.Transport] alone. It answers for every host name and port, so that
// one server can play several: the handler tells them apart by Request.Host. Its methods may be called concurrently.
type Server struct {
	tb        testing.TB
	handler   http.Handler
	server    *http.Server
	transport *http.Transport
	accept    chan net.Conn
	cancel    context.CancelFunc // of every handler's context
	done      chan struct{}      // closed with the listener; nothing is dialed or accepted afterwards

	mu       sync.Mutex // guards the fields below; never held while anything waits
	closed   bool
	handlers sync.WaitGroup // added to only while closed is false
	conns    []net.Conn     // the clients' ends
	dialErr  error
}

// NewServer starts a server that speaks proto and stops it in tb's cleanup. Inside a bubble, tb must be the bubble's
// own. A handler that panics fails the test, unless with [http.ErrAbortHandler].
func NewServer(tb testing.TB, proto Protocol, handler http.Handler) *Server {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		cancel:  cancel,
		tb:      tb,
		handler: handler,
		accept:  make(chan net.Conn),
		done:    make(chan struct{}),
	}
	s.server = &http.Server{ //nolint:gosec // G112: the only client is the test, and a timeout would move its clock
		Handler:     http.HandlerFunc(s.serveHTTP),
		BaseContext: func(net.Listener) context.Context { return ctx },
		Protocols:   proto.protocols(),
		ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	s.transport = &http.Transport{
		DialContext: s.DialContext,
		Protocols:   proto.protocols(),
	}
	served := make(chan error, 1)
	go func() { served <- s.server.Serve(listener{s, sync.OnceFunc(func() { close(s.done) })}) }()
	tb.Cleanup(func() {
		s.close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			tb.Errorf("memhttp: serve: %v", err)
		}
	})
	return s
}

// URL returns the server's base URL, without a final slash. Any other host serves as well.
func (s *Server) URL() string { return "http://memhttp.test" }

// Transport returns the transport that reaches the server, the same one each time. Its fields may be changed before
// the first request.
func (s *Server) Transport() *http.Transport { return s.transport }

// DialContext opens a connection to the server, whatever the address. It is the DialContext of [Server.Transport] and
// can be that of another transport, which is then the caller's to close.
func (s *Server) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	s.mu.Lock()
	err := s.dialErr
	s.mu.Unlock()
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: addr(address), Err: err}
	}
	client, server := net.Pipe()
	select {
	case s.accept <- server:
	case <-s.done:
		return nil, &net.OpError{Op: "dial", Net: network, Addr: addr(address), Err: net.ErrClosed}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, client)
	return client, nil
}

// FailDials makes every later dial fail with err, wrapped in a [net.OpError]; nil lets them succeed again.
func (s *Server) FailDials(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dialErr = err
}

// Dials returns the number of connections opened so far.
func (s *Server) Dials() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// BreakConnections closes every connection opened so far, as a crash of the server would. Later requests open new ones.
func (s *Server) BreakConnections() {
	s.mu.Lock()
	conns := slices.Clone(s.conns)
	s.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // a pipe's Close reports nothing
	}
}

func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	s.handlers.Add(1)
	s.mu.Unlock()
	defer s.handlers.Done()
	defer func() {
		if p := recover(); p != nil {
			if p != http.ErrAbortHandler { //nolint:errorlint // net/http compares the panic value the same way
				s.tb.Errorf("memhttp: handler: panic: %v\n%s", p, debug.Stack())
			}
			panic(http.ErrAbortHandler)
		}
	}()
	s.handler.ServeHTTP(w, r)
}

// close ends the connections and the handlers' contexts first, so that handlers that wait for their client end. The
// contexts need it: HTTP/1.1 notices a closed connection only once the handler has read the request's body.
func (s *Server) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.transport.CloseIdleConnections()
	if err := s.server.Close(); err != nil {
		s.tb.Errorf("memhttp: close: %v", err)
	}
	s.BreakConnections()
	s.cancel()
	s.handlers.Wait()
}

// listener hands a server's dialed connections to net/http.
type listener struct {
	s     *Server
	close func()
}

func (l listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.s.accept:
		return c, nil
	case <-l.s.done:
		return nil, net.ErrClosed
	}
}

func (l listener) Close() error {
	l.close()
	return nil
}

func (l listener) Addr() net.Addr { return addr("memhttp.test:80") }

// addr is the address of either end of a connection.
type addr string

func (addr) Network() string  { return "pipe" }
func (a addr) String() string { return string(a) }
