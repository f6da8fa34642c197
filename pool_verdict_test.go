package hedgerow_test

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// A pspecCase is one recorded response and what must be concluded from it.
type pspecCase struct {
	Name   string
	Status int
	Header map[string][]string
	Body   string
	Now    time.Time
	Preset string
	Want   struct {
		Action string
		Wait   *float64 `json:"wait_ms"`
		Min    *float64 `json:"wait_min_ms"`
		Max    *float64 `json:"wait_max_ms"`
		Scope  string
	}
}

func pspecCases(t *testing.T) []pspecCase {
	t.Helper()
	data, err := os.ReadFile("testdata/responses.json")
	require.NoError(t, err)
	var all, plain []pspecCase
	require.NoError(t, json.Unmarshal(data, &all))
	for _, c := range all {
		if c.Preset == "" {
			plain = append(plain, c)
		}
	}
	require.Greater(t, len(plain), 50)
	return plain
}

func (c *pspecCase) header() http.Header {
	h := make(http.Header)
	for name, values := range c.Header {
		for _, v := range values {
			h.Add(name, v)
		}
	}
	return h
}

// checkWait checks a wait, 0 if there was no hint.
func (c *pspecCase) checkWait(t *testing.T, wait time.Duration) {
	t.Helper()
	ms := float64(wait) / float64(time.Millisecond)
	const day = 24 * 60 * 60 * 1000
	switch {
	case c.Want.Min != nil:
		if wait == 0 {
			ms = 30_000
		}
		require.GreaterOrEqual(t, ms, *c.Want.Min)
		require.LessOrEqual(t, ms, *c.Want.Max)
	case c.Want.Wait == nil:
		require.Zero(t, wait)
	case *c.Want.Wait > day:
		require.GreaterOrEqual(t, ms, float64(day))
	case *c.Want.Wait < 1000:
		require.Contains(t, []float64{math.Ceil(*c.Want.Wait), 1000}, ms)
	default:
		require.InDelta(t, *c.Want.Wait, ms, 0)
	}
}

func TestRecordedResponsesAreClassified(t *testing.T) {
	t.Parallel()
	allowed := map[string][]hedgerow.Action{
		"ok":       {hedgerow.ActionOK, hedgerow.ActionNeutral},
		"pass":     {hedgerow.ActionOK, hedgerow.ActionNeutral},
		"retry":    {hedgerow.ActionRetry},
		"cooldown": {hedgerow.ActionCooldown},
		"disable":  {hedgerow.ActionDisable},
	}
	for _, c := range pspecCases(t) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			resp := &http.Response{StatusCode: c.Status, Header: c.header(), Body: http.NoBody}
			v := hedgerow.DefaultClassifier(hedgerow.Outcome{Response: resp, Now: c.Now})
			require.Contains(t, allowed[c.Want.Action], v.Action)
			if v.Action == hedgerow.ActionCooldown {
				c.checkWait(t, v.Wait)
			}
			if v.Action >= hedgerow.ActionCooldown {
				require.Contains(t, []string{"resource", "key_model"}, c.Want.Scope)
				require.Equal(t, hedgerow.ScopeDefault, v.Scope)
			}
		})
	}
}

// The same through a pool, at the time at which they were recorded.
func TestRecordedResponsesThroughAPool(t *testing.T) {
	t.Parallel()
	for _, c := range pspecCases(t) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(c.Now))
				p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(2), Strategy: hedgerow.PrimaryBackup, MaxCooldown: math.MaxInt64})
				base := pspecScript(map[string][]scripted.Step{"A": {{Status: c.Status, Header: c.header(), Body: c.Body}}})
				status, body, err := pspecGet(t, p.Wrap(base))
				require.NoError(t, err)
				a := p.Snapshot()[0]
				if c.Want.Action == "ok" || c.Want.Action == "pass" {
					require.Equal(t, c.Status, status)
					require.Equal(t, c.Body, body)
					require.Equal(t, "A", pspecSent(base))
					require.Equal(t, hedgerow.ResourceHealthy, a.State)
					return
				}
				require.Equal(t, http.StatusOK, status)
				require.Equal(t, "AB", pspecSent(base))
				want := map[string]hedgerow.ResourceState{"cooldown": hedgerow.ResourceCooling, "disable": hedgerow.ResourceDisabled}
				require.Equal(t, want[c.Want.Action], a.State)
				if a.State == hedgerow.ResourceCooling {
					rest := time.Until(a.Until)
					if c.Want.Wait == nil && c.Want.Min == nil {
						require.Equal(t, 30*time.Second, rest)
					} else {
						c.checkWait(t, rest)
					}
				}
				base.Check(t)
			})
		})
	}
}

// Whatever a server asks for, its key rests for more than no time and for no more than MaxCooldown, and comes back.
func TestC92HostileHintsNeitherSpinNorPark(t *testing.T) {
	t.Parallel()
	const longest, table = time.Hour, 30 * time.Second
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of a bubble
	for value, want := range map[string]time.Duration{
		"5": 5 * time.Second, "1.5": 1500 * time.Millisecond, "0": time.Second, "0.0": time.Second, "-1": table, "-0": table, "soon": table,
		"": table, "NaN": table, "Inf": table, "-Inf": table, "1e100": longest, "1e-100": time.Millisecond, "9223372036854775807": longest,
		"99999999999999999999": longest, "1e999999999999": longest, "0x10": table, "1_000": table, "+5": table, "1h1h1h1h": longest,
		"99999999999h": longest, "-5s": table, "0s": time.Second, "946684799": longest, "1000000000": longest,
		now.Add(10 * time.Second).Format(http.TimeFormat): 10 * time.Second,
		now.Add(-time.Hour).Format(http.TimeFormat):       time.Second,
		now.AddDate(500, 0, 0).Format(http.TimeFormat):    longest,
		now.Add(time.Minute).Format(time.RFC3339):         time.Minute,
		"0001-01-01T00:00:00Z":                            time.Second,
		strings.Repeat("9", 60_000):                       longest,
	} {
		t.Run(value[:min(len(value), 30)], func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(1)})
				base := pspecScript(map[string][]scripted.Step{"A": {
					{Status: http.StatusTooManyRequests, Header: pspecHint(value)}, {Body: "back"},
				}})
				_, _, err := pspecGet(t, p.Wrap(base))
				require.NoError(t, err)
				require.Equal(t, want, pspecRest(p)["A"])
				time.Sleep(want - time.Nanosecond)
				_, _, err = pspecGet(t, p.Wrap(base))
				require.Error(t, err)
				time.Sleep(time.Nanosecond)
				_, body, err := pspecGet(t, p.Wrap(base))
				require.NoError(t, err)
				require.Equal(t, "back", body)
			})
		})
	}
	first := http.Header{"Retry-After": {"7", "9"}}
	wait, ok := hedgerow.RetryHint(first, now)
	require.True(t, ok)
	require.Equal(t, 7*time.Second, wait)
	skewed := http.Header{"Retry-After": {now.Add(10 * time.Second).Format(http.TimeFormat)}, "Date": {now.Format(http.TimeFormat)}}
	wait, ok = hedgerow.RetryHint(skewed, now.Add(5*time.Hour))
	require.True(t, ok)
	require.Equal(t, 10*time.Second, wait)
}

func TestVerdictWaits(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ wait, want time.Duration }{
		"none":     {0, 40 * time.Second},
		"negative": {math.MinInt64, 40 * time.Second},
		"tiny":     {1, 1},
		"longer":   {math.MaxInt64, time.Minute},
		"honest":   {50 * time.Second, 50 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := pspecPool(t, hedgerow.PoolConfig{
					Resources: pspecKeys(1), CooldownTable: []time.Duration{40 * time.Second, time.Hour}, MaxCooldown: time.Minute,
				})
				v := hedgerow.Verdict{Action: hedgerow.ActionCooldown, Wait: tc.wait, Reason: "because"}
				require.NoError(t, p.Report("A", "", v))
				require.Equal(t, tc.want, pspecRest(p)["A"])
				require.Equal(t, "because", p.Snapshot()[0].Reason)
				time.Sleep(tc.want)
				require.Empty(t, p.Snapshot()[0].Reason)
				require.NoError(t, p.Report("A", "", hedgerow.Verdict{Action: hedgerow.ActionCooldown})) // the second step is clamped too
				require.Equal(t, time.Minute, pspecRest(p)["A"])
			})
		})
	}
}

// A pspecPieces is a body that hands out its pieces one a Read and then ends with err.
type pspecPieces struct {
	pieces []string
	pause  time.Duration
	err    error
	closes int
}

func (b *pspecPieces) Read(p []byte) (int, error) {
	time.Sleep(b.pause)
	if len(b.pieces) == 0 {
		return 0, b.err
	}
	n := copy(p, b.pieces[0])
	b.pieces[0] = b.pieces[0][n:]
	if b.pieces[0] == "" {
		b.pieces = b.pieces[1:]
	}
	return n, nil
}

func (b *pspecPieces) Close() error {
	b.closes++
	return nil
}

// What a Classifier has looked at the caller reads byte for byte, and then how the body ends.
func TestClassifierLooksAtTheBody(t *testing.T) {
	t.Parallel()
	torn := io.ErrUnexpectedEOF
	for name, tc := range map[string]struct {
		pieces []string
		err    error
		peek   int
		want   string // what the classifier sees
		status int
		all    bool // Peek says yes to every response
	}{
		"short":             {[]string{"ab", "c"}, io.EOF, 4, "abc", 500, false},
		"exact":             {[]string{"ab", "cd"}, io.EOF, 4, "abcd", 500, false},
		"longer":            {[]string{"abc", "def", "g"}, io.EOF, 4, "abcd", 500, false},
		"empty":             {nil, io.EOF, 4, "", 500, false},
		"torn in the look":  {[]string{"ab"}, torn, 4, "ab", 500, false},
		"torn at once":      {nil, torn, 4, "", 500, false},
		"torn after":        {[]string{"abcdef"}, torn, 4, "abcd", 500, false},
		"default is 4 KiB":  {[]string{contractText(5000)}, io.EOF, 0, contractText(4096), 404, false},
		"none":              {[]string{"abc"}, io.EOF, -1, "", 500, false},
		"not below 400":     {[]string{"abc"}, io.EOF, 4, "", 200, false},
		"where Peek says":   {[]string{"abc"}, io.EOF, 4, "abc", 200, true},
		"large in no piece": {[]string{contractText(100_000)}, io.EOF, 70_000, contractText(70_000), 500, false},
	} {
		for _, opinion := range []hedgerow.Action{hedgerow.ActionOK, hedgerow.ActionNeutral, hedgerow.ActionRetry} {
			t.Run(name+" "+opinion.String(), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var seen *string
					cfg := hedgerow.PoolConfig{
						Resources: pspecKeys(1), PeekBody: tc.peek, MaxAttempts: 1,
						Classifier: func(o hedgerow.Outcome) hedgerow.Verdict {
							s := string(o.Body)
							seen = &s
							return hedgerow.Verdict{Action: opinion}
						},
					}
					if tc.all {
						cfg.Peek = func(*http.Response) bool { return true }
					}
					p := pspecPool(t, cfg)
					body := &pspecPieces{pieces: slices.Clone(tc.pieces), pause: time.Second, err: tc.err}
					whole := strings.Join(tc.pieces, "")
					base := scripted.New(scripted.Step{Status: tc.status, BodyReader: body})
					resp, err := p.Wrap(base).RoundTrip(contractGet(t.Context(), t, pspecURL))
					require.NoError(t, err)
					require.NotNil(t, seen)
					require.Equal(t, tc.want, *seen)
					got, err := io.ReadAll(resp.Body)
					if errors.Is(tc.err, io.EOF) {
						require.NoError(t, err)
					} else {
						require.Equal(t, tc.err, err)
					}
					require.Equal(t, whole, string(got))
					require.NoError(t, resp.Body.Close())
					require.Equal(t, 1, body.closes)
					pspecIdle(t, p, 1)
				})
			})
		}
	}
}
