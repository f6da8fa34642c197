package hedgerow

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// parsedPattern is a pattern in the form in which it is matched: host in lower case, segments decoded, no names.
type parsedPattern struct {
	method, host, port string // "": any
	segments           []patternSegment
}

type patternSegment struct {
	kind segmentKind
	text string // of a literal
}

type segmentKind int

const (
	segmentLiteral segmentKind = iota
	segmentSingle
	segmentRest
)

// parsePattern reads "[METHOD ][HOST]/PATH". The error is the bare fault.
func parsePattern(s string) (p parsedPattern, err error) {
	if s == "" {
		return p, errors.New("must not be empty")
	}
	if i := strings.IndexAny(s, " \t"); i >= 0 {
		p.method, s = s[:i], strings.TrimLeft(s[i:], " \t")
		if err = checkMethod(p.method); err != nil {
			return p, err
		}
	}
	slash := strings.IndexByte(s, '/')
	if slash < 0 {
		return p, errors.New(`must have a path that starts with "/", even if it is only "/"`)
	}
	host, path := s[:slash], s[slash:]
	if strings.HasSuffix(host, ":") && strings.HasPrefix(path, "//") {
		return p, errors.New(`host must not have a scheme: write "example.com/", not "https://example.com/"`)
	}
	if p.host, p.port, err = parseHost(host); err != nil {
		return p, err
	}
	p.segments, err = parsePath(path)
	return p, err
}

func checkMethod(method string) error {
	switch {
	case method == "":
		return errors.New("must not start with a space")
	case method == "*":
		return errors.New(`method must not be "*": without a method a pattern matches all of them`)
	case strings.Contains(method, "/"):
		return errors.New("host and path must not have spaces: write %20")
	}
	for i := range len(method) {
		if c := method[i]; !isAlphanumeric(c) && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return errors.New("method must be a token, such as GET")
		}
	}
	return nil
}

// parseHost returns the host in the form in which match gets it.
func parseHost(s string) (name, port string, err error) {
	switch s {
	case "":
		return "", "", nil
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE":
		return "", "", fmt.Errorf("method must be followed by a space: %s would be the host", s)
	}
	switch {
	case strings.Contains(s, "@"):
		return "", "", errors.New("host must not have userinfo")
	case strings.ContainsAny(s, "{}*"):
		return "", "", errors.New("host must not have wildcards: leave it out to match any host")
	}
	name, port, hasPort := cutPort(strings.ToLower(s))
	if v6, ok := strings.CutPrefix(name, "["); ok {
		v6, ok = strings.CutSuffix(v6, "]")
		v6 = strings.Replace(v6, "%25", "%", 1) // a URL writes the zone like this, url.URL.Host holds it decoded
		if addr, err := netip.ParseAddr(v6); !ok || err != nil || !addr.Is6() {
			return "", "", errors.New("host in brackets must be an IPv6 address")
		}
		name = "[" + v6 + "]"
	} else if name == "" || strings.ContainsFunc(name, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsMark(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-._", r)
	}) {
		return "", "", errors.New("host must be a name, an IPv4 address or an IPv6 address in brackets, and may have a port")
	}
	if _, err := strconv.ParseUint(port, 10, 16); hasPort && (err != nil || port[0] == '0') {
		return "", "", errors.New("port must be a number from 1 to 65535")
	}
	return name, port, nil
}

func parsePath(path string) (segments []patternSegment, err error) {
	for i := range len(path) {
		switch c := path[i]; {
		case c == '?':
			return nil, errors.New("path must not have a query: a pattern matches all of them")
		case c == '#':
			return nil, errors.New("path must not have a fragment: it is never sent")
		case c <= ' ' || c == 0x7f:
			return nil, errors.New("path must not have spaces or control characters: percent-encode them")
		}
	}
	var names []string
	for text := range strings.SplitSeq(path[1:], "/") {
		if n := len(segments); n > 0 && segments[n-1].kind == segmentRest {
			return nil, fmt.Errorf("wildcard {%s...} must be the last segment", names[len(names)-1])
		}
		segment, name, err := parseSegment(text)
		if err != nil {
			return nil, err
		}
		if name != "" {
			if slices.Contains(names, name) {
				return nil, fmt.Errorf("wildcard name %q must not be used twice", name)
			}
			names = append(names, name)
		}
		segments = append(segments, segment)
	}
	return segments, nil
}

// parseSegment returns the segment that text stands for and the name of its wildcard.
func parseSegment(text string) (s patternSegment, name string, err error) {
	if text == "*" {
		return patternSegment{kind: segmentSingle}, "", nil
	}
	if !strings.ContainsAny(text, "{}*") {
		literal, err := url.PathUnescape(text)
		if err != nil {
			return s, "", fmt.Errorf("segment %q must be percent-encoded: write %%25 for %%", text)
		}
		return patternSegment{text: literal}, "", nil
	}
	if strings.Count(text, "{") != strings.Count(text, "}") {
		return s, "", fmt.Errorf("braces of segment %q must be balanced: write %%7B and %%7D for { and }", text)
	}
	name = strings.TrimSuffix(strings.TrimPrefix(text, "{"), "}")
	if len(name) != len(text)-2 || strings.ContainsAny(name, "{}") {
		return s, "", fmt.Errorf("wildcard in %q must be a whole segment: write %%2A for *", text)
	}
	if name == "$" {
		return s, "", errors.New(`wildcard {$} must be left out: a trailing "/" matches only the end already`)
	}
	name, rest := strings.CutSuffix(name, "...")
	if !isIdentifier(name) {
		return s, "", fmt.Errorf("wildcard %s must have a name of letters, digits and _", text)
	}
	if rest {
		return patternSegment{kind: segmentRest}, name, nil
	}
	return patternSegment{kind: segmentSingle}, name, nil
}

func isIdentifier(s string) bool {
	for i, r := range s {
		if r != '_' && !unicode.IsLetter(r) && (i == 0 || !unicode.IsDigit(r)) {
			return false
		}
	}
	return s != ""
}

// shownPattern returns s fit for an error: the places where a URL that was pasted in has its secrets are masked.
func shownPattern(s string) string {
	if i := strings.IndexAny(s, "?#"); i >= 0 {
		s = s[:i+1] + "***"
	}
	at := strings.IndexByte(s, '@')
	if at < 0 {
		return s
	}
	start := strings.LastIndexAny(s[:at], "/ \t") + 1
	if strings.HasSuffix(s[:start], "/") && !strings.HasSuffix(s[:start], "//") {
		return s // inside a path
	}
	end := len(s)
	if i := strings.IndexByte(s[at:], '/'); i >= 0 {
		end = at + i
	}
	return s[:start] + "***" + s[strings.LastIndexByte(s[:end], '@'):]
}
