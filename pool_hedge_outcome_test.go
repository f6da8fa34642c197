package hedgerow_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

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

// A call that a policy function or its base ends has the attempts in its CallInfo that were sent, hedged or not.
func TestAttemptsOfAnAbandonedCall(t *testing.T) {
	t.Parallel()
	for _, noHedge := range []bool{true, false} {
		for sends, scopeOf := range []func(*http.Request) string{
			func(*http.Request) string { panic("scope") }, nil, nil,
		} {
			t.Run(fmt.Sprint(noHedge, " ", sends), func(t *testing.T) {
				t.Parallel()
				p, err := hedgerow.NewPool(hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "a"}, {ID: "b"}}, ScopeOf: scopeOf})
				require.NoError(t, err)
				base := scripted.Func(func(attempt int, _ *http.Request) scripted.Step {
					if attempt+1 == sends {
						return scripted.Step{Panic: "base"}
					}
					return scripted.Step{Status: http.StatusTooManyRequests}
				})
				tr := contractNew(t, hedgerow.Config{Base: p.Wrap(base), Hedge: hedgerow.HedgeConfig{Delay: time.Hour}})
				var infos []hedgerow.CallInfo
				ctx := hedgerow.WithCall(t.Context(), hedgerow.Call{
					NoHedge: noHedge, Done: func(i hedgerow.CallInfo) { infos = append(infos, i) },
				})
				req := contractGet(ctx, t, "http://x.test/")
				require.Panics(t, func() { _, _ = tr.RoundTrip(req) })
				require.Len(t, infos, 1)
				require.Equal(t, sends, infos[0].Attempts)
				require.Len(t, base.Records(), sends)
			})
		}
	}
}
