package hedgerow_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// A hedge goes to another resource, and everybody is told the same about it.
func TestPoolHedgeGoesElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := phNew(t, phSetup{answer: func(a hedgerow.Attempt, _ *http.Request) scripted.Step {
			if a.Resource == "A" {
				return phHold()
			}
			return phOK(a, 5*time.Millisecond)
		}})
		require.Equal(t, phResult{status: 200, body: "B", after: 15 * time.Millisecond}, b.call(hedgerow.Call{}))
		b.settle()

		primary := hedgerow.Attempt{Pool: "default", Resource: "A"}
		hedge := hedgerow.Attempt{Number: 1, Kind: hedgerow.AttemptHedge, Pool: "default", Resource: "B"}
		require.Equal(t, []phSend{{0, primary}, {phDelay, hedge}}, b.sent)
		require.Equal(t, []hedgerow.HedgeEvent{{
			Host: "api.test", Method: http.MethodGet, Attempt: hedge, Delay: phDelay,
		}}, b.fired)
		require.ElementsMatch(t, []hedgerow.AttemptEvent{
			{Host: "api.test", Attempt: hedge, Status: 200, Latency: 5 * time.Millisecond, Won: true},
			{
				Host: "api.test", Attempt: primary, Err: hedgerow.ErrSuperseded, Latency: 15 * time.Millisecond,
				Superseded: true,
			},
		}, b.done)
		require.Equal(t, []hedgerow.CallInfo{{Host: "api.test", Attempts: 2, Winner: hedge, Delay: phDelay}}, b.infos)
		require.Empty(t, b.skips)

		s := b.pool.Stats()
		require.EqualValues(t, 2, s.Attempts)
		require.EqualValues(t, 1, s.CallsOK)
		require.EqualValues(t, 1, s.CallsCanceled)
		require.Zero(t, s.Retries)
		c := b.tr.Stats().Total
		require.EqualValues(t, 1, c.Hedged)
		require.EqualValues(t, 1, c.Hedges)
		require.EqualValues(t, 1, c.HedgeWins)
	})
}

// With one resource the hedge is skipped: it waits for nothing, costs nothing, and nobody hears of it but as a skip.
func TestPoolHedgeSkipNoResource(t *testing.T) {
	t.Parallel()
	for _, detach := range []bool{false, true} {
		t.Run(fmt.Sprint("detach ", detach), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := phNew(t, phSetup{
					ids: "A", pool: hedgerow.PoolConfig{Wait: time.Minute},
					config: hedgerow.Config{Detach: detach, Hedge: hedgerow.HedgeConfig{BudgetPercent: 1e-3}},
					answer: func(a hedgerow.Attempt, _ *http.Request) scripted.Step { return phOK(a, time.Second) },
				})
				require.Equal(t, phResult{status: 200, body: "A", after: time.Second}, b.call(hedgerow.Call{}))
				b.settle()
				require.Len(t, b.sent, 1)
				require.Empty(t, b.fired)
				require.Equal(t, []hedgerow.SkipEvent{{Host: "api.test", Reason: hedgerow.SkipNoResource}}, b.skips)
				require.Len(t, b.done, 1)
				require.Equal(t, 1, b.infos[0].Attempts)
				c := b.tr.Stats().Total
				require.Zero(t, c.Hedged+c.Hedges+c.PrimaryWins+c.HedgeWins)
				require.Equal(t, map[hedgerow.SkipReason]uint64{hedgerow.SkipNoResource: 1}, c.Skipped)
				s := b.pool.Stats()
				require.EqualValues(t, 1, s.CallsOK)
				require.Zero(t, s.CallsExhausted+s.CallsCanceled+s.CallsFailed)

				// The budget holds one token, and it is there: a second resource gets the hedge.
				require.NoError(t, b.pool.Add(hedgerow.Resource{ID: "B"}))
				b.call(hedgerow.Call{})
				require.Len(t, b.fired, 1)
				b.settle()
			})
		})
	}
}

// A resource that becomes free is taken at a later multiple of the delay, and numbers have no gaps.
func TestPoolHedgeAsksAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := phNew(t, phSetup{
			pool: hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "A"}, {ID: "B", MaxInFlight: 1}}},
			answer: func(a hedgerow.Attempt, req *http.Request) scripted.Step {
				switch {
				case req.URL.Path == "/other":
					return phOK(a, 34*time.Millisecond)
				case a.Resource == "A":
					return phHold()
				}
				return phOK(a, time.Millisecond)
			},
		})
		require.NoError(t, b.pool.Disable("A"))
		var wg sync.WaitGroup
		wg.Go(func() { // fills B
			b.do(t.Context(), "http://api.test/other", hedgerow.Call{NoHedge: true})
		})
		synctest.Wait()
		require.NoError(t, b.pool.Enable("A"))
		require.Equal(t, phResult{status: 200, body: "B", after: 41 * time.Millisecond}, b.call(hedgerow.Call{}))
		wg.Wait()
		b.settle()
		hedge := hedgerow.Attempt{Number: 1, Kind: hedgerow.AttemptHedge, Pool: "default", Resource: "B"}
		require.Equal(t, phSend{40 * time.Millisecond, hedge}, b.sent[2])
		require.Equal(t, hedge, b.fired[0].Attempt)
		require.Equal(t, 2, b.infos[1].Attempts)
		require.Len(t, b.skips, 2) // NoHedge, and the one that is counted once
	})
}

// The clock of the hedges starts when the primary is sent, not when it waits. What is learned is the time from the
// attempt's own send; what the caller sees has the wait in it.
func TestPoolHedgeClock(t *testing.T) {
	t.Parallel()
	for _, hedged := range []bool{true, false} {
		t.Run(fmt.Sprint("hedged ", hedged), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := phNew(t, phSetup{
					ids: "A", pool: hedgerow.PoolConfig{Wait: time.Minute},
					config: hedgerow.Config{Hedge: hedgerow.HedgeConfig{
						Delay: -1, WarmupRequests: 1, WarmupDelay: 500 * time.Millisecond,
					}},
					answer: func(a hedgerow.Attempt, _ *http.Request) scripted.Step {
						switch {
						case a.Resource == "A" && hedged:
							return phHold()
						case a.Resource == "A":
							return phOK(a, 300*time.Millisecond)
						}
						return phOK(a, 300*time.Millisecond)
					},
				})
				require.NoError(t, b.pool.Report("A", "", hedgerow.Verdict{Action: hedgerow.ActionCooldown, Wait: 10 * time.Second}))
				if hedged {
					go func() {
						time.Sleep(10 * time.Second)
						_ = b.pool.Add(hedgerow.Resource{ID: "B"}) // it wakes the waiter too, who finds A
					}()
				}
				r := b.call(hedgerow.Call{})
				ep := b.tr.Stats().Endpoints[hedgerow.EndpointKey{Host: "api.test"}]
				require.InEpsilon(t, r.after, ep.Latency.P50, 0.02)
				require.GreaterOrEqual(t, r.after, 10*time.Second)
				if hedged {
					require.Equal(t, b.sent[0].at+500*time.Millisecond, b.sent[1].at)
					require.Equal(t, 10800*time.Millisecond, r.after)
					require.Equal(t, 500*time.Millisecond, ep.Delay, "no delay is learned from a primary that was cut off, alone")
				} else {
					require.Len(t, b.sent, 1)
					require.Empty(t, b.skips)
					require.Equal(t, 10300*time.Millisecond, r.after)
					require.InEpsilon(t, 300*time.Millisecond, ep.Delay, 0.02)
				}
				b.settle()
			})
		})
	}
}

// Attempts are numbered over the retries of the primary and of the hedge in the order in which they are sent.
func TestPoolHedgeNumbers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answers := map[string]scripted.Step{
			"A": phStatus(429, 2*time.Millisecond),
			"B": phHold(),
			"C": phStatus(401, 2*time.Millisecond),
			"D": {After: 3 * time.Millisecond, Body: "D"},
		}
		b := phNew(t, phSetup{ids: "ABCD", answer: func(a hedgerow.Attempt, _ *http.Request) scripted.Step {
			return answers[a.Resource]
		}})
		require.Equal(t, phResult{status: 200, body: "D", after: 15 * time.Millisecond}, b.call(hedgerow.Call{}))
		b.settle()
		of := func(n int, kind hedgerow.AttemptKind, id string) hedgerow.Attempt {
			return hedgerow.Attempt{Number: n, Kind: kind, Pool: "default", Resource: id}
		}
		sends := []hedgerow.Attempt{
			of(0, hedgerow.AttemptPrimary, "A"), of(1, hedgerow.AttemptRetry, "B"),
			of(2, hedgerow.AttemptHedge, "C"), of(3, hedgerow.AttemptRetry, "D"),
		}
		for i, s := range b.sent {
			require.Equal(t, sends[i], s.attempt)
		}
		const ms = time.Millisecond
		require.ElementsMatch(t, []hedgerow.AttemptEvent{
			{Host: "api.test", Attempt: sends[0], Status: 429, Latency: 2 * ms},
			{Host: "api.test", Attempt: sends[1], Err: hedgerow.ErrSuperseded, Latency: 13 * ms, Superseded: true},
			{Host: "api.test", Attempt: sends[2], Status: 401, Latency: 2 * ms},
			{Host: "api.test", Attempt: sends[3], Status: 200, Latency: 3 * ms, Won: true},
		}, b.done)
		require.Equal(t, []hedgerow.CallInfo{{Host: "api.test", Attempts: 4, Winner: sends[3], Delay: phDelay}}, b.infos)
		require.EqualValues(t, 2, b.pool.Stats().Retries)
		c := b.tr.Stats().Total
		require.EqualValues(t, 1, c.Hedges)
		require.Empty(t, b.skips)
	})
}

// A call that is not hedged is numbered and reported on in the same way.
func TestPoolNumbersWithoutHedge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := phNew(t, phSetup{answer: func(a hedgerow.Attempt, _ *http.Request) scripted.Step {
			if a.Resource == "A" {
				return phStatus(429, time.Millisecond)
			}
			return phOK(a, time.Millisecond)
		}})
		b.call(hedgerow.Call{NoHedge: true})
		b.settle()
		first := hedgerow.Attempt{Pool: "default", Resource: "A"}
		second := hedgerow.Attempt{Number: 1, Kind: hedgerow.AttemptRetry, Pool: "default", Resource: "B"}
		require.Equal(t, []hedgerow.AttemptEvent{
			{Host: "api.test", Attempt: first, Status: 429, Latency: time.Millisecond},
			{Host: "api.test", Attempt: second, Status: 200, Latency: time.Millisecond, Won: true},
		}, b.done)
		require.Equal(t, []hedgerow.CallInfo{{Host: "api.test", Attempts: 2, Winner: second}}, b.infos)
	})
}

// The latency of a send does not have what the pool did afterwards in it.
func TestPoolLatencyOfSend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := phNew(t, phSetup{
			ids: "A", pool: hedgerow.PoolConfig{Wait: time.Minute},
			answer: func(hedgerow.Attempt, *http.Request) scripted.Step {
				return phStatus(429, time.Millisecond, "Retry-After", "30")
			},
		})
		go func() {
			time.Sleep(5 * time.Second)
			_ = b.pool.Disable("A")
		}()
		require.Equal(t, 429, b.call(hedgerow.Call{}).status)
		b.settle()
		require.Len(t, b.done, 1)
		require.Equal(t, time.Millisecond, b.done[0].Latency)
		require.Equal(t, 429, b.done[0].Status)
		require.True(t, b.done[0].Won)
	})
}

// A response that the pool takes for bad does not win while another attempt runs, whatever Accept says.
func TestPoolBadVerdictNeverWins(t *testing.T) {
	t.Parallel()
	for _, action := range []hedgerow.Action{hedgerow.ActionCooldown, hedgerow.ActionDisable, hedgerow.ActionRetry} {
		for _, slow := range []string{"primary", "hedge"} {
			t.Run(action.String()+", other is the "+slow, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					bad := map[string]string{"primary": "B", "hedge": "A"}[slow]
					b := phNew(t, phSetup{
						pool: hedgerow.PoolConfig{
							MaxAttempts: 1,
							Classifier: func(o hedgerow.Outcome) hedgerow.Verdict {
								if o.Attempt.Resource == bad {
									return hedgerow.Verdict{Action: action}
								}
								return hedgerow.Verdict{}
							},
						},
						config: hedgerow.Config{Hedge: hedgerow.HedgeConfig{
							Accept: func(*http.Response) bool { return true },
						}},
						answer: func(a hedgerow.Attempt, _ *http.Request) scripted.Step {
							if a.Resource == bad {
								return phOK(a, 15*time.Millisecond)
							}
							return phOK(a, 50*time.Millisecond)
						},
					})
					r := b.call(hedgerow.Call{})
					require.NotEqual(t, bad, r.body)
					require.Equal(t, 200, r.status)
					b.settle()
				})
			})
		}
	}
}

// When all that is there is bad, it is returned all the same.
func TestPoolBadVerdictAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := phNew(t, phSetup{answer: func(hedgerow.Attempt, *http.Request) scripted.Step {
			return phStatus(401, 15*time.Millisecond)
		}})
		require.Equal(t, phResult{status: 401, body: "Unauthorized", after: 25 * time.Millisecond}, b.call(hedgerow.Call{}))
		b.settle()
		require.Equal(t, 2, b.pool.Stats().Disabled)
	})
}

// A 429 that another key has answered for is no push-back of the host; one that the call ends with is.
func TestPoolPushback(t *testing.T) {
	t.Parallel()
	for _, hidden := range []bool{true, false} {
		t.Run(fmt.Sprint("hidden ", hidden), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := phNew(t, phSetup{ids: "ABC", answer: func(a hedgerow.Attempt, req *http.Request) scripted.Step {
					switch {
					case req.URL.Path == "/slow":
						return phOK(a, 15*time.Millisecond)
					case a.Resource == "A" || !hidden:
						return phStatus(429, time.Millisecond, "Retry-After", "20")
					}
					return phOK(a, time.Millisecond)
				}})
				b.call(hedgerow.Call{})
				for _, id := range []string{"A", "B", "C"} {
					require.NoError(t, b.pool.Enable(id))
				}
				b.do(t.Context(), "http://api.test/slow", hedgerow.Call{})
				b.settle()
				if hidden {
					require.Empty(t, b.skips)
					require.Len(t, b.fired, 1)
				} else {
					require.Equal(t, []hedgerow.SkipEvent{{Host: "api.test", Reason: hedgerow.SkipPushback}}, b.skips)
				}
			})
		})
	}
}

// A loser's late 429 cools its key (C64); one that ends with our cancellation says nothing.
func TestPoolLoser(t *testing.T) {
	t.Parallel()
	for _, answers := range []bool{true, false} {
		t.Run(fmt.Sprint("answers ", answers), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := phNew(t, phSetup{
					config: hedgerow.Config{Detach: true},
					answer: func(a hedgerow.Attempt, _ *http.Request) scripted.Step {
						if a.Resource == "A" {
							s := phStatus(429, 20*time.Millisecond)
							s.IgnoreContext = answers
							return s
						}
						return phOK(a, time.Millisecond)
					},
				})
				require.Equal(t, phResult{status: 200, body: "B", after: 11 * time.Millisecond}, b.call(hedgerow.Call{}))
				time.Sleep(20 * time.Millisecond)
				a := b.pool.Snapshot()[0]
				if answers {
					require.Equal(t, hedgerow.ResourceCooling, a.State)
					require.Equal(t, 1, a.ConsecutiveCooldowns)
				} else {
					require.Equal(t, hedgerow.ResourceHealthy, a.State)
					require.Zero(t, a.ConsecutiveCooldowns+a.ConsecutiveFailures)
				}
				b.settle()
				require.Len(t, b.sent, 2, "nothing is sent after the decision")
				require.Len(t, b.done, 2)
				loser := b.done[slices.IndexFunc(b.done, func(e hedgerow.AttemptEvent) bool { return e.Superseded })]
				require.Equal(t, "A", loser.Attempt.Resource)
				if answers {
					require.Equal(t, 429, loser.Status)
				} else {
					require.ErrorIs(t, loser.Err, hedgerow.ErrSuperseded)
				}
			})
		})
	}
}

// A panic in a policy function of the pool surfaces in the caller's goroutine, whichever attempt it was in.
func TestPoolPolicyPanics(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"classifier", "selector", "scope", "peek", "credential"} {
		for _, kind := range []hedgerow.AttemptKind{hedgerow.AttemptPrimary, hedgerow.AttemptHedge} {
			for _, detach := range []bool{false, true} {
				t.Run(fmt.Sprint(policy, " ", kind, " detach ", detach), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { phPolicyPanics(t, policy, kind, detach) })
				})
			}
		}
	}
}

func phPolicyPanics(t *testing.T, policy string, kind hedgerow.AttemptKind, detach bool) {
	t.Helper()
	blow := func(req *http.Request, at string) {
		if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Kind == kind && at == policy {
			panic("policy " + policy)
		}
	}
	cfg := hedgerow.PoolConfig{Hosts: []string{"http://api.test"}}
	for _, id := range []string{"A", "B"} {
		cfg.Resources = append(cfg.Resources, hedgerow.Resource{
			ID: id, Credential: hedgerow.CredentialFunc(func(req *http.Request) error {
				blow(req, "credential")
				return nil
			}),
		})
	}
	cfg.Classifier = func(o hedgerow.Outcome) hedgerow.Verdict {
		if o.Attempt.Kind == kind && policy == "classifier" {
			panic("policy classifier")
		}
		return hedgerow.Verdict{}
	}
	cfg.Peek = func(resp *http.Response) bool {
		blow(resp.Request, "peek")
		return false
	}
	cfg.ScopeOf = func(req *http.Request) string {
		blow(req, "scope")
		return ""
	}
	if policy == "selector" {
		cfg.Selector = func(req *http.Request, _ []hedgerow.Candidate) int {
			blow(req, "selector")
			return 0
		}
	}
	b := phNew(t, phSetup{
		pool: cfg, config: hedgerow.Config{Detach: detach},
		answer: func(a hedgerow.Attempt, _ *http.Request) scripted.Step {
			if a.Kind == kind {
				return phOK(a, 15*time.Millisecond)
			}
			return phOK(a, 50*time.Millisecond)
		},
	})
	req := b.base.NewRequest(t, http.MethodPut, phURL, "payload")
	req = req.WithContext(hedgerow.WithCall(req.Context(), hedgerow.Call{Idempotent: true}))
	require.PanicsWithValue(t, "policy "+policy, func() { b.send(req) })
	b.settle()
	s := b.pool.Stats()
	require.Zero(t, s.InFlight)

	// The pool is usable, also under the lock that a Selector runs in.
	policy = ""
	require.Equal(t, 200, b.call(hedgerow.Call{}).status)
	b.settle()
}

// A panic of the base is not one of a policy: in a hedge it is a failed attempt.
func TestPoolBasePanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := phNew(t, phSetup{answer: func(a hedgerow.Attempt, _ *http.Request) scripted.Step {
			if a.Resource == "B" {
				return scripted.Step{Panic: "base"}
			}
			return phOK(a, 50*time.Millisecond)
		}})
		require.Equal(t, phResult{status: 200, body: "A", after: 50 * time.Millisecond}, b.call(hedgerow.Call{}))
		b.settle()
	})
}

// phBetween is a middleware.
type phBetween func(*http.Request) (*http.Response, error)

func (f phBetween) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// errPhMiddleware is what a middleware wraps errors in.
var errPhMiddleware = errors.New("middleware")

// Anything may stand between a Transport and its pool: it may take longer than a hedge's delay, and wrap errors.
func TestPoolBehindMiddleware(t *testing.T) {
	t.Parallel()
	for _, lag := range []time.Duration{0, 3 * time.Millisecond, 25 * time.Millisecond} {
		t.Run(lag.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				one := true
				b := phNew(t, phSetup{
					ids: "A",
					between: func(next http.RoundTripper) http.RoundTripper {
						return phBetween(func(req *http.Request) (*http.Response, error) {
							time.Sleep(lag)
							resp, err := next.RoundTrip(req)
							if err != nil {
								err = fmt.Errorf("%w: %w", errPhMiddleware, err)
							}
							return resp, err
						})
					},
					answer: func(a hedgerow.Attempt, _ *http.Request) scripted.Step {
						if one || a.Resource == "A" {
							return phOK(a, 100*time.Millisecond)
						}
						return phOK(a, time.Millisecond)
					},
				})
				b.do(t.Context(), phURL, hedgerow.Call{NoHedge: true}) // the endpoint knows of the pool now
				b.skips, b.done, b.sent, b.infos = nil, nil, nil, nil

				r := b.call(hedgerow.Call{})
				require.Equal(t, phResult{status: 200, body: "A", after: lag + 100*time.Millisecond}, r)
				time.Sleep(time.Second)
				require.Empty(t, b.fired)
				require.Len(t, b.skips, 1)
				require.Len(t, b.done, 1)
				require.Equal(t, 1, b.infos[0].Attempts)
				require.Zero(t, b.tr.Stats().Total.Hedged)

				one = false
				require.NoError(t, b.pool.Add(hedgerow.Resource{ID: "B"}))
				b.sent = nil
				r = b.call(hedgerow.Call{})
				require.Equal(t, "B", r.body)
				began := lag
				if lag > phDelay { // the hedge is on its way before the primary is sent
					began = 0
				}
				require.Equal(t, began+phDelay+lag+time.Millisecond, r.after)
				b.settle()
				require.Len(t, b.fired, 1)
				require.Equal(t, 1, b.fired[0].Attempt.Number)
				require.Equal(t, "B", b.fired[0].Attempt.Resource)
				require.Equal(t, 2, b.infos[1].Attempts)
				require.EqualValues(t, 1, b.tr.Stats().Total.Hedges)
				require.EqualValues(t, 1, b.tr.Stats().Total.HedgeWins)
				require.Len(t, b.done, 3)
			})
		})
	}
}

// A middleware may answer by itself: such a hedge counts, and has no resource.
func TestPoolBehindCache(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hit := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}}
		b := phNew(t, phSetup{
			between: func(next http.RoundTripper) http.RoundTripper {
				return phBetween(func(req *http.Request) (*http.Response, error) {
					if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Kind == hedgerow.AttemptHedge {
						resp := *hit
						resp.Body = io.NopCloser(strings.NewReader("cached"))
						return &resp, nil
					}
					return next.RoundTrip(req)
				})
			},
			answer: func(hedgerow.Attempt, *http.Request) scripted.Step { return phHold() },
		})
		require.Equal(t, phResult{status: 200, body: "cached", after: phDelay}, b.call(hedgerow.Call{}))
		b.settle()
		hedge := hedgerow.Attempt{Number: 1, Kind: hedgerow.AttemptHedge}
		require.Len(t, b.fired, 1)
		require.Equal(t, hedge, b.fired[0].Attempt)
		require.Equal(t, []hedgerow.CallInfo{{Host: "api.test", Attempts: 2, Winner: hedge, Delay: phDelay}}, b.infos)
		require.EqualValues(t, 1, b.tr.Stats().Total.Hedges)
		require.EqualValues(t, 1, b.tr.Stats().Total.HedgeWins)
	})
}

// Detach changes nothing but who waits.
func TestPoolDetach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := phNew(t, phSetup{
			config: hedgerow.Config{Detach: true},
			answer: func(a hedgerow.Attempt, _ *http.Request) scripted.Step {
				if a.Resource == "A" {
					return scripted.Step{After: time.Second, IgnoreContext: true, Body: "late"}
				}
				return phOK(a, 5*time.Millisecond)
			},
		})
		require.Equal(t, phResult{status: 200, body: "B", after: 15 * time.Millisecond}, b.call(hedgerow.Call{}))
		require.Equal(t, 1, b.pool.Stats().InFlight, "the loser holds its slot while it runs")
		b.settle()
		require.EqualValues(t, 2, b.pool.Stats().CallsOK, "the loser's answer is one")
	})
}

// With SignalFirstByte a stream that is silent loses to another resource's.
func TestPoolFirstByte(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := phNew(t, phSetup{
			config: hedgerow.Config{Hedge: hedgerow.HedgeConfig{Signal: hedgerow.SignalFirstByte}},
			answer: func(a hedgerow.Attempt, _ *http.Request) scripted.Step {
				s := phOK(a, time.Millisecond)
				if a.Resource == "A" {
					s.BodyAfter = time.Minute
				}
				return s
			},
		})
		require.Equal(t, phResult{status: 200, body: "B", after: 11 * time.Millisecond}, b.call(hedgerow.Call{}))
		b.settle()
	})
}

// Layers below see the nearest pool, hooks and the caller the outermost.
func TestPoolNested(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner, err := hedgerow.NewPool(hedgerow.PoolConfig{
			Name: "inner", RetryDelay: -1, Strategy: hedgerow.PrimaryBackup,
			Resources: []hedgerow.Resource{{ID: "x", MaxInFlight: 1}, {ID: "y"}},
		})
		require.NoError(t, err)
		b := phNew(t, phSetup{
			pool: hedgerow.PoolConfig{Name: "outer"},
			answer: func(a hedgerow.Attempt, _ *http.Request) scripted.Step {
				if a.Resource == "x" {
					return phHold()
				}
				return phOK(a, 5*time.Millisecond)
			},
		})
		for i, id := range []string{"A", "B"} {
			require.NoError(t, b.pool.Remove(id))
			require.NoError(t, b.pool.Add(hedgerow.Resource{ID: id, Base: inner.Wrap(b.base)}), i)
		}
		require.Equal(t, phResult{status: 200, body: "y", after: 15 * time.Millisecond}, b.call(hedgerow.Call{}))
		b.settle()
		require.Equal(t, "inner", b.sent[0].attempt.Pool)
		require.Equal(t, "x", b.sent[0].attempt.Resource)
		require.Equal(t, "y", b.sent[1].attempt.Resource)
		require.Equal(t, "outer", b.infos[0].Winner.Pool)
		require.Equal(t, "B", b.infos[0].Winner.Resource)
		require.Equal(t, 2, b.infos[0].Attempts)
		require.Len(t, b.done, 2)
		require.Zero(t, inner.Stats().InFlight)
	})
}

// An inner pool that is exhausted is a local outcome for the outer one (P46).
func TestPoolNestedExhausted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner, err := hedgerow.NewPool(hedgerow.PoolConfig{Name: "inner", Resources: []hedgerow.Resource{{ID: "x"}}})
		require.NoError(t, err)
		require.NoError(t, inner.Disable("x"))
		b := phNew(t, phSetup{answer: func(a hedgerow.Attempt, _ *http.Request) scripted.Step { return phOK(a, 0) }})
		require.NoError(t, b.pool.Remove("A"))
		require.NoError(t, b.pool.SetResources([]hedgerow.Resource{{ID: "A", Base: inner.Wrap(b.base)}}))
		var exhausted *hedgerow.ExhaustedError
		require.ErrorAs(t, b.call(hedgerow.Call{}).err, &exhausted)
		require.Equal(t, "inner", exhausted.Pool)
		b.settle()
		require.Zero(t, b.pool.Snapshot()[0].ConsecutiveFailures)
		require.EqualValues(t, 1, b.pool.Stats().CallsFailed)
	})
}

// A pool is not there for other hosts, also not for their hedges.
func TestPoolForeignHost(t *testing.T) {
	t.Parallel()
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprint("other scheme ", secure), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := 0
				b := phNew(t, phSetup{
					pool: hedgerow.PoolConfig{Hosts: []string{"api.test"}},
					answer: func(a hedgerow.Attempt, req *http.Request) scripted.Step {
						if req.URL.Scheme == "https" || a.Kind == hedgerow.AttemptHedge {
							return phOK(a, 5*time.Millisecond)
						}
						n++
						return phHold()
					},
				})
				if secure { // the endpoint has calls of the pool's
					b.do(t.Context(), "https://api.test/", hedgerow.Call{})
					b.sent, b.infos, b.done = nil, nil, nil
				}
				require.Equal(t, phResult{status: 200, after: 15 * time.Millisecond}, b.call(hedgerow.Call{}))
				b.settle()
				hedge := hedgerow.Attempt{Number: 1, Kind: hedgerow.AttemptHedge}
				require.Equal(t, []phSend{{b.sent[0].at, hedgerow.Attempt{}}, {b.sent[0].at + phDelay, hedge}}, b.sent)
				require.Len(t, b.fired, 1)
				require.Equal(t, hedge, b.fired[0].Attempt)
				require.Equal(t, []hedgerow.CallInfo{{Host: "api.test", Attempts: 2, Winner: hedge, Delay: phDelay}}, b.infos)
				require.EqualValues(t, 1, b.tr.Stats().Total.HedgeWins)
				require.EqualValues(t, 2, b.pool.Stats().PassedThrough)
			})
		})
	}
}

// What an endpoint is declared to be lets the pool repeat a POST too.
func TestPoolIdempotentEndpoint(t *testing.T) {
	t.Parallel()
	for _, declared := range []bool{true, false} {
		for _, hedging := range []bool{true, false} {
			t.Run(fmt.Sprint("declared ", declared, " hedging ", hedging), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					b := phNew(t, phSetup{
						config: hedgerow.Config{Hedge: hedgerow.HedgeConfig{Disabled: !hedging}},
						answer: func(a hedgerow.Attempt, _ *http.Request) scripted.Step {
							if a.Resource == "A" {
								return phStatus(502, time.Millisecond)
							}
							return phOK(a, time.Millisecond)
						},
					})
					require.NoError(t, b.tr.Register("POST /search", hedgerow.EndpointConfig{Idempotent: declared}))
					r := b.send(b.base.NewRequest(t, http.MethodPost, "http://api.test/search", "query"))
					b.settle()
					if declared {
						require.Equal(t, 200, r.status)
						require.Len(t, b.sent, 2)
						require.Equal(t, "POST /search", b.sent[1].attempt.Endpoint)
					} else {
						require.Equal(t, 502, r.status)
						require.Len(t, b.sent, 1)
					}
				})
			})
		}
	}
}

// A call of which nothing was sent says nothing of the host: not to its circuits, nor to the hooks.
func TestPoolNothingSent(t *testing.T) {
	t.Parallel()
	refused := errors.New("no token to be had")
	for name, setup := range map[string]func(*phBed){
		"exhausted": func(b *phBed) { _ = b.pool.Disable("A") },
		"credential": func(b *phBed) {
			_ = b.pool.SetResources([]hedgerow.Resource{{
				ID: "A", Credential: hedgerow.CredentialFunc(func(*http.Request) error { return refused }),
			}})
		},
		"deadline": func(b *phBed) {
			_ = b.pool.Report("A", "", hedgerow.Verdict{Action: hedgerow.ActionCooldown, Wait: 50 * time.Second})
			_ = b.pool.Add(hedgerow.Resource{ID: "full", MaxInFlight: 1})
			req := contractGet(b.t.Context(), b.t, phURL)
			go func() { _, _ = b.pool.Wrap(b.base).RoundTrip(req) }()
			synctest.Wait()
		},
	} {
		for _, noHedge := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " no hedge ", noHedge), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancel(t.Context())
					b := phNew(t, phSetup{
						ids: "A", pool: hedgerow.PoolConfig{Hosts: []string{"http://api.test"}, Wait: time.Minute},
						config: hedgerow.Config{Breaker: hedgerow.BreakerConfig{MinSamples: 1}},
						answer: func(hedgerow.Attempt, *http.Request) scripted.Step {
							return scripted.Step{Do: func(*http.Request) (*http.Response, error) {
								<-ctx.Done()
								return nil, ctx.Err()
							}}
						},
					})
					setup(b)
					late, done := context.WithTimeout(t.Context(), 20*time.Second)
					defer done()
					r := b.do(late, phURL, hedgerow.Call{NoHedge: noHedge})
					require.Error(t, r.err)
					require.Empty(t, b.done)
					require.Equal(t, 0, b.infos[0].Attempts)
					require.Equal(t, hedgerow.CircuitClosed, b.tr.Circuit(hedgerow.CircuitHost, hedgerow.EndpointKey{Host: "api.test"}))
					cancel()
					b.settle()
				})
			})
		}
	}
}

// Over HTTP/1.1 an attempt may get the error of another one whose connection it was given as that was closed. Nobody but
// that other one is superseded.
func TestPoolBystander(t *testing.T) {
	t.Parallel()
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := phNew(t, phSetup{answer: func(a hedgerow.Attempt, _ *http.Request) scripted.Step {
					if a.Resource == "A" {
						return scripted.Step{Err: fmt.Errorf("wrapped: %w", hedgerow.ErrSuperseded)}
					}
					return phOK(a, 0)
				}})
				r := b.send(b.base.NewRequest(t, method, phURL, "payload"))
				if method == http.MethodGet {
					require.Equal(t, phResult{status: 200, body: "B"}, r)
				} else {
					require.Error(t, r.err)
					require.NotErrorIs(t, r.err, context.Canceled)
				}
				b.settle()
				require.Zero(t, b.pool.Snapshot()[0].ConsecutiveFailures)
			})
		})
	}
}

// The same without a pool, where the call has its error.
func TestBystander(t *testing.T) {
	t.Parallel()
	for _, noHedge := range []bool{false, true} {
		base := scripted.New(scripted.Step{Err: hedgerow.ErrSuperseded})
		tr := contractNew(t, hedgerow.Config{Base: base})
		req := contractGet(hedgerow.WithCall(t.Context(), hedgerow.Call{NoHedge: noHedge}), t, phURL)
		_, err := tr.RoundTrip(req)
		require.Error(t, err)
		require.NotErrorIs(t, err, context.Canceled)
	}
}

// A sibling's verdict that comes together with the response cuts no body: it is whole, or the call goes on elsewhere.
func TestPoolSiblingAtResponse(t *testing.T) {
	t.Parallel()
	for _, obeys := range []bool{true, false} {
		t.Run(fmt.Sprint("base obeys ", obeys), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := phNew(t, phSetup{answer: func(a hedgerow.Attempt, req *http.Request) scripted.Step {
					switch {
					case a.Resource == "B":
						return phOK(a, time.Millisecond)
					case req.URL.Path == "/older":
						return phStatus(429, 5*time.Millisecond)
					}
					s := phOK(a, 7*time.Millisecond)
					return scripted.Step{
						IgnoreContext: !obeys,
						Do: func(req *http.Request) (*http.Response, error) {
							time.Sleep(7 * time.Millisecond) // as a base that has its answer as it is cancelled
							return &http.Response{
								StatusCode: http.StatusOK, Header: http.Header{}, ContentLength: -1,
								Body: io.NopCloser(strings.NewReader(s.Body)), Request: req,
							}, nil
						},
					}
				}})
				go b.do(t.Context(), "http://api.test/older", hedgerow.Call{})
				time.Sleep(time.Millisecond)
				r := b.call(hedgerow.Call{NoHedge: true})
				if obeys {
					require.Equal(t, "B", r.body)
				} else {
					require.Equal(t, phResult{status: 200, body: "A", after: 7 * time.Millisecond}, r)
				}
				b.settle()
				require.EqualValues(t, 1, b.pool.Stats().SiblingCancels)
			})
		})
	}
}

// A caller that gives up after its attempt was cancelled by a sibling, and before that has ended, sees its own cancellation.
func TestPoolCallerAfterSibling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := phNew(t, phSetup{
			pool: hedgerow.PoolConfig{ResourceChange: func(hedgerow.ResourceEvent) { cancel() }},
			answer: func(_ hedgerow.Attempt, req *http.Request) scripted.Step {
				if req.URL.Path == "/older" {
					return phStatus(429, 5*time.Millisecond)
				}
				return scripted.Step{Do: func(req *http.Request) (*http.Response, error) {
					<-req.Context().Done()
					time.Sleep(time.Millisecond)
					return nil, context.Cause(req.Context())
				}}
			},
		})
		go b.do(t.Context(), "http://api.test/older", hedgerow.Call{NoHedge: true})
		time.Sleep(time.Millisecond)
		r := b.do(ctx, phURL, hedgerow.Call{NoHedge: true})
		require.ErrorIs(t, r.err, context.Canceled)
		require.NotErrorIs(t, r.err, hedgerow.ErrSuperseded)
		require.Equal(t, 5*time.Millisecond, r.after)
		b.settle()
		require.EqualValues(t, 1, b.pool.Stats().CallsCanceled)
	})
}

// The same after a wait for a slot.
func TestPoolHedgeClockAfterSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := phNew(t, phSetup{
			pool: hedgerow.PoolConfig{
				Wait: time.Minute, Resources: []hedgerow.Resource{{ID: "A", MaxInFlight: 1}, {ID: "B", MaxInFlight: 1}},
			},
			answer: func(a hedgerow.Attempt, req *http.Request) scripted.Step {
				switch {
				case req.URL.Path == "/other" && a.Resource == "A":
					return phOK(a, 40*time.Millisecond)
				case req.URL.Path == "/other":
					return phOK(a, 45*time.Millisecond)
				case a.Resource == "A":
					return phHold()
				}
				return phOK(a, time.Millisecond)
			},
		})
		for range 2 {
			go b.do(t.Context(), "http://api.test/other", hedgerow.Call{NoHedge: true})
			synctest.Wait()
		}
		require.Equal(t, phResult{status: 200, body: "B", after: 51 * time.Millisecond}, b.call(hedgerow.Call{}))
		b.settle()
		require.Equal(t, 40*time.Millisecond, b.sent[2].at)
		require.Equal(t, 50*time.Millisecond, b.sent[3].at)
		require.Equal(t, 2, b.infos[2].Attempts)
		require.Len(t, b.skips, 2) // of NoHedge
	})
}
