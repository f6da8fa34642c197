package hedgerow_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

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
