package hedgerow_test

import (
	"fmt"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// craceDecides is a function that decides something for a call, set up to misbehave.
type craceDecides struct {
	name string
	set  func(cfg *hedgerow.Config, calls func())
}

// Policy functions: what they do surfaces in the caller's goroutine, and nothing is left behind.
func TestC68PanicInPolicyFunctions(t *testing.T) {
	t.Parallel()
	policies := []craceDecides{
		{"Accept", func(cfg *hedgerow.Config, calls func()) {
			cfg.Hedge.Accept = func(*http.Response) bool { calls(); return true }
		}},
		{"Failure", func(cfg *hedgerow.Config, calls func()) {
			cfg.Breaker.Failure = func(*http.Response) bool { calls(); return false }
		}},
	}
	attempts := []struct {
		name  string
		steps []scripted.Step
	}{
		{"primary", []scripted.Step{{Body: "primary"}}},
		{"primary, hedge in flight", []scripted.Step{
			{After: 2 * time.Second, Body: "primary"}, {After: time.Hour, Body: "hedge"},
		}},
		{"hedge", []scripted.Step{{After: time.Hour, Body: "primary"}, {After: time.Second, Body: "hedge"}}},
		{"hedge, primary has failed", []scripted.Step{
			{After: 1500 * time.Millisecond, Err: errCrace}, {After: time.Second, Body: "hedge"},
		}},
	}
	for _, policy := range policies {
		for _, tt := range attempts {
			for _, signal := range []hedgerow.Signal{hedgerow.SignalHeaders, hedgerow.SignalFirstByte} {
				t.Run(fmt.Sprintf("%s/%s/%s", policy.name, tt.name, signal), func(t *testing.T) {
					t.Parallel()
					craceModes(t, func(t *testing.T, detach bool) {
						t.Helper()
						base := craceScript(tt.steps)
						parent, done := newContractParent(t.Context()), 0
						parent.call = &hedgerow.Call{Idempotent: true, Done: func(hedgerow.CallInfo) { done++ }}
						req := base.NewRequest(t, http.MethodPost, craceURL, "payload").WithContext(parent)
						armed := craceArmed{left: 1, do: func() { panic("boom") }}
						cfg := hedgerow.Config{Base: base, Detach: detach, Hedge: hedgerow.HedgeConfig{Signal: signal}}
						policy.set(&cfg, armed.fire)
						tr := craceNew(t, cfg)
						_, panicked, returned := craceGuard(tr, req)
						require.Equal(t, "boom", panicked)
						require.False(t, returned)
						require.Equal(t, 1, done)
						synctest.Wait()
						base.Check(t)
						require.Zero(t, parent.children())
						require.Equal(t, "next", craceCall(tr, base.NewRequest(t, http.MethodGet, craceURL, "")).Body)
						require.EqualValues(t, 2, tr.Stats().Total.Requests)
						require.EqualValues(t, 1, tr.Stats().Total.Errors)
					})
				})
			}
		}
	}
}

// A hedge in whose goroutine a policy function, or the reading of its first byte, calls Goexit has failed; the primary,
// which still runs, is what counts.
func TestC68GoexitInPolicyFunctions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		set  func(cfg *hedgerow.Config, calls func())
	}{
		{"Accept", func(cfg *hedgerow.Config, calls func()) {
			cfg.Hedge.Accept = func(*http.Response) bool { calls(); return true }
		}},
		{"Failure", func(cfg *hedgerow.Config, calls func()) {
			cfg.Breaker.Failure = func(*http.Response) bool { calls(); return false }
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			craceModes(t, func(t *testing.T, detach bool) {
				t.Helper()
				base := scripted.New(
					scripted.Step{After: 3 * time.Second, Body: "primary"}, scripted.Step{Body: "hedge"}, scripted.Step{Body: "next"})
				armed := craceArmed{left: 1, do: runtime.Goexit}
				cfg := hedgerow.Config{Base: base, Detach: detach}
				tt.set(&cfg, armed.fire)
				tr := craceNew(t, cfg)
				a, panicked, returned := craceGuard(tr, base.NewRequest(t, http.MethodGet, craceURL, ""))
				require.Nil(t, panicked)
				require.True(t, returned)
				require.Equal(t, craceAnswer{Status: 200, Body: "primary", At: 3 * time.Second}, a)
				require.Equal(t, "next", craceCall(tr, base.NewRequest(t, http.MethodGet, craceURL, "")).Body)
				synctest.Wait()
				base.Check(t)
			})
		})
	}
}

// A policy function that panics keeps no place in a half-open circuit. With FailFast a place that is lost could never be
// had again, since the calls that would decide the phase are refused for want of it.
func TestC68PanicKeepsNoPlaceInACircuit(t *testing.T) {
	t.Parallel()
	craceModes(t, func(t *testing.T, detach bool) {
		t.Helper()
		failing := true
		armed := craceArmed{do: func() { panic("boom") }}
		base := scripted.Func(func(_ int, req *http.Request) scripted.Step {
			a, _ := hedgerow.AttemptFromContext(req.Context())
			switch {
			case failing:
				return scripted.Step{Status: 500}
			case req.URL.Path == "/slow" && a.Number == 0:
				return scripted.Step{After: time.Hour}
			default:
				return scripted.Step{Body: "fine"}
			}
		})
		tr := craceNew(t, hedgerow.Config{
			Base: base, Detach: detach,
			Hedge: hedgerow.HedgeConfig{Accept: func(*http.Response) bool { armed.fire(); return true }},
			Breaker: hedgerow.BreakerConfig{
				MinSamples: 2, Cooldown: 10 * time.Second, HalfOpenTrials: 2, FailFast: true,
			},
		})
		for range 2 {
			require.Equal(t, 500, craceCall(tr, base.NewRequest(t, http.MethodGet, craceURL, "")).Status)
		}
		failing = false
		time.Sleep(10 * time.Second)
		armed.mu.Lock()
		armed.left = 1
		armed.mu.Unlock()
		_, panicked, _ := craceGuard(tr, base.NewRequest(t, http.MethodGet, "http://api.test/slow", ""))
		require.Equal(t, "boom", panicked)
		synctest.Wait()
		for range 2 { // both trials
			require.Equal(t, "fine", craceCall(tr, base.NewRequest(t, http.MethodGet, craceURL, "")).Body)
		}
		require.Equal(t, hedgerow.CircuitClosed, tr.Circuit(hedgerow.CircuitHost, hedgerow.EndpointKey{Host: "api.test"}))
		synctest.Wait()
		base.Check(t)
	})
}

// What a policy function does in one attempt is not seen by the others, which may come back while the caller's goroutine
// is already panicking. Run with -race.
func TestC68PanicWhileADetachedPrimaryRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := scripted.New(
			scripted.Step{After: 3 * time.Second, IgnoreContext: true, Body: "primary"}, scripted.Step{Body: "hedge"})
		tr := craceNew(t, hedgerow.Config{
			Base: base, Detach: true,
			Hedge: hedgerow.HedgeConfig{Accept: func(*http.Response) bool { panic("boom") }},
		})
		_, panicked, _ := craceGuard(tr, base.NewRequest(t, http.MethodGet, craceURL, ""))
		require.Equal(t, "boom", panicked)
		time.Sleep(5 * time.Second)
		base.Check(t)
	})
}

// A policy function that ends the goroutine of a hedge makes it a failed attempt, not one without a response.
func TestC68GoexitBeforeTheFirstByte(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := scripted.New(
			scripted.Step{After: 3 * time.Second, Body: "fine"}, scripted.Step{Body: "hedge"}, scripted.Step{Body: "hedge"})
		armed := craceArmed{left: 1, do: runtime.Goexit}
		tr := craceNew(t, hedgerow.Config{
			Base: base, Hedge: hedgerow.HedgeConfig{Signal: hedgerow.SignalFirstByte},
			Breaker: hedgerow.BreakerConfig{Failure: func(*http.Response) bool { armed.fire(); return false }},
		})
		a := craceCall(tr, base.NewRequest(t, http.MethodGet, craceURL, ""))
		require.Equal(t, "fine", a.Body)
	})
}
