package hedgerow_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/hedgerow-go/hedgerow"
)

// scenHold is how a call goes that holds its resource for a second.
var scenHold = scenSteps{scenHeld(time.Second, scenOK)}

func TestScenario01SpreadsHeldCalls(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{Resources: scenKeys("A", "B", "C")}
	scenTest(t, cfg, scenScript{"hold": scenHold}, func(s *scen) {
		s.beginAll("hold", 6)
		s.Equal("2/2/2", s.inFlight())
		s.at(time.Second)
		s.Equal("0/0/0", s.inFlight())
		s.Equal("ok 6, exhausted 0, failed 0, canceled 0", s.outcomes())
	})
}

func TestScenario02TakesTheLeastRecentlyUsed(t *testing.T) {
	t.Parallel()
	scenTest(t, hedgerow.PoolConfig{Resources: scenKeys("A", "B")}, nil, func(s *scen) {
		for _, want := range []string{"200 A", "200 B", "200 A"} {
			s.Equal(want, s.call("X"))
			time.Sleep(time.Second)
		}
	})
}

func TestScenario03FewestInFlightBeatsAge(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{Resources: scenKeys("A", "B")}
	scenTest(t, cfg, scenScript{"hold": scenHold}, func(s *scen) {
		held := s.begin("hold")
		s.Equal("200 B", s.call("X"))
		s.Equal("200 B", s.call("Y"))
		held.requireOutcome("200 A", time.Second)
	})
}

func TestScenario04PrimaryBackupKeepsToTheFirst(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{
		Strategy:  hedgerow.PrimaryBackup,
		Resources: []hedgerow.Resource{scenCap("A", 1), {ID: "B"}, {ID: "C"}},
	}
	scenTest(t, cfg, scenScript{"hold": scenHold}, func(s *scen) {
		for range 5 {
			s.Equal("200 A", s.call("X"))
		}
		held := s.begin("hold")
		s.Equal("200 B", s.call("Y"))
		s.Zero(s.status("C").Attempts)
		held.requireOutcome("200 A", time.Second)
	})
}

func TestScenario05PrimaryBackupFillsUpToTheCaps(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{
		Strategy:  hedgerow.PrimaryBackup,
		Resources: []hedgerow.Resource{scenCap("A", 8), scenCap("B", 8), {ID: "C"}},
	}
	scenTest(t, cfg, scenScript{"hold": scenHold}, func(s *scen) {
		s.beginAll("hold", 20)
		s.Equal("8/8/4", s.inFlight())
		s.Equal(2, s.pool.Stats().Saturated)
		s.at(time.Second)
	})
}

func TestScenario06RefusesAtTheCaps(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{Resources: []hedgerow.Resource{scenCap("A", 1), scenCap("B", 1)}}
	script := scenScript{"short": scenHold, "long": {scenHeld(time.Minute, scenOK)}}
	scenTest(t, cfg, script, func(s *scen) {
		s.begin("short")
		long := s.begin("long")
		refused := s.begin("X")
		refused.requireOutcome("exhausted", 0)
		e := refused.exhausted()
		s.Equal(hedgerow.ExhaustedNoResource, e.Reason)
		s.Zero(e.Attempts)
		s.True(e.NextAvailable.IsZero(), "nobody knows when a slot is given back")
		s.at(time.Second)
		s.Equal("200 A", s.call("Y"))
		long.requireOutcome("200 B", time.Minute)
	})
}

func TestScenario07HoldsTheSlotToTheEndOfTheBody(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{Resources: []hedgerow.Resource{scenCap("A", 1)}}
	scenTest(t, cfg, scenScript{"stream": {{BodyAfter: time.Second}}}, func(s *scen) {
		s.calls++
		resp, err := s.rt.RoundTrip(contractGet(s.t.Context(), s.t, contractURL))
		s.NoError(err)
		s.Equal("1", s.inFlight())
		s.Equal("exhausted", s.call("X"))

		s.NoError(resp.Body.Close())
		s.Equal("0", s.inFlight())
		stream := s.begin("stream")
		s.NoError(resp.Body.Close())
		s.Equal("1", s.inFlight(), "the second Close must not give back the slot of another call")
		stream.requireOutcome("200 A", 0)
		s.Equal("200 A", s.call("Y"))
	})
	t.Run("not if there is none", func(t *testing.T) {
		t.Parallel()
		scenTest(t, cfg, scenScript{"empty": {{Status: http.StatusNoContent}}}, func(s *scen) {
			s.calls++
			req := contractGet(s.t.Context(), s.t, contractURL)
			req.Header.Set("Call", "empty")
			resp, err := s.rt.RoundTrip(req)
			s.NoError(err)
			s.Equal("0", s.inFlight())
			_, err = io.ReadAll(resp.Body)
			s.NoError(err)
			s.NoError(resp.Body.Close())
		})
	})
}
