package hedgerow_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// poolHostScope is the context key of a call's scope.
type poolHostScope struct{}

// poolHostScopeOf is a ScopeOf that takes the scope from the context.
func poolHostScopeOf(r *http.Request) string {
	scope, _ := r.Context().Value(poolHostScope{}).(string)
	return scope
}

// poolHostIDs returns resources without credentials, one for each letter.
func poolHostIDs(ids string) []hedgerow.Resource {
	var all []hedgerow.Resource
	for id := range strings.SplitSeq(ids, "") {
		all = append(all, hedgerow.Resource{ID: id})
	}
	return all
}

// poolHostResource returns the resource that an attempt is on.
func poolHostResource(req *http.Request) string {
	a, _ := hedgerow.AttemptFromContext(req.Context())
	return a.Resource
}

// poolHostSent returns the resources of the attempts in the order in which they began.
func poolHostSent(base *scripted.Transport) string {
	var b strings.Builder
	for _, rec := range base.Records() {
		b.WriteString(poolHostResource(rec.Request))
	}
	return b.String()
}

func TestPoolHostileAmbiguousFailureAfterRefusal(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ synthetic, hedged bool }{
		"pool":                    {},
		"pool with Synthetic429":  {synthetic: true},
		"under a Transport":       {hedged: true},
		"under one, Synthetic429": {synthetic: true, hedged: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := pspecPool(t, hedgerow.PoolConfig{
					Strategy: hedgerow.PrimaryBackup, Resources: pspecKeys(2), Synthetic429: tc.synthetic,
				})
				base := pspecScript(map[string][]scripted.Step{"A": {pspec429}, "B": {{Err: io.ErrUnexpectedEOF}}})
				rt := p.Wrap(base)
				if tc.hedged {
					tr, err := hedgerow.New(hedgerow.Config{Base: rt})
					require.NoError(t, err)
					rt = tr
				}
				_, _, err := pspecDo(t, rt, base.NewRequest(t, http.MethodPost, pspecURL, "pay"))
				require.ErrorIs(t, err, io.ErrUnexpectedEOF) // not the refusal: B may have done it
				require.Equal(t, "AB", pspecSent(base))
				pspecIdle(t, p, 1)
				synctest.Wait()
				base.Check(t)
			})
		})
	}
}

func TestPoolHostileJoinedDialErrorMayHaveBeenSent(t *testing.T) {
	t.Parallel()
	dial := &net.OpError{Op: "dial", Err: errors.New("backup region refused")}
	for name, tc := range map[string]struct {
		err  error
		sent int
	}{
		"dial":         {dial, 2},
		"wrapped dial": {fmt.Errorf("base: %w", dial), 2},
		"of a client":  {&url.Error{Op: "Get", URL: "http://next.test/", Err: dial}, 1},
		"joined":       {errors.Join(errors.New("primary region: reset after the write"), dial), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(2)})
			base := scripted.Func(func(int, *http.Request) scripted.Step { return scripted.Step{Err: tc.err} })
			_, _, err := pspecDo(t, p.Wrap(base), base.NewRequest(t, http.MethodPost, pspecURL, "pay"))
			require.ErrorIs(t, err, dial)
			if tc.sent == 1 {
				require.Len(t, base.Records(), 1)
			} else {
				require.GreaterOrEqual(t, len(base.Records()), tc.sent)
			}
			base.Check(t)
		})
	}
}

func TestPoolHostileForceSoonestPausesOnTheSameResource(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pspecPool(t, hedgerow.PoolConfig{
			ForceSoonest: true, RetryDelay: 500 * time.Millisecond, Resources: pspecKeys(1),
		})
		base := pspecScript(map[string][]scripted.Step{"A": {pspec429}})
		status, _, err := pspecDo(t, p.Wrap(base), base.NewRequest(t, http.MethodPost, pspecURL, "pay"))
		require.NoError(t, err)
		require.Equal(t, http.StatusTooManyRequests, status)
		records := base.Records()
		require.Greater(t, len(records), 1)
		for i, rec := range records[1:] {
			require.GreaterOrEqual(t, rec.Start.Sub(records[i].End), 250*time.Millisecond)
		}
		base.Check(t)
	})
}

func TestPoolHostileForceSoonestSendsOneProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pspecPool(t, hedgerow.PoolConfig{
			ForceSoonest: true, ProbeOnRecovery: true, ScopeOf: poolHostScopeOf, Resources: pspecKeys(1),
		})
		release := make(chan struct{})
		base := scripted.Func(func(int, *http.Request) scripted.Step { return pspecHeld(release) })
		rt := p.Wrap(base)
		require.NoError(t, p.Report("A", "m", hedgerow.Verdict{Action: hedgerow.ActionCooldown, Wait: time.Hour}))
		require.NoError(t, p.Report("A", "", hedgerow.Verdict{
			Action: hedgerow.ActionCooldown, Wait: 50 * time.Millisecond, Scope: hedgerow.ScopeResource,
		}))
		time.Sleep(60 * time.Millisecond)
		var calls []<-chan pspecOutcome
		for _, scope := range []string{"", "m", "m", "m"} {
			calls = append(calls, pspecGo(context.WithValue(t.Context(), poolHostScope{}, scope), t, rt))
		}
		require.Equal(t, 1, p.Snapshot()[0].InFlight)
		close(release)
		for i, call := range calls {
			if o := <-call; i == 0 {
				require.NoError(t, o.err)
				require.Equal(t, http.StatusOK, o.status)
			}
		}
		require.Len(t, base.Records(), 1)
		pspecIdle(t, p, 4)
		base.Check(t)
	})
}

func TestPoolHostileDisabledProbeRefusedForAScope(t *testing.T) {
	t.Parallel()
	for _, scope := range []string{"", "m"} {
		synctest.Test(t, func(t *testing.T) {
			p := pspecPool(t, hedgerow.PoolConfig{
				ProbeDisabled: 200 * time.Millisecond, ScopeOf: poolHostScopeOf, Resources: pspecKeys(1),
			})
			base := pspecScript(map[string][]scripted.Step{"A": {
				{Status: http.StatusPaymentRequired},
				{Status: http.StatusTooManyRequests, Header: pspecHint("60")},
			}})
			rt := p.Wrap(base)
			get := func() {
				ctx := context.WithValue(t.Context(), poolHostScope{}, scope)
				// Most calls find no resource, which is an answer here.
				if resp, err := rt.RoundTrip(contractGet(ctx, t, pspecURL)); err == nil {
					contractRead(t, resp)
				}
			}
			get()
			require.Equal(t, map[string]time.Duration{"A": -1}, pspecRest(p))
			time.Sleep(210 * time.Millisecond)
			for range 5 {
				get()
			}
			require.Equal(t, "AA", pspecSent(base), "scope %q: one probe in a period", scope)
			base.Check(t)
		})
	}
}

func TestPoolHostileDisabledProbeNeutralOrRetried(t *testing.T) {
	t.Parallel()
	for _, status := range []int{
		http.StatusBadRequest, http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusTooManyRequests,
	} {
		for _, action := range []hedgerow.Action{hedgerow.ActionOK, hedgerow.ActionNeutral, hedgerow.ActionRetry} {
			cfg := hedgerow.PoolConfig{
				ProbeDisabled: 100 * time.Millisecond, Strategy: hedgerow.PrimaryBackup, Resources: poolHostIDs("AB"),
			}
			if action != hedgerow.ActionOK { // which here means the default classifier
				cfg.Classifier = func(o hedgerow.Outcome) hedgerow.Verdict {
					if o.Attempt.Resource == "A" {
						return hedgerow.Verdict{Action: action}
					}
					return hedgerow.Verdict{}
				}
			} else if status == http.StatusBadRequest {
				continue // the caller's fault: the resource works
			}
			synctest.Test(t, func(t *testing.T) {
				p := pspecPool(t, cfg)
				base := scripted.Func(func(_ int, req *http.Request) scripted.Step {
					if poolHostResource(req) == "A" {
						return scripted.Step{Status: status}
					}
					return scripted.Step{}
				})
				require.NoError(t, p.Report("A", "", hedgerow.Verdict{Action: hedgerow.ActionDisable}))
				time.Sleep(110 * time.Millisecond)
				other := 0
				for range 10 {
					got, _, err := pspecGet(t, p.Wrap(base))
					require.NoError(t, err)
					if got != http.StatusOK {
						other++
					}
				}
				require.LessOrEqual(t, other, 1, "%d, %v", status, action)
				require.Equal(t, 1, strings.Count(poolHostSent(base), "A"), "%d, %v: %s", status, action, poolHostSent(base))
				base.Check(t)
			})
		}
	}
}

func TestPoolHostileHugePeekBody(t *testing.T) {
	t.Parallel()
	content := strings.Repeat("0123456789", 2000)
	var seen string
	p := pspecPool(t, hedgerow.PoolConfig{
		PeekBody: math.MaxInt, Resources: pspecKeys(1),
		Classifier: func(o hedgerow.Outcome) hedgerow.Verdict {
			seen = string(o.Body)
			return hedgerow.Verdict{}
		},
	})
	base := scripted.New(scripted.Step{Status: http.StatusBadRequest, Body: content})
	status, body, err := pspecGet(t, p.Wrap(base))
	require.NoError(t, err)
	require.Equal(t, http.StatusBadRequest, status)
	require.Equal(t, content, body)
	require.Equal(t, content, seen)
	base.Check(t)
}

func TestPoolHostileGetBodyFailureUsesNoRetryBudget(t *testing.T) {
	t.Parallel()
	p := pspecPool(t, hedgerow.PoolConfig{Resources: poolHostIDs("AB")})
	base := scripted.Func(func(int, *http.Request) scripted.Step {
		return scripted.Step{Status: http.StatusServiceUnavailable}
	})
	rt := p.Wrap(base)
	for range 100 {
		req := base.NewRequest(t, http.MethodPut, pspecURL, "payload")
		req.Header.Set("Idempotency-Key", "k")
		req.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("no second body") }
		// Whether it ends in the answer or in the error of GetBody is not the point.
		if resp, err := rt.RoundTrip(req); err == nil {
			contractRead(t, resp)
		}
	}
	s := p.Stats()
	require.Zero(t, s.Retries)
	require.Zero(t, s.RetriesRefused, "the budget was used up by repeats that were not made")
	require.Len(t, base.Records(), 100)
	base.Check(t)
}

func TestPoolHostileHedgeTakesNoRecoveryProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pspecPool(t, hedgerow.PoolConfig{
			ProbeOnRecovery: true, Strategy: hedgerow.PrimaryBackup, Resources: poolHostIDs("AB"),
		})
		base := scripted.Func(func(int, *http.Request) scripted.Step { return scripted.Step{After: 50 * time.Millisecond} })
		tr, err := hedgerow.New(hedgerow.Config{
			Base: p.Wrap(base), Hedge: hedgerow.HedgeConfig{Delay: 5 * time.Millisecond, BudgetPercent: 100},
		})
		require.NoError(t, err)
		require.NoError(t, p.Report("B", "", hedgerow.Verdict{Action: hedgerow.ActionCooldown, Wait: 10 * time.Millisecond}))
		time.Sleep(15 * time.Millisecond)
		_, _, err = pspecGet(t, tr)
		require.NoError(t, err)
		require.NotContains(t, poolHostSent(base), "B") // a hedge that loses is cancelled, and proves nothing
		require.NoError(t, p.Disable("A"))
		_, _, err = pspecGet(t, tr)
		require.NoError(t, err)
		require.Equal(t, "AB", poolHostSent(base))
		require.False(t, p.Snapshot()[1].Probing)
		synctest.Wait()
		base.Check(t)
	})
}

func TestPoolHostileAffinityIsEqualInTwoPools(t *testing.T) {
	t.Parallel()
	pick := func() string {
		p := pspecPool(t, hedgerow.PoolConfig{Resources: poolHostIDs("ABCD")})
		base := scripted.Func(func(int, *http.Request) scripted.Step { return scripted.Step{} })
		for i := range 20 {
			_, _, err := pspecGet(t, p.Wrap(base), hedgerow.Call{Affinity: fmt.Sprint("user", i)})
			require.NoError(t, err)
		}
		base.Check(t)
		return poolHostSent(base)
	}
	first := pick()
	require.Len(t, first, 20)
	require.NotEqual(t, strings.Repeat(first[:1], 20), first)
	require.Equal(t, first, pick())
}
