package hedgerow_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

func TestCallFromContext(t *testing.T) {
	t.Parallel()
	_, ok := hedgerow.CallFromContext(t.Context())
	require.False(t, ok)
	outer := hedgerow.WithCall(t.Context(), hedgerow.Call{Endpoint: "a", NoHedge: true})
	inner := hedgerow.WithCall(outer, hedgerow.Call{Endpoint: "b"})
	c, ok := hedgerow.CallFromContext(inner)
	require.True(t, ok)
	require.Equal(t, "b", c.Endpoint)
	require.False(t, c.NoHedge, "an inner Call replaces the outer one as a whole")
}

func TestUnknownEndpoint(t *testing.T) {
	t.Parallel()
	base := scripted.New()
	tr := mustNew(t, hedgerow.Config{Base: base})
	req := base.NewRequest(t, http.MethodPost, "http://api.test/", "payload")
	var infos []hedgerow.CallInfo
	req = req.WithContext(hedgerow.WithCall(req.Context(), hedgerow.Call{
		Endpoint: "no such", Done: func(i hedgerow.CallInfo) { infos = append(infos, i) },
	}))
	resp, err := tr.RoundTrip(req)
	require.Nil(t, resp)
	require.ErrorIs(t, err, hedgerow.ErrUnknownEndpoint)
	require.EqualError(t, err, `hedgerow: unknown endpoint "no such"`)
	base.Check(t)
	require.Empty(t, base.Records())
	require.Equal(t, []hedgerow.CallInfo{{}}, infos)
	require.Zero(t, tr.Stats().Total.Requests, "it reached no endpoint")
}

func TestCallOverrides(t *testing.T) {
	t.Parallel()
	const (
		fast = 5 * time.Millisecond
		slow = time.Second
	)
	hedge := hedgerow.HedgeConfig{Delay: 100 * time.Millisecond, MinDelay: 2 * time.Millisecond, MaxDelay: 150 * time.Millisecond}
	for _, tc := range []struct {
		name   string
		method string
		call   hedgerow.Call
		want   time.Duration // to the return
		delay  time.Duration // in force
	}{
		{"nothing", http.MethodGet, hedgerow.Call{}, 100*time.Millisecond + fast, 100 * time.Millisecond},
		{"delay", http.MethodGet, hedgerow.Call{Delay: 30 * time.Millisecond}, 30*time.Millisecond + fast, 30 * time.Millisecond},
		{"floored delay", http.MethodGet, hedgerow.Call{Delay: 1}, 2*time.Millisecond + fast, 2 * time.Millisecond},
		{"delay above MaxDelay", http.MethodGet, hedgerow.Call{Delay: 200 * time.Millisecond}, 200*time.Millisecond + fast, 200 * time.Millisecond},
		{"negative delay", http.MethodGet, hedgerow.Call{Delay: -1}, 100*time.Millisecond + fast, 100 * time.Millisecond},
		{"no hedge", http.MethodGet, hedgerow.Call{NoHedge: true}, slow, 0},
		{"POST", http.MethodPost, hedgerow.Call{}, slow, 0},
		{"idempotent POST", http.MethodPost, hedgerow.Call{Idempotent: true}, 100*time.Millisecond + fast, 100 * time.Millisecond},
		{"endpoint", http.MethodPost, hedgerow.Call{Endpoint: "search"}, 100*time.Millisecond + fast, 100 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				base := scripted.New(scripted.Step{After: slow}, scripted.Step{After: fast})
				tr := mustNew(t, hedgerow.Config{Base: base, Hedge: hedge})
				require.NoError(t, tr.Register("/search", hedgerow.EndpointConfig{Name: "search", Idempotent: true}))
				var infos []hedgerow.CallInfo
				tc.call.Done = func(i hedgerow.CallInfo) { infos = append(infos, i) }
				start := time.Now()
				req := base.NewRequest(t, tc.method, "http://api.test/", "")
				resp, err := tr.RoundTrip(req.WithContext(hedgerow.WithCall(t.Context(), tc.call)))
				require.NoError(t, err)
				require.Equal(t, tc.want, time.Since(start))
				require.NoError(t, resp.Body.Close())
				synctest.Wait()
				base.Check(t)

				want := hedgerow.CallInfo{
					Endpoint: tc.call.Endpoint, Host: "api.test", Attempts: 1, Delay: tc.delay,
					Winner: hedgerow.Attempt{Endpoint: tc.call.Endpoint},
				}
				if tc.delay > 0 {
					want.Attempts, want.Winner.Number, want.Winner.Kind = 2, 1, hedgerow.AttemptHedge
				}
				require.Equal(t, []hedgerow.CallInfo{want}, infos)
			})
		})
	}
}

func TestLayersBelowSeeTheAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen []hedgerow.Attempt
		base := scripted.Func(func(attempt int, req *http.Request) scripted.Step {
			a, ok := hedgerow.AttemptFromContext(req.Context())
			require.True(t, ok)
			seen = append(seen, a)
			return scripted.Step{After: time.Duration(2-attempt) * time.Second}
		})
		tr := mustNew(t, hedgerow.Config{Base: base})
		require.NoError(t, tr.Register("GET /x", hedgerow.EndpointConfig{Name: "x"}))
		get(t, tr, http.MethodGet, "http://api.test/x")
		get(t, tr, http.MethodPost, "http://api.test/")
		require.Equal(t, []hedgerow.Attempt{
			{Endpoint: "x"}, {Endpoint: "x", Number: 1, Kind: hedgerow.AttemptHedge}, {},
		}, seen)
	})
	_, ok := hedgerow.AttemptFromContext(context.Background())
	require.False(t, ok)
}
