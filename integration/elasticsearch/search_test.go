package elasticsearch_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/elastic/elastic-transport-go/v8/elastictransport"
	"github.com/elastic/go-elasticsearch/v9"
	"github.com/elastic/go-elasticsearch/v9/esutil"
	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

func TestSlowSearchIsHedged(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		srv := bed.Serve(t, proto, product(bed.HoldPrimary(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if auth := r.Header.Get("Authorization"); auth != "APIKey c2VjcmV0" {
				t.Errorf("Authorization: %q", auth)
			}
			found(t, w, r)
		}))))
		nodes := newNodes(t, srv.URL, srv.URL)
		tr := newTransport(t, nodes.Wrap(bed.Mark(srv.Base)))
		client := newClient(t, tr)

		want := query(96<<10, 1)
		got, text, err := result(search(t.Context(), client, bytes.NewReader(want)))
		require.NoError(t, err)
		require.Equal(t, hash(want), got)
		require.Equal(t, string(bed.Pattern(96<<10)), text)

		bare, err := elasticsearch.New(elasticsearch.WithAddresses(srv.URL), elasticsearch.WithAPIKey("c2VjcmV0"),
			elasticsearch.WithTransportOptions(elastictransport.WithTransport(srv.Base)))
		require.NoError(t, err)
		bareGot, bareText, err := result(search(t.Context(), bare, bytes.NewReader(want)))
		require.NoError(t, err)
		require.Equal(t, bareGot, got)
		require.Equal(t, bareText, text)

		typed, err := elasticsearch.NewTypedFrom(client).Search().Index("books").Raw(bytes.NewReader(want)).Do(t.Context())
		require.NoError(t, err)
		require.Len(t, typed.Hits.Hits, 1)
		require.Contains(t, string(typed.Hits.Hits[0].Source_), hash(want))

		bed.Settle(t, tr, nodes)
		require.EqualValues(t, 2, tr.Stats().Total.HedgeWins)
	})
}

// A search is hedged only if its body can be had again and has a known length. A reader that http.NewRequest does not know
// has neither, until the client compresses it.
func TestWhichSearchesAreHedged(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		q := map[string]any{"query": map[string]any{"match": map[string]any{"text": string(bed.Pattern(64 << 10))}}}
		for name, c := range map[string]struct {
			body   io.Reader
			opts   []elastictransport.Option
			hedged bool
		}{
			"strings.Reader":         {strings.NewReader(`{}`), nil, true},
			"bytes.Buffer":           {bytes.NewBufferString(`{}`), nil, true},
			"JSONReader":             {esutil.NewJSONReader(q), nil, false},
			"JSONReader, compressed": {esutil.NewJSONReader(q), []elastictransport.Option{elastictransport.WithCompression()}, true},
			"no body":                {nil, nil, true},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				srv := bed.Serve(t, proto, product(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if c.hedged && bed.IsPrimary(r) {
						bed.Hold(r)
					}
					found(t, w, r)
				})))
				nodes := newNodes(t, srv.URL, srv.URL)
				tr := newTransport(t, nodes.Wrap(bed.Mark(srv.Base)))

				_, _, err := result(search(t.Context(), newClient(t, tr, c.opts...), c.body))
				require.NoError(t, err)
				bed.Settle(t, tr, nodes)
				if c.hedged {
					require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
				} else {
					require.EqualValues(t, 1, tr.Stats().Total.Skipped[hedgerow.SkipBody])
				}
			})
		}
	})
}

// The client takes the buffers of compressed bodies back when a call has ended. The attempts that have lost do not read them
// any more by then, though their node has not taken them yet.
func TestCompressedBodiesAreFreeWhenTheCallHasEnded(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		release := make(chan struct{})
		srv := bed.Serve(t, proto, product(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if bed.IsPrimary(r) {
				<-release // its body is left unread
				return
			}
			found(t, w, r)
		})))
		t.Cleanup(func() { close(release) })
		nodes := newNodes(t, srv.URL, srv.URL)
		tr := newTransport(t, nodes.Wrap(bed.Mark(srv.Base)))
		client := newClient(t, tr, elastictransport.WithCompression())

		for i := range uint64(3) {
			requireFound(t, client, query(900<<10, i)) // more than what the sockets hold
		}
		bed.Settle(t, tr, nodes)
		require.EqualValues(t, 3, tr.Stats().Total.HedgeWins)
	})
}

// What is not declared is sent once. A scroll above all must not be declared: each request moves it on.
func TestScrollIsSentOnce(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		slow := bed.NewGate()
		srv := bed.Serve(t, proto, bed.WithClock(product(bed.ReadFirst(t, slow.Handler(http.HandlerFunc(bed.Echo))))))
		nodes := newNodes(t, srv.URL, srv.URL)
		tr := newTransport(t, nodes.Wrap(bed.Mark(srv.Base)))
		client := newClient(t, tr)

		bed.Slowly(t, tr, clusterURL, slow, func() error {
			resp, err := client.Scroll(client.Scroll.WithContext(t.Context()), client.Scroll.WithBody(strings.NewReader(`{}`)))
			if err == nil {
				err = resp.Body.Close()
			}
			return err
		})
		bed.Settle(t, tr, nodes)
		require.Equal(t, 1, slow.Count())
		require.EqualValues(t, 1, tr.Stats().Total.Skipped[hedgerow.SkipMethod])
	})
}

// With every node full the client gets the last node's answer.
func TestAllNodesReject(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		srv := bed.Serve(t, proto, product(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { rejected(w) })))
		nodes := newNodes(t, srv.URL, srv.URL)
		tr := newTransport(t, nodes.Wrap(srv.Base))

		_, _, err := result(search(unhedged(t), newClient(t, tr), strings.NewReader(`{}`)))
		require.ErrorContains(t, err, "es_rejected_execution_exception")
		bed.Settle(t, tr, nodes)
		require.EqualValues(t, 2, nodes.Stats().Cooldowns)
	})
}

// The client's tries and the pool's attempts multiply.
func TestRetriesMultiply(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		for name, c := range map[string]struct {
			client func(*testing.T, http.RoundTripper, ...elastictransport.Option) *elasticsearch.Client
			want   int
		}{
			"DisableRetry": {newClient, 2},
			"own retries":  {newRetryingClient, 4 * 2},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var arrived atomic.Int64
				srv := bed.Serve(t, proto, product(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					arrived.Add(1)
					w.WriteHeader(http.StatusServiceUnavailable)
				})))
				nodes := bed.NewPool(t, hedgerow.PoolConfig{
					Hosts:       []string{cluster},
					Resources:   []hedgerow.Resource{{ID: "node-1", Upstream: srv.URL}, {ID: "node-2", Upstream: srv.URL}},
					MaxAttempts: 2, // else the same node once more, after RetryDelay
				})
				tr := bed.New(t, hedgerow.Config{Base: nodes.Wrap(srv.Base), Hedge: bed.Off()})
				require.NoError(t, tr.Register("POST /{index}/_search", hedgerow.EndpointConfig{
					Idempotent: true, Hedge: &hedgerow.HedgeConfig{Disabled: true},
				}))

				resp, err := search(t.Context(), c.client(t, tr), strings.NewReader(`{}`))
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
				bed.Settle(t, tr, nodes)
				require.EqualValues(t, c.want, arrived.Load())
			})
		}
	})
}

// The client refuses what does not say that it is Elasticsearch, through hedgerow as without, and leaves nothing open.
func TestProductCheck(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		srv := bed.Serve(t, proto, bed.HoldPrimary(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			found(t, w, r)
		})))
		nodes := newNodes(t, srv.URL, srv.URL)
		tr := newTransport(t, nodes.Wrap(bed.Mark(srv.Base)))

		_, err := search(t.Context(), newClient(t, tr), strings.NewReader(`{}`))
		require.ErrorContains(t, err, "the server is not Elasticsearch")
		bed.Settle(t, tr, nodes)
		require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
	})
}

// API keys rotate as well, with the nodes or without them.
func TestKeysRotate(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		srv := bed.Serve(t, proto, product(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "ApiKey two" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			found(t, w, r)
		})))
		keys := bed.NewPool(t, hedgerow.PoolConfig{
			Hosts: []string{cluster},
			Resources: []hedgerow.Resource{
				{ID: "key-1", Credential: hedgerow.HeaderKey("Authorization", "ApiKey one"), Upstream: srv.URL},
				{ID: "key-2", Credential: hedgerow.HeaderKey("Authorization", "ApiKey two"), Upstream: srv.URL},
			},
		})
		tr := newTransport(t, keys.Wrap(srv.Base))

		_, _, err := result(search(unhedged(t), newClient(t, tr), strings.NewReader(`{}`)))
		require.NoError(t, err)
		bed.Settle(t, tr, keys)
		require.Equal(t, hedgerow.ResourceDisabled, bed.Status(t, keys, "key-1").State)
	})
}
