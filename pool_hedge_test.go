package hedgerow_test

import (
	"fmt"
	"math"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// A hedge goes to another resource, and everybody is told the same about it.
func TestPoolHedgeGoesElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := phNew(t, phSetup{answer: func(a hedgerow.Attempt, _ *http.Request) scripted.Step {
			if a.Resource == "A" {
				return phHold()
			}
			return phOK(a, 5*time.Millisecond)
		}})
		require.Equal(t, phResult{status: 200, body: "B", after: 15 * time.Millisecond}, b.call(hedgerow.Call{}))
		b.settle()

		primary := hedgerow.Attempt{Pool: "default", Resource: "A"}
		hedge := hedgerow.Attempt{Number: 1, Kind: hedgerow.AttemptHedge, Pool: "default", Resource: "B"}
		require.Equal(t, []phSend{{0, primary}, {phDelay, hedge}}, b.sent)
		require.Equal(t, []hedgerow.HedgeEvent{{
			Host: "api.test", Method: http.MethodGet, Attempt: hedge, Delay: phDelay,
		}}, b.fired)
		require.ElementsMatch(t, []hedgerow.AttemptEvent{
			{Host: "api.test", Attempt: hedge, Status: 200, Latency: 5 * time.Millisecond, Won: true},
			{
				Host: "api.test", Attempt: primary, Err: hedgerow.ErrSuperseded, Latency: 15 * time.Millisecond,
				Superseded: true,
			},
		}, b.done)
		require.Equal(t, []hedgerow.CallInfo{{Host: "api.test", Attempts: 2, Winner: hedge, Delay: phDelay}}, b.infos)
		require.Empty(t, b.skips)

		s := b.pool.Stats()
		require.EqualValues(t, 2, s.Attempts)
		require.EqualValues(t, 1, s.CallsOK)
		require.EqualValues(t, 1, s.CallsCanceled)
		require.Zero(t, s.Retries)
		c := b.tr.Stats().Total
		require.EqualValues(t, 1, c.Hedged)
		require.EqualValues(t, 1, c.Hedges)
		require.EqualValues(t, 1, c.HedgeWins)
	})
}

// With one resource the hedge is skipped: it waits for nothing, costs nothing, and nobody hears of it but as a skip.
func TestPoolHedgeSkipNoResource(t *testing.T) {
	t.Parallel()
	for _, detach := range []bool{false, true} {
		t.Run(fmt.Sprint("detach ", detach), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := phNew(t, phSetup{
					ids: "A", pool: hedgerow.PoolConfig{Wait: time.Minute},
					config: hedgerow.Config{Detach: detach, Hedge: hedgerow.HedgeConfig{BudgetPercent: 1e-3}},
					answer: func(a hedgerow.Attempt, _ *http.Request) scripted.Step { return phOK(a, time.Second) },
				})
				require.Equal(t, phResult{status: 200, body: "A", after: time.Second}, b.call(hedgerow.Call{}))
				b.settle()
				require.Len(t, b.sent, 1)
				require.Empty(t, b.fired)
				require.Equal(t, []hedgerow.SkipEvent{{Host: "api.test", Reason: hedgerow.SkipNoResource}}, b.skips)
				require.Len(t, b.done, 1)
				require.Equal(t, 1, b.infos[0].Attempts)
				c := b.tr.Stats().Total
				require.Zero(t, c.Hedged+c.Hedges+c.PrimaryWins+c.HedgeWins)
				require.Equal(t, map[hedgerow.SkipReason]uint64{hedgerow.SkipNoResource: 1}, c.Skipped)
				s := b.pool.Stats()
				require.EqualValues(t, 1, s.CallsOK)
				require.Zero(t, s.CallsExhausted+s.CallsCanceled+s.CallsFailed)

				// The budget holds one token, and it is there: a second resource gets the hedge.
				require.NoError(t, b.pool.Add(hedgerow.Resource{ID: "B"}))
				b.call(hedgerow.Call{})
				require.Len(t, b.fired, 1)
				b.settle()
			})
		})
	}
}

// A resource that becomes free is taken at a later multiple of the delay, and numbers have no gaps.
func TestPoolHedgeAsksAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := phNew(t, phSetup{
			pool: hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "A"}, {ID: "B", MaxInFlight: 1}}},
			answer: func(a hedgerow.Attempt, req *http.Request) scripted.Step {
				switch {
				case req.URL.Path == "/other":
					return phOK(a, 34*time.Millisecond)
				case a.Resource == "A":
					return phHold()
				}
				return phOK(a, time.Millisecond)
			},
		})
		require.NoError(t, b.pool.Disable("A"))
		var wg sync.WaitGroup
		wg.Go(func() { // fills B
			b.do(t.Context(), "http://api.test/other", hedgerow.Call{NoHedge: true})
		})
		synctest.Wait()
		require.NoError(t, b.pool.Enable("A"))
		require.Equal(t, phResult{status: 200, body: "B", after: 41 * time.Millisecond}, b.call(hedgerow.Call{}))
		wg.Wait()
		b.settle()
		hedge := hedgerow.Attempt{Number: 1, Kind: hedgerow.AttemptHedge, Pool: "default", Resource: "B"}
		require.Equal(t, phSend{40 * time.Millisecond, hedge}, b.sent[2])
		require.Equal(t, hedge, b.fired[0].Attempt)
		require.Equal(t, 2, b.infos[1].Attempts)
		require.Len(t, b.skips, 2) // NoHedge, and the one that is counted once
	})
}

// The clock of the hedges starts when the primary is sent, not when it waits. What is learned is the time from the
// attempt's own send; what the caller sees has the wait in it.
func TestPoolHedgeClock(t *testing.T) {
	t.Parallel()
	for _, hedged := range []bool{true, false} {
		t.Run(fmt.Sprint("hedged ", hedged), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := phNew(t, phSetup{
					ids: "A", pool: hedgerow.PoolConfig{Wait: time.Minute},
					config: hedgerow.Config{Hedge: hedgerow.HedgeConfig{
						Delay: -1, WarmupRequests: 1, WarmupDelay: 500 * time.Millisecond,
					}},
					answer: func(a hedgerow.Attempt, _ *http.Request) scripted.Step {
						switch {
						case a.Resource == "A" && hedged:
							return phHold()
						case a.Resource == "A":
							return phOK(a, 300*time.Millisecond)
						}
						return phOK(a, 300*time.Millisecond)
					},
				})
				require.NoError(t, b.pool.Report("A", "", hedgerow.Verdict{Action: hedgerow.ActionCooldown, Wait: 10 * time.Second}))
				if hedged {
					go func() {
						time.Sleep(10 * time.Second)
						_ = b.pool.Add(hedgerow.Resource{ID: "B"}) // it wakes the waiter too, who finds A
					}()
				}
				r := b.call(hedgerow.Call{})
				ep := b.tr.Stats().Endpoints[hedgerow.EndpointKey{Host: "api.test"}]
				require.InEpsilon(t, r.after, ep.Latency.P50, 0.02)
				require.GreaterOrEqual(t, r.after, 10*time.Second)
				if hedged {
					require.Equal(t, b.sent[0].at+500*time.Millisecond, b.sent[1].at)
					require.Equal(t, 10800*time.Millisecond, r.after)
					require.Equal(t, 500*time.Millisecond, ep.Delay, "no delay is learned from a primary that was cut off, alone")
				} else {
					require.Len(t, b.sent, 1)
					require.Empty(t, b.skips)
					require.Equal(t, 10300*time.Millisecond, r.after)
					require.InEpsilon(t, 300*time.Millisecond, ep.Delay, 0.02)
				}
				b.settle()
			})
		})
	}
}

// The same after a wait for a slot.
func TestPoolHedgeClockAfterSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := phNew(t, phSetup{
			pool: hedgerow.PoolConfig{
				Wait: time.Minute, Resources: []hedgerow.Resource{{ID: "A", MaxInFlight: 1}, {ID: "B", MaxInFlight: 1}},
			},
			answer: func(a hedgerow.Attempt, req *http.Request) scripted.Step {
				switch {
				case req.URL.Path == "/other" && a.Resource == "A":
					return phOK(a, 40*time.Millisecond)
				case req.URL.Path == "/other":
					return phOK(a, 45*time.Millisecond)
				case a.Resource == "A":
					return phHold()
				}
				return phOK(a, time.Millisecond)
			},
		})
		for range 2 {
			go b.do(t.Context(), "http://api.test/other", hedgerow.Call{NoHedge: true})
			synctest.Wait()
		}
		require.Equal(t, phResult{status: 200, body: "B", after: 51 * time.Millisecond}, b.call(hedgerow.Call{}))
		b.settle()
		require.Equal(t, 40*time.Millisecond, b.sent[2].at)
		require.Equal(t, 50*time.Millisecond, b.sent[3].at)
		require.Equal(t, 2, b.infos[2].Attempts)
		require.Len(t, b.skips, 2) // of NoHedge
	})
}

// Attempts are numbered over the retries of the primary and of the hedge in the order in which they are sent.
func TestPoolHedgeNumbers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answers := map[string]scripted.Step{
			"A": phStatus(429, 2*time.Millisecond),
			"B": phHold(),
			"C": phStatus(401, 2*time.Millisecond),
			"D": {After: 3 * time.Millisecond, Body: "D"},
		}
		b := phNew(t, phSetup{ids: "ABCD", answer: func(a hedgerow.Attempt, _ *http.Request) scripted.Step {
			return answers[a.Resource]
		}})
		require.Equal(t, phResult{status: 200, body: "D", after: 15 * time.Millisecond}, b.call(hedgerow.Call{}))
		b.settle()
		of := func(n int, kind hedgerow.AttemptKind, id string) hedgerow.Attempt {
			return hedgerow.Attempt{Number: n, Kind: kind, Pool: "default", Resource: id}
		}
		sends := []hedgerow.Attempt{
			of(0, hedgerow.AttemptPrimary, "A"), of(1, hedgerow.AttemptRetry, "B"),
			of(2, hedgerow.AttemptHedge, "C"), of(3, hedgerow.AttemptRetry, "D"),
		}
		for i, s := range b.sent {
			require.Equal(t, sends[i], s.attempt)
		}
		const ms = time.Millisecond
		require.ElementsMatch(t, []hedgerow.AttemptEvent{
			{Host: "api.test", Attempt: sends[0], Status: 429, Latency: 2 * ms},
			{Host: "api.test", Attempt: sends[1], Err: hedgerow.ErrSuperseded, Latency: 13 * ms, Superseded: true},
			{Host: "api.test", Attempt: sends[2], Status: 401, Latency: 2 * ms},
			{Host: "api.test", Attempt: sends[3], Status: 200, Latency: 3 * ms, Won: true},
		}, b.done)
		require.Equal(t, []hedgerow.CallInfo{{Host: "api.test", Attempts: 4, Winner: sends[3], Delay: phDelay}}, b.infos)
		require.EqualValues(t, 2, b.pool.Stats().Retries)
		c := b.tr.Stats().Total
		require.EqualValues(t, 1, c.Hedges)
		require.Empty(t, b.skips)
	})
}

// A call that is not hedged is numbered and reported on in the same way.
func TestPoolNumbersWithoutHedge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := phNew(t, phSetup{answer: func(a hedgerow.Attempt, _ *http.Request) scripted.Step {
			if a.Resource == "A" {
				return phStatus(429, time.Millisecond)
			}
			return phOK(a, time.Millisecond)
		}})
		b.call(hedgerow.Call{NoHedge: true})
		b.settle()
		first := hedgerow.Attempt{Pool: "default", Resource: "A"}
		second := hedgerow.Attempt{Number: 1, Kind: hedgerow.AttemptRetry, Pool: "default", Resource: "B"}
		require.Equal(t, []hedgerow.AttemptEvent{
			{Host: "api.test", Attempt: first, Status: 429, Latency: time.Millisecond},
			{Host: "api.test", Attempt: second, Status: 200, Latency: time.Millisecond, Won: true},
		}, b.done)
		require.Equal(t, []hedgerow.CallInfo{{Host: "api.test", Attempts: 2, Winner: second}}, b.infos)
	})
}

// The latency of a send does not have what the pool did afterwards in it.
func TestPoolLatencyOfSend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := phNew(t, phSetup{
			ids: "A", pool: hedgerow.PoolConfig{Wait: time.Minute},
			answer: func(hedgerow.Attempt, *http.Request) scripted.Step {
				return phStatus(429, time.Millisecond, "Retry-After", "30")
			},
		})
		go func() {
			time.Sleep(5 * time.Second)
			_ = b.pool.Disable("A")
		}()
		require.Equal(t, 429, b.call(hedgerow.Call{}).status)
		b.settle()
		require.Len(t, b.done, 1)
		require.Equal(t, time.Millisecond, b.done[0].Latency)
		require.Equal(t, 429, b.done[0].Status)
		require.True(t, b.done[0].Won)
	})
}

// TestDelayOfNever sets a hedge delay that no clock reaches, in each way that there is. Beneath a pool the clock of the hedges
// starts later than the call.
func TestDelayOfNever(t *testing.T) {
	t.Parallel()
	const never = time.Duration(math.MaxInt64)
	for name, hedge := range map[string]hedgerow.HedgeConfig{
		"Delay": {Delay: never}, "MinDelay": {MinDelay: never}, "WarmupDelay": {WarmupDelay: never}, "Call": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				pool, err := hedgerow.NewPool(hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "a"}, {ID: "b"}}})
				require.NoError(t, err)
				below := pool.Wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
					time.Sleep(time.Second)
					return sharedAnswer(req, http.StatusOK, ""), nil
				}))
				tr, err := hedgerow.New(hedgerow.Config{
					Base: roundTrip(func(req *http.Request) (*http.Response, error) {
						time.Sleep(time.Microsecond)
						return below.RoundTrip(req)
					}),
					Hedge: hedge,
				})
				require.NoError(t, err)
				ctx := t.Context()
				if name == "Call" {
					ctx = hedgerow.WithCall(ctx, hedgerow.Call{Delay: never})
				}
				resp, err := tr.RoundTrip(contractGet(ctx, t, contractURL))
				require.NoError(t, err)
				contractRead(t, resp)
				require.Zero(t, tr.Stats().Total.Hedges)
				require.Zero(t, tr.Stats().Total.Skipped)
			})
		})
	}
}
