package hedgerow_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// A proxy in front of an https host sees its own password and nothing of the key, over HTTP/1.1 and HTTP/2.
func TestProxyTunnelCarriesNoKey(t *testing.T) {
	t.Parallel()
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprint("h2 ", h2), func(t *testing.T) {
			t.Parallel()
			var origin pspecSink
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				origin.add(r)
				_, _ = w.Write([]byte(r.Proto))
			}))
			srv.EnableHTTP2 = h2
			srv.StartTLS()
			t.Cleanup(srv.Close)
			seen := make(chan string, 4)
			address := pspecTunnel(t, seen)

			base, ok := srv.Client().Transport.(*http.Transport)
			require.True(t, ok)
			p, err := hedgerow.NewPool(hedgerow.PoolConfig{
				Hosts: []string{srv.URL},
				Resources: []hedgerow.Resource{
					{ID: "a", Credential: hedgerow.Bearer("the-key"), Proxy: hedgerow.ProxyURL("http://user:hunter2@" + address)},
				},
			})
			require.NoError(t, err)
			rt := p.Wrap(base)
			for range 2 {
				_, body, err := pspecDo(t, rt, contractGet(t.Context(), t, srv.URL+"/x"))
				require.NoError(t, err)
				require.Equal(t, map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[h2], body)
			}
			head := contractTimeout(t, seen, "the request to the proxy")
			require.Contains(t, head, "Proxy-Authorization: Basic dXNlcjpodW50ZXIy") // user:hunter2
			require.NotContains(t, head, "the-key")
			require.Empty(t, seen) // both calls took one connection
			require.Contains(t, origin.all(), "Bearer the-key")
			require.NotContains(t, origin.all(), "Proxy-Authorization")
			(&http.Client{Transport: rt}).CloseIdleConnections()
		})
	}
}

// pspecTunnel starts a proxy that only knows CONNECT, and says what it was asked. It ends with the test.
func pspecTunnel(t *testing.T, seen chan<- string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go pspecPipe(conn, seen)
		}
	}()
	return l.Addr().String()
}

func pspecPipe(conn net.Conn, seen chan<- string) {
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	var head strings.Builder
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		head.WriteString(line)
		if line == "\r\n" {
			break
		}
	}
	seen <- head.String()
	target := strings.Fields(head.String())[1]
	out, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer func() { _ = out.Close() }()
	_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
	go func() {
		_, _ = io.Copy(out, in)
		_ = out.Close()
	}()
	_, _ = io.Copy(conn, out)
}
