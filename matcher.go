package hedgerow

import (
	"fmt"
	"maps"
	"net/url"
	"strings"
)

// matcher finds the value whose pattern fits a request best. It is immutable: with returns a changed copy, so that
// calls read the latest one through an atomic pointer, without a lock, while others register. A nil matcher matches
// nothing.
//
// Each host and port has a tree of its own with one level per path segment. The search walks it depth first and tries
// literal, single, rest in this order at each level, so the first hit is the best pattern: precedence is the order of
// the walk and nothing is compared. A branch that ends without a value for the method is left for the next one. Coming
// back cannot explode: only one way leads into a branch, and its depth says which segment it looks at, so a search goes
// into no branch twice, and a call searches at most three trees (host with port, host, any host). Its cost is bounded by
// the segments of all patterns, however long the path is; in practice it is about the segments of the path.
type matcher[T any] struct {
	// hosts holds the trees by name and then by port; "" is any host, any port.
	hosts map[string]map[string]*patternTree[T]
}

// patternTree is what is known of the paths that begin with one sequence of segments; nil: nothing.
type patternTree[T any] struct {
	literals map[string]*patternTree[T] // by decoded segment; "" follows a trailing slash
	single   *patternTree[T]            // {name} and *
	rest     *patternTree[T]            // {name...}; has only ends
	ends     map[string]patternEnd[T]   // patterns that end here, by method; "" is any
}

// patternEnd is one registration.
type patternEnd[T any] struct {
	pattern string // as written, for the error of a second registration
	value   T
}

// with returns a matcher that has pattern as well and shares with m what did not change.
func (m *matcher[T]) with(pattern string, v T) (*matcher[T], error) {
	p, err := parsePattern(pattern)
	if err != nil {
		return nil, fmt.Errorf("hedgerow: pattern %q: %w", shownPattern(pattern), err)
	}
	var hosts map[string]map[string]*patternTree[T]
	if m != nil {
		hosts = m.hosts
	}
	ports := hosts[p.host]
	root, same := ports[p.port].with(p.segments, p.method, patternEnd[T]{pattern, v})
	if same != "" {
		return nil, fmt.Errorf("hedgerow: pattern %q: same as %q, which is registered already", pattern, same)
	}
	return &matcher[T]{hosts: cloneWith(hosts, p.host, cloneWith(ports, p.port, root))}, nil
}

// with returns a copy of t, which may be nil, with end below it. If the place is taken, same is the pattern there.
func (t *patternTree[T]) with(path []patternSegment, method string, end patternEnd[T]) (next *patternTree[T], same string) {
	next = &patternTree[T]{}
	if t != nil {
		*next = *t
	}
	if len(path) == 0 {
		if old, ok := next.ends[method]; ok {
			return nil, old.pattern
		}
		next.ends = cloneWith(next.ends, method, end)
		return next, ""
	}
	switch s, below := path[0], path[1:]; s.kind {
	case segmentSingle:
		next.single, same = next.single.with(below, method, end)
	case segmentRest:
		next.rest, same = next.rest.with(below, method, end)
	default:
		var child *patternTree[T]
		child, same = next.literals[s.text].with(below, method, end)
		next.literals = cloneWith(next.literals, s.text, child)
	}
	return next, same
}

// cloneWith returns a copy of m, which may be nil, in which k is v.
func cloneWith[V any](m map[string]V, k string, v V) map[string]V {
	m = maps.Clone(m)
	if m == nil {
		m = make(map[string]V, 1)
	}
	m[k] = v
	return m
}

// match returns the value of the best pattern for a request. The host is normalised already: lower case, IPv6 in
// brackets, no default port. The scheme of u tells which port a host without one stands for.
func (m *matcher[T]) match(method, host string, u *url.URL) (v T, ok bool) {
	if m == nil || u == nil {
		return v, false
	}
	path, ok := requestPathOf(u)
	if !ok {
		return v, false
	}
	if method == "" {
		method = "GET"
	}
	name, port, hasPort := cutPort(host)
	if !hasPort {
		port = schemePort(u.Scheme)
	}
	ports := m.hosts[name]
	if v, ok = ports[port].find(method, path); ok {
		return v, true
	}
	if v, ok = ports[""].find(method, path); ok {
		return v, true
	}
	return m.hosts[""][""].find(method, path)
}

// find returns the value of the best pattern for p, the part of the path that t has not seen.
func (t *patternTree[T]) find(method string, p requestPath) (v T, ok bool) {
	if t == nil {
		return v, false
	}
	if p.path == "" {
		return t.end(method)
	}
	segment, below := p.cut()
	if v, ok = t.literals[segment].find(method, below); ok {
		return v, true
	}
	if segment != "" {
		if v, ok = t.single.find(method, below); ok {
			return v, true
		}
	}
	if t.rest != nil {
		return t.rest.end(method)
	}
	return v, false
}

func (t *patternTree[T]) end(method string) (v T, ok bool) {
	end, ok := t.ends[method]
	if !ok {
		end, ok = t.ends[""]
	}
	return end.value, ok
}

// requestPath is a path or what is left of it: nothing, or a slash and more. When raw encodes path, a segment of raw is
// as long as its decoded form in path plus two bytes for each percent sign; so decoded segments are cut out of path
// and never built. Without raw, the segments are those of path.
type requestPath struct {
	path, raw string
}

// requestPathOf returns the path that a client sends for u; ok is false if it does not start with a slash.
func requestPathOf(u *url.URL) (p requestPath, ok bool) {
	switch {
	case u.Opaque != "":
		return p, false
	case u.Path == "":
		return requestPath{path: "/"}, true
	case encodes(u.RawPath, u.Path):
		return requestPath{path: u.Path, raw: u.RawPath}, u.RawPath[0] == '/'
	default:
		return requestPath{path: u.Path}, u.Path[0] == '/'
	}
}

// cut returns the first segment, decoded, and what follows it; p is not empty.
func (p requestPath) cut() (segment string, below requestPath) {
	if p.raw == "" {
		end := strings.IndexByte(p.path[1:], '/') + 1
		if end == 0 {
			return p.path[1:], requestPath{}
		}
		return p.path[1:end], requestPath{path: p.path[end:]}
	}
	end := strings.IndexByte(p.raw[1:], '/') + 1
	if end == 0 {
		return p.path[1:], requestPath{}
	}
	decoded := end - 2*strings.Count(p.raw[:end], "%")
	return p.path[1:decoded], requestPath{path: p.path[decoded:], raw: p.raw[end:]}
}

// encodes reports whether raw is what url.URL.EscapedPath, which allocates, returns beside path: an encoding of path in
// characters that a path may have.
func encodes(raw, path string) bool {
	n := 0
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		if c == '%' {
			if i+2 >= len(raw) {
				return false
			}
			high, ok1 := hexDigit(raw[i+1])
			low, ok2 := hexDigit(raw[i+2])
			if !ok1 || !ok2 {
				return false
			}
			c = high<<4 | low
			i += 2
		} else if !plainInPath(c) {
			return false
		}
		if n == len(path) || path[n] != c {
			return false
		}
		n++
	}
	return n == len(path)
}

func hexDigit(c byte) (value byte, ok bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// plainInPath reports whether net/url lets c stand for itself in an escaped path: a slash or, in RFC 3986 section 3.3, a
// pchar; and square brackets, which browsers leave alone.
func plainInPath(c byte) bool {
	return isAlphanumeric(c) || strings.IndexByte("-._~!$&'()*+,;=:@/[]", c) >= 0
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// schemePort returns the port that a URL of the scheme means when it names none.
func schemePort(scheme string) string {
	switch scheme {
	case "http":
		return "80"
	case "https":
		return "443"
	}
	return ""
}

// cutPort splits "name", "name:port", "[v6]" and "[v6]:port".
func cutPort(host string) (name, port string, ok bool) {
	i := strings.LastIndexByte(host, ':')
	if i < 0 || i < strings.LastIndexByte(host, ']') {
		return host, "", false
	}
	return host[:i], host[i+1:], true
}
