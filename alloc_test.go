//go:build !race

package hedgerow_test

import (
	"fmt"
	"math"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// perfAllocs returns the allocations of one call, those of the call's share of what happens now and then included.
func perfAllocs(rt http.RoundTripper, req *http.Request) float64 {
	c := &perfCaller{rt: rt, req: req}
	for range 2000 { // until the delay is learned and everything has its size
		c.call()
	}
	const calls = 5000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range calls {
		c.call()
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / calls
}

// TestAllocations holds the allocations that a call costs beyond the bare base.
//
//nolint:paralleltest // the allocations of the whole process are counted
func TestAllocations(t *testing.T) {
	for _, tt := range []struct {
		name     string
		base     func() http.RoundTripper
		method   string
		patterns int
		most     float64
	}{
		{"armed over http.Transport", perfPlain, http.MethodGet, 0, 6},
		{"armed over http.Transport, 1000 patterns", perfPlain, http.MethodGet, 1000, 6},
		{"armed over an unknown base", perfUnknown, http.MethodGet, 0, 8},
		{"armed over an unknown base, 1000 patterns", perfUnknown, http.MethodGet, 1000, 8},
		{"not hedgeable over http.Transport", perfPlain, http.MethodPost, 0, 0},
		{"not hedgeable over http.Transport, 1000 patterns", perfPlain, http.MethodPost, 1000, 0},
		{"not hedgeable over an unknown base", perfUnknown, http.MethodPost, 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			base := tt.base()
			req := perfRequest(t, tt.method, "perf.test")
			bare := perfAllocs(base, req)
			added := perfAllocs(perfTransport(t, base, tt.patterns), req) - bare
			t.Logf("%.3f allocations added to %.3f", added, bare)
			require.LessOrEqual(t, added, tt.most+0.05)
		})
	}
}

// TestPatternsAddNoAllocations compares a call that is found by its pattern with one that matches none.
//
//nolint:paralleltest // the allocations of the whole process are counted
func TestPatternsAddNoAllocations(t *testing.T) {
	req := perfRequest(t, http.MethodGet, "perf.test")
	none := perfAllocs(perfTransport(t, perfPlain(), 0), req)
	some := perfAllocs(perfTransport(t, perfPlain(), 1000), req)
	require.InDelta(t, none, some, 0.05)
}

// TestEndpointMemory fills the state of endpoints with latencies of 1 ms to 60 s, of primaries that completed and of
// such that a hedge cut off, in both generations of the windows.
//
//nolint:paralleltest // the heap of the whole process is measured
func TestEndpointMemory(t *testing.T) {
	const (
		endpoints = 120
		window    = 4 * time.Hour // more than it takes to fill them
	)
	synctest.Test(t, func(t *testing.T) {
		base := &simBase{start: time.Now()}
		tr, err := hedgerow.New(hedgerow.Config{Base: base, Hedge: hedgerow.HedgeConfig{
			Window: window, EstimatedRPS: 1e6, BudgetPercent: 100,
		}})
		require.NoError(t, err)
		require.NoError(t, tr.Register("/", hedgerow.EndpointConfig{Name: "root"}))
		fill := func(host string) {
			var wg sync.WaitGroup
			for d := time.Millisecond; d <= time.Minute; d += d / 20 {
				// The one completes after d; the other is cut off then, by a hedge that needs no time.
				completes := &simCall{opts: hedgerow.Call{NoHedge: true}}
				completes.service[0] = d
				hedged := &simCall{opts: hedgerow.Call{Delay: d}}
				hedged.service[0] = time.Hour
				for _, c := range []*simCall{completes, hedged} {
					wg.Go(func() { c.makeAt(t.Context(), tr, host, "/") })
				}
			}
			wg.Wait()
		}
		// One host after the other, so that few goroutines are ever needed: the runtime keeps what they were made of.
		fillBoth := func(from, to int) {
			for generation := range 2 {
				for k := from; k < to; k++ {
					fill(fmt.Sprintf("host%d.test", k))
				}
				if generation == 0 {
					time.Sleep(window)
				}
			}
		}
		fillBoth(0, 1) // what the first call of all needs
		before := perfHeap()
		fillBoth(1, 1+endpoints)
		each := float64(perfHeap()-before) / endpoints

		stats := tr.Stats()
		require.Len(t, stats.Endpoints, 1+endpoints)
		for key, ep := range stats.Endpoints {
			if key.Host == "host0.test" {
				continue // it was filled earlier
			}
			require.Equal(t, ep.Requests/2, ep.Hedges)
			require.Equal(t, ep.Hedges, ep.HedgeWins)
			require.InEpsilon(t, time.Minute, ep.Latency.P999, 0.06)
		}
		t.Logf("%.0f bytes for each of %d endpoints", each, endpoints)
		require.LessOrEqual(t, each, 16.0*1024)
		require.Greater(t, each, 12.0*1024, "all counts were made")
		runtime.KeepAlive(tr)
	})
}

// perfHeap returns the bytes that are in use.
func perfHeap() int64 {
	least := int64(math.MaxInt64)
	for range 3 { // finalizers and sweeping take more than one turn
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		least = min(least, int64(m.HeapAlloc))
	}
	return least
}

// TestIdleGoroutines leaves a Transport that knows ten thousand hosts alone: nothing is running on its behalf. In the
// bubble a goroutine that does not end is a deadlock besides.
//
//nolint:paralleltest // the goroutines of the whole process are counted
func TestIdleGoroutines(t *testing.T) {
	const hosts = 10_000
	synctest.Test(t, func(t *testing.T) {
		before := runtime.NumGoroutine()
		tr := perfTransport(t, perfUnknown(), 0)
		for k := range hosts {
			c := perfCaller{rt: tr, req: perfRequest(t, http.MethodGet, fmt.Sprintf("host%d.test", k))}
			c.call()
		}
		synctest.Wait()
		require.Len(t, tr.Stats().Endpoints, hosts)
		require.LessOrEqual(t, runtime.NumGoroutine(), before)
	})
}
