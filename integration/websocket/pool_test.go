package websocket_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
	"github.com/hedgerow-go/hedgerow/integration/internal/wsecho"
)

// A connection goes to an upstream with a key of its own, and holds its slot until it is closed.
func TestPool(t *testing.T) {
	t.Parallel()
	srv := bed.Serve(t, "h1", bed.Keyed(http.StatusUnauthorized, wsecho.Handler(websocket.AcceptOptions{})))

	pool, err := hedgerow.NewPool(hedgerow.PoolConfig{
		Hosts: []string{"ws.example.com"},
		Resources: []hedgerow.Resource{
			{ID: "a", Upstream: srv.URL, Credential: hedgerow.Bearer("good"), MaxInFlight: 1},
		},
	})
	require.NoError(t, err)
	tr, err := hedgerow.New(hedgerow.Config{Base: pool.Wrap(srv.Base)})
	require.NoError(t, err)
	conn, _, err := dial(bed.Timeout(t), logicalURL, tr)
	require.NoError(t, err)

	requireEcho(t, conn)
	require.Equal(t, 1, pool.Snapshot()[0].InFlight)
	_, _, err = dial(bed.Timeout(t), logicalURL, tr)
	var exhausted *hedgerow.ExhaustedError
	require.ErrorAs(t, err, &exhausted)
	require.Equal(t, hedgerow.ExhaustedNoResource, exhausted.Reason)

	require.NoError(t, conn.Close(websocket.StatusNormalClosure, ""))
	require.Zero(t, pool.Snapshot()[0].InFlight)
	conn, _, err = dial(bed.Timeout(t), logicalURL, tr)
	require.NoError(t, err)
	requireEcho(t, conn)
	require.NoError(t, conn.CloseNow())

	stats := pool.Stats()
	require.Zero(t, stats.InFlight)
	require.EqualValues(t, 2, stats.Attempts)
	require.EqualValues(t, 2, stats.CallsOK)
	require.EqualValues(t, 1, stats.CallsExhausted)
	total := tr.Stats().Total
	require.EqualValues(t, 3, total.Requests)
	require.EqualValues(t, 1, total.Errors)
	require.Equal(t, map[hedgerow.SkipReason]uint64{hedgerow.SkipUpgrade: 3}, total.Skipped)
}

// A handshake that is refused for its key is repeated with another one. The caller sees the connection alone.
func TestPoolRotates(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusTooManyRequests, http.StatusUnauthorized} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			srv := bed.Serve(t, "h1", bed.Keyed(status, wsecho.Handler(websocket.AcceptOptions{})))
			pool := bed.NewPool(t, hedgerow.PoolConfig{
				Hosts: []string{srv.Host()}, Strategy: hedgerow.PrimaryBackup,
				Resources: bed.SpentAndGood(),
			})
			tr := bed.New(t, hedgerow.Config{Base: pool.Wrap(bed.Mark(srv.Base)), Hedge: bed.Soon()})
			conn, resp, err := dial(bed.Timeout(t), srv.URL, tr)
			require.NoError(t, err)
			require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
			requireEcho(t, conn)
			now := pool.Snapshot()
			require.Equal(t, []int{0, 1}, []int{now[0].InFlight, now[1].InFlight})
			require.NoError(t, conn.Close(websocket.StatusNormalClosure, ""))
			bed.RequireRotated(t, tr, pool)
			bed.RequireSkipped(t, tr, 1, hedgerow.SkipUpgrade)
		})
	}
}

// A connection outlives the context of its Dial, and so does its slot: it is held until the connection is closed. A client with
// a Timeout ends that context when Dial returns.
func TestPoolSlotOutlivesTheContextOfDial(t *testing.T) {
	t.Parallel()
	srv := bed.Serve(t, "h1", bed.Keyed(http.StatusUnauthorized, wsecho.Handler(websocket.AcceptOptions{})))
	for name, timeout := range map[string]time.Duration{"context": 0, "client": time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := bed.NewPool(t, hedgerow.PoolConfig{
				Hosts:     []string{srv.Host()},
				Resources: []hedgerow.Resource{{ID: "a", Credential: hedgerow.Bearer("good"), MaxInFlight: 1}},
			})
			tr := bed.New(t, hedgerow.Config{Base: pool.Wrap(srv.Base)})
			client := &http.Client{Transport: tr, Timeout: timeout}
			ctx, cancel := context.WithCancel(t.Context())
			conn, _, err := websocket.Dial(ctx, srv.URL, &websocket.DialOptions{HTTPClient: client})
			require.NoError(t, err)
			cancel()
			requireEcho(t, conn)
			require.Equal(t, 1, pool.Snapshot()[0].InFlight)
			require.NoError(t, conn.Close(websocket.StatusNormalClosure, ""))
			require.Zero(t, pool.Snapshot()[0].InFlight)
			bed.Settle(t, tr, pool)
			bed.RequireSkipped(t, tr, 1, hedgerow.SkipUpgrade)
		})
	}
}
