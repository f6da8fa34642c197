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
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/memhttp"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

var errCcan = errors.New("the caller has had enough")

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
		marking := roundTripper(func(req *http.Request) (*http.Response, error) {
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

func TestC61NoCancelRequest(t *testing.T) {
	t.Parallel()
	_, found := reflect.TypeFor[*hedgerow.Transport]().MethodByName("CancelRequest")
	require.False(t, found)
}
