package hedgerow

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	hintFloor = time.Second                  // what zero and the past stand for
	hintMax   = time.Duration(math.MaxInt64) // what a wait too long for a Duration saturates to
)

// RetryHint returns the wait that the response header h asks for, and whether it asks for one in a form that can be
// read. It looks at the header alone, so the caller decides which statuses it means anything on: 429 and 503 as a rule.
// The first readable source counts:
//
//  1. Retry-After-Ms, then X-Ms-Retry-After-Ms, in milliseconds;
//  2. Retry-After, then X-Retry-After, then X-RateLimit-Retry-After;
//  3. the latest reset among the exhausted buckets: items of RateLimit with r=0 or remaining=0, and rate-limit fields
//     whose Remaining is 0, each paired with the Reset-After, else the Reset, of the same prefix and suffix.
//     X-RateLimit-Reset-After needs no Remaining beside it.
//
// A value is a decimal number (1e11 and more: epoch milliseconds; 1e9 and more: epoch seconds; less: seconds from now),
// a Go duration, an RFC 3339 time, with or without seconds, or an HTTP date in any form of [http.ParseTime]. Instants
// are measured from the Date header, from now where that is missing or unreadable. Of several values in one field the
// first counts.
//
// The wait is rounded up to a whole millisecond and always positive when ok is true. Zero and the past mean one second;
// a negative or unreadable value is as good as absent; a wait too long for a [time.Duration] is the longest one.
// [PoolConfig].MaxCooldown is not applied.
func RetryHint(h http.Header, now time.Time) (wait time.Duration, ok bool) {
	for _, key := range [...]string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		if ms, readable := ceilDecimal(firstValue(h[key]), 0); readable {
			return waitMillis(ms), true
		}
	}
	for _, key := range [...]string{"Retry-After", "X-Retry-After", "X-Ratelimit-Retry-After"} {
		if wait, ok = parseWait(firstValue(h[key]), h, now); ok {
			return wait, true
		}
	}
	return latestReset(h, now)
}

// latestReset is the longest wait for a bucket that h reports as exhausted.
func latestReset(h http.Header, now time.Time) (wait time.Duration, ok bool) {
	reset := func(value string) bool {
		d, readable := parseWait(value, h, now)
		wait, ok = max(wait, d), ok || readable
		return readable
	}

	// Vendors put the bucket's name before or after the word (Anthropic-Ratelimit-Tokens-Remaining,
	// X-Ratelimit-Remaining-Tokens), and invent buckets. So the fields are found by that word instead of a list of
	// names, and its counterpart differs in it alone.
	for key, values := range h {
		prefix, suffix, found := strings.Cut(key, "Remaining")
		if !found || !isZero(firstValue(values)) ||
			!strings.Contains(prefix, "Ratelimit-") && !strings.Contains(prefix, "Rate-Limit-") {
			continue
		}
		if !reset(firstValue(h[prefix+"Reset-After"+suffix])) {
			reset(firstValue(h[prefix+"Reset"+suffix]))
		}
	}
	if firstValue(h["X-Ratelimit-Remaining"]) == "" {
		reset(firstValue(h["X-Ratelimit-Reset-After"]))
	}

	// Two generations of the IETF draft share the field: up to -07 a line describes one bucket (limit=9, remaining=0,
	// reset=5), from -08 on each member of the list is one ("default";r=0;t=5).
	for _, line := range h["Ratelimit"] {
		if isZero(rateLimitParam(line, "remaining")) {
			reset(rateLimitParam(line, "reset"))
		}
		for line != "" {
			var item string
			item, line = cutUnquoted(line, ",")
			if isZero(rateLimitParam(item, "r")) {
				reset(rateLimitParam(item, "t"))
			}
		}
	}
	return wait, ok
}

// rateLimitParam is the value of name=value in a RateLimit field or one item of it, "" if there is none.
func rateLimitParam(s, name string) string {
	for s != "" {
		var param string
		param, s = cutUnquoted(s, ",;")
		if key, value, _ := strings.Cut(param, "="); strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// parseWait reads one value in any of the forms that RetryHint lists, the millisecond fields aside. The result is
// positive if ok.
func parseWait(value string, h http.Header, now time.Time) (wait time.Duration, ok bool) {
	// No form starts with a sign, so a negative value is an unreadable one.
	if value == "" || value[0] == '-' || value[0] == '+' {
		return 0, false
	}
	if ms, readable := ceilDecimal(value, 3); readable {
		if ms < 1e12 {
			return waitMillis(ms), true
		}
		if ms >= 1e14 { // value counts milliseconds, not seconds
			ms, _ = ceilDecimal(value, 0)
		}
		return waitUntil(time.UnixMilli(ms), h, now), true
	}
	switch value[len(value)-1] {
	case 's', 'm', 'h': // the last letters of Go's units; no date ends in one
		return parseDuration(value)
	}
	at, err := parseInstant(value)
	if err != nil {
		return 0, false
	}
	return waitUntil(at, h, now), true
}

// parseInstant reads the dates that RetryHint lists. What begins with a letter can only be an HTTP date.
func parseInstant(value string) (time.Time, error) {
	if value[0] > '9' {
		return http.ParseTime(value)
	}
	if at, err := time.Parse(time.RFC3339, value); err == nil {
		return at, nil
	}
	return time.Parse("2006-01-02T15:04Z07:00", value) // Jira leaves the seconds out
}

// parseDuration reads an unsigned Go duration and, unlike [time.ParseDuration], saturates.
func parseDuration(value string) (wait time.Duration, ok bool) {
	if d, err := time.ParseDuration(value); err == nil {
		return ceilWait(d), true
	}
	// The error does not tell an overflow from bad syntax. With zeros for digits only bad syntax is left to fail.
	zeros := strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return '0'
		}
		return r
	}, value)
	if _, err := time.ParseDuration(zeros); err != nil {
		return 0, false
	}
	return hintMax, true
}

// waitUntil is the wait from the moment h was sent, which is now if h does not say, until at.
func waitUntil(at time.Time, h http.Header, now time.Time) time.Duration {
	if sent := firstValue(h["Date"]); sent != "" {
		if t, err := http.ParseTime(sent); err == nil {
			now = t
		}
	}
	return ceilWait(at.Sub(now)) // Sub saturates
}

// waitMillis is a wait of ms >= 0 milliseconds.
func waitMillis(ms int64) time.Duration {
	if ms > int64(hintMax/time.Millisecond) {
		return hintMax
	}
	return ceilWait(time.Duration(ms) * time.Millisecond)
}

// ceilWait raises d to the floor if it is no wait at all, else to a whole millisecond.
func ceilWait(d time.Duration) time.Duration {
	if d <= 0 {
		return hintFloor
	}
	if rest := d % time.Millisecond; rest != 0 && d <= hintMax-time.Millisecond {
		d += time.Millisecond - rest
	}
	return d
}

// isZero reports whether value is a number and zero, however it is spelt: some services count in decimals.
func isZero(value string) bool {
	n, ok := ceilDecimal(value, 0)
	return ok && n == 0
}

// firstValue is the first of a field's values without blanks around it, "" if there is none. A number may have been
// joined with its successors by a comma on the way; a date has a comma of its own.
func firstValue(values []string) string {
	if len(values) == 0 {
		return ""
	}
	value := strings.TrimSpace(values[0])
	if value != "" && value[0] <= '9' {
		value, _, _ = strings.Cut(value, ",")
		value = strings.TrimSpace(value)
	}
	return value
}

// cutUnquoted cuts s at the first byte of seps outside a quoted string (RFC 9651, section 3.3.3). Without one, before
// is all of s.
func cutUnquoted(s, seps string) (before, after string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case quoted && s[i] == '\\':
			i++
		case !quoted && strings.IndexByte(seps, s[i]) >= 0:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

// ceilDecimal is s x 10^shift rounded up, or [math.MaxInt64] where that is too large. It reads unsigned decimals, with
// an exponent or without, and nothing else that strconv takes for a number: no infinities, hex digits or underscores.
// It does not go through a float, because few decimals have an exact one, and rounding up would make a millisecond of
// the error.
func ceilDecimal(s string, shift int) (n int64, ok bool) {
	const (
		room   = 1e17    // below it, one more digit fits
		farExp = 1 << 30 // beyond any digits that a header can hold
	)
	i, digits := 0, 0
	point, rest := false, false // rest: what n leaves out is not zero
	for ; i < len(s); i++ {
		c := s[i]
		if c == '.' && !point {
			point = true
			continue
		}
		if c < '0' || c > '9' {
			break
		}
		digits++
		if n < room {
			n = n*10 + int64(c-'0')
			if point {
				shift--
			}
		} else {
			rest = rest || c != '0'
			if !point {
				shift++
			}
		}
	}
	if digits == 0 {
		return 0, false
	}
	if i < len(s) {
		if s[i] != 'e' && s[i] != 'E' {
			return 0, false
		}
		exp, err := strconv.Atoi(s[i+1:])
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return 0, false
		}
		shift += min(max(exp, -farExp), farExp)
	}
	return scaleUp(n, shift, rest), true
}

// scaleUp is n x 10^shift rounded up, or [math.MaxInt64] where that is too large. With more the number is a little above
// n, by less than one.
func scaleUp(n int64, shift int, more bool) int64 {
	for ; shift > 0 && n > 0; shift-- {
		if n > math.MaxInt64/10 {
			return math.MaxInt64
		}
		n *= 10
	}
	for ; shift < 0 && n > 0; shift++ {
		more = more || n%10 != 0
		n /= 10
	}
	if more {
		n++
	}
	return n
}
