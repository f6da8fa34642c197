package hedgerow_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// perfService answers at once. What it allocates is the same under any wrapper.
type perfService struct{}

// A perfAnswer is a response and its body in one piece.
type perfAnswer struct {
	resp   http.Response
	unread int
}

func (perfService) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
	a := &perfAnswer{unread: 64}
	a.resp = http.Response{
		StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(a.unread), Body: a, Request: req,
	}
	return &a.resp, nil
}

func (a *perfAnswer) Read(p []byte) (int, error) {
	n := min(len(p), a.unread)
	if a.unread -= n; a.unread == 0 {
		return n, io.EOF
	}
	return n, nil
}

func (*perfAnswer) Close() error { return nil }

// perfPlain is an http.Transport whose protocol is perfService, perfUnknown a base that the library knows nothing of.
func perfPlain() http.RoundTripper {
	tr := &http.Transport{}
	tr.RegisterProtocol("http", perfService{})
	return tr
}

func perfUnknown() http.RoundTripper { return perfService{} }

// perfTransport returns a Transport over base with that many patterns, of which the last is that of perfRequest.
func perfTransport(tb testing.TB, base http.RoundTripper, patterns int) *hedgerow.Transport {
	tb.Helper()
	tr, err := hedgerow.New(hedgerow.Config{Base: base})
	require.NoError(tb, err)
	for k := range patterns {
		pattern := fmt.Sprintf("GET /v1/resource%d/{id}/parts/{part}", k)
		if k == patterns-1 {
			pattern = "GET /v1/users/{id}/posts/{post}"
		}
		require.NoError(tb, tr.Register(pattern, hedgerow.EndpointConfig{}))
	}
	return tr
}

// perfRequest returns a request without headers of its own and a background context.
func perfRequest(tb testing.TB, method, host string) *http.Request {
	tb.Helper()
	// A test's context can be cancelled, which costs every call.
	req, err := http.NewRequestWithContext(context.Background(), method, "http://"+host+"/v1/users/17/posts/4", nil)
	require.NoError(tb, err)
	return req
}

// A perfCaller makes calls and reads the responses to their end.
type perfCaller struct {
	rt  http.RoundTripper
	req *http.Request
	buf [512]byte
}

func (c *perfCaller) call() {
	resp, err := c.rt.RoundTrip(c.req)
	if err != nil {
		panic(err)
	}
	for err == nil {
		_, err = resp.Body.Read(c.buf[:])
	}
	_ = resp.Body.Close()
}
