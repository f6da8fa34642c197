package hedgerow

import (
	"context"
	"time"
)

// A Call holds what one call wants that differs from its endpoint's configuration. The zero value wants nothing. It
// travels in the request's context: see [WithCall]. What a layer beneath sends besides with that context, such as a request for
// a token, is told by another method or another last segment of its path: it is a call of its own, to which the Call does not
// apply, and no part of a race.
type Call struct {
	// Endpoint is the name of a registered endpoint to use instead of matching the request against the patterns;
	// default "": match. With a name that is not registered the call fails with [ErrUnknownEndpoint]: the request
	// body is closed and nothing is sent.
	Endpoint string
	// NoHedge keeps this call from being hedged, which counts as [SkipDisabled]; default false.
	NoHedge bool
	// Delay is the hedge delay of this call; zero: the endpoint's. A positive one is floored at
	// [HedgeConfig].MinDelay and not capped by MaxDelay; a negative one counts as not set.
	Delay time.Duration
	// Idempotent declares that this call may be sent more than once, whatever its method; default false.
	Idempotent bool
	// Wait is the longest total time the call waits for a resource of a pool; zero: the pool's own; negative: none.
	Wait time.Duration
	// Affinity makes a pool's first pick for this call: the same resource for the same string, while it is eligible. Further
	// attempts go by the strategy. "" is the default: the first one does as well.
	Affinity string
	// ScopeKey is the scope key of the call in a pool; "" is the default: that of [PoolConfig].ScopeOf.
	ScopeKey string
	// Done is called once per RoundTrip of a Transport, before it returns, also when nothing was sent; default nil. It may run
	// concurrently when several calls share the context, and a panic in it is treated like a hook's: see [Hooks].
	Done func(CallInfo)
}

// A CallInfo says how one call went.
type CallInfo struct {
	// Endpoint and Host are those of the call, as in [EndpointKey].
	Endpoint, Host string
	// Attempts is how many attempts were sent, of nested pools by the outermost; zero: the call was refused, its caller was gone
	// before, or each attempt failed before it was sent.
	Attempts int
	// Winner is the attempt whose response or error was returned. It is the zero Attempt, which reads as a primary, if there is
	// none, because nothing was sent, or because the caller gave up while the call waited on its own.
	Winner Attempt
	// Delay is the hedge delay in force; zero: the call could not be hedged.
	Delay time.Duration
}

// An Attempt identifies one send through the base transport on behalf of a call.
type Attempt struct {
	// Number counts the attempts of the call; 0 is the primary. Beneath a pool that is beneath another pool it may repeat.
	Number int
	// Kind says why the attempt was started.
	Kind AttemptKind
	// Endpoint is the name of the call's endpoint; "" for unmatched calls.
	Endpoint string
	// Pool and Resource name what carries the attempt; both are "" without a pool. Of nested pools it is the nearest to who asks
	// by [AttemptFromContext], and the outermost for hooks and [CallInfo].
	Pool, Resource string
}

// An AttemptKind says why an attempt was started.
type AttemptKind int

const (
	// AttemptPrimary is the first attempt of a call.
	AttemptPrimary AttemptKind = iota
	// AttemptHedge was started while another attempt of its call was in flight.
	AttemptHedge
	// AttemptRetry was started after another attempt of its call ended badly.
	AttemptRetry
)

// String returns primary, hedge or retry.
func (k AttemptKind) String() string {
	return enumName("AttemptKind", int(k), "primary", "hedge", "retry")
}

// MarshalText returns what String returns.
func (k AttemptKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// The keys under which the context of a call, and that of each attempt, carry their values.
type (
	callKey    struct{}
	attemptKey struct{}
)

// WithCall returns a context whose requests are calls as c says. It replaces a Call that ctx already carries, as a whole.
func WithCall(ctx context.Context, c Call) context.Context {
	return context.WithValue(ctx, callKey{}, &c)
}

// CallFromContext returns the Call that ctx carries, and whether it carries one.
func CallFromContext(ctx context.Context) (Call, bool) {
	if c := callFrom(ctx); c != nil {
		return *c, true
	}
	return Call{}, false
}

func callFrom(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}

// AttemptFromContext returns the attempt that ctx belongs to, and whether it belongs to one. Layers between the
// Transport and the wire use it to tell a hedge from a primary: a rate limiter may want to charge for it, a tracer to
// name it. A call that cannot be hedged reaches an [http.Transport] as the caller's own request, which carries none.
func AttemptFromContext(ctx context.Context) (Attempt, bool) {
	if m := markFrom(ctx); m != nil {
		return m.id(), true
	}
	return Attempt{}, false
}
