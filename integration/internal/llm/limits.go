package llm

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

// What the pool does with a recording, without a Classifier. Positive values are waits.
const (
	Table    = 30 * time.Second  // the cooldown of a 429 without a hint in the headers
	Disable  = time.Duration(-1) // the key is out, the next one answers
	Pass     = time.Duration(-2) // the SDK sees it, the key stays
	Streamed = time.Duration(-3) // a 200
)

// CheckRefusals has the first key answer with what real services have answered: the caller sees the second key's answer, and
// the first one rests for as long as the service has asked for.
func (api API) CheckRefusals(t *testing.T, recs []bed.Recording, wants map[string]time.Duration) {
	t.Helper()
	require.Len(t, recs, len(wants), "each recording is tested")
	for _, rec := range recs {
		t.Run(rec.Name, func(t *testing.T) {
			t.Parallel()
			want, known := wants[rec.Name]
			require.True(t, known)
			if want == Streamed {
				t.Skip("see TestRecordedStreams")
			}
			if lo, hi := rec.Want.WaitMs, rec.Want.WaitMs; rec.Preset == "" && want > 0 && want != Table {
				if lo == nil {
					lo, hi = rec.Want.WaitMinMs, rec.Want.WaitMaxMs
				}
				require.LessOrEqual(t, *lo, want.Milliseconds())
				require.GreaterOrEqual(t, *hi, want.Milliseconds())
			}
			bed.Each(t, func(t *testing.T, proto string) {
				t.Helper()
				api.refused(t, proto, rec, want)
			})
		})
	}
}

func (api API) refused(t *testing.T, proto string, rec bed.Recording, want time.Duration) {
	t.Helper()
	svc := NewService(t, api)
	svc.Respond = func(w http.ResponseWriter, r *http.Request, a Arrival) {
		if a.Key == "key-a" {
			rec.ServeHTTP(w, r)
			return
		}
		svc.Complete(w, a)
	}
	rig := svc.Start(t, proto, Setting{Pool: hedgerow.PoolConfig{Strategy: hedgerow.PrimaryBackup}})
	defer rig.Settled(t)

	before := time.Now()
	text, _, err := rig.Client.Ask(t.Context(), "hello")
	after := time.Now()
	key := rig.Pool.Snapshot()[0]
	if want == Pass {
		failed, ok := api.Failure(err)
		require.True(t, ok, "%v", err)
		require.Equal(t, rec.Status, failed.Status)
		require.Equal(t, rec.Body, failed.Body)
		require.Equal(t, hedgerow.ResourceHealthy, key.State)
		require.Equal(t, []string{"key-a"}, rig.Keys())
		return
	}
	require.NoError(t, err)
	require.Equal(t, "hello", text)
	if want == Disable {
		require.Equal(t, hedgerow.ResourceDisabled, key.State)
	} else {
		require.Equal(t, hedgerow.ResourceCooling, key.State)
		require.WithinRange(t, key.Until, before.Add(want), after.Add(want))
	}
	for range 3 { // which the first key does not see
		_, _, err = rig.Client.Ask(t.Context(), "hello")
		require.NoError(t, err)
	}
	require.Equal(t, []string{"key-a", "key-b", "key-b", "key-b", "key-b"}, rig.Keys())
}

// A key is used again when its time has come, and not before: here it is the only one, and the call waits for it.
func (api API) testCooldownEnds(t *testing.T, proto string) {
	t.Helper()
	svc := NewService(t, api)
	svc.Respond = func(w http.ResponseWriter, _ *http.Request, a Arrival) {
		if len(svc.Keys()) == 1 {
			svc.Fail(w, http.StatusTooManyRequests, "Retry-After-Ms", "150")
			return
		}
		svc.Complete(w, a)
	}
	type event struct {
		hedgerow.ResourceEvent

		at time.Time
	}
	events := make(chan event, 8)
	rig := svc.Start(t, proto, Setting{Pool: hedgerow.PoolConfig{
		Resources:      api.TwoKeys()[:1],
		Wait:           time.Minute,
		ResourceChange: func(e hedgerow.ResourceEvent) { events <- event{e, time.Now()} },
	}})

	start := time.Now()
	_, _, err := rig.Client.Ask(t.Context(), "hello")
	require.NoError(t, err)
	cooled := <-events
	require.Equal(t, hedgerow.ResourceCooling, cooled.To)
	const rest = 150 * time.Millisecond
	require.WithinRange(t, cooled.Until, start.Add(rest), cooled.at.Add(rest))
	seen := rig.Arrivals()
	require.Len(t, seen, 2)
	require.False(t, seen[1].At.Before(cooled.Until))
	require.Equal(t, hedgerow.ResourceHealthy, rig.Pool.Snapshot()[0].State)
	rig.Settled(t)
}

// With every key at rest nothing is sent. The caller sees the pool's error, or a 429 that the SDK understands.
func (api API) testAllKeysCooling(t *testing.T, proto string) {
	t.Helper()
	for name, synthetic := range map[string]bool{"error": false, "synthetic": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			svc := NewService(t, api)
			svc.Respond = func(w http.ResponseWriter, _ *http.Request, a Arrival) {
				svc.Fail(w, http.StatusTooManyRequests, "Retry-After", map[string]string{"key-a": "90", "key-b": "60"}[a.Key])
			}
			rig := svc.Start(t, proto, Setting{Pool: hedgerow.PoolConfig{Synthetic429: synthetic}})

			// The call that finds out gets the last real answer.
			_, _, err := rig.Client.Ask(t.Context(), "hello")
			failed, ok := api.Failure(err)
			require.True(t, ok, "%v", err)
			require.Contains(t, failed.Message, "answered with 429")
			require.Equal(t, "60", failed.Header.Get("Retry-After"))
			require.Len(t, rig.Keys(), 2)

			_, _, err = rig.Client.Ask(t.Context(), "hello")
			require.Len(t, rig.Keys(), 2, "nothing was sent")
			due := rig.Pool.Snapshot()[1].Until
			if synthetic {
				failed, ok = api.Failure(err)
				require.True(t, ok, "%v", err)
				require.Equal(t, http.StatusTooManyRequests, failed.Status)
				require.Equal(t, "pool_exhausted", failed.Type)
				require.Contains(t, failed.Message, "no resource is eligible")
				seconds, err := strconv.Atoi(failed.Header.Get("Retry-After"))
				require.NoError(t, err)
				require.False(t, time.Now().Add(time.Duration(seconds)*time.Second).Before(due))
				require.LessOrEqual(t, seconds, 60)
			} else {
				var exhausted *hedgerow.ExhaustedError
				require.ErrorAs(t, err, &exhausted)
				require.Equal(t, hedgerow.ExhaustedNoResource, exhausted.Reason)
				require.Equal(t, due, exhausted.NextAvailable)
				require.Zero(t, exhausted.Attempts)
				require.NotContains(t, err.Error(), "key-")
			}
			rig.Settled(t)
		})
	}
}
