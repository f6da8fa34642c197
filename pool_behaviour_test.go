package hedgerow_test

import (
	"context"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

func TestP01EligibleIsInclusiveAndCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rs := []hedgerow.Resource{{ID: "cooling"}, {ID: "disabled"}, {ID: "capped", MaxInFlight: 1}, {ID: "limited", RateLimit: 1}, {ID: "scoped"}}
		var offered []string
		p := pspecPool(t, hedgerow.PoolConfig{Resources: rs, Selector: func(_ *http.Request, cs []hedgerow.Candidate) int {
			offered = nil
			for _, c := range cs {
				offered = append(offered, c.ID)
			}
			return len(cs) - 1
		}})
		release := make(chan struct{})
		base := scripted.Func(func(int, *http.Request) scripted.Step { return pspecHeld(release) })
		ctx := hedgerow.WithCall(t.Context(), hedgerow.Call{ScopeKey: "m"})
		cools := hedgerow.Verdict{Action: hedgerow.ActionCooldown, Wait: 10 * time.Second}
		require.NoError(t, p.Report("cooling", "", cools))
		require.NoError(t, p.Disable("disabled"))
		require.NoError(t, p.Report("scoped", "m", cools))
		first := pspecGo(ctx, t, p.Wrap(base))
		require.Equal(t, []string{"capped", "limited"}, offered)
		second := pspecGo(ctx, t, p.Wrap(base))
		require.Equal(t, []string{"capped"}, offered) // the token is spent
		third := pspecGo(ctx, t, p.Wrap(base))
		require.Error(t, (<-third).err)
		time.Sleep(10*time.Second - 1)
		require.Equal(t, 2, p.Stats().Eligible) // limited and, for other keys, scoped
		time.Sleep(time.Nanosecond)
		fourth := pspecGo(ctx, t, p.Wrap(base))
		require.Equal(t, []string{"cooling", "limited", "scoped"}, offered)
		close(release)
		for _, ch := range []<-chan pspecOutcome{first, second, fourth} {
			require.NoError(t, (<-ch).err)
		}
		pspecIdle(t, p, 4)
	})
}

// P2, P3, P5, P6 and P42: what each strategy sends to, as keys in order. Calls that are held overlap.
func TestP02Strategies(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		strategy hedgerow.Strategy
		caps     []int
		held     bool
		calls    int
		want     string
	}{
		"P02 in turn":               {hedgerow.RoundRobin, []int{0, 0}, false, 5, "ABABA"},
		"P02 fewest in flight":      {hedgerow.RoundRobin, []int{0, 0, 0}, true, 6, "ABCABC"},
		"P03 first":                 {hedgerow.PrimaryBackup, []int{0, 0, 0}, false, 5, "AAAAA"},
		"P03 first below its cap":   {hedgerow.PrimaryBackup, []int{1, 0, 0}, true, 3, "ABB"},
		"P06 exclusive":             {hedgerow.RoundRobin, []int{1, 1}, true, 3, "AB"},
		"P06 exclusive and in turn": {hedgerow.RoundRobin, []int{1, 1}, false, 3, "ABA"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rs := pspecKeys(len(tc.caps))
				for i, c := range tc.caps {
					rs[i].MaxInFlight = c
				}
				p := pspecPool(t, hedgerow.PoolConfig{Resources: rs, Strategy: tc.strategy})
				release := make(chan struct{})
				if !tc.held {
					close(release)
				}
				base := scripted.Func(func(int, *http.Request) scripted.Step { return pspecHeld(release) })
				for range tc.calls {
					pspecGo(t.Context(), t, p.Wrap(base))
				}
				require.Equal(t, tc.want, pspecSent(base))
				if tc.held {
					close(release)
				}
				synctest.Wait()
				pspecIdle(t, p, tc.calls)
			})
		})
	}
}

func TestP04InFlightComesFromTheAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(1)})
		release := make(chan struct{})
		base := scripted.Func(func(int, *http.Request) scripted.Step { return pspecHeld(release) })
		for i := range 3 {
			pspecGo(t.Context(), t, p.Wrap(base))
			require.Equal(t, i+1, p.Snapshot()[0].InFlight)
		}
		time.Sleep(time.Second)
		require.Equal(t, time.Second, p.Snapshot()[0].Oldest)
		close(release)
		synctest.Wait()
		pspecIdle(t, p, 3)
	})
}

func TestP05AddedResourceWinsTheNextTie(t *testing.T) {
	t.Parallel()
	p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(2)})
	base := pspecScript(nil)
	for range 3 {
		_, _, err := pspecGet(t, p.Wrap(base))
		require.NoError(t, err)
	}
	require.NoError(t, p.Add(pspecKeys(3)[2]))
	_, _, err := pspecGet(t, p.Wrap(base))
	require.NoError(t, err)
	require.Equal(t, "ABAC", pspecSent(base))
}

func TestP07EachScanRecoversAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var events []hedgerow.ResourceEvent
		p := pspecPool(t, hedgerow.PoolConfig{
			Resources: pspecKeys(4), ResourceChange: func(e hedgerow.ResourceEvent) { events = append(events, e) },
		})
		for _, id := range []string{"A", "B", "C"} {
			require.NoError(t, p.Report(id, "", hedgerow.Verdict{Action: hedgerow.ActionCooldown, Wait: time.Second}))
		}
		require.NoError(t, p.Disable("D"))
		events = nil
		time.Sleep(time.Second)
		require.Zero(t, p.Stats().Cooling) // P15: read without being written
		require.Empty(t, events)
		_, _, err := pspecGet(t, p.Wrap(pspecScript(nil)))
		require.NoError(t, err)
		require.Len(t, events, 3)
		for i, e := range events {
			require.Equal(t, hedgerow.ResourceEvent{
				Pool: "default", ID: string(rune('A' + i)), From: hedgerow.ResourceCooling, To: hedgerow.ResourceHealthy, Seq: uint64(5 + i),
			}, e)
		}
	})
}

// P8: the clock is read under the lock; a pick that had to wait for it judges by the time at which it picks.
func TestP08ClockIsReadAtThePick(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(1), Wait: time.Minute})
		require.NoError(t, p.Report("A", "", hedgerow.Verdict{Action: hedgerow.ActionCooldown, Wait: 3 * time.Second}))
		o := <-pspecGo(t.Context(), t, p.Wrap(pspecScript(nil)))
		require.NoError(t, o.err)
		require.Equal(t, 3*time.Second, o.at)
	})
}

func TestP09SlotIsFreeDuringThePause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rs := pspecKeys(1)
		rs[0].MaxInFlight = 1
		p := pspecPool(t, hedgerow.PoolConfig{Resources: rs, RetryDelay: time.Second, MaxAttempts: 2})
		base := scripted.New(pspec502, scripted.Step{Body: "other"}, scripted.Step{Body: "again"})
		first := pspecGo(t.Context(), t, p.Wrap(base))
		require.Equal(t, "other", (<-pspecGo(t.Context(), t, p.Wrap(base))).body)
		o := <-first
		require.Equal(t, "again", o.body)
		require.GreaterOrEqual(t, o.at, 500*time.Millisecond) // P47
		require.LessOrEqual(t, o.at, 1500*time.Millisecond)
		pspecIdle(t, p, 2)
	})
}

// P10, P11, P12, P18 and P59: cooldowns reported at given times, and how long the resource then still rests.
func TestP10Cooldowns(t *testing.T) {
	t.Parallel()
	const table = 0
	type step struct {
		after time.Duration // since the step before
		wait  time.Duration // of the verdict
		want  time.Duration
	}
	for name, steps := range map[string][]step{
		"P10 the table ends with its last": {
			{0, table, 30 * time.Second},
			{30 * time.Second, table, 2 * time.Minute},
			{2 * time.Minute, table, 5 * time.Minute},
			{5 * time.Minute, table, 10 * time.Minute},
			{10 * time.Minute, table, 10 * time.Minute},
		},
		"P10 a hint counts as a step": {{0, time.Second, time.Second}, {time.Second, table, 2 * time.Minute}},
		"P11 it only extends":         {{0, time.Minute, time.Minute}, {10 * time.Second, time.Second, 50 * time.Second}},
		"P11 it does extend":          {{0, time.Second, time.Second}, {0, time.Minute, time.Minute}},
		"P12 negative is the table":   {{0, -5, 30 * time.Second}},
		"P12 clamped":                 {{0, math.MaxInt64, time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(1)})
				for i, s := range steps {
					time.Sleep(s.after)
					require.NoError(t, p.Report("A", "", hedgerow.Verdict{Action: hedgerow.ActionCooldown, Wait: s.wait}))
					require.Equal(t, s.want, pspecRest(p)["A"])
					require.Equal(t, i+1, p.Snapshot()[0].ConsecutiveCooldowns)
				}
				require.NoError(t, p.Enable("A")) // P59
				require.NoError(t, p.Report("A", "", hedgerow.Verdict{Action: hedgerow.ActionCooldown}))
				require.Equal(t, 30*time.Second, pspecRest(p)["A"])
				require.Equal(t, 1, p.Snapshot()[0].ConsecutiveCooldowns)
			})
		})
	}
}

// P13, P16, P17 and P25: an older attempt ends on a resource after something has happened to it.
func TestP13LateVerdicts(t *testing.T) {
	t.Parallel()
	cools := func(d time.Duration) func(*hedgerow.Pool) error {
		return func(p *hedgerow.Pool) error {
			return p.Report("A", "", hedgerow.Verdict{Action: hedgerow.ActionCooldown, Wait: d})
		}
	}
	disables := func(p *hedgerow.Pool) error {
		return p.Report("A", "", hedgerow.Verdict{Action: hedgerow.ActionDisable, Reason: "dead"})
	}
	removes := func(p *hedgerow.Pool) error { return p.Remove("A") }
	for name, tc := range map[string]struct {
		before func(*hedgerow.Pool) error
		late   scripted.Step
		want   hedgerow.ResourceStatus // of A, but for Until
		events int
	}{
		"P13 OK on a cooling one": {cools(time.Minute), scripted.Step{}, hedgerow.ResourceStatus{
			State: hedgerow.ResourceCooling, ConsecutiveCooldowns: 1, Successes: 1, Cooldowns: 1,
		}, 1},
		"P17 cooldown on a cooling one": {cools(time.Minute), pspec429, hedgerow.ResourceStatus{
			State: hedgerow.ResourceCooling, ConsecutiveCooldowns: 1, Cooldowns: 2, Reason: "status 429",
		}, 2},
		"P25 OK on a disabled one": {disables, scripted.Step{}, hedgerow.ResourceStatus{
			State: hedgerow.ResourceDisabled, Successes: 1, Disables: 1, Reason: "dead",
		}, 1},
		"P16 cooldown on a disabled one": {disables, pspec429, hedgerow.ResourceStatus{
			State: hedgerow.ResourceDisabled, Disables: 1, Reason: "dead",
		}, 1},
		"P26 disable on a disabled one": {disables, pspec401, hedgerow.ResourceStatus{
			State: hedgerow.ResourceDisabled, Disables: 1, Reason: "dead",
		}, 1},
		"P16 cooldown on a removed one": {removes, pspec429, hedgerow.ResourceStatus{}, 0},
		"P63 disable on a removed one":  {removes, pspec401, hedgerow.ResourceStatus{}, 0},
		"P13 OK on a removed one":       {removes, scripted.Step{}, hedgerow.ResourceStatus{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				events := 0
				p := pspecPool(t, hedgerow.PoolConfig{
					Resources: pspecKeys(1), MaxAttempts: 1, ResourceChange: func(hedgerow.ResourceEvent) { events++ },
				})
				tc.late.After = time.Second
				base := scripted.New(tc.late)
				done := pspecGo(t.Context(), t, p.Wrap(base))
				require.NoError(t, tc.before(p))
				require.NoError(t, (<-done).err)
				require.Equal(t, tc.events, events)
				all := p.Snapshot()
				if tc.want.State == hedgerow.ResourceHealthy {
					require.Empty(t, all)
					return
				}
				tc.want.ID, tc.want.Attempts = "A", 1
				all[0].Until = time.Time{}
				require.Equal(t, tc.want, all[0])
				pspecIdle(t, p, 1)
			})
		})
	}
}

// P14 and P45: what is no verdict OK is no success.
func TestP14AndP45OnlyOKIsASuccess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(1), MaxAttempts: 1})
		require.NoError(t, p.Report("A", "", hedgerow.Verdict{Action: hedgerow.ActionCooldown}))
		time.Sleep(30 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		for _, step := range []scripted.Step{
			{Err: errContract}, pspec502, {Status: 500}, {Status: 529}, {After: time.Hour},
		} {
			<-pspecGo(ctx, t, p.Wrap(scripted.New(step)))
		}
		s := p.Snapshot()[0]
		require.Equal(t, 1, s.ConsecutiveCooldowns)
		require.Zero(t, s.Successes)
		_, _, err := pspecGet(t, p.Wrap(pspecScript(nil)))
		require.NoError(t, err)
		s = p.Snapshot()[0]
		require.Zero(t, s.ConsecutiveCooldowns)
		require.EqualValues(t, 1, s.Successes)
	})
}

func TestP15ExpiryIsLazyAndDoesNotShieldTheCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(1)})
		base := scripted.New(scripted.Step{After: 3 * time.Second})
		require.NoError(t, p.Report("A", "", hedgerow.Verdict{Action: hedgerow.ActionCooldown, Wait: time.Second}))
		time.Sleep(time.Second)
		require.Equal(t, hedgerow.ResourceHealthy, p.Snapshot()[0].State)
		require.True(t, p.Snapshot()[0].Until.IsZero())
		<-pspecGo(t.Context(), t, p.Wrap(base)) // younger than the cooldown
		require.Zero(t, p.Snapshot()[0].ConsecutiveCooldowns)
	})
}

func TestP18OneBurstIsOneStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(1), KeepSiblings: true, MaxAttempts: 1})
		steps := make([]scripted.Step, 4)
		for i := range steps {
			steps[i] = pspec429
			steps[i].After = time.Duration(4-i) * time.Second
		}
		base := scripted.New(steps...)
		for range steps {
			pspecGo(t.Context(), t, p.Wrap(base))
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		s := p.Snapshot()[0]
		require.Equal(t, 1, s.ConsecutiveCooldowns)
		require.EqualValues(t, 4, s.Cooldowns)
		require.Equal(t, 30*time.Second, pspecRest(p)["A"])
		time.Sleep(30 * time.Second)
		_, _, err := pspecGet(t, p.Wrap(scripted.New(pspec429)))
		require.NoError(t, err)
		require.Equal(t, 2*time.Minute, pspecRest(p)["A"])
	})
}

// P19 and P55: nothing runs on; the bubble would say so.
func TestP19AndP55AnIdlePoolHasNoTimer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(1), Wait: time.Hour})
		_, _, err := pspecGet(t, p.Wrap(scripted.New(pspec429)), hedgerow.Call{Wait: -1})
		require.NoError(t, err)
		ctx, cancel := context.WithCancelCause(t.Context())
		waiter := pspecGo(ctx, t, p.Wrap(scripted.New()))
		cancel(errContract)
		o := <-waiter
		require.Same(t, errContract, o.err)
		require.Zero(t, o.at)
		require.EqualValues(t, 1, p.Stats().CallsCanceled)
	})
}

func TestP27DeadKeyIsTriedOnce(t *testing.T) {
	t.Parallel()
	p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(2), Strategy: hedgerow.PrimaryBackup})
	base := pspecScript(map[string][]scripted.Step{"A": {pspec401}})
	for range 4 {
		_, body, err := pspecGet(t, p.Wrap(base))
		require.NoError(t, err)
		require.Equal(t, "B", body)
	}
	require.Equal(t, "ABBBB", pspecSent(base))
	require.Equal(t, 1, strings.Count(pspecSent(base), "A"))
}
