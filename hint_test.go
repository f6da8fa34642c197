package hedgerow_test

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// hintNow is our clock in these tests, a quarter of a second past a full one so that rounding shows.
var hintNow = time.Date(2026, time.May, 4, 10, 15, 0, 250_000_000, time.UTC)

// hintHeader builds a header from lines such as "Retry-After: 5", spelt as a server may spell them.
func hintHeader(lines ...string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ":")
		h.Add(name, strings.TrimPrefix(value, " "))
	}
	return h
}

// requireHint asserts the hint of a header; zero wants none.
func requireHint(t *testing.T, want time.Duration, h http.Header) {
	t.Helper()
	wait, ok := hedgerow.RetryHint(h, hintNow)
	require.Equal(t, want, wait, "%v", h)
	require.Equal(t, want != 0, ok, "%v", h)
}

// The forms of one value, read from Retry-After in a response without Date.
func TestRetryHintValue(t *testing.T) {
	t.Parallel()
	const (
		none     = time.Duration(0)
		floor    = time.Second
		longest  = time.Duration(math.MaxInt64)
		fromDate = 750 * time.Millisecond // from hintNow to the next full second
	)
	for _, tt := range []struct {
		name, value string
		want        time.Duration
	}{
		{"seconds", "5", 5 * time.Second},
		{"a day", "86400", 24 * time.Hour},
		{"a week is not cut", "604800", 7 * 24 * time.Hour},
		{"decimals", "1.5", 1500 * time.Millisecond},
		{"decimals of nothing", "2.0", 2 * time.Second},
		{"no digit before the point", ".5", 500 * time.Millisecond},
		{"no digit after the point", "3.", 3 * time.Second},
		{"leading zeros", "007", 7 * time.Second},
		{"small and positive is kept", "0.002", 2 * time.Millisecond},
		{"rounded up, never to zero", "0.0000001", time.Millisecond},
		{"rounded up", "1.0001", 1001 * time.Millisecond},
		{"not rounded up by a binary fraction", "2.842", 2842 * time.Millisecond},
		{"beyond 18 digits", "1.0000000000000000000000001", 1001 * time.Millisecond},
		{"exponent", "1.2e2", 120 * time.Second},
		{"exponent that takes back a long number", "100000000000000000000000e-20", 1000 * time.Second},
		{"exponent with a minus", "1500E-3", 1500 * time.Millisecond},
		{"exponent with a plus", "6e+1", 60 * time.Second},
		{"blanks around", " \t45 ", 45 * time.Second},

		{"zero", "0", floor},
		{"zero with decimals", "0.000", floor},
		{"zero with a huge exponent", "0e999999999999999999999", floor},
		{"underflow is positive", "1e-400", time.Millisecond},
		{"underflow of the exponent too", "1e-999999999999999999999", time.Millisecond},

		{"one below epoch seconds", "999999999", 999999999 * time.Second},
		{"from here on epoch seconds", "1000000000", floor},
		{"epoch seconds to come", "1777889766", 65*time.Second + fromDate},
		{"epoch seconds with decimals", "1777889766.5", 66*time.Second + 250*time.Millisecond},
		{"one below epoch milliseconds is the year 5138", "99999999999", longest},
		{"from here on epoch milliseconds", "100000000000", floor},
		{"epoch milliseconds to come", "1777889766000", 65*time.Second + fromDate},
		{"epoch milliseconds rounded up", "1777889766000.25", 65*time.Second + 751*time.Millisecond},
		{"epoch in the past", "1777889000", floor},

		{"twenty nines", "99999999999999999999", longest},
		{"the longest int64", "9223372036854775807", longest},
		{"one more", "9223372036854775808", longest},
		{"1e100", "1e100", longest},
		{"1e400", "1e400", longest},
		{"exponent beyond int64", "1e99999999999999999999", longest},
		{"a thousand digits", strings.Repeat("9", 1000), longest},
		{"a thousand decimals", "1." + strings.Repeat("0", 1000), time.Second},

		{"Go duration", "1m30s", 90 * time.Second},
		{"Go duration, minutes", "6m0s", 6 * time.Minute},
		{"Go duration, minutes alone", "2m", 2 * time.Minute},
		{"Go duration, hours alone", "2h", 2 * time.Hour},
		{"Go duration, milliseconds", "20ms", 20 * time.Millisecond},
		{"Go duration, hours", "1h6m0s", 66 * time.Minute},
		{"Go duration, decimals", "2m59.56s", 179560 * time.Millisecond},
		{"Go duration, rounded up", "20.5ms", 21 * time.Millisecond},
		{"Go duration, microseconds", "3µs", time.Millisecond},
		{"Go duration of zero", "0s", floor},
		{"Go duration, saturated", "99999999999999h1s", longest},
		{"Go duration, saturated digits", strings.Repeat("9", 30) + "s", longest},
		{"Go duration, negative", "-5s", none},
		{"Go duration, negative and too long", "-99999999999999h", none},
		{"Go duration, unknown unit", "99999999999999weeks", none},
		{"unit alone", "s", none},

		{"HTTP date, IMF-fixdate", "Mon, 04 May 2026 10:16:01 GMT", 60*time.Second + fromDate},
		{"HTTP date, RFC 850", "Monday, 04-May-26 10:16:01 GMT", 60*time.Second + fromDate},
		{"HTTP date, asctime", "Mon May  4 10:16:01 2026", 60*time.Second + fromDate},
		{"HTTP date in the past", "Mon, 04 May 2026 10:14:30 GMT", floor},
		{"HTTP date of this very second", "Mon, 04 May 2026 10:15:00 GMT", floor},
		{"HTTP date less than a second away", "Mon, 04 May 2026 10:15:01 GMT", fromDate},
		{"HTTP date far away", "Fri, 31 Dec 9999 23:59:59 GMT", longest},
		{"RFC 3339", "2026-05-04T10:16:01Z", 60*time.Second + fromDate},
		{"RFC 3339 with an offset", "2026-05-04T12:16:01+02:00", 60*time.Second + fromDate},
		{"RFC 3339 with decimals", "2026-05-04T10:15:01.5Z", 1250 * time.Millisecond},
		{"RFC 3339 in the past", "0000-01-01T00:00:00Z", floor},
		{"RFC 3339 far away", "9999-12-31T23:59:59Z", longest},
		{"without seconds", "2026-05-04T10:17Z", 119*time.Second + fromDate},
		{"without seconds, with an offset", "2026-05-04T11:17+01:00", 119*time.Second + fromDate},

		{"two values", "40, 90", 40 * time.Second},
		{"two values, the first unreadable", "soon, 90", none},
		{"two values, the first negative", "-1, 90", none},

		{"empty", "", none},
		{"blank", " \t ", none},
		{"comma alone", ",", none},
		{"word", "soon", none},
		{"negative", "-1", none},
		{"minus zero", "-0", none},
		{"plus", "+5", none},
		{"plus on a duration", "+5s", none},
		{"number of nothing", ".", none},
		{"two points", "1.2.3", none},
		{"exponent of nothing", "1e", none},
		{"exponent with a point", "1e2.5", none},
		{"not a number", "NaN", none},
		{"infinity", "Inf", none},
		{"infinity spelt out", "+Infinity", none},
		{"hex", "0x10", none},
		{"hex float", "0x1p4", none},
		{"underscores", "1_000", none},
		{"underscores in the exponent", "1e1_0", none},
		{"blank inside", "1 0", none},
		{"digits of another script", "٣٠", none},
		{"not text", "\x00\xff", none},
		{"unit spelt out", "30 seconds", none},
		{"JavaScript date", "Mon May 04 2026 11:16:01 GMT+0100 (Central European Standard Time)", none},
		{"RFC 3339 without a zone", "2026-05-04T10:16:01", none},
		{"day without a time", "2026-05-04", none},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			requireHint(t, tt.want, http.Header{"Retry-After": {tt.value}})
		})
	}
}

// Which source counts: one case a line, the header's lines separated by bars.
func TestRetryHintSource(t *testing.T) {
	t.Parallel()
	const sec, milli = time.Second, time.Millisecond
	for _, tt := range []struct {
		name, header string
		want         time.Duration
	}{
		{"nothing", "", 0},
		{"nothing of ours", "Date: Mon, 04 May 2026 10:15:00 GMT|Server: x|X-Request-Id: 5|RateLimit-Policy: \"a\";q=9;w=60", 0},
		{"retry vetoes are no waits", "X-Should-Retry: false|Stripe-Should-Retry: true", 0},

		{"milliseconds", "retry-after-ms: 1500", 1500 * milli},
		{"milliseconds, Azure", "x-ms-retry-after-ms: 250", 250 * milli},
		{"milliseconds rounded up", "x-ms-retry-after-ms: 8523.5", 8524 * milli},
		{"a fraction of a millisecond", "retry-after-ms: 0.01", milli},
		{"milliseconds of zero", "retry-after-ms: 0|Retry-After: 20", sec},
		{"milliseconds are never an epoch", "retry-after-ms: 2000000000", 2000000 * sec},
		{"milliseconds saturate", "retry-after-ms: 99999999999999999999", math.MaxInt64},
		{"milliseconds saturate at a Duration", "retry-after-ms: 9223372036855", math.MaxInt64},
		{"milliseconds before Azure's", "x-ms-retry-after-ms: 9000|retry-after-ms: 2000", 2 * sec},
		{"milliseconds before Retry-After", "Retry-After: 3|retry-after-ms: 2000|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 60", 2 * sec},
		{"Azure's before Retry-After", "Retry-After: 3|x-ms-retry-after-ms: 2000", 2 * sec},
		{"milliseconds unreadable", "retry-after-ms: abc|x-ms-retry-after-ms: 700", 700 * milli},
		{"milliseconds negative", "retry-after-ms: -1|x-ms-retry-after-ms: NaN|Retry-After: 20", 20 * sec},
		{"milliseconds with a unit", "retry-after-ms: 20ms|Retry-After: 20", 20 * sec},

		{"Retry-After before its private names", "X-RateLimit-Retry-After: 4|X-Retry-After: 3|Retry-After: 2", 2 * sec},
		{"private names in order", "X-RateLimit-Retry-After: 4|X-Retry-After: 3", 3 * sec},
		{"private name, epoch", "X-Retry-After: 1777889765|Date: Mon, 04 May 2026 10:15:00 GMT", 65 * sec},
		{"private name, last", "X-RateLimit-Retry-After: 59", 59 * sec},
		{"Retry-After unreadable", "Retry-After: soon|X-Retry-After: 3", 3 * sec},
		{"Retry-After negative", "Retry-After: -1|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 52", 52 * sec},
		{"Retry-After empty", "Retry-After:|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 52", 52 * sec},
		{"Retry-After of zero is readable", "Retry-After: 0|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 52", sec},
		{"Retry-After before a longer reset", "Retry-After: 6|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 52|RateLimit: \"a\";r=0;t=99", 6 * sec},
		{"two lines", "Retry-After: 40|Retry-After: 90", 40 * sec},
		{"two lines, the first unreadable", "Retry-After: soon|Retry-After: 90", 0},
		{"any case", "RETRY-AFTER: 7", 7 * sec},

		{"bucket, seconds", "X-RateLimit-Remaining: 0|X-RateLimit-Reset: 52", 52 * sec},
		{"bucket, IETF to -06", "RateLimit-Limit: 100|RateLimit-Remaining: 0|RateLimit-Reset: 38", 38 * sec},
		{"bucket, GitLab's epoch", "RateLimit-Remaining: 0|RateLimit-Reset: 1777889748|Date: Mon, 04 May 2026 10:15:00 GMT", 48 * sec},
		{"bucket, X", "x-rate-limit-remaining: 0|x-rate-limit-reset: 1777889748|Date: Mon, 04 May 2026 10:15:00 GMT", 48 * sec},
		{"bucket, Reddit's float", "X-Ratelimit-Remaining: 0.0|X-Ratelimit-Reset: 287", 287 * sec},
		{"bucket, less than one left is not zero", "X-Ratelimit-Remaining: 0.4|X-Ratelimit-Reset: 287", 0},
		{"bucket, OpenAI", "x-ratelimit-remaining-requests: 0|x-ratelimit-reset-requests: 6m0s", 360 * sec},
		{"bucket, Anthropic", "anthropic-ratelimit-tokens-remaining: 0|anthropic-ratelimit-tokens-reset: 2026-05-04T10:15:09Z|Date: Mon, 04 May 2026 10:15:00 GMT", 9 * sec},
		{"bucket, name in the middle", "X-RateLimit-Requests-Remaining: 0|X-RateLimit-Requests-Reset: 12", 12 * sec},
		{"bucket, Jira", "X-RateLimit-Remaining: 0|X-RateLimit-Reset: 2026-05-04T10:17Z|Date: Mon, 04 May 2026 10:15:00 GMT", 120 * sec},
		{"bucket, reset of zero", "X-RateLimit-Remaining: 0|X-RateLimit-Reset: 0", sec},
		{"bucket, saturated", "X-RateLimit-Remaining: 0|X-RateLimit-Reset: 1e100", math.MaxInt64},
		{"bucket with something left", "X-RateLimit-Remaining: 31|X-RateLimit-Reset: 52", 0},
		{"bucket, remaining unknown", "X-RateLimit-Reset: 52", 0},
		{"bucket, remaining unreadable", "X-RateLimit-Remaining: none|X-RateLimit-Reset: 52", 0},
		{"bucket, remaining a sentinel", "x-ratelimit-remaining-tokens: -1|x-ratelimit-reset-tokens: 0", 0},
		{"bucket, reset a sentinel", "x-ratelimit-remaining-tokens: 0|x-ratelimit-reset-tokens: -1", 0},
		{"bucket, reset unreadable", "X-RateLimit-Remaining: 0|X-RateLimit-Reset: Mon May 04 2026 11:16:01 GMT+0100 (CET)", 0},
		{"bucket without a reset", "X-RateLimit-Remaining: 0", 0},
		{"bucket, two values each", "X-RateLimit-Remaining: 0, 99|X-RateLimit-Reset: 1, 3600", sec},
		{"bucket of something else", "X-Storage-Remaining: 0|X-Storage-Reset: 52", 0},
		{"buckets do not lend their reset", "X-RateLimit-Remaining-Tokens: 0|X-RateLimit-Reset-Requests: 5|X-RateLimit-Reset: 6", 0},
		{"families do not lend their reset", "RateLimit-Remaining: 0|X-RateLimit-Reset: 6", 0},
		{"only the exhausted bucket", "x-ratelimit-remaining-requests: 0|x-ratelimit-reset-requests: 8.64s|x-ratelimit-remaining-tokens: 9|x-ratelimit-reset-tokens: 6m0s", 8640 * milli},
		{"the latest of two", "x-ratelimit-remaining-requests: 0|x-ratelimit-reset-requests: 41s|x-ratelimit-remaining-tokens: 0|x-ratelimit-reset-tokens: 1m2s", 62 * sec},
		{"the latest of two readable", "x-ratelimit-remaining-requests: 0|x-ratelimit-reset-requests: -1|x-ratelimit-remaining-tokens: 0|x-ratelimit-reset-tokens: 20ms", 20 * milli},
		{"the latest across families", "RateLimit: \"a\";r=0;t=7|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 9", 9 * sec},

		{"reset-after before reset", "X-RateLimit-Remaining: 0|X-RateLimit-Reset: 1777890200|X-RateLimit-Reset-After: 12", 12 * sec},
		{"reset-after alone", "X-RateLimit-Reset-After: 0.661", 661 * milli},
		{"reset-after with something left", "X-RateLimit-Remaining: 1|X-RateLimit-Reset-After: 0.661", 0},
		{"reset-after with a sentinel", "X-RateLimit-Remaining: -1|X-RateLimit-Reset-After: 0.661", 0},
		{"reset-after unreadable", "X-RateLimit-Remaining: 0|X-RateLimit-Reset: 30|X-RateLimit-Reset-After: -1", 30 * sec},
		{"reset-after of a suffix", "X-RateLimit-Remaining-Tokens: 0|X-RateLimit-Reset-After-Tokens: 3|X-RateLimit-Reset-Tokens: 30", 3 * sec},

		{"IETF item", `RateLimit: "default";r=0;t=43`, 43 * sec},
		{"IETF item, token name", `RateLimit: default;r=0;t=43`, 43 * sec},
		{"IETF item, any order and blanks", `RateLimit: "default" ; t=52 ;r=0;pk=:dXNlcjE=:`, 52 * sec},
		{"IETF item with something left", `RateLimit: "default";r=17;t=25`, 0},
		{"IETF item without remaining", `RateLimit: "default";t=25`, 0},
		{"IETF item without reset", `RateLimit: "default";r=0`, 0},
		{"IETF item, negative", `RateLimit: "default";r=0;t=-5`, 0},
		{"IETF item, zero", `RateLimit: "default";r=0;t=0`, sec},
		{"IETF list", `RateLimit: "burst";r=0;t=1, "hour";r=0;t=754, "day";r=212;t=40000`, 754 * sec},
		{"IETF list over two lines", `RateLimit: "burst";r=0;t=1|RateLimit: "hour";r=0;t=754`, 754 * sec},
		{"IETF list, members do not mix", `RateLimit: "a";r=0, "b";t=9`, 0},
		{"IETF name with separators", `RateLimit: "a,b;r=0;t=9";r=5;t=3`, 0},
		{"IETF name with a quote", `RateLimit: "a\";r=0;t=9,";r=0;t=3`, 3 * sec},
		{"IETF name without an end", `RateLimit: "a;r=0;t=9`, 0},
		{"IETF -07", "RateLimit: limit=100, remaining=0, reset=44", 44 * sec},
		{"IETF -07, other order", "RateLimit: remaining=0,reset=17,limit=5", 17 * sec},
		{"IETF -07 with something left", "RateLimit: limit=100, remaining=3, reset=44", 0},
		{"IETF -07, a bucket a line", "RateLimit: limit=9, remaining=0, reset=4|RateLimit: limit=100, remaining=3, reset=44", 4 * sec},
		{"IETF, separators alone", "RateLimit: ,;,;=,=;", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			requireHint(t, tt.want, hintHeader(strings.Split(tt.header, "|")...))
		})
	}
}

// Instants are the server's, so they are measured on the server's clock. hintNow is a quarter of a second past 10:15:00.
func TestRetryHintClock(t *testing.T) {
	t.Parallel()
	const (
		inTen    = "Mon, 04 May 2026 10:25:10 GMT"
		epoch    = "1777890310"
		epochMs  = "1777890310000"
		rfc3339  = "2026-05-04T10:25:10Z"
		relative = "10"
	)
	for _, tt := range []struct {
		name, date, value string
		want              time.Duration
	}{
		{"server ten minutes ahead", "Mon, 04 May 2026 10:25:00 GMT", inTen, 10 * time.Second},
		{"server ten minutes ahead, epoch", "Mon, 04 May 2026 10:25:00 GMT", epoch, 10 * time.Second},
		{"server ten minutes ahead, epoch milliseconds", "Mon, 04 May 2026 10:25:00 GMT", epochMs, 10 * time.Second},
		{"server ten minutes ahead, RFC 3339", "Mon, 04 May 2026 10:25:00 GMT", rfc3339, 10 * time.Second},
		{"server ten minutes ahead, relative", "Mon, 04 May 2026 10:25:00 GMT", relative, 10 * time.Second},
		{"server an hour behind", "Mon, 04 May 2026 09:25:10 GMT", inTen, time.Hour},
		{"past on the server's clock alone", "Mon, 04 May 2026 10:30:00 GMT", inTen, time.Second},
		{"another form of Date", "Monday, 04-May-26 10:25:00 GMT", inTen, 10 * time.Second},
		{"no Date", "", inTen, 10*time.Minute + 9750*time.Millisecond},
		{"unreadable Date", "yesterday", inTen, 10*time.Minute + 9750*time.Millisecond},
		{"absurd Date", "Mon, 01 Jan 0001 00:00:00 GMT", inTen, math.MaxInt64},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			requireHint(t, tt.want, hintHeader("Date: "+tt.date, "Retry-After: "+tt.value))
			requireHint(t, tt.want, hintHeader("Date: "+tt.date, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: "+tt.value))
			requireHint(t, tt.want, hintHeader("Date: "+tt.date, "RateLimit-Remaining: 0", "RateLimit-Reset-After: "+tt.value))
		})
	}
}

// The clock of a running program carries a monotonic reading, and any instant can be handed in.
func TestRetryHintNow(t *testing.T) {
	t.Parallel()
	in := func(d time.Duration) http.Header {
		return http.Header{"Retry-After": {time.Now().Add(d).UTC().Format(http.TimeFormat)}}
	}
	wait, ok := hedgerow.RetryHint(in(time.Hour), time.Now())
	require.True(t, ok)
	require.InDelta(t, time.Hour, wait, float64(2*time.Second))

	wait, ok = hedgerow.RetryHint(in(0), time.Time{})
	require.True(t, ok)
	require.Equal(t, time.Duration(math.MaxInt64), wait)

	wait, ok = hedgerow.RetryHint(in(0), time.Unix(1<<62, 0))
	require.True(t, ok)
	require.Equal(t, time.Second, wait)

	wait, ok = hedgerow.RetryHint(nil, time.Now())
	require.False(t, ok)
	require.Zero(t, wait)
}

// A field without values, or under a key that net/http would not have written, is absent.
func TestRetryHintRawHeader(t *testing.T) {
	t.Parallel()
	requireHint(t, 0, http.Header{"Retry-After": nil, "X-Ratelimit-Remaining": {}, "Ratelimit": nil})
	requireHint(t, 0, http.Header{"retry-after": {"5"}, "X-RateLimit-Remaining": {"0"}, "X-RateLimit-Reset": {"5"}})
	requireHint(t, 0, http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {}})
}

// On most responses there is nothing to read, and what there is are mostly numbers.
//
//nolint:paralleltest // AllocsPerRun counts the whole process
func TestRetryHintAllocs(t *testing.T) {
	for _, header := range []http.Header{
		hintHeader("Content-Type: text/plain", "Server: x", "X-Request-Id: 5"),
		hintHeader("Retry-After: 120"),
		hintHeader("Retry-After-Ms: 120.5"),
		hintHeader("Date: Mon, 04 May 2026 10:15:00 GMT", "Retry-After: Mon, 04 May 2026 10:16:01 GMT"),
		hintHeader("X-RateLimit-Remaining-Requests: 0", "X-RateLimit-Reset-Requests: 6m0s"),
		hintHeader(`RateLimit: "burst";r=0;t=1, "hour";r=0;t=754`),
	} {
		require.Zero(t, testing.AllocsPerRun(100, func() { hedgerow.RetryHint(header, hintNow) }), "%v", header)
	}
}

func ExampleRetryHint() {
	// The server's clock runs ahead of ours: the instant it names is measured from its own Date.
	h := http.Header{}
	h.Set("Date", "Mon, 04 May 2026 10:25:00 GMT")
	h.Set("Retry-After", "Mon, 04 May 2026 10:25:30 GMT")
	now := time.Date(2026, time.May, 4, 10, 15, 0, 0, time.UTC)
	fmt.Println(hedgerow.RetryHint(h, now))

	// Without Retry-After the exhausted bucket decides.
	h = http.Header{}
	h.Set("X-Ratelimit-Remaining-Requests", "499")
	h.Set("X-Ratelimit-Reset-Requests", "120ms")
	h.Set("X-Ratelimit-Remaining-Tokens", "0")
	h.Set("X-Ratelimit-Reset-Tokens", "6m0s")
	fmt.Println(hedgerow.RetryHint(h, now))

	fmt.Println(hedgerow.RetryHint(http.Header{"Retry-After": {"soon"}}, now))
	// Output:
	// 30s true
	// 6m0s true
	// 0s false
}

func BenchmarkRetryHint(b *testing.B) {
	common := []string{
		"Date: Mon, 04 May 2026 10:15:00 GMT", "Content-Type: application/json", "Content-Length: 17", "Server: x", "Vary: Accept",
		"Cache-Control: no-store", "Strict-Transport-Security: max-age=1", "X-Request-Id: 5", "Via: 1.1 x", "Etag: x",
	}
	for _, bb := range []struct {
		name  string
		lines []string
	}{
		{"none", nil},
		{"seconds", []string{"Retry-After: 120"}},
		{"date", []string{"Retry-After: Mon, 04 May 2026 10:16:01 GMT"}},
		{"buckets", []string{"X-RateLimit-Remaining-Requests: 0", "X-RateLimit-Reset-Requests: 6m0s", "X-RateLimit-Remaining-Tokens: 9"}},
		{"list", []string{`RateLimit: "burst";r=0;t=1, "hour";r=0;t=754`}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			h := hintHeader(append(bb.lines, common...)...)
			b.ReportAllocs()
			for b.Loop() {
				hedgerow.RetryHint(h, hintNow)
			}
		})
	}
}
