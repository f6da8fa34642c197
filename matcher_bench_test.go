package hedgerow_test

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// manyPatterns returns a matcher with n patterns that all branch at one place, the worst layout for a wide tree, and
// one URL per pattern.
func manyPatterns(tb testing.TB, n int) (*patterns, []*url.URL) {
	tb.Helper()
	list := make([]string, n)
	urls := make([]*url.URL, n)
	for i := range n {
		list[i] = fmt.Sprintf("GET /v1/resource%d/{id}", i)
		urls[i] = &url.URL{Scheme: "https", Host: "api.example.com", Path: fmt.Sprintf("/v1/resource%d/42", i)}
	}
	return newPatterns(tb, list...), urls
}

func BenchmarkMatcher(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprintf("patterns=%d", n), func(b *testing.B) {
			m, urls := manyPatterns(b, n)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, ok := m.Match("GET", "api.example.com", urls[i%n]); !ok {
					b.Fatal("no match")
				}
			}
		})
	}
	for _, bm := range []struct{ name, request string }{
		{"escaped", "GET https://api.example.com/v1/a%2Fb/42"},
		{"host", "GET https://www.example.com/v1/users/42"},
		{"miss", "POST https://api.example.com/v1/users/42"},
	} {
		b.Run(bm.name, func(b *testing.B) {
			m := newPatterns(b, "GET /v1/users/{id}", "GET /v1/a%2Fb/{id}", "www.example.com:443/v1/users/{id}")
			method, host, u := parseRequest(b, bm.request)
			b.ReportAllocs()
			for b.Loop() {
				m.Match(method, host, u)
			}
		})
	}
}

func BenchmarkMatcherRegister(b *testing.B) {
	list := make([]string, 1000)
	for i := range list {
		list[i] = fmt.Sprintf("GET /v1/resource%d/{id}", i)
	}
	b.ReportAllocs()
	for b.Loop() {
		var m *patterns
		for _, p := range list {
			var err error
			m, err = m.With(p, p)
			require.NoError(b, err)
		}
	}
}
