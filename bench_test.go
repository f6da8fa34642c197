package hedgerow_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/hedgerow-go/hedgerow"
)

// perfBases are what the benchmarks run over.
var perfBases = []struct {
	name string
	make func() http.RoundTripper
}{
	{"plain", perfPlain},
	{"unknown", perfUnknown},
}

// perfRun makes calls one after the other.
func perfRun(b *testing.B, rt http.RoundTripper, method string) {
	b.Helper()
	c := &perfCaller{rt: rt, req: perfRequest(b, method, "perf.test")}
	b.ReportAllocs()
	for b.Loop() {
		c.call()
	}
}

// perfRunParallel makes calls on all processors, to hosts in turn.
func perfRunParallel(b *testing.B, rt http.RoundTripper, method string, hosts int) {
	b.Helper()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		callers := make([]perfCaller, hosts)
		for k := range callers {
			callers[k] = perfCaller{rt: rt, req: perfRequest(b, method, fmt.Sprintf("host%d.test", k))}
		}
		for k := 0; pb.Next(); k++ {
			callers[k%hosts].call()
		}
	})
}

// BenchmarkBare is the base alone, which the others are to be compared with.
func BenchmarkBare(b *testing.B) {
	for _, base := range perfBases {
		b.Run(base.name, func(b *testing.B) { perfRun(b, base.make(), http.MethodGet) })
		b.Run(base.name+"/parallel", func(b *testing.B) { perfRunParallel(b, base.make(), http.MethodGet, 1) })
	}
}

// BenchmarkArmed is a call that could be hedged, and is not.
func BenchmarkArmed(b *testing.B) {
	for _, base := range perfBases {
		for _, patterns := range []int{0, 1000} {
			name := fmt.Sprintf("%s/patterns=%d", base.name, patterns)
			b.Run(name, func(b *testing.B) {
				perfRun(b, perfTransport(b, base.make(), patterns), http.MethodGet)
			})
			b.Run(name+"/parallel", func(b *testing.B) {
				perfRunParallel(b, perfTransport(b, base.make(), patterns), http.MethodGet, 1)
			})
		}
	}
}

// BenchmarkPass is a call that cannot be hedged.
func BenchmarkPass(b *testing.B) {
	for _, base := range perfBases {
		b.Run(base.name, func(b *testing.B) {
			perfRun(b, perfTransport(b, base.make(), 0), http.MethodPost)
		})
		b.Run(base.name+"/parallel", func(b *testing.B) {
			perfRunParallel(b, perfTransport(b, base.make(), 0), http.MethodPost, 1)
		})
	}
}

// BenchmarkHosts spreads the calls over many hosts.
func BenchmarkHosts(b *testing.B) {
	for _, hosts := range []int{10, 10_000} {
		tr := perfTransport(b, perfPlain(), 0)
		callers := make([]perfCaller, hosts)
		for k := range callers {
			callers[k] = perfCaller{rt: tr, req: perfRequest(b, http.MethodGet, fmt.Sprintf("host%d.test", k))}
			callers[k].call()
		}
		b.Run(fmt.Sprintf("hosts=%d", hosts), func(b *testing.B) {
			b.ReportAllocs()
			for k := 0; b.Loop(); k++ {
				callers[k%hosts].call()
			}
		})
		b.Run(fmt.Sprintf("hosts=%d/parallel", hosts), func(b *testing.B) {
			perfRunParallel(b, tr, http.MethodGet, hosts)
		})
	}
}

// BenchmarkStats takes snapshots of many endpoints.
func BenchmarkStats(b *testing.B) {
	const hosts = 1000
	tr := perfTransport(b, perfPlain(), 0)
	for k := range hosts {
		c := perfCaller{rt: tr, req: perfRequest(b, http.MethodGet, fmt.Sprintf("host%d.test", k))}
		for range 50 {
			c.call()
		}
	}
	var s hedgerow.Stats
	b.ReportAllocs()
	for b.Loop() {
		s = tr.Stats()
	}
	if len(s.Endpoints) != hosts {
		b.Fatal(len(s.Endpoints))
	}
}
