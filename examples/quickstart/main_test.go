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
	const duration = 2 * time.Second
	var out bytes.Buffer
	r, err := run(t.Context(), &console{out: &out, every: time.Second}, duration)
	require.NoError(t, err)

	require.Regexp(t, `(?s)^\d+ calls in 2s to each of two equal servers`+
		`.* s  \d+ calls, p99 in ms: bare [\d.]+, hedgerow [\d.]+, extra load [\d.]+ %\n`+
		`.*\nWhat callers saw, in ms\n\nendpoint +client +calls +p50 +p90 +p99 +p99\.9 +errors\n`+
		`profile +bare +\d.*\n +hedgerow +\d.*search +bare .*prices +bare .*orders +bare `+
		`.*\nWhat hedgerow did\n\nendpoint +extra load +hedges +wins +delay, ms  calls refused .*\n`+
		`profile +[\d.]+ % .*\norders +0\.0 % +0 +0 +-  method \d+\nall `+
		`.*\nWhat the servers saw\n\nbare +\d+ requests, 0 orders sent twice\n`+
		`hedgerow +\d+ requests, 0 orders sent twice\n\nWhat fails at once .*\n$`, out.String())

	for i, e := range r.endpoints {
		bare, hedged := r.results[0][i], r.results[1][i]
		s := r.endpointStats(e.name)
		require.NotEmpty(t, bare.latencies, e.name)
		require.Len(t, hedged.latencies, len(bare.latencies), e.name)
		require.EqualValues(t, len(bare.latencies), s.Requests, e.name)
		require.EqualValues(t, hedged.errors, s.Errors, e.name)
		if !e.fails {
			require.Zero(t, bare.errors, e.name)
			require.Zero(t, hedged.errors, e.name)
		}
		// 10 % of the calls, and what two busy seconds may save up.
		require.LessOrEqual(t, float64(s.Hedges), 0.1*float64(s.Requests)+max(1, 0.1*2*1.5*e.perSecond), e.name)
	}
	orders := r.endpointStats("orders")
	require.Zero(t, orders.Hedges)
	require.Equal(t, map[hedgerow.SkipReason]uint64{hedgerow.SkipMethod: orders.Requests}, orders.Skipped)
	for _, c := range r.callers {
		require.Zero(t, c.server.ordersSeenTwice(), c.name)
	}
	bare, hedged := r.requests(r.callers[0].server), r.requests(r.callers[1].server)
	require.EqualValues(t, r.stats.Total.Requests, bare)
	require.GreaterOrEqual(t, hedged, bare)                                             // a busy machine may find no time to hedge
	require.LessOrEqual(t, uint64(hedged), r.stats.Total.Requests+r.stats.Total.Hedges) // a loser may not have arrived
}

// What was measured until the interrupt is reported, and is no error.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var out bytes.Buffer
	start := time.Now()
	r, err := run(ctx, &console{out: &out, every: time.Second}, time.Hour)
	require.NoError(t, err)
	require.Less(t, time.Since(start), time.Minute)
	require.Contains(t, out.String(), "What the servers saw")
	for i := range r.endpoints {
		require.Len(t, r.results[1][i].latencies, len(r.results[0][i].latencies))
		require.Zero(t, r.results[1][i].errors)
	}
}

func TestTooShort(t *testing.T) {
	t.Parallel()
	_, err := run(t.Context(), &console{}, time.Millisecond)
	require.ErrorContains(t, err, "too short")
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	tests := []struct {
		name   string
		sorted []time.Duration
		q      float64
		want   time.Duration
	}{
		{name: "none", q: 0.5, want: 0},
		{name: "one", sorted: []time.Duration{7}, q: 0.5, want: 7},
		{name: "median", sorted: hundred, q: 0.5, want: 50},
		{name: "p99", sorted: hundred, q: 0.99, want: 99},
		{name: "beyond the resolution", sorted: hundred, q: 0.999, want: 100},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, quantile(tt.sorted, tt.q))
		})
	}
}

// On a terminal progress is wiped out before anything else is printed; elsewhere it is a line of its own.
func TestConsole(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		terminal bool
		want     string
	}{
		{name: "terminal", terminal: true, want: "one\r   \rthree\r     \rlast\n"},
		{name: "file", want: "one\nthree\nlast\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			c := &console{out: &out, terminal: tt.terminal}
			c.progress("one")
			c.progress("three")
			c.printf("%s\n", "last")
			c.clear()
			require.NoError(t, c.err)
			require.Equal(t, tt.want, out.String())
		})
	}
}
