package hedgerow_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// A contractScript is one random call: how its attempts go, and what its caller does.
type contractScript struct {
	attempts [4]scripted.Step
	body     string
	noHedge  bool
	cancel   time.Duration // 0: never
	timeout  bool          // it is a deadline
	read     int           // of the response; less than 0: all
}

// contractRandom returns a script. Times are whole milliseconds but for the caller's, so that the two never tie.
func contractRandom(rnd *rand.Rand) *contractScript {
	s := &contractScript{noHedge: rnd.IntN(10) == 0, read: rnd.IntN(4) - 1}
	if rnd.IntN(3) == 0 {
		s.body = "payload"
	}
	if rnd.IntN(4) == 0 {
		s.cancel = time.Duration(rnd.IntN(60))*time.Millisecond + 500*time.Microsecond
		s.timeout = rnd.IntN(2) == 0
	}
	for i := range s.attempts {
		s.attempts[i] = contractRandomStep(rnd, i > 0)
	}
	return s
}

func contractRandomStep(rnd *rand.Rand, hedge bool) scripted.Step {
	statuses := []int{200, 200, 200, 201, 204, 404, 401, 429, 500, 503}
	step := scripted.Step{
		After:         time.Duration(rnd.IntN(50)) * time.Millisecond,
		Status:        statuses[rnd.IntN(len(statuses))],
		Body:          "answer",
		IgnoreContext: rnd.IntN(5) == 0,
		LeaveBody:     rnd.IntN(5) == 0,
	}
	if rnd.IntN(3) == 0 {
		step.BodyAfter = time.Duration(rnd.IntN(50)) * time.Millisecond
	}
	switch kind := rnd.IntN(20); {
	case kind < 3:
		step.Status, step.Err = 0, errContract
	case kind == 3:
		step.Err = errContract
	case kind == 4:
		step.Do = func(*http.Request) (*http.Response, error) { return nil, nil } //nolint:nilnil // a fault under test
	case kind == 5:
		step.BodyReader = io.NopCloser(iotest.ErrReader(errContract))
	case kind == 6:
		step.BodyReader = io.NopCloser(io.MultiReader(strings.NewReader("ans"), iotest.ErrReader(errContract)))
	case kind == 7:
		step.BodyReader = io.NopCloser(strings.NewReader(""))
	case kind == 8:
		step.BodyReader = http.NoBody
	case kind == 9 && hedge:
		step.Panic = "a hedge panics"
	case kind == 10 && hedge:
		step.Goexit = true
	}
	return step
}

type contractScriptKey struct{}

// A contractTally is what the calls should have counted.
type contractTally struct {
	mu       sync.Mutex // guards the fields below
	total    hedgerow.Counters
	attempts uint64
	gone     uint64 // hedged calls whose caller gave up first
}

// play makes one call and checks what it gets. It returns what is wrong.
func (tally *contractTally) play(tb testing.TB, tr *hedgerow.Transport, base *scripted.Transport, s *contractScript) error {
	tb.Helper()
	ctx := context.WithValue(tb.Context(), contractScriptKey{}, s)
	cancel := context.CancelFunc(func() {})
	switch {
	case s.cancel > 0 && s.timeout:
		ctx, cancel = context.WithTimeout(ctx, s.cancel)
	case s.cancel > 0:
		ctx, cancel = context.WithCancel(ctx)
		time.AfterFunc(s.cancel, cancel)
	}
	defer cancel()
	var infos []hedgerow.CallInfo
	ctx = hedgerow.WithCall(ctx, hedgerow.Call{
		NoHedge: s.noHedge, Done: func(i hedgerow.CallInfo) { infos = append(infos, i) },
	})
	req := base.NewRequest(tb, http.MethodGet, contractURL, s.body).WithContext(ctx)
	before := contractCopy(req)

	resp, err := tr.RoundTrip(req)
	cause := ctx.Err()
	switch {
	case (resp == nil) == (err == nil):
		return fmt.Errorf("response %v and error %w", resp, err)
	case errors.Is(err, hedgerow.ErrSuperseded):
		return fmt.Errorf("the loser's cause reached the caller: %w", err)
	case len(infos) != 1:
		return fmt.Errorf("Done was called %d times", len(infos))
	case resp != nil && (resp.Body == nil || resp.Request != req):
		return fmt.Errorf("response %v", resp)
	case resp == nil && cause == nil && !errors.Is(err, errContract) && !strings.HasPrefix(err.Error(), "hedgerow: base RoundTripper"):
		return fmt.Errorf("an error of nobody: %w", err)
	}
	if fmt.Sprint(before) != fmt.Sprint(contractCopy(req)) {
		return errors.New("the request was changed")
	}
	tally.note(infos[0], resp, err, cause)
	if resp == nil {
		return nil
	}
	defer func() { _ = resp.Body.Close() }()
	if s.read < 0 {
		body, err := io.ReadAll(resp.Body)
		if cause == nil && err == nil && resp.StatusCode != http.StatusNoContent && string(body) != "answer" && len(body) != 0 {
			return fmt.Errorf("body %q", body)
		}
		if err != nil && !errors.Is(err, errContract) && ctx.Err() == nil && resp.StatusCode != http.StatusNoContent {
			return fmt.Errorf("the body failed: %w", err)
		}
		return nil
	}
	_, _ = io.ReadFull(resp.Body, make([]byte, s.read))
	return nil
}

func (tally *contractTally) note(info hedgerow.CallInfo, resp *http.Response, err, cause error) {
	tally.mu.Lock()
	defer tally.mu.Unlock()
	tally.attempts += uint64(info.Attempts)
	total := &tally.total
	total.Requests++
	if resp != nil && resp.StatusCode >= 500 || err != nil && !errors.Is(cause, context.Canceled) {
		total.Errors++
	}
	if info.Attempts < 2 {
		return
	}
	total.Hedged++
	total.Hedges += uint64(info.Attempts - 1)
	switch {
	case info.Winner == hedgerow.Attempt{}, err != nil && cause != nil: // the caller gave up
		tally.gone++
	case info.Winner.Kind == hedgerow.AttemptHedge:
		total.HedgeWins++
	default:
		total.PrimaryWins++
	}
}

// C26, and whatever else has to hold for all calls, over 10 000 random ones.
func TestC26NeverResponseAndErrorTogether(t *testing.T) {
	t.Parallel()
	const bubbles, rounds, together = 40, 50, 5
	for seed := range uint64(bubbles) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { contractPlay(t, seed, rounds, together) })
		})
	}
}

func contractPlay(t *testing.T, seed uint64, rounds, together int) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 26))
	base := scripted.Func(func(_ int, req *http.Request) scripted.Step {
		a, ok := hedgerow.AttemptFromContext(req.Context())
		s, found := req.Context().Value(contractScriptKey{}).(*contractScript)
		if !ok || !found || a.Number >= len(s.attempts) {
			return scripted.Step{Err: errors.New("not one of the call's attempts")}
		}
		return s.attempts[a.Number]
	})
	var fired, skipped, primaries, hedges, won, superseded atomic.Int64
	tr, err := hedgerow.New(hedgerow.Config{
		Base: base, Detach: rnd.IntN(2) == 0,
		Hedge: hedgerow.HedgeConfig{
			Delay: contractDelay, MaxHedges: 1 + rnd.IntN(3), BudgetPercent: 20 + rnd.Float64()*80,
			Signal: hedgerow.Signal(rnd.IntN(2)),
		},
		Breaker: hedgerow.BreakerConfig{Disabled: rnd.IntN(4) > 0},
		Hooks: hedgerow.Hooks{
			HedgeFired:   func(context.Context, hedgerow.HedgeEvent) { fired.Add(1) },
			HedgeSkipped: func(context.Context, hedgerow.SkipEvent) { skipped.Add(1) },
			AttemptDone: func(_ context.Context, e hedgerow.AttemptEvent) {
				if e.Attempt.Kind == hedgerow.AttemptHedge {
					hedges.Add(1)
				} else {
					primaries.Add(1)
				}
				if e.Won {
					won.Add(1)
				}
				if e.Superseded {
					superseded.Add(1)
				}
			},
		},
	})
	require.NoError(t, err)
	require.NoError(t, tr.Register("GET /v1/things", hedgerow.EndpointConfig{Name: "things"}))

	var tally contractTally
	for round := range rounds {
		faults := make(chan error, together)
		for range together {
			s := contractRandom(rnd)
			go func() { faults <- tally.play(t, tr, base, s) }()
		}
		for range together {
			require.NoError(t, <-faults, "seed %d, round %d", seed, round)
		}
		time.Sleep(time.Duration(rnd.IntN(2000)) * time.Millisecond)
	}
	contractSettle(t, base)

	total := tr.Stats().Total
	var refusals int64
	for _, n := range total.Skipped {
		refusals += int64(n)
	}
	require.Equal(t, refusals, skipped.Load())
	want := tally.total
	want.Skipped, want.Warmup = total.Skipped, total.Warmup
	require.Equal(t, want, total)
	require.Equal(t, total.Hedged, total.HedgeWins+total.PrimaryWins+tally.gone)
	require.Len(t, base.Records(), int(tally.attempts))
	require.Equal(t, tally.attempts, total.Requests+total.Hedges)
	require.EqualValues(t, total.Hedges, fired.Load())
	require.EqualValues(t, total.Hedges, hedges.Load(), "each hedge ends once")
	require.EqualValues(t, total.Requests, primaries.Load(), "each primary ends once")
	require.LessOrEqual(t, won.Load(), int64(total.Requests))
	require.LessOrEqual(t, superseded.Load(), primaries.Load()+hedges.Load()-won.Load())
}
