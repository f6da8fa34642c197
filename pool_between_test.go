package hedgerow_test

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// betweenService holds primaries for an hour, and answers others with the name of the resource.
func betweenService(statuses map[string]int) roundTrip {
	return func(req *http.Request) (*http.Response, error) {
		a, _ := hedgerow.AttemptFromContext(req.Context())
		if a.Kind == hedgerow.AttemptPrimary {
			select {
			case <-time.After(time.Hour):
			case <-req.Context().Done():
				return nil, req.Context().Err()
			}
		}
		return sharedAnswer(req, statuses[a.Resource], "from "+a.Resource), nil
	}
}

func betweenPool(t *testing.T, next http.RoundTripper, ids ...string) (*hedgerow.Pool, http.RoundTripper) {
	t.Helper()
	cfg := hedgerow.PoolConfig{MaxAttempts: 1, Strategy: hedgerow.PrimaryBackup}
	for _, id := range ids {
		cfg.Resources = append(cfg.Resources, hedgerow.Resource{ID: id})
	}
	pool, err := hedgerow.NewPool(cfg)
	require.NoError(t, err)
	return pool, pool.Wrap(next)
}

// TestAnswerFromBetween has a layer between the Transport and its pool that makes up for what the pool says: a cache with an older
// answer, another pool, the service itself. It is an answer like any other, and counts like one.
func TestAnswerFromBetween(t *testing.T) {
	t.Parallel()
	type outcome struct {
		body            string
		after           time.Duration
		attempts, ended int
		hedges, skips   uint64
	}
	for name, tt := range map[string]struct {
		make func(*testing.T) http.RoundTripper
		opts hedgerow.Call
		want outcome
	}{
		"a cache, for a refusal": {
			make: func(t *testing.T) http.RoundTripper {
				t.Helper()
				_, below := betweenPool(t, betweenService(map[string]int{"b": http.StatusTooManyRequests}), "a", "b")
				return roundTrip(func(req *http.Request) (*http.Response, error) {
					resp, err := below.RoundTrip(req)
					if err != nil || resp.StatusCode != http.StatusTooManyRequests {
						return resp, err
					}
					return sharedAnswer(req, http.StatusOK, "stale"), resp.Body.Close()
				})
			},
			want: outcome{body: "stale", after: time.Second, attempts: 2, ended: 2, hedges: 1},
		},
		"another pool, for a hedge without a resource": {
			make: func(t *testing.T) http.RoundTripper {
				t.Helper()
				service := betweenService(map[string]int{"b": http.StatusOK})
				_, one := betweenPool(t, service, "a")
				_, two := betweenPool(t, service, "b")
				return fallback(one, two)
			},
			want: outcome{body: "from b", after: time.Second, attempts: 2, ended: 2, hedges: 1},
		},
		"the service, for a hedge without a resource": {
			make: func(t *testing.T) http.RoundTripper {
				t.Helper()
				_, below := betweenPool(t, betweenService(nil), "a")
				return fallback(below, roundTrip(beside))
			},
			want: outcome{body: "beside", after: time.Second, attempts: 2, ended: 2, hedges: 1},
		},
		"a cache, for a hedge that is there before the primary": {
			make: func(t *testing.T) http.RoundTripper {
				t.Helper()
				next := betweenExhausted(t)
				return roundTrip(func(req *http.Request) (*http.Response, error) {
					if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Kind == hedgerow.AttemptPrimary {
						select {
						case <-time.After(time.Hour):
						case <-req.Context().Done():
							return nil, req.Context().Err()
						}
					}
					return next.RoundTrip(req)
				})
			},
			want: outcome{body: "beside", after: time.Second, attempts: 1, ended: 2, hedges: 1}, // the primary did not get to the pool
		},
		"the service, for a call without a resource": {
			make: betweenExhausted,
			want: outcome{body: "beside", attempts: 1, ended: 1},
		},
		"the service, for a call without a resource and hedges": {
			make: betweenExhausted, opts: hedgerow.Call{NoHedge: true},
			want: outcome{body: "beside", attempts: 1, ended: 1, skips: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var got outcome
				tr, err := hedgerow.New(hedgerow.Config{
					Base: tt.make(t), Hedge: hedgerow.HedgeConfig{Delay: time.Second, MaxHedges: 1},
					Hooks: hedgerow.Hooks{AttemptDone: func(context.Context, hedgerow.AttemptEvent) { got.ended++ }},
				})
				require.NoError(t, err)
				opts := tt.opts
				opts.Done = func(i hedgerow.CallInfo) { got.attempts = i.Attempts }
				start := time.Now()
				resp, err := tr.RoundTrip(contractGet(hedgerow.WithCall(t.Context(), opts), t, contractURL))
				require.NoError(t, err)
				got.body, got.after = contractRead(t, resp), time.Since(start)
				time.Sleep(time.Second) // losers are back by then
				total := tr.Stats().Total
				got.hedges = total.Hedges
				for _, n := range total.Skipped {
					got.skips += n
				}
				require.Equal(t, tt.want, got)
			})
		})
	}
}

// fallback goes to another RoundTripper where the first one has an error.
func fallback(first, second http.RoundTripper) http.RoundTripper {
	return roundTrip(func(req *http.Request) (*http.Response, error) {
		resp, err := first.RoundTrip(req)
		if err != nil && req.Context().Err() == nil {
			return second.RoundTrip(req)
		}
		return resp, err
	})
}

// betweenExhausted is a pool without an eligible resource, and a service beside it.
func betweenExhausted(t *testing.T) http.RoundTripper {
	t.Helper()
	pool, below := betweenPool(t, betweenService(nil), "a")
	require.NoError(t, pool.Disable("a"))
	return fallback(below, roundTrip(beside))
}

// beside is the service itself.
func beside(req *http.Request) (*http.Response, error) {
	return sharedAnswer(req, http.StatusOK, "beside"), nil
}

// TestHedgeKeptFromThePool has a layer send hedges past the pool, or hold them until their call is over. They lose. Which of the two
// it was cannot be told, so they count, and the budget bounds what such a layer sends.
func TestHedgeKeptFromThePool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, pool := betweenPool(t, roundTrip(func(req *http.Request) (*http.Response, error) {
			time.Sleep(50 * time.Millisecond)
			return sharedAnswer(req, http.StatusOK, ""), nil
		}), "a")
		var fired, ended atomic.Int64
		tr := contractNew(t, hedgerow.Config{
			Base: roundTrip(func(req *http.Request) (*http.Response, error) {
				if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Kind == hedgerow.AttemptHedge {
					<-req.Context().Done()
					return nil, context.Cause(req.Context())
				}
				return pool.RoundTrip(req)
			}),
			Hedge: hedgerow.HedgeConfig{Delay: 10 * time.Millisecond, MaxHedges: 1, BudgetPercent: 1},
			Hooks: hedgerow.Hooks{
				HedgeFired:  func(context.Context, hedgerow.HedgeEvent) { fired.Add(1) },
				AttemptDone: func(context.Context, hedgerow.AttemptEvent) { ended.Add(1) },
			},
		})
		const calls = 150
		for range calls {
			resp, err := tr.RoundTrip(contractGet(t.Context(), t, contractURL))
			require.NoError(t, err)
			contractRead(t, resp)
			synctest.Wait()
		}
		s := tr.Stats().Total
		require.EqualValues(t, 2, fired.Load()) // the first, and one for a hundred calls
		require.EqualValues(t, fired.Load(), s.Hedges)
		require.Equal(t, s.Hedged, s.HedgeWins+s.PrimaryWins)
		require.Equal(t, calls+fired.Load(), ended.Load())
		require.EqualValues(t, calls-2, s.Skipped[hedgerow.SkipBudget])
	})
}

// TestNumbersOfHedgesFromBetween has a layer answer two hedges by itself. Each attempt has a number of its own.
func TestNumbersOfHedgesFromBetween(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, next := betweenPool(t, roundTrip(func(req *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return sharedAnswer(req, http.StatusOK, ""), nil
		}), "a", "b")
		numbers := make(chan int, 3)
		tr := contractNew(t, hedgerow.Config{
			Base: roundTrip(func(req *http.Request) (*http.Response, error) {
				if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Kind == hedgerow.AttemptHedge {
					time.Sleep(300 * time.Millisecond)
					return sharedAnswer(req, http.StatusInternalServerError, ""), nil
				}
				return next.RoundTrip(req)
			}),
			Hedge: hedgerow.HedgeConfig{Delay: 100 * time.Millisecond, MaxHedges: 2, EstimatedRPS: 100},
			Hooks: hedgerow.Hooks{AttemptDone: func(_ context.Context, e hedgerow.AttemptEvent) { numbers <- e.Attempt.Number }},
		})
		resp, err := tr.RoundTrip(contractGet(t.Context(), t, contractURL))
		require.NoError(t, err)
		contractRead(t, resp)
		require.ElementsMatch(t, []int{0, 1, 2}, []int{<-numbers, <-numbers, <-numbers})
	})
}

// TestBodyOfAHedgeFromBetween has a layer give each attempt a body of its own. The pool closes it once, also that of a hedge which
// comes when its call is over, with a header that cannot be sent, or to a policy function that ends its goroutine.
func TestBodyOfAHedgeFromBetween(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*http.Request){
		"late":   func(*http.Request) { time.Sleep(10 * time.Second) },
		"bad":    func(r *http.Request) { r.Header.Set("bad name", "x") },
		"goexit": func(r *http.Request) { r.Header.Set("Goexit", "1") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				pool, err := hedgerow.NewPool(hedgerow.PoolConfig{
					Resources: []hedgerow.Resource{{ID: "a"}, {ID: "b"}},
					ScopeOf: func(r *http.Request) string {
						if r.Header.Get("Goexit") != "" {
							runtime.Goexit()
						}
						return ""
					},
				})
				require.NoError(t, err)
				next := pool.Wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
					time.Sleep(time.Second)
					return sharedAnswer(req, http.StatusOK, ""), req.Body.Close()
				}))
				bodies := make(chan *contractBody, 2)
				tr := contractNew(t, hedgerow.Config{Base: roundTrip(func(req *http.Request) (*http.Response, error) {
					a, _ := hedgerow.AttemptFromContext(req.Context())
					req = req.Clone(req.Context())
					body := &contractBody{src: req.Body}
					req.Body = body
					if a.Kind == hedgerow.AttemptHedge {
						select {
						case bodies <- body:
						default:
						}
						spoil(req)
					}
					return next.RoundTrip(req)
				})})
				resp, err := tr.RoundTrip(putWith(t, inMemoryBody(), func() (io.ReadCloser, error) { return inMemoryBody(), nil }))
				require.NoError(t, err)
				contractRead(t, resp)
				time.Sleep(time.Minute)
				require.EqualValues(t, 1, (<-bodies).closes.Load())
			})
		})
	}
}
