package hedgerow_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// scenHosts makes the pool act on the calls of the scenarios, as it must to send credentials.
var scenHosts = []string{"http://api.test"}

func TestScenario44EnableStartsAnew(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{Resources: scenKeys("A"), MaxAttempts: 1}
	scenTest(t, cfg, scenScript{"bad": {scen429}}, func(s *scen) {
		s.Equal("429 A", s.call("bad"))
		s.at(30 * time.Second)
		s.Equal("429 A", s.call("bad"))
		s.Equal("cooling 2m0s #2", s.state("A"))
		s.NoError(s.pool.Enable("A"))
		s.Equal("healthy #0", s.state("A"))
		s.Equal("429 A", s.call("bad"))
		s.Equal("cooling 30s #1", s.state("A"))
	})
	t.Run("IDs", func(t *testing.T) {
		t.Parallel()
		scenTest(t, cfg, nil, func(s *scen) {
			before := s.pool.Stats()
			for _, do := range []func(string) error{s.pool.Enable, s.pool.Disable, s.pool.Remove} {
				s.ErrorIs(do("Z"), hedgerow.ErrUnknownResource)
			}
			s.ErrorIs(s.pool.Add(scenCap("A", 7)), hedgerow.ErrDuplicateResource)
			s.Equal(before, s.pool.Stats())
		})
	})
}

func TestScenario45AdminLeavesRunningCallsAlone(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(*hedgerow.Pool, string) error{
		"disable": (*hedgerow.Pool).Disable, "remove": (*hedgerow.Pool).Remove,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := hedgerow.PoolConfig{Resources: scenKeys("A"), Wait: time.Minute}
			scenTest(t, cfg, scenScript{"hold": scenHold}, func(s *scen) {
				held := s.begin("hold")
				s.NoError(do(s.pool, "A"))
				s.begin("X").requireOutcome("exhausted", 0)
				s.Equal(1, s.pool.Stats().InFlight)
				held.requireOutcome("200 A", time.Second)
				s.Equal("exhausted", s.call("Y"))
			})
		})
	}
}

func TestScenario46OldStayCountsTowardTheCap(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		last scripted.Step
		want string
	}{
		"ok":  {scenOK, "200 A"},
		"401": {scen401, "401 A"}, // the new key is not disabled for the old one
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := hedgerow.PoolConfig{
				Hosts: scenHosts, Resources: []hedgerow.Resource{{ID: "A", Credential: hedgerow.Bearer("old")}}, MaxAttempts: 1,
			}
			script := scenScript{"old": {scenHeld(time.Second, tt.last)}}
			scenTest(t, cfg, script, func(s *scen) {
				old := s.begin("old")
				s.NoError(s.pool.Remove("A"))
				fresh := scenCap("A", 1)
				fresh.Credential = hedgerow.Bearer("new")
				s.NoError(s.pool.Add(fresh))
				s.Equal("1", s.inFlight())
				s.Equal("exhausted", s.call("X"))

				ctx := hedgerow.WithCall(s.t.Context(), hedgerow.Call{Wait: time.Minute})
				waiter := s.do(ctx, "Y")
				old.requireOutcome(tt.want, time.Second)
				waiter.requireOutcome("200 A", time.Second)
				s.Equal("healthy #0", s.state("A"))
				s.EqualValues(1, s.status("A").Attempts)
				records := s.base.Records()
				s.Equal("Bearer old", records[0].Header.Get("Authorization"))
				s.Equal("Bearer new", records[1].Header.Get("Authorization"))
			})
		})
	}
}

func TestScenario47EventsInOrder(t *testing.T) {
	t.Parallel()
	var events []string
	var s *scen
	cfg := hedgerow.PoolConfig{
		Resources: scenKeys("A"), MaxAttempts: 1,
		ResourceChange: func(e hedgerow.ResourceEvent) {
			events = append(events, e.ID+" "+e.From.String()+" "+e.To.String())
			if int(e.Seq) != len(events) || len(s.pool.Snapshot()) != 1 || len(s.pool.Stats().Resources) != 1 {
				events = append(events, "bad")
			}
			panic("of the hook")
		},
	}
	scenTest(t, cfg, scenScript{"bad": {scen429}}, func(bed *scen) {
		s = bed
		s.Equal("429 A", s.call("bad"))
		s.NoError(s.pool.Enable("A"))
		s.NoError(s.pool.Disable("A"))
		s.NoError(s.pool.Enable("A"))
		s.NoError(s.pool.Enable("A"))
		s.NoError(s.pool.Add(hedgerow.Resource{ID: "B"}))
		s.NoError(s.pool.Remove("B"))
		s.Equal("200 A", s.call("X"))
		s.Equal([]string{
			"A healthy cooling", "A cooling healthy", "A healthy disabled", "A disabled healthy",
		}, events)
	})
}

func TestScenario48CountsEachCallOnce(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{Resources: scenKeys("A"), MaxAttempts: 1}
	script := scenScript{"bad": {scenWait("1")}, "broken": {scenErr}, "hold": scenHold}
	scenTest(t, cfg, script, func(s *scen) {
		for _, step := range []struct{ call, out, outcomes string }{
			{"X", "200 A", "ok 1, exhausted 0, failed 0, canceled 0"},
			{"bad", "429 A", "ok 1, exhausted 1, failed 0, canceled 0"},
			{"X", "exhausted", "ok 1, exhausted 2, failed 0, canceled 0"},
			{"broken", "failed", "ok 1, exhausted 2, failed 1, canceled 0"},
		} {
			if step.call == "broken" {
				s.at(time.Second)
			}
			s.Equal(step.out, s.call(step.call))
			s.Equal(step.outcomes, s.outcomes())
		}
		ctx, cancel := context.WithCancel(s.t.Context())
		c := s.do(ctx, "hold")
		cancel()
		s.Equal("canceled", c.outcome())
		s.Equal("ok 1, exhausted 2, failed 1, canceled 1", s.outcomes())

		s.NoError(s.pool.Remove("A"))
		s.NoError(s.pool.Add(hedgerow.Resource{ID: "A"}))
		s.Equal(hedgerow.ResourceStatus{ID: "A"}, s.status("A"))
		s.Error(s.pool.Add(scenCap("B", -1)))
		s.Equal(hedgerow.PoolStats{
			Eligible: 1, Healthy: 1, CallsOK: 1, CallsExhausted: 2, CallsFailed: 1, CallsCanceled: 1,
			Attempts: 4, Successes: 1, Cooldowns: 1, Resources: s.pool.Snapshot(),
		}, s.pool.Stats())
	})
}

func TestScenario49FailuresInARow(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{
		Strategy: hedgerow.PrimaryBackup, Resources: scenKeys("A", "B"), RetryBudgetPercent: -1,
	}
	script := scenScript{"X@A": {scenErr}, "ok": {scenOK}, "burst@A": {scenHeld(time.Second, scenErr)}}
	// rest makes a call that fails on A, and returns for how long A is not sent to.
	rest := func(s *scen) time.Duration {
		s.Equal("200 B", s.call("X"))
		began := time.Now()
		for {
			time.Sleep(500 * time.Millisecond)
			if s.call("probe") == "200 A" {
				return time.Since(began)
			}
		}
	}
	scenTest(t, cfg, script, func(s *scen) {
		s.Equal(time.Second, rest(s))
		s.Equal(time.Second, rest(s), "an OK ends the row")
		s.Zero(s.status("A").ConsecutiveFailures)
		for i, want := range []int{1, 2, 4, 8, 16, 30, 30} {
			s.Equal("200 B", s.call("X"))
			s.Equal(i+1, s.status("A").ConsecutiveFailures)
			due := s.now() + time.Duration(want)*time.Second
			s.at(due - 1)
			s.Equal("200 B", s.call("early"))
			s.at(due)
		}
		for range 13292 {
			s.NoError(s.pool.Report("A", "", hedgerow.Verdict{Action: hedgerow.ActionRetry}))
		}
		s.Equal(30*time.Second, rest(s))
		s.Equal("healthy #0", s.state("A"))
		s.EqualValues(0, s.pool.Stats().Cooldowns)

		for _, c := range s.beginAll("burst", 5) {
			s.Equal("200 B", c.outcome())
		}
		s.Equal(1, s.status("A").ConsecutiveFailures)
	})
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		cfg := hedgerow.PoolConfig{Resources: scenKeys("A"), MaxAttempts: 1}
		scenTest(t, cfg, scenScript{"A": {scenErr, scenOK}}, func(s *scen) {
			c := s.begin("X")
			s.Equal("failed", c.outcome())
			s.Equal(errContract, c.err)
			s.begin("X").requireOutcome("200 A", 0)
		})
	})
}

func TestScenario50AttemptsAreApart(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{
		Hosts: scenHosts, Strategy: hedgerow.PrimaryBackup,
		Resources: []hedgerow.Resource{
			{ID: "A", Credential: hedgerow.HeaderKey("Key-A", "secret a")},
			{ID: "B", Credential: hedgerow.HeaderKey("Key-B", "secret b")},
		},
	}
	scenTest(t, cfg, scenScript{"hold": scenHold, "X@A": {scen429}}, func(s *scen) {
		before := s.status("A")
		ctx, cancel := context.WithCancel(s.t.Context())
		c := s.do(ctx, "hold")
		cancel()
		s.Equal("canceled", c.outcome())
		before.Attempts++
		s.Equal(before, s.status("A"))

		req := contractGet(s.t.Context(), s.t, contractURL)
		req.Header = http.Header{"Call": {"X"}, "Key-A": {"caller's"}}
		caller := req.Header.Clone()
		s.calls++
		resp, err := s.rt.RoundTrip(req)
		s.NoError(err)
		s.NoError(resp.Body.Close())
		s.Equal(caller, req.Header)
		s.Same(req, resp.Request)
		records := s.base.Records()
		s.Equal(http.Header{"Call": {"X"}, "Key-A": {"secret a"}}, records[1].Header)
		s.Equal(http.Header{"Call": {"X"}, "Key-A": {"caller's"}, "Key-B": {"secret b"}}, records[2].Header)
	})
}

func TestScenario51ManyAtOnce(t *testing.T) {
	t.Parallel()
	const workers, calls = 16, 1000
	pool, err := hedgerow.NewPool(hedgerow.PoolConfig{
		Resources: scenKeys("A", "B", "C"), CooldownTable: []time.Duration{time.Millisecond}, RetryDelay: -1,
		ResourceChange: func(hedgerow.ResourceEvent) {},
	})
	require.NoError(t, err)
	base := scripted.Func(func(int, *http.Request) scripted.Step {
		if rand.IntN(10) == 0 {
			return scen429
		}
		return scenOK
	})
	rt := pool.Wrap(base)
	errs := make(chan error, workers)
	var group sync.WaitGroup
	for range workers {
		req := contractGet(t.Context(), t, contractURL)
		group.Go(func() {
			for range calls {
				if err := scenRandom(pool, rt, req); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(errs)
	require.NoError(t, <-errs)
	base.Check(t)
	stats := pool.Stats()
	require.Zero(t, stats.InFlight)
	require.EqualValues(t, workers*calls, stats.CallsOK+stats.CallsExhausted)
	require.EqualValues(t, len(base.Records()), stats.Attempts)
	require.GreaterOrEqual(t, stats.Attempts, stats.CallsOK)
}

// scenRandom makes a call, and now and then does something to the pool. What is not possible is no error here.
func scenRandom(pool *hedgerow.Pool, rt http.RoundTripper, req *http.Request) error {
	id := []string{"A", "B", "C"}[rand.IntN(3)]
	var err error
	switch rand.IntN(40) {
	case 0:
		err = pool.Enable(id)
	case 1:
		err = pool.Disable(id)
	case 2:
		err = pool.Remove(id)
	case 3:
		err = pool.Report(id, "", hedgerow.Verdict{Action: hedgerow.ActionCooldown})
	case 4:
		err = pool.SetResources(scenKeys("A", "B", "C"))
	case 5, 6, 7:
		if err = pool.Add(hedgerow.Resource{ID: id}); errors.Is(err, hedgerow.ErrDuplicateResource) {
			err = pool.Enable(id)
		}
	}
	if err != nil && !errors.Is(err, hedgerow.ErrUnknownResource) {
		return err
	}
	resp, err := rt.RoundTrip(req)
	if _, exhausted := errors.AsType[*hedgerow.ExhaustedError](err); exhausted {
		return nil
	}
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func TestScenario52Scopes(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{
		Strategy: hedgerow.PrimaryBackup, Resources: scenKeys("A", "B"),
		ScopeOf: func(req *http.Request) string { return req.Header.Get("Call") },
	}
	scenTest(t, cfg, scenScript{"m1@A": {scen429}}, func(s *scen) {
		s.Equal("200 B", s.call("m1"))
		s.Equal("200 B", s.call("m1"))
		s.Equal("200 A", s.call("m2"))
		s.Equal("m1@A,m1@B,m1@B,m2@A", s.sends())
		s.Equal("healthy #0", s.state("A"))
		s.Equal(map[string]time.Time{"m1": s.start.Add(30 * time.Second)}, s.status("A").Scopes)
		s.at(30 * time.Second)
		s.Empty(s.status("A").Scopes)
	})
	t.Run("group", func(t *testing.T) {
		t.Parallel()
		cfg := hedgerow.PoolConfig{
			Strategy:  hedgerow.PrimaryBackup,
			Resources: []hedgerow.Resource{{ID: "A", Group: "g"}, {ID: "B", Group: "g"}, {ID: "C"}},
			Classifier: func(o hedgerow.Outcome) hedgerow.Verdict {
				v := hedgerow.DefaultClassifier(o)
				v.Scope = hedgerow.ScopeGroup
				return v
			},
		}
		scenTest(t, cfg, scenScript{"A": {scen429}}, func(s *scen) {
			s.Equal("200 C", s.call("X"))
			s.Equal("X@A,X@C", s.sends())
			s.Equal("cooling 30s #1", s.state("B"))
		})
	})
}

func TestScenario53HedgeGoesToAnother(t *testing.T) {
	t.Parallel()
	// The budget holds one hedge, and calls bring next to nothing: the second call may ask only if the first gave it back.
	for name, tt := range map[string]struct {
		keys   []hedgerow.Resource
		out    []string
		sends  string
		hedges uint64
		skip   hedgerow.SkipReason
		skips  uint64
	}{
		"one resource":  {scenKeys("A"), []string{"200 A", "200 A"}, "X@A,X@A", 0, hedgerow.SkipNoResource, 2},
		"two resources": {scenKeys("A", "B"), []string{"200 B", "200 A"}, "X@A,X@B,X@A", 1, hedgerow.SkipBudget, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := hedgerow.PoolConfig{Strategy: hedgerow.PrimaryBackup, Resources: tt.keys}
			script := scenScript{"X@A": scenHold, "X@B": {scenHeld(5*time.Millisecond, scenOK)}}
			scenTest(t, cfg, script, func(s *scen) {
				tr := contractNew(s.t, hedgerow.Config{
					Base: s.rt, Hedge: hedgerow.HedgeConfig{BudgetPercent: 0.01, MaxHedges: 2},
				})
				s.rt = tr
				for _, want := range tt.out {
					s.Equal(want, s.call("X"))
				}
				synctest.Wait()
				s.Equal(tt.sends, s.sends())
				total := tr.Stats().Total
				s.Equal(tt.hedges, total.Hedges)
				s.Equal(map[hedgerow.SkipReason]uint64{tt.skip: tt.skips}, total.Skipped)
				s.calls += tt.hedges // each is a call to the pool
			})
		})
	}
}
