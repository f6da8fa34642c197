package hedgerow_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/memhttp"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

func TestC88URLFidelity(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		upstream, target, want string
		change                 func(*url.URL)
	}{
		"no base path":      {"http://up.test", "https://api.test/x?q", "http://up.test /x?q", nil},
		"slash only":        {"http://up.test/", "https://api.test/x", "http://up.test /x", nil},
		"base path":         {"http://up.test/v1", "https://api.test/x", "http://up.test /v1/x", nil},
		"with slash":        {"http://up.test/v1/", "https://api.test/x", "http://up.test /v1/x", nil},
		"deep":              {"https://up.test:81/a/b/", "https://api.test/c/d/", "https://up.test:81 /a/b/c/d/", nil},
		"empty path":        {"http://up.test/v1", "https://api.test", "http://up.test /v1/", nil},
		"empty path, query": {"http://up.test/v1", "https://api.test?q=1", "http://up.test /v1/?q=1", nil},
		"escaped":           {"http://up.test/v1/", "https://api.test/a%2Fb%20c", "http://up.test /v1/a%2Fb%20c", nil},
		"escaped base":      {"http://up.test/v%2F1", "https://api.test/a", "http://up.test /v%2F1/a", nil},
		"base ends escaped": {"http://up.test/v1%2F", "https://api.test/a%2Fb", "http://up.test /v1%2F/a%2Fb", nil},
		"path begins so":    {"http://up.test/v1", "https://api.test/%2Fa", "http://up.test /v1/%2Fa", nil},
		"two slashes":       {"http://up.test/v1/", "https://api.test//a//b", "http://up.test /v1//a//b", nil},
		"dots":              {"http://up.test/v1", "https://api.test/../a/./b", "http://up.test /v1/../a/./b", nil},
		"query kept":        {"http://up.test/v1", "https://api.test/a?a=1;b&c=%zz&&=+", "http://up.test /v1/a?a=1;b&c=%zz&&=+", nil},
		"question mark":     {"http://up.test/v1", "https://api.test/a?", "http://up.test /v1/a?", nil},
		"zone":              {"http://[fe80::1%25en0]:81/v1", "https://api.test/a", "http://[fe80::1%en0]:81 /v1/a", nil},
		"userinfo goes":     {"http://up.test", "https://user:pw@api.test/a", "http://up.test /a", nil},
		"relative":          {"http://up.test/v1", "https://api.test", "http://up.test /v1/x%2Fy", func(u *url.URL) { u.Path, u.RawPath = "x/y", "x%2Fy" }},
		"opaque": {"http://up.test/v1/", "https://api.test?q=;", "http://up.test /v1/a%2Fb[?q=;", func(u *url.URL) {
			u.Opaque = "/a%2Fb["
		}},
		"opaque authority": {"http://up.test/v1", "https://api.test?q", "http://up.test /v1/a%2Fb?q", func(u *url.URL) {
			u.Opaque = "//api.test/a%2Fb"
		}},
		"opaque host only": {"http://up.test", "https://api.test", "http://up.test /", func(u *url.URL) { u.Opaque = "//api.test" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pspecPool(t, hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "a", Upstream: tc.upstream}}})
			base := scripted.New(pspec429, pspec429)
			req := contractGet(t.Context(), t, tc.target)
			if tc.change != nil {
				tc.change(req.URL)
			}
			before := contractCopy(req)
			_, _, err := pspecDo(t, p.Wrap(base), req)
			require.NoError(t, err)
			require.NoError(t, p.Enable("a"))
			_, _, err = pspecDo(t, p.Wrap(base), req) // the base path comes once in front, each time
			require.NoError(t, err)
			for _, rec := range base.Records() {
				u := rec.Request.URL
				require.Equal(t, tc.want, u.Scheme+"://"+u.Host+" "+u.RequestURI())
				require.Equal(t, u.Host, rec.Request.Host)
				require.NotSame(t, req.URL, u)
			}
			require.Equal(t, before, contractCopy(req))
		})
	}
}

// C5: what a base changes in its request shows neither in the next attempt nor to the caller, also if only the resource's
// own Base is one that does so.
func TestC5BaseThatChangesItsRequest(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{false, true} {
		var seen []string
		base := scripted.Func(func(int, *http.Request) scripted.Step {
			return scripted.Step{Do: func(req *http.Request) (*http.Response, error) {
				req.Header.Add("X-A", "1")
				seen = append(seen, req.URL.Path+strings.Join(req.Header["X-A"], ","))
				req.URL.Path = "/changed"
				req.Header["X-Room"] = append(req.Header["X-Room"], "more")
				return &http.Response{StatusCode: http.StatusTooManyRequests, Body: http.NoBody, Header: http.Header{}}, nil
			}}
		})
		var next http.RoundTripper = base
		rs := pspecKeys(3)
		if own {
			next = &http.Transport{}
			for i := range rs {
				rs[i].Base = base
			}
		}
		req := contractGet(t.Context(), t, pspecURL)
		req.Header["X-Room"] = make([]string, 1, 8)
		before := contractCopy(req)
		_, _, err := pspecDo(t, pspecPool(t, hedgerow.PoolConfig{Resources: rs}).Wrap(next), req)
		require.NoError(t, err)
		require.Equal(t, []string{"/v1/things1", "/v1/things1", "/v1/things1"}, seen)
		require.Equal(t, before, contractCopy(req))
	}
}

// A pspecCloser counts calls of CloseIdleConnections.
type pspecCloser struct {
	http.RoundTripper

	closed int
}

func (c *pspecCloser) CloseIdleConnections() { c.closed++ }

// A pspecOdd is a RoundTripper whose type compares, but not with what is in it here.
type pspecOdd struct {
	http.RoundTripper

	inside any
}

func TestC79CloseIdleConnectionsReachesEachTransportOnce(t *testing.T) {
	t.Parallel()
	base := scripted.New()
	next, shared := &pspecCloser{RoundTripper: base}, &pspecCloser{RoundTripper: base}
	p := pspecPool(t, hedgerow.PoolConfig{Resources: []hedgerow.Resource{
		{ID: "a", Base: shared},
		{ID: "b", Base: shared},
		{ID: "c", Base: next},
		{ID: "d"},
		{ID: "e", Base: pspecOdd{base, []int{1}}},
		{ID: "f", Base: base},
	}})
	rt := p.Wrap(next)
	unwrapper, ok := rt.(interface{ Unwrap() http.RoundTripper })
	require.True(t, ok)
	require.Same(t, next, unwrapper.Unwrap())
	(&http.Client{Transport: contractNew(t, hedgerow.Config{Base: rt})}).CloseIdleConnections()
	require.Equal(t, []int{1, 1}, []int{next.closed, shared.closed})
	require.NoError(t, p.Remove("c"))
	(&http.Client{Transport: rt}).CloseIdleConnections()
	require.Equal(t, []int{2, 2}, []int{next.closed, shared.closed})
	def, ok := p.Wrap(nil).(interface{ Unwrap() http.RoundTripper })
	require.True(t, ok)
	require.Same(t, http.DefaultTransport, def.Unwrap())
}

// A proxy for each resource, over real sockets; those without one stay on the base itself.
func TestProxyPerResource(t *testing.T) {
	t.Parallel()
	var direct pspecSink
	origin := contractListen(t, memhttp.HTTP1, func(w http.ResponseWriter, r *http.Request) {
		direct.add(r)
		_, _ = w.Write([]byte("direct"))
	})
	var mu sync.Mutex
	open := make(map[string]int)
	var rs []hedgerow.Resource
	for _, id := range []string{"p1", "p2"} {
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			user, password, _ := (&http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}).BasicAuth()
			_, _ = w.Write([]byte(strings.Join([]string{id, user, password, r.RequestURI}, " ")))
		}))
		srv.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
			mu.Lock()
			defer mu.Unlock()
			open[id]++
			return ctx
		}
		srv.Start()
		t.Cleanup(srv.Close)
		u, err := url.Parse(srv.URL)
		require.NoError(t, err)
		u.User = url.UserPassword("user-"+id, pspecSecret)
		rs = append(rs, hedgerow.Resource{ID: id, Proxy: hedgerow.ProxyURL(u.String())})
	}
	p, err := hedgerow.NewPool(hedgerow.PoolConfig{Resources: append(rs, hedgerow.Resource{ID: "none"})})
	require.NoError(t, err)
	rt := p.Wrap(origin.Base)
	got := make(map[string]int)
	for range 9 {
		_, body, err := pspecDo(t, rt, contractGet(t.Context(), t, origin.URL+"/x"))
		require.NoError(t, err)
		got[body]++
	}
	require.Equal(t, map[string]int{
		"direct": 3,
		"p1 user-p1 " + pspecSecret + " " + origin.URL + "/x": 3,
		"p2 user-p2 " + pspecSecret + " " + origin.URL + "/x": 3,
	}, got)
	require.Equal(t, map[string]int{"p1": 1, "p2": 1}, open)
	require.Empty(t, pspecLeaks(direct.all()))

	// The connections to a proxy are closed with the others, also when its resource is gone.
	require.NoError(t, p.SetResources([]hedgerow.Resource{{ID: "none"}}))
	(&http.Client{Transport: rt}).CloseIdleConnections()
}

func TestProxyFailuresShowNoPassword(t *testing.T) {
	t.Parallel()
	// A proxy that says in its status what it was sent.
	refuse := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = conn.Write([]byte("HTTP/1.1 407 no " + r.Header.Get("Proxy-Authorization") + " hunter2\r\n\r\n"))
		_ = conn.Close()
	}))
	t.Cleanup(refuse.Close)
	for _, target := range []string{strings.TrimPrefix(refuse.URL, "http://"), "127.0.0.1:1"} {
		proxy := hedgerow.ProxyURL("http://user:hunter2@" + target)
		p := pspecPool(t, hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "a", Proxy: proxy}}, MaxAttempts: 1})
		base := &http.Transport{}
		rt := p.Wrap(base)
		_, _, err := pspecGet(t, rt)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "hunter2")
		require.NotContains(t, err.Error(), "dXNlcjpodW50ZXIy")
		(&http.Client{Transport: rt}).CloseIdleConnections()
	}
}

// Over another base an attempt with a Proxy fails before anything is sent, so others are preferred; a Base helps.
func TestProxyOverAnotherBase(t *testing.T) {
	t.Parallel()
	rs := []hedgerow.Resource{{ID: "a", Proxy: pspecProxy("proxy.test:1")}, {ID: "b"}}
	p := pspecPool(t, hedgerow.PoolConfig{Resources: rs, Strategy: hedgerow.PrimaryBackup})
	base := scripted.New(scripted.Step{Body: "b"})
	_, body, err := pspecDo(t, p.Wrap(base), base.NewRequest(t, http.MethodPost, pspecURL, "payload"))
	require.NoError(t, err)
	require.Equal(t, "b", body)
	base.Check(t)
	s := p.Stats()
	require.EqualValues(t, 1, s.Attempts)
	require.Equal(t, hedgerow.ResourceStatus{ID: "a", ConsecutiveFailures: 1}, s.Resources[0])

	require.NoError(t, p.Remove("b"))
	_, _, err = pspecGet(t, p.Wrap(base))
	require.ErrorContains(t, err, "give the resource a Base")
	require.Empty(t, pspecLeaks(err.Error()))
}
