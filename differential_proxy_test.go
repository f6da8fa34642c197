package hedgerow_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"strings"

	"github.com/stretchr/testify/require"
)

// diffAbort ends without an answer.
func diffAbort(_ *diffRun, _ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	panic(http.ErrAbortHandler)
}

func diffFailAtLength(x *diffRun, w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusInternalServerError)
	diffDownload(4)(x, w, r)
}

// diffAbortInBody ends when a line of its answer was read.
func diffAbortInBody(x *diffRun, w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, "event 0\n")
	_ = http.NewResponseController(w).Flush()
	x.await(r.Context(), "read")
	panic(http.ErrAbortHandler)
}

func diffListenOnce(x *diffRun) { x.listenOnceBy(x.client, x.request(http.MethodGet, "/", nil)) }

func (x *diffRun) listenOnceBy(client *http.Client, req *http.Request) {
	resp := x.firstLine(client, req)
	x.reach("read")
	x.rest(resp)
}

func diffShort(_ *diffRun, w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "10")
	_, _ = io.WriteString(w, "short")
}

func diffLargeHeader(_ *diffRun, w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("X-Large", strings.Repeat("x", 8<<10))
}

// diffRaw answers with the text as it is, and closes the connection.
func diffRaw(text string) func(*diffRun, http.ResponseWriter, *http.Request) {
	return func(_ *diffRun, w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, text)
		_ = conn.Close()
	}
}

// diffUpgrade takes over the connection, and echoes until the client has no more to say.
func diffUpgrade(_ *diffRun, w http.ResponseWriter, _ *http.Request) {
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	_, _ = io.Copy(conn, buf)
	_, _ = io.WriteString(conn, "bye")
}

func diffSwitch(x *diffRun) {
	x.switchBy(x.client, x.request(http.MethodGet, "/", nil, "Connection", "Upgrade", "Upgrade", "echo"))
}

func (x *diffRun) switchBy(client *http.Client, req *http.Request) {
	resp, err := client.Do(req)
	require.NoError(x.t, err)
	x.response(req, resp)
	conn, ok := resp.Body.(interface {
		io.ReadWriteCloser
		CloseWrite() error
	})
	require.True(x.t, ok, "the body of a 101 response is a %T", resp.Body)
	for _, s := range []string{"ping", "pong"} {
		_, err = io.WriteString(conn, s)
		require.NoError(x.t, err)
		echo := make([]byte, len(s))
		_, err = io.ReadFull(conn, echo)
		x.note("%q %v", echo, err)
	}
	x.note("%v", conn.CloseWrite())
	x.rest(resp)
}

// diffQueue makes a second call while the first has the only connection of HTTP/1.1.
func diffQueue(x *diffRun) {
	first := x.request(http.MethodGet, "/1", nil)
	resp, err := x.client.Do(first)
	require.NoError(x.t, err)

	second := x.request(http.MethodGet, "/2", nil)
	second = second.WithContext(httptrace.WithClientTrace(x.ctx, &httptrace.ClientTrace{
		GetConn: func(string) { x.reach("queued") },
	}))
	type outcome struct {
		resp *http.Response
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		resp, err := x.client.Do(second)
		done <- outcome{resp, err}
	}()
	x.await(x.ctx, "queued")
	x.listen(first, resp, err)
	o := <-done
	x.listen(second, o.resp, o.err)
}

// diffProxied reaches the server through a proxy.
func diffProxied(x *diffRun, tr *http.Transport) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect {
			x.record(r)
			x.tunnel(w, r)
			return
		}
		x.ServeHTTP(w, r) // the proxy could as well be the server
	}))
	x.cleanup = append(x.cleanup, proxy.Close)
	u, err := url.Parse(proxy.URL)
	require.NoError(x.t, err)
	tr.Proxy = http.ProxyURL(u)
}

func (x *diffRun) tunnel(w http.ResponseWriter, r *http.Request) {
	if !x.enter() {
		return
	}
	defer x.handlers.Done()
	server, err := new(net.Dialer).DialContext(r.Context(), "tcp", r.Host)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer func() { _ = server.Close() }()
	client, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, _ = io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n")
	back := make(chan struct{})
	go func() {
		defer close(back)
		_, _ = io.Copy(client, server)
		_ = client.Close()
	}()
	_, _ = io.Copy(server, client)
	_ = server.Close()
	<-back
}

// A diffFront is a reverse proxy in front of the server, whose transport is the one under test.
type diffFront struct {
	client *http.Client // a plain one
	url    string
}

func (x *diffRun) front() diffFront {
	target, err := url.Parse(x.srv.URL)
	require.NoError(x.t, err)
	log := slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	srv := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target); r.SetXForwarded() },
		Transport: x.client.Transport,
		ErrorLog:  log,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			x.fail(err)
			x.reach("failed")
			w.WriteHeader(http.StatusBadGateway)
		},
		ModifyResponse: func(resp *http.Response) error {
			resp.Header.Set("X-Via", fmt.Sprint(resp.ContentLength, resp.Uncompressed, resp.Request.URL.Path))
			return nil
		},
		FlushInterval: -1,
	})
	srv.Config.ErrorLog = log
	srv.Start()
	tr := &http.Transport{}
	x.cleanup = append(x.cleanup, func() {
		tr.CloseIdleConnections()
		srv.Close()
	})
	return diffFront{client: &http.Client{Transport: tr}, url: srv.URL}
}

func (f diffFront) request(x *diffRun, method, body string, header ...string) *http.Request {
	req := x.request(method, "/", nil, header...)
	if body != "" {
		req = x.request(method, "/", strings.NewReader(body), header...)
	}
	u, err := url.Parse(f.url + "/behind?q=1")
	require.NoError(x.t, err)
	req.URL, req.Host = u, u.Host
	return req
}

func diffBehindProxy(method, body string) func(*diffRun) {
	return func(x *diffRun) {
		front := x.front()
		x.sendBy(front.client, front.request(x, method, body))
	}
}

func diffTracedBehindProxy(x *diffRun) {
	front := x.front()
	var interims diffInterims
	x.sendBy(front.client, front.request(x, http.MethodGet, "").WithContext(interims.trace(x.ctx)))
	x.note("%s", &interims)
}

func diffListenBehindProxy(x *diffRun) {
	front := x.front()
	x.listenBy(front.client, front.request(x, http.MethodGet, ""))
}

func diffListenOnceBehindProxy(x *diffRun) {
	front := x.front()
	x.listenOnceBy(front.client, front.request(x, http.MethodGet, ""))
}

func diffSwitchBehindProxy(x *diffRun) {
	front := x.front()
	x.switchBy(front.client, front.request(x, http.MethodGet, "", "Connection", "Upgrade", "Upgrade", "echo"))
}

func diffLeaveProxy(x *diffRun) {
	front := x.front()
	ctx, cancel := context.WithCancel(x.ctx)
	go func() {
		x.await(ctx, "started")
		cancel()
	}()
	resp, err := front.client.Do(front.request(x, http.MethodGet, "").WithContext(ctx))
	require.Error(x.t, err, "%v", resp)
	x.await(x.ctx, "failed")
	x.fail(err)
	x.await(x.ctx, "gone")
}
