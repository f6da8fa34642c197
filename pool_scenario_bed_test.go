package hedgerow_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
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

// The outcomes of the scenarios. Each is a scripted.Step, whose body is the ID of the resource unless it has its own.
var (
	scenOK  = scripted.Step{}
	scen429 = scripted.Step{Status: http.StatusTooManyRequests}
	scen401 = scripted.Step{Status: http.StatusUnauthorized}
	scen502 = scripted.Step{Status: http.StatusBadGateway}
	scenErr = scripted.Step{Err: errContract}
)

// scenWait is a 429 that asks for a wait of some seconds.
func scenWait(seconds string) scripted.Step {
	return scripted.Step{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {seconds}}}
}

// scenHeld holds an outcome back for d.
func scenHeld(d time.Duration, step scripted.Step) scripted.Step {
	step.After = d
	return step
}

// A scenScript says what answers. Its keys are those of what is asked: a call on a resource, such as X@A, a call, or a
// resource; the first of these counts that has an entry. Of several steps the last repeats. What has none is ok.
type (
	scenScript map[string]scenSteps
	scenSteps  []scripted.Step
)

// scen is a pool in a bubble, over a scripted base.
type scen struct {
	*require.Assertions

	t     *testing.T
	pool  *hedgerow.Pool
	base  *scripted.Transport
	rt    http.RoundTripper
	start time.Time
	calls uint64
}

// scenTest runs a scenario in a bubble of its own and checks what must hold after each: no slot is held, every response
// body was closed once, every call had one outcome, and nothing runs any more.
func scenTest(t *testing.T, cfg hedgerow.PoolConfig, script scenScript, run func(*scen)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := scenNew(t, cfg, script)
		run(s)
		synctest.Wait()
		s.base.Check(t)
		stats := s.pool.Stats()
		s.Zero(stats.InFlight)
		s.Equal(s.calls, stats.CallsOK+stats.CallsExhausted+stats.CallsFailed+stats.CallsCanceled)
		s.EqualValues(len(s.base.Records()), stats.Attempts)
	})
}

// scenNew returns a pool without pauses, and with jitter at its least, unless cfg says otherwise.
func scenNew(t *testing.T, cfg hedgerow.PoolConfig, script scenScript) *scen {
	t.Helper()
	if cfg.RetryDelay == 0 {
		cfg.RetryDelay = -1
	}
	pool, err := hedgerow.NewPool(cfg)
	require.NoError(t, err)
	pool.SetJitter(func() float64 { return 0 })
	var mu sync.Mutex
	asked := make(map[string]int)
	base := scripted.Func(func(_ int, req *http.Request) scripted.Step {
		resource, call := scenResource(req), req.Header.Get("Call")
		step := scenOK
		for _, key := range []string{call + "@" + resource, call, resource} {
			if steps := script[key]; len(steps) > 0 {
				mu.Lock()
				step = steps[min(asked[key], len(steps)-1)]
				asked[key]++
				mu.Unlock()
				break
			}
		}
		if step.Body == "" {
			step.Body = resource
		}
		return step
	})
	return &scen{Assertions: require.New(t), t: t, pool: pool, base: base, rt: pool.Wrap(base), start: time.Now()}
}

// scenKeys returns resources without anything but their IDs.
func scenKeys(ids ...string) []hedgerow.Resource {
	rs := make([]hedgerow.Resource, len(ids))
	for i, id := range ids {
		rs[i].ID = id
	}
	return rs
}

// scenCap returns a resource with a cap.
func scenCap(id string, n int) hedgerow.Resource { return hedgerow.Resource{ID: id, MaxInFlight: n} }

// scenResource returns the ID of the resource that an attempt is for.
func scenResource(req *http.Request) string {
	a, _ := hedgerow.AttemptFromContext(req.Context())
	return a.Resource
}

// A scenCall is a call that runs or has ended.
type scenCall struct {
	s    *scen
	name string
	done chan struct{}
	out  string // once done: status and body, or what kind of error
	err  error
	end  time.Duration // from the start of the scenario
}

// do begins a call, reads its response and closes it. It returns when the call waits, holds, or has ended.
func (s *scen) do(ctx context.Context, name string) *scenCall {
	s.t.Helper()
	req := contractGet(ctx, s.t, contractURL)
	req.Header.Set("Call", name)
	s.calls++
	c := &scenCall{s: s, name: name, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		resp, err := s.rt.RoundTrip(req)
		c.end = time.Since(s.start)
		if err != nil {
			c.err, c.out = err, scenError(err)
			return
		}
		body, err := io.ReadAll(resp.Body)
		c.err = errors.Join(err, resp.Body.Close())
		c.out = fmt.Sprintf("%d %s", resp.StatusCode, body)
	}()
	synctest.Wait()
	return c
}

// begin is do with a context that ends with the test.
func (s *scen) begin(name string) *scenCall {
	s.t.Helper()
	return s.do(s.t.Context(), name)
}

// beginAll begins n calls of one name, one after another.
func (s *scen) beginAll(name string, n int) []*scenCall {
	s.t.Helper()
	calls := make([]*scenCall, n)
	for i := range calls {
		calls[i] = s.begin(name)
	}
	return calls
}

// call makes a call and returns its outcome.
func (s *scen) call(name string) string {
	s.t.Helper()
	return s.begin(name).outcome()
}

// scenError says what kind of error err is.
func scenError(err error) string {
	_, exhausted := errors.AsType[*hedgerow.ExhaustedError](err)
	switch {
	case errors.Is(err, hedgerow.ErrSuperseded):
		return "superseded"
	case exhausted:
		return "exhausted"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	}
	return "failed"
}

// outcome waits for the end of the call and returns what it was, such as "200 A" or "exhausted".
func (c *scenCall) outcome() string {
	<-c.done
	return c.out
}

// requireOutcome waits for the end of the call and checks what it was, and when.
func (c *scenCall) requireOutcome(want string, at time.Duration) {
	c.s.t.Helper()
	c.s.Equal(want, c.outcome(), "call %s: %v", c.name, c.err)
	c.s.Equal(at, c.end, "call %s", c.name)
}

// requireRunning checks that the call has not ended.
func (c *scenCall) requireRunning() {
	c.s.t.Helper()
	select {
	case <-c.done:
		c.s.Fail("has ended", "call %s: %s", c.name, c.out)
	default:
	}
}

// exhausted returns the error of a call that was exhausted.
func (c *scenCall) exhausted() *hedgerow.ExhaustedError {
	c.s.t.Helper()
	<-c.done
	e, ok := errors.AsType[*hedgerow.ExhaustedError](c.err)
	c.s.True(ok, "call %s: %v", c.name, c.err)
	return e
}

// at waits until d from the start of the scenario.
func (s *scen) at(d time.Duration) {
	time.Sleep(time.Until(s.start.Add(d)))
	synctest.Wait()
}

// now is the time since the start of the scenario.
func (s *scen) now() time.Duration { return time.Since(s.start) }

// sends lists the attempts, such as "X@A,Y@B".
func (s *scen) sends() string {
	var sends []string
	for _, rec := range s.base.Records() {
		sends = append(sends, rec.Header.Get("Call")+"@"+scenResource(rec.Request))
	}
	return strings.Join(sends, ",")
}

// times lists when the attempts were sent.
func (s *scen) times() []time.Duration {
	var times []time.Duration
	for _, rec := range s.base.Records() {
		times = append(times, rec.Start.Sub(s.start))
	}
	return times
}

// status returns the status of a resource.
func (s *scen) status(id string) hedgerow.ResourceStatus {
	s.t.Helper()
	for _, r := range s.pool.Snapshot() {
		if r.ID == id {
			return r
		}
	}
	s.Fail("no resource", id)
	return hedgerow.ResourceStatus{}
}

// state is the state of a resource in short, such as "cooling 30s #1": the rest that remains, and how many in a row.
func (s *scen) state(id string) string {
	s.t.Helper()
	r := s.status(id)
	text := r.State.String()
	if !r.Until.IsZero() {
		text += " " + time.Until(r.Until).String()
	}
	if r.Probing {
		text += " probing"
	}
	return fmt.Sprintf("%s #%d", text, r.ConsecutiveCooldowns)
}

// inFlight lists the attempts in flight by resource, such as "2/0".
func (s *scen) inFlight() string {
	var counts []string
	for _, r := range s.pool.Snapshot() {
		counts = append(counts, strconv.Itoa(r.InFlight))
	}
	return strings.Join(counts, "/")
}

// outcomes counts the calls that have ended.
func (s *scen) outcomes() string {
	st := s.pool.Stats()
	return fmt.Sprintf("ok %d, exhausted %d, failed %d, canceled %d",
		st.CallsOK, st.CallsExhausted, st.CallsFailed, st.CallsCanceled)
}
