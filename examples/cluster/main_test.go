package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	t.Parallel()
	const duration = 2 * time.Second
	var out bytes.Buffer
	r, err := run(t.Context(), &out, duration)
	require.NoError(t, err)
	calls, bulk := 0, 0
	for i := range r.thirds {
		require.Zero(t, r.thirds[i][0].errors, "a search is repeated: %v", r.failed)
		require.LessOrEqual(t, r.thirds[i][1].errors, 3, "those that were on their way to what died")
		calls += len(r.thirds[i][0].latencies) + len(r.thirds[i][1].latencies)
		bulk += len(r.thirds[i][1].latencies)
	}
	require.Equal(t, int(duration.Seconds()*perSecond), calls)
	require.Equal(t, calls/bulkEvery, bulk)
	require.Zero(t, r.bulk.twice())
	require.Positive(t, r.pool.Retries)
	require.Zero(t, r.pool.Resources[0].ConsecutiveFailures, "it has returned")
	require.Less(t, r.pool.Resources[2].Attempts, r.pool.Resources[1].Attempts, "the slow one gets less")
	require.Regexp(t, `(?s)What callers saw.*all alive .*one dead .*all alive again .*Where the calls went.*search-1 .*0 bulk writes came twice`,
		out.String())
}

// An interrupt ends the run with its tables.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var out bytes.Buffer
	start := time.Now()
	_, err := run(ctx, &out, time.Minute)
	require.NoError(t, err)
	require.Less(t, time.Since(start), 10*time.Second)
	require.Contains(t, out.String(), "What callers saw")
}

func TestDuration(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{0, time.Millisecond, time.Hour} {
		_, err := run(t.Context(), nil, d)
		require.Error(t, err)
	}
}
