package hedgerow_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// TestProxiesOfAConfiguredTransport has a base whose HTTP/2 was configured, as by golang.org/x/net/http2: what does that keeps its
// connections by host, and is not for the copies of the base that go by a proxy.
func TestProxiesOfAConfiguredTransport(t *testing.T) {
	t.Parallel()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, r.Proto)
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	base, ok := srv.Client().Transport.(*http.Transport)
	require.True(t, ok)
	base = base.Clone()
	base.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{
		"h2": func(_ string, conn *tls.Conn) http.RoundTripper {
			t.Error("the base's own")
			_ = conn.Close()
			return http.NewFileTransport(http.Dir("."))
		},
	}
	seen := make(chan string, 4)
	p := pspecPool(t, hedgerow.PoolConfig{Hosts: []string{srv.URL}, Resources: []hedgerow.Resource{
		{ID: "one", Proxy: hedgerow.ProxyURL("http://" + pspecTunnel(t, seen))},
		{ID: "two", Proxy: hedgerow.ProxyURL("http://" + pspecTunnel(t, seen))},
	}})
	rt := p.Wrap(base)
	for range 4 {
		_, body, err := pspecDo(t, rt, contractGet(t.Context(), t, srv.URL))
		require.NoError(t, err)
		require.Equal(t, "HTTP/2.0", body)
	}
	require.Len(t, seen, 2, "a connection by each")
	(&http.Client{Transport: rt}).CloseIdleConnections()
}

// TestProxyThatIsGone replaces a proxy of a pool. With the first call by the new one, the connection by the old one is closed.
func TestProxyThatIsGone(t *testing.T) {
	t.Parallel()
	closed := make(chan string, 10)
	proxy := func(name string) hedgerow.Resource {
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
			if s == http.StateClosed {
				closed <- name
			}
		}
		srv.Start()
		t.Cleanup(srv.Close)
		return hedgerow.Resource{ID: name, Proxy: hedgerow.ProxyURL("http://user:hunter2@" + srv.Listener.Addr().String())}
	}
	kept, old := proxy("kept"), proxy("old")
	p := pspecPool(t, hedgerow.PoolConfig{Hosts: []string{"http://api.test"}, Resources: []hedgerow.Resource{kept, old}})
	rt := p.Wrap(&http.Transport{})
	get := func(times int) {
		for range times {
			_, _, err := pspecDo(t, rt, contractGet(t.Context(), t, "http://api.test/"))
			require.NoError(t, err)
		}
	}
	get(2)
	require.NoError(t, p.SetResources([]hedgerow.Resource{kept, proxy("new")}))
	get(2)
	require.Equal(t, "old", contractTimeout(t, closed, "the end of a connection"))
	require.Empty(t, closed)
	(&http.Client{Transport: rt}).CloseIdleConnections()
}
