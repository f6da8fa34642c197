package hedgerow_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

func TestC62LateResponseOfALoser(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		detach bool
		steps  []scripted.Step
		want   craceAnswer
		ends   []string
	}{
		{
			"hedge", false,
			[]scripted.Step{
				{After: 1500 * time.Millisecond, Body: "primary"},
				{After: 1500 * time.Millisecond, IgnoreContext: true, Body: "hedge"},
			},
			craceAnswer{Status: 200, Body: "primary", At: 1500 * time.Millisecond},
			[]string{"0 primary 200 won", "1 hedge 200 superseded"},
		},
		{
			"detached primary", true,
			[]scripted.Step{
				{After: 2500 * time.Millisecond, IgnoreContext: true, Body: "primary"},
				{After: 500 * time.Millisecond, Body: "hedge"},
			},
			craceAnswer{Status: 200, Body: "hedge", At: 1500 * time.Millisecond},
			[]string{"0 primary 200 superseded", "1 hedge 200 won"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var events craceLog
				base := scripted.New(tt.steps...)
				tr := craceNew(t, hedgerow.Config{Base: base, Detach: tt.detach, Hooks: events.hooks()})
				require.Equal(t, tt.want, craceCall(tr, base.NewRequest(t, http.MethodGet, craceURL, "")))
				time.Sleep(time.Second)
				synctest.Wait()
				base.Check(t)
				require.Equal(t, tt.ends, events.ends())
			})
		})
	}
}

// A loser that comes back with a 429 after the race has a say in what the host wants, and in nothing else.
func TestC64LosersAnswerAfterTheWin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var events craceLog
		base := scripted.New(
			scripted.Step{After: 1500 * time.Millisecond, Body: "primary"},
			scripted.Step{
				After: time.Second, IgnoreContext: true, Status: http.StatusTooManyRequests,
				Header: http.Header{"Retry-After": {"10"}},
			},
			scripted.Step{After: 3 * time.Second, Body: "x"},
		)
		tr := craceNew(t, hedgerow.Config{
			Base: base, Hooks: events.hooks(),
			Breaker: hedgerow.BreakerConfig{MinSamples: 1, Failure: func(r *http.Response) bool { return r.StatusCode == http.StatusTooManyRequests }},
		})
		req := base.NewRequest(t, http.MethodGet, craceURL, "")
		require.Equal(t, craceAnswer{Status: 200, Body: "primary", At: 1500 * time.Millisecond}, craceCall(tr, req))
		time.Sleep(time.Second)
		require.Empty(t, events.moves, "a loser counts in no circuit")
		require.Equal(t, 200, craceCall(tr, base.NewRequest(t, http.MethodGet, craceURL, "")).Status)
		require.Equal(t, []hedgerow.SkipReason{hedgerow.SkipPushback}, events.reasons())
		base.Check(t)
	})
}

// Losers that we cancel are no failures of the host, whatever their errors look like.
func TestC64CancelledLoserCountsNowhere(t *testing.T) {
	t.Parallel()
	craceModes(t, func(t *testing.T, detach bool) {
		t.Helper()
		var events craceLog
		base := scripted.Func(func(attempt int, _ *http.Request) scripted.Step {
			if attempt%2 == 0 {
				return scripted.Step{Do: func(req *http.Request) (*http.Response, error) {
					<-req.Context().Done()
					return nil, errCrace
				}}
			}
			return scripted.Step{After: time.Second, Body: "x"}
		})
		tr := craceNew(t, hedgerow.Config{
			Base: base, Detach: detach, Hooks: events.hooks(),
			Breaker: hedgerow.BreakerConfig{MinSamples: 1, ErrorRateThreshold: 0.01},
		})
		for range 10 {
			require.Equal(t, craceAnswer{Status: 200, Body: "x", At: 2 * time.Second},
				craceCall(tr, base.NewRequest(t, http.MethodGet, craceURL, "")))
		}
		synctest.Wait()
		require.Empty(t, events.moves)
		require.Zero(t, tr.Stats().Total.Errors)
		require.EqualValues(t, 10, tr.Stats().Total.HedgeWins)
		base.Check(t)
	})
}

func TestC65FirstAnswerIsAFailure(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		step scripted.Step
		end  string
	}{
		{"500", scripted.Step{Status: 500, Body: "sorry"}, "1 hedge 500"},
		{"429", scripted.Step{Status: 429, Header: http.Header{"Retry-After": {"1"}}}, "1 hedge 429"},
		{"401", scripted.Step{Status: 401}, "1 hedge 401"},
		{"connection", scripted.Step{Err: errCrace}, "1 hedge err"},
		{"response and error", scripted.Step{Status: 200, Err: errCrace}, "1 hedge err"},
		{"panic", scripted.Step{Panic: "boom"}, "1 hedge err"},
		{"Goexit", scripted.Step{Goexit: true}, "1 hedge err"},
		{"neither response nor error", scripted.Step{Do: func(*http.Request) (*http.Response, error) { return nil, nil }}, "1 hedge err"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			craceModes(t, func(t *testing.T, detach bool) {
				t.Helper()
				var events craceLog
				hedge := tt.step
				hedge.After = 200 * time.Millisecond
				base := scripted.New(scripted.Step{After: 2 * time.Second, Body: "fine"}, hedge)
				tr := craceNew(t, hedgerow.Config{Base: base, Detach: detach, Hooks: events.hooks()})
				require.Equal(t, craceAnswer{Status: 200, Body: "fine", At: 2 * time.Second},
					craceCall(tr, base.NewRequest(t, http.MethodPut, craceURL, "payload").WithContext(
						hedgerow.WithCall(t.Context(), hedgerow.Call{Idempotent: true}))))
				synctest.Wait()
				base.Check(t)
				require.Equal(t, []string{"0 primary 200 won", tt.end}, events.ends())
				for _, r := range base.Records() {
					require.Equal(t, tt.step.Do == nil || r.Request == base.Records()[0].Request, string(r.Body) == "payload")
				}
				require.NoError(t, base.Records()[0].Cause, "the primary was not cancelled by the hedge's failure")
			})
		})
	}
}

// The primary's failure is waited out while a hedge is in flight, and is the outcome when all have failed.
func TestC65PrimaryFailsWhileAHedgeRuns(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		primary scripted.Step
		hedge   scripted.Step
		want    craceAnswer
		ends    []string
	}{
		{
			"error, then 200",
			scripted.Step{Err: errCrace},
			scripted.Step{Body: "hedge"},
			craceAnswer{Status: 200, Body: "hedge", At: 3 * time.Second},
			[]string{"0 primary err", "1 hedge 200 won"},
		},
		{
			"503, then 200",
			scripted.Step{Status: 503, Body: "sorry"},
			scripted.Step{Body: "hedge"},
			craceAnswer{Status: 200, Body: "hedge", At: 3 * time.Second},
			[]string{"0 primary 503", "1 hedge 200 won"},
		},
		{
			"503, then error",
			scripted.Step{Status: 503, Body: "sorry"},
			scripted.Step{Err: errCrace},
			craceAnswer{Status: 503, Body: "sorry", At: 3 * time.Second},
			[]string{"0 primary 503 won", "1 hedge err"},
		},
		{
			"error, then 503",
			scripted.Step{Err: errCrace},
			scripted.Step{Status: 503, Body: "sorry"},
			craceAnswer{Err: errCrace, At: 3 * time.Second},
			[]string{"0 primary err won", "1 hedge 503"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			craceModes(t, func(t *testing.T, detach bool) {
				t.Helper()
				var events craceLog
				primary, hedge := tt.primary, tt.hedge
				primary.After, hedge.After = 1500*time.Millisecond, 2*time.Second
				base := scripted.New(primary, hedge)
				tr := craceNew(t, hedgerow.Config{Base: base, Detach: detach, Hooks: events.hooks()})
				require.Equal(t, tt.want, craceCall(tr, base.NewRequest(t, http.MethodGet, craceURL, "")))
				synctest.Wait()
				base.Check(t)
				require.Equal(t, tt.ends, events.ends())
			})
		})
	}
}

// An attempt that is being judged when the race is decided shares nothing with the caller. Run with -race.
func TestC62JudgedWhileTheRaceEnds(t *testing.T) {
	t.Parallel()
	craceModes(t, func(t *testing.T, detach bool) {
		t.Helper()
		base := scripted.New(
			scripted.Step{After: 1500 * time.Millisecond, Body: "primary"}, scripted.Step{Body: "hedge", Header: http.Header{"X-Slow": {"1"}}})
		tr := craceNew(t, hedgerow.Config{
			Base: base, Detach: detach,
			Hedge: hedgerow.HedgeConfig{Accept: func(r *http.Response) bool {
				if r.Header.Get("X-Slow") != "" {
					time.Sleep(time.Second)
				}
				return true
			}},
		})
		require.Equal(t, craceAnswer{Status: 200, Body: "primary", At: 1500 * time.Millisecond},
			craceCall(tr, base.NewRequest(t, http.MethodGet, craceURL, "")))
		time.Sleep(2 * time.Second)
		base.Check(t)
	})
}

// The bubble of each scenario ends right after Body.Close: what it leaves running must end by itself.
func TestC70NothingRunsAfterTheEnd(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	for _, tt := range []struct {
		name  string
		steps []scripted.Step
	}{
		{"no hedge", []scripted.Step{{Body: "x"}}},
		{"hedge wins", []scripted.Step{{After: hour}, {Body: "x"}}},
		{"primary wins", []scripted.Step{{After: 1500 * time.Millisecond, Body: "x"}, {After: hour}}},
		{"second hedge wins", []scripted.Step{{After: hour}, {After: hour}, {Body: "x"}}},
		{"all fail", []scripted.Step{{After: 4 * time.Second, Err: errCrace}, {Err: errCrace}, {Status: 503}}},
		{"loser's body never comes", []scripted.Step{{After: 3 * time.Second}, {Status: 503, BodyAfter: hour, Body: "x"}, {After: hour}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			craceModes(t, func(t *testing.T, detach bool) {
				t.Helper()
				base := scripted.New(tt.steps...)
				tr := craceNew(t, hedgerow.Config{Base: base, Detach: detach, Hedge: hedgerow.HedgeConfig{MaxHedges: 2}})
				start := time.Now()
				resp, err := tr.RoundTrip(base.NewRequest(t, http.MethodGet, craceURL, ""))
				require.Less(t, time.Since(start), 5*time.Second)
				if err == nil {
					require.NoError(t, resp.Body.Close())
				}
				ended := time.Now()
				// Runs when the bubble's last goroutine has ended.
				t.Cleanup(func() {
					synctest.Wait()
					base.Check(t)
					require.Less(t, time.Since(ended), time.Second)
				})
			})
		})
	}
}

func TestC72UpgradesConnectAndTrailersAreNotHedged(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(*http.Request)
		reason hedgerow.SkipReason
	}{
		{"Connection: Upgrade", func(r *http.Request) {
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "websocket")
		}, hedgerow.SkipUpgrade},
		{"Connection with more", func(r *http.Request) { r.Header.Set("Connection", "keep-alive, upgrade") }, hedgerow.SkipUpgrade},
		{"odd spelling", func(r *http.Request) { r.Header["uPGRADE"] = []string{"h2c"} }, hedgerow.SkipUpgrade},
		{"trailers", func(r *http.Request) { r.Trailer = http.Header{"X-Sum": nil} }, hedgerow.SkipUpgrade},
		{"CONNECT", func(r *http.Request) { r.Method = http.MethodConnect }, hedgerow.SkipMethod},
		{"CONNECT, declared idempotent", func(r *http.Request) {
			r.Method = http.MethodConnect
			*r = *r.WithContext(hedgerow.WithCall(r.Context(), hedgerow.Call{Idempotent: true}))
		}, hedgerow.SkipUpgrade},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			craceModes(t, func(t *testing.T, detach bool) {
				t.Helper()
				var events craceLog
				base := scripted.New(scripted.Step{After: 10 * time.Second, Body: "x"})
				tr := craceNew(t, hedgerow.Config{Base: base, Detach: detach, Hooks: events.hooks()})
				req := base.NewRequest(t, http.MethodGet, craceURL, "")
				tt.change(req)
				require.Equal(t, craceAnswer{Status: 200, Body: "x", At: 10 * time.Second}, craceCall(tr, req))
				require.Len(t, base.Records(), 1)
				require.Equal(t, []hedgerow.SkipReason{tt.reason}, events.reasons())
				base.Check(t)
			})
		})
	}
}

// craceStream is a response body that has no end, and comes a piece at a time.
type craceStream struct {
	every  time.Duration // between pieces; 0: at once
	piece  int
	deaf   bool // Close does not wake a Read
	closed chan struct{}
	once   sync.Once

	mu   sync.Mutex
	read int
}

func newCraceStream(every time.Duration, piece int, deaf bool) *craceStream {
	return &craceStream{every: every, piece: piece, deaf: deaf, closed: make(chan struct{})}
}

func (s *craceStream) Read(p []byte) (int, error) {
	closed := s.closed
	if s.deaf {
		closed = nil
	}
	select {
	case <-closed:
		return 0, http.ErrBodyReadAfterClose
	case <-time.After(s.every):
	}
	n := min(len(p), s.piece)
	copy(p, strings.Repeat("x", n))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read += n
	return n, nil
}

func (s *craceStream) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

func (s *craceStream) total() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read
}

// craceCrashBody panics when it is read.
type craceCrashBody struct{}

func (craceCrashBody) Read([]byte) (int, error) { panic("body") }
func (craceCrashBody) Close() error             { return nil }

// A body that nobody wants is read in the background, where its panic would end the process.
func TestC74LosingBodyPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := scripted.New(
			scripted.Step{After: 3 * time.Second, Body: "fine"}, scripted.Step{Status: 503, BodyReader: craceCrashBody{}})
		tr := craceNew(t, hedgerow.Config{Base: base})
		a := craceCall(tr, base.NewRequest(t, http.MethodGet, craceURL, ""))
		require.Equal(t, "fine", a.Body)
	})
}
