package hedgerow_test

import (
	"bytes"
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

// TestRewindThatLingers rewinds the reader and takes its time then. Nothing that is read meanwhile is sent: the primary, which
// asks for its other half just then, gets it whole.
func TestRewindThatLingers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := bytes.NewReader([]byte(sharedPayload))
		base := roundTrip(func(req *http.Request) (*http.Response, error) {
			if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Kind == hedgerow.AttemptHedge {
				<-req.Context().Done()
				return nil, req.Context().Err()
			}
			body := make([]byte, len(sharedPayload))
			half := len(body) / 2
			if _, err := io.ReadFull(req.Body, body[:half]); err != nil {
				return nil, err
			}
			time.Sleep(2 * time.Millisecond)
			if _, err := io.ReadFull(req.Body, body[half:]); err != nil {
				return nil, err
			}
			return sharedAnswer(req, http.StatusOK, string(body)), nil
		})
		tr, err := hedgerow.New(hedgerow.Config{
			Base: base, Hedge: hedgerow.HedgeConfig{Delay: time.Millisecond, MaxHedges: 1},
		})
		require.NoError(t, err)
		resp, err := tr.RoundTrip(putWith(t, io.NopCloser(r), func() (io.ReadCloser, error) {
			_, err := r.Seek(0, io.SeekStart)
			time.Sleep(50 * time.Millisecond)
			return io.NopCloser(r), err
		}))
		require.NoError(t, err)
		require.Equal(t, sharedPayload, contractRead(t, resp))
	})
}

// TestUnknownLengthOfASharedBody repeats a call whose body was not read yet: what is left of the first attempt ends in an
// error, and not as an empty body.
func TestUnknownLengthOfASharedBody(t *testing.T) {
	t.Parallel()
	var first io.Reader
	base := roundTrip(func(req *http.Request) (*http.Response, error) {
		if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Number == 0 {
			first = req.Body
			return sharedAnswer(req, http.StatusTooManyRequests, ""), nil
		}
		body, err := io.ReadAll(req.Body)
		return sharedAnswer(req, http.StatusOK, string(body)), err
	})
	pool, err := hedgerow.NewPool(hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "a"}, {ID: "b"}}})
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://shared.test/", nil)
	require.NoError(t, err)
	sharedBodies()["the same body"](req)
	resp, err := pool.Wrap(base).RoundTrip(req)
	require.NoError(t, err)
	require.Equal(t, sharedPayload, contractRead(t, resp))
	_, err = io.ReadAll(first)
	require.Error(t, err)
}

// A lingeringBody is a shared body whose second Read comes to its reader only when GetBody has rewound it.
type lingeringBody struct {
	contractBody

	second, sought chan struct{}
}

func newLingeringBody() *lingeringBody {
	b := &lingeringBody{second: make(chan struct{}), sought: make(chan struct{})}
	b.src = strings.NewReader(sharedPayload)
	b.onRead = func() {
		if b.reads.Load() == 2 {
			close(b.second)
			<-b.sought
		}
	}
	return b
}

// TestRewindDuringARead rewinds the reader while the primary is in a Read of it. What that Read brings is not sent: the upload
// ends, and the hedge sends the body whole. If it cannot be had once more, it is closed all the same.
func TestRewindDuringARead(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]bool{"had once more": true, "not had once more": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				hedged := make(chan struct{})
				base := roundTrip(func(req *http.Request) (*http.Response, error) {
					a, _ := hedgerow.AttemptFromContext(req.Context())
					if a.Kind == hedgerow.AttemptHedge {
						close(hedged)
						body, err := io.ReadAll(req.Body)
						return sharedAnswer(req, http.StatusOK, string(body)), errors.Join(err, req.Body.Close())
					}
					body := make([]byte, len(sharedPayload))
					n, err := req.Body.Read(body[:len(body)/2])
					if err == nil {
						_, err = io.ReadFull(req.Body, body[n:])
					}
					err = errors.Join(err, req.Body.Close())
					if err == nil {
						return sharedAnswer(req, http.StatusOK, string(body)), nil
					}
					if again {
						<-hedged // else the call ends with the primary, before there is a hedge
					}
					return nil, err
				})
				tr, err := hedgerow.New(hedgerow.Config{
					Base: base, Hedge: hedgerow.HedgeConfig{Delay: time.Millisecond, MaxHedges: 1},
				})
				require.NoError(t, err)
				b := newLingeringBody() // in the bubble, as its channels are
				gets := 0
				resp, err := tr.RoundTrip(putWith(t, b, func() (io.ReadCloser, error) {
					<-b.second
					if gets++; gets > 1 && !again {
						return nil, errors.New("no more")
					}
					b.src = strings.NewReader(sharedPayload)
					if gets == 1 {
						close(b.sought)
						time.Sleep(10 * time.Millisecond) // what the Read brings is there before GetBody returns
					}
					return b, nil
				}))
				if again {
					require.NoError(t, err)
					require.Equal(t, sharedPayload, contractRead(t, resp))
				} else {
					require.Error(t, err)
				}
				require.EqualValues(t, 1, b.closes.Load())
				require.Zero(t, b.late.Load())
			})
		})
	}
}

// TestRewindBesideARewind rewinds the reader for a hedge while the primary is having it rewound, as net/http does for a
// connection that was lost. The primary's new copy is made meanwhile; it brings nothing of what the hedge sends.
func TestRewindBesideARewind(t *testing.T) {
	t.Parallel()
	for name, set := range sharedBodies() {
		if name == "the same reader" {
			continue // from memory: the one GetBody waits for the other
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				half := len(sharedPayload) / 2
				second, read, hedged := make(chan struct{}), make(chan struct{}), make(chan struct{})
				primary := make(chan string, 1)
				base := roundTrip(func(req *http.Request) (*http.Response, error) {
					if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Kind == hedgerow.AttemptHedge {
						close(hedged)
						time.Sleep(time.Millisecond) // the primary reads on
						body, err := io.ReadAll(req.Body)
						return sharedAnswer(req, http.StatusOK, string(body)), errors.Join(err, req.Body.Close())
					}
					_ = req.Body.Close()
					body, err := req.GetBody() // returns when the hedge's is called
					if err != nil {
						return nil, err
					}
					got := make([]byte, len(sharedPayload))
					_, err = io.ReadFull(body, got[:half])
					close(read)
					<-hedged
					n, rest := io.ReadFull(body, got[half:])
					primary <- string(got[:half+n])
					<-req.Context().Done()
					return nil, errors.Join(err, rest, body.Close())
				})
				tr, err := hedgerow.New(hedgerow.Config{
					Base: base, Hedge: hedgerow.HedgeConfig{Delay: time.Millisecond, MaxHedges: 1},
				})
				require.NoError(t, err)
				req := putWith(t, nil, nil)
				set(req)
				get := req.GetBody
				var gets atomic.Int64
				req.GetBody = func() (io.ReadCloser, error) {
					switch gets.Add(1) {
					case 1:
						<-second
					case 2:
						close(second)
						<-read
					}
					return get()
				}
				resp, err := tr.RoundTrip(req)
				require.NoError(t, err)
				require.Equal(t, sharedPayload, contractRead(t, resp), "the hedge")
				want := sharedPayload[:half]
				if name == "a copy" {
					want = sharedPayload
				}
				require.Equal(t, want, <-primary, "the primary")
			})
		})
	}
}
