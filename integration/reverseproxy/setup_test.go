// Package reverseproxy_test shows net/http/httputil.ReverseProxy on top of hedgerow: a proxy that hedges.
package reverseproxy_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// newProxy is the shortest set-up: a proxy to a URL whose calls go by hedgerow.
func newProxy(t *testing.T, to string, rt http.RoundTripper) *httputil.ReverseProxy {
	t.Helper()
	target, err := url.Parse(to)
	require.NoError(t, err)
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			if r.Out.Body != nil {
				r.Out.Body = &inbound{ReadCloser: r.Out.Body}
			}
		},
		Transport: rt,
	}
}

// An inbound body says its end from memory. A transport looks for the end of an upload of a known length once more over HTTP/1.1,
// and a server may by then have closed the body, because its answer has begun: the look would cut the answer off, with hedgerow or
// without it (go.dev/issue/40747).
type inbound struct {
	io.ReadCloser
	ended bool
}

func (b *inbound) Read(p []byte) (int, error) {
	if b.ended {
		return 0, io.EOF
	}
	n, err := b.ReadCloser.Read(p)
	b.ended = err == io.EOF
	return n, err
}

// keep gives a request to be sent a body that can be sent again, if it may be sent more than once and is not too large. The
// body of an inbound request cannot.
func keep(req *http.Request) error {
	if req.Header.Get("Idempotency-Key") == "" || req.ContentLength <= 0 || req.ContentLength > 1<<20 {
		return nil
	}
	data := make([]byte, req.ContentLength)
	if _, err := io.ReadFull(req.Body, data); err != nil {
		return err
	}
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	req.Body, _ = req.GetBody()
	return nil
}

// A keeping transport is one beneath a ReverseProxy that keeps bodies. A Rewrite could do it as well, but cannot fail.
type keeping struct{ next http.RoundTripper }

func (k keeping) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	if err := keep(req); err != nil {
		return nil, err
	}
	return k.next.RoundTrip(req)
}
