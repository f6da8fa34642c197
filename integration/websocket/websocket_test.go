package websocket_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
	"github.com/hedgerow-go/hedgerow/integration/internal/wsecho"
)

func TestEcho(t *testing.T) {
	t.Parallel()
	srv := bed.Serve(t, "h1", wsecho.Handler(websocket.AcceptOptions{}))

	tr, err := hedgerow.New(hedgerow.Config{Base: srv.Base})
	require.NoError(t, err)
	conn, resp, err := dial(bed.Timeout(t), srv.URL, tr)
	require.NoError(t, err)

	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	requireEcho(t, conn)
	require.NoError(t, conn.Close(websocket.StatusNormalClosure, "done"))
	bed.RequireSkipped(t, tr, 1, hedgerow.SkipUpgrade)
}

// Subprotocols and compression are negotiated in header fields of the handshake, which must come through as they are.
func TestNegotiation(t *testing.T) {
	t.Parallel()
	srv := bed.Serve(t, "h1", wsecho.Handler(websocket.AcceptOptions{
		Subprotocols: []string{"v2.chat", "v1.chat"}, CompressionMode: websocket.CompressionContextTakeover,
	}))
	tr := bed.New(t, hedgerow.Config{Base: srv.Base})
	conn, resp, err := websocket.Dial(bed.Timeout(t), srv.URL, &websocket.DialOptions{
		HTTPClient:      &http.Client{Transport: tr},
		Subprotocols:    []string{"v1.chat"},
		CompressionMode: websocket.CompressionContextTakeover,
	})
	require.NoError(t, err)
	require.Equal(t, "v1.chat", conn.Subprotocol())
	require.Contains(t, resp.Header.Get("Sec-WebSocket-Extensions"), "permessage-deflate")
	requireEcho(t, conn)
	require.NoError(t, conn.Close(websocket.StatusNormalClosure, ""))
	bed.RequireSkipped(t, tr, 1, hedgerow.SkipUpgrade)
}

func TestCloses(t *testing.T) {
	t.Parallel()
	seen := make(chan websocket.StatusCode, 1)
	srv := bed.Serve(t, "h1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		if r.URL.Path == "/server" {
			_ = conn.Close(websocket.StatusTryAgainLater, "full")
			return
		}
		_, _, err = conn.Read(context.WithoutCancel(r.Context()))
		seen <- websocket.CloseStatus(err)
		_ = conn.CloseNow()
	}))
	tr := bed.New(t, hedgerow.Config{Base: srv.Base})
	open := func(t *testing.T, path string) *websocket.Conn {
		t.Helper()
		conn, _, err := dial(bed.Timeout(t), srv.URL+path, tr)
		require.NoError(t, err)
		return conn
	}

	conn := open(t, "/server")
	_, _, err := conn.Read(bed.Timeout(t))
	var closed websocket.CloseError
	require.ErrorAs(t, err, &closed)
	require.Equal(t, websocket.CloseError{Code: websocket.StatusTryAgainLater, Reason: "full"}, closed)
	_ = conn.CloseNow() // it is closed already

	conn = open(t, "/client")
	require.NoError(t, conn.Close(websocket.StatusGoingAway, "bye"))
	require.Equal(t, websocket.StatusGoingAway, <-seen)

	conn = open(t, "/abrupt")
	require.NoError(t, conn.CloseNow()) // no closing handshake: the server sees the connection end
	require.EqualValues(t, -1, <-seen)
	bed.RequireSkipped(t, tr, 3, hedgerow.SkipUpgrade)
}

// A handshake that is refused is a response like any other, with the beginning of its body.
func TestRefused(t *testing.T) {
	t.Parallel()
	srv := bed.Serve(t, "h1", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no entry", http.StatusForbidden)
	}))
	tr := bed.New(t, hedgerow.Config{Base: srv.Base})
	_, resp, err := dial(bed.Timeout(t), srv.URL, tr)
	require.ErrorContains(t, err, "expected handshake response status code 101 but got 403")
	require.Equal(t, http.StatusForbidden, resp.StatusCode)
	body := make([]byte, 100)
	n, _ := resp.Body.Read(body)
	require.Equal(t, "no entry\n", string(body[:n]))
	bed.RequireSkipped(t, tr, 1, hedgerow.SkipUpgrade)
}

// A handshake is not hedged, however long it takes.
func TestSlowHandshakeIsSentOnce(t *testing.T) {
	t.Parallel()
	slow := bed.NewGate()
	srv := bed.Serve(t, "h1", bed.WithClock(slow.Handler(wsecho.Handler(websocket.AcceptOptions{}))))
	tr := bed.New(t, hedgerow.Config{Base: bed.Mark(srv.Base), Hedge: bed.Soon()})
	ctx := bed.Timeout(t)
	var conn *websocket.Conn
	bed.Slowly(t, tr, srv.URL, slow, func() (err error) {
		conn, _, err = dial(ctx, srv.URL, tr)
		return err
	})
	requireEcho(t, conn)
	require.NoError(t, conn.Close(websocket.StatusNormalClosure, ""))
	require.Equal(t, 1, slow.Count())
	total := tr.Stats().Total
	require.EqualValues(t, 1, total.HedgeWins, "of the other call")
	require.EqualValues(t, 1, total.Hedged)
	require.EqualValues(t, 1, total.Skipped[hedgerow.SkipUpgrade])
}

// The context of Dial bounds the handshake, not the connection. A client with a Timeout has its context cancelled when
// Dial returns.
func TestConnectionOutlivesDial(t *testing.T) {
	t.Parallel()
	srv := bed.Serve(t, "h1", wsecho.Handler(websocket.AcceptOptions{}))
	tr := bed.New(t, hedgerow.Config{Base: bed.Mark(srv.Base), Hedge: bed.Soon()})
	client := &http.Client{Transport: tr, Timeout: time.Minute}
	conn, _, err := websocket.Dial(t.Context(), srv.URL, &websocket.DialOptions{HTTPClient: client})
	require.NoError(t, err)
	requireEcho(t, conn)
	require.NoError(t, conn.Close(websocket.StatusNormalClosure, ""))

	ctx, cancel := context.WithCancel(t.Context())
	conn, _, err = dial(ctx, srv.URL, tr)
	require.NoError(t, err)
	cancel()
	requireEcho(t, conn)
	require.NoError(t, conn.Close(websocket.StatusNormalClosure, ""))
	bed.RequireSkipped(t, tr, 2, hedgerow.SkipUpgrade)
}

// A server and a transport that speak HTTP/2 need nothing set: net/http sends a handshake by HTTP/1.1, on a connection of
// its own, and everything else by HTTP/2.
func TestBesideHTTP2(t *testing.T) {
	t.Parallel()
	echo := wsecho.Handler(websocket.AcceptOptions{})
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Proto", r.Proto)
		if r.Header.Get("Upgrade") == "" {
			return
		}
		echo.ServeHTTP(w, r)
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	base, ok := srv.Client().Transport.(*http.Transport)
	require.True(t, ok)
	t.Cleanup(base.CloseIdleConnections)
	tr := bed.New(t, hedgerow.Config{Base: base})
	client := &http.Client{Transport: tr}

	resp, err := client.Get(srv.URL)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "HTTP/2.0", resp.Header.Get("X-Proto"))

	conn, resp, err := dial(bed.Timeout(t), srv.URL, tr)
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1", resp.Header.Get("X-Proto"))
	requireEcho(t, conn)
	require.NoError(t, conn.Close(websocket.StatusNormalClosure, ""))
	total := tr.Stats().Total
	require.EqualValues(t, 2, total.Requests)
	require.EqualValues(t, 1, total.Skipped[hedgerow.SkipUpgrade])
}

// Against a server that speaks nothing but HTTP/2 there are no websockets: neither the client nor net/http knows the
// extended CONNECT of RFC 8441. The failure is that of the transport, as without hedgerow.
func TestOverHTTP2Alone(t *testing.T) {
	t.Parallel()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a handshake came by %s", r.Proto)
	}))
	srv.EnableHTTP2 = true
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetHTTP2(true)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	base, ok := srv.Client().Transport.(*http.Transport)
	require.True(t, ok)
	t.Cleanup(base.CloseIdleConnections)
	_, _, plain := dial(bed.Timeout(t), srv.URL, base)
	require.Error(t, plain)

	tr := bed.New(t, hedgerow.Config{Base: base})
	_, _, err := dial(bed.Timeout(t), srv.URL, tr)
	require.Error(t, err)
	total := tr.Stats().Total
	require.EqualValues(t, 1, total.Requests)
	require.EqualValues(t, 1, total.Errors)
	require.Zero(t, total.Hedges)
}
