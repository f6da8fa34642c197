package hedgerow_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/memhttp"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// C1 and C10: every field but the context, the headers and the URL reaches the base as the caller has set it, in each
// attempt, and the caller's request is as it was, however the call ends.
func TestC10PoolPassesTheOtherFieldsOn(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string][]scripted.Step{
		"OK": {{}}, "repeated": {pspec429, {}}, "exhausted": {pspec429, pspec401}, "failed": {{Err: errContract}, {Err: errContract}, {Err: errContract}},
		"both": {{Status: http.StatusOK, Err: errContract}, {}}, "neither": {{Do: func(*http.Request) (*http.Response, error) { return nil, nil }}, {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pspecPool(t, hedgerow.PoolConfig{Resources: []hedgerow.Resource{
				{ID: "a", Credential: hedgerow.QueryKey("key", "s"), Upstream: "http://up.test/base"},
				{ID: "b", Credential: hedgerow.Bearer("s"), Upstream: "http://up.test/base"},
			}})
			base := scripted.New(steps...)
			req := contractGet(t.Context(), t, "https://api.test/a%2Fb?q=1")
			req.Method, req.Host, req.Close, req.Pattern = "", "custom.test", true, "/pattern"
			req.TransferEncoding = []string{"identity"}
			req.Trailer = http.Header{"X-Trailer": nil}
			req.Header["X-Nil"] = nil
			req.Cancel = make(chan struct{}) //nolint:staticcheck // it must be passed on
			before := contractCopy(req)
			resp, err := p.Wrap(base).RoundTrip(req)
			if err == nil {
				contractRead(t, resp)
			}
			require.Equal(t, before, contractCopy(req))
			for _, rec := range base.Records() {
				sent := contractCopy(rec.Request)
				require.NotSame(t, req, rec.Request)
				sent.Context, sent.URL, sent.Header = before.Context, before.URL, before.Header
				require.Equal(t, before, sent)
			}
			base.Check(t)
			pspecIdle(t, p, 1)
		})
	}
}

// C54: the timeout of an http.Client ends a wait for a resource, a pause and an attempt, and is a timeout to its caller.
func TestC54ClientTimeoutThroughAPool(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cfg hedgerow.PoolConfig
		do  func(*hedgerow.Pool) error
	}{
		"attempt": {hedgerow.PoolConfig{}, nil},
		"wait": {hedgerow.PoolConfig{Wait: time.Hour}, func(p *hedgerow.Pool) error {
			return p.Report("A", "", hedgerow.Verdict{Action: hedgerow.ActionCooldown, Wait: 2 * time.Second})
		}},
		"slot": {hedgerow.PoolConfig{Wait: time.Hour}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			memhttp.Each(t, func(t *testing.T, proto memhttp.Protocol) {
				srv := memhttp.NewServer(t, proto, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
				cfg := tc.cfg
				cfg.Hosts, cfg.Resources = []string{srv.URL()}, pspecKeys(1)
				cfg.Resources[0].MaxInFlight = 1
				p, err := hedgerow.NewPool(cfg)
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				if name == "slot" {
					held := contractGet(ctx, t, srv.URL())
					go func() { _, _ = p.Wrap(srv.Transport()).RoundTrip(held) }()
					synctest.Wait()
				}
				if tc.do != nil {
					require.NoError(t, tc.do(p))
				}
				start := time.Now()
				client := &http.Client{Transport: p.Wrap(srv.Transport()), Timeout: 3 * time.Second}
				_, err = client.Do(contractGet(t.Context(), t, srv.URL()))
				require.Equal(t, 3*time.Second, time.Since(start))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				timeout, ok := errors.AsType[interface {
					error
					Timeout() bool
				}](err)
				require.True(t, ok)
				require.True(t, timeout.Timeout())
				cancel()
				synctest.Wait()
				s := p.Stats()
				require.Zero(t, s.InFlight)
				require.Zero(t, s.Resources[0].ConsecutiveFailures)
			})
		})
	}
}

// A rate so low that its next token is centuries away does not make a waiter spin.
func TestWaitingForATokenThatNeverComes(t *testing.T) {
	t.Parallel()
	for _, limit := range []float64{5e-324, 1e-300, 1e-9} {
		synctest.Test(t, func(t *testing.T) {
			p := pspecPool(t, hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "a", RateLimit: limit}}, Wait: time.Hour})
			_, _, err := pspecGet(t, p.Wrap(pspecScript(nil)))
			require.NoError(t, err)
			o := <-pspecGo(t.Context(), t, p.Wrap(pspecScript(nil)))
			require.Error(t, o.err)
			require.Zero(t, o.at)
		})
	}
}

// A caller that gives up while a Classifier waits for the body ends the look. The verdict on the response stands.
func TestCallerGoneDuringTheLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pspecPool(t, hedgerow.PoolConfig{
			Resources: pspecKeys(2), Classifier: func(hedgerow.Outcome) hedgerow.Verdict { return hedgerow.Verdict{} },
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		base := scripted.New(scripted.Step{Status: http.StatusTooManyRequests, Body: strings.Repeat("x", 100), BodyAfter: time.Hour})
		o := <-pspecGo(ctx, t, p.Wrap(base))
		require.ErrorIs(t, o.err, context.DeadlineExceeded)
		require.Equal(t, time.Second, o.at)
		require.Contains(t, pspecRest(p), "A")
		base.Check(t)
		require.EqualValues(t, 1, p.Stats().CallsCanceled)
		pspecIdle(t, p, 1)
	})
}
