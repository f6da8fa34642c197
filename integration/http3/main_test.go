package http3_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

func TestMain(m *testing.M) { bed.VerifyMain(m) }

// large is a body of many packets.
var large = string(bed.Pattern(bed.Large))

// A server speaks HTTP/3 and nothing else.
type server struct {
	URL  string
	Base *http3.Transport // to the server, without hedgerow

	conns atomic.Int64
}

// serve starts a server, and stops it and its transport in the cleanup of the test: both have goroutines until then.
func serve(t *testing.T, handler http.Handler) *server {
	t.Helper()
	trusted := bed.Serve(t, "h1", http.NotFoundHandler()) // for its certificate, and those who trust it
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	s := &server{
		URL:  "https://" + conn.LocalAddr().String(),
		Base: newBase(&tls.Config{RootCAs: trusted.Base.TLSClientConfig.RootCAs}),
	}
	h3 := &http3.Server{
		Handler:   handler,
		TLSConfig: http3.ConfigureTLSConfig(&tls.Config{Certificates: trusted.TLS.Certificates}),
		ConnContext: func(ctx context.Context, _ *quic.Conn) context.Context {
			s.conns.Add(1)
			return ctx
		},
	}
	served := make(chan error, 1)
	go func() { served <- h3.Serve(conn) }()
	t.Cleanup(func() {
		require.NoError(t, s.Base.Close())
		require.NoError(t, h3.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
		require.NoError(t, conn.Close())
	})
	return s
}

// A holding handler holds primaries until their streams are reset, and lets a hedge be answered when its primary has come:
// a hedge may be faster than what its primary waits for.
type holding struct {
	came  chan struct{}
	reset chan error // what ended the context of each primary: that of a request of HTTP/3 ends with its stream
}

func newHolding() holding { return holding{make(chan struct{}, 4), make(chan error, 4)} }

// primary holds r.
func (h holding) primary(r *http.Request) {
	h.came <- struct{}{}
	defer func() { h.reset <- r.Context().Err() }()
	bed.Hold(r)
}

// hedge waits for the primary of r.
func (h holding) hedge(r *http.Request) {
	bed.Await(r, h.came)
}

func (h holding) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if bed.IsPrimary(r) {
		h.primary(r)
		return
	}
	h.hedge(r)
	bed.Echo(w, r)
}

// requireWhole is [bed.RequireWhole], by HTTP/3.
func requireWhole(t *testing.T, resp *http.Response, err error) {
	t.Helper()
	bed.RequireWhole(t, resp, err)
	require.Equal(t, 3, resp.ProtoMajor)
}
