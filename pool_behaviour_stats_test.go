package hedgerow_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// P67 to P70: each call ends in one of four ways.
func TestP68Outcomes(t *testing.T) {
	t.Parallel()
	type counts struct{ ok, exhausted, failed, canceled, passed uint64 }
	for name, tc := range map[string]struct {
		step   scripted.Step
		method string
		url    string
		cancel bool
		down   bool
		synth  bool
		want   counts
	}{
		"OK":                    {scripted.Step{}, "", "", false, false, false, counts{ok: 1}},
		"neutral":               {scripted.Step{Status: 500}, "", "", false, false, false, counts{ok: 1}},
		"cooldown":              {pspec429, "", "", false, false, false, counts{exhausted: 1}},
		"disable":               {pspec401, "", "", false, false, false, counts{exhausted: 1}},
		"retry":                 {pspec502, "", "", false, false, false, counts{exhausted: 1}},
		"retry, not repeatable": {pspec502, "POST", "", false, false, false, counts{exhausted: 1}},
		"nothing eligible":      {scripted.Step{}, "", "", false, true, false, counts{exhausted: 1}},
		"synthetic":             {scripted.Step{}, "", "", false, true, true, counts{exhausted: 1}},
		"errors":                {scripted.Step{Err: errContract}, "", "", false, false, false, counts{exhausted: 1}},
		"error, not repeatable": {scripted.Step{Err: errContract}, "POST", "", false, false, false, counts{failed: 1}},
		"local error":           {scripted.Step{}, "B D", "", false, false, false, counts{failed: 1}},
		"canceled":              {scripted.Step{After: time.Hour}, "", "", true, false, false, counts{canceled: 1}},
		"foreign host":          {scripted.Step{}, "", "https://other.test/", false, false, false, counts{passed: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(2), MaxAttempts: 2, Synthetic429: tc.synth})
				if tc.down {
					require.NoError(t, p.Disable("A"))
					require.NoError(t, p.Disable("B"))
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tc.cancel {
					time.AfterFunc(time.Second, cancel)
				}
				base := scripted.Func(func(int, *http.Request) scripted.Step { return tc.step })
				req := contractGet(ctx, t, pspecURL)
				if tc.url != "" {
					req = contractGet(ctx, t, tc.url)
				}
				if tc.method != "" {
					req.Method = tc.method
				}
				resp, err := p.Wrap(base).RoundTrip(req)
				if err == nil {
					contractRead(t, resp)
				}
				s := p.Stats()
				require.Equal(t, tc.want, counts{s.CallsOK, s.CallsExhausted, s.CallsFailed, s.CallsCanceled, s.PassedThrough})
				require.Zero(t, s.InFlight)
				if tc.url == "" {
					require.Len(t, base.Records(), int(s.Attempts))
				}
				base.Check(t)
			})
		})
	}
}

func TestP67AndP70Gauges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rs := pspecKeys(5)
		rs[2].MaxInFlight, rs[3].RateLimit = 1, 0.001
		p := pspecPool(t, hedgerow.PoolConfig{Resources: rs, Strategy: hedgerow.PrimaryBackup})
		require.NoError(t, p.Disable("A"))
		require.NoError(t, p.Report("B", "", hedgerow.Verdict{Action: hedgerow.ActionCooldown}))
		release := make(chan struct{})
		base := scripted.Func(func(int, *http.Request) scripted.Step { return pspecHeld(release) })
		for range 3 {
			pspecGo(t.Context(), t, p.Wrap(base))
		}
		require.Equal(t, "CDE", pspecSent(base))
		s := p.Stats()
		require.Equal(t, []int{3, 1, 1}, []int{s.Healthy, s.Cooling, s.Disabled})
		require.Equal(t, []int{3, 1, 1}, []int{s.InFlight, s.Eligible, s.Saturated})
		close(release)
		time.Sleep(time.Second)
		require.Zero(t, p.Stats().Saturated)
		require.NoError(t, p.Remove("E"))
		require.EqualValues(t, 3, p.Stats().Attempts) // P70
	})
}

// P69: what is counted of reports.
func TestP69CountsTransitions(t *testing.T) {
	t.Parallel()
	p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(1)})
	for _, a := range []hedgerow.Action{
		hedgerow.ActionCooldown, hedgerow.ActionCooldown, hedgerow.ActionDisable, hedgerow.ActionDisable, hedgerow.ActionCooldown,
	} {
		require.NoError(t, pspecReport(a)(p))
	}
	require.NoError(t, p.Disable("A"))
	s := p.Snapshot()[0]
	require.EqualValues(t, 2, s.Cooldowns)
	require.EqualValues(t, 1, s.Disables)
	require.Zero(t, s.Attempts+s.Successes)
}

func TestP71PoolName(t *testing.T) {
	t.Parallel()
	require.Equal(t, "default", pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(1)}).Name())
	require.Equal(t, "keys", pspecPool(t, hedgerow.PoolConfig{Name: "keys", Resources: pspecKeys(1)}).Name())
}

// P72 and P73: the events of a story.
func TestP72AndP73Events(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var events []hedgerow.ResourceEvent
		p := pspecPool(t, hedgerow.PoolConfig{
			Name: "n", Resources: pspecKeys(1), ResourceChange: func(e hedgerow.ResourceEvent) { events = append(events, e) },
		})
		start := time.Now()
		cool := hedgerow.Verdict{Action: hedgerow.ActionCooldown, Wait: time.Second, Reason: "r"}
		require.NoError(t, p.Report("A", "", cool))
		require.NoError(t, p.Report("A", "", cool))
		require.NoError(t, p.Report("A", "m", cool))
		time.Sleep(time.Second)
		for range 2 {
			_, _, err := pspecGet(t, p.Wrap(pspecScript(nil)))
			require.NoError(t, err)
		}
		require.NoError(t, p.Report("A", "m", cool))
		for _, f := range []func(string) error{p.Enable, p.Disable, p.Disable, p.Enable, p.Enable, p.Remove} {
			require.NoError(t, f("A"))
		}
		require.NoError(t, p.Add(pspecKeys(1)[0]))
		healthy, cooling, disabled := hedgerow.ResourceHealthy, hedgerow.ResourceCooling, hedgerow.ResourceDisabled
		one, two := start.Add(time.Second), start.Add(2*time.Second)
		require.Equal(t, []hedgerow.ResourceEvent{
			{Pool: "n", ID: "A", Seq: 1, From: healthy, To: cooling, Reason: "r", Until: one},
			{Pool: "n", ID: "A", Seq: 2, From: cooling, To: cooling, Reason: "r", Until: one},
			{Pool: "n", ID: "A", Seq: 3, From: cooling, To: cooling, Reason: "r", Until: one, ScopeKey: "m"},
			{Pool: "n", ID: "A", Seq: 4, From: cooling, To: healthy},
			{Pool: "n", ID: "A", Seq: 5, From: healthy, To: healthy, Reason: "r", Until: two, ScopeKey: "m"},
			{Pool: "n", ID: "A", Seq: 6, From: healthy, To: disabled, Reason: "by the administrator"},
			{Pool: "n", ID: "A", Seq: 7, From: disabled, To: healthy},
		}, events)
	})
}

// P74 to P76: a hook that panics, calls the pool, and is called by many at once.
func TestP74ToP76HooksInOrder(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var seqs []uint64
	running := 0
	var p *hedgerow.Pool
	p = pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(4), ResourceChange: func(e hedgerow.ResourceEvent) {
		mu.Lock()
		running++
		busy := running
		seqs = append(seqs, e.Seq)
		mu.Unlock()
		_, _ = p.Snapshot(), p.Stats()
		if e.To == hedgerow.ResourceDisabled {
			_ = p.Enable(e.ID) // an admin call must not deadlock
		}
		mu.Lock()
		running--
		mu.Unlock()
		if busy > 1 || e.Seq%3 == 0 {
			panic("hook")
		}
	}})
	var wg sync.WaitGroup
	for _, id := range []string{"A", "B", "C", "D"} {
		wg.Go(func() {
			for range 50 {
				_ = p.Disable(id)
			}
		})
	}
	wg.Wait()
	for i, seq := range seqs {
		require.EqualValues(t, i+1, seq)
	}
	require.GreaterOrEqual(t, len(seqs), 8)
	require.Zero(t, p.Stats().Disabled)
}

// P77 and P78: whose cancellation it was.
func TestP77AndP78Cancellations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := pspecPool(t, hedgerow.PoolConfig{
			Resources: pspecKeys(2), Strategy: hedgerow.PrimaryBackup,
			ResourceChange: func(hedgerow.ResourceEvent) {},
		})
		// The elder's verdict and the younger's caller at the same instant.
		base := pspecScript(map[string][]scripted.Step{"A": {
			{Do: func(*http.Request) (*http.Response, error) {
				time.Sleep(time.Second)
				cancel()
				return &http.Response{StatusCode: http.StatusTooManyRequests, Body: http.NoBody, Header: http.Header{}}, nil
			}}, {After: time.Hour},
		}})
		elder := pspecGo(t.Context(), t, p.Wrap(base))
		younger := pspecGo(ctx, t, p.Wrap(base))
		require.ErrorIs(t, (<-younger).err, context.Canceled)
		require.NoError(t, (<-elder).err)
		require.Equal(t, "AAB", pspecSent(base))
		require.EqualValues(t, 1, p.Stats().CallsCanceled)
		pspecIdle(t, p, 2)
		// Nobody's of ours: as it is.
		alone := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(1), MaxAttempts: 1})
		_, _, err := pspecGet(t, alone.Wrap(scripted.New(scripted.Step{Err: context.Canceled})))
		require.Equal(t, context.Canceled, err)
		pspecIdle(t, alone, 1)
	})
}

// P79 is TestNewPoolReportsEveryFault and TestNewPoolBounds.
func TestP79NothingIsMadeOfFaults(t *testing.T) {
	t.Parallel()
	p, err := hedgerow.NewPool(hedgerow.PoolConfig{})
	require.Nil(t, p)
	require.Error(t, err)
}

// P80: a negative duration of a Classifier is the table, not a panic.
func TestP80NegativeDurations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pspecPool(t, hedgerow.PoolConfig{
			Resources: pspecKeys(1), Wait: time.Hour,
			Classifier: func(hedgerow.Outcome) hedgerow.Verdict {
				return hedgerow.Verdict{Action: hedgerow.ActionCooldown, Wait: -time.Hour}
			},
		})
		_, _, err := pspecGet(t, p.Wrap(pspecScript(nil)), hedgerow.Call{Wait: -time.Hour})
		require.NoError(t, err)
		require.Equal(t, 30*time.Second, pspecRest(p)["A"])
		_, _, err = pspecGet(t, p.Wrap(pspecScript(nil)), hedgerow.Call{Wait: -1})
		exhausted, ok := errors.AsType[*hedgerow.ExhaustedError](err)
		require.True(t, ok)
		require.Equal(t, hedgerow.ExhaustedNoResource, exhausted.Reason)
		require.Equal(t, 30*time.Second, time.Until(exhausted.NextAvailable))
		require.Contains(t, err.Error(), `"A" cooling until 2000-01-01T00:00:30Z`)
	})
}

// The 429 in place of an ExhaustedError is one that any client understands.
func TestSynthetic429(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		do    func(*hedgerow.Pool) error
		after string
	}{
		"cooling":  {pspecCool(1500 * time.Millisecond), "2"},
		"soon":     {pspecCool(time.Millisecond), "1"},
		"disabled": {pspecReport(hedgerow.ActionDisable), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(1), Synthetic429: true})
				require.NoError(t, tc.do(p))
				before := p.Snapshot()
				req := contractGet(t.Context(), t, pspecURL)
				resp, err := p.Wrap(scripted.New()).RoundTrip(req)
				require.NoError(t, err)
				body, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.Equal(t, "429 Too Many Requests", resp.Status)
				require.Equal(t, "HTTP/1.1", resp.Proto)
				require.Same(t, req, resp.Request)
				require.Equal(t, tc.after, resp.Header.Get("Retry-After"))
				require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
				require.Len(t, body, int(resp.ContentLength))
				require.True(t, strings.HasPrefix(string(body), `{"error":{"message":"hedgerow: pool`))
				require.Equal(t, before, p.Snapshot())
			})
		})
	}
}
