//go:build !race

package hedgerow_test

import (
	"fmt"
	"math"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// TestPoolAllocations holds what a call costs through a pool, beyond the bare base: pick, inject and release.
//
//nolint:paralleltest // the allocations of the whole process are counted
func TestPoolAllocations(t *testing.T) {
	for _, base := range perfBases {
		t.Run(base.name, func(t *testing.T) {
			next := base.make()
			req := perfRequest(t, http.MethodGet, "perf.test")
			bare := perfAllocs(next, req)
			added := perfAllocs(perfPool(t, next, 3, hedgerow.PoolConfig{}), req) - bare
			t.Logf("%.3f allocations added to %.3f", added, bare)
			require.LessOrEqual(t, added, 8.05)
		})
	}
}

// TestPoolTime holds the time that takes.
//
//nolint:paralleltest // the time of this process alone is measured
func TestPoolTime(t *testing.T) {
	next := perfPlain()
	req := perfRequest(t, http.MethodGet, "perf.test")
	pool := perfPool(t, next, 3, hedgerow.PoolConfig{})
	var added time.Duration
	for range 5 { // the machine may be busy
		added = perfTime(pool, req, 500) - perfTime(next, req, 500)
		if added <= 2*time.Microsecond {
			break
		}
	}
	t.Logf("%v added", added)
	require.LessOrEqual(t, added, 2*time.Microsecond)
}

// TestPoolPickTime holds how long it takes to pick one of many resources.
//
//nolint:paralleltest // the time of this process alone is measured
func TestPoolPickTime(t *testing.T) {
	next := perfPlain()
	req := perfRequest(t, http.MethodGet, "perf.test")
	for name, cfg := range perfPicks() {
		for _, n := range []int{1_000, 10_000} {
			t.Run(fmt.Sprint(name, " ", n), func(t *testing.T) {
				most := time.Duration(n) * 20 * time.Nanosecond
				one, many := perfPool(t, next, 1, cfg), perfPool(t, next, n, cfg)
				took := time.Duration(math.MaxInt64)
				for range 5 { // the machine may be busy
					took = min(took, perfTime(many, req, 200_000/n)-perfTime(one, req, 200_000/n))
					if took <= most {
						break
					}
				}
				t.Logf("%v", took)
				require.LessOrEqual(t, took, most)
			})
		}
	}
}

// TestPoolContention holds that many goroutines do not get in each other's way: sixteen take no more than twice the time
// per call that one for each processor takes.
//
//nolint:paralleltest // the time of this process alone is measured
func TestPoolContention(t *testing.T) {
	pool := perfPool(t, perfPlain(), 3, hedgerow.PoolConfig{})
	run := func(goroutines int) time.Duration {
		const calls = 40_000
		least := time.Hour
		for range 5 {
			var wg sync.WaitGroup
			start := time.Now()
			for range goroutines {
				c := &perfCaller{rt: pool, req: perfRequest(t, http.MethodGet, "perf.test")}
				wg.Go(func() {
					for range calls / goroutines {
						c.call()
					}
				})
			}
			wg.Wait()
			least = min(least, time.Since(start)/calls)
		}
		return least
	}
	few, many := time.Duration(0), time.Duration(0)
	for range 5 { // the machine may be busy
		few, many = run(runtime.GOMAXPROCS(0)), run(16)
		if many <= 2*few {
			break
		}
	}
	t.Logf("%v with %d goroutines, %v with 16", few, runtime.GOMAXPROCS(0), many)
	require.LessOrEqual(t, many, 2*few)
}
