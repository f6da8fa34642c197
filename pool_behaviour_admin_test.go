package hedgerow_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// P47: a pause only before the same resource, and none that would not end before the deadline.
func TestP47Pauses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		keys, max       int
		deadline        time.Duration // 0: none
		sent            string
		atLeast, atMost time.Duration
		negative        bool
	}{
		"same one":            {1, 2, 0, "AA", time.Second, 3 * time.Second, false},
		"another one":         {2, 2, 0, "AB", 0, 0, false},
		"both, then the same": {2, 3, 0, "ABA", time.Second, 3 * time.Second, false},
		"none wanted":         {1, 3, 0, "AAA", 0, 0, true},
		"deadline too near":   {1, 3, time.Second, "A", 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cfg := hedgerow.PoolConfig{Resources: pspecKeys(tc.keys), MaxAttempts: tc.max, RetryDelay: 2 * time.Second, Strategy: hedgerow.PrimaryBackup}
				if tc.negative {
					cfg.RetryDelay = -1
				}
				p := pspecPool(t, cfg)
				ctx := t.Context()
				if tc.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.deadline)
					defer cancel()
				}
				base := scripted.Func(func(int, *http.Request) scripted.Step { return pspec502 })
				o := <-pspecGo(ctx, t, p.Wrap(base))
				require.NoError(t, o.err)
				require.Equal(t, http.StatusBadGateway, o.status)
				require.Equal(t, "502", o.body)
				require.Equal(t, tc.sent, pspecSent(base))
				require.GreaterOrEqual(t, o.at, tc.atLeast)
				require.LessOrEqual(t, o.at, tc.atMost)
			})
		})
	}
}

// P48 to P54 and P80: A cools for ten seconds (or is else not to be had), and when a call that waits gets what.
func TestP49Waiting(t *testing.T) {
	t.Parallel()
	const cools = 10 * time.Second
	in := func(d time.Duration, f func(*hedgerow.Pool) error) func(*testing.T, *hedgerow.Pool) {
		return func(t *testing.T, p *hedgerow.Pool) {
			t.Helper()
			time.AfterFunc(d, func() { _ = f(p) })
		}
	}
	disable := func(p *hedgerow.Pool) error { return p.Disable("A") }
	for name, tc := range map[string]struct {
		wait, call time.Duration
		deadline   time.Duration
		pause      time.Duration
		do         func(*testing.T, *hedgerow.Pool)
		ok         bool
		atLeast    time.Duration
		atMost     time.Duration
	}{
		"P49 off by default":        {0, 0, 0, 0, nil, false, 0, 0},
		"P49 until it has ended":    {time.Minute, 0, 0, 0, nil, true, cools, cools},
		"P49 the call's own":        {0, time.Minute, 0, 0, nil, true, cools, cools},
		"P80 the call says none":    {time.Minute, -1, 0, 0, nil, false, 0, 0},
		"P51 too short":             {cools, 0, 0, 0, nil, false, 0, 0},
		"P51 deadline at the end":   {time.Minute, 0, cools, 0, nil, false, 0, 0},
		"P48 spread":                {time.Minute, 0, 0, 8 * time.Second, nil, true, cools, cools + 8*time.Second},
		"P48 within Wait":           {cools + time.Second, 0, 0, time.Hour, nil, true, cools, cools + time.Second},
		"P50 all disabled":          {time.Minute, 0, 0, 0, func(t *testing.T, p *hedgerow.Pool) { t.Helper(); require.NoError(t, disable(p)) }, false, 0, 0},
		"P52 enable":                {time.Minute, 0, 0, 0, in(3*time.Second, func(p *hedgerow.Pool) error { return p.Enable("A") }), true, 3 * time.Second, 3 * time.Second},
		"P52 add":                   {time.Minute, 0, 0, 0, in(3*time.Second, func(p *hedgerow.Pool) error { return p.Add(pspecKeys(2)[1]) }), true, 3 * time.Second, 3 * time.Second},
		"P52 set":                   {time.Minute, 0, 0, 0, in(3*time.Second, func(p *hedgerow.Pool) error { return p.SetResources(pspecKeys(2)) }), true, 3 * time.Second, 3 * time.Second},
		"P52 disable":               {time.Minute, 0, 0, 0, in(3*time.Second, disable), false, 3 * time.Second, 3 * time.Second},
		"P52 remove":                {time.Minute, 0, 0, 0, in(3*time.Second, func(p *hedgerow.Pool) error { return p.Remove("A") }), false, 3 * time.Second, 3 * time.Second},
		"P52 extended":              {time.Minute, 0, 0, 0, in(3*time.Second, pspecCool(20*time.Second)), true, 23 * time.Second, 23 * time.Second},
		"P52 extended beyond Wait":  {time.Minute, 0, 0, 0, in(3*time.Second, pspecCool(time.Hour)), false, 3 * time.Second, 3 * time.Second},
		"P52 a disable verdict":     {time.Minute, 0, 0, 0, in(3*time.Second, pspecReport(hedgerow.ActionDisable)), false, 3 * time.Second, 3 * time.Second},
		"P52 not on OK":             {time.Minute, 0, 0, 0, in(3*time.Second, pspecReport(hedgerow.ActionOK)), true, cools, cools},
		"P54 deadline while asleep": {time.Minute, 0, 15 * time.Second, 0, in(3*time.Second, pspecCool(20*time.Second)), false, 3 * time.Second, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(1), Wait: tc.wait, RetryDelay: tc.pause})
				require.NoError(t, pspecCool(cools)(p))
				ctx := hedgerow.WithCall(t.Context(), hedgerow.Call{Wait: tc.call})
				if tc.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.deadline)
					defer cancel()
				}
				if tc.do != nil {
					tc.do(t, p)
				}
				o := <-pspecGo(ctx, t, p.Wrap(pspecScript(nil)))
				require.GreaterOrEqual(t, o.at, tc.atLeast)
				require.LessOrEqual(t, o.at, tc.atMost)
				if tc.ok {
					require.NoError(t, o.err)
				} else {
					exhausted, ok := errors.AsType[*hedgerow.ExhaustedError](o.err)
					require.True(t, ok)
					require.Zero(t, exhausted.Attempts) // P49: waiting uses up none
				}
				pspecIdle(t, p, 1)
			})
		})
	}
}

func pspecReport(a hedgerow.Action) func(*hedgerow.Pool) error {
	return func(p *hedgerow.Pool) error { return p.Report("A", "", hedgerow.Verdict{Action: a}) }
}

func pspecCool(d time.Duration) func(*hedgerow.Pool) error {
	return func(p *hedgerow.Pool) error {
		return p.Report("A", "", hedgerow.Verdict{Action: hedgerow.ActionCooldown, Wait: d})
	}
}

// P50 and P53: a slot and a token are waited for, also beside a resource that rests for long.
func TestP53WaitsForSlotsAndTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rs := pspecKeys(2)
		rs[1].MaxInFlight = 1
		p := pspecPool(t, hedgerow.PoolConfig{Resources: rs, Wait: time.Minute})
		require.NoError(t, pspecCool(10*time.Minute)(p))
		base := scripted.Func(func(int, *http.Request) scripted.Step { return scripted.Step{After: 2 * time.Second} })
		first := pspecGo(t.Context(), t, p.Wrap(base))
		second := pspecGo(t.Context(), t, p.Wrap(base))
		require.NoError(t, (<-first).err)
		require.Equal(t, 4*time.Second, (<-second).at)

		limited := pspecPool(t, hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "l", RateLimit: 0.5}}, Wait: time.Minute})
		_, _, err := pspecGet(t, limited.Wrap(base))
		require.NoError(t, err)
		o := <-pspecGo(t.Context(), t, limited.Wrap(pspecScript(nil)))
		require.NoError(t, o.err)
		require.InDelta(t, 0, o.at.Seconds(), 0.1) // two seconds went by meanwhile
		o = <-pspecGo(t.Context(), t, limited.Wrap(pspecScript(nil)))
		require.InDelta(t, 2, o.at.Seconds(), 0.1)
	})
}

// P56 and P57: every waiter hears of a change.
func TestP56AndP57AllWaitersWake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(1), Wait: time.Hour})
		require.NoError(t, pspecCool(time.Minute)(p))
		var all []<-chan pspecOutcome
		for range 5 {
			all = append(all, pspecGo(t.Context(), t, p.Wrap(pspecScript(nil))))
		}
		time.Sleep(time.Second)
		require.NoError(t, p.Enable("A"))
		for _, ch := range all {
			o := <-ch
			require.NoError(t, o.err)
			require.Equal(t, time.Second, o.at)
		}
	})
}

// P58 to P65.
func TestP58ToP61AndP64Admin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var events []hedgerow.ResourceEvent
		p := pspecPool(t, hedgerow.PoolConfig{
			Resources: pspecKeys(2), Strategy: hedgerow.PrimaryBackup,
			ResourceChange: func(e hedgerow.ResourceEvent) { events = append(events, e) },
		})
		base := pspecScript(nil)
		serves := func() string {
			_, body, err := pspecGet(t, p.Wrap(base))
			require.NoError(t, err)
			return body
		}
		require.NoError(t, p.Add(pspecKeys(3)[2]))
		require.ErrorIs(t, p.Add(pspecKeys(3)[2]), hedgerow.ErrDuplicateResource)
		require.Equal(t, "A", serves())
		require.NoError(t, p.Remove("A")) // P61: the next one is the first
		require.Equal(t, "B", serves())
		require.Empty(t, events)
		require.NoError(t, p.Report("B", "", hedgerow.Verdict{Action: hedgerow.ActionCooldown}))
		require.NoError(t, p.Disable("B")) // P60
		require.NoError(t, p.Disable("B"))
		require.Equal(t, 1, p.Snapshot()[0].ConsecutiveCooldowns)
		require.Equal(t, "C", serves())
		require.NoError(t, p.Enable("B")) // P59
		require.NoError(t, p.Enable("B"))
		require.Equal(t, hedgerow.ResourceStatus{ID: "B", Attempts: 1, Successes: 1, Cooldowns: 1, Disables: 1}, p.Snapshot()[0])
		require.Equal(t, "B", serves())
		require.Len(t, events, 3)
		for _, f := range []func(string) error{p.Enable, p.Disable, p.Remove} { // P64
			require.ErrorIs(t, f("A"), hedgerow.ErrUnknownResource)
		}
		require.EqualValues(t, 4, p.Stats().Attempts) // P61, P67: kept
	})
}

// P62 and P63: an ID that comes back is another resource, but the attempts on the old one count toward its cap.
func TestP62SameIDAgain(t *testing.T) {
	t.Parallel()
	fresh := hedgerow.Resource{ID: "A", MaxInFlight: 1, Credential: hedgerow.Bearer("secret-new")}
	for name, replace := range map[string]func(*testing.T, *hedgerow.Pool){
		"removed and added": func(t *testing.T, p *hedgerow.Pool) {
			t.Helper()
			require.NoError(t, p.Remove("A"))
			require.NoError(t, p.Add(fresh))
		},
		"set": func(t *testing.T, p *hedgerow.Pool) {
			t.Helper()
			require.NoError(t, p.SetResources([]hedgerow.Resource{fresh}))
		},
	} {
		for _, late := range []scripted.Step{pspec401, pspec429, {Err: errContract}} {
			t.Run(name+late.Body, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(1), MaxAttempts: 1})
					late.After = time.Second
					old := pspecGo(t.Context(), t, p.Wrap(scripted.New(late)))
					require.NoError(t, p.Report("A", "", hedgerow.Verdict{Action: hedgerow.ActionDisable}))
					replace(t, p)
					require.Equal(t, hedgerow.ResourceStatus{ID: "A", InFlight: 1, MaxInFlight: 1}, p.Snapshot()[0])
					base := pspecScript(nil)
					_, _, err := pspecGet(t, p.Wrap(base))
					require.Error(t, err)
					<-old
					_, body, err := pspecGet(t, p.Wrap(base))
					require.NoError(t, err)
					require.Equal(t, "new", body)
					require.Equal(t, hedgerow.ResourceStatus{ID: "A", MaxInFlight: 1, Attempts: 1, Successes: 1}, p.Snapshot()[0])
					pspecIdle(t, p, 3)
				})
			})
		}
	}
}

func TestP63SetResourcesKeepsState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(2)})
		require.NoError(t, pspecCool(time.Minute)(p))
		rs := pspecKeys(2) // the same credentials
		rs[0].MaxInFlight, rs[0].Tier = 7, 1
		rs[0], rs[1] = rs[1], rs[0]
		require.NoError(t, p.SetResources(rs))
		s := p.Snapshot()
		require.Equal(t, "B", s[0].ID)
		require.Equal(t, hedgerow.ResourceCooling, s[1].State)
		require.Equal(t, 7, s[1].MaxInFlight)
		set := hedgerow.CredentialFunc(func(*http.Request) error { return nil })
		other := hedgerow.CredentialFunc(func(*http.Request) error { return nil })
		for _, c := range []hedgerow.Credential{set, set, other} {
			require.NoError(t, p.SetResources([]hedgerow.Resource{{ID: "F", Credential: c}}))
			_, _, err := pspecGet(t, p.Wrap(scripted.New(scripted.Step{})))
			require.NoError(t, err)
		}
		require.EqualValues(t, 1, p.Snapshot()[0].Attempts) // only the very same func is unchanged
	})
}

func TestP65PoolsShareNothing(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{Resources: pspecKeys(1)}
	p, q := pspecPool(t, cfg), pspecPool(t, cfg)
	require.NoError(t, p.Disable("A"))
	require.Equal(t, hedgerow.ResourceHealthy, q.Snapshot()[0].State)
}

func TestP66SnapshotWhileAdding(t *testing.T) {
	t.Parallel()
	p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(1)})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 100 {
			_ = p.Add(hedgerow.Resource{ID: string(rune(1000 + i))})
		}
	})
	for range 100 {
		_, _ = p.Snapshot(), p.Stats()
	}
	wg.Wait()
	require.Len(t, p.Snapshot(), 101)
	require.Equal(t, p.Snapshot(), p.Stats().Resources)
}
