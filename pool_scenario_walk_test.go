package hedgerow_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hedgerow-go/hedgerow"
)

// The ends of the range of the jitter source.
func scenJitterLeast() float64 { return 0 }
func scenJitterMost() float64  { return 1 }

func TestScenario31WalksOverTheKeys(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{Resources: scenKeys("A", "B", "C"), RetryDelay: time.Hour}
	scenTest(t, cfg, scenScript{"A": {scen429}, "B": {scen429}}, func(s *scen) {
		s.begin("X").requireOutcome("200 C", 0)
		s.Equal("X@A,X@B,X@C", s.sends())
		s.Equal("0/0/0", s.inFlight())
		s.EqualValues(2, s.pool.Stats().Retries)
	})
}

func TestScenario32StopsAtMaxAttempts(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{Resources: scenKeys("A", "B", "C"), MaxAttempts: 2}
	scenTest(t, cfg, scenScript{"X": {scen429}}, func(s *scen) {
		s.Equal("429 B", s.call("X"))
		s.Equal("X@A,X@B", s.sends())
	})
}

func TestScenario33DeadlineBoundsThePause(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{Resources: scenKeys("A"), RetryDelay: 50 * time.Millisecond}
	scenTest(t, cfg, scenScript{"X": {scen502}}, func(s *scen) {
		past, cancel := context.WithDeadline(s.t.Context(), s.start)
		defer cancel()
		s.do(past, "X").requireOutcome("deadline", 0)
		s.Empty(s.sends())

		soon, cancel := context.WithTimeout(s.t.Context(), 20*time.Millisecond)
		defer cancel()
		s.do(soon, "X").requireOutcome("502 A", 0)
		s.Equal("X@A", s.sends())
		s.Equal("ok 0, exhausted 1, failed 0, canceled 1", s.outcomes())
		for range 20 { // a repeat that is not made takes nothing from the budget
			s.do(soon, "X").requireOutcome("502 A", 0)
		}
		s.Zero(s.pool.Stats().RetriesRefused)
	})
}

func TestScenario34Jitter(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		keys   []hedgerow.Resource
		source func() float64
		pause  time.Duration
	}{
		"one key, most":  {scenKeys("A"), scenJitterMost, 300 * time.Millisecond},
		"one key, least": {scenKeys("A"), scenJitterLeast, 100 * time.Millisecond},
		"two keys":       {scenKeys("A", "B"), scenJitterMost, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := hedgerow.PoolConfig{Resources: tt.keys, RetryDelay: 200 * time.Millisecond, MaxAttempts: 2}
			scenTest(t, cfg, scenScript{"X": {scen502}}, func(s *scen) {
				s.pool.SetJitter(tt.source)
				s.begin("X").requireOutcome("502 "+tt.keys[len(tt.keys)-1].ID, tt.pause)
				s.Equal([]time.Duration{0, tt.pause}, s.times())
			})
		})
	}
}

func TestScenario35RepeatsOnTheOnlyKey(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		steps       scenSteps
		want, sends string
		state       string
	}{
		"then ok": {scenSteps{scen502, scenOK}, "200 A", "bad@A,X@A,X@A", "healthy #0"},
		"always":  {scenSteps{scen502}, "502 A", "bad@A,X@A,X@A,X@A", "healthy #1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := hedgerow.PoolConfig{Resources: scenKeys("A"), MaxAttempts: 3}
			scenTest(t, cfg, scenScript{"bad": {scen429}, "X": tt.steps}, func(s *scen) {
				s.Equal("429 A", s.call("bad"))
				s.at(30 * time.Second)
				s.Equal(tt.want, s.call("X"))
				s.Equal(tt.sends, s.sends())
				s.EqualValues(len(s.times())-2, s.pool.Stats().Retries)
				s.EqualValues(1, s.pool.Stats().Cooldowns)
				s.Equal(tt.state, s.state("A"))
			})
		})
	}
}

func TestScenario36PauseHoldsNoSlot(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{Resources: []hedgerow.Resource{scenCap("A", 1)}, RetryDelay: time.Second}
	scenTest(t, cfg, scenScript{"X": {scen502, scenOK}}, func(s *scen) {
		x := s.begin("X")
		s.at(300 * time.Millisecond)
		s.begin("Y").requireOutcome("200 A", 300*time.Millisecond)
		x.requireOutcome("200 A", 500*time.Millisecond)
	})
}

func TestScenario37WaitsForTheCooldown(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ delay, sent time.Duration }{
		"no jitter": {-1, 80 * time.Second},
		"jitter":    {20 * time.Second, 100 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := hedgerow.PoolConfig{Resources: scenKeys("A"), RetryDelay: tt.delay, Wait: 5 * time.Minute, MaxAttempts: 1}
			scenTest(t, cfg, scenScript{"bad": {scenWait("80")}}, func(s *scen) {
				s.pool.SetJitter(scenJitterMost)
				s.Equal("429 A", s.call("bad"))
				ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Minute)
				defer cancel()
				s.do(ctx, "X").requireOutcome("200 A", tt.sent)
				s.Equal([]time.Duration{0, tt.sent}, s.times())
			})
		})
	}
}

func TestScenario38DoesNotWaitInVain(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		first    string // of A
		wait     time.Duration
		deadline time.Duration
		reason   hedgerow.ExhaustedReason
	}{
		"disabled":               {"401 A", time.Hour, time.Hour, hedgerow.ExhaustedNoResource},
		"due after the deadline": {"429 A", time.Hour, 50 * time.Millisecond, hedgerow.ExhaustedDeadline},
		"due at the deadline":    {"429 A", time.Hour, 5 * time.Second, hedgerow.ExhaustedDeadline},
		"due after the wait":     {"429 A", time.Second, time.Hour, hedgerow.ExhaustedNoResource},
		"due when the wait ends": {"429 A", 5 * time.Second, time.Hour, hedgerow.ExhaustedNoResource},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := hedgerow.PoolConfig{Resources: scenKeys("A"), Wait: tt.wait, MaxAttempts: 1}
			script := scenScript{"429 A": {scenWait("5")}, "401 A": {scen401}}
			scenTest(t, cfg, script, func(s *scen) {
				s.Equal(tt.first, s.call(tt.first))
				ctx, cancel := context.WithTimeout(s.t.Context(), tt.deadline)
				defer cancel()
				x := s.do(ctx, "X")
				x.requireOutcome("exhausted", 0)
				s.Equal(tt.reason, x.exhausted().Reason)
			})
		})
	}
}

func TestScenario39ExtendedCooldownHoldsTheWaiter(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{Resources: scenKeys("A"), Wait: time.Hour, MaxAttempts: 1}
	script := scenScript{"older": {scenHeld(time.Second, scenWait("30"))}, "bad": {scenWait("10")}}
	scenTest(t, cfg, script, func(s *scen) {
		s.begin("older")
		s.Equal("429 A", s.call("bad"))
		waiter := s.begin("X")
		s.at(10 * time.Second)
		waiter.requireRunning()
		waiter.requireOutcome("200 A", 31*time.Second)
	})
}

func TestScenario40AdminWakesWaiters(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		do   func(*hedgerow.Pool) error
		want string
	}{
		"enable":  {func(p *hedgerow.Pool) error { return p.Enable("A") }, "200 A"},
		"add":     {func(p *hedgerow.Pool) error { return p.Add(hedgerow.Resource{ID: "B"}) }, "200 B"},
		"set":     {func(p *hedgerow.Pool) error { return p.SetResources(scenKeys("A", "B")) }, "200 B"},
		"disable": {func(p *hedgerow.Pool) error { return p.Disable("A") }, "exhausted"},
		"remove":  {func(p *hedgerow.Pool) error { return p.Remove("A") }, "exhausted"},
		"401":     {func(*hedgerow.Pool) error { return nil }, "exhausted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := hedgerow.PoolConfig{Resources: scenKeys("A"), Wait: time.Hour, MaxAttempts: 1}
			older := scenHeld(3*time.Second, scenOK)
			if name == "401" {
				older = scenHeld(3*time.Second, scen401)
			}
			script := scenScript{"older": {older}, "bad": {scenWait("600")}}
			scenTest(t, cfg, script, func(s *scen) {
				s.begin("older")
				s.Equal("429 A", s.call("bad"))
				waiter := s.begin("X")
				s.at(3 * time.Second)
				s.NoError(tt.do(s.pool))
				waiter.requireOutcome(tt.want, 3*time.Second)
			})
		})
	}
}

func TestScenario41WaitsForItsOwnKey(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		steps scenSteps
		want  string
		sends []time.Duration
	}{
		"then ok": {scenSteps{scenWait("30"), scenOK}, "200 A", []time.Duration{0, 30 * time.Second}},
		"always":  {scenSteps{scenWait("30")}, "429 A", []time.Duration{0, 30 * time.Second, time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := hedgerow.PoolConfig{Resources: scenKeys("A"), Wait: time.Hour, MaxAttempts: 3}
			scenTest(t, cfg, scenScript{"X": tt.steps}, func(s *scen) {
				s.begin("X").requireOutcome(tt.want, tt.sends[len(tt.sends)-1])
				s.Equal(tt.sends, s.times())
			})
		})
	}
}

func TestScenario42CancelledWaiter(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{Resources: scenKeys("A"), Wait: time.Hour, MaxAttempts: 1}
	t.Run("its cause at once", func(t *testing.T) {
		t.Parallel()
		scenTest(t, cfg, scenScript{"bad": {scen429}}, func(s *scen) {
			s.Equal("429 A", s.call("bad"))
			cause := errors.New("enough")
			ctx, cancel := context.WithCancelCause(s.t.Context())
			waiter := s.do(ctx, "X")
			s.at(time.Second)
			cancel(cause)
			waiter.requireOutcome("failed", time.Second)
			s.Equal(cause, waiter.err)
			s.Equal("ok 0, exhausted 1, failed 0, canceled 1", s.outcomes())
		})
	})
	t.Run("two waiters, one Enable", func(t *testing.T) {
		t.Parallel()
		scenTest(t, cfg, scenScript{"bad": {scen429}}, func(s *scen) {
			s.Equal("429 A", s.call("bad"))
			waiters := s.beginAll("X", 2)
			s.at(time.Second)
			s.NoError(s.pool.Enable("A"))
			for _, c := range waiters {
				c.requireOutcome("200 A", time.Second)
			}
		})
	})
}

func TestScenario43ReleaseWakesWaiters(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{
		Resources: []hedgerow.Resource{{ID: "B"}, scenCap("A", 1)}, Strategy: hedgerow.PrimaryBackup, Wait: time.Hour,
		MaxAttempts: 1,
	}
	scenTest(t, cfg, scenScript{"bad": {scenWait("600")}, "hold": scenHold}, func(s *scen) {
		s.Equal("429 B", s.call("bad"))
		s.begin("hold")
		waiter := s.begin("X")
		synctest.Wait()
		waiter.requireOutcome("200 A", time.Second)
	})
}

// A resource that is full while it cools is not waited for beyond the deadline, nor one that cannot be freed before.
func TestScenario38FullAndCooling(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{Resources: []hedgerow.Resource{scenCap("A", 2)}, Wait: time.Hour, MaxAttempts: 1}
	script := scenScript{"hold": {scenHeld(20*time.Second, scenOK)}, "bad": {scenHeld(time.Second, scenWait("10"))}}
	scenTest(t, cfg, script, func(s *scen) {
		s.beginAll("hold", 1)
		bad := s.begin("bad")
		ctx, cancel := context.WithDeadline(s.t.Context(), s.start.Add(5*time.Second))
		defer cancel()
		s.do(ctx, "X").requireOutcome("exhausted", time.Second)
		bad.requireOutcome("429 A", time.Second)
		s.at(20 * time.Second)
	})
}

// A waiter goes by what is due first at each moment, whatever it began to wait for.
func TestScenario43WaiterFollowsTheEarliest(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{
		Resources: []hedgerow.Resource{{ID: "B"}, scenCap("A", 1)}, Strategy: hedgerow.PrimaryBackup, Wait: time.Hour,
		MaxAttempts: 1, RetryDelay: time.Second, KeepSiblings: true,
	}
	script := scenScript{"bad": {scenWait("600")}, "hold": {scenHeld(time.Second, scenWait("5"))}}
	scenTest(t, cfg, script, func(s *scen) {
		s.Equal("429 B", s.call("bad"))
		s.begin("hold")
		draws := []float64{0.25, 0.75}
		s.pool.SetJitter(func() float64 { defer func() { draws = append(draws[1:], draws[0]) }(); return draws[0] })
		first, second := s.begin("X"), s.begin("Y")
		first.requireOutcome("200 A", 6250*time.Millisecond)
		second.requireOutcome("200 A", 6750*time.Millisecond)
	})
}

// An extended cooldown releases its waiters spread, as every other does, and within the deadline of each.
func TestScenario39SpreadsTheWaiters(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{Resources: scenKeys("A"), Wait: time.Hour, MaxAttempts: 1, RetryDelay: 8 * time.Second}
	script := scenScript{"older": {scenHeld(time.Second, scenWait("30"))}, "bad": {scenWait("10")}}
	scenTest(t, cfg, script, func(s *scen) {
		s.begin("older")
		s.Equal("429 A", s.call("bad"))
		s.pool.SetJitter(func() float64 { return 0.5 })
		ctx, cancel := context.WithDeadline(s.t.Context(), s.start.Add(33*time.Second))
		defer cancel()
		waiter, hurried := s.begin("X"), s.do(ctx, "Y")
		hurried.requireOutcome("200 A", 32*time.Second)
		waiter.requireOutcome("200 A", 35*time.Second)
	})
}

// A Selector that wants none of what is eligible is asked again when something changes.
func TestScenario43SelectorThatWantsNone(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{
		Resources: scenKeys("A"), Wait: time.Minute,
		Selector: func(_ *http.Request, eligible []hedgerow.Candidate) int { return len(eligible) - 2 },
	}
	scenTest(t, cfg, nil, func(s *scen) {
		x := s.begin("X")
		s.at(time.Second)
		x.requireRunning()
		s.NoError(s.pool.Add(hedgerow.Resource{ID: "B"}))
		x.requireOutcome("200 A", time.Second)
	})
}
