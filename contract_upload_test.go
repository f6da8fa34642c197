package hedgerow_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/memhttp"
)

// C22, as far as it concerns hedges: a body that waits for leave is not read without it, and the hedge asks for its own.
func TestC22ExpectContinue(t *testing.T) {
	t.Parallel()
	expects := make(chan string, 2)
	answered := make(chan struct{})
	defer close(answered)
	arrived := make(chan struct{})
	srv := contractListen(t, memhttp.HTTP1, func(w http.ResponseWriter, r *http.Request) {
		expects <- r.Header.Get("Expect")
		if r.Header.Get("X-Attempt") == "primary" {
			close(arrived)
			<-answered // it never reads
			return
		}
		<-arrived // on a busy machine the hedge may come first
		_, _ = io.Copy(w, r.Body)
	})
	srv.Base.ExpectContinueTimeout = time.Minute
	tr := contractNew(t, hedgerow.Config{Base: contractMark{srv.Base}})
	first, second := &contractBody{src: strings.NewReader("payload")}, &contractBody{src: strings.NewReader("payload")}
	req := contractGet(t.Context(), t, srv.URL+"/")
	req.Method, req.Body, req.ContentLength = http.MethodPut, first, 7
	req.GetBody = func() (io.ReadCloser, error) { return second, nil }
	req.Header.Set("Expect", "100-continue")
	req.Header.Set("Idempotency-Key", "k1")
	resp, err := tr.RoundTrip(req)
	require.NoError(t, err)
	require.Equal(t, "payload", contractRead(t, resp))
	require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
	require.Equal(t, "100-continue", contractTimeout(t, expects, "the primary"))
	require.Equal(t, "100-continue", contractTimeout(t, expects, "the hedge"))
	require.EqualValues(t, 0, first.reads.Load())
	require.Eventually(t, func() bool { return first.closes.Load() == 1 && second.closes.Load() == 1 },
		10*time.Second, time.Millisecond)
}

// C24: nobody reads a request body after we have closed it.
func TestC24NoReadAfterClose(t *testing.T) {
	t.Parallel()
	contractEach(t, func(t *testing.T, proto memhttp.Protocol) {
		t.Helper()
		for name, hedgeWins := range map[string]bool{"caller cancels": false, "hedge wins": true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				srv := contractListen(t, proto, func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("X-Attempt") == "hedge" {
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
				})
				delay := time.Minute
				if hedgeWins {
					delay = contractDelay
				}
				tr := contractNew(t, hedgerow.Config{Base: contractMark{srv.Base}, Hedge: hedgerow.HedgeConfig{Delay: delay}})
				for range 8 {
					ctx, cancel := context.WithCancel(t.Context())
					body := &contractBody{src: iotest.OneByteReader(contractEndless{})}
					body.onRead = func() {
						time.Sleep(time.Millisecond)
						if !hedgeWins && body.reads.Load() == 5 {
							cancel()
						}
					}
					req := contractGet(ctx, t, srv.URL+"/")
					req.Method, req.Body, req.ContentLength = http.MethodPut, body, 1<<20
					req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(io.LimitReader(contractEndless{}, 1<<20)), nil }
					req.Header.Set("Idempotency-Key", "k1")
					resp, err := tr.RoundTrip(req)
					if hedgeWins {
						require.NoError(t, err)
						contractRead(t, resp)
					} else {
						require.ErrorIs(t, err, context.Canceled)
					}
					cancel()
					require.Eventually(t, func() bool { return body.closes.Load() == 1 }, 10*time.Second, time.Millisecond)
					time.Sleep(3 * time.Millisecond) // for a read that would come
					require.EqualValues(t, 0, body.late.Load())
				}
			})
		}
	})
}

// C24: an HTTP/1.1 transport looks for the end of an upload once more when it has sent all of it. An http.Server may by then have
// closed the body of the inbound request, whose answer is under way, and the look would cut that answer off.
func TestC24TheEndIsNotLookedAtTwice(t *testing.T) {
	t.Parallel()
	text := contractText(96 << 10)
	contractEach(t, func(t *testing.T, proto memhttp.Protocol) {
		t.Helper()
		srv := contractListen(t, proto, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
		pool, err := hedgerow.NewPool(hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "a"}}})
		require.NoError(t, err)
		tr := contractNew(t, hedgerow.Config{Base: srv.Base, Hedge: hedgerow.HedgeConfig{Delay: time.Hour}})
		for name, rt := range map[string]http.RoundTripper{"pooled": pool.Wrap(srv.Base), "hedged": tr} {
			for _, length := range []int64{int64(len(text)), -1} {
				inbound := &contractInbound{Reader: iotest.DataErrReader(strings.NewReader(text))} // as an http.Server's
				body := &contractBody{src: inbound}
				req := contractGet(t.Context(), t, srv.URL+"/")
				req.Method, req.Body, req.ContentLength = http.MethodPut, body, length
				req.GetBody = func() (io.ReadCloser, error) { return nil, errContract } // without it a Transport passes the body on
				req.Header.Set("Idempotency-Key", "k1")
				resp, err := rt.RoundTrip(req)
				require.NoError(t, err)
				contractRead(t, resp)
				require.Eventually(t, func() bool { return body.closes.Load() == 1 }, 10*time.Second, time.Millisecond)
				require.Zero(t, inbound.looks.Load(), "%s, %d bytes", name, length)
			}
		}
	})
}

// A contractInbound counts the reads behind its end.
type contractInbound struct {
	io.Reader

	ended bool
	looks atomic.Int64
}

func (b *contractInbound) Read(p []byte) (int, error) {
	if b.ended {
		b.looks.Add(1)
	}
	n, err := b.Reader.Read(p)
	b.ended = b.ended || err != nil
	return n, err
}

// contractMark tells the server which requests are hedges.
type contractMark struct{ base http.RoundTripper }

func (m contractMark) RoundTrip(req *http.Request) (*http.Response, error) {
	a, _ := hedgerow.AttemptFromContext(req.Context())
	req = req.Clone(req.Context())
	req.Header.Set("X-Attempt", a.Kind.String())
	return m.base.RoundTrip(req)
}

// contractEndless is a reader without end.
type contractEndless struct{}

func (contractEndless) Read(p []byte) (int, error) { return len(p), nil }
