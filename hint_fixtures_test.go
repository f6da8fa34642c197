package hedgerow_test

import (
	"encoding/json"
	"math"
	"math/big"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// The recorded responses hold for the parser as far as headers decide: what a preset adds comes from the body or the status.
func TestRetryHintFixtures(t *testing.T) {
	t.Parallel()
	var cases []struct {
		Name, Preset string
		Status       int
		Header       map[string][]string
		Now          time.Time
		Want         struct {
			WaitMs    *int64 `json:"wait_ms"`
			WaitMinMs *int64 `json:"wait_min_ms"`
			WaitMaxMs *int64 `json:"wait_max_ms"`
		}
	}
	data, err := os.ReadFile("testdata/responses.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &cases))

	// Cases of presets whose wait is in the headers by the default rules.
	headerDecides := map[string]bool{
		"openai_rate_scope_model": true, "openai_overloaded_503_preset": true,
		"azure_openai_shared_pool_pressure": true, "azure_openai_deployment_scope": true,
		"anthropic_rate_reset_one_exhausted": true,
		"github_primary_403":                 true, "github_secondary_403_retry_after": true,
		"discord_route": true, "discord_global": true, "discord_edge_ban": true,
		"jira_per_issue_scope": true,
	}
	ran := 0
	for _, tt := range cases {
		limited := tt.Status == http.StatusTooManyRequests || tt.Status == http.StatusServiceUnavailable
		if !headerDecides[tt.Name] && (tt.Preset != "" || !limited) {
			continue
		}
		ran++
		t.Run(tt.Name, func(t *testing.T) {
			t.Parallel()
			h := http.Header{}
			for name, values := range tt.Header {
				for _, value := range values {
					h.Add(name, value)
				}
			}
			wait, ok := hedgerow.RetryHint(h, tt.Now)
			ms := int64(math.Ceil(float64(wait) / 1e6))
			switch want := tt.Want; {
			case want.WaitMs != nil:
				require.True(t, ok)
				require.Equal(t, *want.WaitMs, ms)
			case want.WaitMinMs != nil:
				if !ok { // then the table's first step has to do
					ms = 30_000
				}
				require.GreaterOrEqual(t, ms, *want.WaitMinMs)
				require.LessOrEqual(t, ms, *want.WaitMaxMs)
			default:
				require.False(t, ok, "%v", wait)
			}
		})
	}
	require.Greater(t, ran, 80)
}

func FuzzRetryAfter(f *testing.F) {
	const date = "Mon, 04 May 2026 10:15:00 GMT"
	for _, value := range []string{
		"5", "1.5", "0", "-1", "soon", "", " 45 ", "40, 90", "1e100", "1e400", "1e-400", "NaN", "Inf", "0x1p4", "1_000", "+5",
		"99999999999999999999", "9223372036854775807", "1777889766", "1777889766000", "6m0s", "20ms", "99999999999999h", "-5s",
		date, "Monday, 04-May-26 10:15:42 GMT", "Mon May  4 10:16:17 2026", "2026-05-04T12:15:25+02:00", "2026-06-08T10:17Z",
		`"a";r=0;t=9, "b\"";r=0;t=`, "limit=1, remaining=0, reset=5", "0\x00", "٣",
	} {
		f.Add(value, date, hintNow.Unix())
		f.Add(value, "", int64(0))
	}
	plain := regexp.MustCompile(`^[0-9]{1,12}(\.[0-9]{0,40})?$`)
	f.Fuzz(func(t *testing.T, value, date string, seconds int64) {
		now := time.Unix(seconds, 0)
		for _, header := range []http.Header{
			{"Retry-After-Ms": {value}},
			{"Retry-After": {value}},
			{"X-Ratelimit-Reset-After": {value}},
			{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {value}},
			{"X-Ratelimit-Remaining-Tokens": {value}, "X-Ratelimit-Reset-Tokens": {"9"}},
			{"Ratelimit": {value, "remaining=0, reset=" + value, `"a";r=0;t=` + value}},
		} {
			header["Date"] = []string{date}
			wait, ok := hedgerow.RetryHint(header, now)
			require.Equal(t, ok, wait > 0, "%q: %v, %v", header, wait, ok)
			require.True(t, wait%time.Millisecond == 0 || wait == math.MaxInt64, "%q: %v", header, wait)

			// Neither a blank around the values nor the spelling of the names matters, nor does a second line.
			loose := http.Header{}
			for name, values := range header {
				for _, v := range values {
					loose.Add(strings.ToUpper(name), " "+v+"\t")
				}
			}
			if name := "Retry-After"; header[name] != nil {
				loose.Add(name, "7")
			}
			again, okAgain := hedgerow.RetryHint(loose, now)
			require.Equal(t, ok, okAgain, "%q", header)
			require.Equal(t, wait, again, "%q", header)
		}

		if !plain.MatchString(value) {
			return
		}
		exact, _ := new(big.Rat).SetString(strings.TrimSuffix(value, "."))
		ms := new(big.Int).Add(exact.Num(), new(big.Int).Sub(exact.Denom(), big.NewInt(1)))
		ms.Div(ms, exact.Denom())
		want := time.Duration(ms.Int64()) * time.Millisecond
		if want == 0 {
			want = time.Second
		}
		wait, _ := hedgerow.RetryHint(http.Header{"Retry-After-Ms": {value}}, now)
		require.Equal(t, want, wait, value)
	})
}
