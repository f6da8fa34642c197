package hedgerow_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// circuitBed is a Transport whose base fails and dawdles as the path of each request says: /fail answers 500, /broken
// an error, /limited 429, /busy 503, /slow 200 after a second and a half, so that it asks for a hedge, which answers at
// once; everything else 200 at once. A "hint" in the query is the Retry-After.
type circuitBed struct {
	*hedgerow.Transport

	log  *craceLog
	base *scripted.Transport
}

func newCircuitBed(t *testing.T, cfg hedgerow.Config) *circuitBed {
	t.Helper()
	b := &circuitBed{log: &craceLog{}}
	b.base = scripted.Func(func(_ int, req *http.Request) scripted.Step {
		step := scripted.Step{Body: "x"}
		a, _ := hedgerow.AttemptFromContext(req.Context())
		switch req.URL.Path {
		case "/fail":
			step.Status = 500
		case "/broken":
			step = scripted.Step{Err: errCrace}
		case "/limited":
			step.Status = 429
		case "/busy":
			step.Status = 503
		case "/slow":
			if a.Number == 0 {
				step.After = 1500 * time.Millisecond
			}
		case "/hangs":
			step.After = time.Hour
		}
		if hint := req.URL.Query().Get("hint"); hint != "" {
			step.Header = http.Header{"Retry-After": {hint}}
		}
		return step
	})
	cfg.Base, cfg.Hooks = b.base, b.log.hooks()
	b.Transport = craceNew(t, cfg)
	t.Cleanup(func() {
		synctest.Wait()
		b.base.Check(t)
	})
	return b
}

func (b *circuitBed) get(t *testing.T, path string) craceAnswer {
	t.Helper()
	return craceCall(b, b.base.NewRequest(t, http.MethodGet, "http://api.test"+path, ""))
}

// hedged reports whether a slow call gets its hedge, and if not why.
func (b *circuitBed) hedged(t *testing.T) (fired bool, reasons []hedgerow.SkipReason) {
	t.Helper()
	b.log.mu.Lock()
	hedges, skips := len(b.log.fired), len(b.log.skipped)
	b.log.mu.Unlock()
	require.Equal(t, 200, b.get(t, "/slow").Status, "the primary is never touched")
	return len(b.log.fired) > hedges, b.log.reasons()[skips:]
}

// circuits returns the states of the circuits of the host and of an endpoint, and checks that Stats agrees.
func (b *circuitBed) circuits(t *testing.T, endpoint string) (host, ep hedgerow.CircuitState) {
	t.Helper()
	key := hedgerow.EndpointKey{Name: endpoint, Host: "api.test"}
	host, ep = b.Circuit(hedgerow.CircuitHost, key), b.Circuit(hedgerow.CircuitEndpoint, key)
	stats := b.Stats()
	require.Equal(t, host, stats.Hosts["api.test"].Circuit)
	require.Equal(t, ep, stats.Endpoints[key].Circuit)
	return host, ep
}

func circuitMove(scope hedgerow.CircuitScope, from, to hedgerow.CircuitState) hedgerow.CircuitEvent {
	return hedgerow.CircuitEvent{Scope: scope, Host: "api.test", From: from, To: to}
}

func TestCircuitSuppressesHedgesAndComesBack(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/fail", "/broken"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newCircuitBed(t, hedgerow.Config{Breaker: hedgerow.BreakerConfig{
					MinSamples: 4, Cooldown: time.Minute, Window: time.Hour, HalfOpenTrials: 2,
				}})
				fired, reasons := b.hedged(t) // a success, whose losing primary counts nowhere
				require.True(t, fired)
				require.Empty(t, reasons)
				require.Empty(t, b.log.moves)
				for range 3 {
					b.get(t, path)
				}
				host, ep := b.circuits(t, "")
				require.Equal(t, hedgerow.CircuitOpen, host)
				require.Equal(t, hedgerow.CircuitOpen, ep)
				require.Equal(t, []hedgerow.CircuitEvent{
					circuitMove(hedgerow.CircuitHost, hedgerow.CircuitClosed, hedgerow.CircuitOpen),
					circuitMove(hedgerow.CircuitEndpoint, hedgerow.CircuitClosed, hedgerow.CircuitOpen),
				}, b.log.moves)

				fired, reasons = b.hedged(t)
				require.False(t, fired)
				require.Equal(t, []hedgerow.SkipReason{hedgerow.SkipCircuit}, reasons)
				require.Len(t, b.log.moves, 2)

				time.Sleep(time.Minute)
				host, ep = b.circuits(t, "")
				require.Equal(t, hedgerow.CircuitHalfOpen, host, "as of now")
				require.Equal(t, hedgerow.CircuitHalfOpen, ep)
				require.Len(t, b.log.moves, 2, "reading is no transition")

				fired, reasons = b.hedged(t) // the hedge is a trial, and succeeds
				require.True(t, fired)
				require.Empty(t, reasons)
				b.get(t, "/") // a primary counts as well
				host, ep = b.circuits(t, "")
				require.Equal(t, hedgerow.CircuitClosed, host)
				require.Equal(t, hedgerow.CircuitClosed, ep)
				require.Equal(t, []hedgerow.CircuitEvent{
					circuitMove(hedgerow.CircuitHost, hedgerow.CircuitOpen, hedgerow.CircuitHalfOpen),
					circuitMove(hedgerow.CircuitEndpoint, hedgerow.CircuitOpen, hedgerow.CircuitHalfOpen),
					circuitMove(hedgerow.CircuitHost, hedgerow.CircuitHalfOpen, hedgerow.CircuitClosed),
					circuitMove(hedgerow.CircuitEndpoint, hedgerow.CircuitHalfOpen, hedgerow.CircuitClosed),
				}, b.log.moves[2:])
			})
		})
	}
}

func TestCircuitReopens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newCircuitBed(t, hedgerow.Config{Breaker: hedgerow.BreakerConfig{
			MinSamples: 2, Cooldown: 10 * time.Second, HalfOpenTrials: 2,
		}})
		b.get(t, "/fail")
		b.get(t, "/fail")
		time.Sleep(10 * time.Second)
		b.get(t, "/fail")
		b.get(t, "/fail")
		host, ep := b.circuits(t, "")
		require.Equal(t, hedgerow.CircuitOpen, host)
		require.Equal(t, hedgerow.CircuitOpen, ep)
		time.Sleep(10*time.Second - time.Nanosecond)
		host, _ = b.circuits(t, "")
		require.Equal(t, hedgerow.CircuitOpen, host, "a whole cooldown again")
		time.Sleep(time.Nanosecond)
		host, _ = b.circuits(t, "")
		require.Equal(t, hedgerow.CircuitHalfOpen, host)
	})
}

// What is no fault of the host opens no circuit.
func TestCircuitCountsOnlyWhatRanToItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newCircuitBed(t, hedgerow.Config{Breaker: hedgerow.BreakerConfig{MinSamples: 1, ErrorRateThreshold: 0.01}})
		for _, path := range []string{"/", "/limited", "/slow"} {
			b.get(t, path)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second, cancel)
		craceCall(b, b.base.NewRequest(t, http.MethodGet, "http://api.test/hangs", "").WithContext(ctx))
		require.Empty(t, b.log.moves)

		ctx, cancel = context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		craceCall(b, b.base.NewRequest(t, http.MethodGet, "http://api.test/hangs", "").WithContext(ctx))
		require.Len(t, b.log.moves, 2, "a caller's deadline is a failure")
	})
}

// An endpoint's circuit is its own; that of the host is everybody's.
func TestCircuitScopes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name         string
		host, ep     hedgerow.BreakerConfig
		other        hedgerow.SkipReason
		otherSkipped bool
	}{
		{"endpoint", hedgerow.BreakerConfig{Disabled: true}, hedgerow.BreakerConfig{MinSamples: 3}, 0, false},
		{"host", hedgerow.BreakerConfig{MinSamples: 3}, hedgerow.BreakerConfig{Disabled: true}, hedgerow.SkipCircuit, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newCircuitBed(t, hedgerow.Config{Breaker: tt.host})
				cfg := hedgerow.EndpointConfig{Name: "failing", Breaker: &tt.ep}
				require.NoError(t, b.Register("/fail", cfg))
				cfg = hedgerow.EndpointConfig{Name: "slow", Breaker: &tt.ep}
				require.NoError(t, b.Register("/slow", cfg))
				for range 3 {
					b.get(t, "/fail")
				}
				require.Len(t, b.log.moves, 1)
				require.Equal(t, tt.host.Disabled, b.log.moves[0].Scope == hedgerow.CircuitEndpoint)
				require.Equal(t, tt.host.Disabled, b.log.moves[0].Endpoint == "failing")
				fired, reasons := b.hedged(t)
				require.Equal(t, !tt.otherSkipped, fired)
				if tt.otherSkipped {
					require.Equal(t, []hedgerow.SkipReason{tt.other}, reasons)
				}
				// Another host has nothing to do with it.
				a := craceCall(b, b.base.NewRequest(t, http.MethodGet, "http://other.test/slow", ""))
				require.Equal(t, time.Second, a.At)
			})
		})
	}
}

func TestCircuitFailFast(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		host, ep hedgerow.BreakerConfig
		want     hedgerow.CircuitOpenError
	}{
		{
			"host",
			hedgerow.BreakerConfig{FailFast: true},
			hedgerow.BreakerConfig{},
			hedgerow.CircuitOpenError{Scope: hedgerow.CircuitHost, Host: "api.test"},
		},
		{
			"endpoint",
			hedgerow.BreakerConfig{},
			hedgerow.BreakerConfig{FailFast: true},
			hedgerow.CircuitOpenError{Scope: hedgerow.CircuitEndpoint, Endpoint: "all", Host: "api.test"},
		},
		{
			"both",
			hedgerow.BreakerConfig{FailFast: true},
			hedgerow.BreakerConfig{FailFast: true},
			hedgerow.CircuitOpenError{Scope: hedgerow.CircuitHost, Host: "api.test"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for _, c := range []*hedgerow.BreakerConfig{&tt.host, &tt.ep} {
					c.MinSamples, c.Cooldown, c.HalfOpenTrials = 2, 10*time.Second, 2
				}
				b := newCircuitBed(t, hedgerow.Config{Breaker: tt.host})
				require.NoError(t, b.Register("/{rest...}", hedgerow.EndpointConfig{Name: "all", Breaker: &tt.ep}))
				b.get(t, "/broken")
				b.get(t, "/broken")
				tt.want.Until = time.Now().Add(10 * time.Second)
				time.Sleep(time.Second)

				var infos []hedgerow.CallInfo
				ctx := hedgerow.WithCall(t.Context(), hedgerow.Call{Done: func(i hedgerow.CallInfo) { infos = append(infos, i) }})
				req := b.base.NewRequest(t, http.MethodPost, "http://api.test/", "payload").WithContext(ctx)
				_, err := b.RoundTrip(req)
				require.ErrorIs(t, err, hedgerow.ErrCircuitOpen)
				var open *hedgerow.CircuitOpenError
				require.ErrorAs(t, err, &open)
				require.Equal(t, tt.want, *open)
				require.Len(t, b.base.Records(), 2)
				require.Equal(t, []hedgerow.CallInfo{{Endpoint: "all", Host: "api.test"}}, infos)
				require.Equal(t, 0, b.base.Bodies()[0].Reads())
				require.Equal(t, 1, b.base.Bodies()[0].Closes())
				require.EqualValues(t, 3, b.Stats().Total.Requests)
				require.EqualValues(t, 3, b.Stats().Total.Errors)
				require.Len(t, b.log.done, 2)

				// Half-open: two calls are let in; a third is refused while they run, without a time to say.
				time.Sleep(9 * time.Second)
				running, cancel := context.WithCancel(t.Context())
				ended := make(chan craceAnswer, 2)
				for range 2 {
					req := b.base.NewRequest(t, http.MethodPost, "http://api.test/hangs", "").WithContext(running)
					go func() { ended <- craceCall(b, req) }()
				}
				synctest.Wait()
				_, err = b.RoundTrip(b.base.NewRequest(t, http.MethodGet, "http://api.test/", ""))
				require.ErrorAs(t, err, &open)
				tt.want.Until = time.Time{}
				require.Equal(t, tt.want, *open)

				// The callers cancel these trials, which gives their places to others.
				cancel()
				require.Error(t, (<-ended).Err)
				require.Error(t, (<-ended).Err)
				require.Equal(t, 200, b.get(t, "/").Status)
				require.Equal(t, 200, b.get(t, "/").Status)
				host, ep := b.circuits(t, "all")
				require.Equal(t, hedgerow.CircuitClosed, host)
				require.Equal(t, hedgerow.CircuitClosed, ep)
			})
		})
	}
}

// A hedge that is a trial and is cancelled gives its place to another.
func TestCircuitCancelledTrialFreesItsPlace(t *testing.T) {
	t.Parallel()
	craceModes(t, func(t *testing.T, detach bool) {
		t.Helper()
		b := newCircuitBed(t, hedgerow.Config{
			Detach:  detach,
			Breaker: hedgerow.BreakerConfig{MinSamples: 1, Cooldown: 10 * time.Second, HalfOpenTrials: 2},
		})
		b.get(t, "/fail")
		time.Sleep(10 * time.Second)
		for range 5 { // more than there are places
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(1200*time.Millisecond, cancel)
			a := craceCall(b, b.base.NewRequest(t, http.MethodGet, "http://api.test/hangs", "").WithContext(ctx))
			require.ErrorIs(t, a.Err, context.Canceled)
			synctest.Wait()
		}
		require.Empty(t, b.log.reasons())
		require.Len(t, b.log.fired, 5)
		host, ep := b.circuits(t, "")
		require.Equal(t, hedgerow.CircuitHalfOpen, host)
		require.Equal(t, hedgerow.CircuitHalfOpen, ep)
		require.Len(t, b.log.moves, 4)
	})
}
