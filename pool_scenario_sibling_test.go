package hedgerow_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// scenLong is how a call goes that would hold its resource for long if nobody cancelled it.
var scenLong = scenSteps{scenHeld(time.Hour, scenOK)}

// scenCause returns the cause with which the attempt of a call on a resource was cancelled; nil: it was not.
func (s *scen) cause(send string) error {
	s.t.Helper()
	for _, rec := range s.base.Records() {
		if rec.Header.Get("Call")+"@"+scenResource(rec.Request) == send {
			return rec.Cause
		}
	}
	s.Fail("not sent", send)
	return nil
}

func TestScenario23CancelsTheYounger(t *testing.T) {
	t.Parallel()
	script := scenScript{
		"oldest": scenHold, "middle": {scenHeld(30*time.Millisecond, scenWait("10"))}, "youngest": scenLong,
	}
	scenTest(t, hedgerow.PoolConfig{Resources: scenKeys("A")}, script, func(s *scen) {
		oldest, middle, youngest := s.begin("oldest"), s.begin("middle"), s.begin("youngest")
		middle.requireOutcome("429 A", 30*time.Millisecond)
		youngest.requireOutcome("exhausted", 30*time.Millisecond)
		s.ErrorIs(s.cause("youngest@A"), hedgerow.ErrSuperseded)
		oldest.requireOutcome("200 A", time.Second)
		s.NoError(s.cause("oldest@A"))

		e := youngest.exhausted()
		s.Equal(hedgerow.ExhaustedNoResource, e.Reason)
		s.Equal(1, e.Attempts)
		s.Equal(s.start.Add(10*time.Second+30*time.Millisecond), e.NextAvailable)
		s.EqualValues(1, s.pool.Stats().SiblingCancels)
		s.EqualValues(1, s.status("A").SiblingCancels)
	})
}

func TestScenario24VictimGoesOn(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{Strategy: hedgerow.PrimaryBackup, Resources: scenKeys("A", "B")}
	script := scenScript{"X@A": {scenHeld(time.Second, scen429)}, "Y@A": scenLong}
	scenTest(t, cfg, script, func(s *scen) {
		x, y := s.begin("X"), s.begin("Y")
		x.requireOutcome("200 B", time.Second)
		y.requireOutcome("200 B", time.Second)
		s.at(2 * time.Second)
		s.Len(s.base.Records(), 4)
		s.EqualValues(2, s.pool.Stats().Retries)
		s.EqualValues(1, s.pool.Stats().SiblingCancels)
	})
}

func TestScenario25OlderIsLeftAlone(t *testing.T) {
	t.Parallel()
	script := scenScript{"older": scenHold, "younger": {scen429}}
	scenTest(t, hedgerow.PoolConfig{Resources: scenKeys("A")}, script, func(s *scen) {
		older := s.begin("older")
		s.Equal("429 A", s.call("younger"))
		older.requireOutcome("200 A", time.Second)
		s.Zero(s.pool.Stats().SiblingCancels)
	})
}

func TestScenario26LastAttemptSaysWhatTheSiblingSaid(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		step scripted.Step
		out  string
		says string
	}{
		"cooldown": {scen429, "429 A", "cooldown"},
		"disable":  {scen401, "401 A", "disabled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := hedgerow.PoolConfig{Resources: scenKeys("A", "B"), Strategy: hedgerow.PrimaryBackup, MaxAttempts: 1}
			script := scenScript{"X": {scenHeld(time.Second, tt.step)}, "Y": scenLong}
			scenTest(t, cfg, script, func(s *scen) {
				x, y := s.begin("X"), s.begin("Y")
				x.requireOutcome(tt.out, time.Second)
				y.requireOutcome("exhausted", time.Second)
				e := y.exhausted()
				s.Equal(hedgerow.ExhaustedAttempts, e.Reason)
				s.ErrorContains(e.Err, tt.says)
				s.NotErrorIs(e, context.Canceled)
				s.False(e.Timeout())
				s.Equal("ok 0, exhausted 2, failed 0, canceled 0", s.outcomes())
			})
		})
	}
}

func TestScenario27KeepSiblings(t *testing.T) {
	t.Parallel()
	script := scenScript{"X": {scenHeld(time.Millisecond, scen429)}, "Y": scenHold}
	scenTest(t, hedgerow.PoolConfig{Resources: scenKeys("A"), KeepSiblings: true}, script, func(s *scen) {
		x, y := s.begin("X"), s.begin("Y")
		x.requireOutcome("429 A", time.Millisecond)
		y.requireOutcome("200 A", time.Second)
		s.Zero(s.pool.Stats().SiblingCancels)
		s.Equal("ok 1, exhausted 1, failed 0, canceled 0", s.outcomes())
	})
}

func TestScenario28ResponseBeatsTheMark(t *testing.T) {
	t.Parallel()
	for name, held := range map[string]time.Duration{
		"at the same instant": time.Second,
		"after the mark":      time.Second + time.Nanosecond,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			deaf := scenHeld(held, scenOK)
			deaf.IgnoreContext = true
			cfg := hedgerow.PoolConfig{Strategy: hedgerow.PrimaryBackup, Resources: scenKeys("A", "B")}
			scenTest(t, cfg, scenScript{"X": {scenHeld(time.Second, scen429)}, "Y": {deaf}}, func(s *scen) {
				s.begin("X")
				y := s.begin("Y")
				y.requireOutcome("200 A", held)
				s.NoError(y.err)
				s.at(time.Minute)
				s.Equal("X@A,Y@A,X@B", s.sends())
			})
		})
	}
	// A base that obeys its context may answer and then fail to deliver the body.
	t.Run("but for a body that fails", func(t *testing.T) {
		t.Parallel()
		late := scripted.Step{Do: func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("A"))}, nil
		}}
		cfg := hedgerow.PoolConfig{Strategy: hedgerow.PrimaryBackup, Resources: scenKeys("A", "B")}
		scenTest(t, cfg, scenScript{"X@A": {scenHeld(time.Second, scen429)}, "Y@A": {late}}, func(s *scen) {
			x, y := s.begin("X"), s.begin("Y")
			x.requireOutcome("200 B", time.Second)
			y.requireOutcome("200 B", time.Second)
			s.NoError(y.err)
		})
	})
}

func TestScenario29StreamsAreLeftAlone(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status int
		begins time.Duration // when Y has its response; its body takes two seconds
	}{
		"handed out":      {http.StatusOK, 0},
		"being looked at": {http.StatusForbidden, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := hedgerow.PoolConfig{
				Resources: scenKeys("A"), Classifier: func(hedgerow.Outcome) hedgerow.Verdict { return hedgerow.Verdict{} },
			}
			script := scenScript{
				"X": {scenHeld(time.Second, scen429)},
				"Y": {{Status: tt.status, BodyAfter: 2 * time.Second, Body: "all of it"}},
			}
			scenTest(t, cfg, script, func(s *scen) {
				x, y := s.begin("X"), s.begin("Y")
				x.requireOutcome("429 A", time.Second)
				s.Equal("cooling 30s #1", s.state("A"))
				s.Equal("1", s.inFlight())
				y.requireOutcome(strconv.Itoa(tt.status)+" all of it", tt.begins)
				s.NoError(y.err)
				s.Equal(2*time.Second, s.now())
				s.Zero(s.pool.Stats().SiblingCancels)
			})
		})
	}
}

func TestScenario30CallersCancelWins(t *testing.T) {
	t.Parallel()
	t.Run("before the mark", func(t *testing.T) {
		t.Parallel()
		var cancel context.CancelFunc
		x := scripted.Step{After: time.Second, Do: func(req *http.Request) (*http.Response, error) {
			cancel()
			return &http.Response{
				StatusCode: http.StatusTooManyRequests, Header: http.Header{}, Body: io.NopCloser(http.NoBody),
			}, nil
		}}
		cfg := hedgerow.PoolConfig{Strategy: hedgerow.PrimaryBackup, Resources: scenKeys("A", "B")}
		scenTest(t, cfg, scenScript{"X@A": {x}, "Y": scenLong}, func(s *scen) {
			var ctx context.Context
			ctx, cancel = context.WithCancel(s.t.Context())
			s.begin("X")
			y := s.do(ctx, "Y")
			y.requireOutcome("canceled", time.Second)
			s.at(time.Minute)
			s.Equal("X@A,Y@A,X@B", s.sends())
			s.Equal("ok 1, exhausted 0, failed 0, canceled 1", s.outcomes())
		})
	})
	t.Run("in the hook", func(t *testing.T) {
		t.Parallel()
		var cancel context.CancelFunc
		cfg := hedgerow.PoolConfig{
			Strategy: hedgerow.PrimaryBackup, Resources: scenKeys("A", "B"),
			ResourceChange: func(hedgerow.ResourceEvent) { cancel() },
		}
		script := scenScript{"X@A": {scenHeld(time.Second, scen429)}, "Y": scenLong}
		scenTest(t, cfg, script, func(s *scen) {
			var ctx context.Context
			ctx, cancel = context.WithCancel(s.t.Context())
			s.begin("X")
			y := s.do(ctx, "Y")
			y.requireOutcome("canceled", time.Second)
			s.at(time.Minute)
			s.Equal("ok 1, exhausted 0, failed 0, canceled 1", s.outcomes())
		})
	})
	// The base returns the cause of the mark, which came first, but the caller has given up as well.
	t.Run("after the mark, before the base returns", func(t *testing.T) {
		t.Parallel()
		slow := scripted.Step{Do: func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			time.Sleep(time.Second)
			return nil, context.Cause(req.Context())
		}}
		script := scenScript{"X@A": {scenHeld(time.Second, scen429)}, "Y": {slow}}
		cfg := hedgerow.PoolConfig{Strategy: hedgerow.PrimaryBackup, Resources: scenKeys("A", "B")}
		scenTest(t, cfg, script, func(s *scen) {
			ctx, cancel := context.WithCancel(s.t.Context())
			s.begin("X")
			y := s.do(ctx, "Y")
			s.at(1500 * time.Millisecond)
			cancel()
			y.requireOutcome("canceled", 2*time.Second)
			s.at(time.Minute)
			s.Equal("ok 1, exhausted 0, failed 0, canceled 1", s.outcomes())
		})
	})
}
