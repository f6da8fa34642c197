package hedgerow_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// hostRun is what a random call is asked to be.
type hostRun struct {
	steps  []scripted.Step
	cancel time.Duration // 0: never
	method string
	noCall bool // NoHedge
}

func hostRandomRun(rnd *rand.Rand) hostRun {
	r := hostRun{method: http.MethodGet}
	for range 3 {
		step := scripted.Step{After: time.Duration(rnd.IntN(4000)) * time.Millisecond, Body: "x", Status: 200}
		switch rnd.IntN(7) {
		case 0:
			step.Status = 503
		case 1:
			step = scripted.Step{After: step.After, Err: errCrace}
		case 2:
			step.BodyAfter = time.Duration(rnd.IntN(1000)) * time.Millisecond
		case 3:
			step.Status = 429
		}
		r.steps = append(r.steps, step)
	}
	switch rnd.IntN(8) {
	case 0:
		r.cancel = time.Duration(1+rnd.IntN(4000)) * time.Millisecond
	case 1:
		r.method = http.MethodPost
	case 2:
		r.noCall = true
	}
	return r
}

// Whatever happens to calls, what is counted and told adds up.
func TestHostileStatsAddUp(t *testing.T) {
	t.Parallel()
	for _, signal := range []hedgerow.Signal{hedgerow.SignalHeaders, hedgerow.SignalFirstByte} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			craceModes(t, func(t *testing.T, detach bool) {
				t.Helper()
				const calls = 300
				seed := uint64(time.Now().UnixNano()) ^ rand.Uint64()
				t.Logf("seed %d", seed)
				rnd := rand.New(rand.NewPCG(seed, 1))
				var runs []hostRun
				for range calls {
					runs = append(runs, hostRandomRun(rnd))
				}
				base := scripted.Func(func(_ int, req *http.Request) scripted.Step {
					var i int
					_, _ = fmt.Sscan(req.Header.Get("X-Run"), &i)
					a, _ := hedgerow.AttemptFromContext(req.Context())
					return runs[i].steps[a.Number]
				})
				var events craceLog
				tr := craceNew(t, hedgerow.Config{
					Base: base, Detach: detach, Hooks: events.hooks(),
					Hedge:   hedgerow.HedgeConfig{MaxHedges: 2, Signal: signal, BudgetPercent: 50},
					Breaker: hedgerow.BreakerConfig{MinSamples: 10, Cooldown: 3 * time.Second, ErrorRateThreshold: 0.6},
				})
				var mu sync.Mutex
				infos := make(map[int][]hedgerow.CallInfo)
				answers := make([]craceAnswer, calls)
				var wg sync.WaitGroup
				for i, run := range runs {
					ctx := hedgerow.WithCall(t.Context(), hedgerow.Call{NoHedge: run.noCall, Done: func(c hedgerow.CallInfo) {
						mu.Lock()
						defer mu.Unlock()
						infos[i] = append(infos[i], c)
					}})
					ctx, cancel := context.WithCancel(ctx)
					if run.cancel > 0 {
						time.AfterFunc(run.cancel, cancel)
					}
					req := base.NewRequest(t, run.method, craceURL, "").WithContext(ctx)
					req.Header.Set("X-Run", strconv.Itoa(i))
					wg.Go(func() {
						defer cancel()
						answers[i] = craceCall(tr, req)
					})
					time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
				}
				wg.Wait()
				time.Sleep(time.Minute)
				synctest.Wait()
				base.Check(t)

				// Attempts, as the calls, the hooks and the base tell of them.
				attempts, abandoned := 0, 0
				for i := range runs {
					require.Len(t, infos[i], 1)
					info := infos[i][0]
					attempts += info.Attempts
					if info.Attempts > 1 && info.Winner.Number == 0 && runs[i].cancel > 0 {
						abandoned++ // or the primary's outcome was returned, which looks the same
					}
					require.NotErrorIs(t, answers[i].Err, hedgerow.ErrSuperseded)
				}
				require.Len(t, base.Records(), attempts)
				require.Len(t, events.done, attempts, "AttemptDone once per attempt")
				won, hedgesDone := 0, 0
				for _, e := range events.done {
					require.False(t, e.Won && e.Superseded)
					if e.Won {
						won++
					}
					if e.Attempt.Kind == hedgerow.AttemptHedge {
						hedgesDone++
					}
				}
				require.LessOrEqual(t, won, calls)

				s := tr.Stats()
				ep := s.Endpoints[hedgerow.EndpointKey{Host: "api.test"}]
				require.Equal(t, s.Total, ep.Counters, "there is one endpoint")
				require.EqualValues(t, calls, s.Total.Requests)
				require.EqualValues(t, attempts-calls, s.Total.Hedges)
				require.Len(t, events.fired, int(s.Total.Hedges))
				require.Equal(t, int(s.Total.Hedges), hedgesDone)
				wins := s.Total.HedgeWins + s.Total.PrimaryWins
				require.LessOrEqual(t, wins, s.Total.Hedged)
				require.GreaterOrEqual(t, wins, s.Total.Hedged-uint64(abandoned))
				counted := make(map[hedgerow.SkipReason]uint64)
				for _, e := range events.skipped {
					counted[e.Reason]++
				}
				require.Equal(t, counted, s.Total.Skipped)
				require.LessOrEqual(t, s.Total.Hedged, s.Total.Hedges)
				// Transitions of a circuit follow on each other.
				last := map[hedgerow.CircuitScope]hedgerow.CircuitState{}
				for _, m := range events.moves {
					require.Equal(t, last[m.Scope], m.From)
					require.NotEqual(t, m.From, m.To)
					last[m.Scope] = m.To
				}
			})
		})
	}
}

// Done is called once on every path, before RoundTrip returns.
func TestHostileDoneOnce(t *testing.T) {
	t.Parallel()
	primary := hedgerow.Attempt{}
	hedge := hedgerow.Attempt{Number: 1, Kind: hedgerow.AttemptHedge}
	for _, tt := range []struct {
		name   string
		steps  []scripted.Step
		call   hedgerow.Call
		method string
		want   hedgerow.CallInfo
	}{
		{"primary", []scripted.Step{{Body: "x"}}, hedgerow.Call{}, "GET", hedgerow.CallInfo{Attempts: 1, Winner: primary, Delay: time.Second}},
		{"error", []scripted.Step{{Err: errCrace}}, hedgerow.Call{}, "GET", hedgerow.CallInfo{Attempts: 1, Winner: primary, Delay: time.Second}},
		{"hedge", []scripted.Step{{After: time.Hour}, {Body: "x"}}, hedgerow.Call{}, "GET", hedgerow.CallInfo{Attempts: 2, Winner: hedge, Delay: time.Second}},
		{
			"all fail",
			[]scripted.Step{{After: 2 * time.Second, Err: errCrace}, {Err: errCrace}},
			hedgerow.Call{},
			"GET",
			hedgerow.CallInfo{Attempts: 2, Winner: primary, Delay: time.Second},
		},
		{"own delay", []scripted.Step{{After: time.Hour}, {Body: "x"}}, hedgerow.Call{Delay: time.Minute}, "GET", hedgerow.CallInfo{Attempts: 2, Winner: hedge, Delay: time.Minute}},
		{"not hedgeable", []scripted.Step{{Body: "x"}}, hedgerow.Call{}, "POST", hedgerow.CallInfo{Attempts: 1, Winner: primary}},
		{"no hedge", []scripted.Step{{Body: "x"}}, hedgerow.Call{NoHedge: true}, "GET", hedgerow.CallInfo{Attempts: 1, Winner: primary}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			craceModes(t, func(t *testing.T, detach bool) {
				t.Helper()
				base := scripted.New(tt.steps...)
				tr := craceNew(t, hedgerow.Config{Base: base, Detach: detach})
				var infos []hedgerow.CallInfo
				call := tt.call
				call.Done = func(i hedgerow.CallInfo) { infos = append(infos, i) }
				craceCall(tr, base.NewRequest(t, tt.method, craceURL, "").WithContext(hedgerow.WithCall(t.Context(), call)))
				want := tt.want
				want.Host = "api.test"
				require.Equal(t, []hedgerow.CallInfo{want}, infos)
				synctest.Wait()
				base.Check(t)
			})
		})
	}
	t.Run("unknown endpoint", func(t *testing.T) {
		t.Parallel()
		base := scripted.New()
		tr := craceNew(t, hedgerow.Config{Base: base})
		done := 0
		ctx := hedgerow.WithCall(t.Context(), hedgerow.Call{Endpoint: "nobody", Done: func(hedgerow.CallInfo) { done++ }})
		a := craceCall(tr, base.NewRequest(t, http.MethodPost, craceURL, "payload").WithContext(ctx))
		require.ErrorIs(t, a.Err, hedgerow.ErrUnknownEndpoint)
		require.ErrorContains(t, a.Err, "nobody")
		require.Equal(t, 1, done)
		base.Check(t)
	})
}
