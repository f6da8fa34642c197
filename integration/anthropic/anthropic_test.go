package anthropic_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
	"github.com/hedgerow-go/hedgerow/integration/internal/llm"
)

func TestMain(m *testing.M) { bed.VerifyMain(m) }

func TestAPI(t *testing.T) {
	t.Parallel()
	api().Check(t)
}

func TestRetries(t *testing.T) {
	t.Parallel()
	api().CheckRetries(t,
		// The SDK obeys, however long that is.
		llm.RetryCase{
			Name: "429 for an hour", Status: 429, Header: []string{"Retry-After", "3600"},
			Off: "00", On: "001122", Last: 429, Waits: 2 * time.Hour,
		},
		llm.RetryCase{Name: "529", Status: 529, Off: "0", On: "012", Last: 529, Waits: -1},
	)
}

func TestRecordedRefusals(t *testing.T) {
	t.Parallel()
	api().CheckRefusals(t, bed.Recordings(t, "anthropic"), map[string]time.Duration{
		"anthropic_rate_retry_after":          17 * time.Second,
		"anthropic_rate_reset_one_exhausted":  9 * time.Second, // Anthropic-Ratelimit-Input-Tokens-Reset, the one with 0 left
		"anthropic_tier_spend_cap":            llm.Table,       // only the body tells, which a Classifier may read
		"anthropic_subscription_rejected":     llm.Table,       // Anthropic-Ratelimit-Unified-Reset has no Remaining
		"anthropic_subscription_allowed_429":  llm.Table,
		"anthropic_billing_402":               llm.Disable,
		"anthropic_auth_401":                  llm.Disable, // X-Should-Retry: false is about the same key
		"anthropic_cors_401":                  llm.Disable,
		"anthropic_own_spend_limit_400":       llm.Pass,
		"anthropic_bad_parameter_400":         llm.Pass,
		"anthropic_low_credit_400_default":    llm.Pass,
		"anthropic_permission_403_preset":     llm.Pass,
		"anthropic_overloaded_529":            llm.Pass,
		"anthropic_overloaded_529_retry_veto": llm.Pass,
	})
}

// An error event in a stream is the caller's: the status was 200, so it says nothing of the key. The SDK does not close
// such a stream, so the caller has to, or the slot stays taken for as long as the service keeps the connection.
func TestStreamError(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		svc := llm.NewService(t, api())
		svc.Respond = func(w http.ResponseWriter, r *http.Request, _ llm.Arrival) {
			svc.Open(w)
			llm.Send(w, svc.API.Opening+svc.API.Piece("first"))
			llm.Send(w, "event: error\n"+`data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`+"\n\n")
			bed.Hold(r)
		}
		rig := svc.Start(t, proto, llm.Setting{Retries: true})
		stream := rig.Client.Stream(t.Context(), "hello")
		require.Equal(t, "first", llm.Text(stream))
		var failed *anthropic.Error
		require.ErrorAs(t, stream.Err(), &failed)
		require.Equal(t, http.StatusOK, failed.StatusCode)
		require.Equal(t, anthropic.ErrorType("overloaded_error"), failed.Type())
		require.Equal(t, hedgerow.ResourceHealthy, rig.Pool.Snapshot()[0].State)
		require.Len(t, rig.Arrivals(), 1, "nobody repeats a stream that has begun")
		require.Equal(t, 1, rig.Pool.Stats().InFlight)
		require.NoError(t, stream.Close())
		require.Zero(t, rig.Pool.Stats().InFlight)
		rig.Settled(t)
	})
}

// A second credential of the SDK's goes out beside the pool's, which replaces one header alone. It comes from
// option.WithAuthToken or, unless option.WithoutEnvironmentDefaults is given, from ANTHROPIC_AUTH_TOKEN.
func TestAuthToken(t *testing.T) {
	key := option.WithAPIKey(llm.Placeholder)
	tests := []struct {
		name    string
		env     bool
		options []option.RequestOption
		want    string
	}{
		{name: "no key", options: []option.RequestOption{option.WithoutEnvironmentDefaults()}}, // else the SDK wants one
		{name: "option", options: []option.RequestOption{key, option.WithAuthToken("own")}, want: "Bearer own"},
		{name: "environment", env: true, options: []option.RequestOption{key}, want: "Bearer own"},
		{name: "no environment", env: true, options: []option.RequestOption{option.WithoutEnvironmentDefaults()}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, name := range []string{"API_KEY", "AUTH_TOKEN", "PROFILE", "CUSTOM_HEADERS"} {
				t.Setenv("ANTHROPIC_"+name, "")
			}
			t.Setenv("ANTHROPIC_CONFIG_DIR", t.TempDir()) // without a profile
			if tt.env {
				t.Setenv("ANTHROPIC_AUTH_TOKEN", "own")
			}
			rig := llm.NewService(t, api()).Start(t, "h1", llm.Setting{})
			client := anthropic.NewClient(append(tt.options,
				option.WithHTTPClient(&http.Client{Transport: rig.Transport}),
				option.WithMaxRetries(0),
				option.WithBaseURL(rig.Server.URL),
			)...)

			_, err := client.Messages.New(t.Context(), ask("hello"))
			require.NoError(t, err)
			seen := rig.Arrivals()
			require.Len(t, seen, 1)
			require.Equal(t, tt.want, seen[0].Header.Get("Authorization"))
			require.Equal(t, []string{"key-a"}, seen[0].Header.Values("X-Api-Key"))
			rig.Settled(t)
		})
	}
}
