package hedgerow_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// A recycler makes bodies of those that were closed, which is in net/http's terms: a copy that is closed is its owner's again.
type recycler struct {
	mu   sync.Mutex
	free []*recycled
}

type recycled struct {
	strings.Reader

	of *recycler
}

func (b *recycled) Close() error {
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	b.of.free = append(b.of.free, b)
	return nil
}

func (r *recycler) get() (io.ReadCloser, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := &recycled{of: r}
	if n := len(r.free); n > 0 {
		b, r.free = r.free[n-1], r.free[:n-1]
	}
	b.Reset(sharedPayload)
	return b, nil
}

// takenBodies are the sharedBodies, and recycled ones.
func takenBodies() map[string]func(*http.Request) {
	all := sharedBodies()
	all["recycled"] = func(req *http.Request) {
		r := new(recycler)
		req.GetBody = r.get
		req.Body, _ = r.get()
	}
	return all
}

// upload reads and closes the body of a request.
func upload(req *http.Request) (string, error) {
	body, err := io.ReadAll(req.Body)
	return string(body), errors.Join(err, req.Body.Close())
}

// TestBodyIsHadAgain has a hedge take the body of an attempt that has sent it, and come to nothing. Then that attempt has it again,
// for another connection or on another resource.
func TestBodyIsHadAgain(t *testing.T) {
	t.Parallel()
	pool := func(t *testing.T, next roundTrip, disabled string) (*hedgerow.Pool, http.RoundTripper) {
		t.Helper()
		p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(3), Strategy: hedgerow.PrimaryBackup})
		for id := range strings.SplitSeq(disabled, "") {
			require.NoError(t, p.Disable(id))
		}
		return p, p.Wrap(next)
	}
	for name, tt := range map[string]struct {
		hedges int
		base   func(*testing.T) http.RoundTripper
	}{
		"the hedge has failed, a connection is lost": {1, func(*testing.T) http.RoundTripper {
			return roundTrip(func(req *http.Request) (*http.Response, error) {
				body, err := upload(req)
				if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Kind == hedgerow.AttemptHedge {
					return sharedAnswer(req, http.StatusServiceUnavailable, body), err
				}
				time.Sleep(20 * time.Millisecond)
				again, getErr := req.GetBody()
				if err := errors.Join(err, getErr); err != nil {
					return nil, err
				}
				req.Body = again
				body, err = upload(req)
				return sharedAnswer(req, http.StatusOK, body), err
			})
		}},
		"the hedge has failed, the primary is refused": {1, func(t *testing.T) http.RoundTripper {
			t.Helper()
			_, rt := pool(t, func(req *http.Request) (*http.Response, error) {
				body, err := upload(req)
				switch a, _ := hedgerow.AttemptFromContext(req.Context()); a.Resource {
				case "A":
					time.Sleep(30 * time.Millisecond)
					return sharedAnswer(req, http.StatusTooManyRequests, body), err
				case "B":
					return sharedAnswer(req, http.StatusInternalServerError, body), err
				}
				return sharedAnswer(req, http.StatusOK, body), err
			}, "")
			return rt
		}},
		"the second hedge has no resource, the first one is refused": {2, func(t *testing.T) http.RoundTripper {
			t.Helper()
			var p *hedgerow.Pool
			p, rt := pool(t, func(req *http.Request) (*http.Response, error) {
				body, err := upload(req)
				switch a, _ := hedgerow.AttemptFromContext(req.Context()); a.Resource {
				case "A":
					<-req.Context().Done()
					return nil, req.Context().Err()
				case "B":
					time.Sleep(20 * time.Millisecond)
					return sharedAnswer(req, http.StatusTooManyRequests, body), errors.Join(err, p.Enable("C"))
				}
				return sharedAnswer(req, http.StatusOK, body), err
			}, "C")
			return rt
		}},
		"the hedge has no resource and is still on its way back": {1, func(t *testing.T) http.RoundTripper {
			t.Helper()
			var p *hedgerow.Pool
			p, rt := pool(t, func(req *http.Request) (*http.Response, error) {
				body, err := upload(req)
				if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Resource == "B" {
					return sharedAnswer(req, http.StatusOK, body), err
				}
				time.Sleep(20 * time.Millisecond)
				return sharedAnswer(req, http.StatusTooManyRequests, body), errors.Join(err, p.Enable("B"))
			}, "BC")
			return roundTrip(func(req *http.Request) (*http.Response, error) {
				resp, err := rt.RoundTrip(req)
				if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Kind == hedgerow.AttemptHedge {
					time.Sleep(10 * time.Millisecond)
				}
				return resp, err
			})
		}},
	} {
		for kind, set := range takenBodies() {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					tr := contractNew(t, hedgerow.Config{Base: tt.base(t), Hedge: hedgerow.HedgeConfig{
						Delay: 15 * time.Millisecond, MaxHedges: tt.hedges, BudgetPercent: 100, EstimatedRPS: 100,
					}})
					req := putWith(t, nil, nil)
					req.URL.Scheme, req.URL.Host = "https", "api.test"
					set(req)
					resp, err := tr.RoundTrip(req)
					require.NoError(t, err)
					require.Equal(t, http.StatusOK, resp.StatusCode)
					require.Equal(t, sharedPayload, contractRead(t, resp))
					time.Sleep(time.Second) // the losers are back by then
				})
			})
		}
	}
}

// TestRecycledBodyIsNoRewind has a hedge get the very body that the primary has sent and closed. That is no rewind to remember:
// the next call's hedge is sent beside an upload.
func TestRecycledBodyIsNoRewind(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"a copy", "recycled"} {
		synctest.Test(t, func(t *testing.T) {
			slow := false
			tr := contractNew(t, hedgerow.Config{
				Base: roundTrip(func(req *http.Request) (*http.Response, error) {
					if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Kind == hedgerow.AttemptHedge {
						body, err := upload(req)
						return sharedAnswer(req, http.StatusOK, body), err
					}
					if slow {
						_, _ = io.ReadFull(req.Body, make([]byte, 5))
					} else {
						_, _ = upload(req)
					}
					<-req.Context().Done()
					return nil, errors.Join(req.Context().Err(), req.Body.Close())
				}),
				Hedge: hedgerow.HedgeConfig{Delay: 10 * time.Millisecond, MaxHedges: 1, BudgetPercent: 100},
			})
			for _, slow = range []bool{false, true} {
				start := time.Now()
				req := putWith(t, nil, nil)
				takenBodies()[kind](req)
				resp, err := tr.RoundTrip(req)
				require.NoError(t, err)
				require.Equal(t, sharedPayload, contractRead(t, resp))
				require.Equal(t, 10*time.Millisecond, time.Since(start), "%s, slow upload: %v", kind, slow)
			}
		})
	}
}

// A slowReader is a shared body of short Reads that take their time.
type slowReader struct{ *strings.Reader }

func (b slowReader) Read(p []byte) (int, error) {
	time.Sleep(4 * time.Millisecond)
	return b.Reader.Read(p[:min(len(p), 6)])
}

func (b slowReader) Close() error { return nil }

// TestLoserReadsNothingOfWhatIsSentNext redirects a call whose body a hedge has begun to send: http.Client rewinds it at once. The
// hedge reads nothing of it then.
func TestLoserReadsNothingOfWhatIsSentNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := slowReader{strings.NewReader(sharedPayload)}
		tr := contractNew(t, hedgerow.Config{
			Base: roundTrip(func(req *http.Request) (*http.Response, error) {
				body, err := upload(req)
				a, _ := hedgerow.AttemptFromContext(req.Context())
				switch {
				case a.Kind == hedgerow.AttemptHedge:
					<-req.Context().Done()
					return nil, errors.Join(err, req.Context().Err())
				case req.URL.Host == "other.test":
					return sharedAnswer(req, http.StatusOK, body), err
				}
				time.Sleep(30 * time.Millisecond)
				resp := sharedAnswer(req, http.StatusTemporaryRedirect, "")
				resp.Header.Set("Location", "http://other.test/")
				return resp, err
			}),
			Hedge: hedgerow.HedgeConfig{Delay: 45 * time.Millisecond, MaxHedges: 1},
		})
		resp, err := (&http.Client{Transport: tr}).Do(putWith(t, b, func() (io.ReadCloser, error) {
			_, err := b.Seek(0, io.SeekStart)
			return b, err
		}))
		require.NoError(t, err)
		require.Equal(t, sharedPayload, contractRead(t, resp))
		require.EqualValues(t, 1, tr.Stats().Total.Hedges)
		time.Sleep(time.Second)
	})
}
