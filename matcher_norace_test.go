//go:build !race

package hedgerow_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// AllocsPerRun and timings: not parallel, so that other tests do not disturb them.

func TestMatcherAllocs(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts what other tests allocate
	m := newPatterns(t, "GET /v1/users/{id}", "/v1/a%2Fb/{id}/{p...}", "x/a", "POST x:81/{p...}", "[::1]:443/")
	for _, request := range []string{
		"GET https://api.example.com/v1/users/42",
		"POST https://api.example.com/v1/users/42",
		"GET https://api.example.com/v1/a%2Fb/%C3%A9%2F/c/d",
		"GET https://api.example.com/" + strings.Repeat("long", 1000) + "%2F",
		"GET https://x:81/a",
		"GET https://[::1]/",
		"GET https://x",
	} {
		method, host, u := parseRequest(t, request)
		require.Zero(t, testing.AllocsPerRun(100, func() { m.Match(method, host, u) }), request)
	}
	bad := &url.URL{Path: "/v1/users/42", RawPath: "/v1%2Fusers%2F4 2"}
	require.Zero(t, testing.AllocsPerRun(100, func() { m.Match("GET", "x", bad) }))
}

func TestMatcherScales(t *testing.T) { //nolint:paralleltest // measures time
	round := func(n int) func() time.Duration {
		m, urls := manyPatterns(t, n)
		return func() time.Duration {
			start := time.Now()
			for i := range 20_000 {
				m.Match("GET", "api.example.com", urls[i%n])
			}
			return time.Since(start)
		}
	}
	few, many := round(10), round(1000)
	// The best of many rounds is what the code costs; the rest is the machine. A busy machine gets more of them.
	best10, best1000 := few(), many()
	for i := range 200 {
		best10, best1000 = min(best10, few()), min(best1000, many())
		if i >= 10 && best1000 <= 3*best10 {
			break
		}
	}
	require.LessOrEqual(t, best1000, 3*best10)
}

func TestMatcherRegistersManyPatterns(t *testing.T) { //nolint:paralleltest // measures time
	best := time.Hour
	for range 20 {
		start := time.Now()
		manyPatterns(t, 1000)
		if best = min(best, time.Since(start)); best < 100*time.Millisecond {
			break
		}
	}
	require.Less(t, best, 100*time.Millisecond)
}
