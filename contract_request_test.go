package hedgerow_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/memhttp"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// C1: whatever becomes of a call, its request is what it was.
func TestC01RequestIsNotMutated(t *testing.T) {
	t.Parallel()
	type script struct {
		steps  []scripted.Step
		call   hedgerow.Call
		cancel time.Duration
		detach bool
		calls  int
		status int // 0: an error
	}
	slow, fast := scripted.Step{After: time.Minute, Body: "slow"}, scripted.Step{After: time.Millisecond, Body: "fast"}
	bad := scripted.Step{After: 15 * time.Millisecond, Err: errContract}
	contractBubbles(t, map[string]script{
		"primary answers":         {steps: []scripted.Step{fast}, calls: 1, status: 200},
		"primary fails":           {steps: []scripted.Step{{Err: errContract}}, calls: 1},
		"hedge wins":              {steps: []scripted.Step{slow, fast}, calls: 2, status: 200},
		"hedge wins, detached":    {steps: []scripted.Step{slow, fast}, detach: true, calls: 2, status: 200},
		"primary wins the race":   {steps: []scripted.Step{{After: 20 * time.Millisecond, Body: "ok"}, slow}, calls: 2, status: 200},
		"all fail":                {steps: []scripted.Step{bad, bad}, calls: 2},
		"all answer 500":          {steps: []scripted.Step{{After: contractDelay * 2, Status: 500, Body: "oh"}, {Status: 500, Body: "no"}}, calls: 2, status: 500},
		"both at once":            {steps: []scripted.Step{{Status: 502, Err: errContract}}, calls: 1},
		"neither":                 {steps: []scripted.Step{{Do: func(*http.Request) (*http.Response, error) { return nil, nil }}}, calls: 1}, //nolint:nilnil // the fault under test
		"not hedged":              {steps: []scripted.Step{fast}, call: hedgerow.Call{NoHedge: true}, calls: 1, status: 200},
		"not hedged and fails":    {steps: []scripted.Step{bad}, call: hedgerow.Call{NoHedge: true}, calls: 1},
		"unknown endpoint":        {call: hedgerow.Call{Endpoint: "nobody"}},
		"cancelled at once":       {cancel: time.Nanosecond, steps: []scripted.Step{slow}, calls: 1},
		"cancelled in the race":   {cancel: 20 * time.Millisecond, steps: []scripted.Step{slow, slow}, calls: 2},
		"cancelled when detached": {cancel: 20 * time.Millisecond, steps: []scripted.Step{slow, slow}, detach: true, calls: 2},
	}, func(t *testing.T, c script) {
		t.Helper()
		base := scripted.New(c.steps...)
		tr := contractNew(t, hedgerow.Config{Base: base, Detach: c.detach})
		ctx, cancel := context.WithCancel(hedgerow.WithCall(t.Context(), c.call))
		defer cancel()
		if c.cancel > 0 {
			time.AfterFunc(c.cancel, cancel)
		}
		req := contractPost(t, base).WithContext(ctx)
		req.URL.User, req.URL.RawQuery = url.UserPassword("me", "secret"), "a=1;b&c=%zz"
		req.Host, req.Close = "other.test", true
		req.Header["X-Nil"], req.Header["x-lower"] = nil, []string{"1"}
		before := contractCopy(req)

		resp, err := tr.RoundTrip(req)
		require.Equal(t, before, contractCopy(req), "at the return")
		if c.status == 0 {
			require.Error(t, err)
			require.Nil(t, resp)
		} else {
			require.NoError(t, err)
			require.Equal(t, c.status, resp.StatusCode)
			contractRead(t, resp)
		}
		contractSettle(t, base)
		require.Equal(t, before, contractCopy(req), "when all is over")
		require.Len(t, base.Records(), c.calls)
	})
}

// C1 over the transport that shares the caller's headers.
func TestC01RequestIsNotMutatedByNetHTTP(t *testing.T) {
	t.Parallel()
	memhttp.Each(t, func(t *testing.T, proto memhttp.Protocol) {
		srv := memhttp.NewServer(t, proto, contractHangs(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			_, _ = w.Write(body)
		}))
		tr := contractNew(t, hedgerow.Config{Base: srv.Transport()})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, srv.URL()+"/a%2Fb?q=1", strings.NewReader("payload"))
		require.NoError(t, err)
		req.Header["X-Idempotency-Key"] = nil
		before := contractCopy(req)
		resp, err := tr.RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, before, contractCopy(req))
		require.Equal(t, "payload", contractRead(t, resp))
		require.Equal(t, before, contractCopy(req))
		require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
	})
}

// C3: after an error the request is the caller's at once, to change and to send again.
func TestC03RequestIsTheCallersAfterAnError(t *testing.T) {
	t.Parallel()
	reuse := func(t *testing.T, tr *hedgerow.Transport, wait time.Duration) {
		t.Helper()
		parent := t.Context()
		req := contractGet(parent, t, contractURL)
		for i := range 50 {
			ctx, cancel := context.WithTimeout(parent, wait)
			*req = *req.WithContext(ctx)
			resp, err := tr.RoundTrip(req)
			require.Error(t, err)
			require.Nil(t, resp)
			req.Header.Set("X-Again", string(rune('a'+i%26)))
			req.Header["X-Again"][0] += "!"
			req.URL.Path += "x"
			cancel()
		}
		require.EqualValues(t, 50, tr.Stats().Total.Hedged)
	}
	t.Run("net/http", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			base := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
				time.Sleep(20 * time.Millisecond)
				return nil, errContract
			}}
			reuse(t, contractNew(t, hedgerow.Config{Base: base}), time.Hour)
		})
	})
	for name, detach := range map[string]bool{"unknown base": false, "unknown base, detached": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				base := scripted.Func(func(_ int, req *http.Request) scripted.Step {
					a, _ := hedgerow.AttemptFromContext(req.Context())
					if a.Kind == hedgerow.AttemptPrimary && !detach {
						return scripted.Step{After: time.Minute}
					}
					return scripted.Step{After: time.Minute, IgnoreContext: true, Do: func(req *http.Request) (*http.Response, error) {
						for range 3 { // it reads its request long after the call has ended
							_ = req.Header.Clone()
							_ = req.URL.String()
							time.Sleep(time.Millisecond)
						}
						return nil, errContract
					}}
				})
				reuse(t, contractNew(t, hedgerow.Config{Base: base, Detach: detach}), 15*time.Millisecond)
				contractSettle(t, base)
			})
		})
	}
}

// C5: a base that changes the requests it gets changes only those.
func TestC05BaseMayMutateItsRequest(t *testing.T) {
	t.Parallel()
	type attempt struct {
		path string
		xa   int
	}
	contractBubbles(t, map[string]struct {
		call     hedgerow.Call
		attempts int
	}{
		"hedge pair":   {attempts: 2},
		"pass-through": {call: hedgerow.Call{NoHedge: true}, attempts: 1},
	}, func(t *testing.T, c struct {
		call     hedgerow.Call
		attempts int
	},
	) {
		t.Helper()
		seen := make(chan attempt, 2)
		base := scripted.Func(func(int, *http.Request) scripted.Step {
			return scripted.Step{Do: func(req *http.Request) (*http.Response, error) {
				path := req.URL.Path
				req.Header.Add("X-A", "1")
				seen <- attempt{path, len(req.Header["X-A"])}
				for range 30 { // while the other attempt does the same
					req.Header.Set("X-B", "2")
					req.URL.Path = "/x"
					time.Sleep(time.Millisecond)
				}
				return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("ok"))}, nil
			}}
		})
		tr := contractNew(t, hedgerow.Config{Base: base})
		req := contractGet(hedgerow.WithCall(t.Context(), c.call), t, contractURL)
		before := contractCopy(req)
		resp, err := tr.RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, "ok", contractRead(t, resp))
		if c.attempts > 1 {
			require.Equal(t, before, contractCopy(req))
		}
		contractSettle(t, base)
		require.Len(t, seen, c.attempts)
		for range c.attempts {
			require.Equal(t, attempt{"/v1/things", 1}, <-seen)
		}
	})
}

// C6: no two requests share the array behind a header's values.
func TestC06HeaderValuesAreNotShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got := make(chan []string, 2)
		base := scripted.Func(func(attempt int, _ *http.Request) scripted.Step {
			return scripted.Step{Do: func(req *http.Request) (*http.Response, error) {
				req.Header["X"] = append(req.Header["X"], string(rune('0'+attempt)))
				time.Sleep(20 * time.Millisecond)
				got <- req.Header["X"]
				return nil, errContract
			}}
		})
		tr := contractNew(t, hedgerow.Config{Base: base})
		req := contractGet(t.Context(), t, contractURL)
		values := make([]string, 1, 8)
		values[0] = "mine"
		req.Header["X"] = values
		_, err := tr.RoundTrip(req)
		require.ErrorIs(t, err, errContract)
		require.Equal(t, []string{"mine", "0"}, <-got)
		require.Equal(t, []string{"mine", "1"}, <-got)
		require.Equal(t, []string{"mine", "", ""}, values[:3])
		contractSettle(t, base)
	})
}

// C7: header entries that no copying by Add would keep.
func TestC07NilAndLowerCaseHeadersSurvive(t *testing.T) {
	t.Parallel()
	t.Run("attempts", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			base := scripted.New(scripted.Step{After: time.Minute}, scripted.Step{Body: "ok"})
			tr := contractNew(t, hedgerow.Config{Base: base})
			req := contractGet(t.Context(), t, contractURL)
			req.Header["User-Agent"], req.Header["x-lower"] = nil, []string{"1"}
			resp, err := tr.RoundTrip(req)
			require.NoError(t, err)
			contractRead(t, resp)
			contractSettle(t, base)
			for _, rec := range base.Records() {
				require.Equal(t, http.Header{"User-Agent": nil, "x-lower": {"1"}}, rec.Header)
			}
			require.Len(t, base.Records(), 2)
		})
	})
	t.Run("wire", func(t *testing.T) {
		t.Parallel()
		contractEach(t, func(t *testing.T, proto memhttp.Protocol) {
			t.Helper()
			headers := make(chan http.Header, 2)
			hangs := contractHangs(func(http.ResponseWriter, *http.Request) {})
			srv := contractListen(t, proto, func(w http.ResponseWriter, r *http.Request) {
				headers <- r.Header.Clone()
				hangs(w, r)
			})
			req := contractGet(t.Context(), t, srv.URL+"/")
			req.Header["User-Agent"], req.Header["x-lower"] = nil, []string{"1"}
			resp, err := contractNew(t, hedgerow.Config{Base: srv.Base}).RoundTrip(req)
			require.NoError(t, err)
			contractRead(t, resp)
			for range 2 {
				h := contractTimeout(t, headers, "both attempts")
				require.Equal(t, http.Header{"Accept-Encoding": {"gzip"}, "X-Lower": {"1"}}, h)
			}
		})
	})
}

// C8: requests that net/http refuses are errors here as well, whatever the base.
func TestC08IncompleteRequestsAreErrors(t *testing.T) {
	t.Parallel()
	u := func() *url.URL { return &url.URL{Scheme: "http", Host: "api.test", Path: "/"} }
	header := func() http.Header { return http.Header{"Idempotency-Key": {"1"}} }
	cases := map[string]func() *http.Request{
		"nothing":    func() *http.Request { return &http.Request{Method: http.MethodPost} },
		"no header":  func() *http.Request { return &http.Request{Method: http.MethodPost, URL: u()} },
		"no URL":     func() *http.Request { return &http.Request{Method: http.MethodPost, Header: header()} },
		"empty URL":  func() *http.Request { return &http.Request{Method: http.MethodPost, Header: header(), URL: &url.URL{}} },
		"no host":    func() *http.Request { return &http.Request{Header: header(), URL: &url.URL{Scheme: "http", Path: "/"}} },
		"bad method": func() *http.Request { return &http.Request{Method: "a b", Header: header(), URL: u()} },
		"bad value": func() *http.Request {
			return &http.Request{Header: http.Header{"X": {"a\nb"}}, URL: u()}
		},
		"bad scheme": func() *http.Request {
			return &http.Request{Header: header(), URL: &url.URL{Scheme: "gopher", Host: "api.test"}}
		},
	}
	for name, build := range cases {
		for _, hedged := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				dials := atomic.Int64{}
				base := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
					dials.Add(1)
					return nil, errContract
				}}
				body := &contractBody{src: strings.NewReader("payload")}
				req := build()
				req.Body, req.ContentLength = body, 7
				if hedged {
					req.GetBody = func() (io.ReadCloser, error) { return nil, errContract }
				}
				resp, err := contractNew(t, hedgerow.Config{Base: base}).RoundTrip(req)
				require.Error(t, err)
				require.Nil(t, resp)
				require.NotErrorIs(t, err, errContract)
				require.EqualValues(t, 0, dials.Load())
				require.EqualValues(t, 0, body.reads.Load())
				require.EqualValues(t, 1, body.closes.Load())
			})
		}
	}
	t.Run("no request", func(t *testing.T) {
		t.Parallel()
		resp, err := contractNew(t, hedgerow.Config{}).RoundTrip(nil)
		require.Error(t, err)
		require.Nil(t, resp)
	})
}

// C10: what we do not know of passes through, in every attempt.
func TestC10OtherFieldsPassThrough(t *testing.T) {
	t.Parallel()
	type shape struct {
		edit     func(*http.Request)
		attempts int
	}
	contractBubbles(t, map[string]shape{
		"hedge pair": {attempts: 2, edit: func(*http.Request) {}},
		"trailers":   {attempts: 1, edit: func(r *http.Request) { r.Trailer = http.Header{"X-Sum": nil} }},
		"not hedged": {attempts: 1, edit: func(r *http.Request) {
			*r = *r.WithContext(hedgerow.WithCall(r.Context(), hedgerow.Call{NoHedge: true}))
		}},
	}, func(t *testing.T, c shape) {
		t.Helper()
		base := scripted.New(scripted.Step{After: time.Minute}, scripted.Step{Body: "ok"})
		if c.attempts == 1 {
			base = scripted.New(scripted.Step{Body: "ok"})
		}
		tr := contractNew(t, hedgerow.Config{Base: base})
		req := base.NewRequest(t, http.MethodGet, "http://user@api.test/a%2Fb?x=1;y", "payload")
		req.Method, req.Host, req.Close = "", "virtual.test", true
		req.TransferEncoding, req.Pattern = []string{"identity"}, "/a/{b}"
		req.RemoteAddr, req.RequestURI = "192.0.2.1:1", "/kept"
		req.Form, req.Response = url.Values{"f": {"1"}}, &http.Response{StatusCode: http.StatusFound}
		req.Cancel = make(chan struct{}) //nolint:staticcheck // deprecated, and to be passed on all the same
		c.edit(req)
		want := contractCopy(req)
		want.Context, want.Body = nil, nil // each attempt has its own

		resp, err := tr.RoundTrip(req)
		require.NoError(t, err)
		contractRead(t, resp)
		contractSettle(t, base)
		require.Len(t, base.Records(), c.attempts)
		for _, rec := range base.Records() {
			got := contractCopy(rec.Request)
			got.Context, got.Body = nil, nil
			require.Equal(t, want, got)
			require.Equal(t, "payload", string(rec.Body))
		}
	})
}
