package hedgerow_test

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"syscall"

	"github.com/stretchr/testify/require"
)

// A diffResponse is what a caller sees of a response.
type diffResponse struct {
	Status, Proto, TLS                    string
	Header, Announced, Trailer            http.Header
	Length                                int64
	Encoding                              []string
	Uncompressed, Close, NoBody, Writable bool

	URL  string      // of the last request
	Sent http.Header // of the last request
	Own  bool        // the last request is the caller's
	Hop  bool        // it follows a redirect

	Body    string
	BodyErr diffError
}

// A diffError is what a caller sees of an error.
type diffError struct {
	Op, URL string // of the url.Error
	Timeout bool
	Is      []string
	Types   []string // from the outermost to the cause
	Cause   string
}

// A diffRequest is what a server sees of a request.
type diffRequest struct {
	Method, Host, URI, Proto string
	Header, Trailer          http.Header
	Length                   int64
	Encoding                 []string
	Close                    bool
	Body                     string
}

var diffSentinels = []struct {
	name string
	err  error
}{
	{"canceled", context.Canceled},
	{"deadline", context.DeadlineExceeded},
	{"eof", io.EOF},
	{"unexpected eof", io.ErrUnexpectedEOF},
	{"refused", syscall.ECONNREFUSED},
	{"closed pipe", io.ErrClosedPipe},
	{"closed conn", net.ErrClosed},
	{"read after close", http.ErrBodyReadAfterClose},
	{"body not allowed", http.ErrBodyNotAllowed},
	{"https to http", http.ErrSchemeMismatch},
	{"errDiff", errDiff},
}

// errDiff is an error of the user's.
var errDiff = errors.New("an error of the user's")

// note adds to what the caller sees.
func (x *diffRun) note(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.caller = append(x.caller, x.clean(fmt.Sprintf(format, args...)))
}

func (x *diffRun) fail(err error) {
	seen := x.errorOf(err)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.caller = append(x.caller, seen)
	x.status = 0
}

// response notes resp; what its body holds is to be filled in.
func (x *diffRun) response(req *http.Request, resp *http.Response) *diffResponse {
	_, writable := resp.Body.(io.Writer)
	seen := &diffResponse{
		Status: resp.Status, Proto: resp.Proto,
		Header: x.header(resp.Header), Announced: x.header(resp.Trailer),
		Length: resp.ContentLength, Encoding: resp.TransferEncoding, Uncompressed: resp.Uncompressed, Close: resp.Close,
		NoBody: resp.Body == http.NoBody, Writable: writable,
		URL: x.clean(resp.Request.URL.String()), Sent: x.header(resp.Request.Header),
		Own: resp.Request == req, Hop: resp.Request.Response != nil,
	}
	if resp.TLS != nil {
		seen.TLS = fmt.Sprintf("%x %s", resp.TLS.Version, resp.TLS.NegotiatedProtocol)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.caller = append(x.caller, seen)
	x.status = resp.StatusCode
	return seen
}

// record adds r to what the servers see; what its body holds is to be filled in.
func (x *diffRun) record(r *http.Request) *diffRequest {
	seen := &diffRequest{
		Method: r.Method, Host: x.clean(r.Host), URI: x.clean(r.RequestURI), Proto: r.Proto, Header: x.header(r.Header),
		Length: r.ContentLength, Encoding: r.TransferEncoding, Close: r.Close,
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.server = append(x.server, seen)
	return seen
}

func (x *diffRun) errorOf(err error) diffError {
	var seen diffError
	if err == nil {
		return seen
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		seen.Op, seen.URL = e.Op, x.clean(e.URL)
	}
	if e, ok := err.(interface{ Timeout() bool }); ok { // on the error itself, as callers do
		seen.Timeout = e.Timeout()
	}
	for _, s := range diffSentinels {
		if errors.Is(err, s.err) {
			seen.Is = append(seen.Is, s.name)
		}
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		seen.Is = append(seen.Is, "unknown authority")
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return seen // its type and text depend on which of several timers was first
	}
	if x.misdeclared && (strings.Contains(err.Error(), "http: ContentLength=") || errors.Is(err, net.ErrClosed)) {
		seen.Is, seen.Cause = nil, "a body of another length" // or that net/http has closed the connection for it
		return seen
	}
	for cause := err; cause != nil; cause = errors.Unwrap(cause) {
		seen.Types = append(seen.Types, fmt.Sprintf("%T", cause))
		seen.Cause = x.clean(cause.Error())
	}
	return seen
}

var (
	diffAddress = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	diffStream  = regexp.MustCompile(`stream ID \d+`)
)

// clean takes out of s what differs between two runs.
func (x *diffRun) clean(s string) string {
	origin := x.srv.Listener.Addr().String()
	s = strings.ReplaceAll(s, origin, "origin")
	s = strings.ReplaceAll(s, strings.TrimPrefix(origin, "127.0.0.1"), ":port")
	return diffStream.ReplaceAllString(diffAddress.ReplaceAllString(s, "address"), "stream")
}

func (x *diffRun) header(h http.Header) http.Header {
	if h == nil {
		return nil
	}
	clean := http.Header{}
	for name, values := range h {
		if name == "Date" {
			continue
		}
		for _, v := range values {
			clean[name] = append(clean[name], x.clean(v))
		}
		if len(values) == 0 {
			clean[name] = values
		}
	}
	return clean
}

// A diffBody notes what is read through it and when it is closed.
type diffBody struct {
	io.ReadCloser
	closed chan struct{}

	mu    sync.Mutex // guards the fields below; not held while anything is read
	short []byte
	n     int
	sum   hash.Hash
	once  bool // closed is
}

func diffBodyOf(r io.Reader) *diffBody {
	return &diffBody{ReadCloser: io.NopCloser(r), closed: make(chan struct{})}
}

func (b *diffBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sum == nil {
		b.sum = sha256.New()
	}
	b.sum.Write(p[:n])
	b.n += n
	if b.n <= 200 {
		b.short = append(b.short, p[:n]...)
	}
	return n, err
}

func (b *diffBody) Close() error {
	b.mu.Lock()
	if !b.once && b.closed != nil {
		close(b.closed)
	}
	b.once = true
	b.mu.Unlock()
	return b.ReadCloser.Close()
}

// String returns what was read, if it is short.
func (b *diffBody) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n <= 200 {
		return string(b.short)
	}
	return fmt.Sprintf("%d bytes: %x", b.n, b.sum.Sum(nil))
}

// awaitClose waits until the body of a request is closed, which may be after RoundTrip has returned.
func (x *diffRun) awaitClose(b *diffBody) {
	select {
	case <-b.closed:
	case <-x.ctx.Done():
		x.note("not closed")
	}
}

// noteBody notes what was sent of the body of a request.
func (x *diffRun) noteBody(b *diffBody) {
	x.awaitClose(b)
	x.note("sent %s", b)
}

// request returns a request to the server; header is a list of names and values.
func (x *diffRun) request(method, path string, body io.Reader, header ...string) *http.Request {
	req, err := http.NewRequestWithContext(x.ctx, method, x.srv.URL+path, body)
	require.NoError(x.t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return req
}

// send makes an exchange with the client of the run, from the request to the end of the response body.
func (x *diffRun) send(req *http.Request) { x.sendBy(x.client, req) }

func (x *diffRun) sendBy(client *http.Client, req *http.Request) {
	resp, err := client.Do(req)
	if err != nil {
		x.fail(err)
		return
	}
	x.finish(req, resp)
}

// finish notes a response and reads and closes its body.
func (x *diffRun) finish(req *http.Request, resp *http.Response) {
	seen := x.response(req, resp)
	body := &diffBody{ReadCloser: resp.Body}
	_, err := io.Copy(io.Discard, body)
	seen.Body, seen.BodyErr = body.String(), x.errorOf(err)
	if err := resp.Body.Close(); err != nil {
		x.fail(err)
	}
	seen.Trailer = x.header(resp.Trailer)
}

// jar gives the client cookies.
func (x *diffRun) jar() {
	jar, err := cookiejar.New(nil)
	require.NoError(x.t, err)
	x.client.Jar = jar
}
