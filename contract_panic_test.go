package hedgerow_test

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

func TestC67Goexit(t *testing.T) {
	t.Parallel()
	slow := scripted.Step{After: 2 * time.Second, Body: "slow"}
	for _, tt := range []struct {
		name           string
		steps          []scripted.Step
		inline, detach bool // RoundTrip returns
		errs           bool // with an error
	}{
		{"primary alone", []scripted.Step{{Goexit: true}}, false, true, true},
		{"primary, a hedge in flight", []scripted.Step{{After: 1500 * time.Millisecond, Goexit: true}, slow}, false, true, false},
		{"primary after a hedge has won", []scripted.Step{{After: 9 * time.Second, IgnoreContext: true, Goexit: true}, slow}, false, true, false},
		{"hedge", []scripted.Step{slow, {Goexit: true}}, true, true, false},
		{"both", []scripted.Step{{After: 2 * time.Second, Goexit: true}, {Goexit: true}}, false, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			craceModes(t, func(t *testing.T, detach bool) {
				t.Helper()
				base := craceScript(tt.steps)
				done := 0
				ctx := hedgerow.WithCall(t.Context(), hedgerow.Call{Idempotent: true, Done: func(hedgerow.CallInfo) { done++ }})
				tr := craceNew(t, hedgerow.Config{Base: base, Detach: detach})
				a, panicked, returned := craceGuard(tr, base.NewRequest(t, http.MethodPost, craceURL, "payload").WithContext(ctx))
				require.Nil(t, panicked)
				require.Equal(t, detach && tt.detach || !detach && tt.inline, returned)
				if returned {
					require.Equal(t, tt.errs, a.Err != nil, "%v", a.Err)
				}
				require.Equal(t, 1, done)
				require.Less(t, a.At, 5*time.Second)
				next := craceCall(tr, base.NewRequest(t, http.MethodGet, "http://other.test/", ""))
				require.Equal(t, "next", next.Body)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				base.Check(t)
			})
		})
	}
}

// craceBoom is how a callback misbehaves.
type craceBoom struct {
	name string
	do   func()
}

func craceBooms() []craceBoom {
	return []craceBoom{
		{"panic", func() { panic("boom") }},
		{"Goexit", runtime.Goexit},
	}
}

// craceArmed misbehaves when it is called, as often as it has left.
type craceArmed struct {
	mu   sync.Mutex
	left int
	do   func()
}

func (a *craceArmed) fire() {
	a.mu.Lock()
	armed := a.left > 0
	a.left--
	a.mu.Unlock()
	if armed {
		a.do()
	}
}

// Hooks: the call ends as if nothing had happened.
func TestC68PanicInHooks(t *testing.T) {
	t.Parallel()
	// Each hook is called in this call, most of them for both attempts.
	steps := []scripted.Step{{After: 1200 * time.Millisecond, Status: 503}, {After: time.Second, Body: "hedge"}}
	for _, tt := range []struct {
		name string
		set  func(h *hedgerow.Hooks, calls func())
	}{
		{"HedgeFired", func(h *hedgerow.Hooks, calls func()) {
			h.HedgeFired = func(context.Context, hedgerow.HedgeEvent) { calls() }
		}},
		{"HedgeSkipped", func(h *hedgerow.Hooks, calls func()) {
			h.HedgeSkipped = func(context.Context, hedgerow.SkipEvent) { calls() }
		}},
		{"CircuitChange", func(h *hedgerow.Hooks, calls func()) {
			h.CircuitChange = func(hedgerow.CircuitEvent) { calls() }
		}},
		{"AttemptDone", func(h *hedgerow.Hooks, calls func()) {
			h.AttemptDone = func(context.Context, hedgerow.AttemptEvent) { calls() }
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			craceModes(t, func(t *testing.T, detach bool) {
				t.Helper()
				base := scripted.Func(func(attempt int, _ *http.Request) scripted.Step { return steps[attempt%2] })
				var mu sync.Mutex
				calls := 0
				var hooks hedgerow.Hooks
				tt.set(&hooks, func() {
					mu.Lock()
					calls++
					mu.Unlock()
					panic("hook")
				})
				tr := craceNew(t, hedgerow.Config{
					Base: base, Detach: detach, Hooks: hooks, Breaker: hedgerow.BreakerConfig{MinSamples: 1},
					Hedge: hedgerow.HedgeConfig{MaxHedges: 2, Delay: time.Second},
				})
				require.Equal(t, craceAnswer{Status: 200, Body: "hedge", At: 2 * time.Second},
					craceCall(tr, base.NewRequest(t, http.MethodGet, craceURL, "")))
				synctest.Wait()
				require.Equal(t, hedgerow.CircuitOpen, tr.Circuit(hedgerow.CircuitHost, hedgerow.EndpointKey{Host: "api.test"}),
					"the state change stands")
				req := base.NewRequest(t, http.MethodPost, craceURL, "payload") // is not hedged
				require.Equal(t, 503, craceCall(tr, req).Status)
				synctest.Wait()
				mu.Lock()
				require.Positive(t, calls)
				mu.Unlock()
				base.Check(t)
			})
		})
	}
}

// A hook that ends its goroutine takes at most that goroutine along: nothing is left open, and the next call works.
func TestC68GoexitInHooks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		method string
		steps  []scripted.Step
		set    func(h *hedgerow.Hooks, calls func())
	}{
		{"HedgeFired", http.MethodGet, []scripted.Step{{After: 2 * time.Second, Body: "x"}, {Body: "x"}}, func(h *hedgerow.Hooks, calls func()) {
			h.HedgeFired = func(context.Context, hedgerow.HedgeEvent) { calls() }
		}},
		{"HedgeSkipped", http.MethodPost, []scripted.Step{{Body: "x"}}, func(h *hedgerow.Hooks, calls func()) {
			h.HedgeSkipped = func(context.Context, hedgerow.SkipEvent) { calls() }
		}},
		{"CircuitChange", http.MethodGet, []scripted.Step{{Status: 500, Body: "x"}}, func(h *hedgerow.Hooks, calls func()) {
			h.CircuitChange = func(hedgerow.CircuitEvent) { calls() }
		}},
		{
			"CircuitChange, by a hedge", http.MethodGet,
			[]scripted.Step{{After: 2 * time.Second, Body: "x"}, {Status: 500, Body: "x"}},
			func(h *hedgerow.Hooks, calls func()) { h.CircuitChange = func(hedgerow.CircuitEvent) { calls() } },
		},
		{"AttemptDone", http.MethodGet, []scripted.Step{{Body: "x"}}, func(h *hedgerow.Hooks, calls func()) {
			h.AttemptDone = func(context.Context, hedgerow.AttemptEvent) { calls() }
		}},
		{
			"AttemptDone, of a hedge", http.MethodGet,
			[]scripted.Step{{After: 2 * time.Second, Body: "x"}, {Status: 500, Body: "x"}},
			func(h *hedgerow.Hooks, calls func()) {
				h.AttemptDone = func(context.Context, hedgerow.AttemptEvent) { calls() }
			},
		},
		{"AttemptDone, passed through", http.MethodPost, []scripted.Step{{Body: "x"}}, func(h *hedgerow.Hooks, calls func()) {
			h.AttemptDone = func(context.Context, hedgerow.AttemptEvent) { calls() }
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			craceModes(t, func(t *testing.T, detach bool) {
				t.Helper()
				base := craceScript(tt.steps)
				var hooks hedgerow.Hooks
				armed := craceArmed{left: 1, do: runtime.Goexit}
				tt.set(&hooks, armed.fire)
				tr := craceNew(t, hedgerow.Config{
					Base: base, Detach: detach, Hooks: hooks, Breaker: hedgerow.BreakerConfig{MinSamples: 1},
				})
				parent := newContractParent(t.Context())
				body := ""
				if tt.method == http.MethodPost {
					body = "payload"
				}
				_, panicked, _ := craceGuard(tr, base.NewRequest(t, tt.method, craceURL, body).WithContext(parent))
				require.Nil(t, panicked)
				time.Sleep(10 * time.Second)
				if tt.name == "HedgeSkipped" && len(base.Records()) == 0 {
					// Nothing was sent, so nobody but the library could close the body.
					require.Equal(t, 1, base.Bodies()[0].Closes(), "the request body is closed")
				}
				next := craceCall(tr, base.NewRequest(t, http.MethodGet, craceURL, ""))
				require.NoError(t, next.Err)
				synctest.Wait()
				require.Zero(t, parent.children())
				base.Check(t)
			})
		})
	}
}

func TestC68GetBody(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		getBody  func() (io.ReadCloser, error)
		panicked any
		returned bool
	}{
		{"panics", func() (io.ReadCloser, error) { panic("boom") }, "boom", false},
		{"Goexit", func() (io.ReadCloser, error) { runtime.Goexit(); return nil, nil }, nil, true},
		{"fails", func() (io.ReadCloser, error) { return nil, errCrace }, nil, true},
		{"neither", func() (io.ReadCloser, error) { return nil, nil }, nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			craceModes(t, func(t *testing.T, detach bool) {
				t.Helper()
				base := scripted.Func(func(int, *http.Request) scripted.Step {
					return scripted.Step{After: 2500 * time.Millisecond, Body: "primary"}
				})
				var events craceLog
				tr := craceNew(t, hedgerow.Config{
					Base: base, Detach: detach, Hooks: events.hooks(), Hedge: hedgerow.HedgeConfig{BudgetPercent: 1},
				})
				parent := newContractParent(t.Context())
				parent.call = &hedgerow.Call{Idempotent: true}
				req := base.NewRequest(t, http.MethodPost, craceURL, "payload").WithContext(parent)
				req.GetBody = tt.getBody
				a, panicked, returned := craceGuard(tr, req)
				require.Equal(t, tt.panicked, panicked)
				require.Equal(t, tt.returned, returned)
				if returned {
					require.Equal(t, craceAnswer{Status: 200, Body: "primary", At: 2500 * time.Millisecond}, a)
				}
				synctest.Wait()
				base.Check(t)
				require.Len(t, base.Records(), 1)
				require.Zero(t, parent.children(), "contexts left behind")
				total := tr.Stats().Total
				require.Zero(t, total.Hedges)
				require.Empty(t, events.fired)
				// The one hedge that there was in the budget was given back: the next call has it.
				require.Equal(t, 200, craceCall(tr, base.NewRequest(t, http.MethodGet, craceURL, "")).Status)
				synctest.Wait()
				require.Len(t, events.fired, 1)
				base.Check(t)
			})
		})
	}
}

func TestC68Done(t *testing.T) {
	t.Parallel()
	for _, boom := range craceBooms() {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			t.Run(boom.name+"/"+method, func(t *testing.T) {
				t.Parallel()
				craceModes(t, func(t *testing.T, detach bool) {
					t.Helper()
					base := scripted.Func(func(int, *http.Request) scripted.Step { return scripted.Step{Body: "fine"} })
					tr := craceNew(t, hedgerow.Config{Base: base, Detach: detach})
					parent := newContractParent(t.Context())
					parent.call = &hedgerow.Call{Done: func(hedgerow.CallInfo) { boom.do() }}
					a, panicked, returned := craceGuard(tr, base.NewRequest(t, method, craceURL, "").WithContext(parent))
					require.Nil(t, panicked)
					require.Equal(t, boom.name == "panic", returned)
					if returned {
						require.Equal(t, craceAnswer{Status: 200, Body: "fine"}, a)
					}
					synctest.Wait()
					base.Check(t)
					require.Zero(t, parent.children())
				})
			})
		}
	}
}
