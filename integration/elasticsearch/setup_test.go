// Package elasticsearch_test shows go-elasticsearch over hedgerow, with a pool of nodes.
package elasticsearch_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/elastic/elastic-transport-go/v8/elastictransport"
	"github.com/elastic/go-elasticsearch/v9"
	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

// cluster is the one address that the client has. It need not exist: the pool puts a node in its place.
const (
	cluster    = "search.example.com:9200"
	clusterURL = "https://" + cluster
)

// newNodes returns the pool, which rotates the nodes and so takes the place of the client's own list.
func newNodes(t *testing.T, urls ...string) *hedgerow.Pool {
	t.Helper()
	cfg := hedgerow.PoolConfig{
		Hosts:         []string{cluster},
		CooldownTable: []time.Duration{time.Second, 5 * time.Second}, // a 429 comes without a hint, and a queue is soon shorter
	}
	for i, u := range urls {
		cfg.Resources = append(cfg.Resources, hedgerow.Resource{ID: fmt.Sprintf("node-%d", i+1), Upstream: u})
	}
	return bed.NewPool(t, cfg)
}

// newTransport declares the POSTs that only read.
func newTransport(t *testing.T, base http.RoundTripper) *hedgerow.Transport {
	t.Helper()
	tr := bed.New(t, hedgerow.Config{Base: base, Hedge: bed.Soon()})
	for _, pattern := range []string{"POST /_search", "POST /{index}/_search", "POST /_msearch", "POST /{index}/_count"} {
		require.NoError(t, tr.Register(pattern, hedgerow.EndpointConfig{Idempotent: true}))
	}
	return tr
}

// newClient is the shortest set-up: without its own retries, which know nothing of what may be sent twice.
func newClient(t *testing.T, rt http.RoundTripper, opts ...elastictransport.Option) *elasticsearch.Client {
	t.Helper()
	return newRetryingClient(t, rt, append(opts, elastictransport.WithDisableRetry())...)
}

// newRetryingClient has them, as by default.
func newRetryingClient(t *testing.T, rt http.RoundTripper, opts ...elastictransport.Option) *elasticsearch.Client {
	t.Helper()
	client, err := elasticsearch.New(
		elasticsearch.WithAddresses(clusterURL),
		elasticsearch.WithAPIKey("c2VjcmV0"),
		elasticsearch.WithTransportOptions(append(opts, elastictransport.WithTransport(rt))...),
	)
	require.NoError(t, err)
	return client
}
