package openai_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
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
	// The SDK obeys up to two minutes, then it gives up at once.
	api().CheckRetries(t,
		llm.RetryCase{
			Name: "429 for two minutes", Status: 429, Header: []string{"Retry-After", "120"},
			Off: "00", On: "001122", Last: 429, Waits: 4 * time.Minute,
		},
		llm.RetryCase{
			Name: "429 for longer", Status: 429, Header: []string{"Retry-After", "180"}, Off: "00", On: "00", Last: 429,
		},
	)
}

func recorded() map[string]time.Duration {
	return map[string]time.Duration{
		"openai_rate_ms_header_first":          2 * time.Second, // Retry-After-Ms before Retry-After
		"openai_rate_reset_requests_exhausted": 8640 * time.Millisecond,
		"openai_rate_both_buckets_exhausted":   62 * time.Second, // X-Ratelimit-Reset-Tokens: 1m2s
		"openai_rate_scope_model":              3 * time.Second,
		"openai_insufficient_quota":            llm.Table, // only the body tells, which a Classifier may read
		"openai_quota_seen_by_default":         llm.Table,
		"openai_org_spend_limit":               llm.Table,
		"openai_project_spend_limit":           llm.Table,
		"openai_slow_down_bare":                llm.Table,
		"openai_plan_window_long":              llm.Table,
		"openai_plan_window_both":              llm.Table,
		"openai_overloaded_503_bare":           llm.Pass, // the request may have been acted on, and is a POST
		"openai_overloaded_503_preset":         7 * time.Second,
		"openai_invalid_key_401":               llm.Disable,
		"openai_ip_not_in_allow_list":          llm.Disable,
		"openai_not_org_member":                llm.Disable,
		"openai_country_403":                   llm.Pass,
		"openai_sse_error_seen_by_default":     llm.Streamed,
		"openai_sse_failed_overloaded_preset":  llm.Streamed,
		"openai_sse_healthy_preset":            llm.Streamed,
	}
}

func TestRecordedRefusals(t *testing.T) {
	t.Parallel()
	api().CheckRefusals(t, bed.Recordings(t, "openai"), recorded())
}

func TestRecordedRefusalsOfAzure(t *testing.T) {
	t.Parallel()
	azure().CheckRefusals(t, bed.Recordings(t, "azure"), map[string]time.Duration{
		"azure_openai_both_forms":                 23 * time.Second, // Retry-After-Ms: 23000
		"azure_openai_reset_plain_seconds":        46 * time.Second, // of the exhausted bucket
		"azure_openai_sentinels_with_retry_after": 13 * time.Second, // -1 is no hint
		"azure_openai_shared_pool_pressure":       6 * time.Second,
		"azure_openai_deployment_scope":           31 * time.Second,
		"azure_openai_401":                        llm.Disable,
		"azure_cosmos_fractional_ms":              8524 * time.Millisecond, // X-Ms-Retry-After-Ms: 8523.5
	})
}

// A stream is the caller's once its headers say 200, whatever comes in it: the pool looks no further by default.
func TestRecordedStreams(t *testing.T) {
	t.Parallel()
	for _, rec := range bed.Recordings(t, "openai") {
		if recorded()[rec.Name] != llm.Streamed {
			continue
		}
		t.Run(rec.Name, func(t *testing.T) {
			t.Parallel()
			bed.Each(t, func(t *testing.T, proto string) {
				svc := llm.NewService(t, api())
				svc.Respond = func(w http.ResponseWriter, r *http.Request, _ llm.Arrival) { rec.ServeHTTP(w, r) }
				rig := svc.Start(t, proto, llm.Setting{})
				client := newClient(rig.Transport, rig.Server.URL)

				var raw []byte
				err := client.Post(t.Context(), "responses", map[string]any{"model": "comet-large", "stream": true}, &raw)
				require.NoError(t, err)
				require.Equal(t, rec.Body, string(raw))
				require.Equal(t, []string{"key-a"}, rig.Keys())
				require.Equal(t, hedgerow.ResourceHealthy, rig.Pool.Snapshot()[0].State)
				rig.Settled(t)
			})
		})
	}
}

// An error event in a stream is the caller's: the status was 200, so it says nothing of the key.
func TestStreamError(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		svc := llm.NewService(t, api())
		svc.Respond = func(w http.ResponseWriter, r *http.Request, _ llm.Arrival) {
			svc.Open(w)
			llm.Send(w, svc.API.Piece("first"))
			llm.Send(w, `data: {"error":{"message":"overloaded","type":"server_error","code":null}}`+"\n\n")
			bed.Hold(r) // the SDK does not wait for the end
		}
		rig := svc.Start(t, proto, llm.Setting{Retries: true})
		stream := rig.Client.Stream(t.Context(), "hello")
		require.Equal(t, "first", llm.Text(stream))
		var failed *ssestream.StreamError
		require.ErrorAs(t, stream.Err(), &failed)
		require.Equal(t, hedgerow.ResourceHealthy, rig.Pool.Snapshot()[0].State)
		require.Len(t, rig.Arrivals(), 1, "nobody repeats a stream that has begun")
		require.Zero(t, rig.Pool.Stats().InFlight, "the SDK has closed it")
		rig.Settled(t)
	})
}

// The keys of the environment stay at home: the pool replaces the one header that they go into. The organization and the
// project do not, and are sent with every key, so a pool over several accounts wants them deleted.
func TestEnvironment(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", llm.Placeholder)
	t.Setenv("OPENAI_ADMIN_KEY", llm.Placeholder)
	t.Setenv("OPENAI_ORG_ID", "org-1")
	t.Setenv("OPENAI_PROJECT_ID", "proj-1")
	t.Setenv("OPENAI_CUSTOM_HEADERS", "")
	rig := llm.NewService(t, api()).Start(t, "h1", llm.Setting{})
	client := newClient(rig.Transport, rig.Server.URL)

	_, err := client.Chat.Completions.New(t.Context(), chat("hello"))
	require.NoError(t, err)
	_, err = client.Chat.Completions.New(t.Context(), chat("hello"),
		option.WithHeaderDel("OpenAI-Organization"), option.WithHeaderDel("OpenAI-Project"))
	require.NoError(t, err)
	require.Equal(t, []string{"key-a", "key-b"}, rig.Keys())
	seen := rig.Arrivals()
	require.Equal(t, "org-1", seen[0].Header.Get("Openai-Organization"))
	require.Equal(t, "proj-1", seen[0].Header.Get("Openai-Project"))
	require.Empty(t, seen[1].Header.Values("Openai-Organization"))
	require.Empty(t, seen[1].Header.Values("Openai-Project"))
	rig.Settled(t)
}
