package hedgerow_test

import (
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/memhttp"
)

// A pspecSink keeps what servers were sent.
type pspecSink struct {
	mu   sync.Mutex
	seen []string
}

func (s *pspecSink) add(r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, fmt.Sprintf("%s %s %s %v", r.Method, r.Host, r.RequestURI, r.Header))
}

func (s *pspecSink) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.seen, "\n")
}

// C82, C84, C85: redirects by status and by how the target differs from the host that has the key. Each hop that is in
// Hosts has the key, no other one has, and a hop back has it again.
func TestC82RedirectsCarryNoKeyElsewhere(t *testing.T) {
	t.Parallel()
	for name, c := range pspecCredentials() {
		contractEach(t, func(t *testing.T, proto memhttp.Protocol) {
			t.Helper()
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				pspecRedirects(t, proto, c)
			})
		})
	}
}

func pspecRedirects(t *testing.T, proto memhttp.Protocol, c hedgerow.Credential) {
	t.Helper()
	var home, away pspecSink
	handler := func(s *pspecSink) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			s.add(r)
			to := r.URL.Query()["to"]
			if len(to) == 0 {
				_, _ = w.Write([]byte("end"))
				return
			}
			target, err := url.Parse(to[0])
			if err != nil {
				w.WriteHeader(http.StatusTeapot)
				return
			}
			target.RawQuery = url.Values{"to": to[1:]}.Encode()
			http.Redirect(w, r, target.String(), http.StatusTemporaryRedirect)
		}
	}
	own := contractListen(t, proto, handler(&home))
	other := contractListen(t, proto, handler(&away))
	secure := httptest.NewTLSServer(handler(&away))
	t.Cleanup(secure.Close)
	tlsBase, ok := secure.Client().Transport.(*http.Transport)
	require.True(t, ok)
	base := &http.Transport{Protocols: own.Base.Protocols, TLSClientConfig: tlsBase.TLSClientConfig}
	t.Cleanup(base.CloseIdleConnections)

	p, err := hedgerow.NewPool(hedgerow.PoolConfig{Hosts: []string{own.URL}, Resources: []hedgerow.Resource{{ID: "a", Credential: c}}})
	require.NoError(t, err)
	ownPort := own.URL[strings.LastIndex(own.URL, ":"):]
	userinfo := strings.Replace(other.URL, "http://", "http://"+strings.TrimPrefix(own.URL, "http://")+"@", 1)
	userinfo = strings.Replace(userinfo, ownPort+"@", "%3A"+ownPort[1:]+"@", 1)
	for i, hops := range [][]string{
		{other.URL},
		{strings.Replace(own.URL, "127.0.0.1", "localhost", 1)},
		{other.URL, own.URL},
		{own.URL, other.URL, own.URL, other.URL},
		{userinfo},
		{secure.URL},
		{secure.URL, own.URL},
		{strings.Replace(other.URL, "http://", "HTTP://", 1)},
	} {
		transport := hedgerow.Config{Base: p.Wrap(base)}
		rt, err := hedgerow.New(transport)
		require.NoError(t, err)
		jar, err := cookiejar.New(nil)
		require.NoError(t, err)
		client := &http.Client{Transport: rt, Jar: jar}
		req := contractGet(t.Context(), t, own.URL+"/start?"+url.Values{"to": hops}.Encode())
		resp, err := client.Do(req)
		require.NoError(t, err, i)
		require.Equal(t, "end", contractRead(t, resp))
		for r := resp.Request; r != nil; {
			require.Empty(t, pspecLeaks(fmt.Sprint(r.Header, r.URL)))
			if r.Response == nil {
				break
			}
			r = r.Response.Request
		}
	}
	require.Empty(t, pspecLeaks(strings.ReplaceAll(away.all(), own.URL, "")))
	home.mu.Lock()
	defer home.mu.Unlock()
	for _, line := range home.seen {
		if strings.HasPrefix(line, "GET localhost") {
			require.Empty(t, pspecLeaks(line))
		} else {
			require.NotEmpty(t, pspecLeaks(line), line)
		}
	}
	require.GreaterOrEqual(t, p.Stats().PassedThrough, uint64(9)) // hedges count as well
}

// C91: cookies belong to the URL that the caller asked for, whichever upstream has set them.
func TestC91CookiesFollowTheLogicalURL(t *testing.T) {
	t.Parallel()
	var seen pspecSink
	var ups []hedgerow.Resource
	for _, id := range []string{"A", "B"} {
		srv := contractListen(t, memhttp.HTTP1, func(w http.ResponseWriter, r *http.Request) {
			seen.add(r)
			http.SetCookie(w, &http.Cookie{Name: id, Value: "1", Path: "/"})
		})
		ups = append(ups, hedgerow.Resource{ID: id, Upstream: srv.URL, Base: srv.Base})
	}
	p, err := hedgerow.NewPool(hedgerow.PoolConfig{Hosts: []string{"http://logical.test"}, Resources: ups})
	require.NoError(t, err)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	client := &http.Client{Transport: p.Wrap(nil), Jar: jar}
	for range 3 {
		resp, err := client.Do(contractGet(t.Context(), t, "http://logical.test/x"))
		require.NoError(t, err)
		require.Empty(t, contractRead(t, resp))
	}
	require.Len(t, jar.Cookies(&url.URL{Scheme: "http", Host: "logical.test", Path: "/"}), 2)
	require.NotContains(t, seen.seen[0], "Cookie")
	require.Contains(t, seen.seen[1], "A=1")
	require.Contains(t, seen.seen[2], "A=1; B=1")
}

// C87 and C88, on the wire.
func TestC87HostAndC88PathOnTheWire(t *testing.T) {
	t.Parallel()
	contractEach(t, func(t *testing.T, proto memhttp.Protocol) {
		t.Helper()
		var seen pspecSink
		srv := contractListen(t, proto, func(_ http.ResponseWriter, r *http.Request) { seen.add(r) })
		p, err := hedgerow.NewPool(hedgerow.PoolConfig{
			Hosts: []string{"logical.test"}, Resources: []hedgerow.Resource{{ID: "a", Upstream: srv.URL + "/v%2F1/"}},
		})
		require.NoError(t, err)
		rt := p.Wrap(srv.Base)
		for _, host := range []string{"", "logical.test", "custom.test"} {
			req := contractGet(t.Context(), t, "https://logical.test/a%2Fb?a=1;b&c=%zz")
			req.Host = host
			_, _, err = pspecDo(t, rt, req)
			require.NoError(t, err)
			require.Equal(t, host, req.Host)
		}
		up := strings.TrimPrefix(srv.URL, "http://")
		for i, host := range []string{up, up, "custom.test"} {
			require.Contains(t, seen.seen[i], "GET "+host+" /v%2F1/a%2Fb?a=1;b&c=%zz ")
		}
	})
}
