package memhttp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hedgerow-go/hedgerow/internal/memhttp"
)

// A server that has answered before it has read all waits half a second before it closes, longer than goleak does.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// big is larger than all the buffers between a handler and its client.
const big = 1 << 20

func newRequest(ctx context.Context, t *testing.T, method, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	require.NoError(t, err)
	return req
}

func TestServerAnswersInVirtualTime(t *testing.T) {
	t.Parallel()
	memhttp.Each(t, func(t *testing.T, proto memhttp.Protocol) {
		srv := memhttp.NewServer(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(3 * time.Second)
			w.Header().Set("Seen-Proto", r.Proto)
			w.Header().Set("Seen-Host", r.Host)
			_, _ = io.Copy(w, r.Body)
		}))
		body := bytes.Repeat([]byte("0123456789abcdef"), big/16)
		start := time.Now()

		resp, err := srv.Transport().RoundTrip(newRequest(t.Context(), t, http.MethodPost, srv.URL()+"/x", bytes.NewReader(body)))
		require.NoError(t, err)
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())

		require.Equal(t, 3*time.Second, time.Since(start))
		require.Equal(t, body, got)
		require.Equal(t, map[memhttp.Protocol]string{memhttp.HTTP1: "HTTP/1.1", memhttp.HTTP2: "HTTP/2.0"}[proto],
			resp.Header.Get("Seen-Proto"))
		require.Equal(t, "memhttp.test", resp.Header.Get("Seen-Host"))

		// Another name reaches the same server.
		resp, err = srv.Transport().RoundTrip(newRequest(t.Context(), t, http.MethodGet, "http://other.example:8080/", nil))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, "other.example:8080", resp.Header.Get("Seen-Host"))
		require.Equal(t, 2, srv.Dials())
	})
}

func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	memhttp.Each(t, func(t *testing.T, proto memhttp.Protocol) {
		srv := memhttp.NewServer(t, proto, http.NotFoundHandler())
		for range 3 {
			resp, err := srv.Transport().RoundTrip(newRequest(t.Context(), t, http.MethodGet, srv.URL(), nil))
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			time.Sleep(time.Hour)
		}
		require.Equal(t, 1, srv.Dials())
	})
}

func TestConcurrentCalls(t *testing.T) {
	t.Parallel()
	memhttp.Each(t, func(t *testing.T, proto memhttp.Protocol) {
		srv := memhttp.NewServer(t, proto, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Second)
			_, _ = w.Write(make([]byte, big))
		}))
		var read atomic.Int64
		var calls sync.WaitGroup
		for range 20 {
			req := newRequest(t.Context(), t, http.MethodGet, srv.URL(), nil)
			calls.Go(func() {
				resp, err := srv.Transport().RoundTrip(req)
				if err != nil {
					t.Error(err)
					return
				}
				n, err := io.Copy(io.Discard, resp.Body)
				read.Add(n)
				if err := errors.Join(err, resp.Body.Close()); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		require.EqualValues(t, 20*big, read.Load())
	})
}

// Whatever a test leaves half done, the cleanup must bring the bubble to its end.
func TestCleanupEndsWhatIsLeft(t *testing.T) {
	t.Parallel()
	memhttp.Each(t, func(t *testing.T, proto memhttp.Protocol) {
		srv := memhttp.NewServer(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/stream" {
				w.WriteHeader(http.StatusOK)
				for {
					if _, err := w.Write(make([]byte, 1<<10)); err != nil {
						return
					}
				}
			}
			<-r.Context().Done()
		}))
		// A stream that nobody reads, a call that nobody answers, and a body that nobody sends.
		_, err := srv.Transport().RoundTrip(newRequest(t.Context(), t, http.MethodGet, srv.URL()+"/stream", nil))
		require.NoError(t, err)
		unsent, w := io.Pipe()
		t.Cleanup(func() { require.NoError(t, w.Close()) })
		for _, body := range []io.Reader{nil, unsent} {
			req := newRequest(context.WithoutCancel(t.Context()), t, http.MethodPut, srv.URL()+"/wait", body)
			go func() {
				if resp, err := srv.Transport().RoundTrip(req); err == nil {
					t.Errorf("a call that was never answered got %s", resp.Status)
				}
			}()
		}
		synctest.Wait()
	})
}

func TestCancelReachesTheHandler(t *testing.T) {
	t.Parallel()
	memhttp.Each(t, func(t *testing.T, proto memhttp.Protocol) {
		handler := make(chan error, 1)
		srv := memhttp.NewServer(t, proto, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			handler <- r.Context().Err()
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		_, err := srv.Transport().RoundTrip(newRequest(ctx, t, http.MethodGet, srv.URL(), nil))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, <-handler, context.Canceled)
		require.Equal(t, time.Minute, time.Since(start))
	})
}

func TestFaults(t *testing.T) {
	t.Parallel()
	memhttp.Each(t, func(t *testing.T, proto memhttp.Protocol) {
		srv := memhttp.NewServer(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/abort" {
				panic(http.ErrAbortHandler)
			}
			time.Sleep(2 * time.Second)
			_, _ = io.WriteString(w, "done")
		}))
		get := func(path string) error {
			resp, err := srv.Transport().RoundTrip(newRequest(t.Context(), t, http.MethodGet, srv.URL()+path, nil))
			if err != nil {
				return err
			}
			return errors.Join(err, resp.Body.Close())
		}

		refused := errors.New("connection refused")
		srv.FailDials(refused)
		require.ErrorIs(t, get("/"), refused)
		srv.FailDials(nil)
		require.NoError(t, get("/"))
		require.Error(t, get("/abort"))

		time.AfterFunc(time.Second, srv.BreakConnections)
		require.Error(t, get("/"))
		require.NoError(t, get("/"))
	})
}

func TestUpgrade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := memhttp.NewServer(t, memhttp.HTTP1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			c, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_, _ = io.Copy(c, rw)
			_ = c.Close()
		}))
		req := newRequest(t.Context(), t, http.MethodGet, srv.URL(), nil)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "echo")
		resp, err := srv.Transport().RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
		rw, ok := resp.Body.(io.ReadWriteCloser)
		require.True(t, ok)
		_, err = io.WriteString(rw, "hello")
		require.NoError(t, err)
		got := make([]byte, 5)
		_, err = io.ReadFull(rw, got)
		require.NoError(t, err)
		require.Equal(t, "hello", string(got))
		require.NoError(t, rw.Close())
	})
}

func TestServerOutsideABubble(t *testing.T) {
	t.Parallel()
	for _, proto := range []memhttp.Protocol{memhttp.HTTP1, memhttp.HTTP2} {
		t.Run(proto.String(), func(t *testing.T) {
			t.Parallel()
			srv := memhttp.NewServer(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(w, r.Body)
			}))
			req := newRequest(t.Context(), t, http.MethodPost, srv.URL(), strings.NewReader(strings.Repeat("x", big)))
			resp, err := srv.Transport().RoundTrip(req)
			require.NoError(t, err)
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Len(t, got, big)
		})
	}
}
