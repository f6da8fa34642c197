package hedgerow_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/memhttp"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// hostPut returns a PUT that may be sent twice, with a body of that length that is in memory if body can be.
func hostPut(ctx context.Context, t *testing.T, target string, body io.Reader, length int) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, target, body)
	require.NoError(t, err)
	req.Header.Set("Idempotency-Key", "k1")
	req.ContentLength = int64(length)
	return req
}

func hostOK(body io.ReadCloser) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, ContentLength: -1, Header: http.Header{}, Body: body}, nil
}

// Once RoundTrip has returned, a request body in memory is the caller's again: an attempt that is still being sent reads
// no more of it, neither of what it has nor of a copy that it makes by GetBody.
func TestHostileLoserLeavesTheCallersBytesAlone(t *testing.T) {
	t.Parallel()
	type loser struct {
		number int
		ends   string // the call
		detach bool
	}
	cases := make(map[string]loser)
	for _, c := range []loser{
		{1, "won", false},
		{1, "won", true},
		{1, "given up", false},
		{1, "given up", true},
		{1, "panics", false},
		{1, "panics", true},
		{0, "won", true},
		{0, "given up", true},
	} {
		cases[fmt.Sprintf("attempt %d, %s, detach=%t", c.number, c.ends, c.detach)] = c
	}
	for _, busy := range []bool{false, true} { // it reads while RoundTrip returns, or only later
		t.Run(fmt.Sprintf("busy=%t", busy), func(t *testing.T) {
			t.Parallel()
			contractBubbles(t, cases, func(t *testing.T, c loser) {
				t.Helper()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				reading, returned, sent := make(chan struct{}), make(chan struct{}), make(chan string, 1)
				base := roundTripper(func(req *http.Request) (*http.Response, error) {
					a, _ := hedgerow.AttemptFromContext(req.Context())
					if a.Number != c.number {
						select {
						case <-reading:
						case <-req.Context().Done():
						}
						switch c.ends {
						case "panics":
							panic("boom")
						case "given up":
							cancel()
							<-req.Context().Done()
							return nil, context.Cause(req.Context())
						}
						return hostOK(http.NoBody)
					}
					time.Sleep(2 * time.Second) // by then both are in flight; it never looks at its context
					var got bytes.Buffer
					body := iotest.OneByteReader(req.Body)
					_, _ = io.CopyN(&got, body, 1)
					close(reading)
					if !busy {
						<-returned
					}
					_, _ = io.Copy(&got, body)
					<-returned
					if again, err := req.GetBody(); err == nil {
						_, _ = io.Copy(&got, again)
						_ = again.Close()
					}
					sent <- got.String()
					return nil, errCrace
				})
				tr := craceNew(t, hedgerow.Config{Base: base, Detach: c.detach})
				theirs := []byte(strings.Repeat("a", 16<<10))
				_, panicked, _ := craceGuard(tr, hostPut(ctx, t, craceURL, bytes.NewReader(theirs), len(theirs)))
				require.Equal(t, c.ends == "panics", panicked != nil)
				for i := range theirs {
					theirs[i] = 'X'
				}
				close(returned)
				require.Empty(t, strings.Trim(<-sent, "a"))
			})
		})
	}
}

// A hostBlocked is a body that blocks in Read until it is closed.
type hostBlocked struct {
	closed chan struct{}
	once   sync.Once
	panics any // of Close; nil: it is well-behaved
}

func newHostBlocked(panics any) *hostBlocked {
	return &hostBlocked{closed: make(chan struct{}), panics: panics}
}

func (b *hostBlocked) Read([]byte) (int, error) { <-b.closed; return 0, io.ErrClosedPipe }

func (b *hostBlocked) Close() error {
	b.once.Do(func() { close(b.closed) })
	if b.panics != nil {
		panic(b.panics)
	}
	return nil
}

func (b *hostBlocked) requireClosed(t *testing.T) {
	t.Helper()
	select {
	case <-b.closed:
	default:
		require.Fail(t, "not closed")
	}
}

// A panic in Close of a body that the library closes by itself, in a goroutine of its own, would end the process.
func TestHostileCloseOfALosersResponse(t *testing.T) {
	t.Parallel()
	type loser struct {
		status         int
		primary, hedge time.Duration // until they answer
		loses          int
		blocked        bool // in the read of the first byte
		detach         bool
	}
	contractBubbles(t, map[string]loser{
		"hedge":                         {200, 1500 * time.Millisecond, time.Second, 1, false, false},
		"primary":                       {200, 3 * time.Second, time.Second, 0, false, false},
		"primary, detached":             {200, 3 * time.Second, time.Second, 0, false, true},
		"primary, refused":              {500, 1500 * time.Millisecond, time.Second, 0, false, false},
		"hedge, refused":                {500, 3 * time.Second, time.Second, 1, false, false},
		"hedge, in its first byte":      {200, 2 * time.Second, 0, 1, true, false},
		"primary, in its first byte":    {200, 0, time.Second, 0, true, true},
		"primary, refused and detached": {500, 1500 * time.Millisecond, time.Second, 0, false, true},
	}, func(t *testing.T, c loser) {
		t.Helper()
		closes := 0
		base := scripted.Func(func(_ int, req *http.Request) scripted.Step {
			a, _ := hedgerow.AttemptFromContext(req.Context())
			step := scripted.Step{After: []time.Duration{c.primary, c.hedge}[a.Number], Body: "won", IgnoreContext: true}
			if a.Number == c.loses {
				var content io.Reader = strings.NewReader("lost")
				if c.blocked {
					content = newHostBlocked(nil)
				}
				step.Status = c.status
				step.BodyReader = &contractClosing{Reader: content, close: func() error {
					closes++
					if b, ok := content.(io.Closer); ok {
						_ = b.Close()
					}
					panic("close of a response")
				}}
			}
			return step
		})
		signal := hedgerow.SignalHeaders
		if c.blocked {
			signal = hedgerow.SignalFirstByte
		}
		tr := craceNew(t, hedgerow.Config{Base: base, Detach: c.detach, Hedge: hedgerow.HedgeConfig{Signal: signal}})
		require.Equal(t, "won", craceCall(tr, base.NewRequest(t, http.MethodGet, craceURL, "")).Body)
		contractSettle(t, base)
		require.Equal(t, 1, closes)
	})
}

func TestHostileCloseOfALosersRequest(t *testing.T) {
	t.Parallel()
	for _, loses := range []int{0, 1} {
		t.Run(fmt.Sprint("attempt ", loses), func(t *testing.T) {
			t.Parallel()
			craceModes(t, func(t *testing.T, detach bool) {
				t.Helper()
				bodies := [2]*hostBlocked{newHostBlocked("close of a request"), newHostBlocked("close of a request")}
				base := roundTripper(func(req *http.Request) (*http.Response, error) {
					if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Number != loses {
						time.Sleep(2 * time.Second)
						return hostOK(http.NoBody)
					}
					_, err := req.Body.Read(make([]byte, 1))
					return nil, err
				})
				tr := craceNew(t, hedgerow.Config{Base: base, Detach: detach})
				req := hostPut(t.Context(), t, craceURL, bodies[0], 1)
				req.GetBody = func() (io.ReadCloser, error) { return bodies[1], nil }
				require.Equal(t, http.StatusOK, craceCall(tr, req).Status)
				synctest.Wait()
				bodies[loses].requireClosed(t)
			})
		})
	}
}

// net/http sends a request again, with a body of GetBody, when a connection that it has reused breaks. If that body
// blocks, the attempt ends by closing it, like with the first.
func TestHostileRewoundBodyThatBlocks(t *testing.T) {
	t.Parallel()
	for _, detach := range []bool{false, true} {
		t.Run(fmt.Sprintf("detach=%t", detach), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var broken sync.Once
				srv := memhttp.NewServer(t, memhttp.HTTP1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					_, err := io.Copy(io.Discard, r.Body)
					if r.Method == http.MethodPut && err == nil {
						broken.Do(func() { panic(http.ErrAbortHandler) })
					}
				}))
				tr := craceNew(t, hedgerow.Config{Base: srv.Transport(), Detach: detach})
				require.NoError(t, craceCall(tr, contractGet(t.Context(), t, srv.URL()+"/")).Err) // a connection to reuse
				content := func() io.ReadCloser { return &contractBody{src: strings.NewReader("body")} }
				rewound := newHostBlocked(nil)
				defer func() { _ = rewound.Close() }()
				var copies atomic.Int64
				req := hostPut(t.Context(), t, srv.URL()+"/", content(), 4)
				req.GetBody = func() (io.ReadCloser, error) {
					if copies.Add(1) == 1 {
						return rewound, nil
					}
					return content(), nil
				}
				answer := make(chan craceAnswer, 1)
				go func() { answer <- craceCall(tr, req) }()
				select {
				case a := <-answer:
					require.Equal(t, craceAnswer{Status: 200, At: time.Second}, a)
					require.EqualValues(t, 2, copies.Load(), "one by net/http, one for the hedge")
				case <-time.After(time.Hour):
					require.Fail(t, "the hedge has won, and RoundTrip hangs")
				}
				synctest.Wait()
				rewound.requireClosed(t)
			})
		})
	}
}

// What a base makes by GetBody once its attempt is superfluous is not sent, and does not stay open.
func TestHostileRewindAfterTheRace(t *testing.T) {
	t.Parallel()
	craceModes(t, func(t *testing.T, detach bool) {
		t.Helper()
		over, errs := make(chan struct{}), make(chan error, 1)
		base := scripted.New(
			scripted.Step{After: 2 * time.Second, Body: "won"},
			scripted.Step{Do: func(req *http.Request) (*http.Response, error) {
				<-over
				_, err := req.GetBody()
				errs <- err
				return nil, errCrace
			}},
		)
		tr := craceNew(t, hedgerow.Config{Base: base, Detach: detach})
		req := base.NewRequest(t, http.MethodPost, craceURL, "payload")
		req.Header.Set("Idempotency-Key", "k1")
		require.Equal(t, "won", craceCall(tr, req).Body)
		synctest.Wait()
		close(over)
		require.Error(t, <-errs)
		contractSettle(t, base)
	})
}

// A base that sends again, and a body that fails only then: that is no fault of the host.
func TestHostileRewoundBodyThatFails(t *testing.T) {
	t.Parallel()
	for _, hedgeable := range []bool{false, true} {
		t.Run(fmt.Sprintf("hedgeable=%t", hedgeable), func(t *testing.T) {
			t.Parallel()
			craceModes(t, func(t *testing.T, detach bool) {
				t.Helper()
				base := roundTripper(func(req *http.Request) (*http.Response, error) {
					_, err := io.Copy(io.Discard, req.Body)
					again, errAgain := req.GetBody()
					if err = errors.Join(err, req.Body.Close(), errAgain); err != nil {
						return nil, err
					}
					_, err = io.Copy(io.Discard, again)
					_ = again.Close()
					return nil, err
				})
				tr := craceNew(t, hedgerow.Config{Base: base, Detach: detach, Breaker: hedgerow.BreakerConfig{MinSamples: 1}})
				ctx := hedgerow.WithCall(t.Context(), hedgerow.Call{NoHedge: !hedgeable})
				req := hostPut(ctx, t, craceURL, &contractBody{src: strings.NewReader("x")}, 1)
				failing := &contractBody{src: iotest.ErrReader(errCrace)}
				req.GetBody = func() (io.ReadCloser, error) { return failing, nil }
				require.ErrorIs(t, craceCall(tr, req).Err, errCrace)
				require.EqualValues(t, 1, failing.closes.Load())
				require.Equal(t, hedgerow.CircuitClosed, tr.Circuit(hedgerow.CircuitHost, hedgerow.EndpointKey{Host: "api.test"}))
			})
		})
	}
}

// A hedge whose hook takes so long that the race is over is not sent.
func TestHostileSlowHook(t *testing.T) {
	t.Parallel()
	for _, givesUp := range []bool{false, true} {
		t.Run(fmt.Sprintf("gives up=%t", givesUp), func(t *testing.T) {
			t.Parallel()
			craceModes(t, func(t *testing.T, detach bool) {
				t.Helper()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				base := craceScript([]scripted.Step{{After: 1500 * time.Millisecond, Body: "primary"}})
				tr := craceNew(t, hedgerow.Config{Base: base, Detach: detach, Hooks: hedgerow.Hooks{
					HedgeFired: func(context.Context, hedgerow.HedgeEvent) { time.Sleep(2 * time.Second) },
				}})
				if givesUp {
					time.AfterFunc(1200*time.Millisecond, cancel)
				}
				req := base.NewRequest(t, http.MethodPost, craceURL, "payload").WithContext(ctx)
				req.Header.Set("Idempotency-Key", "k1")
				require.Equal(t, givesUp, craceCall(tr, req).Err != nil)
				contractSettle(t, base)
				require.Len(t, base.Records(), 1)
			})
		})
	}
}

// A base that panics, or ends its goroutine, has not closed the request body. Everything that was made of it is closed.
func TestHostileBaseLeavesTheRequestBodyOpen(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{0, 1500 * time.Millisecond} { // alone, or beside a hedge
		for _, hedgeable := range []bool{false, true} {
			for name, ends := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
				t.Run(fmt.Sprintf("%s after %s, hedgeable=%t", name, after, hedgeable), func(t *testing.T) {
					t.Parallel()
					craceModes(t, func(t *testing.T, detach bool) {
						t.Helper()
						base := roundTripper(func(*http.Request) (*http.Response, error) {
							time.Sleep(after)
							ends()
							return nil, nil
						})
						tr := craceNew(t, hedgerow.Config{Base: base, Detach: detach})
						ctx := hedgerow.WithCall(t.Context(), hedgerow.Call{NoHedge: !hedgeable})
						bodies := []*contractBody{{src: strings.NewReader("x")}}
						req := hostPut(ctx, t, craceURL, bodies[0], 1)
						req.GetBody = func() (io.ReadCloser, error) {
							bodies = append(bodies, &contractBody{src: strings.NewReader("x")})
							return bodies[len(bodies)-1], nil
						}
						_, panicked, _ := craceGuard(tr, req)
						require.Equal(t, name == "panic", panicked != nil)
						time.Sleep(time.Minute)
						synctest.Wait()
						require.Equal(t, hedgeable && after > 0, len(bodies) > 1)
						for _, b := range bodies {
							require.EqualValues(t, 1, b.closes.Load())
						}
					})
				})
			}
		}
	}
}
