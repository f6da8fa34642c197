package main

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkCall is a call of every contender over every base, for benchstat and profiles. The server of the loopback
// bases is a process of its own, which a profile leaves out.
func BenchmarkCall(b *testing.B) {
	for _, of := range []base{noop, unknown, http1, http2} {
		for _, c := range contenders() {
			b.Run(string(of)+"/"+c.name, func(b *testing.B) {
				address := ""
				if of.network() {
					p, err := start(b.Context(), role{Server: true})
					require.NoError(b, err)
					defer func() { require.NoError(b, p.stop()) }()
					hello, err := p.hear()
					require.NoError(b, err)
					address = hello.Address
				}
				l, err := newLane(setting{Base: of, Method: http.MethodGet, Goroutines: 1}, c, address, "bench")
				require.NoError(b, err)
				caller, err := l.newCaller()
				require.NoError(b, err)
				b.ReportAllocs()
				for b.Loop() {
					err = caller.call()
				}
				require.NoError(b, err)
			})
		}
	}
}
