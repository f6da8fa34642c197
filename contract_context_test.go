package hedgerow_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/memhttp"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

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
		parent := newContractParent(t.Context())
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
		require.GreaterOrEqual(t, parent.total(), calls, "the test sees what it counts")
		require.Zero(t, parent.children())
	})
}
