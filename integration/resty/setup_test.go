// Package resty_test shows go-resty, versions 2 and 3, over hedgerow.
package resty_test

import (
	"net/http"
	"testing"

	restyv2 "github.com/go-resty/resty/v2"
	restyv3 "resty.dev/v3"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

// newV2 and newV3 are the shortest set-up. Retries and version 3's own hedging are off by default.
func newV2(tr http.RoundTripper) *restyv2.Client { return restyv2.New().SetTransport(tr) }

func newV3(tr http.RoundTripper) *restyv3.Client { return restyv3.New().SetTransport(tr) }

// newKeys returns a pool of two keys for the server.
func newKeys(t *testing.T, srv *bed.Server) *hedgerow.Pool {
	t.Helper()
	return bed.NewPool(t, hedgerow.PoolConfig{
		Hosts: []string{srv.Host()},
		Resources: []hedgerow.Resource{
			{ID: "key-1", Credential: hedgerow.Bearer("one")},
			{ID: "key-2", Credential: hedgerow.Bearer("two")},
		},
	})
}
