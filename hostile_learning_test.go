package hedgerow_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/memhttp"
)

// A trial whose outcome nobody will hear of gives its place in a half-open circuit back at once, although the base hangs
// and ignores its context, and not a second time when the base comes back.
func TestHostileHungTrialFreesItsPlace(t *testing.T) {
	t.Parallel()
	const trials = 3
	type trial struct {
		hangs    int    // the attempt
		ends     string // the call
		detach   bool
		outcomes int // in the circuits
	}
	cases := make(map[string]trial)
	for _, c := range []trial{
		{1, "won", false, 1},
		{1, "won", true, 1},
		{1, "cancel", false, 0},
		{1, "cancel", true, 0},
		{1, "deadline", false, 1}, // the primary's
		{1, "panic", false, 0},
		{1, "panic", true, 0},
		{0, "won", true, 1},
		{0, "cancel", true, 0},
		{0, "deadline", true, 1},
	} {
		cases[fmt.Sprintf("attempt %d, %s, detach=%t", c.hangs, c.ends, c.detach)] = c
	}
	contractBubbles(t, cases, func(t *testing.T, c trial) {
		t.Helper()
		end := make(chan struct{})
		comeBack := sync.OnceFunc(func() { close(end) })
		defer comeBack()
		admitted := 0
		var mu sync.Mutex
		base := roundTripper(func(req *http.Request) (*http.Response, error) {
			a, _ := hedgerow.AttemptFromContext(req.Context())
			switch req.URL.Path {
			case "/down":
				return nil, errCrace
			case "/counts":
				mu.Lock()
				admitted++
				mu.Unlock()
				<-req.Context().Done()
				return nil, context.Cause(req.Context())
			case "/trial":
				if a.Number == c.hangs {
					<-end
					return nil, errCrace
				}
				if c.ends == "cancel" || c.ends == "deadline" {
					<-req.Context().Done()
					return nil, context.Cause(req.Context())
				}
				time.Sleep(1500 * time.Millisecond)
				if c.ends == "panic" {
					panic("boom")
				}
			}
			return hostOK(http.NoBody)
		})
		tr := craceNew(t, hedgerow.Config{
			Base: base, Detach: c.detach,
			Breaker: hedgerow.BreakerConfig{FailFast: true, MinSamples: 1, HalfOpenTrials: trials, Cooldown: 10 * time.Second},
		})
		get := func(ctx context.Context, path string) craceAnswer {
			a, _, _ := craceGuard(tr, contractGet(ctx, t, "http://api.test"+path))
			return a
		}
		requirePlaces := func(places int) {
			admitted = 0
			ctx, cancel := context.WithCancel(hedgerow.WithCall(t.Context(), hedgerow.Call{NoHedge: true}))
			defer cancel()
			for range trials + 2 {
				req := contractGet(ctx, t, "http://api.test/counts")
				go craceCall(tr, req)
			}
			synctest.Wait()
			require.Equal(t, places, admitted)
			cancel()
			synctest.Wait()
		}

		require.ErrorIs(t, get(t.Context(), "/down").Err, errCrace)
		time.Sleep(10 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		switch c.ends {
		case "cancel":
			time.AfterFunc(3*time.Second, cancel)
		case "deadline":
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), 3*time.Second)
		}
		defer cancel()
		get(ctx, "/trial")
		requirePlaces(trials - c.outcomes)
		comeBack()
		synctest.Wait()
		requirePlaces(trials - c.outcomes)
		for range trials - c.outcomes {
			require.NoError(t, get(t.Context(), "/").Err)
		}
		require.Equal(t, hedgerow.CircuitClosed, tr.Circuit(hedgerow.CircuitHost, hedgerow.EndpointKey{Host: "api.test"}))
	})
}

// hostDelays makes a hundred calls a second and returns the greatest delay that is learned meanwhile, and the last. At
// the end it cancels those that still run.
func hostDelays(t *testing.T, tr *hedgerow.Transport, timeout time.Duration, calls int) (greatest, last time.Duration) {
	t.Helper()
	parent, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for n := range calls {
		wg.Go(func() {
			ctx, cancel := parent, context.CancelFunc(func() {})
			if timeout > 0 {
				ctx, cancel = context.WithTimeout(parent, timeout)
			}
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, craceURL, nil)
			if err == nil {
				craceCall(tr, req)
			}
		})
		time.Sleep(10 * time.Millisecond)
		if n%50 == 49 {
			last = tr.Stats().Endpoints[hedgerow.EndpointKey{Host: "api.test"}].Delay
			greatest = max(greatest, last)
		}
	}
	cancel()
	wg.Wait()
	return greatest, last
}

// hostHanging returns a base that takes five milliseconds, but for the share of primaries that hang.
func hostHanging(share *float64) http.RoundTripper {
	var mu sync.Mutex
	draws := rand.New(rand.NewPCG(1, 2))
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		a, _ := hedgerow.AttemptFromContext(req.Context())
		mu.Lock()
		hangs := a.Number == 0 && draws.Float64() < *share
		mu.Unlock()
		if hangs {
			<-req.Context().Done()
			return nil, context.Cause(req.Context())
		}
		time.Sleep(5 * time.Millisecond)
		return hostOK(http.NoBody)
	})
}

// When more primaries hang than there are hedges for, the delay stays with the latency of those that do not.
func TestHostileDelayWhenMoreHangThanTheBudgetCovers(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{0, 2 * time.Second} {
		for _, share := range []float64{0.11, 0.15, 0.3} {
			if simRaced && share != 0.15 {
				continue
			}
			t.Run(fmt.Sprintf("%.0f %%, timeout %s", 100*share, timeout), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					tr := mustNew(t, hedgerow.Config{Base: hostHanging(&share), Breaker: hedgerow.BreakerConfig{Disabled: true}})
					greatest, last := hostDelays(t, tr, timeout, 6000)
					require.LessOrEqual(t, greatest, 10*time.Millisecond) // with which it begins
					require.InDelta(t, 5*time.Millisecond, last, float64(500*time.Microsecond))
				})
			})
		}
	}
}

// When all hang, nothing new is learned, and the last delay stays, also when what it was learned from is forgotten.
func TestHostileDelayWhenAllHang(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{0, 2 * time.Second} {
		t.Run(fmt.Sprint("timeout ", timeout), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				share := 0.0
				tr := mustNew(t, hedgerow.Config{Base: hostHanging(&share), Breaker: hedgerow.BreakerConfig{Disabled: true}})
				hostDelays(t, tr, timeout, 500)
				share = 1
				greatest, last := hostDelays(t, tr, timeout, 6000) // for two windows
				require.LessOrEqual(t, greatest, 10*time.Millisecond)
				require.InDelta(t, 5*time.Millisecond, last, float64(500*time.Microsecond))
			})
		})
	}
}

// Endpoints that come and go, because there is no room for all, get no fresh hedge each time.
func TestHostileBudgetOfEvictedEndpoints(t *testing.T) {
	t.Parallel()
	type eviction struct {
		target string // of call n
		hedge  hedgerow.HedgeConfig
	}
	fast := hedgerow.HedgeConfig{BudgetPercent: 10, EstimatedRPS: 100}
	contractBubbles(t, map[string]eviction{
		"hosts":                 {"http://h%d.test/", hedgerow.HedgeConfig{BudgetPercent: 10}},
		"endpoints":             {"http://api.test/%d", hedgerow.HedgeConfig{BudgetPercent: 10}},
		"hosts, rate known":     {"http://h%d.test/", fast},
		"endpoints, rate known": {"http://api.test/%d", fast},
	}, func(t *testing.T, c eviction) {
		t.Helper()
		base := roundTripper(func(*http.Request) (*http.Response, error) {
			time.Sleep(25 * time.Millisecond)
			return hostOK(http.NoBody)
		})
		c.hedge.Delay = 10 * time.Millisecond
		tr := craceNew(t, hedgerow.Config{Base: base, MaxEndpoints: 2, Hedge: c.hedge})
		for n := range 3 {
			require.NoError(t, tr.Register(fmt.Sprintf("/%d", n), hedgerow.EndpointConfig{}))
		}
		const calls = 300
		for n := range calls {
			require.NoError(t, craceCall(tr, contractGet(t.Context(), t, fmt.Sprintf(c.target, n%3))).Err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		hedges := tr.Stats().Total.Hedges
		require.Positive(t, hedges, "as long as none was dropped, each has one to begin with")
		require.LessOrEqual(t, hedges, uint64(calls/10+3))
	})
}

// A host that hangs up counts as failing, whatever body the request has: EOF is not what a body fails with.
func TestHostileHangUpCounts(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{true, false} { // a base that is known to be net/http's, or not
		for name, body := range map[string]func() io.Reader{
			"stream": func() io.Reader { return iotest.OneByteReader(strings.NewReader("stream")) },
			"memory": func() io.Reader { return strings.NewReader("memory") },
			"none":   func() io.Reader { return http.NoBody },
		} {
			t.Run(fmt.Sprintf("%s, plain=%t", name, plain), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					srv := memhttp.NewServer(t, memhttp.HTTP1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
						_, _ = io.Copy(io.Discard, r.Body)
						panic(http.ErrAbortHandler)
					}))
					var base http.RoundTripper = srv.Transport()
					if !plain {
						base = roundTripper(srv.Transport().RoundTrip)
					}
					tr := craceNew(t, hedgerow.Config{Base: base, Breaker: hedgerow.BreakerConfig{MinSamples: 5}})
					key := hedgerow.EndpointKey{Host: "memhttp.test"}
					for range 5 {
						require.Equal(t, hedgerow.CircuitClosed, tr.Circuit(hedgerow.CircuitHost, key))
						req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL()+"/", body())
						require.NoError(t, err)
						require.ErrorIs(t, craceCall(tr, req).Err, io.EOF)
					}
					require.Equal(t, hedgerow.CircuitOpen, tr.Circuit(hedgerow.CircuitHost, key))
				})
			})
		}
	}
}

// A wall clock that is set back does not make a host's wish last longer than any may.
func TestHostilePushbackOfAClockSetBack(t *testing.T) {
	t.Parallel()
	noted := time.Unix(1_700_000_000, 0)
	limited := func(hint string) *http.Response {
		return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {hint}}}
	}
	var p hedgerow.PushbackCore
	p.Note(noted, limited("30"))
	require.True(t, p.Active(noted.Add(29*time.Second)))
	require.True(t, p.Active(noted.Add(-10*time.Second)), "a step that is small")
	for _, step := range []time.Duration{time.Minute, time.Hour, 1000 * time.Hour} {
		require.False(t, p.Active(noted.Add(-step)), step)
	}
	require.False(t, p.Active(noted.Add(30*time.Second)))
}
