// Package retryablehttp_test shows hashicorp/go-retryablehttp with hedgerow as its transport, and beneath hedgerow.
package retryablehttp_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

// newKeys returns a pool of two keys for the server.
func newKeys(t *testing.T, srv *bed.Server) *hedgerow.Pool {
	t.Helper()
	return bed.NewPool(t, hedgerow.PoolConfig{
		Hosts: []string{srv.Host()},
		Resources: []hedgerow.Resource{
			{ID: "key-1", Credential: hedgerow.HeaderKey("X-Api-Key", "one")},
			{ID: "key-2", Credential: hedgerow.HeaderKey("X-Api-Key", "two")},
		},
	})
}

// newClient is the shortest set-up: hedgerow takes the place of the transport, and the retries stay as they are.
func newClient(tr http.RoundTripper) *retryablehttp.Client {
	client := retryablehttp.NewClient()
	client.HTTPClient.Transport = tr
	client.Logger = nil
	client.RetryWaitMin, client.RetryWaitMax = time.Millisecond, time.Millisecond // only for the tests
	return client
}

// newBase returns retryablehttp as what carries hedgerow's attempts: then its retries happen inside one attempt.
func newBase(srv *bed.Server) *retryablehttp.Client {
	client := retryablehttp.NewClient()
	client.HTTPClient.Transport = bed.Mark(srv.Base)
	client.Logger = nil
	client.RetryWaitMin, client.RetryWaitMax = time.Millisecond, time.Millisecond // only for the tests
	return client
}
