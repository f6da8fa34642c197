package tail_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stubborn is a workload whose primaries take 100 ms and hedges 10 ms, at one call per second.
func stubborn(n int) (*workload, []*call) {
	w := &workload{rate: 1, groups: []group{{share: 1}}}
	calls := make([]*call, n)
	for k := range calls {
		calls[k] = &call{at: time.Duration(k) * time.Second}
		for a := range calls[k].draws {
			calls[k].draws[a].service = 10 * ms
		}
		calls[k].draws[0].service = 100 * ms
	}
	return w, calls
}

func TestOracleHedges(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name           string
		delay, latency time.Duration
		hedges         int
	}{
		{"in time", 20 * ms, 30 * ms, 1},
		{"twice", 7 * ms, 17 * ms, 2},
		{"to no avail", 95 * ms, 100 * ms, 1},
		{"at the very end", 100 * ms, 100 * ms, 0},
		{"too late", 200 * ms, 100 * ms, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, calls := stubborn(50)
			o := &oracle{w: w}
			o.play(calls, tt.delay)
			for _, c := range calls {
				require.Equal(t, tt.latency, c.latency)
				require.Len(t, c.sends, 1+tt.hedges)
				require.False(t, c.failed)
			}
		})
	}
}

// TestOracleBucket shows the bound of hedgerow's budget: a token to start with, and one for ten calls.
func TestOracleBucket(t *testing.T) {
	t.Parallel()
	w, calls := stubborn(51)
	o := &oracle{w: w, bucket: true}
	o.play(calls, 20*ms)
	var hedged []int
	for k, c := range calls {
		if len(c.sends) > 1 {
			hedged = append(hedged, k)
			require.Equal(t, 30*ms, c.latency)
		} else {
			require.Equal(t, 100*ms, c.latency)
		}
	}
	require.Equal(t, []int{0, 10, 20, 30, 40, 50}, hedged)
}

// TestOracleFailures holds what a failure means: at once without a hedge, and nothing while another attempt is in flight.
func TestOracleFailures(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		failing []bool // by attempt
		delay   time.Duration
		latency time.Duration
		failed  bool
		sends   int
	}{
		{"before the delay", []bool{true, false, false}, 200 * ms, 100 * ms, true, 1},
		{"primary, then a hedge", []bool{true, false, false}, 95 * ms, 105 * ms, false, 2},
		{"hedge, then the primary", []bool{false, true, true}, 95 * ms, 100 * ms, false, 2},
		{"all", []bool{true, true, true}, 95 * ms, 105 * ms, true, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, calls := stubborn(1)
			w.fate = func(_ time.Duration, d drawn) answer { return answer{after: d.service, failed: d.luck > 0} }
			for k, failing := range tt.failing {
				if failing {
					calls[0].draws[k].luck = 0.5
				}
			}
			o := &oracle{w: w}
			o.play(calls, tt.delay)
			require.Equal(t, tt.latency, calls[0].latency)
			require.Equal(t, tt.failed, calls[0].failed)
			require.Len(t, calls[0].sends, tt.sends)
		})
	}
}

func TestOracleSearch(t *testing.T) {
	t.Parallel()
	w := workloads()[0]
	w.calls = 5_000
	seeds := [][]*call{w.draw(1), w.draw(2), w.draw(3)}
	o := &oracle{w: &w}
	best, outcomes := o.search(seeds)
	require.InDelta(t, 8.8, best.Seconds()*1000, 1)
	m := median(outcomes)
	require.LessOrEqual(t, m.Extra, share)
	for _, delay := range []time.Duration{5 * ms, 8 * ms, 10 * ms, 12 * ms, 20 * ms} {
		var all []outcome
		for _, calls := range seeds {
			o.play(calls, delay)
			all = append(all, w.outcome(calls, 0))
		}
		if other := median(all); other.Extra <= share {
			require.LessOrEqual(t, m.P99, other.P99*1.03, delay)
		}
	}
}

func TestPaused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, at, service, takes string }{
		{"between", "1s", "50ms", "50ms"},
		{"into one", "9940ms", "20ms", "70ms"},
		{"up to one", "9940ms", "10ms", "10ms"},
		{"within one", "9960ms", "20ms", "60ms"},
		{"as it begins", "9950ms", "20ms", "70ms"},
		{"as it ends", "10s", "20ms", "20ms"},
		{"over two", "9s", "12s", "12100ms"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			parse := func(s string) time.Duration {
				d, err := time.ParseDuration(s)
				require.NoError(t, err)
				return d
			}
			require.Equal(t, parse(tt.takes), paused(parse(tt.at), parse(tt.service), 10*time.Second, 50*ms))
		})
	}
}
