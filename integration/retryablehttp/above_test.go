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

// do sends a request with a body that may be nil, and returns the status and the whole response body.
func do(
	ctx context.Context, client *retryablehttp.Client, method, url string, body any,
) (status int, got []byte, err error) {
	req, err := retryablehttp.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return 0, nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	got, err = io.ReadAll(resp.Body)
	return resp.StatusCode, got, err
}

func TestSlowGetIsHedged(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		want := bed.Pattern(256 << 10)
		srv := bed.Serve(t, proto, bed.HoldPrimary(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(want)
		})))
		keys := newKeys(t, srv)
		tr := bed.New(t, hedgerow.Config{Base: keys.Wrap(bed.Mark(srv.Base)), Hedge: bed.Soon()})

		code, got, err := do(t.Context(), newClient(tr), http.MethodGet, srv.URL, nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, code)
		require.True(t, bytes.Equal(want, got))

		code, bare, err := do(t.Context(), newClient(srv.Base), http.MethodGet, srv.URL, nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, code)
		require.True(t, bytes.Equal(bare, got))

		bed.Settle(t, tr, keys)
		require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
	})
}

func TestDeclaredPostIsHedgedWithItsBody(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		want := bed.Pattern(256 << 10)
		srv := bed.Serve(t, proto, bed.HoldPrimary(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write(bed.ReadBody(t, r))
		})))
		keys := newKeys(t, srv)
		tr := bed.New(t, hedgerow.Config{Base: keys.Wrap(bed.Mark(srv.Base)), Hedge: bed.Soon()})
		require.NoError(t, tr.Register("POST /search", hedgerow.EndpointConfig{Idempotent: true}))

		// []byte, *bytes.Buffer and *bytes.Reader give each attempt a reader of its own.
		for _, body := range []any{want, bytes.NewBuffer(want), bytes.NewReader(want)} {
			code, got, err := do(t.Context(), newClient(tr), http.MethodPost, srv.URL+"/search", body)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, code)
			require.True(t, bytes.Equal(want, got), "%T", body)
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
		want, slow := bed.Pattern(128<<10), bed.NewGate()
		srv := bed.Serve(t, proto, bed.WithClock(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body := bed.ReadBody(t, r)
			slow.Pass(r)
			_, _ = w.Write(body)
		})))
		keys := newKeys(t, srv)
		tr := bed.New(t, hedgerow.Config{Base: keys.Wrap(bed.Mark(srv.Base)), Hedge: bed.Soon()})
		client := newClient(tr)

		bed.Slowly(t, tr, srv.URL, slow, func() error {
			_, got, err := do(t.Context(), client, http.MethodPost, srv.URL+"/orders", want)
			if err == nil && !bytes.Equal(want, got) {
				err = errors.New("another body came back")
			}
			return err
		})
		bed.Settle(t, tr, keys)
		require.Equal(t, 1, slow.Count())
		require.EqualValues(t, 1, tr.Stats().Total.Skipped[hedgerow.SkipMethod])
	})
}

func TestKeysRotate(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		for name, refuse := range map[string]func(http.ResponseWriter){
			"429": func(w http.ResponseWriter) {
				w.Header().Set("Retry-After", "3600") // retryablehttp would sleep for that long
				w.WriteHeader(http.StatusTooManyRequests)
			},
			"401": func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				want := bed.Pattern(64 << 10)
				srv := bed.Serve(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					body := bed.ReadBody(t, r)
					if bed.Key(r) == "one" {
						refuse(w)
						return
					}
					_, _ = w.Write(body)
				}))
				keys := newKeys(t, srv)
				tr := bed.New(t, hedgerow.Config{Base: keys.Wrap(srv.Base)})

				code, got, err := do(t.Context(), newClient(tr), http.MethodPost, srv.URL, want)
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, code)
				require.True(t, bytes.Equal(want, got))
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
		want := bed.Pattern(64 << 10)
		var arrived atomic.Int64
		srv := bed.Serve(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body := bed.ReadBody(t, r)
			if arrived.Add(1) < 3 {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			_, _ = w.Write(body)
		}))
		keys := newKeys(t, srv)
		tr := bed.New(t, hedgerow.Config{Base: keys.Wrap(srv.Base)})

		code, got, err := do(t.Context(), newClient(tr), http.MethodPost, srv.URL, want)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, code)
		require.True(t, bytes.Equal(want, got))
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

		code, got, err := do(t.Context(), client, http.MethodPost, srv.URL, []byte("x"))
		require.NoError(t, err)
		require.Equal(t, http.StatusInternalServerError, code)
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
			_, _, err := do(t.Context(), client, http.MethodGet, srv.URL, nil)
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
			code, _, err := do(t.Context(), client, http.MethodGet, srv.URL, nil)
			require.NoError(t, err)
			require.Equal(t, http.StatusTooManyRequests, code)
			_, _, err = do(t.Context(), client, http.MethodGet, srv.URL, nil)
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

		_, _, err := do(ctx, newClient(tr), http.MethodGet, srv.URL, nil)
		require.ErrorIs(t, err, context.Canceled)
		bed.Settle(t, tr, keys)
		for _, r := range keys.Snapshot() {
			require.Equal(t, hedgerow.ResourceHealthy, r.State)
			require.Zero(t, r.ConsecutiveFailures)
		}
	})
}
