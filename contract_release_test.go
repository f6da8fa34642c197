package hedgerow_test

import (
	"bufio"
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
	"github.com/hedgerow-go/hedgerow/internal/memhttp"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// C39: what has no body holds nothing, although nobody closes it.
func TestC39BodylessResponsesReleaseThemselves(t *testing.T) {
	t.Parallel()
	type answer struct {
		method string
		status int
	}
	for name, c := range map[string]answer{
		"HEAD":    {http.MethodHead, http.StatusOK},
		"204":     {http.MethodGet, http.StatusNoContent},
		"304":     {http.MethodGet, http.StatusNotModified},
		"empty":   {http.MethodGet, http.StatusOK},
		"dropped": {http.MethodPost, http.StatusNoContent},
	} {
		for _, signal := range []hedgerow.Signal{hedgerow.SignalHeaders, hedgerow.SignalFirstByte} {
			t.Run(name+" by "+signal.String(), func(t *testing.T) {
				t.Parallel()
				memhttp.Each(t, func(t *testing.T, proto memhttp.Protocol) {
					srv := memhttp.NewServer(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if r.Method == http.MethodHead {
							w.Header().Set("Content-Length", "1000")
						}
						w.WriteHeader(c.status)
					}))
					tr := contractNew(t, hedgerow.Config{Base: srv.Transport(), Hedge: hedgerow.HedgeConfig{Signal: signal}})
					parent := newContractParent(t.Context())
					for range 1000 {
						req := contractGet(parent, t, srv.URL()+"/")
						req.Method = c.method
						req.Header["Idempotency-Key"] = []string{"k1"}
						resp, err := tr.RoundTrip(req)
						require.NoError(t, err)
						require.Equal(t, c.status, resp.StatusCode)
						synctest.Wait() // HTTP/2 frees the stream in a goroutine, and has room for 250
					}
					require.Zero(t, parent.children())
					require.GreaterOrEqual(t, parent.total(), 1000, "the parent sees its children")
					require.Equal(t, 1, srv.Dials())
				})
			})
		}
	}
}

// C39 for what has a body: the end of the body, a failure or Close release it, and so does an error of the call.
func TestC39EveryCallReleasesItsContexts(t *testing.T) {
	t.Parallel()
	read := func(resp *http.Response) { _, _ = io.Copy(io.Discard, resp.Body) }
	closing := func(resp *http.Response) { _ = resp.Body.Close() }
	cut := io.NopCloser(&contractValues{reads: []contractValue{{"a", io.ErrUnexpectedEOF}}})
	slow := scripted.Step{After: time.Minute, Body: "slow"}
	contractBubbles(t, map[string]struct {
		steps [2]scripted.Step
		end   func(*http.Response)
	}{
		"read":              {[2]scripted.Step{{Body: "ok"}}, read},
		"closed":            {[2]scripted.Step{{Body: "ok"}}, closing},
		"cut":               {[2]scripted.Step{{BodyReader: cut}}, read},
		"failed":            {[2]scripted.Step{{Err: errContract}}, nil},
		"hedge wins":        {[2]scripted.Step{slow, {Body: "ok"}}, read},
		"hedge wins, close": {[2]scripted.Step{slow, {Body: "ok"}}, closing},
		"primary wins":      {[2]scripted.Step{{After: 2 * contractDelay, Body: "ok"}, slow}, read},
		"all fail":          {[2]scripted.Step{{After: 2 * contractDelay, Err: errContract}, {Err: errContract}}, nil},
		"all refuse":        {[2]scripted.Step{{After: 2 * contractDelay, Status: 500, Body: "a"}, {Status: 500, Body: "b"}}, read},
	}, func(t *testing.T, c struct {
		steps [2]scripted.Step
		end   func(*http.Response)
	},
	) {
		t.Helper()
		base := scripted.Func(func(_ int, req *http.Request) scripted.Step {
			a, _ := hedgerow.AttemptFromContext(req.Context())
			return c.steps[a.Number]
		})
		tr := contractNew(t, hedgerow.Config{Base: base})
		parent := newContractParent(t.Context())
		for range 100 {
			resp, err := tr.RoundTrip(contractGet(parent, t, contractURL))
			if c.end == nil {
				require.ErrorIs(t, err, errContract)
				continue
			}
			require.NoError(t, err)
			c.end(resp)
			synctest.Wait()
			require.Zero(t, parent.children())
			closing(resp)
		}
		contractSettle(t, base)
		require.Zero(t, parent.children())
		require.GreaterOrEqual(t, parent.total(), 100)
	})
}

// A response that says it is empty may still be open: its end, and its trailers, come when the server says so.
func TestC39EmptyResponsesAreStillRead(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{"empty": http.StatusOK, "204": http.StatusNoContent, "304": http.StatusNotModified} {
		for _, signal := range []hedgerow.Signal{hedgerow.SignalHeaders, hedgerow.SignalFirstByte} {
			t.Run(name+" by "+signal.String(), func(t *testing.T) {
				t.Parallel()
				memhttp.Each(t, func(t *testing.T, proto memhttp.Protocol) {
					srv := memhttp.NewServer(t, proto, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						if status == http.StatusOK {
							w.Header().Set("Content-Length", "0")
						}
						w.Header().Set("Trailer", "A")
						w.WriteHeader(status)
						contractFlush(w)
						time.Sleep(time.Second)
						w.Header().Set("A", "1")
					}))
					read := func(rt http.RoundTripper) http.Header {
						resp, err := rt.RoundTrip(contractGet(t.Context(), t, srv.URL()+"/"))
						require.NoError(t, err)
						require.Empty(t, contractRead(t, resp))
						return resp.Trailer
					}
					want := read(srv.Transport())
					tr := contractNew(t, hedgerow.Config{
						Base: srv.Transport(), Hedge: hedgerow.HedgeConfig{Signal: signal, Delay: time.Minute},
					})
					require.Equal(t, want, read(tr))
				})
			})
		}
	}
}

// C45: what streams reaches the caller when it comes.
func TestC45StreamingIsNotDelayed(t *testing.T) {
	t.Parallel()
	for _, signal := range []hedgerow.Signal{hedgerow.SignalHeaders, hedgerow.SignalFirstByte} {
		for name, hangs := range map[string]bool{"primary": false, "hedge": true} {
			t.Run(name+" by "+signal.String(), func(t *testing.T) {
				t.Parallel()
				memhttp.Each(t, func(t *testing.T, proto memhttp.Protocol) {
					events := func(w http.ResponseWriter, _ *http.Request) {
						w.Header().Set("Content-Type", "text/event-stream")
						for i := range 10 {
							_, _ = fmt.Fprintf(w, "data: %d\n", i)
							contractFlush(w)
							time.Sleep(time.Second)
						}
					}
					if hangs {
						events = contractHangs(events)
					}
					srv := memhttp.NewServer(t, proto, http.HandlerFunc(events))
					tr := contractNew(t, hedgerow.Config{Base: srv.Transport(), Hedge: hedgerow.HedgeConfig{Signal: signal}})
					resp, err := tr.RoundTrip(contractGet(t.Context(), t, srv.URL()+"/"))
					require.NoError(t, err)
					start := time.Now()
					lines := bufio.NewReader(resp.Body)
					for i := range 10 {
						line, err := lines.ReadString('\n')
						require.NoError(t, err)
						require.Equal(t, fmt.Sprintf("data: %d\n", i), line)
						require.Equal(t, time.Duration(i)*time.Second, time.Since(start))
					}
					_, err = lines.ReadByte()
					require.Equal(t, io.EOF, err)
					require.NoError(t, resp.Body.Close())
				})
			})
		}
	}
}

// C46: connections are used again as often as without us.
func TestC46ConnectionsAreReused(t *testing.T) {
	t.Parallel()
	text := contractText(8 << 10)
	ends := map[string]func(*http.Response) error{
		"read and close": func(resp *http.Response) error {
			_, err := io.Copy(io.Discard, resp.Body)
			return errors.Join(err, resp.Body.Close())
		},
		"read only": func(resp *http.Response) error {
			_, err := io.Copy(io.Discard, resp.Body)
			return err
		},
		"close only": func(resp *http.Response) error { return resp.Body.Close() },
		"a byte": func(resp *http.Response) error {
			_, err := resp.Body.Read(make([]byte, 1))
			return errors.Join(err, resp.Body.Close())
		},
	}
	for name, end := range ends {
		for _, signal := range []hedgerow.Signal{hedgerow.SignalHeaders, hedgerow.SignalFirstByte} {
			t.Run(name+" by "+signal.String(), func(t *testing.T) {
				t.Parallel()
				contractEach(t, func(t *testing.T, proto memhttp.Protocol) {
					t.Helper()
					conns := func(detach, wrapped bool) int64 {
						srv := contractListen(t, proto, func(w http.ResponseWriter, _ *http.Request) {
							_, _ = io.WriteString(w, text)
						})
						var rt http.RoundTripper = srv.Base
						if wrapped {
							rt = contractNew(t, hedgerow.Config{
								Base: rt, Detach: detach,
								Hedge: hedgerow.HedgeConfig{Signal: signal, Delay: time.Minute},
							})
						}
						for range 50 {
							resp, err := rt.RoundTrip(contractGet(t.Context(), t, srv.URL+"/"))
							require.NoError(t, err)
							require.NoError(t, end(resp))
						}
						return srv.Conns.Load()
					}
					want := conns(false, false)
					require.Equal(t, want, conns(false, true))
					require.Equal(t, want, conns(true, true))
				})
			})
		}
	}
}

// C47: the base's body is closed while its attempt still lives, and what it says is passed on.
func TestC47CloseComesBeforeTheCancel(t *testing.T) {
	t.Parallel()
	type closing struct {
		hedge  bool
		signal hedgerow.Signal
		err    error
	}
	contractBubbles(t, map[string]closing{
		"primary":             {},
		"primary fails":       {err: errContract},
		"hedge":               {hedge: true},
		"hedge fails":         {hedge: true, err: errContract},
		"hedge by first byte": {hedge: true, signal: hedgerow.SignalFirstByte, err: errContract},
	}, func(t *testing.T, c closing) {
		t.Helper()
		var attempt *http.Request
		var alive bool
		body := &contractClosing{Reader: strings.NewReader("content"), close: func() error {
			alive = attempt.Context().Err() == nil
			return c.err
		}}
		last := scripted.Step{Do: func(req *http.Request) (*http.Response, error) {
			attempt = req
			return &http.Response{
				StatusCode: http.StatusOK, Body: body, Trailer: http.Header{"A": {"1"}}, ContentLength: -1,
			}, nil
		}}
		base := scripted.New(last)
		if c.hedge {
			base = scripted.New(scripted.Step{After: time.Minute}, last)
		}
		tr := contractNew(t, hedgerow.Config{Base: base, Hedge: hedgerow.HedgeConfig{Signal: c.signal}})
		resp, err := tr.RoundTrip(contractGet(t.Context(), t, contractURL))
		require.NoError(t, err)
		require.Equal(t, c.err, resp.Body.Close())
		require.True(t, alive)
		require.Error(t, attempt.Context().Err())
		require.Equal(t, http.Header{"A": {"1"}}, resp.Trailer)
		contractSettle(t, base)
	})
}

// contractClosing is a body whose Close is a function.
type contractClosing struct {
	io.Reader
	close func() error
}

func (b *contractClosing) Close() error { return b.close() }
