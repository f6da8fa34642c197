package hedgerow_test

import (
	"context"
	"errors"
	"fmt"
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

const keptText = "wait a while"

// keptRefusal returns a response whose body comes a little later than its headers, and says that it is so long.
func keptRefusal(req *http.Request, status int, length int64) *http.Response {
	resp := sharedAnswer(req, status, "")
	r, w := io.Pipe()
	time.AfterFunc(10*time.Millisecond, func() {
		_, _ = io.WriteString(w, keptText)
		_ = w.Close()
	})
	resp.ContentLength, resp.Body = length, r
	return resp
}

// TestSlowRefusalOutlivesItsWait has a call refused that waits, for a place or before the same resource is tried again, and then
// gets no further attempt, or one that fails. Whatever the refusal says of its length, it is what the caller gets, whole.
func TestSlowRefusalOutlivesItsWait(t *testing.T) {
	t.Parallel()
	type refused struct {
		cfg    hedgerow.PoolConfig
		status int
		after  func(pool *hedgerow.Pool) // the refusal
	}
	disables := func(pool *hedgerow.Pool) { time.AfterFunc(100*time.Millisecond, func() { _ = pool.Disable("a") }) }
	for name, tt := range map[string]refused{
		"in vain":            {hedgerow.PoolConfig{Wait: time.Minute}, http.StatusTooManyRequests, disables},
		"a pause in vain":    {hedgerow.PoolConfig{RetryDelay: time.Second}, http.StatusBadGateway, disables},
		"then an error":      {hedgerow.PoolConfig{Wait: time.Minute}, http.StatusTooManyRequests, nil},
		"a pause, an error":  {hedgerow.PoolConfig{RetryDelay: time.Second, MaxAttempts: 2}, http.StatusBadGateway, nil},
		"no wait, no sooner": {hedgerow.PoolConfig{}, http.StatusTooManyRequests, nil},
	} {
		for _, length := range []int64{-1, 0, int64(len(keptText))} {
			t.Run(fmt.Sprintf("%s, %d", name, length), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					cfg := tt.cfg
					cfg.Resources = []hedgerow.Resource{{ID: "a"}}
					pool, err := hedgerow.NewPool(cfg)
					require.NoError(t, err)
					n := 0
					rt := pool.Wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
						if n++; n > 1 {
							return nil, errors.New("gone")
						}
						if tt.after != nil {
							tt.after(pool)
						}
						return keptRefusal(req, tt.status, length), nil
					}))
					resp, err := rt.RoundTrip(contractGet(t.Context(), t, contractURL))
					require.NoError(t, err)
					require.Equal(t, tt.status, resp.StatusCode)
					require.Equal(t, keptText, contractRead(t, resp))
				})
			})
		}
	}
}

// TestWaitFreesItsConnection has a call refused that waits. The refusal is read meanwhile, whatever it says of its length: another
// call may need its connection, and the resource's place.
func TestWaitFreesItsConnection(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]hedgerow.PoolConfig{
		"for a place": {Wait: 2 * time.Second}, "before the same resource": {RetryDelay: 2 * time.Second, Classifier: func(o hedgerow.Outcome) hedgerow.Verdict {
			if o.Response.StatusCode == http.StatusTooManyRequests {
				return hedgerow.Verdict{Action: hedgerow.ActionRetry}
			}
			return hedgerow.Verdict{}
		}},
	} {
		for _, length := range []int64{-1, 0, int64(len(keptText))} {
			t.Run(fmt.Sprintf("%s, %d", name, length), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					cfg := cfg
					cfg.Resources = []hedgerow.Resource{{ID: "a"}}
					pool, err := hedgerow.NewPool(cfg)
					require.NoError(t, err)
					refusal := &contractBody{src: strings.NewReader(keptText)}
					n := 0
					rt := pool.Wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
						if n++; n > 1 {
							return sharedAnswer(req, http.StatusOK, ""), nil
						}
						resp := sharedAnswer(req, http.StatusTooManyRequests, "")
						resp.Header.Set("Retry-After", "1")
						resp.ContentLength, resp.Body = length, refusal
						return resp, nil
					}))
					ended, req := make(chan error), contractGet(t.Context(), t, contractURL)
					go func() {
						resp, err := rt.RoundTrip(req)
						if err == nil {
							err = resp.Body.Close()
						}
						ended <- err
					}()
					time.Sleep(500 * time.Millisecond)
					require.EqualValues(t, 1, refusal.closes.Load())
					require.NoError(t, <-ended)
				})
			})
		}
	}
}

// TestRefusalAtTheLastMoment has the body of a refusal come when its time is up, and the next attempt fail. Either the refusal is
// whole, or it is none.
func TestRefusalAtTheLastMoment(t *testing.T) {
	t.Parallel()
	kept := 0
	for range 500 {
		synctest.Test(t, func(t *testing.T) {
			pool, err := hedgerow.NewPool(hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "a"}, {ID: "b"}}, MaxAttempts: 2})
			require.NoError(t, err)
			n := 0
			rt := pool.Wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
				if n++; n > 1 {
					return nil, errors.New("gone")
				}
				resp := sharedAnswer(req, http.StatusTooManyRequests, "")
				resp.Body = io.NopCloser(readFunc(func(p []byte) (int, error) {
					time.Sleep(5 * time.Millisecond)
					return copy(p, keptText), io.EOF
				}))
				return resp, nil
			}))
			resp, err := rt.RoundTrip(contractGet(t.Context(), t, contractURL))
			if err == nil {
				kept++
				require.Equal(t, keptText, contractRead(t, resp))
			}
		})
	}
	t.Logf("kept %d times", kept)
}

// TestEndlessRefusal has a refusal that goes on and on, and a wait in vain. The caller reads it as it comes, the part that was read
// ahead first, and its Close ends it.
func TestEndlessRefusal(t *testing.T) {
	t.Parallel()
	for name, every := range map[string]time.Duration{"slow": 100 * time.Millisecond, "fast": time.Microsecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				pool, err := hedgerow.NewPool(hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "a"}}, Wait: time.Minute})
				require.NoError(t, err)
				var sent atomic.Int64
				written := make(chan struct{})
				rt := pool.Wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
					time.AfterFunc(550*time.Millisecond, func() { _ = pool.Disable("a") })
					resp := sharedAnswer(req, http.StatusTooManyRequests, "")
					r, w := io.Pipe()
					go func() {
						defer close(written)
						for {
							if _, err := fmt.Fprintf(w, "%08d", sent.Load()); err != nil {
								return
							}
							sent.Add(1)
							time.Sleep(every)
						}
					}()
					resp.ContentLength, resp.Body = -1, r
					return resp, nil
				}))
				resp, err := rt.RoundTrip(contractGet(t.Context(), t, contractURL))
				require.NoError(t, err)
				const whole = 64 << 10
				ahead := sent.Load()
				require.Positive(t, ahead)
				require.LessOrEqual(t, ahead, int64(whole/8+1<<10)) // and a little; not more was read ahead
				p := make([]byte, 8)
				for k := range ahead + 10 {
					_, err := io.ReadFull(resp.Body, p)
					require.NoError(t, err)
					require.Equal(t, fmt.Sprintf("%08d", k), string(p))
				}
				require.NoError(t, resp.Body.Close())
				_, err = resp.Body.Read(p)
				require.Error(t, err)
				<-written
			})
		})
	}
}

// TestRefusalEndsByItself has a refusal come to its end, and with it its attempt, when the caller has it and does not read yet.
// Trailers, announced or not, come no sooner than the caller reads the end.
func TestRefusalEndsByItself(t *testing.T) {
	t.Parallel()
	for name, trailer := range map[string]http.Header{"not announced": nil, "announced": {"Sum": nil}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				pool, err := hedgerow.NewPool(hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "a"}}, Wait: time.Minute})
				require.NoError(t, err)
				rt := pool.Wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
					time.AfterFunc(100*time.Millisecond, func() { _ = pool.Disable("a") })
					resp := sharedAnswer(req, http.StatusTooManyRequests, "")
					r, w := io.Pipe()
					go func() { // no AfterFunc, which orders memory
						time.Sleep(200 * time.Millisecond)
						_, _ = io.WriteString(w, keptText)
						_ = w.Close()
					}()
					resp.Trailer = trailer.Clone()
					end := late(func() {
						if resp.Trailer == nil {
							resp.Trailer = make(http.Header)
						}
						resp.Trailer.Set("Sum", "42")
					})
					resp.ContentLength, resp.Body = -1, io.NopCloser(io.MultiReader(r, end))
					return resp, nil
				}))
				start := time.Now()
				resp, err := rt.RoundTrip(contractGet(t.Context(), t, contractURL))
				require.NoError(t, err)
				require.Equal(t, 100*time.Millisecond, time.Since(start))
				time.Sleep(time.Second)
				require.Equal(t, trailer, resp.Trailer)
				require.Equal(t, keptText, contractRead(t, resp))
				require.Equal(t, http.Header{"Sum": {"42"}}, resp.Trailer)
			})
		})
	}
}

// TestKeptBodyAfterClose reads a refusal that was kept, when it is closed.
func TestKeptBodyAfterClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // a body that is not read in 5 ms is not kept
		pool, err := hedgerow.NewPool(hedgerow.PoolConfig{Resources: pspecKeys(2), Hosts: []string{"http://api.test"}})
		require.NoError(t, err)
		n := 0
		rt := pool.Wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
			if n++; n > 1 {
				return nil, errors.New("gone")
			}
			return sharedAnswer(req, http.StatusTooManyRequests, keptText), nil
		}))
		resp, err := rt.RoundTrip(contractGet(t.Context(), t, contractURL))
		require.NoError(t, err)
		p := make([]byte, 4)
		_, err = io.ReadFull(resp.Body, p)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		k, err := resp.Body.Read(p)
		require.Zero(t, k)
		require.Error(t, err)
		require.NotErrorIs(t, err, io.EOF)
	})
}

// A stiffBody reads until its context ends. It must not be read and closed at once, so its Close waits for the Read.
type stiffBody struct {
	ctx    context.Context // of the attempt
	turn   chan struct{}   // no mutex, which would stop the clock
	closed chan struct{}
}

func (b *stiffBody) Read([]byte) (int, error) {
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	<-b.ctx.Done()
	return 0, b.ctx.Err()
}

func (b *stiffBody) Close() error {
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	close(b.closed)
	return nil
}

// TestCloseOfAnEndlessRefusal ends a refusal that is being read ahead: by Close, when the caller has it, and before that with the
// call. The context of the attempt ends with it, also where the body does not go by that. Neither waits.
func TestCloseOfAnEndlessRefusal(t *testing.T) {
	t.Parallel()
	for name, early := range map[string]bool{"by the caller": false, "with the call": true} {
		for _, kind := range []string{"soon", "late"} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					pool, err := hedgerow.NewPool(hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "a"}}, Wait: time.Minute})
					require.NoError(t, err)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					hour, end := context.WithTimeout(context.Background(), time.Hour)
					defer end()
					body := &stiffBody{turn: make(chan struct{}, 1), closed: make(chan struct{})}
					rt := pool.Wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
						time.AfterFunc(time.Second, func() {
							if early {
								cancel()
							}
							_ = pool.Disable("a")
						})
						resp := sharedAnswer(req, http.StatusTooManyRequests, "")
						if body.ctx = req.Context(); kind == "late" {
							body.ctx = hour
						}
						resp.ContentLength, resp.Body = -1, body
						return resp, nil
					}))
					start := time.Now()
					resp, err := rt.RoundTrip(contractGet(ctx, t, contractURL))
					if early {
						require.ErrorIs(t, err, context.Canceled)
					} else {
						require.NoError(t, err)
						require.NoError(t, resp.Body.Close())
					}
					require.Equal(t, time.Second, time.Since(start))
					<-body.closed
				})
			})
		}
	}
}

// TestOddRefusals reads refusals ahead whose bodies return nothing many times, or a count that cannot be.
func TestOddRefusals(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		read func(n int, p []byte) (int, error)
		want string
	}{
		"empty for long": {func(n int, p []byte) (int, error) {
			if time.Sleep(time.Millisecond); n < 150 {
				return 0, nil
			}
			return copy(p, keptText), io.EOF
		}, keptText},
		"too much":  {func(_ int, p []byte) (int, error) { return len(p) + 1, nil }, ""},
		"less than": {func(int, []byte) (int, error) { return -1, nil }, ""},
		"panics":    {func(int, []byte) (int, error) { panic("read") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				pool, err := hedgerow.NewPool(hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "a"}}, Wait: time.Minute})
				require.NoError(t, err)
				rt := pool.Wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
					time.AfterFunc(time.Second, func() { _ = pool.Disable("a") })
					resp := sharedAnswer(req, http.StatusTooManyRequests, "")
					reads := 0
					resp.ContentLength, resp.Body = -1, io.NopCloser(readFunc(func(p []byte) (int, error) {
						reads++
						return tt.read(reads, p)
					}))
					return resp, nil
				}))
				resp, err := rt.RoundTrip(contractGet(t.Context(), t, contractURL))
				require.NoError(t, err)
				got, err := io.ReadAll(resp.Body)
				require.Equal(t, tt.want, string(got))
				require.Equal(t, tt.want == "", err != nil)
				require.NoError(t, resp.Body.Close())
			})
		})
	}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }
