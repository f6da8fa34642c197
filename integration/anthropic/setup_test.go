// Package anthropic_test shows anthropic-sdk-go over hedgerow, with a pool of keys.
package anthropic_test

import (
	"net/http"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/llm"
)

// newClient is the shortest set-up: without the SDK's own retries, because the pool knows better what to try next.
//
//	keys, err := hedgerow.NewPool(hedgerow.PoolConfig{
//		Hosts:     []string{"api.anthropic.com"},
//		Resources: []hedgerow.Resource{{ID: "a", Credential: hedgerow.HeaderKey("X-Api-Key", key)}, ...},
//	})
//	tr, err := hedgerow.New(hedgerow.Config{Base: keys.Wrap(http.DefaultTransport)})
//	err = tr.Register("POST /v1/messages", hedgerow.EndpointConfig{ // only if paying twice is all right
//		Idempotent: true, Hedge: &hedgerow.HedgeConfig{Signal: hedgerow.SignalFirstByte},
//	})
func newClient(tr http.RoundTripper, url string, opts ...option.RequestOption) anthropic.Client {
	return newRetryingClient(tr, url, append(opts, option.WithMaxRetries(0))...)
}

// newRetryingClient has them, as by default. The SDK wants a key of its own, which the pool replaces; without the defaults of the
// environment it has no other.
func newRetryingClient(tr http.RoundTripper, url string, opts ...option.RequestOption) anthropic.Client {
	return anthropic.NewClient(append([]option.RequestOption{
		option.WithHTTPClient(&http.Client{Transport: tr}),
		option.WithoutEnvironmentDefaults(),
		option.WithAPIKey(llm.Placeholder),
		option.WithBaseURL(url), // only for the tests
	}, opts...)...)
}

// apiKey is the credential of a key.
func apiKey(key string) hedgerow.Credential { return hedgerow.HeaderKey("X-Api-Key", key) }
