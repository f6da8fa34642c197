package hedgerow_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// circuitRig drives one circuit through a list of steps. Tickets are kept by the name of the attempt.
type circuitRig struct {
	c       hedgerow.CircuitCore
	tickets map[string]hedgerow.CircuitTicket
}

// circuitStep is one line of a circuit's life. want is what do answers, in words.
type circuitStep struct {
	at   time.Duration
	do   func(r *circuitRig, now time.Time) string
	want string
}

func runCircuit(t *testing.T, cfg hedgerow.BreakerConfig, steps []circuitStep) {
	t.Helper()
	r := &circuitRig{hedgerow.NewCircuitCore(cfg.WithDefaults()), map[string]hedgerow.CircuitTicket{}}
	for i, s := range steps {
		require.Equal(t, s.want, s.do(r, coreEpoch.Add(s.at)), "step %d at %v", i, s.at)
	}
}

// outcomes records n outcomes of attempts that needed no ticket, such as primaries. It answers with the transitions.
func outcomes(n int, failed bool) func(*circuitRig, time.Time) string {
	return func(r *circuitRig, now time.Time) string {
		var all []hedgerow.CircuitMove
		for range n {
			all = append(all, r.c.Record(now, failed)...)
		}
		return describeMoves(all)
	}
}

func succeed(n int) func(*circuitRig, time.Time) string { return outcomes(n, false) }

func fail(n int) func(*circuitRig, time.Time) string { return outcomes(n, true) }

// admitTrial asks for an attempt. It answers yes or no, and the transitions. The look beforehand must agree.
func admitTrial(name string) func(*circuitRig, time.Time) string {
	return func(r *circuitRig, now time.Time) string {
		before, state := r.c.Peek(now), r.c.State(now)
		ticket, ok, moves := r.c.Admit(now)
		answer := "no"
		if ok {
			r.tickets[name] = ticket
			answer = "yes"
		}
		if before != ok || state != r.c.State(now) {
			answer += ", which is not what peek and state said"
		}
		return strings.TrimSpace(answer + " " + describeMoves(moves))
	}
}

// trialDone and trialBroke record the outcome of an admitted attempt.
func trialDone(string) func(*circuitRig, time.Time) string {
	return func(r *circuitRig, now time.Time) string {
		return describeMoves(r.c.Record(now, false))
	}
}

func trialBroke(string) func(*circuitRig, time.Time) string {
	return func(r *circuitRig, now time.Time) string {
		return describeMoves(r.c.Record(now, true))
	}
}

// trialCancelled ends an admitted attempt without an outcome.
func trialCancelled(name string) func(*circuitRig, time.Time) string {
	return func(r *circuitRig, _ time.Time) string {
		r.c.Release(r.tickets[name])
		return ""
	}
}

// lookAt answers with the state, whether an attempt would be admitted, and the end of the cooldown if there is one.
func lookAt(r *circuitRig, now time.Time) string {
	answer := r.c.State(now).String()
	if !r.c.Peek(now) {
		answer += ", shut"
	}
	if until := r.c.Until(now); !until.IsZero() {
		answer += " until " + until.Sub(coreEpoch).String()
	}
	return answer
}

func describeMoves(moves []hedgerow.CircuitMove) string {
	texts := make([]string, 0, len(moves))
	for _, m := range moves {
		texts = append(texts, m.From.String()+">"+m.To.String())
	}
	return strings.Join(texts, " ")
}

func TestCircuitSteps(t *testing.T) {
	t.Parallel()
	const s = time.Second
	type config = hedgerow.BreakerConfig
	tests := []struct {
		name  string
		cfg   config
		steps []circuitStep
	}{
		{"closed admits all and needs no tickets", config{}, []circuitStep{
			{0, lookAt, "closed"},
			{0, admitTrial("a"), "yes"},
			{0, trialCancelled("a"), ""},
			{0, admitTrial("b"), "yes"},
			{0, trialBroke("b"), ""},
			{0, lookAt, "closed"},
		}},
		{"opens at MinSamples, not before", config{}, []circuitStep{
			{0, fail(19), ""},
			{0, lookAt, "closed"},
			{0, fail(1), "closed>open"},
			{0, lookAt, "open, shut until 30s"},
			{0, admitTrial("a"), "no"},
		}},
		{"opens at the threshold, not below", config{}, []circuitStep{
			{0, succeed(20), ""},
			{0, fail(19), ""},
			{0, fail(1), "closed>open"},
		}},
		{"a success can be the sample that was missing", config{}, []circuitStep{
			{0, fail(19), ""},
			{0, succeed(1), "closed>open"},
		}},
		{"a threshold with a rounding error is met exactly", config{ErrorRateThreshold: 0.07, MinSamples: 100}, []circuitStep{
			{0, succeed(93), ""},
			{0, fail(6), ""},
			{0, fail(1), "closed>open"},
		}},
		{"a threshold of 1 wants failures only", config{ErrorRateThreshold: 1, MinSamples: 5}, []circuitStep{
			{0, succeed(1), ""},
			{0, fail(100), ""},
			{60 * s, fail(4), ""},
			{60 * s, fail(1), "closed>open"},
		}},

		{"outcomes count over one to two windows", config{}, []circuitStep{
			{0, fail(10), ""},
			{29 * s, fail(5), ""},
			{59 * s, fail(4), ""},
			{59 * s, fail(1), "closed>open"},
		}},
		{"and are gone after two", config{}, []circuitStep{
			{0, fail(19), ""},
			{60 * s, fail(19), ""},
			{60 * s, fail(1), "closed>open"},
		}},
		{"the older window goes first", config{}, []circuitStep{
			{0, fail(15), ""},
			{30 * s, fail(4), ""},
			{60 * s, fail(15), ""}, // 4 and 15
			{60 * s, fail(1), "closed>open"},
		}},
		{"good outcomes fade too", config{}, []circuitStep{
			{0, succeed(1000), ""},
			{30 * s, fail(19), ""},
			{30 * s, fail(1), ""},
			{60 * s, fail(1), "closed>open"},
		}},
		{"a clock that goes back counts into the current window", config{}, []circuitStep{
			{45 * s, fail(10), ""},
			{0, fail(9), ""},
			{-3600 * s, fail(1), "closed>open"},
		}},

		{"open lasts the cooldown", config{}, []circuitStep{
			{5 * s, fail(20), "closed>open"},
			{5 * s, lookAt, "open, shut until 35s"},
			{35*s - 1, lookAt, "open, shut until 35s"},
			{35*s - 1, admitTrial("a"), "no"},
			{35 * s, lookAt, "half_open"},
			{35 * s, admitTrial("a"), "yes open>half_open"},
		}},
		{"what arrives while open does not count", config{}, []circuitStep{
			{0, fail(20), "closed>open"},
			{1 * s, fail(50), ""},
			{29 * s, succeed(50), ""},
			{29 * s, lookAt, "open, shut until 30s"},
			{30 * s, succeed(4), "open>half_open"}, // the fifth is still to come
			{30 * s, succeed(1), "half_open>closed"},
		}},
		{"reading changes nothing", config{}, []circuitStep{
			{0, fail(20), "closed>open"},
			{40 * s, lookAt, "half_open"},
			{10 * s, lookAt, "open, shut until 30s"}, // a clock that goes back shows that it was not turned
			{40 * s, admitTrial("a"), "yes open>half_open"},
			{10 * s, lookAt, "half_open"},
		}},

		{"half-open admits HalfOpenTrials", config{HalfOpenTrials: 3}, []circuitStep{
			{0, fail(20), "closed>open"},
			{30 * s, admitTrial("a"), "yes open>half_open"},
			{30 * s, admitTrial("b"), "yes"},
			{30 * s, lookAt, "half_open"},
			{30 * s, admitTrial("c"), "yes"},
			{30 * s, lookAt, "half_open, shut"},
			{30 * s, admitTrial("d"), "no"},
			{99 * s, admitTrial("d"), "no"},
		}},
		{"a completed trial does not give its place to another", config{HalfOpenTrials: 3}, []circuitStep{
			{0, fail(20), "closed>open"},
			{30 * s, admitTrial("a"), "yes open>half_open"},
			{30 * s, admitTrial("b"), "yes"},
			{30 * s, admitTrial("c"), "yes"},
			{30 * s, trialDone("a"), ""},
			{30 * s, trialBroke("b"), ""},
			{30 * s, admitTrial("d"), "no"},
			{30 * s, trialDone("c"), "half_open>closed"},
			{30 * s, admitTrial("d"), "yes"},
		}},
		{"a cancelled one does", config{HalfOpenTrials: 2}, []circuitStep{
			{0, fail(20), "closed>open"},
			{30 * s, admitTrial("a"), "yes open>half_open"},
			{30 * s, admitTrial("b"), "yes"},
			{30 * s, admitTrial("c"), "no"},
			{30 * s, trialCancelled("a"), ""},
			{30 * s, admitTrial("c"), "yes"},
			{30 * s, admitTrial("d"), "no"},
			{30 * s, trialDone("b"), ""},
			{30 * s, trialDone("c"), "half_open>closed"},
		}},
		{"primaries decide as well as trials", config{HalfOpenTrials: 3}, []circuitStep{
			{0, fail(20), "closed>open"},
			{30 * s, admitTrial("a"), "yes open>half_open"},
			{30 * s, succeed(2), ""},
			{30 * s, trialBroke("a"), "half_open>closed"},
		}},
		{"primaries alone turn it half-open and decide", config{}, []circuitStep{
			{0, fail(20), "closed>open"},
			{31 * s, succeed(1), "open>half_open"},
			{31 * s, succeed(4), "half_open>closed"},
		}},
		{"closes below the threshold", config{HalfOpenTrials: 5}, []circuitStep{
			{0, fail(20), "closed>open"},
			{30 * s, fail(2), "open>half_open"},
			{30 * s, succeed(3), "half_open>closed"},
		}},
		{"opens again at the threshold, for a fresh cooldown", config{HalfOpenTrials: 4}, []circuitStep{
			{0, fail(20), "closed>open"},
			{40 * s, fail(2), "open>half_open"},
			{45 * s, succeed(2), "half_open>open"},
			{45 * s, lookAt, "open, shut until 1m15s"},
			{74 * s, admitTrial("a"), "no"},
			{75 * s, admitTrial("a"), "yes open>half_open"},
		}},
		{"every outcome is awaited, also when the first ones settle it", config{HalfOpenTrials: 4}, []circuitStep{
			{0, fail(20), "closed>open"},
			{30 * s, fail(3), "open>half_open"},
			{30 * s, lookAt, "half_open"},
			{30 * s, fail(1), "half_open>open"},
		}},
		{"one outcome can make two transitions", config{HalfOpenTrials: 1}, []circuitStep{
			{0, fail(20), "closed>open"},
			{30 * s, fail(1), "open>half_open half_open>open"},
			{60 * s, succeed(1), "open>half_open half_open>closed"},
			{60 * s, lookAt, "closed"},
		}},
		{"closing clears the window", config{HalfOpenTrials: 1}, []circuitStep{
			{0, fail(20), "closed>open"},
			{30 * s, succeed(1), "open>half_open half_open>closed"},
			{30 * s, fail(19), ""},
			{30 * s, fail(1), "closed>open"},
		}},
		{"trials are counted afresh in each phase", config{HalfOpenTrials: 2}, []circuitStep{
			{0, fail(20), "closed>open"},
			{30 * s, admitTrial("a"), "yes open>half_open"},
			{30 * s, admitTrial("b"), "yes"},
			{30 * s, fail(2), "half_open>open"},
			{60 * s, admitTrial("c"), "yes open>half_open"},
			{60 * s, admitTrial("d"), "yes"},
			{60 * s, admitTrial("e"), "no"},
			{60 * s, succeed(1), ""},
			{60 * s, succeed(1), "half_open>closed"},
		}},

		{"a straggler frees no place in a later phase, but counts", config{HalfOpenTrials: 2}, []circuitStep{
			{0, fail(20), "closed>open"},
			{30 * s, admitTrial("old"), "yes open>half_open"},
			{30 * s, admitTrial("older"), "yes"},
			{30 * s, fail(2), "half_open>open"},
			{60 * s, admitTrial("a"), "yes open>half_open"},
			{60 * s, admitTrial("b"), "yes"},
			{60 * s, trialCancelled("old"), ""},
			{60 * s, admitTrial("c"), "no"},
			{60 * s, trialDone("older"), ""},
			{60 * s, admitTrial("c"), "no"},
			{60 * s, trialDone("a"), "half_open>closed"}, // older and a
		}},
		{"an attempt from before it opened frees nothing, but counts", config{HalfOpenTrials: 1}, []circuitStep{
			{0, admitTrial("early"), "yes"},
			{0, admitTrial("earlier"), "yes"},
			{0, fail(20), "closed>open"},
			{30 * s, admitTrial("a"), "yes open>half_open"},
			{30 * s, trialCancelled("early"), ""},
			{30 * s, admitTrial("b"), "no"},
			{30 * s, trialDone("earlier"), "half_open>closed"},
		}},
		{"a ticket outlives its phase without harm", config{HalfOpenTrials: 2}, []circuitStep{
			{0, fail(20), "closed>open"},
			{30 * s, admitTrial("a"), "yes open>half_open"},
			{30 * s, fail(2), "half_open>open"},
			{31 * s, trialCancelled("a"), ""}, // open
			{60 * s, succeed(2), "open>half_open half_open>closed"},
			{60 * s, trialCancelled("a"), ""}, // closed
			{60 * s, fail(20), "closed>open"},
			{90 * s, admitTrial("b"), "yes open>half_open"},
			{90 * s, trialCancelled("a"), ""}, // half-open
			{90 * s, admitTrial("c"), "yes"},
			{90 * s, admitTrial("d"), "no"},
		}},
		{"cancelling twice makes no extra place", config{HalfOpenTrials: 1}, []circuitStep{
			{0, fail(20), "closed>open"},
			{30 * s, admitTrial("a"), "yes open>half_open"},
			{30 * s, trialCancelled("a"), ""},
			{30 * s, trialCancelled("a"), ""},
			{30 * s, admitTrial("b"), "yes"},
			{30 * s, admitTrial("c"), "no"},
		}},
		{"a clock that goes back does not take half-open away", config{HalfOpenTrials: 2}, []circuitStep{
			{0, fail(20), "closed>open"},
			{30 * s, admitTrial("a"), "yes open>half_open"},
			{10 * s, admitTrial("b"), "yes"},
			{10 * s, trialDone("a"), ""},
			{5 * s, trialDone("b"), "half_open>closed"},
		}},

		{"an endless window and an endless cooldown", config{Window: math.MaxInt64, Cooldown: math.MaxInt64}, []circuitStep{
			{0, fail(10), ""},
			{1e6 * s, fail(9), ""},
			{1e9 * s, fail(1), "closed>open"},
			{2e9 * s, admitTrial("a"), "no"},
		}},
		{"disabled is closed for good", config{Disabled: true}, []circuitStep{
			{0, fail(1000), ""},
			{0, lookAt, "closed"},
			{0, admitTrial("a"), "yes"},
			{0, trialBroke("a"), ""},
			{0, trialCancelled("a"), ""},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			runCircuit(t, tt.cfg, tt.steps)
		})
	}
}
