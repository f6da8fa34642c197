package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hedgerow-go/hedgerow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r, err := run(t.Context(), &out, 2*time.Second)
	require.NoError(t, err)
	require.Empty(t, r.failed)
	require.NoError(t, r.streamErr)
	require.Len(t, r.latencies, 2*perSecond)
	require.Equal(t, 3, r.tokens)

	revoked, cut := r.provider.seen("revoked")
	require.Positive(t, revoked.refused)
	require.Equal(t, hedgerow.ResourceDisabled, r.pool.Resources[2].State)
	require.Equal(t, 1, cut)
	free, _ := r.provider.seen("free-1")
	paid, _ := r.provider.seen("paid-1")
	require.Positive(t, free.served)
	require.Positive(t, free.limited)
	require.Positive(t, paid.served)
	require.Zero(t, r.pool.InFlight)
	require.Regexp(t, `(?s)What the provider saw.*free-1.*revoked +0 +0 +0 +0 +\d+ +disabled.*What callers saw\n\n40 calls, 0 failed`,
		out.String())
	require.NotContains(t, out.String(), "sk-")
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
	for _, d := range []time.Duration{0, -1, time.Hour} {
		_, err := run(t.Context(), nil, d)
		require.Error(t, err)
	}
}
