package hedgerow_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// patterns is a matcher whose values are the patterns as they were registered.
type patterns = hedgerow.Matcher[string]

func newPatterns(tb testing.TB, list ...string) *patterns {
	tb.Helper()
	var m *patterns
	for _, p := range list {
		var err error
		m, err = m.With(p, p)
		require.NoError(tb, err)
	}
	return m
}

// request is "METHOD URL"; the host is normalised as the transport does it.
func parseRequest(tb testing.TB, request string) (method, host string, u *url.URL) {
	tb.Helper()
	method, raw, _ := strings.Cut(request, " ")
	u, err := url.Parse(raw)
	require.NoError(tb, err)
	host = strings.ToLower(u.Host)
	switch u.Scheme {
	case "http":
		host = strings.TrimSuffix(host, ":80")
	case "https":
		host = strings.TrimSuffix(host, ":443")
	}
	return method, host, u
}

func TestMatcherMatches(t *testing.T) {
	t.Parallel()
	const none = ""
	for _, tt := range []struct {
		name     string
		patterns []string
		request  string
		want     string
	}{
		{"no patterns", nil, "GET http://x/", none},
		{"root", []string{"/"}, "GET http://x/", "/"},
		{"empty path is sent as root", []string{"/"}, "GET http://x", "/"},
		{"root is no prefix", []string{"/"}, "GET http://x/a", none},
		{"exact", []string{"/a/b"}, "GET http://x/a/b", "/a/b"},
		{"query is ignored", []string{"/a"}, "GET http://x/a?b=/c", "/a"},
		{"shorter", []string{"/a/b"}, "GET http://x/a", none},
		{"longer", []string{"/a/b"}, "GET http://x/a/b/c", none},
		{"path is case-sensitive", []string{"/a"}, "GET http://x/A", none},
		{"slash more than the pattern", []string{"/a"}, "GET http://x/a/", none},
		{"slash less than the pattern", []string{"/a/"}, "GET http://x/a", none},
		{"trailing slash is exact", []string{"/a/"}, "GET http://x/a/", "/a/"},
		{"trailing slash is no prefix", []string{"/a/"}, "GET http://x/a/b", none},
		{"empty segment inside", []string{"/a//b"}, "GET http://x/a//b", "/a//b"},
		{"empty segment missing", []string{"/a//b"}, "GET http://x/a/b", none},
		{"empty segment first", []string{"//a"}, "GET http://x//a", "//a"},
		{"dots are not resolved", []string{"/a"}, "GET http://x/b/../a", none},

		{"wildcard", []string{"/{x}"}, "GET http://x/a", "/{x}"},
		{"star", []string{"/*/b"}, "GET http://x/a/b", "/*/b"},
		{"wildcard wants a segment", []string{"/{x}"}, "GET http://x/", none},
		{"wildcard wants a segment at the end", []string{"/a/{x}"}, "GET http://x/a/", none},
		{"wildcard wants a segment inside", []string{"/a/{x}/b"}, "GET http://x/a//b", none},
		{"wildcard takes one segment", []string{"/{x}"}, "GET http://x/a/b", none},
		{"rest of one", []string{"/f/{p...}"}, "GET http://x/f/a", "/f/{p...}"},
		{"rest of many", []string{"/f/{p...}"}, "GET http://x/f/a//b/", "/f/{p...}"},
		{"rest of none", []string{"/f/{p...}"}, "GET http://x/f/", "/f/{p...}"},
		{"rest wants its slash", []string{"/f/{p...}"}, "GET http://x/f", none},
		{"rest of everything", []string{"/{p...}"}, "GET http://x", "/{p...}"},

		{"pattern is decoded", []string{"/%61"}, "GET http://x/a", "/%61"},
		{"request is decoded", []string{"/a"}, "GET http://x/%61", "/a"},
		{"encoded slash does not split", []string{"/a/b"}, "GET http://x/a%2Fb", none},
		{"encoded slash of the pattern", []string{"/a%2fb"}, "GET http://x/a%2Fb", "/a%2fb"},
		{"encoded slash of the pattern does not split", []string{"/a%2Fb"}, "GET http://x/a/b", none},
		{"encoded slash in a wildcard", []string{"/{x}/c"}, "GET http://x/a%2Fb/c", "/{x}/c"},
		{"encoded slash alone", []string{"/{x}/"}, "GET http://x/%2F/", "/{x}/"},
		{"segments behind an encoded slash", []string{"/{x}/é/{y}"}, "GET http://x/%2F%2f/%C3%A9/%25", "/{x}/é/{y}"},
		{"literal percent", []string{"/100%25"}, "GET http://x/100%25", "/100%25"},
		{"literal star", []string{"/%2A"}, "GET http://x/*", "/%2A"},
		{"literal star is no wildcard", []string{"/%2A"}, "GET http://x/a", none},
		{"literal braces", []string{"/%7Bx%7D"}, "GET http://x/%7bx%7d", "/%7Bx%7D"},
		{"literal braces are no wildcard", []string{"/%7Bx%7D"}, "GET http://x/a", none},

		{"method", []string{"GET /a"}, "GET http://x/a", "GET /a"},
		{"blanks after the method", []string{"GET \t /a"}, "GET http://x/a", "GET \t /a"},
		{"other method", []string{"GET /a"}, "POST http://x/a", none},
		{"GET is not HEAD", []string{"GET /a"}, "HEAD http://x/a", none},
		{"no method is GET", []string{"GET /a"}, " http://x/a", "GET /a"},
		{"method is case-sensitive", []string{"GET /a"}, "get http://x/a", none},
		{"any method", []string{"/a"}, "PURGE http://x/a", "/a"},
		{"method of one's own", []string{"PURGE /a"}, "PURGE http://x/a", "PURGE /a"},

		{"host", []string{"x/a"}, "GET http://x/a", "x/a"},
		{"other host", []string{"x/a"}, "GET http://y/a", none},
		{"host is no suffix", []string{"example.com/"}, "GET http://www.example.com/", none},
		{"host in capitals", []string{"Example.COM/"}, "GET http://example.com/", "Example.COM/"},
		{"host of any port", []string{"x/"}, "GET http://x:8080/", "x/"},
		{"port", []string{"x:8080/"}, "GET http://x:8080/", "x:8080/"},
		{"other port", []string{"x:8080/"}, "GET http://x:8081/", none},
		{"port missing", []string{"x:8080/"}, "GET http://x/", none},
		{"default port of https", []string{"x:443/"}, "GET https://x/", "x:443/"},
		{"default port of http", []string{"x:80/"}, "GET http://x/", "x:80/"},
		{"port of the other scheme", []string{"x:443/"}, "GET http://x/", none},
		{"port of https over http", []string{"x:443/"}, "GET http://x:443/", "x:443/"},
		{"IPv4", []string{"127.0.0.1:81/"}, "GET http://127.0.0.1:81/", "127.0.0.1:81/"},
		{"IPv6", []string{"[2001:DB8::1]/"}, "GET http://[2001:db8::1]/", "[2001:DB8::1]/"},
		{"IPv6 of any port", []string{"[::1]/"}, "GET http://[::1]:81/", "[::1]/"},
		{"IPv6 and port", []string{"[::1]:81/"}, "GET http://[::1]:81/", "[::1]:81/"},
		{"IPv6 and default port", []string{"[::1]:443/"}, "GET https://[::1]/", "[::1]:443/"},
		{"IPv6 with a zone", []string{"[fe80::1%25eth0]/"}, "GET http://[fe80::1%25eth0]/", "[fe80::1%25eth0]/"},

		{"port beats host", []string{"x/a", "x:81/a"}, "GET http://x:81/a", "x:81/a"},
		{"host beats any host", []string{"/a", "x/a"}, "GET http://x/a", "x/a"},
		{"port beats a better path", []string{"GET x/a", "x:81/{p...}"}, "GET http://x:81/a", "x:81/{p...}"},
		{"host beats a better path", []string{"GET /a", "x/{p...}"}, "GET http://x/a", "x/{p...}"},
		{"literal beats wildcard", []string{"/{x}", "/a"}, "GET http://x/a", "/a"},
		{"wildcard beats rest", []string{"/{p...}", "/{x}"}, "GET http://x/a", "/{x}"},
		{"literal beats rest", []string{"/{p...}", "/a/{x}"}, "GET http://x/a/b", "/a/{x}"},
		{"trailing slash beats rest", []string{"/a/{p...}", "/a/"}, "GET http://x/a/", "/a/"},
		{"longer literal beats rest", []string{"/a/{p...}", "/a/b/{p...}"}, "GET http://x/a/b/c", "/a/b/{p...}"},
		{"left decides", []string{"/{x}/b/c", "/a/{y}/{z}"}, "GET http://x/a/b/c", "/a/{y}/{z}"},
		{"left decides over rest", []string{"/{x}/b", "/a/{p...}"}, "GET http://x/a/b", "/a/{p...}"},
		{"method beats any method", []string{"/a", "GET /a"}, "GET http://x/a", "GET /a"},
		{"path beats method", []string{"GET /{x}", "/a"}, "GET http://x/a", "/a"},

		{"back for the method", []string{"POST /a/b", "GET /a/{x}"}, "GET http://x/a/b", "GET /a/{x}"},
		{"back for the method to rest", []string{"POST /a/b", "POST /a/{x}", "/{p...}"}, "GET http://x/a/b", "/{p...}"},
		{"back for a later segment", []string{"/a/{x}/c", "/{x}/b/d"}, "GET http://x/a/b/d", "/{x}/b/d"},
		{"back two levels", []string{"/a/b/c", "/a/{x}/d", "/{p...}"}, "GET http://x/a/b/e", "/{p...}"},
		{"back to the wildcard of the same segment", []string{"/a/b", "/a/{x}/c"}, "GET http://x/a/b/c", "/a/{x}/c"},
		{"back from port to host", []string{"POST x:81/a", "GET x/{x}"}, "GET http://x:81/a", "GET x/{x}"},
		{"back from host to any host", []string{"x/a", "/{x}"}, "GET http://x/b", "/{x}"},
		{"back for the method to any host", []string{"POST x/a", "/a"}, "GET http://x/a", "/a"},
		{"nowhere to go back to", []string{"POST x/a", "POST /{x}", "y/a"}, "GET http://x/a", none},

		{"opaque", []string{"/{p...}"}, "GET http:x/a", none},
		{"asterisk form", []string{"/{p...}"}, "OPTIONS *", none},
		{"path without a slash", []string{"/{p...}"}, "GET a/b", none},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			method, host, u := parseRequest(t, tt.request)
			got, ok := newPatterns(t, tt.patterns...).Match(method, host, u)
			require.Equal(t, tt.want, got)
			require.Equal(t, tt.want != none, ok)
		})
	}
}

// URLs that no parser makes but callers do: RawPath counts only where url.URL.EscapedPath, which is what is sent, takes it.
func TestMatcherRawPath(t *testing.T) {
	t.Parallel()
	m := newPatterns(t, "/a/b", "/a%2Fb", "/a%25b", "/a%252Fb", "/a%2Fb/%22/", "/*", "/{p...}")
	for _, tt := range []struct {
		name      string
		path, raw string
		want      string
	}{
		{"none", "/a/b", "", "/a/b"},
		{"percent in Path", "/a%b", "", "/a%25b"},
		{"encoding in Path", "/a%2Fb", "", "/a%252Fb"},
		{"encodes the slash", "/a/b", "/a%2Fb", "/a%2Fb"},
		{"encodes something else", "/a/b", "/%61/b", "/a/b"},
		{"of another path", "/a/b", "/a%2Fc", "/a/b"},
		{"shorter", "/a/b/c", "/a%2Fb", "/{p...}"},
		{"longer", "/a/b", "/a%2Fb/c", "/a/b"},
		{"with a character to be encoded", "/a/b/\"/", "/a%2Fb/\"/", "/{p...}"},
		{"with that character encoded", "/a/b/\"/", "/a%2Fb/%22/", "/a%2Fb/%22/"},
		{"bad digit", "/a/b", "/a%2Gb", "/a/b"},
		{"cut short", "/a/b", "/a%2", "/a/b"},
		{"of an empty path", "", "/a%2Fb", "/{p...}"},
		{"starts with an encoded slash", "/a/b", "%2Fa/b", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, ok := m.Match("GET", "x", &url.URL{Scheme: "http", Host: "x", Path: tt.path, RawPath: tt.raw})
			require.Equal(t, tt.want, got)
			require.Equal(t, tt.want != "", ok)
		})
	}
	_, ok := m.Match("GET", "x", nil)
	require.False(t, ok)
}

// The matcher repeats the table of net/url; this notices when the two part.
func TestMatcherRawPathCharacters(t *testing.T) {
	t.Parallel()
	m := newPatterns(t, "/{x}/%2F")
	for c := range 256 {
		u := &url.URL{Path: "/" + string([]byte{byte(c)}) + "//", RawPath: "/" + string([]byte{byte(c)}) + "/%2F"}
		if c == '%' || c == '/' {
			continue
		}
		want := u.EscapedPath() == u.RawPath
		_, ok := m.Match("GET", "", u)
		require.Equal(t, want, ok, "%q", c)
	}
}

func TestMatcherWithLeavesTheOldOneAlone(t *testing.T) {
	t.Parallel()
	additions := []string{"/a/{x}", "/{x}/b", "/a/{p...}", "GET /a/b", "x/a/b", "x:81/a/b"}
	all := []*patterns{newPatterns(t, "/a/c")}
	for _, p := range additions {
		next, err := all[len(all)-1].With(p, p)
		require.NoError(t, err)
		_, err = next.With(p, "again")
		require.Error(t, err)
		all = append(all, next)
	}
	want := []string{"", "/a/{x}", "/a/{x}", "/a/{x}", "GET /a/b", "x/a/b", "x:81/a/b"}
	for i, m := range all {
		got, _ := m.Match("GET", "x:81", &url.URL{Scheme: "http", Path: "/a/b"})
		require.Equal(t, want[i], got)
	}
	// Two matchers grown from the same one do not see each other's patterns.
	left, err := all[0].With("/left", "left")
	require.NoError(t, err)
	right, err := all[0].With("/right", "right")
	require.NoError(t, err)
	_, ok := left.Match("GET", "x", &url.URL{Path: "/right"})
	require.False(t, ok)
	_, ok = right.Match("GET", "x", &url.URL{Path: "/left"})
	require.False(t, ok)
}

func TestMatcherConcurrent(t *testing.T) {
	t.Parallel()
	const count = 200
	var latest atomic.Pointer[patterns]
	var known atomic.Int64 // patterns below this number are registered
	var group sync.WaitGroup
	errs := make(chan error, 4)
	for range 4 {
		group.Go(func() {
			for known.Load() < count {
				n := known.Load()
				if n == 0 {
					continue
				}
				path := fmt.Sprintf("/a%d/b", n-1)
				if got, ok := latest.Load().Match("GET", "x", &url.URL{Path: path}); !ok || got != fmt.Sprintf("/a%d/{x}", n-1) {
					errs <- fmt.Errorf("%s: got %q", path, got)
					return
				}
			}
		})
	}
	for i := range count {
		p := fmt.Sprintf("/a%d/{x}", i)
		next, err := latest.Load().With(p, p)
		require.NoError(t, err)
		latest.Store(next)
		known.Store(int64(i + 1))
	}
	group.Wait()
	close(errs)
	require.NoError(t, <-errs)
}

// The walk ends with the patterns, not with the path: a path of a million segments is answered by looking at four, and
// patterns made to send it back at every segment cost one visit per branch.
func TestMatcherHostilePath(t *testing.T) {
	t.Parallel()
	var list []string
	const depth = 8
	for bits := range 1 << depth {
		var b strings.Builder
		for i := range depth {
			b.WriteString([]string{"/a", "/*"}[bits>>i&1])
		}
		list = append(list, b.String()+"/end")
	}
	m := newPatterns(t, list...)
	_, ok := m.Match("GET", "x", &url.URL{Path: strings.Repeat("/a", 1_000_000)})
	require.False(t, ok)
	got, ok := m.Match("GET", "x", &url.URL{Path: strings.Repeat("/b", depth) + "/end"})
	require.True(t, ok)
	require.Equal(t, strings.Repeat("/*", depth)+"/end", got)
}

// muxPattern is a handler that ServeMux gives back and so tells which pattern it chose.
type muxPattern string

func (muxPattern) ServeHTTP(http.ResponseWriter, *http.Request) {}

// ServeMux is the model where patterns mean the same: no trailing slash, no GET that serves HEAD, no two patterns of
// which neither is the better one.
func TestMatcherAgreesWithServeMux(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	pick := func(list ...string) string { return list[rng.IntN(len(list))] }
	hits := 0
	for range 400 {
		mux := http.NewServeMux()
		var m *patterns
		for range 12 {
			var p strings.Builder
			p.WriteString(pick("", "GET ", "POST ") + pick("", "", "x", "y"))
			for i := range 1 + rng.IntN(3) {
				p.WriteString(pick("/a", "/b", "/%61%2Fb", fmt.Sprintf("/{w%d}", i)))
			}
			p.WriteString(pick("", "", "/{rest...}"))
			if !muxTakes(mux, p.String()) {
				continue
			}
			var err error
			m, err = m.With(p.String(), p.String())
			require.NoError(t, err)
		}
		for range 60 {
			var request strings.Builder
			request.WriteString(pick("GET", "POST", "PUT") + " http://" + pick("x", "y", "z:81"))
			for range 1 + rng.IntN(4) {
				request.WriteString(pick("/a", "/b", "/a%2Fb", "/%61", "/c"))
			}
			request.WriteString(pick("", "", "", "/"))
			method, host, u := parseRequest(t, request.String())
			h, chosen := mux.Handler(&http.Request{Method: method, Host: host, URL: u})
			want, _ := h.(muxPattern)
			if want == "" && chosen != "" {
				continue // sent on to the path with a slash at the end
			}
			got, ok := m.Match(method, host, u)
			require.Equal(t, string(want), got, request.String())
			require.Equal(t, want != "", ok, request.String())
			if ok {
				hits++
			}
		}
	}
	require.Greater(t, hits, 5_000)
}

// muxTakes registers p unless it is in conflict with another.
func muxTakes(mux *http.ServeMux, p string) (ok bool) {
	defer func() { ok = recover() == nil }()
	mux.Handle(p, muxPattern(p))
	return true
}
