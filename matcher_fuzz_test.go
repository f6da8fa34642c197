package hedgerow_test

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// modelPattern is a pattern as the model below sees it. It is made of parts and never parsed, so that parser and
// search are both under test.
type modelPattern struct {
	method, name, port string
	segments           []modelSegment
	text               string
}

type modelSegment struct {
	rank int    // 0: literal, 1: {x}, 2: {x...}
	text string // of a literal
}

func (p modelPattern) matches(method, name, port string, path []string) bool {
	if p.method != "" && p.method != method || p.name != "" && p.name != name || p.port != "" && p.port != port {
		return false
	}
	for i, s := range p.segments {
		switch {
		case s.rank == 2:
			return i < len(path)
		case i == len(path), s.rank == 0 && s.text != path[i], s.rank == 1 && path[i] == "":
			return false
		}
	}
	return len(p.segments) == len(path)
}

// compareModel is negative if p is the better pattern, 0 if the two are the same.
func compareModel(p, q modelPattern) int {
	return cmp.Or(
		-cmp.Compare(len(p.port), len(q.port)), // all ports of the model are two digits
		-cmp.Compare(min(len(p.name), 1), min(len(q.name), 1)),
		cmp.Compare(p.name, q.name),
		cmp.Compare(p.port, q.port),
		slices.CompareFunc(p.segments, q.segments, func(a, b modelSegment) int {
			return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.text, b.text))
		}),
		-cmp.Compare(min(len(p.method), 1), min(len(q.method), 1)),
		cmp.Compare(p.method, q.method),
	)
}

// choices turns fuzz bytes into decisions; when they are used up it always takes the first.
type choices []byte

func (c *choices) pick(n int) int {
	if len(*c) == 0 {
		return 0
	}
	b := (*c)[0]
	*c = (*c)[1:]
	return int(b) % n
}

func (c *choices) of(list ...string) string { return list[c.pick(len(list))] }

// modelLiterals are segments with all their spellings, the decoded one first.
var modelLiterals = [][]string{
	{"a", "a", "%61"},
	{"b", "b"},
	{"a/b", "a%2Fb", "%61%2fb"},
	{"/", "%2F"},
	{"%", "%25"},
	{"é", "%C3%A9", "%c3%a9"},
	{"*", "%2A"},
}

func (c *choices) pattern() (p modelPattern) {
	p.method = c.of("", "GET", "POST", "HEAD")
	p.name = c.of("", "", "x", "[::1]")
	if p.name != "" {
		p.port = c.of("", "80", "81")
	}
	p.text = p.name
	if p.port != "" {
		p.text += ":" + p.port
	}
	if p.method != "" {
		p.text = p.method + " " + p.text
	}
	n := 1 + c.pick(4)
	for i := range n {
		switch k := c.pick(len(modelLiterals) + 5); {
		case k < len(modelLiterals):
			l := modelLiterals[k]
			p.segments = append(p.segments, modelSegment{0, l[0]})
			p.text += "/" + l[1+c.pick(len(l)-1)]
		case k == len(modelLiterals) && i == n-1:
			p.segments = append(p.segments, modelSegment{2, ""})
			p.text += "/{p...}"
		case k <= len(modelLiterals)+1:
			p.segments = append(p.segments, modelSegment{0, ""})
			p.text += "/"
		case k <= len(modelLiterals)+2:
			p.segments = append(p.segments, modelSegment{1, ""})
			p.text += "/*"
		default:
			p.segments = append(p.segments, modelSegment{1, ""})
			p.text += "/{w" + string(rune('0'+i)) + "}"
		}
	}
	return p
}

// FuzzPattern lets the fuzzer write patterns and paths and compares the matcher with the model: look at every pattern,
// keep the best. It also feeds free text to the parser.
func FuzzPattern(f *testing.F) {
	f.Add("GET example.com:443/v1/{id}/files/{path...}", []byte("\x05\x00\x00\x02\x00\x00\x01\x01\x00\x00\x01\x09\x0a\x01\x00"))
	f.Add("https://user:secret@x/{a", []byte(strings.Repeat("\x01\x02\x03\x04\x0a\x08\x0b", 20)))
	f.Add("[::1%25eth0]:81/{$}", []byte(strings.Repeat("\x0b\x08\x03\x02\x01", 30)))
	f.Add("/%2F/*/a%", []byte("8c4e0q91l3;57-z0f"))
	f.Fuzz(func(t *testing.T, text string, data []byte) {
		c := choices(data)
		var m *patterns
		var model []modelPattern
		for range c.pick(16) {
			p := c.pattern()
			next, err := m.With(p.text, p.text)
			if slices.ContainsFunc(model, func(q modelPattern) bool { return compareModel(p, q) == 0 }) {
				require.ErrorContains(t, err, "registered already")
				require.Nil(t, next)
				continue
			}
			require.NoError(t, err)
			m, model = next, append(model, p)
		}
		for range 8 {
			method, name := c.of("GET", "POST", "HEAD", "PUT"), c.of("x", "[::1]", "y")
			host, port := name, "80"
			if c.pick(2) == 1 {
				host, port = name+":81", "81"
			}
			var path []string
			var raw strings.Builder
			for range 1 + c.pick(5) {
				l := []string{"", ""}
				if k := c.pick(len(modelLiterals) + 1); k < len(modelLiterals) {
					l = modelLiterals[k]
				}
				path = append(path, l[0])
				raw.WriteString("/" + l[1+c.pick(len(l)-1)])
			}
			u, err := url.Parse("http://" + host + raw.String())
			require.NoError(t, err)

			want := ""
			matching := slices.DeleteFunc(slices.Clone(model), func(p modelPattern) bool { return !p.matches(method, name, port, path) })
			if len(matching) > 0 {
				want = slices.MinFunc(matching, compareModel).text
			}
			got, ok := m.Match(method, host, u)
			require.Equal(t, want, got, "%s %s", method, u)
			require.Equal(t, want != "", ok)
		}

		next, err := m.With(text, text)
		if err != nil {
			require.ErrorContains(t, err, "hedgerow: pattern ")
			return
		}
		_, err = next.With(text, text)
		require.ErrorContains(t, err, "registered already")
	})
}

// FuzzPath compares how the matcher cuts a URL that nobody parsed with the segments of what net/url would send for it.
func FuzzPath(f *testing.F) {
	f.Add("/a/b", "/a%2Fb", "")
	f.Add("/a/b/", "/%61/b/", "")
	f.Add("/é/%/\"", "/%C3%A9%2f%25/%22", "")
	f.Add("*", "", "")
	f.Add("", "%2F", "")
	f.Add("/a/b", "%2Fa/b", "opaque")
	f.Fuzz(func(t *testing.T, path, raw, opaque string) {
		u := &url.URL{Path: path, RawPath: raw, Opaque: opaque}
		sent := cmp.Or(u.EscapedPath(), "/")
		if opaque != "" || !strings.HasPrefix(sent, "/") {
			_, ok := newPatterns(t, "/{p...}").Match("GET", "x", u)
			require.False(t, ok)
			return
		}
		// The exact pattern matches, and no other with as many segments.
		var exact, other strings.Builder
		for segment := range strings.SplitSeq(sent[1:], "/") {
			decoded, err := url.PathUnescape(segment)
			require.NoError(t, err)
			exact.WriteString("/" + strings.ReplaceAll(url.PathEscape(decoded), "*", "%2A"))
			other.WriteString("/" + strings.ReplaceAll(url.PathEscape(decoded+"x"), "*", "%2A"))
		}
		got, ok := newPatterns(t, other.String(), exact.String(), "/{p...}").Match("GET", "x", u)
		require.True(t, ok)
		require.Equal(t, exact.String(), got)
	})
}
