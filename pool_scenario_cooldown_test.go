package hedgerow_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hedgerow-go/hedgerow"
)

func TestScenario08ClimbsTheTable(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{Resources: scenKeys("A"), MaxAttempts: 1}
	scenTest(t, cfg, scenScript{"A": {scen429}}, func(s *scen) {
		for _, step := range []struct {
			at   time.Duration
			want string
		}{
			{0, "cooling 30s #1"},
			{30 * time.Second, "cooling 2m0s #2"},
			{150 * time.Second, "cooling 5m0s #3"},
			{450 * time.Second, "cooling 10m0s #4"},
			{1050 * time.Second, "cooling 10m0s #5"},
		} {
			s.at(step.at)
			s.Equal("429 A", s.call("X"))
			s.Equal(step.want, s.state("A"))
		}
		s.Equal("ok 0, exhausted 5, failed 0, canceled 0", s.outcomes())
	})
}

func TestScenario09EndsAtTheHintedInstant(t *testing.T) {
	t.Parallel()
	scenTest(t, hedgerow.PoolConfig{Resources: scenKeys("A")}, scenScript{"X": {scenWait("10")}}, func(s *scen) {
		s.Equal("429 A", s.call("X"))
		s.Equal("cooling 10s #1", s.state("A"))
		s.at(10*time.Second - 1)
		s.Equal("exhausted", s.call("Y"))
		s.at(10 * time.Second)
		s.Equal("200 A", s.call("Y"))
	})
}

func TestScenario10OnlyEverExtends(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ younger, older, after, end string }{
		"shorter after longer": {younger: "30", older: "1", after: "cooling 30s #1", end: "cooling 30s #1"},
		"longer after shorter": {younger: "1", older: "30", after: "cooling 1s #1", end: "cooling 30s #1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			script := scenScript{
				"older":   {scenHeld(time.Nanosecond, scenWait(tt.older))},
				"younger": {scenWait(tt.younger)},
			}
			scenTest(t, hedgerow.PoolConfig{Resources: scenKeys("A")}, script, func(s *scen) {
				older := s.begin("older")
				s.Equal("429 A", s.call("younger"))
				s.Equal(tt.after, s.state("A"))
				older.requireOutcome("429 A", time.Nanosecond)
				left := time.Until(s.status("A").Until).Round(time.Second)
				s.Equal(30*time.Second, left)
				s.Equal(1, s.status("A").ConsecutiveCooldowns)
				s.EqualValues(2, s.pool.Stats().Cooldowns)
			})
		})
	}
}

func TestScenario11OKAfterTheEndClears(t *testing.T) {
	t.Parallel()
	scenTest(t, hedgerow.PoolConfig{Resources: scenKeys("A")}, scenScript{"X": {scen429}}, func(s *scen) {
		s.Equal("429 A", s.call("X"))
		s.at(30 * time.Second)
		s.Equal("200 A", s.call("Y"))
		s.Equal("healthy #0", s.state("A"))
	})
}

func TestScenario12OlderOKChangesNothing(t *testing.T) {
	t.Parallel()
	script := scenScript{"older": scenHold, "younger": {scen429}}
	scenTest(t, hedgerow.PoolConfig{Resources: scenKeys("A")}, script, func(s *scen) {
		older := s.begin("older")
		s.Equal("429 A", s.call("younger"))
		older.requireOutcome("200 A", time.Second)
		s.Equal("cooling 29s #1", s.state("A"))
		s.EqualValues(1, s.status("A").Successes)
	})
}

func TestScenario13ZeroWaitRestsTheFloor(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{Strategy: hedgerow.PrimaryBackup, Resources: scenKeys("A", "B")}
	scenTest(t, cfg, scenScript{"A": {scenWait("0"), scenOK}}, func(s *scen) {
		s.begin("X").requireOutcome("200 B", 0)
		s.Equal("cooling 1s #1", s.state("A"))
		s.at(time.Second)
		s.begin("Y").requireOutcome("200 A", time.Second)
	})
}

func TestScenario14EndIsNoticedAtTheNextPick(t *testing.T) {
	t.Parallel()
	var events []hedgerow.ResourceEvent
	cfg := hedgerow.PoolConfig{
		Resources:      scenKeys("A"),
		ResourceChange: func(e hedgerow.ResourceEvent) { events = append(events, e) },
	}
	scenTest(t, cfg, scenScript{"X": {scen429}}, func(s *scen) {
		s.Equal("429 A", s.call("X"))
		s.at(31 * time.Second)
		s.Equal("healthy #1", s.state("A"))
		s.Len(events, 1)
		s.Equal("200 A", s.call("Y"))
		s.Equal([]hedgerow.ResourceEvent{
			{
				Pool: "default", ID: "A", From: hedgerow.ResourceHealthy, To: hedgerow.ResourceCooling, Seq: 1,
				Reason: "status 429", Until: s.start.Add(30 * time.Second),
			},
			{Pool: "default", ID: "A", From: hedgerow.ResourceCooling, To: hedgerow.ResourceHealthy, Seq: 2},
		}, events)
	})
}

func TestScenario15BurstIsOneStep(t *testing.T) {
	t.Parallel()
	script := scenScript{"late": {scen429}}
	for i, name := range []string{"1", "2", "3", "4"} { // the youngest answers first
		script[name] = scenSteps{scenHeld(time.Duration(4-i)*time.Millisecond, scen429)}
	}
	cfg := hedgerow.PoolConfig{Resources: scenKeys("A"), KeepSiblings: true}
	scenTest(t, cfg, script, func(s *scen) {
		for _, name := range []string{"1", "2", "3", "4"} {
			s.begin(name)
		}
		s.at(4 * time.Millisecond)
		s.Equal("cooling 30s #1", s.state("A"))
		s.EqualValues(4, s.pool.Stats().Cooldowns)
		s.at(time.Minute)
		s.Equal("429 A", s.call("late"))
		s.Equal("cooling 2m0s #2", s.state("A"))
	})
}

func TestScenario16DisabledIsNotSentToAgain(t *testing.T) {
	t.Parallel()
	scenTest(t, hedgerow.PoolConfig{Resources: scenKeys("A", "B")}, scenScript{"A": {scen401}}, func(s *scen) {
		for range 4 {
			s.Equal("200 B", s.call("X"))
		}
		s.Equal("X@A,X@B,X@B,X@B,X@B", s.sends())
		s.Equal("disabled #0", s.state("A"))
		s.EqualValues(1, s.pool.Stats().Disables)
	})
}

func TestScenario17DisableIsFinal(t *testing.T) {
	t.Parallel()
	script := scenScript{
		"older": scenHold, "middle": {scenHeld(time.Second, scen429)}, "youngest": {scen401},
	}
	scenTest(t, hedgerow.PoolConfig{Resources: scenKeys("A"), MaxAttempts: 1}, script, func(s *scen) {
		older, middle := s.begin("older"), s.begin("middle")
		s.Equal("401 A", s.call("youngest"))
		older.requireOutcome("200 A", time.Second)
		middle.requireOutcome("429 A", time.Second)
		s.Equal("disabled #0", s.state("A"))
		s.Zero(s.pool.Stats().Cooldowns)
	})
}

func TestScenario18ProbesWithOneAttempt(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{
		Strategy: hedgerow.PrimaryBackup, ProbeOnRecovery: true,
		Resources: []hedgerow.Resource{scenCap("A", 10), {ID: "B"}},
	}
	scenTest(t, cfg, scenScript{"X@A": {scenWait("5")}, "hold": scenHold}, func(s *scen) {
		s.Equal("200 B", s.call("X"))
		s.at(5 * time.Second)
		s.beginAll("hold", 10)
		s.Equal("1/9", s.inFlight())
		s.Equal("healthy probing #1", s.state("A"))
		s.Equal(1, s.status("A").MaxInFlight)
		s.Equal(1, s.pool.Stats().Saturated)
		s.at(6 * time.Second)
		s.Equal("healthy #0", s.state("A"))
		s.Equal(10, s.status("A").MaxInFlight)
		s.beginAll("hold", 10)
		s.Equal("10/0", s.inFlight())
		s.at(7 * time.Second)
	})
}

func TestScenario19FailedProbeCoolsAgain(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{Resources: scenKeys("A"), ProbeOnRecovery: true}
	scenTest(t, cfg, scenScript{"bad": {scen429}, "hold": scenHold}, func(s *scen) {
		s.Equal("429 A", s.call("bad"))
		s.at(30 * time.Second)
		s.Equal("429 A", s.call("bad"))
		s.Equal("cooling 2m0s #2", s.state("A"))
		s.at(150 * time.Second)
		probe := s.begin("hold")
		s.Equal("healthy probing #2", s.state("A"))
		s.Equal("exhausted", s.call("X"))
		probe.requireOutcome("200 A", 151*time.Second)
		s.Equal("healthy #0", s.state("A"))
	})
}

func TestScenario20CancelledProbeDecidesNothing(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{Resources: scenKeys("A"), ProbeOnRecovery: true}
	scenTest(t, cfg, scenScript{"bad": {scen429}, "hold": scenHold}, func(s *scen) {
		s.Equal("429 A", s.call("bad"))
		s.at(30 * time.Second)
		ctx, cancel := context.WithCancel(s.t.Context())
		probe := s.do(ctx, "hold")
		cancel()
		probe.requireOutcome("canceled", 30*time.Second)
		s.Equal("healthy probing #1", s.state("A"))

		next := s.begin("hold")
		s.Equal("exhausted", s.call("X"))
		next.requireOutcome("200 A", 31*time.Second)
		s.Equal("ok 1, exhausted 2, failed 0, canceled 1", s.outcomes())
	})
}

func TestScenario21OldAttemptIsNoProbe(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{Resources: scenKeys("A"), ProbeOnRecovery: true}
	script := scenScript{
		"old": {scenHeld(31*time.Second, scenOK)}, "bad": {scen429}, "probe": {scenHeld(5*time.Second, scenOK)},
	}
	scenTest(t, cfg, script, func(s *scen) {
		old := s.begin("old")
		s.Equal("429 A", s.call("bad"))
		s.at(30 * time.Second)
		probe := s.begin("probe")
		s.Equal("2", s.inFlight())
		old.requireOutcome("200 A", 31*time.Second)
		s.Equal("healthy probing #1", s.state("A"))
		s.Equal("exhausted", s.call("X"))
		probe.requireOutcome("200 A", 35*time.Second)
		s.Equal("healthy #0", s.state("A"))
	})
}

func TestScenario22WaitersSurviveTheProbe(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{Resources: scenKeys("A"), ProbeOnRecovery: true, Wait: time.Minute}
	scenTest(t, cfg, scenScript{"A": {scenWait("5"), scenHeld(time.Second, scenOK), scenOK}}, func(s *scen) {
		s.begin("bad").requireRunning()
		waiters := s.beginAll("X", 2)
		s.at(5 * time.Second)
		s.Equal("1", s.inFlight())
		s.Equal("healthy probing #1", s.state("A"))
		s.at(6 * time.Second)
		synctest.Wait()
		for _, c := range waiters {
			c.requireOutcome("200 A", 6*time.Second)
		}
		s.Equal("ok 3, exhausted 0, failed 0, canceled 0", s.outcomes())
	})
}
