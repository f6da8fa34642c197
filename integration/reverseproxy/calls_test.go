package reverseproxy_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

// A GET is hedged, and ModifyResponse sees its answer alone.
func TestGet(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		back := bed.Serve(t, proto, bed.HoldPrimary(http.HandlerFunc(bed.Echo)))

		tr, err := hedgerow.New(hedgerow.Config{Base: bed.Mark(back.Base), Hedge: bed.Soon()})
		require.NoError(t, err)
		target, err := url.Parse(back.URL)
		require.NoError(t, err)
		var modified atomic.Int64
		front := bed.Serve(t, proto, &httputil.ReverseProxy{
			Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
			Transport:      tr,
			ModifyResponse: func(*http.Response) error { modified.Add(1); return nil },
		})

		resp, err := front.Client().Get(front.URL)
		bed.RequireWhole(t, resp, err)
		require.EqualValues(t, 1, modified.Load())
		total := tr.Stats().Total
		require.EqualValues(t, 1, total.Requests)
		require.EqualValues(t, 1, total.HedgeWins)
	})
}

// An upload streams through and is sent once, also with an idempotency key: an inbound body cannot be had again. A layer
// that keeps small ones makes them hedgeable.
func TestUpload(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		key    string
		length int64 // -1: unknown
		keeps  bool
		skip   map[hedgerow.SkipReason]uint64 // nil: it is hedged
	}{
		{"length", "", int64(len(large)), false, map[hedgerow.SkipReason]uint64{hedgerow.SkipMethod: 1}},
		{"chunked", "", -1, false, map[hedgerow.SkipReason]uint64{hedgerow.SkipMethod: 1}},
		{"key", "1", int64(len(large)), false, map[hedgerow.SkipReason]uint64{hedgerow.SkipBody: 1}},
		{"key and chunked", "1", -1, true, map[hedgerow.SkipReason]uint64{hedgerow.SkipBody: 1}},
		{"key and kept", "1", int64(len(large)), true, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			bed.Each(t, func(t *testing.T, proto string) {
				var handler http.Handler = http.HandlerFunc(bed.Echo)
				if test.skip == nil {
					handler = bed.HoldPrimary(handler)
				}
				back := bed.Serve(t, proto, handler)
				tr := bed.New(t, hedgerow.Config{Base: bed.Mark(back.Base), Hedge: bed.Soon()})
				var rt http.RoundTripper = tr
				if test.keeps {
					rt = keeping{tr}
				}
				front := bed.Serve(t, proto, newProxy(t, back.URL, rt))
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL, io.NopCloser(strings.NewReader(large)))
				require.NoError(t, err)
				req.ContentLength = test.length
				if test.key != "" {
					req.Header.Set("Idempotency-Key", test.key)
				}
				resp, err := front.Client().Do(req)
				bed.RequireWhole(t, resp, err)
				total := tr.Stats().Total
				require.EqualValues(t, 1, total.Requests)
				if test.skip == nil {
					require.EqualValues(t, 1, total.HedgeWins)
					return
				}
				require.Equal(t, test.skip, total.Skipped)
				require.Zero(t, total.Hedges)
			})
		})
	}
}

// An upload is not gathered anywhere: its second half is sent when the upstream has the first.
func TestStreamingUpload(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		halved := make(chan struct{})
		back := bed.Serve(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var body bytes.Buffer
			_, err := io.CopyN(&body, r.Body, int64(len(large)/2))
			close(halved)
			if _, err2 := io.Copy(&body, r.Body); err != nil || err2 != nil {
				t.Error(err, err2)
			}
			_, _ = body.WriteTo(w)
		}))
		pool := bed.NewPool(t, hedgerow.PoolConfig{
			Hosts: []string{back.Host()}, Resources: []hedgerow.Resource{{ID: "a", Credential: hedgerow.Bearer("key-a")}},
		})
		tr := bed.New(t, hedgerow.Config{Base: pool.Wrap(back.Base)})
		front := bed.Serve(t, proto, newProxy(t, back.URL, tr))
		body, upload := io.Pipe()
		go func() {
			_, _ = io.WriteString(upload, large[:len(large)/2])
			<-halved
			_, _ = io.WriteString(upload, large[len(large)/2:])
			_ = upload.Close()
		}()
		req, err := http.NewRequestWithContext(bed.Timeout(t), http.MethodPost, front.URL, body)
		require.NoError(t, err)
		resp, err := front.Client().Do(req)
		bed.RequireWhole(t, resp, err)
		require.Zero(t, pool.Stats().InFlight)
		require.EqualValues(t, 1, pool.Stats().Attempts)
	})
}

// A POST is sent once, however long it takes.
func TestSlowPostIsSentOnce(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		slow := bed.NewGate()
		back := bed.Serve(t, proto, bed.WithClock(slow.Handler(http.HandlerFunc(bed.Echo))))
		tr := bed.New(t, hedgerow.Config{Base: bed.Mark(back.Base), Hedge: bed.Soon()})
		front := bed.Serve(t, proto, newProxy(t, back.URL, tr))
		bed.Slowly(t, tr, back.URL, slow, func() error {
			return bed.Whole(front.Client().Post(front.URL, "text/plain", strings.NewReader(large)))
		})
		require.Equal(t, 1, slow.Count())
		require.EqualValues(t, 1, tr.Stats().Total.HedgeWins, "of the other call")
		require.EqualValues(t, 1, tr.Stats().Total.Skipped[hedgerow.SkipMethod])
	})
}

// A client that goes away takes every attempt with it.
func TestAbort(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		var arrived, held sync.WaitGroup
		arrived.Add(2)
		held.Add(2)
		back := bed.Serve(t, proto, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			defer held.Done()
			arrived.Done()
			bed.Hold(r)
		}))
		pool := bed.NewPool(t, hedgerow.PoolConfig{
			Hosts: []string{back.Host()},
			Resources: []hedgerow.Resource{
				{ID: "a", Credential: hedgerow.Bearer("key-a")}, {ID: "b", Credential: hedgerow.Bearer("key-b")},
			},
		})
		tr := bed.New(t, hedgerow.Config{Base: pool.Wrap(bed.Mark(back.Base)), Hedge: bed.Once()})
		p := newProxy(t, back.URL, tr)
		failed := make(chan error, 1)
		p.ErrorHandler = func(_ http.ResponseWriter, _ *http.Request, err error) {
			failed <- err
			panic(http.ErrAbortHandler) // or the client may see an answer yet, while it closes its connection
		}
		front := bed.Serve(t, proto, p)

		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			arrived.Wait()
			cancel()
		}()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, front.URL, nil)
		require.NoError(t, err)
		_, err = front.Client().Do(req)
		require.Error(t, err)
		require.ErrorIs(t, <-failed, context.Canceled)
		held.Wait()
		require.Eventually(t, func() bool { return pool.Stats().InFlight == 0 }, bed.Patience, bed.Tick)
		total := tr.Stats().Total
		require.EqualValues(t, 1, total.Hedges)
		require.Zero(t, total.Errors, "the client's cancel is none")
	})
}

// What the upstream fails with goes to the ErrorHandler, as it does without hedgerow.
func TestErrorHandler(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		back := bed.Serve(t, proto, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
		tr := bed.New(t, hedgerow.Config{Base: back.Base, Hedge: hedgerow.HedgeConfig{Delay: time.Hour}})
		p := newProxy(t, back.URL, tr)
		p.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
		front := bed.Serve(t, proto, p)
		resp, err := front.Client().Get(front.URL)
		require.NoError(t, err)
		require.Equal(t, http.StatusBadGateway, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
		require.EqualValues(t, 1, tr.Stats().Total.Errors)
	})
}

// A pool beneath a proxy rotates for calls without a body, and for those whose body is kept. Of an upload that streams, the
// refusal is passed on, because it cannot be sent again.
func TestPool(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusTooManyRequests, http.StatusUnauthorized} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			bed.Each(t, func(t *testing.T, proto string) {
				back := bed.Serve(t, proto, bed.Keyed(status, http.HandlerFunc(bed.Echo)))
				for _, test := range []struct {
					method string
					keeps  bool
					want   int
				}{
					{http.MethodGet, false, http.StatusOK},
					{http.MethodPost, true, http.StatusOK},
					{http.MethodPost, false, status},
				} {
					pool := bed.NewPool(t, hedgerow.PoolConfig{
						Hosts: []string{"api.example.com"}, Strategy: hedgerow.PrimaryBackup,
						Resources: []hedgerow.Resource{
							{ID: "a", Upstream: back.URL, Credential: hedgerow.Bearer("spent")},
							{ID: "b", Upstream: back.URL, Credential: hedgerow.Bearer("good")},
						},
					})
					tr := bed.New(t, hedgerow.Config{Base: pool.Wrap(back.Base), Hedge: hedgerow.HedgeConfig{Delay: time.Hour}})
					var rt http.RoundTripper = tr
					if test.keeps {
						rt = keeping{tr}
					}
					front := bed.Serve(t, proto, newProxy(t, "https://api.example.com", rt))
					var body io.Reader
					if test.method == http.MethodPost {
						body = strings.NewReader(large)
					}
					req, err := http.NewRequestWithContext(t.Context(), test.method, front.URL, body)
					require.NoError(t, err)
					req.Header.Set("Idempotency-Key", "1")
					resp, err := front.Client().Do(req)
					if test.want == http.StatusOK {
						bed.RequireWhole(t, resp, err)
						require.EqualValues(t, 2, pool.Stats().Attempts)
					} else {
						require.NoError(t, err)
						require.Equal(t, test.want, resp.StatusCode)
						require.NoError(t, resp.Body.Close())
						require.EqualValues(t, 1, pool.Stats().Attempts)
					}
					require.NotEqual(t, hedgerow.ResourceHealthy, pool.Snapshot()[0].State)
					require.Zero(t, pool.Stats().InFlight)
				}
			})
		})
	}
}
