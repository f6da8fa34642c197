package hedgerow_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// inMemoryBody returns a body in memory.
func inMemoryBody() io.ReadCloser { return io.NopCloser(strings.NewReader(sharedPayload)) }

// TestGetBodyOfACancelledCall has the base ask for another copy when the caller has given up, or while another GetBody takes its
// time. The error is that of the caller's context.
func TestGetBodyOfACancelledCall(t *testing.T) {
	t.Parallel()
	type cancelled struct{ pooled, slow bool }
	for name, tt := range map[string]cancelled{
		"alone": {}, "in a pool": {pooled: true}, "beside a slow GetBody": {slow: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 20 { // chance has no say in it
				synctest.Test(t, func(t *testing.T) {
					base := roundTrip(func(req *http.Request) (*http.Response, error) {
						if tt.slow {
							time.Sleep(20 * time.Millisecond)
						} else {
							<-req.Context().Done()
						}
						if err := req.Body.Close(); err != nil {
							return nil, err
						}
						body, err := req.GetBody()
						if err != nil {
							return nil, err
						}
						<-req.Context().Done()
						return nil, errors.Join(context.Cause(req.Context()), body.Close())
					})
					var rt http.RoundTripper
					if tt.pooled {
						rt = pspecPool(t, hedgerow.PoolConfig{Hosts: []string{"http://shared.test"}, Resources: pspecKeys(1)}).Wrap(base)
					} else {
						rt = contractNew(t, hedgerow.Config{Base: base, Hedge: hedgerow.HedgeConfig{Delay: 10 * time.Millisecond, MaxHedges: 1}})
					}
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(50*time.Millisecond, cancel)
					delay := time.Duration(0)
					if tt.slow {
						delay = 100 * time.Millisecond
					}
					_, err := rt.RoundTrip(putWith(t, &contractBody{src: strings.NewReader(sharedPayload)}, func() (io.ReadCloser, error) {
						time.Sleep(delay)
						return inMemoryBody(), nil
					}).WithContext(ctx))
					require.ErrorIs(t, err, context.Canceled)
					time.Sleep(time.Second)
				})
			}
		})
	}
}

// TestMemoryThenPipe has copies of a body that may block although the body is in memory. A hedge that wins does not wait for one.
func TestMemoryThenPipe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pool := pspecPool(t, hedgerow.PoolConfig{
			Hosts: []string{"http://shared.test"}, Resources: pspecKeys(3), Strategy: hedgerow.PrimaryBackup,
		})
		tr := contractNew(t, hedgerow.Config{
			Base: pool.Wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
				switch a, _ := hedgerow.AttemptFromContext(req.Context()); a.Resource {
				case "A":
					return sharedAnswer(req, http.StatusTooManyRequests, ""), req.Body.Close()
				case "B":
					_, err := upload(req) // HTTP/1.1 sees the end of its body, and not that of its context
					return nil, err
				}
				return sharedAnswer(req, http.StatusOK, ""), req.Body.Close()
			})),
			Hedge: hedgerow.HedgeConfig{Delay: 15 * time.Millisecond, MaxHedges: 1},
		})
		start := time.Now()
		resp, err := tr.RoundTrip(putWith(t, inMemoryBody(), func() (io.ReadCloser, error) {
			r, _ := io.Pipe()
			return r, nil
		}))
		require.NoError(t, err)
		contractRead(t, resp)
		require.Less(t, time.Since(start), time.Second)
	})
}

// TestLateReadsOfMemory has a base read a body in memory when RoundTrip has returned, on each way on which an attempt may be left
// behind.
func TestLateReadsOfMemory(t *testing.T) {
	t.Parallel()
	type late struct {
		body  func() io.ReadCloser // the first; the copies are in memory
		reads func(hedgerow.Attempt) bool
		other func(hedgerow.Attempt) int // status of those that do not
		again bool                       // it asks for a copy first
		panic bool                       // Accept does
	}
	hedge := func(a hedgerow.Attempt) bool { return a.Kind == hedgerow.AttemptHedge }
	for name, tt := range map[string]late{
		"a copy of a body that is not": {
			body: func() io.ReadCloser { return &contractBody{src: strings.NewReader(sharedPayload)} }, reads: hedge, again: true,
			other: func(hedgerow.Attempt) int { return http.StatusOK },
		},
		"a panic of Accept": {
			body: inMemoryBody, reads: hedge, panic: true, other: func(hedgerow.Attempt) int { return http.StatusOK },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				returned, read := make(chan struct{}), make(chan int64, 1)
				base := roundTrip(func(req *http.Request) (*http.Response, error) {
					a, _ := hedgerow.AttemptFromContext(req.Context())
					if !tt.reads(a) {
						time.Sleep(20 * time.Millisecond)
						_, err := upload(req)
						return sharedAnswer(req, tt.other(a), ""), err
					}
					body := req.Body
					if tt.again {
						again, err := req.GetBody()
						if err := errors.Join(err, body.Close()); err != nil {
							return nil, err
						}
						body = again
					}
					go func() {
						<-returned
						n, _ := io.Copy(io.Discard, body)
						read <- n
					}()
					return sharedAnswer(req, http.StatusTooManyRequests, ""), nil
				})
				tr := contractNew(t, hedgerow.Config{
					Base: base,
					Hedge: hedgerow.HedgeConfig{
						Delay: 10 * time.Millisecond, MaxHedges: 1, Accept: func(resp *http.Response) bool {
							if tt.panic && resp.StatusCode == http.StatusOK {
								panic("boom")
							}
							return resp.StatusCode == http.StatusOK
						},
					},
				})
				func() {
					defer func() { require.Equal(t, tt.panic, recover() != nil) }()
					resp, err := tr.RoundTrip(putWith(t, tt.body(), func() (io.ReadCloser, error) { return inMemoryBody(), nil }))
					require.NoError(t, err)
					contractRead(t, resp)
				}()
				close(returned)
				require.Zero(t, <-read)
				time.Sleep(time.Second) // the losers are back by then
			})
		})
	}
}

// TestUnsentHedgePanicsInClose has GetBody take so long that its hedge is not sent, and make a body that panics when it is closed
// for that: not in a goroutine where this would end the process.
func TestUnsentHedgePanicsInClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := contractNew(t, hedgerow.Config{
			Base: roundTrip(func(req *http.Request) (*http.Response, error) {
				body, err := upload(req)
				time.Sleep(20 * time.Millisecond)
				return sharedAnswer(req, http.StatusOK, body), err
			}),
			Hedge: hedgerow.HedgeConfig{Delay: 10 * time.Millisecond, MaxHedges: 1},
		})
		resp, err := tr.RoundTrip(putWith(t, inMemoryBody(), func() (io.ReadCloser, error) {
			time.Sleep(50 * time.Millisecond)
			return &panickingBody{make(chan struct{})}, nil
		}))
		require.NoError(t, err)
		require.Equal(t, sharedPayload, contractRead(t, resp))
	})
}

// TestBodyThatEndsWithClose has a connection lost, for which the base closes a body whose Read then ends as if there were no more.
// That excuses nothing.
func TestBodyThatEndsWithClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reset := errors.New("connection reset")
		tr := contractNew(t, hedgerow.Config{
			Base: roundTrip(func(req *http.Request) (*http.Response, error) {
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					_, _ = io.ReadAll(req.Body)
				}()
				time.Sleep(time.Millisecond)
				err := req.Body.Close()
				<-ended
				return nil, errors.Join(reset, err)
			}),
			Breaker: hedgerow.BreakerConfig{MinSamples: 1}, Hedge: hedgerow.HedgeConfig{Delay: time.Hour},
		})
		r, w := io.Pipe()
		_, err := tr.RoundTrip(putWith(t, pipeEnd{r, w}, func() (io.ReadCloser, error) { return inMemoryBody(), nil }))
		require.ErrorIs(t, err, reset)
		require.Equal(t, hedgerow.CircuitOpen, tr.Circuit(hedgerow.CircuitHost, hedgerow.EndpointKey{Host: "shared.test"}))
	})
}

// A pipeEnd blocks until it is closed, and has ended then.
type pipeEnd struct {
	io.Reader

	w *io.PipeWriter
}

func (b pipeEnd) Close() error { return b.w.Close() }

// TestBaseHashesACopy has a base that reads a copy of the body before it sends the request as it is, as a signer may.
func TestBaseHashesACopy(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]func() io.ReadCloser{
		"in memory": inMemoryBody, "not in memory": func() io.ReadCloser { return &contractBody{src: strings.NewReader(sharedPayload)} },
	} {
		base := roundTrip(func(req *http.Request) (*http.Response, error) {
			again, err := req.GetBody()
			if err != nil {
				return nil, err
			}
			hashed, err := io.ReadAll(again)
			sent, sendErr := upload(req)
			require.Equal(t, sharedPayload, string(hashed), name)
			return sharedAnswer(req, http.StatusOK, sent), errors.Join(err, again.Close(), sendErr)
		})
		pool := pspecPool(t, hedgerow.PoolConfig{Hosts: []string{"http://shared.test"}, Resources: pspecKeys(1)})
		for _, below := range []http.RoundTripper{base, pool.Wrap(base)} {
			tr := contractNew(t, hedgerow.Config{Base: below, Hedge: hedgerow.HedgeConfig{Delay: time.Hour}})
			resp, err := tr.RoundTrip(putWith(t, body(), func() (io.ReadCloser, error) { return body(), nil }))
			require.NoError(t, err, name)
			require.Equal(t, sharedPayload, contractRead(t, resp), name)
		}
	}
}

// TestErrorOfALosersUpload has a base that ignores contexts, and returns how the upload has failed. What has cut it off is a
// cancellation, whatever the body says of its Close.
func TestErrorOfALosersUpload(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]func() io.ReadCloser{
		"in memory": inMemoryBody,
		"of a pipe": func() io.ReadCloser { r, _ := io.Pipe(); return r }, // nothing is written to it
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var lost []error
				tr := contractNew(t, hedgerow.Config{
					Base: roundTrip(func(req *http.Request) (*http.Response, error) {
						if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Kind == hedgerow.AttemptHedge {
							return sharedAnswer(req, http.StatusOK, ""), req.Body.Close()
						}
						for {
							if _, err := req.Body.Read(make([]byte, 1)); err != nil {
								return nil, errors.Join(fmt.Errorf("upload: %w", err), req.Body.Close())
							}
							time.Sleep(20 * time.Millisecond)
						}
					}),
					Hedge: hedgerow.HedgeConfig{Delay: 30 * time.Millisecond, MaxHedges: 1},
					Hooks: hedgerow.Hooks{AttemptDone: func(_ context.Context, e hedgerow.AttemptEvent) {
						if e.Superseded {
							lost = append(lost, e.Err)
						}
					}},
				})
				resp, err := tr.RoundTrip(putWith(t, body(), func() (io.ReadCloser, error) { return body(), nil }))
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				synctest.Wait()
				require.Len(t, lost, 1)
				require.ErrorIs(t, lost[0], context.Canceled)
				require.ErrorIs(t, lost[0], hedgerow.ErrSuperseded)
			})
		})
	}
}
