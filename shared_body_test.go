package hedgerow_test

import (
	"bytes"
	"context"
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

// sharedPayload is what is sent. The parts of it differ, so that one in the place of another shows.
const sharedPayload = "the first half, the other half"

// sharedBodies are ways in which a GetBody returns the one reader that there is, rewound, which it should not do and some
// clients do, and one that returns a new copy. None has a lock, so that the race detector sees who shares it.
func sharedBodies() map[string]func(*http.Request) {
	return map[string]func(*http.Request){
		"the same body": func(req *http.Request) {
			body := &rewound{Reader: strings.NewReader(sharedPayload)}
			req.Body = body
			req.GetBody = func() (io.ReadCloser, error) {
				_, err := body.Seek(0, io.SeekStart)
				return body, err
			}
		},
		"the same reader": func(req *http.Request) {
			r := bytes.NewReader([]byte(sharedPayload))
			req.Body = io.NopCloser(r)
			req.GetBody = func() (io.ReadCloser, error) {
				_, err := r.Seek(0, io.SeekStart)
				return io.NopCloser(r), err
			}
		},
		"a copy": func(req *http.Request) {
			req.GetBody = func() (io.ReadCloser, error) {
				return &rewound{Reader: strings.NewReader(sharedPayload)}, nil
			}
			req.Body, _ = req.GetBody()
		},
	}
}

type rewound struct{ *strings.Reader }

func (rewound) Close() error { return nil }

// A roundTrip is a base.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func sharedAnswer(req *http.Request, status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: req,
	}
}

// TestHedgeOfASharedBody asks for hedges while the primary has sent half of its body, and when it has sent all of it. A
// hedge that could only be had by taking the primary's body away is refused; the primary goes on where it was.
func TestHedgeOfASharedBody(t *testing.T) {
	t.Parallel()
	for name, set := range sharedBodies() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, late := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					asked, made, sent := make(chan struct{}), make(chan struct{}), make(chan struct{})
					primary := make(chan string, 1)
					base := roundTrip(func(req *http.Request) (*http.Response, error) {
						a, _ := hedgerow.AttemptFromContext(req.Context())
						half := make([]byte, len(sharedPayload)/2)
						if _, err := io.ReadFull(req.Body, half); err != nil {
							return nil, err
						}
						if a.Kind == hedgerow.AttemptHedge {
							close(made)
							<-asked
							<-sent
							rest, err := io.ReadAll(req.Body)
							return sharedAnswer(req, http.StatusOK, string(half)+string(rest)), errors.Join(err, req.Body.Close())
						}
						select { // of the hedge, whichever comes
						case <-asked:
						case <-made:
							close(asked)
						}
						rest := make([]byte, len(sharedPayload)-len(half))
						_, err := io.ReadFull(req.Body, rest)
						if late { // net/http looks for the end when it has all it wants
							<-made
							_, err = req.Body.Read(make([]byte, 1))
							if _, again := req.GetBody(); (again == nil) != (name == "a copy") { // as for a connection that was lost
								err = errors.New("the hedge's body was rewound, or a copy refused")
							}
						}
						_ = req.Body.Close()
						if err != nil && err != io.EOF { //nolint:errorlint // io.Reader's contract is about this very value
							primary <- err.Error()
						} else {
							primary <- string(half) + string(rest)
						}
						close(sent)
						<-req.Context().Done()
						return nil, req.Context().Err()
					})
					tr, err := hedgerow.New(hedgerow.Config{
						Base: base, Hedge: hedgerow.HedgeConfig{Delay: time.Millisecond, MaxHedges: 1},
						Hooks: hedgerow.Hooks{HedgeSkipped: func(_ context.Context, e hedgerow.SkipEvent) {
							if e.Reason == hedgerow.SkipBody {
								close(asked)
							}
						}},
					})
					require.NoError(t, err)
					req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://shared.test/", nil)
					require.NoError(t, err)
					req.ContentLength = int64(len(sharedPayload))
					req.Header.Set("Idempotency-Key", "k1")
					set(req)
					resp, err := tr.RoundTrip(req)
					require.NoError(t, err)
					require.Equal(t, sharedPayload, contractRead(t, resp))
					require.Equal(t, sharedPayload, contractTimeout(t, primary, "the primary"))
					require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
				})
			}
		})
	}
}

// TestRepeatOfASharedBody has a server refuse a call while its body is still being sent. The pool's next attempt sends it
// whole, and the first one goes on with its own or with nothing.
func TestRepeatOfASharedBody(t *testing.T) {
	t.Parallel()
	for name, set := range sharedBodies() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, err := hedgerow.NewPool(hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "a"}, {ID: "b"}}})
			require.NoError(t, err)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://shared.test/", nil)
			require.NoError(t, err)
			req.ContentLength = int64(len(sharedPayload))
			set(req)
			resp, err := pool.Wrap(refusedEarly()).RoundTrip(req)
			require.NoError(t, err)
			require.Equal(t, sharedPayload, contractRead(t, resp))
			require.Equal(t, http.StatusOK, resp.StatusCode)
		})
	}
}

// refusedEarly is a base that refuses the first attempt when it has read half of the body, and goes on reading when the next
// one has come.
func refusedEarly() http.RoundTripper {
	next, rest := make(chan struct{}), make(chan error, 1)
	return roundTrip(func(req *http.Request) (*http.Response, error) {
		a, _ := hedgerow.AttemptFromContext(req.Context())
		if a.Number > 0 {
			close(next)
			if err := <-rest; err != nil {
				return nil, err
			}
			body, err := io.ReadAll(req.Body)
			return sharedAnswer(req, http.StatusOK, string(body)), errors.Join(err, req.Body.Close())
		}
		if _, err := io.ReadFull(req.Body, make([]byte, len(sharedPayload)/2)); err != nil {
			return nil, err
		}
		go func() {
			<-next
			if more, err := io.ReadAll(req.Body); err == nil && string(more) != sharedPayload[len(sharedPayload)/2:] {
				rest <- errors.New("the refused attempt went on with " + string(more))
			}
			_ = req.Body.Close()
			close(rest)
		}()
		return sharedAnswer(req, http.StatusTooManyRequests, ""), nil
	})
}

// TestRepeatOfASharedBodyBeneathATransport is the same with a Transport above the pool, which has wrapped the body: for a call
// that is hedged, and for one that is not.
func TestRepeatOfASharedBodyBeneathATransport(t *testing.T) {
	t.Parallel()
	for name, set := range sharedBodies() {
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			if name == "the same reader" && method == http.MethodPost {
				continue // it is sent as it is
			}
			t.Run(method+" "+name, func(t *testing.T) {
				t.Parallel()
				pool, err := hedgerow.NewPool(hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "a"}, {ID: "b"}}})
				require.NoError(t, err)
				tr, err := hedgerow.New(hedgerow.Config{
					Base: pool.Wrap(refusedEarly()), Hedge: hedgerow.HedgeConfig{Delay: time.Hour},
				})
				require.NoError(t, err)
				req, err := http.NewRequestWithContext(t.Context(), method, "http://shared.test/", nil)
				require.NoError(t, err)
				req.ContentLength = int64(len(sharedPayload))
				set(req)
				resp, err := tr.RoundTrip(req)
				require.NoError(t, err)
				require.Equal(t, sharedPayload, contractRead(t, resp))
			})
		}
	}
}

// TestRepeatBesideAnUnplacedHedge has a hedge that is due when the primary has sent its body, and for which the pool has no
// resource. It does not keep the pool from repeating the primary's refusal.
func TestRepeatBesideAnUnplacedHedge(t *testing.T) {
	t.Parallel()
	for name, set := range sharedBodies() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				pool, err := hedgerow.NewPool(hedgerow.PoolConfig{
					Resources: []hedgerow.Resource{{ID: "a"}, {ID: "b"}}, Strategy: hedgerow.PrimaryBackup,
				})
				require.NoError(t, err)
				require.NoError(t, pool.Disable("b"))
				tr, err := hedgerow.New(hedgerow.Config{
					Base: pool.Wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
						body, err := io.ReadAll(req.Body)
						if err := errors.Join(err, req.Body.Close()); err != nil {
							return nil, err
						}
						if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Resource == "b" {
							return sharedAnswer(req, http.StatusOK, string(body)), nil
						}
						time.Sleep(20 * time.Millisecond)
						return sharedAnswer(req, http.StatusTooManyRequests, ""), pool.Enable("b")
					})),
					Hedge: hedgerow.HedgeConfig{Delay: 15 * time.Millisecond, MaxHedges: 1},
				})
				require.NoError(t, err)
				req := putWith(t, nil, nil)
				set(req)
				resp, err := tr.RoundTrip(req)
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, resp.StatusCode)
				require.Equal(t, sharedPayload, contractRead(t, resp))
				require.EqualValues(t, 1, tr.Stats().Total.Skipped[hedgerow.SkipNoResource])
			})
		})
	}
}

// TestRewindIsRemembered makes calls whose hedges are due during the upload. The first one shows that GetBody rewinds; from then
// on none is made before the upload is over.
func TestRewindIsRemembered(t *testing.T) {
	t.Parallel()
	for name, set := range sharedBodies() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const calls = 3
				var sent atomic.Bool
				copies := 0
				tr, err := hedgerow.New(hedgerow.Config{
					Base: roundTrip(func(req *http.Request) (*http.Response, error) {
						if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Kind == hedgerow.AttemptHedge {
							<-req.Context().Done()
							return nil, req.Context().Err()
						}
						body := make([]byte, len(sharedPayload))
						_, err := io.ReadFull(req.Body, body[:5])
						time.Sleep(35 * time.Millisecond) // three hedges are due
						_, readErr := io.ReadFull(req.Body, body[5:])
						sent.Store(true)
						time.Sleep(10 * time.Millisecond) // and one more
						return sharedAnswer(req, http.StatusOK, string(body)), errors.Join(err, readErr, req.Body.Close())
					}),
					Hedge: hedgerow.HedgeConfig{Delay: 10 * time.Millisecond, MaxHedges: 1, BudgetPercent: 100},
				})
				require.NoError(t, err)
				for range calls {
					sent.Store(false)
					req := putWith(t, nil, nil)
					set(req)
					get := req.GetBody
					req.GetBody = func() (io.ReadCloser, error) {
						if !sent.Load() {
							copies++
						}
						return get()
					}
					resp, err := tr.RoundTrip(req)
					require.NoError(t, err)
					require.Equal(t, sharedPayload, contractRead(t, resp))
				}
				if name == "a copy" {
					require.Equal(t, calls, copies)
				} else {
					require.Equal(t, 1, copies)
				}
				require.EqualValues(t, calls, tr.Stats().Total.Hedges)
			})
		})
	}
}

// TestRepeatAfterABlockedRead refuses a call whose body blocks in Read: that does not keep the next attempt from its own.
func TestRepeatAfterABlockedRead(t *testing.T) {
	t.Parallel()
	body, w := io.Pipe()
	reading := make(chan struct{})
	base := roundTrip(func(req *http.Request) (*http.Response, error) {
		if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Number > 0 {
			content, err := io.ReadAll(req.Body)
			return sharedAnswer(req, http.StatusOK, string(content)), err
		}
		go func() {
			_, _ = req.Body.Read(make([]byte, 1))
			close(reading)
			_, _ = io.ReadAll(req.Body)
		}()
		<-reading
		return sharedAnswer(req, http.StatusTooManyRequests, ""), nil
	})
	pool, err := hedgerow.NewPool(hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "a"}, {ID: "b"}}})
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://shared.test/", body)
	require.NoError(t, err)
	req.ContentLength = int64(len(sharedPayload))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(sharedPayload)), nil }
	go func() { _, _ = io.WriteString(w, "t") }() // and no more
	resp, err := pool.Wrap(base).RoundTrip(req)
	require.NoError(t, err)
	require.Equal(t, sharedPayload, contractRead(t, resp))
	require.NoError(t, w.Close())
}

// TestLoserReadsLate has a base that reads the body of a loser when RoundTrip has returned, as HTTP/2 may for a moment: the
// bytes are the caller's again by then.
func TestLoserReadsLate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		loser hedgerow.AttemptKind
		plain bool // over an http.Transport
	}{
		{"primary", hedgerow.AttemptPrimary, false},
		{"hedge", hedgerow.AttemptHedge, false},
		{"primary over an http.Transport", hedgerow.AttemptPrimary, true},
		{"hedge over an http.Transport", hedgerow.AttemptHedge, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			hedged, returned, read := make(chan struct{}), make(chan struct{}), make(chan int64, 1)
			service := roundTrip(func(req *http.Request) (*http.Response, error) {
				a, _ := hedgerow.AttemptFromContext(req.Context())
				if a.Kind == hedgerow.AttemptHedge {
					close(hedged)
				}
				if a.Kind == tt.loser {
					go func() {
						<-returned
						n, _ := io.Copy(io.Discard, req.Body)
						read <- n
					}()
					<-req.Context().Done()
					return nil, req.Context().Err()
				}
				<-hedged
				return sharedAnswer(req, http.StatusOK, ""), nil
			})
			plain := &http.Transport{}
			plain.RegisterProtocol("http", service)
			tr, err := hedgerow.New(hedgerow.Config{
				Base:  map[bool]http.RoundTripper{false: service, true: plain}[tt.plain],
				Hedge: hedgerow.HedgeConfig{Delay: time.Millisecond, MaxHedges: 1},
			})
			require.NoError(t, err)
			ctx := hedgerow.WithCall(t.Context(), hedgerow.Call{Idempotent: true})
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://shared.test/", strings.NewReader(sharedPayload))
			require.NoError(t, err)
			resp, err := tr.RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			close(returned)
			require.Zero(t, contractTimeout(t, read, "the loser"))
		})
	}
}

// TestRepeatedAttemptReadsLate is the same with an attempt that a server has refused early, and that a pool has made up for.
func TestRepeatedAttemptReadsLate(t *testing.T) {
	t.Parallel()
	for name, above := range map[string]func(http.RoundTripper) http.RoundTripper{
		"pool": func(rt http.RoundTripper) http.RoundTripper { return rt },
		"pools": func(rt http.RoundTripper) http.RoundTripper {
			return pspecPool(t, hedgerow.PoolConfig{Hosts: []string{"http://shared.test"}, Resources: []hedgerow.Resource{{ID: "o"}}}).Wrap(rt)
		},
		"transport": func(rt http.RoundTripper) http.RoundTripper {
			return contractNew(t, hedgerow.Config{Base: rt, Hedge: hedgerow.HedgeConfig{Delay: time.Hour}})
		},
	} {
		for answer, refuse := range map[string]func(*http.Request) (*http.Response, error){
			"refusal": func(req *http.Request) (*http.Response, error) {
				return sharedAnswer(req, http.StatusServiceUnavailable, "x"), nil
			},
			"error": func(*http.Request) (*http.Response, error) { return nil, errContract },
		} {
			t.Run(name+", "+answer, func(t *testing.T) {
				t.Parallel()
				returned, read := make(chan struct{}), make(chan int64, 1)
				p := pspecPool(t, hedgerow.PoolConfig{
					Hosts: []string{"http://shared.test"}, Resources: []hedgerow.Resource{{ID: "a"}, {ID: "b"}}, Strategy: hedgerow.PrimaryBackup,
				})
				rt := above(p.Wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
					if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Resource == "b" {
						return sharedAnswer(req, http.StatusOK, ""), nil
					}
					go func() {
						<-returned
						n, _ := io.Copy(io.Discard, req.Body)
						read <- n
					}()
					return refuse(req)
				})))
				ctx := hedgerow.WithCall(t.Context(), hedgerow.Call{Idempotent: true})
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://shared.test/", strings.NewReader(sharedPayload))
				require.NoError(t, err)
				resp, err := rt.RoundTrip(req)
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, resp.StatusCode)
				require.NoError(t, resp.Body.Close())
				close(returned)
				require.Zero(t, contractTimeout(t, read, "the first attempt"))
			})
		}
	}
}

// TestAnsweredLoserReadsLate is the same with a loser that has answered early, while its upload goes on.
func TestAnsweredLoserReadsLate(t *testing.T) {
	t.Parallel()
	for _, loser := range []hedgerow.AttemptKind{hedgerow.AttemptPrimary, hedgerow.AttemptHedge} {
		t.Run(loser.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				returned, read := make(chan struct{}), make(chan int64, 1)
				base := roundTrip(func(req *http.Request) (*http.Response, error) {
					if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Kind != loser {
						time.Sleep(20 * time.Millisecond)
						return sharedAnswer(req, http.StatusOK, ""), nil
					}
					go func() {
						<-returned
						n, _ := io.Copy(io.Discard, req.Body)
						read <- n
					}()
					time.Sleep(5 * time.Millisecond)
					return sharedAnswer(req, http.StatusServiceUnavailable, ""), nil
				})
				tr, err := hedgerow.New(hedgerow.Config{
					Base: base, Hedge: hedgerow.HedgeConfig{Delay: time.Millisecond, MaxHedges: 1},
				})
				require.NoError(t, err)
				ctx := hedgerow.WithCall(t.Context(), hedgerow.Call{Idempotent: true})
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://shared.test/", strings.NewReader(sharedPayload))
				require.NoError(t, err)
				resp, err := tr.RoundTrip(req)
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, resp.StatusCode)
				require.NoError(t, resp.Body.Close())
				close(returned)
				require.Zero(t, <-read)
			})
		})
	}
}
