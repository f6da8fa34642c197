package hedgerow_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMatcherPatternErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ pattern, want string }{
		{"", `"": must not be empty`},
		{"GET", `"GET": must have a path that starts with "/", even if it is only "/"`},
		{"GET ", `"GET ": must have a path that starts with "/", even if it is only "/"`},
		{"example.com", `"example.com": must have a path that starts with "/", even if it is only "/"`},
		{"OPTIONS *", `"OPTIONS *": must have a path that starts with "/", even if it is only "/"`},
		{" /a", `" /a": must not start with a space`},
		{"G(T /a", `"G(T /a": method must be a token, such as GET`},
		{"GÉT /a", `"GÉT /a": method must be a token, such as GET`},
		{"GET,POST /a", `"GET,POST /a": method must be a token, such as GET`},
		{"* /a", `"* /a": method must not be "*": without a method a pattern matches all of them`},
		{"GET/a", `"GET/a": method must be followed by a space: GET would be the host`},
		{"/a b", `"/a b": host and path must not have spaces: write %20`},
		{"GET /a b", `"GET /a b": path must not have spaces or control characters: percent-encode them`},
		{"GET /a ", `"GET /a ": path must not have spaces or control characters: percent-encode them`},
		{"/a\n", `"/a\n": path must not have spaces or control characters: percent-encode them`},
		{"/a\x7f", `"/a\x7f": path must not have spaces or control characters: percent-encode them`},
		{"https://x/a", `"https://x/a": host must not have a scheme: write "example.com/", not "https://example.com/"`},
		{"GET https://u:p@x/a", `"GET https://***@x/a": host must not have a scheme: write "example.com/", not "https://example.com/"`},
		{"u:p@x/a", `"***@x/a": host must not have userinfo`},
		{"u:p@q@x/@a", `"***@x/@a": host must not have userinfo`},
		{"{h}/a", `"{h}/a": host must not have wildcards: leave it out to match any host`},
		{"*.example.com/a", `"*.example.com/a": host must not have wildcards: leave it out to match any host`},
		{":80/a", `":80/a": host must be a name, an IPv4 address or an IPv6 address in brackets, and may have a port`},
		{"x%2e/a", `"x%2e/a": host must be a name, an IPv4 address or an IPv6 address in brackets, and may have a port`},
		{"::1/a", `"::1/a": host must be a name, an IPv4 address or an IPv6 address in brackets, and may have a port`},
		{"GET x y/a", `"GET x y/a": host must be a name, an IPv4 address or an IPv6 address in brackets, and may have a port`},
		{"[::1/a", `"[::1/a": host in brackets must be an IPv6 address`},
		{"[x]/a", `"[x]/a": host in brackets must be an IPv6 address`},
		{"[127.0.0.1]/a", `"[127.0.0.1]/a": host in brackets must be an IPv6 address`},
		{"x:/a", `"x:/a": port must be a number from 1 to 65535`},
		{"x:0/a", `"x:0/a": port must be a number from 1 to 65535`},
		{"x:080/a", `"x:080/a": port must be a number from 1 to 65535`},
		{"x:65536/a", `"x:65536/a": port must be a number from 1 to 65535`},
		{"x:http/a", `"x:http/a": port must be a number from 1 to 65535`},
		{"[::1]:/a", `"[::1]:/a": port must be a number from 1 to 65535`},
		{"/a?key=1", `"/a?***": path must not have a query: a pattern matches all of them`},
		{"/@a#b", `"/@a#***": path must not have a fragment: it is never sent`},
		{"/{", `"/{": braces of segment "{" must be balanced: write %7B and %7D for { and }`},
		{"/x}", `"/x}": braces of segment "x}" must be balanced: write %7B and %7D for { and }`},
		{"/{a/b}", `"/{a/b}": braces of segment "{a" must be balanced: write %7B and %7D for { and }`},
		{"/{}", `"/{}": wildcard {} must have a name of letters, digits and _`},
		{"/{...}", `"/{...}": wildcard {...} must have a name of letters, digits and _`},
		{"/{1a}", `"/{1a}": wildcard {1a} must have a name of letters, digits and _`},
		{"/{a-b}", `"/{a-b}": wildcard {a-b} must have a name of letters, digits and _`},
		{"/{*}", `"/{*}": wildcard {*} must have a name of letters, digits and _`},
		{"/{a..}", `"/{a..}": wildcard {a..} must have a name of letters, digits and _`},
		{"/a/{$}", `"/a/{$}": wildcard {$} must be left out: a trailing "/" matches only the end already`},
		{"/{p...}/a", `"/{p...}/a": wildcard {p...} must be the last segment`},
		{"/a/{p...}/", `"/a/{p...}/": wildcard {p...} must be the last segment`},
		{"/{a}/{b}/{a}", `"/{a}/{b}/{a}": wildcard name "a" must not be used twice`},
		{"/{a}/{a...}", `"/{a}/{a...}": wildcard name "a" must not be used twice`},
		{"/a{x}", `"/a{x}": wildcard in "a{x}" must be a whole segment: write %2A for *`},
		{"/{x}a", `"/{x}a": wildcard in "{x}a" must be a whole segment: write %2A for *`},
		{"/{x}{y}", `"/{x}{y}": wildcard in "{x}{y}" must be a whole segment: write %2A for *`},
		{"/}{", `"/}{": wildcard in "}{" must be a whole segment: write %2A for *`},
		{"/a*", `"/a*": wildcard in "a*" must be a whole segment: write %2A for *`},
		{"/**", `"/**": wildcard in "**" must be a whole segment: write %2A for *`},
		{"/100%", `"/100%": segment "100%" must be percent-encoded: write %25 for %`},
		{"/%zz/a", `"/%zz/a": segment "%zz" must be percent-encoded: write %25 for %`},
	} {
		t.Run(tt.pattern, func(t *testing.T) {
			t.Parallel()
			_, err := newPatterns(t, "/a").With(tt.pattern, "")
			require.EqualError(t, err, "hedgerow: pattern "+tt.want)
		})
	}
}

func TestMatcherSamePattern(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, first, second string
		same                bool
	}{
		{"word for word", "GET x/a", "GET x/a", true},
		{"other wildcard name", "/a/{x}", "/a/{y}", true},
		{"star", "/a/{x}/b", "/a/*/b", true},
		{"other rest name", "/{x...}", "/{y...}", true},
		{"other encoding", "/a%2fb/é", "/%61%2F%62/%C3%A9", true},
		{"other case of the host", "x.com/", "X.com/", true},
		{"other blanks", "GET /a", "GET  /a", true},
		{"other method", "GET /a", "POST /a", false},
		{"no method", "GET /a", "/a", false},
		{"other case of the method", "GET /a", "get /a", false},
		{"no host", "x/a", "/a", false},
		{"port", "x:80/a", "x/a", false},
		{"other port", "x:80/a", "x:443/a", false},
		{"slash", "/a", "/a/", false},
		{"literal and wildcard", "/a", "/{a}", false},
		{"wildcard and rest", "/{a}", "/{a...}", false},
		{"root and rest", "/", "/{a...}", false},
		{"encoded slash", "/a%2Fb", "/a/b", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, pair := range [][2]string{{tt.first, tt.second}, {tt.second, tt.first}} {
				_, err := newPatterns(t, pair[0], "/other").With(pair[1], "")
				if !tt.same {
					require.NoError(t, err)
					continue
				}
				require.EqualError(t, err, fmt.Sprintf("hedgerow: pattern %q: same as %q, which is registered already", pair[1], pair[0]))
			}
		})
	}
}
