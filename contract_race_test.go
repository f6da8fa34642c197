package hedgerow_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

const craceURL = "http://api.test/v1"

var errCrace = errors.New("upstream fault")

// craceLog keeps what the hooks are told.
type craceLog struct {
	mu      sync.Mutex
	fired   []hedgerow.HedgeEvent
	skipped []hedgerow.SkipEvent
	moves   []hedgerow.CircuitEvent
	done    []hedgerow.AttemptEvent
}

func (l *craceLog) hooks() hedgerow.Hooks {
	return hedgerow.Hooks{
		HedgeFired: func(_ context.Context, e hedgerow.HedgeEvent) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.fired = append(l.fired, e)
		},
		HedgeSkipped: func(_ context.Context, e hedgerow.SkipEvent) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.skipped = append(l.skipped, e)
		},
		CircuitChange: func(e hedgerow.CircuitEvent) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.moves = append(l.moves, e)
		},
		AttemptDone: func(_ context.Context, e hedgerow.AttemptEvent) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.done = append(l.done, e)
		},
	}
}

// ends returns the ends of attempts, by their numbers, such as "1 hedge 200 won" or "0 primary err superseded".
func (l *craceLog) ends() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	ends := []string{}
	for _, e := range l.done {
		outcome := "err"
		if e.Err == nil {
			outcome = strconv.Itoa(e.Status)
		}
		end := fmt.Sprintf("%d %s %s", e.Attempt.Number, e.Attempt.Kind, outcome)
		if e.Won {
			end += " won"
		}
		if e.Superseded {
			end += " superseded"
		}
		ends = append(ends, end)
	}
	slices.Sort(ends)
	return ends
}

func (l *craceLog) reasons() []hedgerow.SkipReason {
	l.mu.Lock()
	defer l.mu.Unlock()
	reasons := []hedgerow.SkipReason{}
	for _, e := range l.skipped {
		reasons = append(reasons, e.Reason)
	}
	return reasons
}

// craceNew returns a Transport whose calls ask for one hedge after a second, unless cfg says otherwise, and always get it.
func craceNew(t *testing.T, cfg hedgerow.Config) *hedgerow.Transport {
	t.Helper()
	if cfg.Hedge.Delay == 0 {
		cfg.Hedge.Delay = time.Second
	}
	if cfg.Hedge.MaxHedges == 0 {
		cfg.Hedge.MaxHedges = 1
	}
	if cfg.Hedge.BudgetPercent == 0 {
		cfg.Hedge.BudgetPercent = 100
	}
	tr, err := hedgerow.New(cfg)
	require.NoError(t, err)
	return tr
}

// craceAnswer is how a call ended for its caller.
type craceAnswer struct {
	Status int
	Body   string
	Err    error
	At     time.Duration // from the start of the call to the return of RoundTrip
}

// craceCall makes a call, reads its response and closes it.
func craceCall(rt http.RoundTripper, req *http.Request) (a craceAnswer) {
	start := time.Now()
	resp, err := rt.RoundTrip(req)
	a = craceAnswer{Err: err, At: time.Since(start)}
	if err != nil {
		return a
	}
	a.Status = resp.StatusCode
	content, err := io.ReadAll(resp.Body)
	a.Body = string(content)
	a.Err = errors.Join(err, resp.Body.Close())
	return a
}

// craceGuard makes a call in a goroutine of its own, and returns what it panicked with and whether it came to its end by
// itself, that is neither by a panic nor by Goexit.
func craceGuard(rt http.RoundTripper, req *http.Request) (a craceAnswer, panicked any, returned bool) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() { panicked = recover() }()
		a = craceCall(rt, req)
		returned = true
	}()
	<-ended
	return a, panicked, returned
}

// craceModes runs f with the primary in the caller's goroutine and in one of its own, each in a bubble.
func craceModes(t *testing.T, f func(t *testing.T, detach bool)) {
	t.Helper()
	for _, detach := range []bool{false, true} {
		t.Run(fmt.Sprintf("detach=%t", detach), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { f(t, detach) })
		})
	}
}

func TestC62LateResponseOfALoser(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		detach bool
		steps  []scripted.Step
		want   craceAnswer
		ends   []string
	}{
		{
			"hedge", false,
			[]scripted.Step{
				{After: 1500 * time.Millisecond, Body: "primary"},
				{After: 1500 * time.Millisecond, IgnoreContext: true, Body: "hedge"},
			},
			craceAnswer{Status: 200, Body: "primary", At: 1500 * time.Millisecond},
			[]string{"0 primary 200 won", "1 hedge 200 superseded"},
		},
		{
			"detached primary", true,
			[]scripted.Step{
				{After: 2500 * time.Millisecond, IgnoreContext: true, Body: "primary"},
				{After: 500 * time.Millisecond, Body: "hedge"},
			},
			craceAnswer{Status: 200, Body: "hedge", At: 1500 * time.Millisecond},
			[]string{"0 primary 200 superseded", "1 hedge 200 won"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var events craceLog
				base := scripted.New(tt.steps...)
				tr := craceNew(t, hedgerow.Config{Base: base, Detach: tt.detach, Hooks: events.hooks()})
				require.Equal(t, tt.want, craceCall(tr, base.NewRequest(t, http.MethodGet, craceURL, "")))
				time.Sleep(time.Second)
				synctest.Wait()
				base.Check(t)
				require.Equal(t, tt.ends, events.ends())
			})
		})
	}
}

// A loser that comes back with a 429 after the race has a say in what the host wants, and in nothing else.
func TestC64LosersAnswerAfterTheWin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var events craceLog
		base := scripted.New(
			scripted.Step{After: 1500 * time.Millisecond, Body: "primary"},
			scripted.Step{
				After: time.Second, IgnoreContext: true, Status: http.StatusTooManyRequests,
				Header: http.Header{"Retry-After": {"10"}},
			},
			scripted.Step{After: 3 * time.Second, Body: "x"},
		)
		tr := craceNew(t, hedgerow.Config{
			Base: base, Hooks: events.hooks(),
			Breaker: hedgerow.BreakerConfig{MinSamples: 1, Failure: func(r *http.Response) bool { return r.StatusCode == http.StatusTooManyRequests }},
		})
		req := base.NewRequest(t, http.MethodGet, craceURL, "")
		require.Equal(t, craceAnswer{Status: 200, Body: "primary", At: 1500 * time.Millisecond}, craceCall(tr, req))
		time.Sleep(time.Second)
		require.Empty(t, events.moves, "a loser counts in no circuit")
		require.Equal(t, 200, craceCall(tr, base.NewRequest(t, http.MethodGet, craceURL, "")).Status)
		require.Equal(t, []hedgerow.SkipReason{hedgerow.SkipPushback}, events.reasons())
		base.Check(t)
	})
}

// Losers that we cancel are no failures of the host, whatever their errors look like.
func TestC64CancelledLoserCountsNowhere(t *testing.T) {
	t.Parallel()
	craceModes(t, func(t *testing.T, detach bool) {
		t.Helper()
		var events craceLog
		base := scripted.Func(func(attempt int, _ *http.Request) scripted.Step {
			if attempt%2 == 0 {
				return scripted.Step{Do: func(req *http.Request) (*http.Response, error) {
					<-req.Context().Done()
					return nil, errCrace
				}}
			}
			return scripted.Step{After: time.Second, Body: "x"}
		})
		tr := craceNew(t, hedgerow.Config{
			Base: base, Detach: detach, Hooks: events.hooks(),
			Breaker: hedgerow.BreakerConfig{MinSamples: 1, ErrorRateThreshold: 0.01},
		})
		for range 10 {
			require.Equal(t, craceAnswer{Status: 200, Body: "x", At: 2 * time.Second},
				craceCall(tr, base.NewRequest(t, http.MethodGet, craceURL, "")))
		}
		synctest.Wait()
		require.Empty(t, events.moves)
		require.Zero(t, tr.Stats().Total.Errors)
		require.EqualValues(t, 10, tr.Stats().Total.HedgeWins)
		base.Check(t)
	})
}

func TestC65FirstAnswerIsAFailure(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		step scripted.Step
		end  string
	}{
		{"500", scripted.Step{Status: 500, Body: "sorry"}, "1 hedge 500"},
		{"429", scripted.Step{Status: 429, Header: http.Header{"Retry-After": {"1"}}}, "1 hedge 429"},
		{"401", scripted.Step{Status: 401}, "1 hedge 401"},
		{"connection", scripted.Step{Err: errCrace}, "1 hedge err"},
		{"response and error", scripted.Step{Status: 200, Err: errCrace}, "1 hedge err"},
		{"panic", scripted.Step{Panic: "boom"}, "1 hedge err"},
		{"Goexit", scripted.Step{Goexit: true}, "1 hedge err"},
		{"neither response nor error", scripted.Step{Do: func(*http.Request) (*http.Response, error) { return nil, nil }}, "1 hedge err"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			craceModes(t, func(t *testing.T, detach bool) {
				t.Helper()
				var events craceLog
				hedge := tt.step
				hedge.After = 200 * time.Millisecond
				base := scripted.New(scripted.Step{After: 2 * time.Second, Body: "fine"}, hedge)
				tr := craceNew(t, hedgerow.Config{Base: base, Detach: detach, Hooks: events.hooks()})
				require.Equal(t, craceAnswer{Status: 200, Body: "fine", At: 2 * time.Second},
					craceCall(tr, base.NewRequest(t, http.MethodPut, craceURL, "payload").WithContext(
						hedgerow.WithCall(t.Context(), hedgerow.Call{Idempotent: true}))))
				synctest.Wait()
				base.Check(t)
				require.Equal(t, []string{"0 primary 200 won", tt.end}, events.ends())
				for _, r := range base.Records() {
					require.Equal(t, tt.step.Do == nil || r.Request == base.Records()[0].Request, string(r.Body) == "payload")
				}
				require.NoError(t, base.Records()[0].Cause, "the primary was not cancelled by the hedge's failure")
			})
		})
	}
}

// The primary's failure is waited out while a hedge is in flight, and is the outcome when all have failed.
func TestC65PrimaryFailsWhileAHedgeRuns(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		primary scripted.Step
		hedge   scripted.Step
		want    craceAnswer
		ends    []string
	}{
		{
			"error, then 200",
			scripted.Step{Err: errCrace},
			scripted.Step{Body: "hedge"},
			craceAnswer{Status: 200, Body: "hedge", At: 3 * time.Second},
			[]string{"0 primary err", "1 hedge 200 won"},
		},
		{
			"503, then 200",
			scripted.Step{Status: 503, Body: "sorry"},
			scripted.Step{Body: "hedge"},
			craceAnswer{Status: 200, Body: "hedge", At: 3 * time.Second},
			[]string{"0 primary 503", "1 hedge 200 won"},
		},
		{
			"503, then error",
			scripted.Step{Status: 503, Body: "sorry"},
			scripted.Step{Err: errCrace},
			craceAnswer{Status: 503, Body: "sorry", At: 3 * time.Second},
			[]string{"0 primary 503 won", "1 hedge err"},
		},
		{
			"error, then 503",
			scripted.Step{Err: errCrace},
			scripted.Step{Status: 503, Body: "sorry"},
			craceAnswer{Err: errCrace, At: 3 * time.Second},
			[]string{"0 primary err won", "1 hedge 503"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			craceModes(t, func(t *testing.T, detach bool) {
				t.Helper()
				var events craceLog
				primary, hedge := tt.primary, tt.hedge
				primary.After, hedge.After = 1500*time.Millisecond, 2*time.Second
				base := scripted.New(primary, hedge)
				tr := craceNew(t, hedgerow.Config{Base: base, Detach: detach, Hooks: events.hooks()})
				require.Equal(t, tt.want, craceCall(tr, base.NewRequest(t, http.MethodGet, craceURL, "")))
				synctest.Wait()
				base.Check(t)
				require.Equal(t, tt.ends, events.ends())
			})
		})
	}
}

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
				base := scripted.Func(func(attempt int, _ *http.Request) scripted.Step {
					if attempt < len(tt.steps) {
						return tt.steps[attempt]
					}
					return scripted.Step{Body: "next"}
				})
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
				base := scripted.Func(func(attempt int, _ *http.Request) scripted.Step {
					if attempt < len(tt.steps) {
						return tt.steps[attempt]
					}
					return scripted.Step{Body: "next"}
				})
				var hooks hedgerow.Hooks
				armed := craceArmed{left: 1, do: runtime.Goexit}
				tt.set(&hooks, armed.fire)
				tr := craceNew(t, hedgerow.Config{
					Base: base, Detach: detach, Hooks: hooks, Breaker: hedgerow.BreakerConfig{MinSamples: 1},
				})
				parent := newCcanParent()
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
						base := scripted.Func(func(attempt int, _ *http.Request) scripted.Step {
							if attempt < len(tt.steps) {
								return tt.steps[attempt]
							}
							return scripted.Step{Body: "next"}
						})
						parent, done := newCcanParent(), 0
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
				parent := newCcanParent()
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
					parent := newCcanParent()
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

// An attempt that is being judged when the race is decided shares nothing with the caller. Run with -race.
func TestC62JudgedWhileTheRaceEnds(t *testing.T) {
	t.Parallel()
	craceModes(t, func(t *testing.T, detach bool) {
		t.Helper()
		base := scripted.New(
			scripted.Step{After: 1500 * time.Millisecond, Body: "primary"}, scripted.Step{Body: "hedge", Header: http.Header{"X-Slow": {"1"}}})
		tr := craceNew(t, hedgerow.Config{
			Base: base, Detach: detach,
			Hedge: hedgerow.HedgeConfig{Accept: func(r *http.Response) bool {
				if r.Header.Get("X-Slow") != "" {
					time.Sleep(time.Second)
				}
				return true
			}},
		})
		require.Equal(t, craceAnswer{Status: 200, Body: "primary", At: 1500 * time.Millisecond},
			craceCall(tr, base.NewRequest(t, http.MethodGet, craceURL, "")))
		time.Sleep(2 * time.Second)
		base.Check(t)
	})
}

// The bubble of each scenario ends right after Body.Close: what it leaves running must end by itself.
func TestC70NothingRunsAfterTheEnd(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	for _, tt := range []struct {
		name  string
		steps []scripted.Step
	}{
		{"no hedge", []scripted.Step{{Body: "x"}}},
		{"hedge wins", []scripted.Step{{After: hour}, {Body: "x"}}},
		{"primary wins", []scripted.Step{{After: 1500 * time.Millisecond, Body: "x"}, {After: hour}}},
		{"second hedge wins", []scripted.Step{{After: hour}, {After: hour}, {Body: "x"}}},
		{"all fail", []scripted.Step{{After: 4 * time.Second, Err: errCrace}, {Err: errCrace}, {Status: 503}}},
		{"loser's body never comes", []scripted.Step{{After: 3 * time.Second}, {Status: 503, BodyAfter: hour, Body: "x"}, {After: hour}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			craceModes(t, func(t *testing.T, detach bool) {
				t.Helper()
				base := scripted.New(tt.steps...)
				tr := craceNew(t, hedgerow.Config{Base: base, Detach: detach, Hedge: hedgerow.HedgeConfig{MaxHedges: 2}})
				start := time.Now()
				resp, err := tr.RoundTrip(base.NewRequest(t, http.MethodGet, craceURL, ""))
				require.Less(t, time.Since(start), 5*time.Second)
				if err == nil {
					require.NoError(t, resp.Body.Close())
				}
				ended := time.Now()
				// Runs when the bubble's last goroutine has ended.
				t.Cleanup(func() {
					synctest.Wait()
					base.Check(t)
					require.Less(t, time.Since(ended), time.Second)
				})
			})
		})
	}
}

func TestC72UpgradesConnectAndTrailersAreNotHedged(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(*http.Request)
		reason hedgerow.SkipReason
	}{
		{"Connection: Upgrade", func(r *http.Request) {
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "websocket")
		}, hedgerow.SkipUpgrade},
		{"Connection with more", func(r *http.Request) { r.Header.Set("Connection", "keep-alive, upgrade") }, hedgerow.SkipUpgrade},
		{"odd spelling", func(r *http.Request) { r.Header["uPGRADE"] = []string{"h2c"} }, hedgerow.SkipUpgrade},
		{"trailers", func(r *http.Request) { r.Trailer = http.Header{"X-Sum": nil} }, hedgerow.SkipUpgrade},
		{"CONNECT", func(r *http.Request) { r.Method = http.MethodConnect }, hedgerow.SkipMethod},
		{"CONNECT, declared idempotent", func(r *http.Request) {
			r.Method = http.MethodConnect
			*r = *r.WithContext(hedgerow.WithCall(r.Context(), hedgerow.Call{Idempotent: true}))
		}, hedgerow.SkipUpgrade},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			craceModes(t, func(t *testing.T, detach bool) {
				t.Helper()
				var events craceLog
				base := scripted.New(scripted.Step{After: 10 * time.Second, Body: "x"})
				tr := craceNew(t, hedgerow.Config{Base: base, Detach: detach, Hooks: events.hooks()})
				req := base.NewRequest(t, http.MethodGet, craceURL, "")
				tt.change(req)
				require.Equal(t, craceAnswer{Status: 200, Body: "x", At: 10 * time.Second}, craceCall(tr, req))
				require.Len(t, base.Records(), 1)
				require.Equal(t, []hedgerow.SkipReason{tt.reason}, events.reasons())
				base.Check(t)
			})
		})
	}
}

// craceStream is a response body that has no end, and comes a piece at a time.
type craceStream struct {
	every  time.Duration // between pieces; 0: at once
	piece  int
	deaf   bool // Close does not wake a Read
	closed chan struct{}
	once   sync.Once

	mu   sync.Mutex
	read int
}

func newCraceStream(every time.Duration, piece int, deaf bool) *craceStream {
	return &craceStream{every: every, piece: piece, deaf: deaf, closed: make(chan struct{})}
}

func (s *craceStream) Read(p []byte) (int, error) {
	closed := s.closed
	if s.deaf {
		closed = nil
	}
	select {
	case <-closed:
		return 0, http.ErrBodyReadAfterClose
	case <-time.After(s.every):
	}
	n := min(len(p), s.piece)
	copy(p, strings.Repeat("x", n))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read += n
	return n, nil
}

func (s *craceStream) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

func (s *craceStream) total() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read
}

// craceCrashBody panics when it is read.
type craceCrashBody struct{}

func (craceCrashBody) Read([]byte) (int, error) { panic("body") }
func (craceCrashBody) Close() error             { return nil }

// A body that nobody wants is read in the background, where its panic would end the process.
func TestC74LosingBodyPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := scripted.New(
			scripted.Step{After: 3 * time.Second, Body: "fine"}, scripted.Step{Status: 503, BodyReader: craceCrashBody{}})
		tr := craceNew(t, hedgerow.Config{Base: base})
		a := craceCall(tr, base.NewRequest(t, http.MethodGet, craceURL, ""))
		require.Equal(t, "fine", a.Body)
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
