package bed

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// Settle waits until no attempt holds a place in the pool, and checks that what was counted adds up. Every call of the pool
// has come by tr.
func Settle(t *testing.T, tr *hedgerow.Transport, pool *hedgerow.Pool) {
	t.Helper()
	var c hedgerow.Counters
	var p hedgerow.PoolStats
	// What a loser holds is given back off the caller's path.
	require.Eventually(t, func() bool {
		c, p = tr.Stats().Total, pool.Stats()
		ended := p.CallsOK + p.CallsExhausted + p.CallsFailed + p.CallsCanceled + p.PassedThrough
		return p.InFlight == 0 && ended == c.Requests+c.Hedges
	}, Patience, Tick, "attempts are left")
	var attempts uint64
	for _, r := range pool.Snapshot() {
		require.Zero(t, r.InFlight, r.ID)
		attempts += r.Attempts
	}
	require.Equal(t, p.Attempts, attempts)
	require.LessOrEqual(t, c.HedgeWins+c.PrimaryWins, c.Hedged)
	require.LessOrEqual(t, c.Hedged, c.Requests)
	require.LessOrEqual(t, c.Hedged, c.Hedges)
}

// Status returns what the pool knows of a resource.
func Status(t *testing.T, pool *hedgerow.Pool, id string) hedgerow.ResourceStatus {
	t.Helper()
	for _, r := range pool.Snapshot() {
		if r.ID == id {
			return r
		}
	}
	require.Fail(t, "no such resource", id)
	return hedgerow.ResourceStatus{}
}

// RequireRotated requires that one call was made by tr, with the second resource after the first one was refused.
func RequireRotated(t *testing.T, tr *hedgerow.Transport, pool *hedgerow.Pool) {
	t.Helper()
	Settle(t, tr, pool)
	now := pool.Snapshot()
	require.NotEqual(t, hedgerow.ResourceHealthy, now[0].State)
	require.Equal(t, hedgerow.ResourceHealthy, now[1].State)
	stats := pool.Stats()
	require.EqualValues(t, 2, stats.Attempts)
	require.EqualValues(t, 1, stats.CallsOK)
	total := tr.Stats().Total
	require.EqualValues(t, 1, total.Requests)
	require.Zero(t, total.Errors)
}

// RequireSkipped requires that tr has made n calls, and has hedged none, for one reason.
func RequireSkipped(t *testing.T, tr *hedgerow.Transport, n uint64, reason hedgerow.SkipReason) {
	t.Helper()
	total := tr.Stats().Total
	require.Equal(t, n, total.Requests)
	require.Equal(t, map[hedgerow.SkipReason]uint64{reason: n}, total.Skipped)
	require.Zero(t, total.Hedges)
	require.Zero(t, total.Errors)
}
