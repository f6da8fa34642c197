package hedgerow_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// perfPool returns a pool of keys over base, each with a credential.
func perfPool(tb testing.TB, base http.RoundTripper, resources int, cfg hedgerow.PoolConfig) http.RoundTripper {
	tb.Helper()
	cfg.Hosts = []string{"http://perf.test"}
	for i := range resources {
		cfg.Resources = append(cfg.Resources, hedgerow.Resource{
			ID: fmt.Sprint("key", i), Credential: hedgerow.Bearer(fmt.Sprint("secret", i)),
		})
	}
	p, err := hedgerow.NewPool(cfg)
	require.NoError(tb, err)
	return p.Wrap(base)
}

// perfPicks are the ways to pick a resource.
func perfPicks() map[string]hedgerow.PoolConfig {
	picks := map[string]hedgerow.PoolConfig{
		"selector": {Selector: func(_ *http.Request, all []hedgerow.Candidate) int { return len(all) / 2 }},
	}
	for s := hedgerow.RoundRobin; s <= hedgerow.LeastLatency; s++ {
		picks[s.String()] = hedgerow.PoolConfig{Strategy: s}
	}
	return picks
}

// perfTime returns the time of one call, the least of several runs.
func perfTime(rt http.RoundTripper, req *http.Request, calls int) time.Duration {
	c := &perfCaller{rt: rt, req: req}
	least := time.Hour
	for range 7 {
		start := time.Now()
		for range calls {
			c.call()
		}
		least = min(least, time.Since(start)/time.Duration(calls))
	}
	return least
}

// BenchmarkPool is a call through a pool: pick, inject and release.
func BenchmarkPool(b *testing.B) {
	for _, base := range perfBases {
		b.Run(base.name, func(b *testing.B) {
			perfRun(b, perfPool(b, base.make(), 3, hedgerow.PoolConfig{}), http.MethodGet)
		})
		b.Run(base.name+"/parallel", func(b *testing.B) {
			b.SetParallelism(16)
			rt := perfPool(b, base.make(), 3, hedgerow.PoolConfig{})
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				c := &perfCaller{rt: rt, req: perfRequest(b, http.MethodGet, "perf.test")}
				for pb.Next() {
					c.call()
				}
			})
		})
	}
}

// BenchmarkPoolArmed is a call through a Transport and a pool that could be hedged, and is not.
func BenchmarkPoolArmed(b *testing.B) {
	perfRun(b, perfTransport(b, perfPool(b, perfPlain(), 3, hedgerow.PoolConfig{}), 0), http.MethodGet)
}

// BenchmarkPoolPick picks one of many.
func BenchmarkPoolPick(b *testing.B) {
	for name, cfg := range perfPicks() {
		for _, n := range []int{1_000, 10_000} {
			b.Run(fmt.Sprintf("%s/resources=%d", name, n), func(b *testing.B) {
				perfRun(b, perfPool(b, perfPlain(), n, cfg), http.MethodGet)
			})
		}
	}
}
