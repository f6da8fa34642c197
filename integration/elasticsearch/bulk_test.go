package elasticsearch_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

func TestSlowBulkIsSentOnce(t *testing.T) {
	t.Parallel()
	eachBulk(t, func(t *testing.T, proto string, run bulkFunc) {
		t.Helper()
		slow, docs := bed.NewGate(), &index{}
		srv := bed.Serve(t, proto, bed.WithClock(product(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer := docs.add(bed.ReadBody(t, r))
			slow.Pass(r)
			_, _ = w.Write(answer)
		}))))
		nodes := newNodes(t, srv.URL, srv.URL)
		tr := newTransport(t, nodes.Wrap(bed.Mark(srv.Base)))
		client := newClient(t, tr)

		bed.Slowly(t, tr, clusterURL, slow, func() error { return run(t.Context(), client) })
		bed.Settle(t, tr, nodes)
		require.Equal(t, 1, slow.Count())
		require.NoError(t, docs.once())
		require.EqualValues(t, 1, tr.Stats().Total.Skipped[hedgerow.SkipMethod])
	})
}

// A connection that breaks after the node has taken a bulk request is an error: what the node has done is not known. The
// client's own retries send it again all the same, so they have to be off.
func TestBulkAfterABrokenConnection(t *testing.T) {
	t.Parallel()
	eachBulk(t, func(t *testing.T, proto string, run bulkFunc) {
		t.Helper()
		for whose, retries := range map[string]bool{"DisableRetry": false, "own retries": true} {
			t.Run(whose, func(t *testing.T) {
				t.Parallel()
				docs := &index{}
				bad := bed.Serve(t, proto, product(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					docs.add(bed.ReadBody(t, r))
					panic(http.ErrAbortHandler)
				})))
				good := bed.Serve(t, proto, docs.node(t))
				nodes := newNodes(t, bad.URL, good.URL)
				tr := newTransport(t, nodes.Wrap(good.Base))
				client := newClient(t, tr)
				if retries {
					client = newRetryingClient(t, tr)
				}

				err := run(t.Context(), client)
				bed.Settle(t, tr, nodes)
				require.EqualValues(t, 1, bed.Status(t, nodes, "node-1").Attempts)
				if retries {
					require.NoError(t, err)
					require.Error(t, docs.once(), "each is there twice")
					require.EqualValues(t, 2, tr.Stats().Total.Requests)
					return
				}
				require.Error(t, err)
				require.NoError(t, docs.once())
				require.Zero(t, bed.Status(t, nodes, "node-2").Attempts)
				require.NoError(t, bulk(t.Context(), client), "the other node is there for the next call")
				bed.Settle(t, tr, nodes)
			})
		}
	})
}

// A node that has rejected a request has not done it: it goes to the next node, whatever it is.
func TestRejectedExecutionGoesToTheNextNode(t *testing.T) {
	t.Parallel()
	eachBulk(t, func(t *testing.T, proto string, run bulkFunc) {
		t.Helper()
		docs := &index{}
		full := bed.Serve(t, proto, product(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = bed.ReadBody(t, r)
			rejected(w)
		})))
		free := bed.Serve(t, proto, docs.node(t))
		nodes := newNodes(t, full.URL, free.URL)
		tr := newTransport(t, nodes.Wrap(free.Base))
		client := newClient(t, tr)

		require.NoError(t, run(t.Context(), client))
		require.NoError(t, docs.once())
		requireFound(t, client, query(96<<10, 1))
		bed.Settle(t, tr, nodes)
		require.GreaterOrEqual(t, bed.Status(t, nodes, "node-1").Cooldowns, uint64(1))
		require.Zero(t, tr.Stats().Total.Errors)
	})
}

// A node that refuses connections costs no call: nothing was sent, so that writes go on as well.
func TestDeadNode(t *testing.T) {
	t.Parallel()
	eachBulk(t, func(t *testing.T, proto string, run bulkFunc) {
		t.Helper()
		docs := &index{}
		srv := bed.Serve(t, proto, docs.node(t))
		nodes := newNodes(t, "https://127.0.0.1:1", srv.URL) // nobody listens on port 1
		tr := newTransport(t, nodes.Wrap(srv.Base))
		client := newClient(t, tr)

		require.NoError(t, run(t.Context(), client))
		require.NoError(t, docs.once())
		for i := range uint64(10) {
			requireFound(t, client, query(64<<10, i))
		}
		bed.Settle(t, tr, nodes)
		dead := bed.Status(t, nodes, "node-1")
		require.GreaterOrEqual(t, dead.Attempts, uint64(1))
		require.Zero(t, dead.Successes)
		require.GreaterOrEqual(t, dead.ConsecutiveFailures, 1)
		require.Zero(t, tr.Stats().Total.Errors)
	})
}
