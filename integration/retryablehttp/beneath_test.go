package retryablehttp_test

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

func TestBeneathRetriesAreOneAttempt(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		var arrived atomic.Int64
		srv := bed.Serve(t, proto, brokenTwice(t, &arrived))
		keys := newKeys(t, srv)
		tr := bed.New(t, hedgerow.Config{Base: keys.Wrap(newBase(srv).StandardClient().Transport)})

		resp, err := (&http.Client{Transport: tr}).Post(srv.URL, "text/plain", bytes.NewReader(bed.Pattern(bed.Large)))
		bed.RequireWhole(t, resp, err)
		bed.Settle(t, tr, keys)
		require.EqualValues(t, 3, arrived.Load(), "sends on the wire")
		require.EqualValues(t, 1, keys.Stats().Attempts, "attempts that hedgerow knows of")
		require.Zero(t, tr.Stats().Total.Errors)
	})
}

// A Retry-After is slept through inside the attempt: its key stays taken and the pool does not learn that it is used up.
// A call that may be sent twice is saved by its hedge, which takes another key.
func TestBeneathRetryAfterHoldsTheAttempt(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		refused := make(chan struct{}, 1)
		srv := bed.Serve(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if bed.Key(r) == "one" {
				w.Header().Set("Retry-After", "3600")
				w.WriteHeader(http.StatusTooManyRequests)
				if r.Method == http.MethodPost {
					refused <- struct{}{}
				}
				return
			}
			bed.Echo(w, r)
		}))
		newPair := func(t *testing.T) (*hedgerow.Transport, *hedgerow.Pool) {
			t.Helper()
			keys := newKeys(t, srv)
			return bed.New(t, hedgerow.Config{
				Base: keys.Wrap(newBase(srv).StandardClient().Transport), Hedge: bed.Soon(),
			}), keys
		}

		t.Run("hedged", func(t *testing.T) {
			t.Parallel()
			tr, keys := newPair(t)
			resp, err := (&http.Client{Transport: tr}).Get(srv.URL)
			bed.RequireWhole(t, resp, err)
			bed.Settle(t, tr, keys)
			require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
			require.Zero(t, bed.Status(t, keys, "key-1").Cooldowns)
		})

		t.Run("not hedged", func(t *testing.T) {
			t.Parallel()
			tr, keys := newPair(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL, strings.NewReader("x"))
			require.NoError(t, err)
			done := make(chan error, 1)
			go func() {
				_, err := tr.RoundTrip(req)
				done <- err
			}()
			<-refused
			require.Equal(t, 1, bed.Status(t, keys, "key-1").InFlight)
			cancel()
			require.ErrorIs(t, <-done, context.Canceled)
			bed.Settle(t, tr, keys)
			require.Equal(t, hedgerow.ResourceHealthy, bed.Status(t, keys, "key-1").State)
			require.Zero(t, bed.Status(t, keys, "key-2").Attempts)
		})
	})
}

// Without retries and with its responses passed on, retryablehttp is a base like any other.
func TestBeneathWithoutRetriesThePoolRotates(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		echo := http.HandlerFunc(bed.Echo)
		srv := bed.Serve(t, proto, bed.ReadFirst(t, bed.Refuse("one", http.StatusTooManyRequests, echo)))
		keys := newKeys(t, srv)
		client := newBase(srv)
		client.RetryMax = 0
		client.ErrorHandler = retryablehttp.PassthroughErrorHandler // else the pool gets an error and no status
		tr := bed.New(t, hedgerow.Config{Base: keys.Wrap(client.StandardClient().Transport)})

		resp, err := (&http.Client{Transport: tr}).Post(srv.URL, "text/plain", bytes.NewReader(bed.Pattern(bed.Large)))
		bed.RequireWhole(t, resp, err)
		bed.Settle(t, tr, keys)
		require.Equal(t, hedgerow.ResourceCooling, bed.Status(t, keys, "key-1").State)
	})
}

// retryablehttp's RoundTripper follows redirects, below the pool, and net/http takes headers along that it does not know
// for credentials. A key must not go to another host: so redirects belong above the pool.
func TestBeneathRedirectsTakeTheKeyAlong(t *testing.T) {
	t.Parallel()
	for name, follow := range map[string]bool{"default": true, "configured": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := make(chan string, 1)
			elsewhere := bed.Serve(t, "h1", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				seen <- bed.Key(r)
			}))
			srv := bed.Serve(t, "h1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, elsewhere.URL, http.StatusFound)
			}))
			keys := newKeys(t, srv)
			client := newBase(srv)
			if !follow {
				client.HTTPClient.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			}
			tr := bed.New(t, hedgerow.Config{
				Base: keys.Wrap(client.StandardClient().Transport), Hedge: bed.Off(),
			})

			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
			require.NoError(t, err)
			resp, err := (&http.Client{Transport: tr}).Do(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, http.StatusOK, resp.StatusCode)
			bed.Settle(t, tr, keys)
			if follow {
				require.Equal(t, "one", <-seen, "the key has left for another host")
				require.Zero(t, keys.Stats().PassedThrough)
			} else {
				require.Empty(t, <-seen)
				require.EqualValues(t, 1, keys.Stats().PassedThrough)
			}
		})
	}
}
