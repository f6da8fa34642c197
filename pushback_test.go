package hedgerow_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

func TestPushback(t *testing.T) {
	t.Parallel()
	skip := []hedgerow.SkipReason{hedgerow.SkipPushback}
	for _, tt := range []struct {
		name  string
		paths []string      // one after the other
		rest  time.Duration // from then on, without a hedge; 0: none
	}{
		{"429", []string{"/limited"}, time.Second},
		{"429 with a hint", []string{"/limited?hint=7"}, 7 * time.Second},
		{"503", []string{"/busy"}, 0},
		{"503 with a hint", []string{"/busy?hint=7"}, 7 * time.Second},
		{"500 with a hint", []string{"/fail?hint=7"}, 0},
		{"200 with a hint", []string{"/?hint=7"}, 0},
		{"hint of zero", []string{"/limited?hint=0"}, time.Second},
		{"hint that cannot be read", []string{"/limited?hint=soon"}, time.Second},
		{"503 with a hint that cannot be read", []string{"/busy?hint=soon"}, 0},
		{"more than a minute", []string{"/limited?hint=3600"}, time.Minute},
		{"never shorter", []string{"/limited?hint=30", "/limited?hint=2", "/limited", "/"}, 30 * time.Second},
		{"longer", []string{"/limited?hint=2", "/busy?hint=30"}, 30 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newCircuitBed(t, hedgerow.Config{
					Hedge: hedgerow.HedgeConfig{Delay: 10 * time.Millisecond}, Breaker: hedgerow.BreakerConfig{Disabled: true},
				})
				start := time.Now()
				for _, path := range tt.paths {
					b.get(t, path)
				}
				require.Zero(t, time.Since(start))
				ask := func(at time.Duration, want bool) {
					time.Sleep(time.Until(start.Add(at - 10*time.Millisecond)))
					ctx := hedgerow.WithCall(t.Context(), hedgerow.Call{})
					skips := len(b.log.reasons())
					fired := len(b.log.fired)
					// It asks once at this instant, and does not live to ask again.
					ctx, cancel := context.WithTimeout(ctx, 15*time.Millisecond)
					defer cancel()
					craceCall(b, b.base.NewRequest(t, http.MethodGet, "http://api.test/hangs", "").WithContext(ctx))
					synctest.Wait()
					require.Equal(t, want, len(b.log.fired) > fired, "at %s", at)
					if !want {
						require.Equal(t, skip, b.log.reasons()[skips:], "at %s", at)
					}
				}
				if tt.rest > 0 {
					ask(tt.rest-15*time.Millisecond, false)
					// Another host may be hedged.
					a := craceCall(b, b.base.NewRequest(t, http.MethodGet, "http://other.test/slow", ""))
					require.Equal(t, 10*time.Millisecond, a.At)
				}
				ask(max(tt.rest+20*time.Millisecond, 20*time.Millisecond), true)
			})
		})
	}
}

// Push-back is the host's, whatever the endpoint; a call that is refused asks again.
func TestPushbackEndsDuringACall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newCircuitBed(t, hedgerow.Config{Hedge: hedgerow.HedgeConfig{Delay: 400 * time.Millisecond}})
		require.NoError(t, b.Register("/limited", hedgerow.EndpointConfig{}))
		b.get(t, "/limited")
		a := b.get(t, "/slow")
		require.Equal(t, 1200*time.Millisecond, a.At, "the first multiple of the delay after the second")
		require.Equal(t, []hedgerow.SkipReason{hedgerow.SkipPushback}, b.log.reasons(), "two refusals, counted once")
		require.EqualValues(t, 1, b.Stats().Total.Skipped[hedgerow.SkipPushback])
	})
}
