package hedgerow_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/memhttp"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

var errCcan = errors.New("the caller has had enough")

// ccanParent is a context that lives on and counts the contexts made of it that were not cancelled, as package context
// registers and unregisters them. It carries a Call by itself, because a context around it would hide them.
type ccanParent struct {
	context.Context

	call *hedgerow.Call
	done chan struct{}

	mu          sync.Mutex
	live, total int
}

func newCcanParent() *ccanParent {
	return &ccanParent{Context: context.Background(), done: make(chan struct{})}
}

func (p *ccanParent) Done() <-chan struct{} { return p.done }

func (p *ccanParent) Value(key any) any {
	if p.call == nil {
		return nil
	}
	return hedgerow.WithCall(context.Background(), *p.call).Value(key)
}

// AfterFunc is what package context looks for in a parent that is not its own.
func (p *ccanParent) AfterFunc(func()) (stop func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live++
	p.total++
	return sync.OnceValue(func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.live--
		return true
	})
}

func (p *ccanParent) children() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.live
}

func TestC49CallerCancels(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	for _, tt := range []struct {
		name  string
		steps []scripted.Step
		at    time.Duration
		sent  int
		ends  []string
	}{
		{
			"in the hedge delay",
			[]scripted.Step{{After: hour}},
			500 * time.Millisecond, 1,
			[]string{"0 primary err won"},
		},
		{
			"waiting for the headers of both", []scripted.Step{{After: hour}, {After: hour}}, 1500 * time.Millisecond, 2, nil,
		},
		{
			"the primary runs on after the hedge has failed",
			[]scripted.Step{{After: hour}, {Status: 500}},
			1500 * time.Millisecond, 2,
			[]string{"0 primary err won", "1 hedge 500"},
		},
		{
			"the primary has failed",
			[]scripted.Step{{After: 1200 * time.Millisecond, Err: errCrace}, {After: hour}},
			1500 * time.Millisecond, 2, nil,
		},
		{
			"the primary has answered 503",
			[]scripted.Step{{After: 1200 * time.Millisecond, Status: 503, Body: "x"}, {After: hour}},
			1500 * time.Millisecond, 2, nil,
		},
		{
			"the hedge's first answer is in a losing body",
			[]scripted.Step{{After: hour}, {Status: 503, BodyAfter: hour}},
			1002 * time.Millisecond, 2,
			[]string{"0 primary err won", "1 hedge 503"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			craceModes(t, func(t *testing.T, detach bool) {
				t.Helper()
				var events craceLog
				base := scripted.New(tt.steps...)
				tr := craceNew(t, hedgerow.Config{
					Base: base, Detach: detach, Hooks: events.hooks(),
					Breaker: hedgerow.BreakerConfig{MinSamples: 3, ErrorRateThreshold: 0.1},
				})
				ctx, cancel := context.WithCancelCause(hedgerow.WithCall(t.Context(), hedgerow.Call{Idempotent: true}))
				time.AfterFunc(tt.at, func() { cancel(errCcan) })
				req := base.NewRequest(t, http.MethodPost, craceURL, "payload").WithContext(ctx)
				require.Equal(t, craceAnswer{Err: errCcan, At: tt.at}, craceCall(tr, req))
				time.Sleep(20 * time.Second)
				synctest.Wait()
				require.Len(t, base.Records(), tt.sent, "no attempt after the caller's end")
				base.Check(t)
				if tt.ends != nil && !detach {
					require.Equal(t, tt.ends, events.ends())
				}
				require.Len(t, events.done, tt.sent)
				require.Zero(t, tr.Stats().Total.Errors, "a caller's cancel is no error")
			})
		})
	}
}

// While an attempt runs, the base's error is the call's.
func TestC49ErrorOfTheBaseIsUntouched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := scripted.Func(func(int, *http.Request) scripted.Step {
			return scripted.Step{Do: func(req *http.Request) (*http.Response, error) {
				<-req.Context().Done()
				return nil, errCrace
			}}
		})
		tr := craceNew(t, hedgerow.Config{Base: base})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		a := craceCall(tr, base.NewRequest(t, http.MethodGet, craceURL, "").WithContext(ctx))
		require.Same(t, errCrace, a.Err)
		require.Equal(t, 3*time.Second, a.At)
		require.EqualValues(t, 1, tr.Stats().Total.Errors, "a caller's deadline is one")
	})
}

// Over the wire the error is the one that the bare transport gives.
func TestC49SameErrorAsTheBareTransport(t *testing.T) {
	t.Parallel()
	memhttp.Each(t, func(t *testing.T, proto memhttp.Protocol) {
		t.Helper()
		srv := memhttp.NewServer(t, proto, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		}))
		give := func(rt http.RoundTripper) craceAnswer {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(2*time.Second, func() { cancel(errCcan) })
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL(), nil)
			require.NoError(t, err)
			return craceCall(rt, req)
		}
		bare := give(srv.Transport())
		require.Error(t, bare.Err)
		require.Equal(t, 2*time.Second, bare.At)
		require.Equal(t, bare, give(craceNew(t, hedgerow.Config{Base: srv.Transport()})))
	})
}

// The reason why a loser was cancelled is seen by what watches attempts, never by the caller.
func TestC52CauseStaysInside(t *testing.T) {
	t.Parallel()
	memhttp.Each(t, func(t *testing.T, proto memhttp.Protocol) {
		t.Helper()
		var seen atomic.Int64
		srv := memhttp.NewServer(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if seen.Add(1)%2 == 1 {
				<-r.Context().Done()
				return
			}
			_, _ = io.WriteString(w, "hedge")
		}))
		var events craceLog
		tr := craceNew(t, hedgerow.Config{
			Base: srv.Transport(), Hooks: events.hooks(),
			Breaker: hedgerow.BreakerConfig{MinSamples: 1, ErrorRateThreshold: 0.01},
		})
		for range 5 {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL(), nil)
			require.NoError(t, err)
			require.Equal(t, craceAnswer{Status: 200, Body: "hedge", At: time.Second}, craceCall(tr, req))
		}
		synctest.Wait()
		require.Empty(t, events.moves, "a loser is no failure")
		require.Len(t, events.done, 10)
		for _, e := range events.done {
			require.Equal(t, e.Attempt.Number == 1, e.Won)
			require.Equal(t, e.Attempt.Number == 0, e.Superseded)
			if e.Superseded {
				require.ErrorIs(t, e.Err, context.Canceled, "known as a cancellation on either protocol")
				require.Equal(t, proto == memhttp.HTTP1, errors.Is(e.Err, hedgerow.ErrSuperseded))
			}
		}
		total := tr.Stats().Total
		require.Zero(t, total.Errors)
		require.EqualValues(t, 5, total.HedgeWins)
	})
}

// No error that a caller gets says that its attempt was superseded, however the call ends.
func TestC52NeverTheCallersError(t *testing.T) {
	t.Parallel()
	craceModes(t, func(t *testing.T, detach bool) {
		t.Helper()
		for _, steps := range [][]scripted.Step{
			{{After: time.Hour}, {After: time.Hour}},
			{{After: 1500 * time.Millisecond, Err: errCrace}, {After: time.Hour}},
			{{After: time.Hour}, {Body: "lost on the way", BodyAfter: time.Hour}},
			{{After: 1500 * time.Millisecond, Body: "lost on the way", BodyAfter: time.Hour}, {After: time.Hour}},
		} {
			base := scripted.New(steps...)
			tr := craceNew(t, hedgerow.Config{Base: base, Detach: detach})
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(2*time.Second, func() { cancel(errCcan) })
			a := craceCall(tr, base.NewRequest(t, http.MethodGet, craceURL, "").WithContext(ctx))
			require.Error(t, a.Err)
			require.NotErrorIs(t, a.Err, hedgerow.ErrSuperseded)
			synctest.Wait()
			base.Check(t)
		}
	})
}

func TestC53BaseIgnoresContext(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name           string
		hedge          bool
		inline, detach craceAnswer
	}{
		{
			"a hedge answers", true,
			craceAnswer{Status: 200, Body: "hedge", At: time.Hour},
			craceAnswer{Status: 200, Body: "hedge", At: time.Second},
		},
		{
			"the caller cancels", false,
			craceAnswer{Status: 200, Body: "late", At: time.Hour}, // as without us
			craceAnswer{Err: errCcan, At: 2 * time.Second},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			craceModes(t, func(t *testing.T, detach bool) {
				t.Helper()
				base := scripted.New(
					scripted.Step{After: time.Hour, IgnoreContext: true, Body: "late"}, scripted.Step{Body: "hedge"})
				cfg := hedgerow.Config{Base: base, Detach: detach}
				if !tt.hedge {
					cfg.Hedge.Delay = 2 * time.Hour
				}
				tr := craceNew(t, cfg)
				ctx, cancel := context.WithCancelCause(t.Context())
				if !tt.hedge {
					time.AfterFunc(2*time.Second, func() { cancel(errCcan) })
				}
				defer cancel(nil)
				want := tt.inline
				if detach {
					want = tt.detach
				}
				require.Equal(t, want, craceCall(tr, base.NewRequest(t, http.MethodGet, craceURL, "").WithContext(ctx)))
				time.Sleep(2 * time.Hour) // the late response is closed by the goroutine that gets it
				synctest.Wait()
				base.Check(t)
			})
		})
	}
}

func TestC54ClientTimeout(t *testing.T) {
	t.Parallel()
	memhttp.Each(t, func(t *testing.T, proto memhttp.Protocol) {
		t.Helper()
		srv := memhttp.NewServer(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/stream" {
				for r.Context().Err() == nil {
					_, _ = io.WriteString(w, "piece")
					_ = http.NewResponseController(w).Flush()
					time.Sleep(100 * time.Millisecond)
				}
				return
			}
			<-r.Context().Done()
		}))
		for _, delay := range []time.Duration{time.Second, time.Hour} { // with hedges in flight, and without
			for _, detach := range []bool{false, true} {
				about := fmt.Sprintf("delay %s, detach %t", delay, detach)
				tr := craceNew(t, hedgerow.Config{
					Base: srv.Transport(), Detach: detach, Hedge: hedgerow.HedgeConfig{Delay: delay, MaxHedges: 2},
				})
				client := &http.Client{Transport: tr, Timeout: 3 * time.Second}

				start := time.Now()
				_, err := client.Get(srv.URL())
				require.Equal(t, 3*time.Second, time.Since(start), about)
				var urlErr *url.Error
				require.ErrorAs(t, err, &urlErr, about)
				require.True(t, urlErr.Timeout(), about)
				require.ErrorIs(t, err, context.DeadlineExceeded, about)
				require.NotErrorIs(t, err, hedgerow.ErrSuperseded, about)

				start = time.Now()
				resp, err := client.Get(srv.URL() + "/stream")
				require.NoError(t, err, about)
				_, err = io.Copy(io.Discard, resp.Body)
				require.Equal(t, 3*time.Second, time.Since(start), about)
				var netErr net.Error
				require.ErrorAs(t, err, &netErr, about)
				require.True(t, netErr.Timeout(), about)
				require.ErrorIs(t, err, context.DeadlineExceeded, about)
				_ = resp.Body.Close() // HTTP/2 says once more that the call was cancelled
			}
		}
	})
}

func TestC56ContextDoneOnEntry(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		ctx  func(*http.Request) *http.Request
		want error
		errs uint64
	}{
		{"cause", func(r *http.Request) *http.Request {
			ctx, cancel := context.WithCancelCause(r.Context())
			cancel(errCcan)
			return r.WithContext(ctx)
		}, errCcan, 0},
		{"cancelled", func(r *http.Request) *http.Request {
			ctx, cancel := context.WithCancel(r.Context())
			cancel()
			return r.WithContext(ctx)
		}, context.Canceled, 0},
		{"deadline", func(r *http.Request) *http.Request {
			ctx, cancel := context.WithTimeout(r.Context(), -time.Second)
			defer cancel()
			return r.WithContext(ctx)
		}, context.DeadlineExceeded, 1},
		{"Request.Cancel", func(r *http.Request) *http.Request {
			stopped := make(chan struct{})
			close(stopped)
			r.Cancel = stopped //nolint:staticcheck // http.Client still uses it
			return r
		}, context.Canceled, 0},
	} {
		for _, idempotent := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/idempotent=%t", tt.name, idempotent), func(t *testing.T) {
				t.Parallel()
				craceModes(t, func(t *testing.T, detach bool) {
					t.Helper()
					base := scripted.New()
					tr := craceNew(t, hedgerow.Config{Base: base, Detach: detach})
					var infos []hedgerow.CallInfo
					ctx := hedgerow.WithCall(t.Context(), hedgerow.Call{
						Idempotent: idempotent, Done: func(i hedgerow.CallInfo) { infos = append(infos, i) },
					})
					req := tt.ctx(base.NewRequest(t, http.MethodPost, craceURL, "payload").WithContext(ctx))
					a := craceCall(tr, req)
					require.Equal(t, craceAnswer{Err: tt.want}, a)
					require.Equal(t, []hedgerow.CallInfo{{Host: "api.test"}}, infos)
					require.Empty(t, base.Records())
					require.Equal(t, []int{0, 1}, []int{base.Bodies()[0].Reads(), base.Bodies()[0].Closes()})
					require.EqualValues(t, 1, tr.Stats().Total.Requests)
					require.Equal(t, tt.errs, tr.Stats().Total.Errors)
					synctest.Wait()
					base.Check(t)
				})
			})
		}
	}
}

// Each call makes contexts of its caller's, which lives on. Whatever way the call goes, they are taken off it again.
func TestC58ChildContextsAreFreed(t *testing.T) {
	t.Parallel()
	craceModes(t, func(t *testing.T, detach bool) {
		t.Helper()
		const calls = 10_000
		steps := [][]scripted.Step{
			{{Body: "x"}},
			{{Err: errCrace}},
			{{Status: 204}},
			{{Status: 200, BodyReader: http.NoBody}},
			{{Status: 503, Body: "x"}},
			{{After: 1200 * time.Millisecond, Body: "x"}, {After: time.Hour}},
			{{After: time.Hour}, {After: 200 * time.Millisecond, Body: "x"}},
			{{After: 1200 * time.Millisecond, Err: errCrace}, {After: time.Second, Status: 503}},
			{{After: 1200 * time.Millisecond, Status: 503, Body: "x"}, {After: time.Second, Err: errCrace}},
			{{After: 1200 * time.Millisecond, Status: 503, Body: "x"}, {After: time.Second, Body: "x"}},
		}
		base := scripted.Func(func(_ int, req *http.Request) scripted.Step {
			a, _ := hedgerow.AttemptFromContext(req.Context())
			var way int
			_, _ = fmt.Sscan(req.Header.Get("X-Way"), &way)
			return steps[way%len(steps)][a.Number]
		})
		tr := craceNew(t, hedgerow.Config{
			Base: base, Detach: detach, Breaker: hedgerow.BreakerConfig{Disabled: true},
			Hedge: hedgerow.HedgeConfig{EstimatedRPS: 1e6},
		})
		parent := newCcanParent()
		for i := range calls {
			req := base.NewRequest(t, http.MethodGet, craceURL, "").WithContext(parent)
			req.Header.Set("X-Way", strconv.Itoa(i))
			resp, err := tr.RoundTrip(req)
			if err != nil {
				continue
			}
			switch {
			case i%len(steps) == 2 || i%len(steps) == 3: // has no body: not closed
			case i%2 == 0:
				_, err = io.Copy(io.Discard, resp.Body) // to its end: not closed
			default:
				err = resp.Body.Close()
			}
			require.NoError(t, err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.GreaterOrEqual(t, parent.total, calls, "the test sees what it counts")
		require.Zero(t, parent.children())
	})
}

// What limits an attempt until its headers are in has no hold on its body.
func TestC60HeaderTimeoutEndsWithTheHeaders(t *testing.T) {
	t.Parallel()
	memhttp.Each(t, func(t *testing.T, proto memhttp.Protocol) {
		t.Helper()
		srv := memhttp.NewServer(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/hedged" && r.Header.Get("X-Hedge") == "" {
				<-r.Context().Done()
				return
			}
			time.Sleep(500 * time.Millisecond)
			for range 10 {
				_, _ = io.WriteString(w, "piece")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(time.Second)
			}
		}))
		srv.Transport().ResponseHeaderTimeout = time.Second
		marking := ccanFunc(func(req *http.Request) (*http.Response, error) {
			if a, ok := hedgerow.AttemptFromContext(req.Context()); ok && a.Kind == hedgerow.AttemptHedge {
				req = req.Clone(req.Context())
				req.Header.Set("X-Hedge", "1")
			}
			return srv.Transport().RoundTrip(req)
		})
		tr := craceNew(t, hedgerow.Config{Base: marking, Hedge: hedgerow.HedgeConfig{Delay: 400 * time.Millisecond}})
		for _, tt := range []struct {
			path string
			at   time.Duration
		}{
			{"/", 500 * time.Millisecond},
			{"/hedged", 900 * time.Millisecond},
		} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL()+tt.path, nil)
			require.NoError(t, err)
			a := craceCall(tr, req)
			require.NoError(t, a.Err)
			require.Equal(t, tt.at, a.At)
			require.Len(t, a.Body, 50)
		}
	})
}

// ccanFunc is a RoundTripper of a function.
type ccanFunc func(*http.Request) (*http.Response, error)

func (f ccanFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestC61NoCancelRequest(t *testing.T) {
	t.Parallel()
	_, found := reflect.TypeFor[*hedgerow.Transport]().MethodByName("CancelRequest")
	require.False(t, found)
}
