package hedgerow_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// putWith returns a request that may be hedged.
func putWith(t *testing.T, body io.ReadCloser, getBody func() (io.ReadCloser, error)) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://shared.test/", nil)
	require.NoError(t, err)
	req.Body, req.GetBody, req.ContentLength = body, getBody, int64(len(sharedPayload))
	req.Header.Set("Idempotency-Key", "k1")
	return req
}

// TestSlowGetBody has a GetBody that takes a second. Meanwhile the upload of the primary goes on; and a primary that waits
// for its turn to read does not stop the clock of a bubble.
func TestSlowGetBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var uploaded time.Duration
		start := time.Now()
		base := roundTrip(func(req *http.Request) (*http.Response, error) {
			if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Kind == hedgerow.AttemptHedge {
				return sharedAnswer(req, http.StatusOK, "hedge"), nil
			}
			for b := make([]byte, 1); ; time.Sleep(time.Millisecond) {
				if _, err := req.Body.Read(b); err != nil {
					break
				}
			}
			uploaded = time.Since(start)
			<-req.Context().Done()
			return nil, req.Context().Err()
		})
		tr, err := hedgerow.New(hedgerow.Config{
			Base: base, Hedge: hedgerow.HedgeConfig{Delay: 5500 * time.Microsecond, MaxHedges: 1},
		})
		require.NoError(t, err)
		resp, err := tr.RoundTrip(putWith(t, io.NopCloser(strings.NewReader(sharedPayload)), func() (io.ReadCloser, error) {
			time.Sleep(time.Second) // opens a file, say
			return io.NopCloser(strings.NewReader(sharedPayload)), nil
		}))
		require.NoError(t, err)
		require.Equal(t, "hedge", contractRead(t, resp))
		require.Less(t, uploaded, 200*time.Millisecond)
		require.GreaterOrEqual(t, time.Since(start), time.Second)
	})
}

// zeros is a body that has nothing two attempts could share.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestStatelessBody hedges a call whose bodies are equal because there is nothing in them, before any of it was sent.
func TestStatelessBody(t *testing.T) {
	t.Parallel()
	hedged := make(chan struct{})
	tr, err := hedgerow.New(hedgerow.Config{
		Base: roundTrip(func(req *http.Request) (*http.Response, error) {
			if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Kind == hedgerow.AttemptHedge {
				close(hedged)
				return sharedAnswer(req, http.StatusServiceUnavailable, ""), nil
			}
			<-hedged
			if _, err := io.ReadFull(req.Body, make([]byte, 10)); err != nil {
				return nil, err
			}
			return sharedAnswer(req, http.StatusOK, "primary"), nil
		}),
		Hedge: hedgerow.HedgeConfig{Delay: time.Millisecond, MaxHedges: 1},
	})
	require.NoError(t, err)
	resp, err := tr.RoundTrip(putWith(t, io.NopCloser(zeros{}), func() (io.ReadCloser, error) {
		return io.NopCloser(zeros{}), nil
	}))
	require.NoError(t, err)
	require.Equal(t, "primary", contractRead(t, resp))
}

// TestOneCloseAfterAPanic has a base panic that has closed the body, and a GetBody when an earlier attempt has.
func TestOneCloseAfterAPanic(t *testing.T) {
	t.Parallel()
	closes := func(rt http.RoundTripper, change func(*http.Request)) int64 {
		body := &contractBody{src: strings.NewReader(sharedPayload)}
		req := putWith(t, body, func() (io.ReadCloser, error) { panic("of GetBody") })
		change(req)
		require.Panics(t, func() { _, _ = rt.RoundTrip(req) })
		return body.closes.Load()
	}
	panics := roundTrip(func(req *http.Request) (*http.Response, error) {
		panic(errors.Join(req.Body.Close(), errors.New("of the base")))
	})
	tr, err := hedgerow.New(hedgerow.Config{Base: panics})
	require.NoError(t, err)
	pool, err := hedgerow.NewPool(hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "a"}, {ID: "b"}}})
	require.NoError(t, err)
	refuses := roundTrip(func(req *http.Request) (*http.Response, error) {
		return sharedAnswer(req, http.StatusTooManyRequests, ""), req.Body.Close()
	})
	require.EqualValues(t, 1, closes(tr, func(*http.Request) {}), "hedged")
	require.EqualValues(t, 1, closes(tr, func(req *http.Request) { req.Header.Del("Idempotency-Key") }), "passed on")
	require.EqualValues(t, 1, closes(pool.Wrap(refuses), func(*http.Request) {}), "repeated")
	require.Zero(t, pool.Stats().InFlight)
}

// TestGetBodyOfALoser has the base of a loser call GetBody, which is still running when the call has its answer: RoundTrip does
// not return before that.
func TestGetBodyOfALoser(t *testing.T) {
	t.Parallel()
	for name, loser := range map[string]hedgerow.AttemptKind{
		"hedge": hedgerow.AttemptHedge, "detached primary": hedgerow.AttemptPrimary,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				base := roundTrip(func(req *http.Request) (*http.Response, error) {
					if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Kind == loser {
						time.Sleep(5 * time.Millisecond)
						_, err := req.GetBody()
						<-req.Context().Done()
						return nil, errors.Join(err, req.Context().Err())
					}
					time.Sleep(10 * time.Millisecond)
					return sharedAnswer(req, http.StatusOK, ""), nil
				})
				tr, err := hedgerow.New(hedgerow.Config{
					Base: base, Hedge: hedgerow.HedgeConfig{Delay: time.Millisecond, MaxHedges: 1},
					Detach: loser == hedgerow.AttemptPrimary,
				})
				require.NoError(t, err)
				var gets, running atomic.Int64
				resp, err := tr.RoundTrip(putWith(t, io.NopCloser(strings.NewReader(sharedPayload)), func() (io.ReadCloser, error) {
					running.Add(1)
					defer running.Add(-1)
					if gets.Add(1) == 2 { // the first is the hedge's
						time.Sleep(time.Second)
					}
					return io.NopCloser(strings.NewReader(sharedPayload)), nil
				}))
				require.Zero(t, running.Load())
				require.EqualValues(t, 2, gets.Load())
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				time.Sleep(time.Second) // the loser is back by then
			})
		})
	}
}
