package hedgerow_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// TestPoolOfKeysOverAPoolOfUpstreams has a key refused, which rests no upstream, and an upstream fail, which rests it for all keys.
func TestPoolOfKeysOverAPoolOfUpstreams(t *testing.T) {
	t.Parallel()
	hosts := []string{"http://api.test"}
	upstreams := pspecPool(t, hedgerow.PoolConfig{
		Hosts: hosts, Strategy: hedgerow.PrimaryBackup,
		Resources: []hedgerow.Resource{{ID: "east", Upstream: "http://east.test"}, {ID: "west", Upstream: "http://west.test"}},
		Classifier: func(o hedgerow.Outcome) hedgerow.Verdict {
			if o.Response == nil || o.Response.StatusCode < http.StatusInternalServerError {
				return hedgerow.Verdict{Action: hedgerow.ActionNeutral}
			}
			return hedgerow.Verdict{Action: hedgerow.ActionCooldown}
		},
	})
	keys := pspecPool(t, hedgerow.PoolConfig{Hosts: hosts, Strategy: hedgerow.PrimaryBackup, Resources: []hedgerow.Resource{
		{ID: "spent", Credential: hedgerow.Bearer("spent")}, {ID: "good", Credential: hedgerow.Bearer("good")},
	}})
	failing := false
	var sends []string
	rt := keys.Wrap(upstreams.Wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
		key := strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")
		sends = append(sends, req.URL.Host+" "+key)
		switch {
		case failing && req.URL.Host == "east.test":
			return sharedAnswer(req, http.StatusBadGateway, ""), nil
		case key == "spent":
			return sharedAnswer(req, http.StatusTooManyRequests, ""), nil
		}
		return sharedAnswer(req, http.StatusOK, ""), nil
	})))
	get := func() {
		resp, err := rt.RoundTrip(contractGet(t.Context(), t, "http://api.test/"))
		require.NoError(t, err)
		contractRead(t, resp)
		require.Equal(t, http.StatusOK, resp.StatusCode)
	}
	get()
	require.Equal(t, []string{"east.test spent", "east.test good"}, sends)
	require.EqualValues(t, 1, keys.Stats().Retries)
	require.Zero(t, upstreams.Stats().Retries) // they are not its own
	failing = true
	get()
	require.NoError(t, keys.Enable("spent"))
	get()
	require.Equal(t, []string{"east.test good", "west.test good", "west.test spent", "west.test good"}, sends[2:])
}

// TestPoolsOfKeysBeneathAPoolOfUpstreams has the keys of one upstream spent: calls go to the other one until they are back.
func TestPoolsOfKeysBeneathAPoolOfUpstreams(t *testing.T) {
	t.Parallel()
	ofKeys := func(o hedgerow.Outcome) hedgerow.Verdict {
		if o.Err != nil || o.Response.StatusCode > http.StatusInternalServerError {
			return hedgerow.Verdict{Action: hedgerow.ActionNeutral}
		}
		return hedgerow.Verdict{}
	}
	ofUpstreams := func(o hedgerow.Outcome) hedgerow.Verdict {
		if o.Response != nil {
			switch o.Response.StatusCode {
			case http.StatusUnauthorized, http.StatusPaymentRequired:
				return hedgerow.Verdict{Action: hedgerow.ActionNeutral}
			case http.StatusTooManyRequests:
				return hedgerow.Verdict{Action: hedgerow.ActionCooldown, Wait: 100 * time.Millisecond}
			}
		}
		return hedgerow.Verdict{}
	}
	synctest.Test(t, func(t *testing.T) {
		sends := map[string]int{}
		base := roundTrip(func(req *http.Request) (*http.Response, error) {
			sends[req.URL.Host]++
			switch pspecKey(req.Header) + "@" + req.URL.Host {
			case "A@east.test":
				resp := sharedAnswer(req, http.StatusTooManyRequests, "")
				resp.Header.Set("Retry-After", "60")
				return resp, nil
			case "B@east.test":
				return sharedAnswer(req, http.StatusUnauthorized, ""), nil
			}
			return sharedAnswer(req, http.StatusOK, req.URL.Host), nil
		})
		var resources []hedgerow.Resource
		for _, name := range []string{"east", "west"} {
			url := "http://" + name + ".test"
			capped := pspecKeys(2)
			capped[0].MaxInFlight, capped[1].MaxInFlight = 1, 1
			keys := pspecPool(t, hedgerow.PoolConfig{
				Hosts: []string{url}, Resources: capped, Synthetic429: true, Classifier: ofKeys,
			})
			resources = append(resources, hedgerow.Resource{ID: name, Upstream: url, Base: keys.Wrap(base)})
		}
		upstreams := pspecPool(t, hedgerow.PoolConfig{
			Hosts: []string{"http://api.test"}, Resources: resources, Strategy: hedgerow.PrimaryBackup, Classifier: ofUpstreams,
		})
		tr := contractNew(t, hedgerow.Config{Base: upstreams.Wrap(base), Breaker: hedgerow.BreakerConfig{FailFast: true, MinSamples: 20}})
		begin := func() *http.Response {
			resp, err := tr.RoundTrip(contractGet(t.Context(), t, "http://api.test/"))
			require.NoError(t, err)
			return resp
		}
		call := func() (int, string) {
			resp := begin()
			return resp.StatusCode, contractRead(t, resp)
		}
		status, _ := call() // the last answer that there was: one key of east is spent, the other one revoked
		require.Equal(t, http.StatusUnauthorized, status)
		for range 50 {
			status, body := call()
			require.Equal(t, http.StatusOK, status)
			require.Equal(t, "west.test", body)
			time.Sleep(time.Second)
		}
		require.Equal(t, 2, sends["east.test"])
		time.Sleep(time.Minute)
		_, body := call()
		require.Equal(t, "west.test", body)
		require.Equal(t, 3, sends["east.test"]) // the spent one is tried again

		first, second := begin(), begin() // all slots that there are
		status, _ = call()
		require.Equal(t, http.StatusTooManyRequests, status)
		_, _ = contractRead(t, first), contractRead(t, second)
		time.Sleep(100 * time.Millisecond)
		status, _ = call()
		require.Equal(t, http.StatusOK, status)
	})
}

// TestNothingToSendWithIsNoFailure has a pool beneath a pool that has no resource: that says nothing of the host.
func TestNothingToSendWithIsNoFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(1)})
		require.NoError(t, inner.Disable("A"))
		outer := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(1)})
		base := roundTrip(func(req *http.Request) (*http.Response, error) { return sharedAnswer(req, http.StatusOK, ""), nil })
		for name, below := range map[string]http.RoundTripper{"pool": inner.Wrap(base), "pools": outer.Wrap(inner.Wrap(base))} {
			tr := contractNew(t, hedgerow.Config{Base: below, Breaker: hedgerow.BreakerConfig{FailFast: true, MinSamples: 20}})
			for range 100 {
				_, _, err := pspecGet(t, tr)
				_, ok := errors.AsType[*hedgerow.ExhaustedError](err)
				require.True(t, ok, "%s: %v", name, err)
			}
			require.Equal(t, hedgerow.CircuitClosed, tr.Stats().Hosts["api.test"].Circuit, name)
		}
	})
}

// TestOutcomeReplayable tells classifiers which calls may be sent more than once.
func TestOutcomeReplayable(t *testing.T) {
	t.Parallel()
	var replayable []bool
	pool := pspecPool(t, hedgerow.PoolConfig{
		Hosts: []string{"http://api.test"}, Resources: pspecKeys(1),
		Classifier: func(o hedgerow.Outcome) hedgerow.Verdict {
			replayable = append(replayable, o.Replayable)
			return hedgerow.Verdict{}
		},
	})
	tr := contractNew(t, hedgerow.Config{Hedge: hedgerow.HedgeConfig{Delay: time.Hour}, Base: pool.Wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
		return sharedAnswer(req, http.StatusOK, ""), nil
	}))})
	require.NoError(t, tr.Register("POST /declared", hedgerow.EndpointConfig{Idempotent: true}))
	for _, tt := range []struct {
		method, path, key string
		opts              hedgerow.Call
		want              bool
	}{
		{http.MethodGet, "/", "", hedgerow.Call{}, true},
		{http.MethodPost, "/", "", hedgerow.Call{}, false},
		{http.MethodPost, "/", "k1", hedgerow.Call{}, true},
		{http.MethodPost, "/", "", hedgerow.Call{Idempotent: true}, true},
		{http.MethodPost, "/declared", "", hedgerow.Call{}, true},
		{http.MethodPost, "/declared", "", hedgerow.Call{NoHedge: true}, true},
	} {
		replayable = nil
		req := contractGet(hedgerow.WithCall(t.Context(), tt.opts), t, "http://api.test"+tt.path)
		req.Method = tt.method
		if tt.key != "" {
			req.Header.Set("Idempotency-Key", tt.key)
		}
		resp, err := tr.RoundTrip(req)
		require.NoError(t, err)
		contractRead(t, resp)
		require.Equal(t, []bool{tt.want}, replayable, "%+v", tt)
	}
}

// TestHedgeOverNestedPools has the upstream that the primary is on hang. The hedge takes another key, and another upstream if there
// is one with a place; it does not wait for one.
func TestHedgeOverNestedPools(t *testing.T) {
	t.Parallel()
	east := hedgerow.Resource{ID: "east", Upstream: "http://east.test", MaxInFlight: 1}
	west := hedgerow.Resource{ID: "west", Upstream: "http://west.test"}
	shared := east
	shared.MaxInFlight = 0
	for name, tt := range map[string]struct {
		upstreams []hedgerow.Resource
		resting   string
		sends     []string
		after     time.Duration
	}{
		"another upstream": {[]hedgerow.Resource{shared, west}, "", []string{"east.test A", "west.test B"}, contractDelay},
		"the only one":     {[]hedgerow.Resource{shared}, "", []string{"east.test A", "east.test B"}, contractDelay},
		"no place":         {[]hedgerow.Resource{east}, "", []string{"east.test A"}, time.Second},
		"another that rests after failures": {
			[]hedgerow.Resource{shared, west}, "west", []string{"east.test A", "east.test B"}, contractDelay,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				hosts := []string{"http://api.test"}
				upstreams := pspecPool(t, hedgerow.PoolConfig{Hosts: hosts, Strategy: hedgerow.PrimaryBackup, Resources: tt.upstreams, Wait: time.Minute})
				keys := pspecPool(t, hedgerow.PoolConfig{Hosts: hosts, Strategy: hedgerow.PrimaryBackup, Resources: pspecKeys(2)})
				if tt.resting != "" {
					require.NoError(t, upstreams.Report(tt.resting, "", hedgerow.Verdict{Action: hedgerow.ActionRetry}))
				}
				sends := make(chan string, 2)
				tr := contractNew(t, hedgerow.Config{Base: keys.Wrap(upstreams.Wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
					key := pspecKey(req.Header)
					sends <- req.URL.Host + " " + key
					if key == "A" {
						select {
						case <-time.After(time.Second):
						case <-req.Context().Done():
							return nil, context.Cause(req.Context())
						}
					}
					return sharedAnswer(req, http.StatusOK, ""), nil
				})))})
				start := time.Now()
				resp, err := tr.RoundTrip(contractGet(t.Context(), t, "http://api.test/"))
				require.NoError(t, err)
				contractRead(t, resp)
				require.Equal(t, tt.after, time.Since(start))
				require.Len(t, sends, len(tt.sends))
				for _, want := range tt.sends {
					require.Equal(t, want, <-sends)
				}
				synctest.Wait()
				require.Zero(t, keys.Stats().InFlight+upstreams.Stats().InFlight)
				for _, s := range keys.Snapshot() {
					require.Zero(t, s.ConsecutiveFailures)
				}
			})
		})
	}
}

// TestSignedPathOverNestedPools has the credential of the outer pool put the key at the end of the path. It is the same call beneath.
func TestSignedPathOverNestedPools(t *testing.T) {
	t.Parallel()
	hosts := []string{"http://api.test"}
	inner := pspecPool(t, hedgerow.PoolConfig{Hosts: hosts, Resources: []hedgerow.Resource{{ID: "x"}, {ID: "y"}}})
	outer := pspecPool(t, hedgerow.PoolConfig{Hosts: hosts, Resources: []hedgerow.Resource{
		{ID: "a", Credential: hedgerow.CredentialFunc(func(r *http.Request) error { r.URL.Path += "/key"; return nil })},
	}})
	sends := 0
	rt := outer.Wrap(inner.Wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
		if sends++; sends == 1 {
			return nil, io.ErrUnexpectedEOF
		}
		return sharedAnswer(req, http.StatusOK, ""), nil
	})))
	ctx := hedgerow.WithCall(t.Context(), hedgerow.Call{Idempotent: true})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://api.test/v1/things", http.NoBody)
	require.NoError(t, err)
	resp, err := rt.RoundTrip(req)
	require.NoError(t, err)
	contractRead(t, resp)
	require.EqualValues(t, 1, outer.Stats().Attempts)
	require.EqualValues(t, 2, inner.Stats().Attempts)
}
