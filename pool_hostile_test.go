package hedgerow_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/memhttp"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// poolHostSecret is the key that must not get to anyone but the pool's own hosts.
const poolHostSecret = "s3cret"

// A poolHostNotes collects what servers saw.
type poolHostNotes struct {
	mu  sync.Mutex
	all []string
}

func (n *poolHostNotes) add(args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, fmt.Sprint(args...))
}

func (n *poolHostNotes) list() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.all)
}

// poolHostIdle closes the idle connections of rt when the test is over.
func poolHostIdle(t *testing.T, rt http.RoundTripper) {
	t.Helper()
	t.Cleanup((&http.Client{Transport: rt}).CloseIdleConnections)
}

func TestPoolHostileHostWithDotlessLookalike(t *testing.T) {
	t.Parallel()
	for target, own := range map[string]bool{
		"http://api.ai.test/":            true,
		"http://API.AI.test/":            true,
		"http://api.ai.test:80/":         true,
		"http://api.ai.test:/":           true,
		"http://ap\u0130.ai.test/":       false, // strings.ToLower makes an i of it
		"http://ap\u0131.ai.test/":       false,
		"http://api.ai.te\u017ft/":       false,
		"http://api.ai\u3002test/":       false,
		"http://\uff41pi.ai.test/":       false,
		"http://api.ai.test\u00ad/":      false,
		"http://api.ai.test:81/":         false,
		"https://api.ai.test/":           false,
		"http://api.ai.test@other.test/": false,
		"http://other.test/api.ai.test":  false,
	} {
		p := pspecPool(t, hedgerow.PoolConfig{
			Hosts:     []string{"http://api.ai.test"},
			Resources: []hedgerow.Resource{{ID: "a", Credential: hedgerow.Bearer(poolHostSecret)}},
		})
		base := scripted.New(scripted.Step{})
		_, _, err := pspecDo(t, p.Wrap(base), contractGet(t.Context(), t, target))
		require.NoError(t, err, target)
		require.Len(t, base.Records(), 1)
		require.Equal(t, own, strings.Contains(base.Records()[0].Header.Get("Authorization"), poolHostSecret), target)
		base.Check(t)
	}
}

func TestPoolHostileRedirectToLookalikeGetsNoKey(t *testing.T) {
	t.Parallel()
	p := pspecPool(t, hedgerow.PoolConfig{
		Hosts:     []string{"http://api.ai.test"},
		Resources: []hedgerow.Resource{{ID: "a", Credential: hedgerow.Bearer(poolHostSecret)}},
	})
	base := scripted.New(
		scripted.Step{Status: http.StatusFound, Header: http.Header{"Location": {"http://ap\u0130.ai.test/"}}},
		scripted.Step{},
	)
	resp, err := (&http.Client{Transport: p.Wrap(base)}).Do(contractGet(t.Context(), t, "http://api.ai.test/"))
	require.NoError(t, err)
	require.Empty(t, contractRead(t, resp))
	require.Len(t, base.Records(), 2)
	require.Equal(t, "Bearer "+poolHostSecret, base.Records()[0].Header.Get("Authorization"))
	require.Empty(t, base.Records()[1].Header.Get("Authorization"))
	base.Check(t)
}

func TestPoolHostileHostOverPlainProxy(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]bool{"the base's proxy": false, "the resource's proxy": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var notes poolHostNotes
			proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				notes.add(r.RequestURI, " ", r.Header.Get("Authorization"))
			}))
			t.Cleanup(proxy.Close)
			tr := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				// Also what goes by no proxy ends there.
				return (&net.Dialer{}).DialContext(ctx, network, proxy.Listener.Addr().String())
			}}
			res := hedgerow.Resource{ID: "a", Credential: hedgerow.Bearer(poolHostSecret)}
			if own {
				res.Proxy = hedgerow.ProxyURL(proxy.URL)
			} else {
				u, err := url.Parse(proxy.URL)
				require.NoError(t, err)
				tr.Proxy = http.ProxyURL(u)
			}
			rt := pspecPool(t, hedgerow.PoolConfig{
				Hosts: []string{"http://api.test"}, Resources: []hedgerow.Resource{res},
			}).Wrap(tr)
			poolHostIdle(t, rt)
			for _, change := range []func(*http.Request){
				func(*http.Request) {},
				func(r *http.Request) { r.Host = "evil.test" },
				func(r *http.Request) { r.URL.Opaque = "//evil.test/y" },
				func(r *http.Request) { r.URL.Opaque = "http://evil.test/y" },
			} {
				req := contractGet(t.Context(), t, "http://api.test/x")
				change(req)
				_, _, err := pspecDo(t, rt, req)
				require.NoError(t, err)
			}
			got := notes.list()
			require.Len(t, got, 4)
			require.Equal(t, "http://api.test/x Bearer "+poolHostSecret, got[0])
			for _, note := range got {
				require.False(t, strings.Contains(note, "evil") && strings.Contains(note, poolHostSecret), note)
			}
		})
	}
}

func TestPoolHostileOpaqueNamesAnotherHost(t *testing.T) {
	t.Parallel()
	var notes poolHostNotes
	srv := memhttp.NewServer(t, memhttp.HTTP1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		notes.add(r.RequestURI)
	}))
	p := pspecPool(t, hedgerow.PoolConfig{Hosts: []string{srv.URL()}, Resources: []hedgerow.Resource{
		{ID: "a", Credential: hedgerow.QueryKey("key", poolHostSecret)},
	}})
	for opaque, own := range map[string]bool{
		"/a//b":                true,
		"//memhttp.test/x":     true,
		"//evil.test":          false,
		"//evil.test?x":        false,
		"//memhttp.test:81/x":  false,
		"http://evil.test/x":   false,
		"//memhttp.test@evil/": false,
	} {
		req := contractGet(t.Context(), t, srv.URL())
		req.URL.Opaque = opaque
		_, _, err := pspecDo(t, p.Wrap(srv.Transport()), req)
		require.NoError(t, err, opaque)
		got := notes.list()
		require.Equal(t, own, strings.Contains(got[len(got)-1], poolHostSecret), "%s: %s", opaque, got[len(got)-1])
	}
}

func TestPoolHostileQueryKeyInLocation(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		to   string // in front of the query that the server repeats
		dead bool
	}{
		"same host":       {to: "/dir/?"},
		"other host":      {to: "http://other.test/dir/?"},
		"other host dies": {to: "http://other.test/dir/?", dead: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := scripted.Func(func(attempt int, req *http.Request) scripted.Step {
				switch {
				case attempt == 0:
					return scripted.Step{
						Status: http.StatusMovedPermanently,
						Header: http.Header{"Location": {tc.to + req.URL.RawQuery + "#part"}},
					}
				case tc.dead:
					return scripted.Step{Err: io.ErrUnexpectedEOF}
				}
				return scripted.Step{}
			})
			p := pspecPool(t, hedgerow.PoolConfig{Hosts: []string{"http://api.test"}, Resources: []hedgerow.Resource{
				{ID: "a", Credential: hedgerow.QueryKey("key", poolHostSecret)},
			}})
			req := contractGet(t.Context(), t, "http://api.test/dir?x=1")
			resp, err := (&http.Client{Transport: p.Wrap(base)}).Do(req)
			if tc.dead {
				require.ErrorIs(t, err, io.ErrUnexpectedEOF)
				require.NotContains(t, err.Error(), poolHostSecret)
			} else {
				require.NoError(t, err)
				require.Empty(t, contractRead(t, resp))
				require.NotContains(t, resp.Request.URL.String(), poolHostSecret)
				require.Equal(t, "x=1", resp.Request.URL.RawQuery)
				require.Equal(t, "part", resp.Request.URL.Fragment)
			}
			records := base.Records()
			require.Contains(t, records[0].URL, poolHostSecret)
			for _, rec := range records[1:] {
				require.Equal(t, strings.HasPrefix(tc.to, "/"), strings.Contains(rec.URL, poolHostSecret), rec.URL)
			}
			base.Check(t)
		})
	}
}

// poolHostTunnel is a proxy that answers CONNECT.
func poolHostTunnel(t *testing.T, notes *poolHostNotes, name string) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		notes.add("CONNECT by ", name)
		up, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", r.Host)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		down, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			_ = up.Close()
			return
		}
		// How a tunnel ends does not matter: if it fails, so does the call.
		_, _ = io.WriteString(down, "HTTP/1.1 200 OK\r\n\r\n")
		go func() {
			_, _ = io.Copy(up, buf)
			_ = up.Close()
		}()
		_, _ = io.Copy(down, up)
		_ = down.Close()
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestPoolHostileProxiesOverHTTP2ShareNoConnection(t *testing.T) {
	t.Parallel()
	var notes, tunnels poolHostNotes
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		notes.add(r.Proto, " ", pspecKey(r.Header), " ", r.RemoteAddr)
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	rs := pspecKeys(2)
	for i := range rs {
		rs[i].Proxy = hedgerow.ProxyURL(poolHostTunnel(t, &tunnels, rs[i].ID))
	}
	rt := pspecPool(t, hedgerow.PoolConfig{Hosts: []string{srv.URL}, Resources: rs}).Wrap(&http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true,
	})
	poolHostIdle(t, rt)
	for range 4 {
		status, _, err := pspecDo(t, rt, contractGet(t.Context(), t, srv.URL))
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status)
	}
	keyOf := make(map[string]string) // by connection
	keys := make(map[string]bool)
	for _, note := range notes.list() {
		f := strings.Fields(note)
		require.Len(t, f, 3, note)
		require.Equal(t, "HTTP/2.0", f[0])
		if key, ok := keyOf[f[2]]; ok {
			require.Equal(t, key, f[1], "two keys over a connection through one proxy")
		}
		keyOf[f[2]], keys[f[1]] = f[1], true
	}
	require.Len(t, keys, 2)
	require.ElementsMatch(t, []string{"CONNECT by A", "CONNECT by B"}, tunnels.list())
}

func TestPoolHostileTrailerOfCredentialStaysInAttempt(t *testing.T) {
	t.Parallel()
	p := pspecPool(t, hedgerow.PoolConfig{Resources: []hedgerow.Resource{
		{ID: "a", Credential: hedgerow.CredentialFunc(func(r *http.Request) error {
			r.Trailer.Set("Sig", poolHostSecret)
			return nil
		})},
	}})
	base := scripted.New(scripted.Step{})
	req := base.NewRequest(t, http.MethodPost, pspecURL, "payload")
	req.Trailer = http.Header{"Sig": nil}
	_, _, err := pspecDo(t, p.Wrap(base), req)
	require.NoError(t, err)
	require.Equal(t, http.Header{"Sig": nil}, req.Trailer)
	require.Len(t, base.Records(), 1)
	require.Equal(t, poolHostSecret, base.Records()[0].Request.Trailer.Get("Sig"))
	base.Check(t)
}

// A trailer of the caller's gets its value at the end of the body, also where a CredentialFunc could have changed it.
func TestPoolHostileLateTrailerPassesACredential(t *testing.T) {
	t.Parallel()
	p := pspecPool(t, hedgerow.PoolConfig{Resources: []hedgerow.Resource{
		{ID: "a", Credential: hedgerow.CredentialFunc(func(r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+poolHostSecret)
			return nil
		})},
	}})
	var got http.Header
	rt := p.Wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
		_, err := io.Copy(io.Discard, req.Body)
		got = req.Trailer.Clone()
		return sharedAnswer(req, http.StatusOK, ""), errors.Join(err, req.Body.Close())
	}))
	req := contractGet(t.Context(), t, pspecURL)
	trailer := http.Header{"Sum": nil}
	req.Trailer = trailer
	req.Body = &contractBody{src: io.MultiReader(strings.NewReader("payload"), late(func() { trailer.Set("Sum", "42") }))}
	resp, err := rt.RoundTrip(req)
	require.NoError(t, err)
	contractRead(t, resp)
	require.Equal(t, http.Header{"Sum": {"42"}}, got)
}

// late is an empty reader that calls itself at its end.
type late func()

func (f late) Read([]byte) (int, error) {
	f()
	return 0, io.EOF
}

func TestPoolHostileProxyUserIsMasked(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"http://" + poolHostSecret + "@proxy.test:1",
		"http://" + poolHostSecret + ":@proxy.test:1",
		"http://user:" + poolHostSecret + "@proxy.test:1",
	} {
		for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
			shown := fmt.Sprintf(format, hedgerow.ProxyURL(raw))
			require.NotContains(t, shown, poolHostSecret)
			require.Contains(t, shown, "proxy.test:1")
		}
	}
}

// A panickingBody blocks in Read until it is closed, and panics then.
type panickingBody struct{ closed chan struct{} }

func (b *panickingBody) Read([]byte) (int, error) {
	<-b.closed
	return 0, errors.New("closed")
}

func (b *panickingBody) Close() error {
	close(b.closed)
	panic("boom")
}

// TestKeptBodyPanics repeats a call whose refusal has a body that is too slow to be kept, and panics when it is closed for that:
// not in the caller's goroutine, so that it would end the process.
func TestKeptBodyPanics(t *testing.T) {
	t.Parallel()
	pool, err := hedgerow.NewPool(hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "a"}, {ID: "b"}}})
	require.NoError(t, err)
	resp, err := pool.Wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
		if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Kind == hedgerow.AttemptRetry {
			return sharedAnswer(req, http.StatusOK, "whole"), nil
		}
		resp := sharedAnswer(req, http.StatusTooManyRequests, "")
		resp.Body = &panickingBody{make(chan struct{})}
		return resp, nil
	})).RoundTrip(contractGet(t.Context(), t, contractURL))
	require.NoError(t, err)
	require.Equal(t, "whole", contractRead(t, resp))
}
