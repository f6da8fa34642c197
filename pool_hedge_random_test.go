package hedgerow_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// TestPoolHedgeRandom makes random calls through a Transport over a pool, of which some fail in each way that there is,
// while the pool is administered. Whatever happens, the account of sends, calls, bodies and slots is right.
func TestPoolHedgeRandom(t *testing.T) {
	t.Parallel()
	seeds := uint64(30)
	if simRaced || testing.Short() {
		seeds = 8
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { phRandom(t, seed) })
		})
	}
}

type phCallKey struct{}

func phRandom(t *testing.T, seed uint64) {
	t.Helper()
	const calls = 300
	var mu sync.Mutex // guards the fields below
	r := rand.New(rand.NewPCG(seed, 7))
	draw := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return r.IntN(n)
	}
	sent := make([][]hedgerow.Attempt, calls)
	infos := make([]hedgerow.CallInfo, calls)

	cfg := hedgerow.PoolConfig{
		Strategy: hedgerow.Strategy(seed % 5), Wait: time.Duration(seed%3) * time.Second,
		RetryDelay: time.Duration(int(seed%4)-1) * 10 * time.Millisecond, MaxAttempts: int(seed % 5),
		ProbeOnRecovery: seed%2 == 0, KeepSiblings: seed%7 == 0, ProbeDisabled: time.Second, ForceSoonest: seed%5 == 1,
		Synthetic429: seed%6 == 2,
	}
	for i := range 6 {
		cfg.Resources = append(cfg.Resources, hedgerow.Resource{ID: fmt.Sprint("r", i), MaxInFlight: i * 2, Group: "g"})
	}
	b := phNew(t, phSetup{
		pool: cfg,
		config: hedgerow.Config{
			Detach: seed%3 == 1,
			Hedge:  hedgerow.HedgeConfig{MaxHedges: 3, Signal: hedgerow.Signal(seed % 2), Delay: 5 * time.Millisecond},
		},
		answer: func(a hedgerow.Attempt, req *http.Request) scripted.Step {
			n, _ := req.Context().Value(phCallKey{}).(int)
			mu.Lock()
			sent[n] = append(sent[n], a)
			mu.Unlock()
			return phRandomStep(draw, a)
		},
	})
	var wg sync.WaitGroup
	for n := range calls {
		time.Sleep(time.Duration(draw(3000)) * time.Microsecond)
		if draw(10) == 0 {
			phRandomAdmin(draw, b.pool)
		}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), phCallKey{}, n))
		if draw(5) == 0 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(1+draw(40))*time.Millisecond)
		}
		method, body := http.MethodGet, ""
		if draw(3) == 0 {
			method, body = http.MethodPost, "payload"
		}
		req := b.base.NewRequest(t, method, phURL, body)
		opts := hedgerow.Call{
			Idempotent: draw(2) == 0, NoHedge: draw(8) == 0,
			Done: func(info hedgerow.CallInfo) {
				mu.Lock()
				defer mu.Unlock()
				infos[n] = info
			},
		}
		req = req.WithContext(hedgerow.WithCall(ctx, opts))
		leave := draw(10) == 0
		wg.Go(func() {
			defer cancel()
			if leave {
				time.AfterFunc(time.Duration(1+draw(20))*time.Millisecond, cancel)
			}
			b.send(req)
		})
	}
	wg.Wait()
	b.settle()

	attempts, hedges := 0, 0
	for n := range sent {
		slices.SortFunc(sent[n], func(a, b hedgerow.Attempt) int { return a.Number - b.Number })
		for i, a := range sent[n] {
			require.Equal(t, i, a.Number, "call %d: %v", n, sent[n])
			require.Equal(t, i == 0, a.Kind == hedgerow.AttemptPrimary)
			if a.Kind == hedgerow.AttemptHedge {
				hedges++
			}
		}
		attempts += len(sent[n])
		require.Equal(t, len(sent[n]), infos[n].Attempts, "call %d", n)
	}
	s, c := b.pool.Stats(), b.tr.Stats().Total
	require.EqualValues(t, attempts, s.Attempts)
	require.EqualValues(t, hedges, c.Hedges)
	require.Len(t, b.fired, hedges)
	require.Len(t, b.done, attempts)
	require.EqualValues(t, calls+hedges, s.CallsOK+s.CallsExhausted+s.CallsFailed+s.CallsCanceled)
	require.LessOrEqual(t, c.PrimaryWins+c.HedgeWins, c.Hedged)
	won := 0
	for _, e := range b.done {
		require.NotEmpty(t, e.Attempt.Resource)
		require.False(t, e.Won && e.Superseded)
		if e.Won {
			won++
		}
	}
	require.LessOrEqual(t, won, calls)
	if cfg.MaxAttempts != 1 { // else each 429 is a push-back
		require.NotZero(t, hedges)
	}
}

// phRandomStep draws how an attempt goes.
func phRandomStep(draw func(int) int, a hedgerow.Attempt) scripted.Step {
	d := time.Duration(draw(12000)) * time.Microsecond
	switch draw(16) {
	case 0:
		return phStatus(429, d)
	case 1:
		return phStatus(429, d, "Retry-After-Ms", "30")
	case 2:
		return phStatus(401, d)
	case 3:
		return phStatus(502, d)
	case 4:
		return scripted.Step{After: d, Err: errors.New("reset")}
	case 5:
		return phStatus(500, d)
	case 6:
		s := phStatus(429, d)
		s.IgnoreContext = true
		return s
	case 7:
		s := phOK(a, d)
		s.IgnoreContext = true
		return s
	case 8:
		s := phOK(a, d)
		s.BodyAfter = d
		return s
	case 9:
		return scripted.Step{After: 10 * d, Body: "slow"}
	default:
		return phOK(a, d)
	}
}

// phRandomAdmin changes something in a pool of r0, r1, ...
func phRandomAdmin(draw func(int) int, p *hedgerow.Pool) {
	id := fmt.Sprint("r", draw(6))
	switch draw(5) {
	case 0:
		_ = p.Enable(id)
	case 1:
		_ = p.Disable(id)
	case 2:
		_ = p.Remove(id)
	case 3:
		_ = p.Add(hedgerow.Resource{ID: id, MaxInFlight: draw(4), Group: "g"})
	case 4:
		_ = p.Report(id, "", hedgerow.Verdict{
			Action: hedgerow.Action(1 + draw(5)), Wait: time.Duration(draw(50)) * time.Millisecond, Scope: hedgerow.VerdictScope(draw(5)),
		})
	}
}
