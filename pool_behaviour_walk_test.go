package hedgerow_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// P20 to P24: after a cooldown one attempt at a time, until one ends well.
func TestP20P22AndP24ProbeOnRecovery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rs := pspecKeys(2)
		rs[0].MaxInFlight = 10
		p := pspecPool(t, hedgerow.PoolConfig{Resources: rs, Strategy: hedgerow.PrimaryBackup, ProbeOnRecovery: true})
		// P22: an attempt from before the cooldown neither takes the place of the probe nor decides it.
		old := pspecGo(t.Context(), t, p.Wrap(scripted.New(scripted.Step{After: 7 * time.Second})))
		require.NoError(t, p.Report("A", "", hedgerow.Verdict{Action: hedgerow.ActionCooldown, Wait: 5 * time.Second}))
		time.Sleep(5 * time.Second)
		release := make(chan struct{})
		base := scripted.Func(func(int, *http.Request) scripted.Step { return pspecHeld(release) })
		for range 4 {
			pspecGo(t.Context(), t, p.Wrap(base))
		}
		require.Equal(t, "ABBB", pspecSent(base))
		s := p.Snapshot()[0] // P24: one cap everywhere
		require.True(t, s.Probing)
		require.Equal(t, 1, s.MaxInFlight)
		require.Equal(t, 1, p.Stats().Saturated)
		<-old
		require.True(t, p.Snapshot()[0].Probing)
		close(release)
		synctest.Wait()
		require.False(t, p.Snapshot()[0].Probing)
		require.Equal(t, 10, p.Snapshot()[0].MaxInFlight)
		pspecIdle(t, p, 5)
	})
}

// P21: how a probe may end, and what is left of it.
func TestP21ProbeEnds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		step    scripted.Step
		cancel  bool
		do      func(*hedgerow.Pool) error
		probing bool
		state   hedgerow.ResourceState
	}{
		"OK":       {scripted.Step{}, false, nil, false, hedgerow.ResourceHealthy},
		"cooldown": {pspec429, false, nil, false, hedgerow.ResourceCooling},
		"retry":    {pspec502, false, nil, true, hedgerow.ResourceHealthy},
		"neutral":  {scripted.Step{Status: 500}, false, nil, true, hedgerow.ResourceHealthy},
		"error":    {scripted.Step{Err: errContract}, false, nil, true, hedgerow.ResourceHealthy},
		"canceled": {scripted.Step{After: time.Hour}, true, nil, true, hedgerow.ResourceHealthy},
		"enable":   {scripted.Step{After: time.Second}, false, func(p *hedgerow.Pool) error { return p.Enable("A") }, false, hedgerow.ResourceHealthy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(1), ProbeOnRecovery: true, MaxAttempts: 1})
				require.NoError(t, p.Report("A", "", hedgerow.Verdict{Action: hedgerow.ActionCooldown, Wait: time.Second}))
				time.Sleep(time.Second)
				ctx, cancel := context.WithCancel(t.Context())
				done := pspecGo(ctx, t, p.Wrap(scripted.New(tc.step)))
				if tc.cancel {
					cancel()
				}
				if tc.do != nil {
					require.NoError(t, tc.do(p))
				}
				<-done
				cancel()
				s := p.Snapshot()[0]
				require.Equal(t, tc.state, s.State)
				require.Equal(t, tc.probing, s.Probing)
				if tc.probing { // the place is free again
					_, _, err := pspecGet(t, p.Wrap(pspecScript(nil)))
					require.NoError(t, err)
					require.False(t, p.Snapshot()[0].Probing)
				}
			})
		})
	}
}

func TestP23WaitersWaitForTheProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(1), ProbeOnRecovery: true, Wait: time.Minute})
		require.NoError(t, p.Report("A", "", hedgerow.Verdict{Action: hedgerow.ActionCooldown, Wait: 10 * time.Second}))
		base := scripted.Func(func(int, *http.Request) scripted.Step { return scripted.Step{After: 2 * time.Second} })
		var all []<-chan pspecOutcome
		for range 3 {
			all = append(all, pspecGo(t.Context(), t, p.Wrap(base)))
		}
		at := make(map[time.Duration]int)
		for _, ch := range all {
			o := <-ch
			require.NoError(t, o.err)
			at[o.at]++
		}
		require.Equal(t, map[time.Duration]int{12 * time.Second: 1, 14 * time.Second: 2}, at)
	})
}

func TestP25ProbeDisabled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(1), ProbeDisabled: time.Minute, MaxAttempts: 1})
		fails := scripted.Func(func(int, *http.Request) scripted.Step { return pspec401 })
		_, _, err := pspecGet(t, p.Wrap(fails))
		require.NoError(t, err)
		for range 2 { // a disable starts the interval again
			time.Sleep(time.Minute - 1)
			_, _, err = pspecGet(t, p.Wrap(fails))
			require.Error(t, err)
			time.Sleep(time.Nanosecond)
			_, _, err = pspecGet(t, p.Wrap(fails))
			require.NoError(t, err)
		}
		require.Len(t, fails.Records(), 3)
		require.EqualValues(t, 1, p.Stats().Disables) // P69
		time.Sleep(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		probe := pspecGo(ctx, t, p.Wrap(scripted.New(scripted.Step{After: time.Hour})))
		_, _, err = pspecGet(t, p.Wrap(fails)) // one at a time
		require.Error(t, err)
		cancel() // frees the place
		<-probe
		_, _, err = pspecGet(t, p.Wrap(pspecScript(nil)))
		require.NoError(t, err)
		require.Equal(t, hedgerow.ResourceHealthy, p.Snapshot()[0].State)
		require.NoError(t, p.Disable("A"))
		time.Sleep(time.Hour)
		_, _, err = pspecGet(t, p.Wrap(fails)) // never after the admin
		require.Error(t, err)
	})
}

// P26 and P28 to P36: a verdict of the elder of two attempts on A, and what becomes of the younger one.
func TestP28Siblings(t *testing.T) {
	t.Parallel()
	held := scripted.Step{After: 10 * time.Second, Body: "own"}
	for name, tc := range map[string]struct {
		verdict scripted.Step
		younger scripted.Step
		method  string
		keep    bool
		max     int
		want    string // body of the younger one, "": it is exhausted
		marks   uint64
	}{
		"P29 cooldown":                {pspec429, held, http.MethodGet, false, 0, "B", 1},
		"P29 disable":                 {pspec401, held, http.MethodGet, false, 0, "B", 1},
		"P28 retry":                   {pspec502, held, http.MethodGet, false, 0, "own", 0},
		"P28 neutral":                 {scripted.Step{Status: 500}, held, http.MethodGet, false, 0, "own", 0},
		"P28 OK":                      {scripted.Step{}, held, http.MethodGet, false, 0, "own", 0},
		"P34 kept":                    {pspec429, held, http.MethodGet, true, 0, "own", 0},
		"P36 not replayable":          {pspec429, held, http.MethodPost, false, 0, "own", 0},
		"P31 last attempt, cooldown":  {pspec429, held, http.MethodGet, false, 1, "", 1},
		"P31 last attempt, disable":   {pspec401, held, http.MethodGet, false, 1, "", 1},
		"P32 deaf base":               {pspec429, scripted.Step{After: 10 * time.Second, Body: "own", IgnoreContext: true}, http.MethodGet, false, 0, "own", 1},
		"P33 error of another making": {pspec429, pspecRewrapped(), http.MethodGet, false, 0, "B", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := pspecPool(t, hedgerow.PoolConfig{
					Resources: pspecKeys(2), Strategy: hedgerow.PrimaryBackup, KeepSiblings: tc.keep, MaxAttempts: tc.max,
				})
				verdict := tc.verdict
				verdict.After = time.Second
				base := pspecScript(map[string][]scripted.Step{"A": {verdict, tc.younger}})
				elder := pspecGo(t.Context(), t, p.Wrap(base))
				req, err := http.NewRequestWithContext(t.Context(), tc.method, pspecURL, http.NoBody)
				require.NoError(t, err)
				_, body, err := pspecDo(t, p.Wrap(base), req)
				require.NoError(t, (<-elder).err)
				require.Equal(t, tc.marks, p.Stats().SiblingCancels)
				require.Equal(t, tc.marks, p.Snapshot()[0].SiblingCancels)
				if tc.want != "" {
					require.NoError(t, err)
					require.Equal(t, tc.want, body)
				} else {
					var exhausted *hedgerow.ExhaustedError
					require.ErrorAs(t, err, &exhausted)
					require.NotErrorIs(t, err, context.Canceled)
					require.NotErrorIs(t, err, hedgerow.ErrSuperseded)
					says := map[string]string{"401": "disable", "429": "cooldown"}[tc.verdict.Body]
					require.ErrorContains(t, exhausted.Err, says)
				}
				require.Zero(t, p.Snapshot()[0].ConsecutiveFailures)
				pspecIdle(t, p, 2)
				base.Check(t)
			})
		})
	}
}

// pspecRewrapped is a step that reports its cancellation as an error that does not tell.
func pspecRewrapped() scripted.Step {
	return scripted.Step{Do: func(req *http.Request) (*http.Response, error) {
		select {
		case <-req.Context().Done():
		case <-time.After(10 * time.Second):
		}
		return nil, errors.New("connection reset")
	}}
}

func TestP30VictimsGoBeforeHooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cause error
		base := pspecScript(map[string][]scripted.Step{"A": {{Status: 429, After: time.Second}, {After: time.Hour}}})
		p := pspecPool(t, hedgerow.PoolConfig{
			Resources: pspecKeys(2), Strategy: hedgerow.PrimaryBackup,
			ResourceChange: func(hedgerow.ResourceEvent) { cause = context.Cause(base.Records()[1].Request.Context()) },
		})
		elder := pspecGo(t.Context(), t, p.Wrap(base))
		younger := pspecGo(t.Context(), t, p.Wrap(base))
		require.Equal(t, "B", (<-younger).body)
		require.Equal(t, "B", (<-elder).body)
		require.Equal(t, hedgerow.ErrSuperseded, cause)
	})
}

func TestP35MovedCallIsTheYoungest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(3), Strategy: hedgerow.PrimaryBackup})
		wait := scripted.Step{After: time.Hour}
		base := pspecScript(map[string][]scripted.Step{
			"A": {{Status: 429, After: time.Second, Body: "A"}, wait},
			"B": {{Status: 429, After: time.Second, Body: "B"}, wait},
		})
		rt := p.Wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
			resp, err := base.RoundTrip(req)
			if err != nil {
				time.Sleep(time.Millisecond) // a moved call comes after the one that has moved it
			}
			return resp, err
		}))
		elder, younger := pspecGo(t.Context(), t, rt), pspecGo(t.Context(), t, rt)
		require.Equal(t, "C", (<-elder).body)
		require.Equal(t, "C", (<-younger).body)
		require.EqualValues(t, 1, p.Snapshot()[0].SiblingCancels)
	})
}

// P37 to P42, P45 and P47: one call, the keys it is sent to, and what it ends with.
func TestP37Walk(t *testing.T) {
	t.Parallel()
	steps := func(s ...scripted.Step) []scripted.Step { return s }
	for name, tc := range map[string]struct {
		keys   int
		max    int
		script map[string][]scripted.Step
		sent   string
		status int // 0: an error
	}{
		"P37 one key, fail-fast":        {1, 0, map[string][]scripted.Step{"A": steps(pspec429)}, "A", 429},
		"P37 three at least":            {1, 0, map[string][]scripted.Step{"A": steps(pspec502)}, "AAA", 502},
		"P37 each once":                 {5, 0, map[string][]scripted.Step{"A": steps(pspec429), "B": steps(pspec401), "C": steps(pspec502), "D": steps(pspec429)}, "ABCDE", 200},
		"P38 retry on a single one":     {1, 3, map[string][]scripted.Step{"A": steps(pspec502, scripted.Step{})}, "AA", 200},
		"P40 OK as it is":               {2, 0, map[string][]scripted.Step{"A": steps(scripted.Step{Status: 403})}, "A", 403},
		"P40 neutral as it is":          {2, 0, map[string][]scripted.Step{"A": steps(scripted.Step{Status: 500})}, "A", 500},
		"P41 the last response":         {2, 0, map[string][]scripted.Step{"A": steps(pspec429), "B": steps(scripted.Step{Err: errContract})}, "ABB", 429},
		"P41 an error":                  {2, 2, map[string][]scripted.Step{"A": steps(scripted.Step{Err: errContract}), "B": steps(scripted.Step{Err: errContract})}, "AB", 0},
		"P42 untried ones first":        {2, 4, map[string][]scripted.Step{"A": steps(pspec502), "B": steps(pspec502)}, "ABAA", 502},
		"one attempt":                   {2, 1, map[string][]scripted.Step{"A": steps(pspec429)}, "A", 429},
		"response after an error":       {2, 2, map[string][]scripted.Step{"A": steps(scripted.Step{Err: errContract}), "B": steps(pspec401)}, "AB", 401},
		"a later response replaces one": {2, 2, map[string][]scripted.Step{"A": steps(pspec429), "B": steps(pspec401)}, "AB", 401},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(tc.keys), MaxAttempts: tc.max, Strategy: hedgerow.PrimaryBackup})
				base := pspecScript(tc.script)
				status, body, err := pspecGet(t, p.Wrap(base))
				require.Equal(t, tc.sent, pspecSent(base))
				require.Equal(t, tc.status, status)
				switch status {
				case 0:
					require.ErrorIs(t, err, errContract)
					exhausted, ok := errors.AsType[*hedgerow.ExhaustedError](err)
					require.True(t, ok)
					require.Equal(t, len(tc.sent), exhausted.Attempts)
				case 401, 429, 502:
					require.Len(t, body, 3) // of the last response, in full
				}
				s := p.Stats()
				require.EqualValues(t, len(tc.sent), s.Attempts)
				require.EqualValues(t, len(tc.sent)-1, s.Retries) // P45
				pspecIdle(t, p, 1)
				base.Check(t)
			})
		})
	}
}

func TestP39PastDeadlineSendsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(1)})
		ctx, cancel := context.WithTimeout(t.Context(), 0)
		defer cancel()
		base := scripted.New()
		require.ErrorIs(t, (<-pspecGo(ctx, t, p.Wrap(base))).err, context.DeadlineExceeded)
		require.Empty(t, base.Records())
		require.EqualValues(t, 1, p.Stats().CallsCanceled)
	})
}

func TestP43EmptiedPool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(1), Wait: time.Hour})
		require.NoError(t, p.Remove("A"))
		o := <-pspecGo(t.Context(), t, p.Wrap(scripted.New()))
		require.Equal(t, &hedgerow.ExhaustedError{
			Pool: "default", Reason: hedgerow.ExhaustedNoResource, Resources: []hedgerow.ResourceStatus{},
		}, o.err)
		require.Zero(t, o.at)
	})
}

func TestP44DeadlineInterruptsAnAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(2)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		base := scripted.New(scripted.Step{After: time.Hour})
		o := <-pspecGo(ctx, t, p.Wrap(base))
		require.ErrorIs(t, o.err, context.DeadlineExceeded)
		require.Equal(t, time.Second, o.at)
		require.Zero(t, p.Snapshot()[0].ConsecutiveFailures)
		require.EqualValues(t, 1, p.Stats().CallsCanceled)
	})
}

func TestP46NestedPools(t *testing.T) {
	t.Parallel()
	inner := pspecPool(t, hedgerow.PoolConfig{Name: "inner", Resources: []hedgerow.Resource{{ID: "i"}}})
	require.NoError(t, inner.Disable("i"))
	outer := pspecPool(t, hedgerow.PoolConfig{Name: "outer", Resources: pspecKeys(2)})
	_, _, err := pspecGet(t, outer.Wrap(inner.Wrap(scripted.New())))
	exhausted, ok := errors.AsType[*hedgerow.ExhaustedError](err)
	require.True(t, ok)
	require.Equal(t, "inner", exhausted.Pool)
	s := outer.Stats()
	require.EqualValues(t, 1, s.Attempts)
	require.Zero(t, s.Resources[0].ConsecutiveFailures)
	require.EqualValues(t, 1, s.CallsFailed)

	require.NoError(t, inner.Enable("i"))
	base := scripted.New(scripted.Step{Do: func(req *http.Request) (*http.Response, error) {
		a, _ := hedgerow.AttemptFromContext(req.Context())
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"X-Pool": {a.Pool}}, Body: io.NopCloser(http.NoBody)}, nil
	}})
	resp, err := outer.Wrap(inner.Wrap(base)).RoundTrip(contractGet(t.Context(), t, pspecURL))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "inner", resp.Header.Get("X-Pool")) // the nearest
}
