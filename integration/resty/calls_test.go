package resty_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	restyv3 "resty.dev/v3"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

func TestSlowGetIsHedged(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, proto string, version int) {
		t.Helper()
		want := bed.Pattern(bed.Large)
		srv := bed.Serve(t, proto, bed.HoldPrimary(http.HandlerFunc(bed.Echo)))
		keys := newKeys(t, srv)
		tr := bed.New(t, hedgerow.Config{Base: keys.Wrap(bed.Mark(srv.Base)), Hedge: bed.Soon()})

		code, got, err := newClient(t, version, tr).get(t.Context(), srv.URL)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, code)
		require.True(t, bytes.Equal(want, got))

		code, bare, err := newClient(t, version, srv.Base).get(t.Context(), srv.URL)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, code)
		require.True(t, bytes.Equal(bare, got))

		bed.Settle(t, tr, keys)
		require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
	})
}

func TestSlowPostIsSentOnce(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, proto string, version int) {
		t.Helper()
		want, slow := bed.Pattern(128<<10), bed.NewGate()
		srv := bed.Serve(t, proto, bed.WithClock(bed.ReadFirst(t, slow.Handler(http.HandlerFunc(bed.Echo)))))
		keys := newKeys(t, srv)
		tr := bed.New(t, hedgerow.Config{Base: keys.Wrap(bed.Mark(srv.Base)), Hedge: bed.Soon()})
		c := newClient(t, version, tr)

		bed.Slowly(t, tr, srv.URL, slow, func() error {
			_, got, err := c.post(t.Context(), srv.URL+"/orders", want)
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
	eachVersion(t, func(t *testing.T, proto string, version int) {
		t.Helper()
		for _, code := range []int{http.StatusTooManyRequests, http.StatusUnauthorized} {
			t.Run(http.StatusText(code), func(t *testing.T) {
				t.Parallel()
				want := bed.Pattern(64 << 10)
				srv := bed.Serve(t, proto, bed.ReadFirst(t, bed.Refuse("one", code, http.HandlerFunc(bed.Echo))))
				keys := newKeys(t, srv)
				tr := bed.New(t, hedgerow.Config{Base: keys.Wrap(srv.Base)})
				c := newClient(t, version, tr)
				c.retry(2)

				got, body, err := c.post(t.Context(), srv.URL, string(want))
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, got)
				require.True(t, bytes.Equal(want, body))
				bed.Settle(t, tr, keys)
				require.EqualValues(t, 1, tr.Stats().Total.Requests, "resty has retried")
				require.NotEqual(t, hedgerow.ResourceHealthy, bed.Status(t, keys, "key-1").State)
			})
		}
	})
}

// What the pool passes on, such as a 500, is resty's to retry. Version 2 retries a POST as well, version 3 does not.
func TestRetriesAbove(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, proto string, version int) {
		t.Helper()
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			for _, retries := range []int{0, 2} {
				t.Run(fmt.Sprint(method, " ", retries), func(t *testing.T) {
					t.Parallel()
					want := bed.Pattern(64 << 10)
					var arrived atomic.Int64
					srv := bed.Serve(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if body := bed.ReadBody(t, r); method == http.MethodPost && !bytes.Equal(want, body) {
							t.Errorf("another body came: %d bytes", len(body))
						}
						if arrived.Add(1) < 3 {
							w.WriteHeader(http.StatusInternalServerError)
						}
					}))
					keys := newKeys(t, srv)
					tr := bed.New(t, hedgerow.Config{Base: keys.Wrap(srv.Base), Hedge: bed.Off()})
					c := newClient(t, version, tr)
					c.retry(retries)

					var code int
					var err error
					if method == http.MethodGet {
						code, _, err = c.get(t.Context(), srv.URL)
					} else {
						code, _, err = c.post(t.Context(), srv.URL, want)
					}
					require.NoError(t, err)
					calls, wantCode := 1, http.StatusInternalServerError
					if retries > 0 && (method == http.MethodGet || version == 2) {
						calls, wantCode = 3, http.StatusOK
					}
					require.Equal(t, wantCode, code)
					bed.Settle(t, tr, keys)
					require.EqualValues(t, calls, arrived.Load())
					require.EqualValues(t, calls, tr.Stats().Total.Requests)
				})
			}
		}
	})
}

// With every key at rest further tries are refused by the pool, without a send.
func TestAllKeysRest(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, proto string, version int) {
		t.Helper()
		var arrived atomic.Int64
		srv := bed.Serve(t, proto, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			arrived.Add(1)
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
		}))
		keys := newKeys(t, srv)
		tr := bed.New(t, hedgerow.Config{Base: keys.Wrap(srv.Base), Hedge: bed.Off()})
		c := newClient(t, version, tr)
		c.retry(2)

		code, _, err := c.get(t.Context(), srv.URL)
		require.NoError(t, err)
		require.Equal(t, http.StatusTooManyRequests, code)
		_, _, err = c.get(t.Context(), srv.URL)
		exhausted, ok := errors.AsType[*hedgerow.ExhaustedError](err)
		require.True(t, ok, "%v", err)
		require.Greater(t, time.Until(exhausted.NextAvailable), 50*time.Minute)
		bed.Settle(t, tr, keys)
		require.EqualValues(t, 2, arrived.Load(), "one send for each key")
		require.EqualValues(t, 4, tr.Stats().Total.Requests, "the call, and one with two retries")
	})
}

// A deadline ends the call with all its attempts, whoever set it, and no key is the worse for it.
func TestTimeout(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, proto string, version int) {
		t.Helper()
		for _, whose := range []string{"context", "client"} {
			t.Run(whose, func(t *testing.T) {
				t.Parallel()
				srv := bed.Serve(t, proto, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { bed.Hold(r) }))
				keys := newKeys(t, srv)
				tr := bed.New(t, hedgerow.Config{Base: keys.Wrap(srv.Base), Hedge: bed.Soon()})
				c := newClient(t, version, tr)
				ctx := t.Context()
				if whose == "client" {
					c.timeout(3 * bed.HedgeDelay)
				} else {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, 3*bed.HedgeDelay)
					defer cancel()
				}

				_, _, err := c.get(ctx, srv.URL)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				bed.Settle(t, tr, keys)
				for _, r := range keys.Snapshot() {
					require.Equal(t, hedgerow.ResourceHealthy, r.State)
					require.Zero(t, r.ConsecutiveFailures)
				}
			})
		}
	})
}

// Version 3 can hedge as well. It is off by default and stays off: each of its copies would be a call of hedgerow, with hedges
// of its own.
func TestOwnHedgingStaysOff(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		var arrived atomic.Int64
		both := make(chan struct{})
		srv := bed.Serve(t, proto, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/both" {
				if arrived.Add(1) == 2 {
					close(both)
				}
				<-both
			}
		}))
		keys := newKeys(t, srv)
		tr := bed.New(t, hedgerow.Config{Base: keys.Wrap(srv.Base), Hedge: bed.Off()})

		c := newV3(tr)
		defer func() { require.NoError(t, c.Close()) }()
		require.Nil(t, c.Hedging())
		_, err := c.R().SetContext(t.Context()).Get(srv.URL)
		require.NoError(t, err)
		require.EqualValues(t, 1, tr.Stats().Total.Requests)

		c.SetHedging(restyv3.NewHedging().SetDelay(time.Millisecond).SetMaxRequest(2))
		_, err = c.R().SetContext(t.Context()).Get(srv.URL + "/both")
		require.NoError(t, err)
		bed.Settle(t, tr, keys)
		require.EqualValues(t, 3, tr.Stats().Total.Requests)

		c.SetHedging(nil) // hedgerow is the transport again
		_, err = c.R().SetContext(t.Context()).Get(srv.URL)
		require.NoError(t, err)
		bed.Settle(t, tr, keys)
		require.EqualValues(t, 4, tr.Stats().Total.Requests)
	})
}
