package retryablehttp_test

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
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

func TestSlowGetIsHedged(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		srv := bed.Serve(t, proto, bed.HoldPrimary(http.HandlerFunc(bed.Echo)))
		keys := newKeys(t, srv)
		tr := bed.New(t, hedgerow.Config{Base: keys.Wrap(bed.Mark(srv.Base)), Hedge: bed.Soon()})

		resp, err := newClient(tr).Get(srv.URL)
		bed.RequireWhole(t, resp, err)
		resp, err = newClient(srv.Base).Get(srv.URL) // as without hedgerow
		bed.RequireWhole(t, resp, err)

		bed.Settle(t, tr, keys)
		require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
	})
}

func TestDeclaredPostIsHedgedWithItsBody(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		want := bed.Pattern(bed.Large)
		srv := bed.Serve(t, proto, bed.HoldPrimary(bed.ReadFirst(t, http.HandlerFunc(bed.Echo))))
		keys := newKeys(t, srv)
		tr := bed.New(t, hedgerow.Config{Base: keys.Wrap(bed.Mark(srv.Base)), Hedge: bed.Soon()})
		require.NoError(t, tr.Register("POST /search", hedgerow.EndpointConfig{Idempotent: true}))

		// []byte, *bytes.Buffer and *bytes.Reader give each attempt a reader of its own.
		for _, body := range []any{want, bytes.NewBuffer(want), bytes.NewReader(want)} {
			resp, err := newClient(tr).Post(srv.URL+"/search", "text/plain", body)
			require.NoError(t, bed.Whole(resp, err), "%T", body)
		}
		bed.Settle(t, tr, keys)
		require.EqualValues(t, 3, tr.Stats().Total.HedgeWins)
	})
}

// Any other io.ReadSeeker, a *strings.Reader too, is rewound for each attempt: there is one reader for all of them, against
// the contract of GetBody. A hedge has to wait until the upload of its primary is over.
func TestSeekersAreSharedByAttempts(t *testing.T) {
	t.Parallel()
	req, err := retryablehttp.NewRequest(http.MethodPost, "https://example.com", strings.NewReader("abcdef"))
	require.NoError(t, err)
	primary, err := req.GetBody()
	require.NoError(t, err)
	first := make([]byte, 3)
	_, err = io.ReadFull(primary, first)
	require.NoError(t, err)
	_, err = req.GetBody() // as for a hedge
	require.NoError(t, err)
	rest, err := io.ReadAll(primary)
	require.NoError(t, err)
	require.Equal(t, "abc"+"abcdef", string(first)+string(rest), "the primary's reader was rewound under it")
}

func TestSlowPostIsSentOnce(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		slow := bed.NewGate()
		srv := bed.Serve(t, proto, bed.WithClock(bed.ReadFirst(t, slow.Handler(http.HandlerFunc(bed.Echo)))))
		keys := newKeys(t, srv)
		tr := bed.New(t, hedgerow.Config{Base: keys.Wrap(bed.Mark(srv.Base)), Hedge: bed.Soon()})
		client := newClient(tr)

		bed.Slowly(t, tr, srv.URL, slow, func() error {
			return bed.Whole(client.Post(srv.URL+"/orders", "text/plain", bed.Pattern(bed.Large)))
		})
		bed.Settle(t, tr, keys)
		require.Equal(t, 1, slow.Count())
		require.EqualValues(t, 1, tr.Stats().Total.Skipped[hedgerow.SkipMethod])
	})
}

func TestKeysRotate(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		for _, code := range []int{http.StatusTooManyRequests, http.StatusUnauthorized} {
			t.Run(http.StatusText(code), func(t *testing.T) {
				t.Parallel()
				// At a 429 retryablehttp would sleep for as long as it asks for.
				srv := bed.Serve(t, proto, bed.ReadFirst(t, bed.Refuse("one", code, http.HandlerFunc(bed.Echo))))
				keys := newKeys(t, srv)
				tr := bed.New(t, hedgerow.Config{Base: keys.Wrap(srv.Base)})

				resp, err := newClient(tr).Post(srv.URL, "text/plain", bed.Pattern(bed.Large))
				bed.RequireWhole(t, resp, err)
				bed.Settle(t, tr, keys)
				require.EqualValues(t, 1, tr.Stats().Total.Requests, "retryablehttp has retried")
				require.NotEqual(t, hedgerow.ResourceHealthy, bed.Status(t, keys, "key-1").State)
				require.Equal(t, hedgerow.ResourceHealthy, bed.Status(t, keys, "key-2").State)
			})
		}
	})
}

// What the pool passes on, such as a 500, retryablehttp retries as ever, a POST too. Each of its tries is a call of hedgerow.
func TestRetriesAbove(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		var arrived atomic.Int64
		srv := bed.Serve(t, proto, brokenTwice(t, &arrived))
		keys := newKeys(t, srv)
		tr := bed.New(t, hedgerow.Config{Base: keys.Wrap(srv.Base)})

		resp, err := newClient(tr).Post(srv.URL, "text/plain", bed.Pattern(bed.Large))
		bed.RequireWhole(t, resp, err)
		bed.Settle(t, tr, keys)
		require.EqualValues(t, 3, arrived.Load())
		require.EqualValues(t, 3, tr.Stats().Total.Requests)
		require.EqualValues(t, 2, tr.Stats().Total.Errors)
	})
}

func TestRetriesOff(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		var arrived atomic.Int64
		srv := bed.Serve(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			arrived.Add(1)
			http.Error(w, "broken", http.StatusInternalServerError)
		}))
		keys := newKeys(t, srv)
		tr := bed.New(t, hedgerow.Config{Base: keys.Wrap(srv.Base)})
		client := newClient(tr)
		client.RetryMax = 0
		client.ErrorHandler = retryablehttp.PassthroughErrorHandler // else the response becomes an error

		resp, err := client.Post(srv.URL, "text/plain", []byte("x"))
		require.NoError(t, err)
		require.Equal(t, http.StatusInternalServerError, resp.StatusCode)
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, "broken\n", string(got))
		bed.Settle(t, tr, keys)
		require.EqualValues(t, 1, arrived.Load())
	})
}

// With every key at rest retryablehttp sleeps for what the last response asks for, without a bound, and then takes the
// pool's refusals for lost connections. A CheckRetry ends both.
func TestAllKeysRest(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		var arrived atomic.Int64
		srv := bed.Serve(t, proto, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			arrived.Add(1)
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
		}))
		keys := newKeys(t, srv)
		tr := bed.New(t, hedgerow.Config{Base: keys.Wrap(srv.Base), Hedge: bed.Off()})

		t.Run("default", func(t *testing.T) { //nolint:paralleltest // the subtests use the keys in turn
			client := newClient(tr)
			var waits []time.Duration
			client.Backoff = func(lo, hi time.Duration, n int, resp *http.Response) time.Duration {
				waits = append(waits, retryablehttp.DefaultBackoff(lo, hi, n, resp))
				return 0
			}
			client.RetryMax = 1
			_, err := client.Get(srv.URL)
			exhausted, ok := errors.AsType[*hedgerow.ExhaustedError](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, hedgerow.ExhaustedNoResource, exhausted.Reason)
			require.Equal(t, []time.Duration{time.Hour}, waits)
			require.EqualValues(t, 2, arrived.Load(), "one send for each key")
		})

		for _, r := range keys.Snapshot() {
			require.NoError(t, keys.Enable(r.ID))
		}
		arrived.Store(0)

		t.Run("configured", func(t *testing.T) { //nolint:paralleltest // as above
			client := newClient(tr)
			client.CheckRetry = func(ctx context.Context, resp *http.Response, err error) (bool, error) {
				if _, refused := errors.AsType[*hedgerow.ExhaustedError](err); refused ||
					resp != nil && resp.StatusCode == http.StatusTooManyRequests {
					return false, err // the pool has tried every key
				}
				return retryablehttp.DefaultRetryPolicy(ctx, resp, err)
			}
			resp, err := client.Get(srv.URL)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
			_, err = client.Get(srv.URL)
			_, ok := errors.AsType[*hedgerow.ExhaustedError](err)
			require.True(t, ok, "%v", err)
			require.EqualValues(t, 2, arrived.Load(), "one send for each key")
		})
		bed.Settle(t, tr, keys)
	})
}

// A caller that gives up ends the call, and no key is the worse for it.
func TestCallerGivesUp(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var once sync.Once
		srv := bed.Serve(t, proto, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			once.Do(cancel)
			bed.Hold(r)
		}))
		keys := newKeys(t, srv)
		tr := bed.New(t, hedgerow.Config{Base: keys.Wrap(srv.Base), Hedge: bed.Soon()})

		req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodGet, srv.URL, nil)
		require.NoError(t, err)
		_, err = newClient(tr).Do(req)
		require.ErrorIs(t, err, context.Canceled)
		bed.Settle(t, tr, keys)
		for _, r := range keys.Snapshot() {
			require.Equal(t, hedgerow.ResourceHealthy, r.State)
			require.Zero(t, r.ConsecutiveFailures)
		}
	})
}
