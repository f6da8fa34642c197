package hedgerow_test

import (
	"net/http"
	"strings"
	"time"
)

// diffScenarios is the table. What takes more than a line or two stands beside it: plain exchanges and connections in
// differential_plain_test.go, bodies, streams and what ends them in differential_streams_test.go, what uses net/http in
// other ways in differential_proxy_test.go.
var diffScenarios = []diffScenario{
	// Requests and responses.
	{name: "GET", hedged: diffPaired, do: diffSend(http.MethodGet, "/", ""), want: 200},
	{name: "escaped path and query", hedged: diffPaired, do: diffSend("GET", "/a%2Fb/c%20d/?x=1;2&y=%zz&z#f", ""), want: 200},
	{name: "HEAD", hedged: diffPaired, do: diffSend(http.MethodHead, "/", ""), want: 200},
	{name: "OPTIONS", hedged: diffPaired, do: diffSend(http.MethodOptions, "/", ""), want: 200},
	{name: "GET with a body", hedged: diffPaired, do: diffSend(http.MethodGet, "/", "payload"), want: 200},
	{name: "POST", do: diffSend(http.MethodPost, "/", "payload"), want: 200},
	{name: "POST with a key", hedged: diffPaired, do: diffSend(http.MethodPost, "/", "payload", "Idempotency-Key", "1"), want: 200},
	{name: "PUT", do: diffSend(http.MethodPut, "/", "payload"), want: 200},
	{name: "DELETE", do: diffSend(http.MethodDelete, "/", ""), want: 200},
	{name: "method of one's own", do: diffSend("PURGE", "/", ""), want: 200},
	{name: "no content", hedged: diffPaired, serve: diffStatus(204), do: diffSend("GET", "/", ""), want: 204},
	{name: "not modified", hedged: diffPaired, serve: diffStatus(304), do: diffSend("GET", "/", ""), want: 304},
	{name: "empty", hedged: diffPaired, serve: diffStatus(200), do: diffSend("GET", "/", ""), want: 200},
	{name: "not found", hedged: diffPaired, serve: diffStatus(404), do: diffSend("GET", "/", ""), want: 404},
	{name: "too many requests", hedged: diffBoth, serve: diffStatus(429), do: diffSend("GET", "/", ""), want: 429},
	{name: "server error with much to say", hedged: diffBoth, serve: diffFailAtLength, do: diffSend("GET", "/", ""), want: 500},
	{name: "server error", hedged: diffBoth, serve: diffStatus(503), do: diffSend("GET", "/", ""), want: 503},
	{name: "GET with empty bodies", hedged: diffRaced, do: diffEmptyBodies(http.MethodGet), want: 200},
	{name: "POST with empty bodies", do: diffEmptyBodies(http.MethodPost), want: 200},
	{name: "PUT with empty bodies", do: diffEmptyBodies(http.MethodPut), want: 200},
	{name: "Host", hedged: diffPaired, do: diffHost, want: 200},
	{name: "User-Agent", hedged: diffPaired, do: diffUserAgent, want: 200},
	{name: "spelling of headers", hedged: diffPaired, do: diffSpelling, want: 200},
	{name: "password in the URL", hedged: diffPaired, do: diffPassword, want: 200},
	{name: "RoundTrip without a client", hedged: diffPaired, do: diffBareRoundTrip, want: 200},

	// Content.
	{name: "gzip", hedged: diffPaired, serve: diffGzip, do: diffSend("GET", "/", ""), want: 200},
	{name: "gzip, HEAD", hedged: diffPaired, serve: diffGzip, do: diffSend("HEAD", "/", ""), want: 200},
	{name: "gzip that the caller asks for", hedged: diffPaired, serve: diffGzip, do: diffSend("GET", "/", "", "Accept-Encoding", "gzip"), want: 200},
	{name: "gzip cut short", hedged: diffBoth, serve: diffGzip, do: diffSend("GET", "/cut", ""), want: 200},
	{name: "gzip that is none", hedged: diffBoth, serve: diffGzip, do: diffSend("GET", "/false", ""), want: 200},
	{name: "compression disabled", hedged: diffPaired, tune: diffNoGzip, serve: diffGzip, do: diffSend("GET", "/", ""), want: 200},
	{name: "range", hedged: diffPaired, serve: diffContent, do: diffSend("GET", "/", "", "Range", "bytes=2-4"), want: 206},
	{name: "condition", hedged: diffPaired, serve: diffContent, do: diffSend("GET", "/", "", "If-None-Match", `"tag"`), want: 304},

	// Redirects and cookies.
	{name: "redirected GET", hedged: diffPaired, serve: diffRedirect, do: diffEveryRedirect(http.MethodGet), want: 200},
	{name: "redirected POST", hedged: diffRaced, serve: diffRedirect, do: diffEveryRedirect(http.MethodPost), want: 200},
	{name: "redirected POST with a key", hedged: diffPaired, serve: diffRedirect, do: diffEveryRedirect(http.MethodPost, "Idempotency-Key", "1"), want: 200},
	{name: "redirected POST without GetBody", serve: diffRedirect, do: diffRedirectOnce, want: 307},
	{name: "redirect to another host", hedged: diffPaired, serve: diffRedirect, do: diffSend("GET", "/away", "", "Authorization", "Bearer x", "Cookie", "a=b"), want: 200},
	{name: "redirect without a location", hedged: diffPaired, serve: diffStatus(302), do: diffSend("GET", "/", ""), want: 302},
	{name: "redirects without end", hedged: diffPaired, serve: diffRedirect, do: diffSend("GET", "/loop", "")},
	{name: "redirect not followed", hedged: diffPaired, serve: diffRedirect, do: diffCheckRedirect(http.ErrUseLastResponse), want: 302},
	{name: "redirect refused", hedged: diffPaired, serve: diffRedirect, do: diffCheckRedirect(errDiff)},
	{name: "cookies", hedged: diffPaired, serve: diffCookies, do: diffLogin, want: 200},

	// Trailers and interim responses.
	{name: "response trailers", hedged: diffPaired, serve: diffTrailers, do: diffSend("GET", "/", ""), want: 200},
	{name: "response trailers unannounced", hedged: diffPaired, serve: diffTrailers, do: diffSend("GET", "/surprise", ""), want: 200},
	{name: "request trailers", do: diffSendTrailers, want: 200},
	{name: "interim responses", hedged: diffPaired, serve: diffInterim, do: diffSendTraced, want: 200},
	{name: "continue", do: diffExpect, want: 200},
	{name: "continue refused", serve: diffStatus(417), do: diffExpect, want: 417},
	{name: "upgrade", on: diffHTTP1, serve: diffUpgrade, do: diffSwitch, want: 101},
	{name: "upgrade refused", on: diffHTTP1, do: diffSend("GET", "/", "", "Connection", "Upgrade", "Upgrade", "echo"), want: 200},
	{name: "CONNECT", serve: diffDuplex, do: diffConverse(http.MethodConnect, ""), want: 200},

	// Bodies and streams.
	{name: "download", hedged: diffPaired, serve: diffDownload(4), do: diffSend("GET", "/", ""), want: 200},
	{name: "large download", on: diffMostUnlike, hedged: diffRaced, serve: diffDownload(128), do: diffSend("GET", "/", ""), want: 200},
	{name: "large upload", on: diffMostUnlike, do: diffUpload, want: 200},
	{name: "upload of unknown length", do: diffUploadChunked, want: 200},
	{name: "upload with a key, closed once", hedged: diffPaired, do: diffUploadCounted, want: 200},
	{name: "upload that fails", loose: true, serve: diffHang, do: diffUploadBroken},
	{name: "upload shorter than declared", loose: true, serve: diffHang, do: diffUploadDeclared(10)},
	{name: "upload longer than declared", loose: true, serve: diffHang, do: diffUploadDeclared(2)},
	{name: "events", hedged: diffPaired, serve: diffEvents, do: diffListen, want: 200},
	{name: "events not listened to", hedged: diffPaired, serve: diffEvents, do: diffHangUp, want: 200},
	{name: "duplex", serve: diffDuplex, do: diffConverse(http.MethodPost, "/"), want: 200},
	{name: "duplex with a key", serve: diffDuplex, do: diffConverse(http.MethodPost, "/", "Idempotency-Key", "1"), want: 200},

	// What the caller ends.
	{name: "timeout of the client", hedged: diffRaced, loose: true, serve: diffHang, do: diffTimeout},
	{name: "timeout of the client in a body", hedged: diffRaced, loose: true, serve: diffEvents, do: diffTimeoutInBody},
	{name: "deadline", hedged: diffRaced, loose: true, serve: diffHang, do: diffDeadline},
	{name: "deadline that has passed", hedged: diffRaced, do: diffDeadlinePassed},
	{name: "canceled before", hedged: diffRaced, do: diffCancelBefore},
	{name: "canceled while it waits", hedged: diffRaced, loose: true, serve: diffHang, do: diffCancelWaiting},
	{name: "canceled with a cause while it waits", hedged: diffRaced, loose: true, serve: diffHang, do: diffCancelCause},
	{name: "canceled in an upload", loose: true, serve: diffHang, do: diffCancelUpload},
	{name: "canceled in a body", hedged: diffPaired, serve: diffEvents, do: diffCancelReading, want: 200},
	{name: "Request.Cancel", hedged: diffRaced, loose: true, serve: diffHang, do: diffCancelRequest},

	// What the server or the network ends.
	{name: "aborted before the header", hedged: diffBoth, serve: diffAbort, do: diffSend("GET", "/", "")},
	{name: "closed in the header", on: diffHTTP1, hedged: diffBoth, serve: diffRaw("HTTP/1.1 200 OK\r\nX-A: "), do: diffSend("GET", "/", "")},
	{name: "closed in the body", hedged: diffPaired, serve: diffAbortInBody, do: diffListenOnce, want: 200},
	{name: "body shorter than declared", hedged: diffPaired, serve: diffShort, do: diffSend("GET", "/", ""), want: 200},
	{name: "malformed response", on: diffHTTP1, hedged: diffBoth, serve: diffRaw("nonsense\r\n\r\n"), do: diffSend("GET", "/", "")},
	{name: "malformed chunk", on: diffHTTP1, hedged: diffBoth, serve: diffRaw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), do: diffSend("GET", "/", ""), want: 200},
	{name: "body until the connection ends", on: diffHTTP1, hedged: diffPaired, serve: diffRaw("HTTP/1.0 200 OK\r\n\r\nhello"), do: diffSend("GET", "/", ""), want: 200},
	{name: "response header too large", hedged: diffBoth, tune: diffSmallHeader, serve: diffLargeHeader, do: diffSend("GET", "/", "")},
	{name: "header timeout of the base", hedged: diffRaced, loose: true, tune: diffImpatient, serve: diffHang, do: diffSend("GET", "/", "")},
	{name: "connection refused", hedged: diffRaced, do: diffRefused},
	{name: "unknown authority", on: diffTLS, hedged: diffRaced, tune: diffDistrust, do: diffSend("GET", "/", "")},
	{name: "HTTP spoken to TLS", on: diffHTTP1TLS, hedged: diffRaced, do: diffWrongScheme, want: 400},
	{name: "TLS spoken to HTTP", on: diffHTTP1Clear, hedged: diffRaced, do: diffWrongScheme},

	// Requests that are not sent.
	{name: "invalid header value", do: diffInvalid(func(req *http.Request) { req.Header.Set("X-A", "a\nb") })},
	{name: "invalid header name", do: diffInvalid(func(req *http.Request) { req.Header["X A"] = []string{"a"} })},
	{name: "invalid method", do: diffInvalid(func(req *http.Request) { req.Method = "GE T" })},
	{name: "unsupported scheme", do: diffInvalid(func(req *http.Request) { req.URL.Scheme = "gopher" })},
	{name: "no host", do: diffIncomplete(func(req *http.Request) { req.URL.Host = "" })},
	{name: "no URL", do: diffIncomplete(func(req *http.Request) { req.URL = nil })},
	{name: "no header", do: diffIncomplete(func(req *http.Request) { req.Header = nil })},

	// Connections.
	{name: "twenty calls on a connection", hedged: diffPaired, do: diffTimes(20, ""), want: 200},
	{name: "bodies closed unread", hedged: diffPaired, serve: diffDownload(32), do: diffUnread, want: 200},
	{name: "idle connections closed", on: diffHTTP1, hedged: diffPaired, do: diffCloseIdle, want: 200},
	{name: "connection closed by the request", hedged: diffPaired, do: diffTimes(2, "close"), want: 200},
	{name: "connection closed by the response", hedged: diffPaired, serve: diffLast, do: diffTimes(2, ""), want: 200},
	{name: "one connection for two calls", hedged: diffRaced, tune: diffOneConnection, serve: diffEvents, do: diffQueue, want: 200},
	{name: "proxy", on: diffNoH2C, tune: diffProxied, hedged: diffPaired, do: diffSend("GET", "/", ""), want: 200},

	// Behind a reverse proxy.
	{name: "reverse proxy", hedged: diffPaired, do: diffBehindProxy(http.MethodGet, ""), want: 200},
	{name: "reverse proxy, POST", do: diffBehindProxy(http.MethodPost, "payload"), want: 200},
	{name: "reverse proxy, gzip", hedged: diffPaired, serve: diffGzip, do: diffBehindProxy(http.MethodGet, ""), want: 200},
	{name: "reverse proxy, trailers", hedged: diffPaired, serve: diffTrailers, do: diffBehindProxy(http.MethodGet, ""), want: 200},
	{name: "reverse proxy, interim responses", hedged: diffPaired, serve: diffInterim, do: diffTracedBehindProxy, want: 200},
	{name: "reverse proxy, events", hedged: diffPaired, serve: diffEvents, do: diffListenBehindProxy, want: 200},
	{name: "reverse proxy, upgrade", on: diffHTTP1, serve: diffUpgrade, do: diffSwitchBehindProxy, want: 101},
	{name: "reverse proxy, client gone", hedged: diffRaced, loose: true, serve: diffHang, do: diffLeaveProxy},
	{name: "reverse proxy, backend fails", hedged: diffBoth, serve: diffAbort, do: diffBehindProxy(http.MethodGet, ""), want: 502},
	{name: "reverse proxy, backend fails in the body", hedged: diffPaired, serve: diffAbortInBody, do: diffListenOnceBehindProxy, want: 200},
}

// diffSend returns a scenario that makes one exchange; header is a list of names and values.
func diffSend(method, path, body string, header ...string) func(*diffRun) {
	return func(x *diffRun) {
		if body == "" {
			x.send(x.request(method, path, nil, header...))
			return
		}
		x.send(x.request(method, path, strings.NewReader(body), header...))
	}
}

// diffTimes returns a scenario that makes n exchanges one after the other.
func diffTimes(n int, connection string) func(*diffRun) {
	return func(x *diffRun) {
		for range n {
			req := x.request(http.MethodGet, "/", nil)
			req.Close = connection == "close"
			x.send(req)
		}
	}
}

func diffNoGzip(_ *diffRun, tr *http.Transport)        { tr.DisableCompression = true }
func diffSmallHeader(_ *diffRun, tr *http.Transport)   { tr.MaxResponseHeaderBytes = 1024 }
func diffImpatient(_ *diffRun, tr *http.Transport)     { tr.ResponseHeaderTimeout = 20 * time.Millisecond }
func diffDistrust(_ *diffRun, tr *http.Transport)      { tr.TLSClientConfig.RootCAs = nil }
func diffOneConnection(_ *diffRun, tr *http.Transport) { tr.MaxConnsPerHost = 1 }
