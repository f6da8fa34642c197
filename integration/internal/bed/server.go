package bed

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// A Server is a loopback server with TLS, as the real services have, and a transport that trusts it.
type Server struct {
	*httptest.Server

	// Base is the one http.Transport to the server, without hedgerow.
	Base *http.Transport
}

// Host returns the server's host and port, as [hedgerow.PoolConfig].Hosts takes it.
func (s *Server) Host() string { return s.Listener.Addr().String() }

// Each runs f over HTTP/1.1 and over HTTP/2, as parallel subtests named h1 and h2.
func Each(t *testing.T, f func(t *testing.T, proto string)) {
	t.Helper()
	for _, proto := range []string{"h1", "h2"} {
		t.Run(proto, func(t *testing.T) {
			t.Parallel()
			f(t, proto)
		})
	}
}

// StreamWindow is how much of a body a server of HTTP/2 takes before its handler reads. It is small, so that the upload of
// a larger one is still under way.
const StreamWindow = 64 << 10

// Serve starts a server that speaks proto, h1 or h2, and nothing else, and stops it in the cleanup of the test.
func Serve(t *testing.T, proto string, handler http.Handler) *Server {
	t.Helper()
	s := &Server{}
	want := map[string]int{"h1": 1, "h2": 2}[proto]
	require.NotZero(t, want, "protocol %q", proto)
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != want {
			t.Errorf("bed: a request came by %s, not %s", r.Proto, proto)
		}
		handler.ServeHTTP(w, r)
	}))
	s.EnableHTTP2 = proto == "h2"
	s.Config.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: StreamWindow}
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // clients that leave are what is tested
	s.StartTLS()
	base, ok := s.Client().Transport.(*http.Transport)
	require.True(t, ok)
	s.Base = base
	s.Base.MaxIdleConnsPerHost = 64
	t.Cleanup(func() {
		s.Base.CloseIdleConnections()
		s.CloseClientConnections()
		s.Close()
	})
	return s
}
