package hedgerow_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/memhttp"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// C73: a response to be repeated leaves its connection before the next attempt.
func TestC73OneConnectionAndRetry(t *testing.T) {
	t.Parallel()
	srv := contractListen(t, memhttp.HTTP1, func(w http.ResponseWriter, r *http.Request) {
		if pspecKey(r.Header) == "A" {
			w.WriteHeader(http.StatusTooManyRequests)
		}
		_, _ = w.Write([]byte(strings.Repeat("x", 100)))
	})
	srv.Base.MaxConnsPerHost = 1
	p, err := hedgerow.NewPool(hedgerow.PoolConfig{Hosts: []string{srv.URL}, Resources: pspecKeys(2)})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	status, _, err := pspecDo(t, p.Wrap(srv.Base), contractGet(ctx, t, srv.URL))
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	require.EqualValues(t, 1, srv.Conns.Load())
}

// C74: a response to be repeated that does not end, or is too large, or drips, is given up within milliseconds. It is
// forgotten then; without a better one the call ends in an ExhaustedError that says its status.
func TestC74BoundedDrain(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]func() io.ReadCloser{
		"endless": func() io.ReadCloser { return io.NopCloser(pspecEndless{}) },
		"large":   func() io.ReadCloser { return io.NopCloser(strings.NewReader(contractText(64<<10 + 1))) },
		"silent": func() io.ReadCloser {
			r, w := io.Pipe()
			return struct {
				io.Reader
				io.Closer
			}{r, w}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for _, second := range []scripted.Step{{Body: "ok"}, {Err: errContract}} {
					p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(2), MaxAttempts: 2})
					base := scripted.New(scripted.Step{Status: http.StatusTooManyRequests, BodyReader: body()}, second)
					o := <-pspecGo(t.Context(), t, p.Wrap(base))
					require.LessOrEqual(t, o.at, 10*time.Millisecond)
					if second.Err == nil {
						require.NoError(t, o.err)
						require.Equal(t, "ok", o.body)
					} else {
						exhausted, ok := errors.AsType[*hedgerow.ExhaustedError](o.err)
						require.True(t, ok)
						require.Equal(t, http.StatusTooManyRequests, exhausted.LastStatus)
						require.ErrorIs(t, o.err, errContract)
					}
					base.Check(t)
					pspecIdle(t, p, 1)
				}
			})
		})
	}
}

type pspecEndless struct{}

func (pspecEndless) Read(p []byte) (int, error) { return len(p), nil }

// C81: informational responses before a 429, under a ReverseProxy that edits headers.
func TestC81EarlyHintsUnderAReverseProxy(t *testing.T) {
	t.Parallel()
	srv := contractListen(t, memhttp.HTTP1, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</early>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("X-Key", pspecKey(r.Header))
		if pspecKey(r.Header) == "A" {
			w.WriteHeader(http.StatusTooManyRequests)
		}
		_, _ = w.Write([]byte("body"))
	})
	p, err := hedgerow.NewPool(hedgerow.PoolConfig{Hosts: []string{srv.URL}, Resources: pspecKeys(2), Strategy: hedgerow.PrimaryBackup})
	require.NoError(t, err)
	target, err := url.Parse(srv.URL)
	require.NoError(t, err)
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:      p.Wrap(srv.Base),
		ModifyResponse: func(resp *http.Response) error { resp.Header.Set("X-Edited", "yes"); return nil },
	})
	t.Cleanup(proxy.Close)
	client := &http.Transport{}
	t.Cleanup(client.CloseIdleConnections)
	for range 3 {
		resp, err := client.RoundTrip(contractGet(t.Context(), t, proxy.URL))
		require.NoError(t, err)
		require.Equal(t, "body", contractRead(t, resp))
		require.Equal(t, []string{"B", "yes"}, []string{resp.Header.Get("X-Key"), resp.Header.Get("X-Edited")})
	}
}

// A dial that fails may be repeated for any method; what was sent may not.
func TestDialErrorsAreRepeatedForAnyMethod(t *testing.T) {
	t.Parallel()
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: errContract}
	for _, tc := range []struct {
		err  error
		sent string
	}{{dial, "AB"}, {fmt.Errorf("wrapped: %w", dial), "AB"}, {&net.OpError{Op: "read", Err: errContract}, "A"}} {
		p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(2)})
		base := pspecScript(map[string][]scripted.Step{"A": {{Err: tc.err}}})
		_, _, _ = pspecDo(t, p.Wrap(base), base.NewRequest(t, http.MethodPost, pspecURL, "payload"))
		require.Equal(t, tc.sent, pspecSent(base))
		require.Equal(t, 1, p.Snapshot()[0].ConsecutiveFailures)
		base.Check(t)
	}
}

// C36, C39, C44: what a pool makes of the bodies of a base that is no http.Transport.
func TestC39PoolAndBodylessResponses(t *testing.T) {
	t.Parallel()
	empty := http.Header{"Content-Length": {"0"}}
	synctest.Test(t, func(t *testing.T) {
		for name, tc := range map[string]struct {
			method string
			step   scripted.Step
		}{
			"HEAD": {http.MethodHead, scripted.Step{}}, "204": {http.MethodGet, scripted.Step{Status: http.StatusNoContent}},
			"304": {http.MethodGet, scripted.Step{Status: http.StatusNotModified}}, "empty": {http.MethodGet, scripted.Step{Header: empty}},
			"empty 429": {http.MethodGet, scripted.Step{Status: http.StatusTooManyRequests, Header: empty}},
		} {
			for _, own := range []bool{false, true} {
				rs := pspecKeys(1)
				base := scripted.New(tc.step)
				var next http.RoundTripper = base
				if own {
					rs[0].Base, next = base, &http.Transport{}
				}
				p := pspecPool(t, hedgerow.PoolConfig{Resources: rs, MaxAttempts: 1})
				ctx, cancel := context.WithCancel(t.Context())
				req := contractGet(ctx, t, pspecURL)
				req.Method = tc.method
				resp, err := p.Wrap(next).RoundTrip(req)
				require.NoError(t, err, name)
				require.Zero(t, p.Stats().InFlight, name)
				require.Error(t, base.Records()[0].Request.Context().Err(), name) // its context has been freed
				require.Empty(t, contractRead(t, resp), name)                     // and the body ends well all the same
				base.Check(t)
				cancel()
			}
		}
	})
}

// C36: the connection of a 101 holds its slot until it is closed, and stays an io.ReadWriteCloser.
func TestC36UpgradeThroughAPool(t *testing.T) {
	t.Parallel()
	srv := contractListen(t, memhttp.HTTP1, func(w http.ResponseWriter, _ *http.Request) {
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = buf.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = buf.Flush()
		_, _ = io.Copy(conn, buf)
	})
	p, err := hedgerow.NewPool(hedgerow.PoolConfig{Hosts: []string{srv.URL}, Resources: pspecKeys(1)})
	require.NoError(t, err)
	dialing, cancel := context.WithCancel(t.Context())
	req := contractGet(dialing, t, srv.URL)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	resp, err := p.Wrap(srv.Base).RoundTrip(req)
	require.NoError(t, err)
	cancel() // net/http has taken the connection out of the context by now
	conn, ok := resp.Body.(io.ReadWriteCloser)
	require.True(t, ok)
	_, err = io.WriteString(conn, "ping")
	require.NoError(t, err)
	got := make([]byte, 4)
	_, err = io.ReadFull(conn, got)
	require.NoError(t, err)
	require.Equal(t, "ping", string(got))
	require.Equal(t, 1, p.Stats().InFlight)
	_, half := resp.Body.(interface{ CloseWrite() error })
	require.True(t, half)
	require.NoError(t, conn.Close())
	require.Zero(t, p.Stats().InFlight)
}
