package hedgerow_test

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
	"testing/iotest"
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

// rewindingDelay is long, so that the call does not ask for a hedge once more before it ends.
const rewindingDelay = 100 * time.Millisecond

// A rewinding is a base that has the primary's body rewound by itself, as net/http does for a connection that was lost. Of the
// new copy it reads a half, and the other one when the test or a hedge says so.
type rewinding struct {
	after   time.Duration // until it does so
	goOn    context.CancelFunc
	other   context.Context // ended by goOn
	primary chan string     // what was read of the new copy
}

// RoundTrip implements [http.RoundTripper].
func (b *rewinding) RoundTrip(req *http.Request) (*http.Response, error) {
	if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Kind == hedgerow.AttemptHedge {
		b.goOn()
		time.Sleep(5 * time.Millisecond) // the primary reads on
		body, err := io.ReadAll(req.Body)
		return sharedAnswer(req, http.StatusOK, string(body)), errors.Join(err, req.Body.Close())
	}
	time.Sleep(b.after)
	_ = req.Body.Close()
	body, err := req.GetBody()
	if err != nil {
		b.primary <- ""
		return nil, err
	}
	time.Sleep(time.Millisecond) // not in a Read when a hedge's rewind begins
	got := make([]byte, len(sharedPayload))
	n, err := io.ReadFull(body, got[:len(got)/2])
	if err == nil {
		<-b.other.Done()
		var more int
		more, err = io.ReadFull(body, got[n:])
		n += more
	}
	b.primary <- string(got[:n])
	if err != nil {
		<-req.Context().Done()
	}
	return sharedAnswer(req, http.StatusOK, string(got)), errors.Join(err, body.Close())
}

// testRewinding makes a call over a rewinding that begins after so long, with a body that is shared and with one that is not.
// getting is told the number of each GetBody, which it has to do. It returns when all is over.
func testRewinding(
	t *testing.T, after time.Duration, getting func(b *rewinding, n int64, get func()), check func(t *testing.T, shared bool, primary string, hedges uint64),
) {
	t.Helper()
	for _, name := range []string{"the same body", "a copy"} {
		synctest.Test(t, func(t *testing.T) {
			b := &rewinding{after: after, primary: make(chan string, 1)}
			b.other, b.goOn = context.WithCancel(t.Context())
			tr, err := hedgerow.New(hedgerow.Config{
				Base: b, Hedge: hedgerow.HedgeConfig{Delay: rewindingDelay, MaxHedges: 1},
			})
			require.NoError(t, err)
			req := putWith(t, nil, nil)
			sharedBodies()[name](req)
			rewind := req.GetBody
			var gets, running atomic.Int64
			req.GetBody = func() (body io.ReadCloser, err error) {
				if running.Add(1) > 1 {
					t.Error("two at a time")
				}
				defer running.Add(-1)
				getting(b, gets.Add(1), func() { body, err = rewind() })
				return body, err
			}
			resp, err := tr.RoundTrip(req)
			require.NoError(t, err, name)
			require.Equal(t, sharedPayload, contractRead(t, resp), name)
			check(t, name != "a copy", <-b.primary, tr.Stats().Total.Hedges)
			time.Sleep(time.Second) // the loser is back by then
		})
	}
}

// TestRewindBesideARewind asks for a hedge while the primary's body is being rewound. The hedge's own rewind waits for that:
// beside it, the primary's new copy would go on from the beginning.
func TestRewindBesideARewind(t *testing.T) {
	t.Parallel()
	testRewinding(t, rewindingDelay-5*time.Millisecond, func(b *rewinding, n int64, get func()) {
		time.Sleep(time.Duration(n) * 10 * time.Millisecond)
		get()
		if n == 2 {
			b.goOn()
			time.Sleep(10 * time.Millisecond) // what the primary reads now is not sent
		}
	}, func(t *testing.T, shared bool, primary string, hedges uint64) {
		t.Helper()
		require.Equal(t, sharedPayload, primary)
		if shared {
			require.Zero(t, hedges)
		}
	})
}

// TestRewindDuringALongOne has the primary's body rewound while GetBody takes its time for a hedge, longer than reads are
// paused. It waits for that; if the hedge has the one reader then, there is no other copy.
func TestRewindDuringALongOne(t *testing.T) {
	t.Parallel()
	testRewinding(t, rewindingDelay+5*time.Millisecond, func(_ *rewinding, n int64, get func()) {
		if n == 1 {
			time.Sleep(300 * time.Millisecond)
		}
		get()
	}, func(t *testing.T, shared bool, primary string, hedges uint64) {
		t.Helper()
		if shared {
			require.Empty(t, primary)
			require.EqualValues(t, 1, hedges)
		} else {
			require.Equal(t, sharedPayload, primary)
		}
	})
}

// A closingBody is a shared body of short Reads, during one of which the base closes it.
type closingBody struct {
	contractBody

	reading, closed chan struct{}
}

func (b *closingBody) Read(p []byte) (int, error) {
	n, err := b.contractBody.Read(p[:min(len(p), 4)])
	if b.reads.Load() == 4 { // the first one of those that bring it back to where it was
		close(b.reading)
		<-b.closed
	}
	return n, err
}

// TestCloseDuringARewind has the base close a body that is being brought back to where it was read to.
func TestCloseDuringARewind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &closingBody{reading: make(chan struct{}), closed: make(chan struct{})}
		b.src = strings.NewReader(sharedPayload)
		base := roundTrip(func(req *http.Request) (*http.Response, error) {
			if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Kind == hedgerow.AttemptHedge {
				<-req.Context().Done() // it was granted later
				return nil, req.Context().Err()
			}
			if _, err := io.ReadFull(req.Body, make([]byte, 12)); err != nil {
				return nil, err
			}
			time.Sleep(5 * time.Millisecond) // the hedge is asked for
			ended := make(chan error)
			go func() {
				_, err := req.Body.Read(make([]byte, 12))
				ended <- err
			}()
			<-b.reading
			err := req.Body.Close()
			close(b.closed)
			if <-ended == nil {
				err = errors.New("read on")
			}
			return sharedAnswer(req, http.StatusOK, ""), err
		})
		tr, err := hedgerow.New(hedgerow.Config{
			Base: base, Hedge: hedgerow.HedgeConfig{Delay: time.Millisecond, MaxHedges: 1},
		})
		require.NoError(t, err)
		resp, err := tr.RoundTrip(putWith(t, b, func() (io.ReadCloser, error) {
			b.src = strings.NewReader(sharedPayload)
			return b, nil
		}))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Zero(t, b.late.Load(), "reads after Close")
	})
}

// TestSecondGetBody has a reader rewound during a Read, so that GetBody is called once more. What it does then does not keep the
// reader from being closed.
func TestSecondGetBody(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]func() (io.ReadCloser, error){
		"panics":  func() (io.ReadCloser, error) { panic("the second") },
		"nothing": func() (io.ReadCloser, error) { return nil, nil },
		"a copy":  func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(sharedPayload)), nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newLingeringBody()
				gets := 0
				req := putWith(t, b, func() (io.ReadCloser, error) {
					<-b.second
					if gets++; gets > 1 {
						return second()
					}
					b.src = strings.NewReader(sharedPayload)
					close(b.sought)
					time.Sleep(10 * time.Millisecond)
					return b, nil
				})
				tr, err := hedgerow.New(hedgerow.Config{
					Base: roundTrip(func(req *http.Request) (*http.Response, error) {
						p := make([]byte, 4)
						_, err := io.ReadAll(io.MultiReader(io.LimitReader(req.Body, int64(len(p))), req.Body))
						return sharedAnswer(req, http.StatusOK, ""), errors.Join(err, req.Body.Close())
					}),
					Hedge: hedgerow.HedgeConfig{Delay: time.Millisecond, MaxHedges: 1},
				})
				require.NoError(t, err)
				func() {
					defer func() { _ = recover() }() // unless the primary has ended the call before
					if resp, err := tr.RoundTrip(req); err == nil {
						contractRead(t, resp)
					}
				}()
				time.Sleep(time.Second) // all attempts are back by then
				require.EqualValues(t, 1, b.closes.Load())
			})
		})
	}
}

// TestRewindThenBlocks rewinds a reader that blocks from then on. Only who reads it waits for it.
func TestRewindThenBlocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &contractBody{src: strings.NewReader(sharedPayload)}
		var rewound atomic.Int64
		tr, err := hedgerow.New(hedgerow.Config{
			Base: roundTrip(func(req *http.Request) (*http.Response, error) {
				_, err := io.ReadFull(req.Body, make([]byte, 5))
				time.Sleep(5 * time.Millisecond) // hedges are asked for
				return sharedAnswer(req, http.StatusOK, ""), errors.Join(err, req.Body.Close())
			}),
			Hedge: hedgerow.HedgeConfig{Delay: time.Millisecond, MaxHedges: 1},
		})
		require.NoError(t, err)
		forever, w := io.Pipe()
		resp, err := tr.RoundTrip(putWith(t, b, func() (io.ReadCloser, error) {
			rewound.Add(1)
			b.src = forever
			return b, nil
		}))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Positive(t, rewound.Load())
		require.NoError(t, w.Close())
	})
}

// TestRewindThatCannotBeUndone rewinds a reader for a hedge that then has less to read than the primary has had, or fails: the
// primary's upload ends in an error, which says nothing of the host, and closes the reader.
func TestRewindThatCannotBeUndone(t *testing.T) {
	t.Parallel()
	errBroken := errors.New("broken")
	for name, c := range map[string]struct {
		src  io.Reader
		want error
	}{
		"shorter": {strings.NewReader("abc"), io.ErrUnexpectedEOF},
		"broken":  {iotest.ErrReader(errBroken), errBroken},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := &contractBody{src: strings.NewReader(sharedPayload)}
				tr, err := hedgerow.New(hedgerow.Config{
					Base: roundTrip(func(req *http.Request) (*http.Response, error) {
						_, err := io.ReadFull(req.Body, make([]byte, 5))
						time.Sleep(1500 * time.Microsecond) // the hedge is asked for
						if err == nil {
							_, err = req.Body.Read(make([]byte, 5))
						}
						return nil, errors.Join(err, req.Body.Close())
					}),
					Hedge:   hedgerow.HedgeConfig{Delay: time.Millisecond, MaxHedges: 1},
					Breaker: hedgerow.BreakerConfig{MinSamples: 1},
				})
				require.NoError(t, err)
				_, err = tr.RoundTrip(putWith(t, b, func() (io.ReadCloser, error) {
					b.src = c.src
					return b, nil
				}))
				require.ErrorIs(t, err, c.want)
				require.EqualValues(t, 1, b.closes.Load())
				require.Equal(t, hedgerow.CircuitClosed, tr.Circuit(hedgerow.CircuitHost, hedgerow.EndpointKey{Host: "shared.test"}))
			})
		})
	}
}

// A slowBody is a shared body of short Reads, each of which takes its time. It may be rewound meanwhile.
type slowBody struct {
	rewound

	mu sync.Mutex
}

func (b *slowBody) Read(p []byte) (int, error) {
	time.Sleep(15 * time.Millisecond)
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rewound.Read(p[:min(len(p), 4)])
}

func (b *slowBody) rewind() (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, err := b.Seek(0, io.SeekStart)
	return b, err
}

// TestRewindDuringAReadIsRemembered makes two calls whose primaries are in a Read whenever a hedge is due. The first one loses its
// reader to the hedge; the second one is left alone.
func TestRewindDuringAReadIsRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr, err := hedgerow.New(hedgerow.Config{
			Base: roundTrip(func(req *http.Request) (*http.Response, error) {
				body, err := io.ReadAll(req.Body)
				if err != nil {
					<-req.Context().Done()
				}
				return sharedAnswer(req, http.StatusOK, string(body)), errors.Join(err, req.Body.Close())
			}),
			Hedge: hedgerow.HedgeConfig{Delay: 10 * time.Millisecond, MaxHedges: 1, BudgetPercent: 100},
		})
		require.NoError(t, err)
		for _, rewinds := range []bool{true, false} {
			b := &slowBody{rewound: rewound{strings.NewReader(sharedPayload)}}
			gets := 0
			resp, err := tr.RoundTrip(putWith(t, b, func() (io.ReadCloser, error) {
				gets++
				return b.rewind()
			}))
			require.NoError(t, err)
			require.Equal(t, sharedPayload, contractRead(t, resp))
			require.Equal(t, rewinds, gets > 0)
		}
	})
}
