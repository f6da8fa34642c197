package hedgerow_test

import (
	"context"
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
	"github.com/hedgerow-go/hedgerow/internal/memhttp"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// contractFirstByte hedges by the first byte.
func contractFirstByte(base http.RoundTripper) hedgerow.Config {
	return hedgerow.Config{Base: base, Hedge: hedgerow.HedgeConfig{Signal: hedgerow.SignalFirstByte}}
}

// A server that sends its headers at once and its first token late is slow, and is hedged.
func TestContractFirstByteHedgesLateTokens(t *testing.T) {
	t.Parallel()
	text := contractText(128 << 10)
	type race struct {
		tokens [2]time.Duration // to the first token of the primary and of the hedge
		after  time.Duration    // RoundTrip returns
		wins   hedgerow.AttemptKind
		hedges int
	}
	for name, c := range map[string]race{
		"hedge wins":      {[2]time.Duration{time.Minute, time.Second}, time.Second + contractDelay, hedgerow.AttemptHedge, 1},
		"primary wins":    {[2]time.Duration{time.Second, time.Minute}, time.Second, hedgerow.AttemptPrimary, 1},
		"primary in time": {[2]time.Duration{contractDelay / 2, 0}, contractDelay / 2, hedgerow.AttemptPrimary, 0},
	} {
		for kind, detach := range map[string]bool{"": false, ", detached": true} {
			t.Run(name+kind, func(t *testing.T) {
				t.Parallel()
				memhttp.Each(t, func(t *testing.T, proto memhttp.Protocol) {
					var served atomic.Int64
					srv := memhttp.NewServer(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						wait := c.tokens[served.Add(1)-1]
						w.WriteHeader(http.StatusOK)
						contractFlush(w)
						select {
						case <-time.After(wait):
						case <-r.Context().Done():
							return
						}
						for i := range 8 {
							_, _ = io.WriteString(w, text[i*len(text)/8:(i+1)*len(text)/8])
							contractFlush(w)
							time.Sleep(time.Second)
						}
					}))
					cfg := contractFirstByte(srv.Transport())
					cfg.Detach = detach
					var info hedgerow.CallInfo
					call := hedgerow.Call{Done: func(i hedgerow.CallInfo) { info = i }}
					tr := contractNew(t, cfg)
					start := time.Now()
					resp, err := tr.RoundTrip(contractGet(hedgerow.WithCall(t.Context(), call), t, srv.URL()+"/"))
					require.NoError(t, err)
					require.Equal(t, c.after, time.Since(start))
					require.Equal(t, c.wins, info.Winner.Kind)
					require.Equal(t, 1+c.hedges, info.Attempts)
					require.Equal(t, c.hedges, int(tr.Stats().Total.Hedges))

					one := make([]byte, 1)
					n, err := resp.Body.Read(one)
					require.NoError(t, err)
					require.Equal(t, text[:n], string(one[:n]))
					require.Equal(t, c.after, time.Since(start), "the first byte was there")
					require.Equal(t, text[n:], contractRead(t, resp))
				})
			})
		}
	}
}

// contractSteps is a race by the first byte over a scripted base, and its end.
type contractSteps struct {
	method string
	steps  []scripted.Step
	detach bool
	after  time.Duration // RoundTrip returns
	winner int           // number of the attempt
	body   string
	err    error // of reading the body
}

// contractEnding is a body of text that then fails with err.
func contractEnding(text string, err error) io.ReadCloser {
	return io.NopCloser(io.MultiReader(strings.NewReader(text), iotest.ErrReader(err)))
}

func TestContractFirstByteRaces(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	cut := func(after time.Duration) scripted.Step {
		return scripted.Step{After: after, BodyReader: contractEnding("", errContract)}
	}
	// These flush their headers at once.
	token := func(after time.Duration, text string) scripted.Step {
		return scripted.Step{BodyReader: contractEnding(text, io.EOF), BodyAfter: after}
	}
	sleepy := func(after time.Duration, text string) scripted.Step { // and cannot be interrupted
		return scripted.Step{IgnoreContext: true, BodyReader: &contractBlocking{after: after, text: text}}
	}
	stutter := &contractValues{reads: []contractValue{{"", nil}, {"", nil}, {"ok", nil}}}
	contractBubbles(t, map[string]contractSteps{
		"late token loses":            {steps: []scripted.Step{token(time.Minute, "slow"), token(5*ms, "ok")}, after: 15 * ms, winner: 1, body: "ok"},
		"late token wins":             {steps: []scripted.Step{token(30*ms, "ok"), token(time.Minute, "slow")}, after: 30 * ms, body: "ok"},
		"cut alone":                   {steps: []scripted.Step{cut(5 * ms)}, after: 5 * ms, err: errContract},
		"cut alone, detached":         {steps: []scripted.Step{cut(5 * ms)}, detach: true, after: 5 * ms, err: errContract},
		"cut primary waits for hedge": {steps: []scripted.Step{cut(15 * ms), token(40*ms, "ok")}, after: 50 * ms, winner: 1, body: "ok"},
		"cut hedge loses":             {steps: []scripted.Step{token(40*ms, "ok"), cut(5 * ms)}, after: 40 * ms, body: "ok"},
		"both cut":                    {steps: []scripted.Step{cut(15 * ms), cut(10 * ms)}, after: 20 * ms, err: errContract},
		"both cut, detached":          {steps: []scripted.Step{cut(15 * ms), cut(10 * ms)}, detach: true, after: 20 * ms, err: errContract},
		"cut after a byte wins":       {steps: []scripted.Step{{After: 20 * ms, BodyReader: contractEnding("o", errContract)}, token(time.Minute, "")}, after: 20 * ms, body: "o", err: errContract},
		"end at once wins":            {steps: []scripted.Step{token(time.Minute, "slow"), token(0, "")}, after: 10 * ms, winner: 1},
		"late end":                    {steps: []scripted.Step{token(25*ms, ""), token(time.Minute, "")}, after: 25 * ms},
		"empty reads":                 {steps: []scripted.Step{{BodyReader: stutter}}, body: "ok"},
		"byte with its end":           {steps: []scripted.Step{{BodyReader: io.NopCloser(iotest.DataErrReader(strings.NewReader("x")))}}, body: "x"},
		"HEAD":                        {method: http.MethodHead, steps: []scripted.Step{{BodyReader: http.NoBody}}},
		"204":                         {steps: []scripted.Step{{Status: http.StatusNoContent, BodyReader: http.NoBody}}},
		"500 is done by its headers":  {steps: []scripted.Step{{Status: 500, BodyAfter: time.Second, Body: "oh"}}, body: "oh"},
		"blocks until Close":          {steps: []scripted.Step{sleepy(time.Minute, "slow"), token(5*ms, "ok")}, after: 15 * ms, winner: 1, body: "ok"},
		"blocks until Close, detached": {
			steps: []scripted.Step{sleepy(time.Minute, "slow"), token(5*ms, "ok")}, detach: true, after: 15 * ms, winner: 1, body: "ok",
		},
		"hedge blocks until Close": {steps: []scripted.Step{token(20*ms, "ok"), sleepy(time.Minute, "slow")}, after: 20 * ms, body: "ok"},
	}, func(t *testing.T, c contractSteps) {
		t.Helper()
		base := scripted.New(c.steps...)
		cfg := contractFirstByte(base)
		cfg.Detach = c.detach
		var info hedgerow.CallInfo
		ctx := hedgerow.WithCall(t.Context(), hedgerow.Call{Done: func(i hedgerow.CallInfo) { info = i }})
		req := contractGet(ctx, t, contractURL)
		if c.method != "" {
			req.Method = c.method
		}
		start := time.Now()
		resp, err := contractNew(t, cfg).RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, c.after, time.Since(start))
		require.Equal(t, c.winner, info.Winner.Number)
		require.Equal(t, len(c.steps), info.Attempts)
		body, err := io.ReadAll(resp.Body)
		require.Equal(t, c.err, err)
		require.Equal(t, c.body, string(body))
		require.NoError(t, resp.Body.Close())
		contractSettle(t, base)
	})
}

// The caller who gives up while the first byte is awaited gets an error or a response that fails, and nothing stays.
func TestContractFirstByteCallerGivesUp(t *testing.T) {
	t.Parallel()
	late := scripted.Step{BodyAfter: time.Minute, Body: "late"}
	deaf := func() scripted.Step {
		return scripted.Step{IgnoreContext: true, BodyReader: &contractBlocking{after: time.Minute}}
	}
	contractBubbles(t, map[string]struct {
		steps  []scripted.Step
		detach bool
	}{
		"alone":           {steps: []scripted.Step{late}},
		"in a race":       {steps: []scripted.Step{late, late}},
		"alone, detached": {steps: []scripted.Step{late}, detach: true},
		"deaf, detached":  {steps: []scripted.Step{deaf(), deaf()}, detach: true},
	}, func(t *testing.T, c struct {
		steps  []scripted.Step
		detach bool
	},
	) {
		t.Helper()
		wait := 5 * time.Millisecond
		if len(c.steps) > 1 {
			wait = 15 * time.Millisecond
		}
		base := scripted.New(c.steps...)
		cfg := contractFirstByte(base)
		cfg.Detach = c.detach
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(wait, cancel)
		start := time.Now()
		resp, err := contractNew(t, cfg).RoundTrip(contractGet(ctx, t, contractURL))
		require.Equal(t, wait, time.Since(start))
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			require.NoError(t, resp.Body.Close())
		} else {
			require.Nil(t, resp)
		}
		require.ErrorIs(t, err, context.Canceled)
		contractSettle(t, base)
	})
}

// The body's end may be looked at from one goroutine while another closes it.
func TestContractFirstByteCloseWhileReading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := scripted.Func(func(int, *http.Request) scripted.Step { return scripted.Step{Body: "a longer text"} })
		tr := contractNew(t, contractFirstByte(base))
		for range 100 {
			resp, err := tr.RoundTrip(contractGet(t.Context(), t, contractURL))
			require.NoError(t, err)
			var both sync.WaitGroup
			both.Go(func() { _, _ = io.Copy(io.Discard, resp.Body) })
			both.Go(func() { _ = resp.Body.Close() })
			both.Wait()
		}
		contractSettle(t, base)
	})
}

// What is learned, and what the hooks are told, is the time to the first byte.
func TestContractFirstByteIsWhatIsLearned(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]hedgerow.Call{"hedged": {Delay: time.Minute}, "not hedged": {NoHedge: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				base := scripted.Func(func(int, *http.Request) scripted.Step {
					return scripted.Step{After: time.Millisecond, BodyAfter: 99 * time.Millisecond, Body: "ok"}
				})
				cfg := contractFirstByte(base)
				cfg.Hedge.Delay = -1
				var latencies []time.Duration
				cfg.Hooks.AttemptDone = func(_ context.Context, e hedgerow.AttemptEvent) {
					latencies = append(latencies, e.Latency)
				}
				tr := contractNew(t, cfg)
				for range 20 {
					resp, err := tr.RoundTrip(contractGet(hedgerow.WithCall(t.Context(), call), t, contractURL))
					require.NoError(t, err)
					require.Equal(t, "ok", contractRead(t, resp))
				}
				stats := tr.Stats().Endpoints[hedgerow.EndpointKey{Host: "api.test"}]
				require.InEpsilon(t, 100*time.Millisecond, stats.Delay, 0.02)
				require.InEpsilon(t, 100*time.Millisecond, stats.Latency.P50, 0.02)
				for _, d := range latencies {
					require.Equal(t, 100*time.Millisecond, d)
				}
				contractSettle(t, base)
			})
		})
	}
}

// contractBlocking is a body whose first Read blocks for a time or until it is closed.
type contractBlocking struct {
	after time.Duration
	text  string

	mu     sync.Mutex // guards the field below
	closed chan struct{}
}

// end returns the channel that Close closes. It is made by the first use, which is inside the bubble.
func (b *contractBlocking) end() chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed == nil {
		b.closed = make(chan struct{})
	}
	return b.closed
}

func (b *contractBlocking) Read(p []byte) (int, error) {
	select {
	case <-time.After(b.after):
	case <-b.end():
		return 0, http.ErrBodyReadAfterClose
	}
	n := copy(p, b.text)
	b.text = b.text[n:]
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Close is called once.
func (b *contractBlocking) Close() error {
	close(b.end())
	return nil
}
