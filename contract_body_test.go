package hedgerow_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
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

// errContractBody is what the failing request bodies fail with.
var errContractBody = errors.New("the disk is gone")

// C3: RoundTrip does not return while a hedge is being made of the caller's request.
func TestC03MakingAHedgeIsAwaited(t *testing.T) {
	t.Parallel()
	for name, detach := range map[string]bool{"attached": false, "detached": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				base := scripted.New(scripted.Step{After: 12 * time.Millisecond, Err: errContract})
				tr := contractNew(t, hedgerow.Config{Base: base, Detach: detach})
				req := contractPost(t, base)
				fresh := req.GetBody
				made := false // unguarded: the race detector has to find it ordered
				req.GetBody = func() (io.ReadCloser, error) {
					time.Sleep(contractDelay)
					made = true
					return fresh()
				}
				start := time.Now()
				_, err := tr.RoundTrip(req)
				require.Equal(t, errContract, err)
				require.True(t, made)
				require.Equal(t, 2*contractDelay, time.Since(start))
				contractSettle(t, base)
				require.Len(t, base.Records(), 1)
				require.Zero(t, tr.Stats().Total.Hedges)
			})
		})
	}
}

// C11: what is refused closes the body without a read.
func TestC11BodyIsClosedWithoutASend(t *testing.T) {
	t.Parallel()
	type refusal struct {
		call   hedgerow.Call
		open   bool // the circuit
		gone   bool // the caller, by its context
		cancel bool // by Request.Cancel
		want   error
	}
	contractBubbles(t, map[string]refusal{
		"unknown endpoint":               {call: hedgerow.Call{Endpoint: "nobody"}, want: hedgerow.ErrUnknownEndpoint},
		"circuit open":                   {open: true, want: hedgerow.ErrCircuitOpen},
		"circuit open, not to be hedged": {open: true, call: hedgerow.Call{NoHedge: true}, want: hedgerow.ErrCircuitOpen},
		"caller gone":                    {gone: true, want: errContract},
		"caller gone, not to be hedged":  {gone: true, call: hedgerow.Call{NoHedge: true}, want: errContract},
		"request cancelled":              {cancel: true, want: context.Canceled},
	}, func(t *testing.T, c refusal) {
		t.Helper()
		base := scripted.New(scripted.Step{Err: errContract})
		tr := contractNew(t, hedgerow.Config{Base: base, Breaker: hedgerow.BreakerConfig{MinSamples: 1, FailFast: true}})
		sent := 0
		if c.open {
			_, err := tr.RoundTrip(contractGet(t.Context(), t, contractURL))
			require.ErrorIs(t, err, errContract)
			sent = 1
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		if c.gone {
			cancel(errContract)
		}
		var info []hedgerow.CallInfo
		c.call.Done = func(i hedgerow.CallInfo) { info = append(info, i) }
		req := contractPost(t, base).WithContext(hedgerow.WithCall(ctx, c.call))
		if c.cancel {
			stop := make(chan struct{})
			close(stop)
			req.Cancel = stop //nolint:staticcheck // deprecated, and heeded all the same
		}
		resp, err := tr.RoundTrip(req)
		require.ErrorIs(t, err, c.want)
		require.Nil(t, resp)
		contractSettle(t, base)
		require.Len(t, base.Records(), sent)
		require.Len(t, base.Bodies(), 1, "GetBody was not asked")
		require.Equal(t, 0, base.Bodies()[0].Reads())
		require.Equal(t, 1, base.Bodies()[0].Closes())
		require.Len(t, info, 1)
		require.Equal(t, 0, info[0].Attempts)
	})
}

// C13: each attempt reads a body of its own, however slowly the other reads.
func TestC13AttemptsDoNotShareABody(t *testing.T) {
	t.Parallel()
	const payload = "0123456789abcdefghij"
	type upload struct {
		answer string // of the primary, a second after its upload or at once
		detach bool
		deaf   bool
		winner hedgerow.AttemptKind
	}
	contractBubbles(t, map[string]upload{
		"hedge wins":                    {winner: hedgerow.AttemptHedge},
		"hedge wins, deaf and detached": {winner: hedgerow.AttemptHedge, detach: true, deaf: true},
		"primary wins":                  {answer: "primary", winner: hedgerow.AttemptPrimary},
	}, func(t *testing.T, c upload) {
		t.Helper()
		base := scripted.Func(func(attempt int, _ *http.Request) scripted.Step {
			switch {
			case attempt == 1 && c.winner == hedgerow.AttemptPrimary:
				return scripted.Step{After: time.Minute}
			case attempt == 1:
				return scripted.Step{Body: "hedge"}
			}
			return scripted.Step{Body: c.answer, IgnoreContext: c.deaf}
		})
		tr := contractNew(t, hedgerow.Config{Base: base, Detach: c.detach})
		var own atomic.Int64
		first := &contractBody{
			src:    iotest.OneByteReader(strings.NewReader(payload)),
			onRead: func() { time.Sleep(contractDelay) },
		}
		second := &contractBody{src: strings.NewReader(payload)}
		req := contractGet(t.Context(), t, contractURL)
		req.Body, req.ContentLength = first, int64(len(payload))
		req.GetBody = func() (io.ReadCloser, error) {
			own.Add(1)
			return second, nil
		}
		resp, err := tr.RoundTrip(req)
		require.NoError(t, err)
		contractRead(t, resp)
		contractSettle(t, base)
		recs := base.Records()
		require.Len(t, recs, 2)
		require.Equal(t, payload, string(recs[1].Body))
		require.EqualValues(t, 1, own.Load())
		for _, b := range []*contractBody{first, second} {
			require.EqualValues(t, 1, b.closes.Load())
			require.EqualValues(t, 0, b.late.Load())
		}
		if c.winner == hedgerow.AttemptPrimary {
			require.Equal(t, payload, string(recs[0].Body))
			require.EqualValues(t, 1, tr.Stats().Total.PrimaryWins)
			return
		}
		require.True(t, strings.HasPrefix(payload, string(recs[0].Body)))
		require.Less(t, len(recs[0].Body), len(payload), "the loser was stopped")
		require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
	})
}

// C15: a body that cannot be had again is sent once, as it comes.
func TestC15BodyWithoutGetBodyIsSentOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := scripted.Func(func(int, *http.Request) scripted.Step {
			return scripted.Step{Do: func(req *http.Request) (*http.Response, error) {
				start := time.Now()
				one := make([]byte, 4)
				n, err := req.Body.Read(one)
				if err != nil || n != 1 || time.Since(start) != 0 {
					return nil, errors.New("the body was not there at once")
				}
				rest, err := io.ReadAll(req.Body)
				if err != nil || string(rest) != "b" || time.Since(start) != time.Second {
					return nil, errors.New("the body did not come when it was written")
				}
				return &http.Response{
					StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"7"}},
					Body: io.NopCloser(strings.NewReader("limit")),
				}, nil
			}}
		})
		tr := contractNew(t, hedgerow.Config{Base: base})
		pr, pw := io.Pipe()
		go func() {
			_, _ = pw.Write([]byte("a"))
			time.Sleep(time.Second)
			_, _ = pw.Write([]byte("b"))
			_ = pw.Close()
		}()
		body := &contractBody{src: pr}
		req := contractGet(t.Context(), t, contractURL)
		req.Method, req.Body, req.ContentLength = http.MethodPost, body, 2
		req.Header.Set("Idempotency-Key", "k1")
		resp, err := tr.RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
		require.Equal(t, "7", resp.Header.Get("Retry-After"))
		require.Equal(t, "limit", contractRead(t, resp))
		contractSettle(t, base)
		require.Len(t, base.Records(), 1)
		require.EqualValues(t, 1, body.closes.Load())
		require.Equal(t, hedgerow.Counters{
			Requests: 1, Skipped: map[hedgerow.SkipReason]uint64{hedgerow.SkipBody: 1},
		}, tr.Stats().Total)
	})
}

// C17: a GetBody that fails when a hedge is due costs the hedge, and nothing else.
func TestC17GetBodyFails(t *testing.T) {
	t.Parallel()
	bodies := map[string]func() (io.ReadCloser, error){
		"an error": func() (io.ReadCloser, error) { return nil, errContractBody },
		"nothing":  func() (io.ReadCloser, error) { return nil, nil }, //nolint:nilnil // the fault under test
	}
	steps := map[string]scripted.Step{
		"a 429":    {After: time.Second, Status: http.StatusTooManyRequests, Body: "limit"},
		"a 200":    {After: time.Second, Status: http.StatusOK, Body: "limit"},
		"an error": {After: time.Second, Err: errContract},
	}
	for body, getBody := range bodies {
		for outcome, step := range steps {
			t.Run(body+", then "+outcome, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					base := scripted.Func(func(attempt int, _ *http.Request) scripted.Step {
						if attempt == 0 {
							return step
						}
						return scripted.Step{After: time.Second, Body: "later"}
					})
					// The bucket starts with its one token: the second call finds it only if the first gave it back.
					tr := contractNew(t, hedgerow.Config{Base: base, Hedge: hedgerow.HedgeConfig{BudgetPercent: 0.001}})
					req := contractPost(t, base)
					req.GetBody = getBody
					resp, err := tr.RoundTrip(req)
					if step.Err != nil {
						require.Equal(t, errContract, err)
						require.Nil(t, resp)
					} else {
						require.NoError(t, err)
						require.Equal(t, step.Status, resp.StatusCode)
						require.Equal(t, "limit", contractRead(t, resp))
					}
					total := tr.Stats().Total
					require.Zero(t, total.Hedges)
					require.Equal(t, map[hedgerow.SkipReason]uint64{hedgerow.SkipBody: 1}, total.Skipped)

					time.Sleep(time.Minute) // what the 429 has asked for
					resp, err = tr.RoundTrip(contractGet(t.Context(), t, contractURL))
					require.NoError(t, err)
					contractRead(t, resp)
					require.EqualValues(t, 1, tr.Stats().Total.Hedges)
					contractSettle(t, base)
				})
			})
		}
	}
}

// C19: the hedge looks on the wire as the primary does.
func TestC19WireFormOfTheHedge(t *testing.T) {
	t.Parallel()
	type form struct {
		Method, Body     string
		ContentLength    int64
		TransferEncoding string
		Header           string
	}
	type shape struct {
		method   string
		body     func() io.Reader
		length   int64 // if not 0: of the request
		getBody  bool
		attempts int
	}
	text := func() io.Reader { return &contractBody{src: strings.NewReader("payload")} }
	shapes := map[string]shape{
		"GET without":         {method: http.MethodGet, attempts: 2, body: func() io.Reader { return nil }},
		"GET NoBody":          {method: http.MethodGet, attempts: 2, body: func() io.Reader { return http.NoBody }},
		"GET empty reader":    {method: http.MethodGet, attempts: 2, body: func() io.Reader { return strings.NewReader("") }},
		"POST without":        {method: http.MethodPost, attempts: 2, body: func() io.Reader { return nil }},
		"POST NoBody":         {method: http.MethodPost, attempts: 2, body: func() io.Reader { return http.NoBody }},
		"POST in memory":      {method: http.MethodPost, attempts: 2, body: func() io.Reader { return strings.NewReader("payload") }},
		"POST of known size":  {method: http.MethodPost, attempts: 2, body: text, length: 7, getBody: true},
		"POST of length 0":    {method: http.MethodPost, attempts: 1, body: text, getBody: true},
		"POST of length -1":   {method: http.MethodPost, attempts: 1, body: text, length: -1, getBody: true},
		"POST of known once":  {method: http.MethodPost, attempts: 1, body: text, length: 7},
		"DELETE with payload": {method: http.MethodDelete, attempts: 2, body: text, length: 7, getBody: true},
	}
	contractEach(t, func(t *testing.T, proto memhttp.Protocol) {
		t.Helper()
		for name, c := range shapes {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				forms := make(chan form, 2)
				var served atomic.Int64
				srv := contractListen(t, proto, func(_ http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					var h strings.Builder
					_ = r.Header.Write(&h)
					forms <- form{r.Method, string(body), r.ContentLength, strings.Join(r.TransferEncoding, ","), h.String()}
					if int(served.Add(1)) < c.attempts {
						<-r.Context().Done()
					}
				})
				tr := contractNew(t, hedgerow.Config{Base: srv.Base})
				req, err := http.NewRequestWithContext(t.Context(), c.method, srv.URL+"/", c.body())
				require.NoError(t, err)
				req.Header.Set("Idempotency-Key", "k1")
				if c.length != 0 {
					req.ContentLength = c.length
				}
				if c.getBody {
					req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(c.body()), nil }
				}
				resp, err := tr.RoundTrip(req)
				require.NoError(t, err)
				contractRead(t, resp)
				first := contractTimeout(t, forms, "the primary")
				if c.attempts == 2 {
					require.Equal(t, first, contractTimeout(t, forms, "the hedge"))
				}
				require.Empty(t, forms)
				require.EqualValues(t, c.attempts-1, tr.Stats().Total.Hedges)
			})
		}
	})
}

// C20: a request body that fails ends the call with its own error, and says nothing of the host.
func TestC20RequestBodyFails(t *testing.T) {
	t.Parallel()
	read := func(t *testing.T, base http.RoundTripper, target string, hedged bool) {
		t.Helper()
		tr := contractNew(t, hedgerow.Config{Base: base, Breaker: hedgerow.BreakerConfig{MinSamples: 1}})
		body := &contractBody{src: io.MultiReader(strings.NewReader("p"), iotest.ErrReader(errContractBody))}
		req := contractGet(t.Context(), t, target)
		req.Method, req.Body, req.ContentLength = http.MethodPost, body, 7
		if hedged {
			req.Header.Set("Idempotency-Key", "k1")
			req.GetBody = func() (io.ReadCloser, error) { return nil, errContract }
		}
		resp, err := tr.RoundTrip(req)
		// Over a socket, HTTP/1.1 wraps it: see net.TCPConn.ReadFrom.
		if op, wrapped := errors.AsType[*net.OpError](err); wrapped {
			err = op.Err
		}
		require.Equal(t, errContractBody, err)
		require.Nil(t, resp)
		require.EqualValues(t, 1, body.closes.Load())
		key := hedgerow.EndpointKey{Host: req.URL.Host}
		require.Equal(t, hedgerow.CircuitClosed, tr.Circuit(hedgerow.CircuitHost, key))
		require.Equal(t, hedgerow.CircuitClosed, tr.Circuit(hedgerow.CircuitEndpoint, key))
		require.Zero(t, tr.Stats().Total.Hedges)
	}
	for name, hedged := range map[string]bool{"may be hedged": true, "may not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("unknown base", func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					base := scripted.New(scripted.Step{})
					read(t, base, contractURL, hedged)
					contractSettle(t, base)
				})
			})
			contractEach(t, func(t *testing.T, proto memhttp.Protocol) {
				t.Helper()
				srv := contractListen(t, proto, func(_ http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
				})
				read(t, srv.Base, srv.URL+"/", hedged)
			})
		})
	}
}
