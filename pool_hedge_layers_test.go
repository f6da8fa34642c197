package hedgerow_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// phBetween is a middleware.
type phBetween func(*http.Request) (*http.Response, error)

func (f phBetween) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// errPhMiddleware is what a middleware wraps errors in.
var errPhMiddleware = errors.New("middleware")

// Anything may stand between a Transport and its pool: it may take longer than a hedge's delay, and wrap errors.
func TestPoolBehindMiddleware(t *testing.T) {
	t.Parallel()
	for _, lag := range []time.Duration{0, 3 * time.Millisecond, 25 * time.Millisecond} {
		t.Run(lag.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				one := true
				b := phNew(t, phSetup{
					ids: "A",
					between: func(next http.RoundTripper) http.RoundTripper {
						return phBetween(func(req *http.Request) (*http.Response, error) {
							time.Sleep(lag)
							resp, err := next.RoundTrip(req)
							if err != nil {
								err = fmt.Errorf("%w: %w", errPhMiddleware, err)
							}
							return resp, err
						})
					},
					answer: func(a hedgerow.Attempt, _ *http.Request) scripted.Step {
						if one || a.Resource == "A" {
							return phOK(a, 100*time.Millisecond)
						}
						return phOK(a, time.Millisecond)
					},
				})
				b.do(t.Context(), phURL, hedgerow.Call{NoHedge: true}) // the endpoint knows of the pool now
				b.skips, b.done, b.sent, b.infos = nil, nil, nil, nil

				r := b.call(hedgerow.Call{})
				require.Equal(t, phResult{status: 200, body: "A", after: lag + 100*time.Millisecond}, r)
				time.Sleep(time.Second)
				require.Empty(t, b.fired)
				require.Len(t, b.skips, 1)
				require.Len(t, b.done, 1)
				require.Equal(t, 1, b.infos[0].Attempts)
				require.Zero(t, b.tr.Stats().Total.Hedged)

				one = false
				require.NoError(t, b.pool.Add(hedgerow.Resource{ID: "B"}))
				b.sent = nil
				r = b.call(hedgerow.Call{})
				require.Equal(t, "B", r.body)
				began := lag
				if lag > phDelay { // the hedge is on its way before the primary is sent
					began = 0
				}
				require.Equal(t, began+phDelay+lag+time.Millisecond, r.after)
				b.settle()
				require.Len(t, b.fired, 1)
				require.Equal(t, 1, b.fired[0].Attempt.Number)
				require.Equal(t, "B", b.fired[0].Attempt.Resource)
				require.Equal(t, 2, b.infos[1].Attempts)
				require.EqualValues(t, 1, b.tr.Stats().Total.Hedges)
				require.EqualValues(t, 1, b.tr.Stats().Total.HedgeWins)
				require.Len(t, b.done, 3)
			})
		})
	}
}

// A middleware may answer by itself: such a hedge counts, and has no resource.
func TestPoolBehindCache(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hit := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}}
		b := phNew(t, phSetup{
			between: func(next http.RoundTripper) http.RoundTripper {
				return phBetween(func(req *http.Request) (*http.Response, error) {
					if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Kind == hedgerow.AttemptHedge {
						resp := *hit
						resp.Body = io.NopCloser(strings.NewReader("cached"))
						return &resp, nil
					}
					return next.RoundTrip(req)
				})
			},
			answer: func(hedgerow.Attempt, *http.Request) scripted.Step { return phHold() },
		})
		require.Equal(t, phResult{status: 200, body: "cached", after: phDelay}, b.call(hedgerow.Call{}))
		b.settle()
		hedge := hedgerow.Attempt{Number: 1, Kind: hedgerow.AttemptHedge}
		require.Len(t, b.fired, 1)
		require.Equal(t, hedge, b.fired[0].Attempt)
		require.Equal(t, []hedgerow.CallInfo{{Host: "api.test", Attempts: 2, Winner: hedge, Delay: phDelay}}, b.infos)
		require.EqualValues(t, 1, b.tr.Stats().Total.Hedges)
		require.EqualValues(t, 1, b.tr.Stats().Total.HedgeWins)
	})
}

// Detach changes nothing but who waits.
func TestPoolDetach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := phNew(t, phSetup{
			config: hedgerow.Config{Detach: true},
			answer: func(a hedgerow.Attempt, _ *http.Request) scripted.Step {
				if a.Resource == "A" {
					return scripted.Step{After: time.Second, IgnoreContext: true, Body: "late"}
				}
				return phOK(a, 5*time.Millisecond)
			},
		})
		require.Equal(t, phResult{status: 200, body: "B", after: 15 * time.Millisecond}, b.call(hedgerow.Call{}))
		require.Equal(t, 1, b.pool.Stats().InFlight, "the loser holds its slot while it runs")
		b.settle()
		require.EqualValues(t, 2, b.pool.Stats().CallsOK, "the loser's answer is one")
	})
}

// With SignalFirstByte a stream that is silent loses to another resource's.
func TestPoolFirstByte(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := phNew(t, phSetup{
			config: hedgerow.Config{Hedge: hedgerow.HedgeConfig{Signal: hedgerow.SignalFirstByte}},
			answer: func(a hedgerow.Attempt, _ *http.Request) scripted.Step {
				s := phOK(a, time.Millisecond)
				if a.Resource == "A" {
					s.BodyAfter = time.Minute
				}
				return s
			},
		})
		require.Equal(t, phResult{status: 200, body: "B", after: 11 * time.Millisecond}, b.call(hedgerow.Call{}))
		b.settle()
	})
}

// Layers below see the nearest pool, hooks and the caller the outermost.
func TestPoolNested(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner, err := hedgerow.NewPool(hedgerow.PoolConfig{
			Name: "inner", RetryDelay: -1, Strategy: hedgerow.PrimaryBackup,
			Resources: []hedgerow.Resource{{ID: "x", MaxInFlight: 1}, {ID: "y"}},
		})
		require.NoError(t, err)
		b := phNew(t, phSetup{
			pool: hedgerow.PoolConfig{Name: "outer"},
			answer: func(a hedgerow.Attempt, _ *http.Request) scripted.Step {
				if a.Resource == "x" {
					return phHold()
				}
				return phOK(a, 5*time.Millisecond)
			},
		})
		for i, id := range []string{"A", "B"} {
			require.NoError(t, b.pool.Remove(id))
			require.NoError(t, b.pool.Add(hedgerow.Resource{ID: id, Base: inner.Wrap(b.base)}), i)
		}
		require.Equal(t, phResult{status: 200, body: "y", after: 15 * time.Millisecond}, b.call(hedgerow.Call{}))
		b.settle()
		require.Equal(t, "inner", b.sent[0].attempt.Pool)
		require.Equal(t, "x", b.sent[0].attempt.Resource)
		require.Equal(t, "y", b.sent[1].attempt.Resource)
		require.Equal(t, "outer", b.infos[0].Winner.Pool)
		require.Equal(t, "B", b.infos[0].Winner.Resource)
		require.Equal(t, 2, b.infos[0].Attempts)
		require.Len(t, b.done, 2)
		require.Zero(t, inner.Stats().InFlight)
	})
}

// An inner pool that is exhausted is a local outcome for the outer one (P46).
func TestPoolNestedExhausted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner, err := hedgerow.NewPool(hedgerow.PoolConfig{Name: "inner", Resources: []hedgerow.Resource{{ID: "x"}}})
		require.NoError(t, err)
		require.NoError(t, inner.Disable("x"))
		b := phNew(t, phSetup{answer: func(a hedgerow.Attempt, _ *http.Request) scripted.Step { return phOK(a, 0) }})
		require.NoError(t, b.pool.Remove("A"))
		require.NoError(t, b.pool.SetResources([]hedgerow.Resource{{ID: "A", Base: inner.Wrap(b.base)}}))
		var exhausted *hedgerow.ExhaustedError
		require.ErrorAs(t, b.call(hedgerow.Call{}).err, &exhausted)
		require.Equal(t, "inner", exhausted.Pool)
		b.settle()
		require.Zero(t, b.pool.Snapshot()[0].ConsecutiveFailures)
		require.EqualValues(t, 1, b.pool.Stats().CallsFailed)
	})
}

// A pool is not there for other hosts, also not for their hedges.
func TestPoolForeignHost(t *testing.T) {
	t.Parallel()
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprint("other scheme ", secure), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := 0
				b := phNew(t, phSetup{
					pool: hedgerow.PoolConfig{Hosts: []string{"api.test"}},
					answer: func(a hedgerow.Attempt, req *http.Request) scripted.Step {
						if req.URL.Scheme == "https" || a.Kind == hedgerow.AttemptHedge {
							return phOK(a, 5*time.Millisecond)
						}
						n++
						return phHold()
					},
				})
				if secure { // the endpoint has calls of the pool's
					b.do(t.Context(), "https://api.test/", hedgerow.Call{})
					b.sent, b.infos, b.done = nil, nil, nil
				}
				require.Equal(t, phResult{status: 200, after: 15 * time.Millisecond}, b.call(hedgerow.Call{}))
				b.settle()
				hedge := hedgerow.Attempt{Number: 1, Kind: hedgerow.AttemptHedge}
				require.Equal(t, []phSend{{b.sent[0].at, hedgerow.Attempt{}}, {b.sent[0].at + phDelay, hedge}}, b.sent)
				require.Len(t, b.fired, 1)
				require.Equal(t, hedge, b.fired[0].Attempt)
				require.Equal(t, []hedgerow.CallInfo{{Host: "api.test", Attempts: 2, Winner: hedge, Delay: phDelay}}, b.infos)
				require.EqualValues(t, 1, b.tr.Stats().Total.HedgeWins)
				require.EqualValues(t, 2, b.pool.Stats().PassedThrough)
			})
		})
	}
}

// What an endpoint is declared to be lets the pool repeat a POST too.
func TestPoolIdempotentEndpoint(t *testing.T) {
	t.Parallel()
	for _, declared := range []bool{true, false} {
		for _, hedging := range []bool{true, false} {
			t.Run(fmt.Sprint("declared ", declared, " hedging ", hedging), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					b := phNew(t, phSetup{
						config: hedgerow.Config{Hedge: hedgerow.HedgeConfig{Disabled: !hedging}},
						answer: func(a hedgerow.Attempt, _ *http.Request) scripted.Step {
							if a.Resource == "A" {
								return phStatus(502, time.Millisecond)
							}
							return phOK(a, time.Millisecond)
						},
					})
					require.NoError(t, b.tr.Register("POST /search", hedgerow.EndpointConfig{Idempotent: declared}))
					r := b.send(b.base.NewRequest(t, http.MethodPost, "http://api.test/search", "query"))
					b.settle()
					if declared {
						require.Equal(t, 200, r.status)
						require.Len(t, b.sent, 2)
						require.Equal(t, "POST /search", b.sent[1].attempt.Endpoint)
					} else {
						require.Equal(t, 502, r.status)
						require.Len(t, b.sent, 1)
					}
				})
			})
		}
	}
}
