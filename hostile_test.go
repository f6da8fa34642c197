package hedgerow_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// Requests that are not well-formed: an error or the base's own answer, never a panic, and the body is closed.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(*http.Request)
		sent   bool
	}{
		{"no URL", func(r *http.Request) { r.URL = nil }, false},
		{"empty URL", func(r *http.Request) { r.URL = &url.URL{} }, true},
		{"no header", func(r *http.Request) { r.Header = nil }, false},
		{"no host", func(r *http.Request) { r.URL.Host = "" }, false},
		{"opaque, no host", func(r *http.Request) { r.URL = &url.URL{Scheme: "http", Opaque: "//api.test/x"} }, false},
		{"opaque", func(r *http.Request) { r.URL = &url.URL{Scheme: "http", Host: "api.test", Opaque: "//api.test/x"} }, true},
		{"opaque without slashes", func(r *http.Request) { r.URL = &url.URL{Scheme: "mailto", Opaque: "you@api.test"} }, true},
		{"scheme", func(r *http.Request) { r.URL.Scheme = "gopher" }, true},
		{"no scheme", func(r *http.Request) { r.URL.Scheme = "" }, true},
		{"method with spaces", func(r *http.Request) { r.Method = "GET / HTTP/1.1" }, true},
		{"no method", func(r *http.Request) { r.Method = "" }, true},
		{"only a port", func(r *http.Request) { r.URL.Host = ":80" }, true},
		{"two ports", func(r *http.Request) { r.URL.Host = "api.test:80:80" }, true},
		{"half an address", func(r *http.Request) { r.URL.Host = "[::1" }, true},
		{"address with a zone", func(r *http.Request) { r.URL.Host = "[fe80::1%25en0]:80" }, true},
		{"host of bytes", func(r *http.Request) { r.URL.Host = "\xff\x00\n" }, true},
		{"path of bytes", func(r *http.Request) { r.URL.Path = "\xff//..\x00" }, true},
		{"raw path that lies", func(r *http.Request) { r.URL.RawPath = "/%zz" }, true},
		{"no path", func(r *http.Request) { r.URL.Path = "" }, true},
		{"length that lies", func(r *http.Request) { r.ContentLength = -7 }, true},
		{"huge length", func(r *http.Request) { r.ContentLength = 1 << 62 }, true},
		{"header of nothing", func(r *http.Request) { r.Header[""] = nil; r.Header["Connection"] = []string{} }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			craceModes(t, func(t *testing.T, detach bool) {
				t.Helper()
				for _, idempotent := range []bool{false, true} {
					done := 0
					base := scripted.Func(func(int, *http.Request) scripted.Step {
						return scripted.Step{After: 1500 * time.Millisecond, Body: "fine"}
					})
					tr := craceNew(t, hedgerow.Config{Base: base, Detach: detach})
					require.NoError(t, tr.Register("POST /v1", hedgerow.EndpointConfig{}))
					req := base.NewRequest(t, http.MethodPost, craceURL, "payload").WithContext(hedgerow.WithCall(t.Context(),
						hedgerow.Call{Idempotent: idempotent, Done: func(hedgerow.CallInfo) { done++ }}))
					tt.change(req)
					a, panicked, returned := craceGuard(tr, req)
					require.Nil(t, panicked)
					require.True(t, returned)
					require.Equal(t, tt.sent, a.Err == nil, "%v", a.Err)
					require.Equal(t, tt.sent, len(base.Records()) > 0)
					require.Equal(t, 1, done)
					synctest.Wait()
					base.Check(t)
				}
			})
		})
	}
	t.Run("no request", func(t *testing.T) {
		t.Parallel()
		_, err := craceNew(t, hedgerow.Config{}).RoundTrip(nil)
		require.Error(t, err)
	})
}

// The same over the transport of net/http, whose faults are passed on.
func TestHostileRequestsOverHTTPTransport(t *testing.T) {
	t.Parallel()
	base := &http.Transport{}
	tr := craceNew(t, hedgerow.Config{Base: base})
	for _, change := range []func(*http.Request){
		func(r *http.Request) { r.URL.Scheme = "gopher" },
		func(r *http.Request) { r.URL = &url.URL{} },
		func(r *http.Request) { r.Method = "GET / HTTP/1.1" },
		func(r *http.Request) { r.Header["Bad\nName"] = []string{"x"} },
		func(r *http.Request) { r.Header["X"] = []string{"\n"} },
	} {
		give := func(rt http.RoundTripper) error {
			req := hostGet(t, "http://127.0.0.1:1/")
			change(req)
			return craceCall(rt, req).Err
		}
		bare := give(base)
		require.Error(t, bare)
		require.Equal(t, bare, give(tr))
	}
}

// Bases that break the contract of RoundTripper.
func TestHostileBases(t *testing.T) {
	t.Parallel()
	response := func(body io.ReadCloser) *http.Response {
		return &http.Response{StatusCode: http.StatusOK, Body: body, ContentLength: -1}
	}
	for _, tt := range []struct {
		name  string
		base  func(*http.Request) (*http.Response, error)
		errs  bool
		panic any
	}{
		{"neither", func(*http.Request) (*http.Response, error) { return nil, nil }, true, nil},
		{"both", func(*http.Request) (*http.Response, error) {
			return response(io.NopCloser(strings.NewReader("x"))), errCrace
		}, true, nil},
		{"both, no body", func(*http.Request) (*http.Response, error) { return response(nil), errCrace }, true, nil},
		{"no body", func(*http.Request) (*http.Response, error) { return response(nil), nil }, false, nil},
		{"empty response", func(*http.Request) (*http.Response, error) { return &http.Response{}, nil }, false, nil},
		{"panics", func(*http.Request) (*http.Response, error) { panic("boom") }, false, "boom"},
		{"changes its request", func(r *http.Request) (*http.Response, error) {
			r.Header.Set("X-Changed", "1")
			r.URL.Path = "/changed"
			r.URL.Host = ""
			r.Method = "CHANGED"
			r.Body = nil
			*r = http.Request{}
			return response(http.NoBody), nil
		}, false, nil},
		{"changes its request and fails", func(r *http.Request) (*http.Response, error) {
			*r = http.Request{}
			return nil, errCrace
		}, true, nil},
	} {
		for _, kind := range []string{"passed", "hedgeable"} {
			for _, signal := range []hedgerow.Signal{hedgerow.SignalHeaders, hedgerow.SignalFirstByte} {
				t.Run(fmt.Sprintf("%s/%s/%s", tt.name, kind, signal), func(t *testing.T) {
					t.Parallel()
					craceModes(t, func(t *testing.T, detach bool) {
						t.Helper()
						done := 0
						tr := craceNew(t, hedgerow.Config{
							Base: roundTripper(tt.base), Detach: detach, Hedge: hedgerow.HedgeConfig{Signal: signal},
						})
						ctx := hedgerow.WithCall(t.Context(), hedgerow.Call{
							NoHedge: kind == "passed", Done: func(hedgerow.CallInfo) { done++ },
						})
						req, err := http.NewRequestWithContext(ctx, http.MethodGet, craceURL, nil)
						require.NoError(t, err)
						before := req.Clone(ctx)
						var resp *http.Response
						var panicked any
						func() {
							defer func() { panicked = recover() }()
							resp, err = tr.RoundTrip(req)
						}()
						require.Equal(t, tt.panic, panicked)
						if tt.panic == nil {
							require.Equal(t, tt.errs, err != nil)
							require.Equal(t, tt.errs, resp == nil)
						}
						require.Equal(t, 1, done)
						if kind == "passed" {
							return // shares URL and headers with what the base got
						}
						require.Equal(t, before.URL, req.URL)
						require.Equal(t, before.Header, req.Header)
						require.Equal(t, before.Method, req.Method)
					})
				})
			}
		}
	}
}

// The error of a base is handed back as it is, also one value for all calls.
func TestHostileSameError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := scripted.Func(func(int, *http.Request) scripted.Step {
			return scripted.Step{After: 1100 * time.Millisecond, Err: errCrace}
		})
		tr := craceNew(t, hedgerow.Config{Base: base})
		var wg sync.WaitGroup
		errs := make(chan error, 20)
		for range cap(errs) {
			req := base.NewRequest(t, http.MethodGet, craceURL, "")
			wg.Go(func() { errs <- craceCall(tr, req).Err })
		}
		wg.Wait()
		close(errs)
		for err := range errs {
			require.Same(t, errCrace, err)
		}
		base.Check(t)
	})
}

// A base that makes calls of its own over the Transport it serves, and a hook that does.
func TestHostileRecursion(t *testing.T) {
	t.Parallel()
	craceModes(t, func(t *testing.T, detach bool) {
		t.Helper()
		var tr *hedgerow.Transport
		var whole http.RoundTripper
		var hooked atomic.Int64
		inner := scripted.Func(func(int, *http.Request) scripted.Step {
			return scripted.Step{After: 1500 * time.Millisecond, Status: 503, Body: "x"}
		})
		base := roundTripper(func(req *http.Request) (*http.Response, error) {
			if req.Header.Get("X-Inner") != "" {
				return inner.RoundTrip(req)
			}
			again := req.Clone(req.Context())
			again.Header.Set("X-Inner", "1")
			return whole.RoundTrip(again)
		})
		back := func() {
			if hooked.Add(1) > 20 {
				return
			}
			time.Sleep(time.Millisecond)
			_ = tr.Stats()
			tr.Circuit(hedgerow.CircuitHost, hedgerow.EndpointKey{Host: "api.test"})
			tr.SetHedging(true)
			_ = tr.Register(fmt.Sprintf("/r%d", hooked.Load()), hedgerow.EndpointConfig{})
			req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, craceURL, nil)
			if err == nil {
				req.Header.Set("X-Inner", "1")
				craceCall(tr, req)
			}
		}
		tr = craceNew(t, hedgerow.Config{
			Base: base, Detach: detach, Breaker: hedgerow.BreakerConfig{MinSamples: 1},
			Hooks: hedgerow.Hooks{
				HedgeFired:    func(context.Context, hedgerow.HedgeEvent) { back() },
				HedgeSkipped:  func(context.Context, hedgerow.SkipEvent) { back() },
				CircuitChange: func(hedgerow.CircuitEvent) { back() },
				AttemptDone:   func(context.Context, hedgerow.AttemptEvent) { back() },
			},
		})
		whole = tr
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, craceURL, nil)
		require.NoError(t, err)
		require.Equal(t, 503, craceCall(tr, req).Status)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Greater(t, hooked.Load(), int64(5))
		inner.Check(t)
	})
}

// Many calls at one instant: the clock does not move, and nothing divides by it.
func TestHostileClockStandsStill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := scripted.Func(func(int, *http.Request) scripted.Step { return scripted.Step{Body: "x"} })
		tr, err := hedgerow.New(hedgerow.Config{Base: base})
		require.NoError(t, err)
		start := time.Now()
		var wg sync.WaitGroup
		for range 20 {
			req := base.NewRequest(t, http.MethodGet, craceURL, "")
			wg.Go(func() {
				for range 100 {
					craceCall(tr, req.Clone(req.Context()))
				}
			})
		}
		wg.Wait()
		require.Zero(t, time.Since(start))
		s := tr.Stats()
		ep := s.Endpoints[hedgerow.EndpointKey{Host: "api.test"}]
		require.EqualValues(t, 2000, s.Total.Requests)
		require.EqualValues(t, 2000, ep.Latency.Count)
		require.InDelta(t, 2000, ep.RatePerSecond, 1)
		require.Equal(t, time.Millisecond, ep.Delay)
		base.Check(t)
	})
}

// Register and SetHedging while calls run, in a registry that has room for one endpoint: nothing is lost, and the total
// never goes back.
func TestHostileChangesWhileCallsRun(t *testing.T) {
	t.Parallel()
	const callers, calls = 8, 200
	base := scripted.Func(func(attempt int, _ *http.Request) scripted.Step {
		return scripted.Step{After: time.Duration(attempt%5) * 100 * time.Microsecond, Body: "x"}
	})
	tr, err := hedgerow.New(hedgerow.Config{
		Base: base, MaxEndpoints: 1,
		Hedge: hedgerow.HedgeConfig{Delay: 200 * time.Microsecond, MinDelay: time.Microsecond, BudgetPercent: 100},
	})
	require.NoError(t, err)
	var callsDone atomic.Int64
	ctx := hedgerow.WithCall(t.Context(), hedgerow.Call{Done: func(hedgerow.CallInfo) { callsDone.Add(1) }})
	faults := make(chan error, callers+3)
	var calling, changing sync.WaitGroup
	stop := make(chan struct{})
	for i := range callers {
		calling.Go(func() {
			for j := range calls {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://host%d.test/r%d", (i+j)%4, j%20), nil)
				if err == nil {
					err = craceCall(tr, req).Err
				}
				if err != nil {
					faults <- err
					return
				}
			}
		})
	}
	change := func(f func(i int) error) {
		changing.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(200 * time.Microsecond):
				}
				if err := f(i); err != nil {
					faults <- err
					return
				}
			}
		})
	}
	change(func(i int) error {
		if i >= 20 {
			return nil
		}
		return tr.Register(fmt.Sprintf("GET /r%d", i), hedgerow.EndpointConfig{Name: strconv.Itoa(i)})
	})
	change(func(i int) error { tr.SetHedging(i%2 == 0); return nil })
	var last hedgerow.Counters
	change(func(int) error {
		s := tr.Stats()
		if len(s.Endpoints) > 1 || len(s.Hosts) > 1 {
			return fmt.Errorf("%d endpoints, %d hosts", len(s.Endpoints), len(s.Hosts))
		}
		now := s.Total
		if now.Requests < last.Requests || now.Hedges < last.Hedges || now.HedgeWins < last.HedgeWins || now.PrimaryWins < last.PrimaryWins {
			return fmt.Errorf("went back from %+v to %+v", last, now)
		}
		last = now
		return nil
	})
	calling.Wait()
	close(stop)
	changing.Wait()
	close(faults)
	for err := range faults {
		require.NoError(t, err)
	}
	total := tr.Stats().Total
	require.EqualValues(t, callers*calls, total.Requests)
	require.EqualValues(t, callers*calls, callsDone.Load())
	require.Equal(t, total.Hedged, total.HedgeWins+total.PrimaryWins)
	require.Eventually(t, func() bool { // the losers
		for _, r := range base.Records() {
			if r.End.IsZero() {
				return false
			}
		}
		return true
	}, 10*time.Second, time.Millisecond)
}
