// Package openai_test shows openai-go over hedgerow, with a pool of keys.
package openai_test

import (
	"net/http"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/llm"
)

// newClient is the shortest set-up: without the SDK's own retries, because the pool knows better what to try next.
//
//	keys, err := hedgerow.NewPool(hedgerow.PoolConfig{
//		Hosts:     []string{"api.openai.com"},
//		Resources: []hedgerow.Resource{{ID: "a", Credential: hedgerow.Bearer(key)}, ...},
//	})
//	tr, err := hedgerow.New(hedgerow.Config{Base: keys.Wrap(http.DefaultTransport)})
//	err = tr.Register("POST /v1/chat/completions", hedgerow.EndpointConfig{ // only if paying twice is all right
//		Idempotent: true, Hedge: &hedgerow.HedgeConfig{Signal: hedgerow.SignalFirstByte},
//	})
func newClient(tr http.RoundTripper, url string, opts ...option.RequestOption) openai.Client {
	return newRetryingClient(tr, url, append(opts, option.WithMaxRetries(0))...)
}

// newRetryingClient has them, as by default. The SDK wants a key of its own, which the pool replaces.
func newRetryingClient(tr http.RoundTripper, url string, opts ...option.RequestOption) openai.Client {
	return openai.NewClient(append([]option.RequestOption{
		option.WithHTTPClient(&http.Client{Transport: tr}),
		option.WithAPIKey(llm.Placeholder),
		option.WithBaseURL(url + "/v1"), // only for the tests
	}, opts...)...)
}

// newAzureClient is that for Azure, which takes Api-Key alone.
func newAzureClient(tr http.RoundTripper, url string, opts ...option.RequestOption) openai.Client {
	return newClient(tr, url, append(opts, option.WithHeaderDel("Authorization"))...)
}

func azureKey(key string) hedgerow.Credential { return hedgerow.HeaderKey("Api-Key", key) }
