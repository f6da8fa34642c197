package resty_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	restyv2 "github.com/go-resty/resty/v2"
	"github.com/stretchr/testify/require"
	restyv3 "resty.dev/v3"

	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

// A client is what both versions can do, in the words of these tests.
type client interface {
	retry(n int) // errors and 5xx
	timeout(d time.Duration)
	get(ctx context.Context, url string) (int, []byte, error)
	post(ctx context.Context, url string, body any) (int, []byte, error)
	upload(ctx context.Context, url, file string) (int, error)
	save(ctx context.Context, url, file string) (int, error)
	stream(ctx context.Context, url string) (io.ReadCloser, error)
}

// eachVersion runs f with each version, over HTTP/1.1 and over HTTP/2.
func eachVersion(t *testing.T, f func(t *testing.T, proto string, version int)) {
	t.Helper()
	bed.Each(t, func(t *testing.T, proto string) {
		for name, version := range map[string]int{"v2": 2, "v3": 3} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f(t, proto, version)
			})
		}
	})
}

func newClient(t *testing.T, version int, tr http.RoundTripper) client {
	t.Helper()
	if version == 2 {
		return v2{newV2(tr).SetLogger(silent{})}
	}
	c := newV3(tr).SetLogger(silent{})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return v3{c}
}

type silent struct{}

func (silent) Errorf(string, ...any) {}

func (silent) Warnf(string, ...any) {}

func (silent) Debugf(string, ...any) {}

type v2 struct{ *restyv2.Client }

func (c v2) retry(n int) {
	c.SetRetryCount(n).SetRetryWaitTime(1).SetRetryMaxWaitTime(1)
	c.AddRetryCondition(func(r *restyv2.Response, err error) bool { return err != nil || r.StatusCode() >= 500 })
}

func (c v2) timeout(d time.Duration) { c.SetTimeout(d) }

func (c v2) get(ctx context.Context, url string) (int, []byte, error) {
	resp, err := c.R().SetContext(ctx).EnableTrace().Get(url)
	return resp.StatusCode(), resp.Body(), err
}

func (c v2) post(ctx context.Context, url string, body any) (int, []byte, error) {
	resp, err := c.R().SetContext(ctx).SetBody(body).Post(url)
	return resp.StatusCode(), resp.Body(), err
}

func (c v2) upload(ctx context.Context, url, file string) (int, error) {
	resp, err := c.R().SetContext(ctx).SetFile("file", file).Post(url)
	return resp.StatusCode(), err
}

func (c v2) save(ctx context.Context, url, file string) (int, error) {
	resp, err := c.R().SetContext(ctx).SetOutput(file).Get(url)
	return resp.StatusCode(), err
}

func (c v2) stream(ctx context.Context, url string) (io.ReadCloser, error) {
	resp, err := c.R().SetContext(ctx).SetDoNotParseResponse(true).Get(url)
	return resp.RawBody(), err
}

type v3 struct{ *restyv3.Client }

func (c v3) retry(n int) {
	c.SetRetryCount(n).SetRetryWaitTime(1).SetRetryMaxWaitTime(1)
	c.AddRetryConditions(func(r *restyv3.Response, err error) bool { return err != nil || r.StatusCode() >= 500 })
}

func (c v3) timeout(d time.Duration) { c.SetTimeout(d) }

func (c v3) get(ctx context.Context, url string) (int, []byte, error) {
	resp, err := c.R().SetContext(ctx).SetTrace(true).Get(url)
	return resp.StatusCode(), resp.Bytes(), err
}

func (c v3) post(ctx context.Context, url string, body any) (int, []byte, error) {
	resp, err := c.R().SetContext(ctx).SetBody(body).Post(url)
	return resp.StatusCode(), resp.Bytes(), err
}

func (c v3) upload(ctx context.Context, url, file string) (int, error) {
	resp, err := c.R().SetContext(ctx).SetFile("file", file).Post(url)
	return resp.StatusCode(), err
}

func (c v3) save(ctx context.Context, url, file string) (int, error) {
	resp, err := c.R().SetContext(ctx).SetResponseSaveFileName(file).Get(url)
	return resp.StatusCode(), err
}

func (c v3) stream(ctx context.Context, url string) (io.ReadCloser, error) {
	resp, err := c.R().SetContext(ctx).SetResponseDoNotParse(true).Get(url)
	return resp.Body, err
}
