//go:build !race

package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// short is the short mode, measured once for all tests, also where -cpu or -count repeats them.
var short = sync.OnceValues(func() (*report, error) {
	return measureAll(context.Background(), plan{short: true}, os.Stderr)
})

// measured returns the results of the short mode for the settings that are wanted, and logs the tables.
func measured(t *testing.T, wanted func(setting) bool) []*result {
	t.Helper()
	r, err := short()
	require.NoError(t, err)
	part := *r
	part.Results = slices.DeleteFunc(slices.Clone(r.Results), func(one *result) bool { return !wanted(one.Setting) })
	part.Targets = part.targets()
	var text strings.Builder
	require.NoError(t, part.writeText(&text))
	t.Log(text.String())
	require.NotEmpty(t, part.Results)
	return part.Results
}

// TestNoop holds what a call costs that could be hedged and is not, over a base without a network: its allocations, and
// the time it adds as a share of what each peer adds.
//
// The target of the report is a third of the best peer. It is met against hedgedhttp, and not against failsafe-go, which
// adds about 1.7 us with 30 allocations: what holds there is a bound that a regression breaks. So is the multiple of what
// a context and a timer cost, about 2 on an idle machine.
//
//nolint:paralleltest // it measures time and the allocations of whole processes
func TestNoop(t *testing.T) {
	for _, one := range measured(t, func(s setting) bool { return !s.Base.network() && s.Method == http.MethodGet }) {
		t.Run(one.Setting.Name, func(t *testing.T) {
			m := one.entry(ours).Summary
			ofPeers, ofHedged := 0.8, timeShare
			allocs := 6.0
			if one.Setting.Procs == 0 { // where peers spread a call over them
				ofPeers, ofHedged = 1, 1
			}
			if one.Setting.Base == unknown {
				allocs = 8 // headers are copied for a base that may change them, not so by the peers
			}
			if one.Setting.Together {
				ofHedged = 2.0 / 3 // hedgedhttp is not alone in paying for the goroutines that it keeps
			}
			require.LessOrEqual(t, m.AddedAllocs, allocs+0.05)
			require.LessOrEqual(t, m.ShareAllocs, allocShare)
			addsAtMost(t, one, ofPeers, func(e *entry) bool { return e.Peer })
			addsAtMost(t, one, ofHedged, func(e *entry) bool { return e.Name == "hedgedhttp" })
			addsAtMost(t, one, 4, func(e *entry) bool { return e.Name == armed })
			holdsNothing(t, one)
		})
	}
}

// TestPassThrough holds what a call costs that cannot be hedged, which the peers hedge all the same.
//
//nolint:paralleltest // it measures time and the allocations of whole processes
func TestPassThrough(t *testing.T) {
	for _, one := range measured(t, func(s setting) bool { return s.Method == http.MethodPost }) {
		t.Run(one.Setting.Name, func(t *testing.T) {
			m := one.entry(ours).Summary
			allocs := 0.0
			if one.Setting.Base == unknown {
				allocs = 1
			}
			require.LessOrEqual(t, m.AddedAllocs, allocs+0.05)
			addsAtMost(t, one, 0.5, func(e *entry) bool { return e.Peer })
			holdsNothing(t, one)
		})
	}
}

// TestLoopback holds what a call costs over a network. The machine's noise is far above the target of the report, 3 % of
// the bare transport: what fails here is a regression that shows in spite of it, against a bare transport that has a
// context and a timer for each call as well. Hedgerow takes 1.02 to 1.04 times as long as that on an idle machine.
//
//nolint:paralleltest // it measures time and the allocations of whole processes
func TestLoopback(t *testing.T) {
	ratios := map[base][]float64{} // of all rounds over a base
	for _, one := range measured(t, func(s setting) bool { return s.Base.network() && !s.Fires }) {
		e, b := one.entry(oursLike), one.Setting.Base
		ratios[b] = append(ratios[b], pairs(e, one.entry(armed), nanoseconds, ratio)...)
		t.Run(one.Setting.Name, func(t *testing.T) {
			require.LessOrEqual(t, e.Summary.AddedAllocs, 9.0) // 8, and what the runtime makes of the load
			require.LessOrEqual(t, e.Summary.ShareAllocs, 2.0/3)
			require.Zero(t, e.Summary.Hedged)
			holdsNothing(t, one)
		})
	}
	for b, all := range ratios {
		require.LessOrEqual(t, atLeast(all), 1.1, "%s: time against a context and a timer alone", b)
	}
}

// TestHedgesFire holds what hedges cost and what they are good for.
//
//nolint:paralleltest // it measures latencies
func TestHedgesFire(t *testing.T) {
	for _, one := range measured(t, func(s setting) bool { return s.Fires }) {
		t.Run(one.Setting.Name, func(t *testing.T) {
			m, b := one.entry(oursLike).Summary, one.entry(bare).Summary
			require.InDelta(t, 1.0/slowOneIn, m.Hedges, 0.03)
			require.Less(t, m.P99, b.P99/4)
			if one.Setting.Base == http1 {
				for _, e := range one.Contenders {
					if e.Peer {
						require.LessOrEqual(t, m.PerHedge, e.Summary.PerHedge+0.1, e.Name)
					}
				}
			}
			holdsNothing(t, one)
		})
	}
}

// addsAtMost requires that hedgerow adds no more time to a call than that share of what each of the chosen others adds.
func addsAtMost(t *testing.T, one *result, share float64, chosen func(*entry) bool) {
	t.Helper()
	others := 0
	added := pairs(one.entry(ours), one.entry(bare), nanoseconds, difference)
	for _, e := range one.Contenders {
		if !chosen(e) {
			continue
		}
		others++
		excess := slices.Clone(added)
		for k, theirs := range pairs(e, one.entry(bare), nanoseconds, difference) {
			excess[k] -= share * theirs
		}
		require.LessOrEqual(t, atLeast(excess), 0.0, "ns beyond %.2f of what %s adds", share, e.Name)
	}
	require.Positive(t, others)
}

// atLeast returns a lower bound for the median of what the numbers are drawn from, which is wrong once in a thousand times at
// most: the lower end of the sign test's interval, which supposes nothing about the noise. A busy machine makes that interval
// wide, so what exceeds a bound by chance does not fail a test, and a regression on a quiet one does.
func atLeast(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	n := len(sorted)
	factorial := func(k int) float64 { // its logarithm
		lg, _ := math.Lgamma(float64(k + 1))
		return lg
	}
	below := 0
	// The chance that at most `below` of n numbers are below their median: a sum of binomial coefficients over 2^n.
	for chance := 0.0; below < n; below++ {
		chance += math.Exp(factorial(n) - factorial(below) - factorial(n-below) - float64(n)*math.Ln2)
		if chance > 0.001 {
			break
		}
	}
	if below == 0 {
		return math.Inf(-1) // too few to say anything
	}
	return sorted[below-1]
}

// TestAtLeast holds the bound against tables of the sign test, and that noise hardly ever makes it exceed the median.
func TestAtLeast(t *testing.T) {
	t.Parallel()
	upTo := func(n int) []float64 { // the numbers from 1
		all := make([]float64, n)
		for k := range all {
			all[k] = float64(k + 1)
		}
		return all
	}
	for n, want := range map[int]float64{
		0: math.Inf(-1), 9: math.Inf(-1), // 1/512
		10:     1,    // 1/1024
		13:     1,    // 14/8192 for two
		15:     2,    // 16/32768, and 121/32768 for three
		22:     4,    // 1794/4194304, and 9109/4194304 for five
		10_000: 4845, // 3.09 standard deviations of 50, and a half
	} {
		require.Equal(t, fmt.Sprint(want), fmt.Sprint(atLeast(upTo(n))), n)
	}

	random := rand.New(rand.NewPCG(1, 2))
	exceeded := 0
	for range 2000 {
		all := make([]float64, 22)
		for k := range all {
			all[k] = math.Exp(random.NormFloat64()) // median 1
		}
		if atLeast(all) > 1 {
			exceeded++
		}
	}
	require.LessOrEqual(t, exceeded, 8)
}

// holdsNothing requires that hedgerow holds no goroutine when its calls have ended.
func holdsNothing(t *testing.T, one *result) {
	t.Helper()
	for _, name := range []string{ours, oursLike} {
		if e := one.entry(name); e != nil {
			require.Zero(t, e.Summary.Goroutines, name)
		}
	}
}
