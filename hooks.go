package hedgerow

import (
	"context"
	"time"
)

// Hooks are functions that a [Transport] calls when something happens. Each may be nil.
//
// They may run concurrently with each other and, for attempts that lost, after RoundTrip returned. They run without any
// lock held, so they may call back into the Transport, but on the path of calls: a hook that blocks makes calls
// slower. A panic in a hook is recovered and changes nothing else. The context is the request's.
type Hooks struct {
	// HedgeFired is called when a hedge is really sent, after every gate and just before; default nil. A call that is decided while
	// it runs has that hedge in its counts, ended as superseded. A hedge that a layer keeps from the pool beneath is told of when
	// it ends.
	HedgeFired func(context.Context, HedgeEvent)
	// HedgeSkipped is called when a call is refused a hedge, or a further one, once per call and reason; also for each call
	// that can never be hedged, such as a plain POST; default nil.
	HedgeSkipped func(context.Context, SkipEvent)
	// CircuitChange is called once per transition of a circuit; default nil. The end of a cooldown is noticed by the next call.
	CircuitChange func(CircuitEvent)
	// AttemptDone is called when an attempt has ended and it is known whether it won, over a pool for each that was sent;
	// default nil.
	AttemptDone func(context.Context, AttemptEvent)
}

// A HedgeEvent is a hedge that is being sent.
type HedgeEvent struct {
	// Endpoint and Host are those of the call, as in [EndpointKey]; Method is the request's, "GET" for "".
	Endpoint, Host, Method string
	// Attempt is the hedge.
	Attempt Attempt
	// Delay is the hedge delay in force; hedge n is sent at n times this delay, or later.
	Delay time.Duration
}

// A SkipEvent is a refusal to hedge a call.
type SkipEvent struct {
	// Endpoint and Host are those of the call, as in [EndpointKey].
	Endpoint, Host string
	// Reason is the gate that refused.
	Reason SkipReason
}

// A CircuitEvent is a transition of a circuit.
type CircuitEvent struct {
	// Scope says which of the circuits of Endpoint and Host it is.
	Scope CircuitScope
	// Endpoint and Host are as in [EndpointKey]; Endpoint is "" in the host scope.
	Endpoint, Host string
	// From and To are the states before and after.
	From, To CircuitState
}

// An AttemptEvent is the end of an attempt: its response's headers (with [SignalFirstByte] the first byte of an
// acceptable one) or its error.
type AttemptEvent struct {
	// Endpoint and Host are those of the call, as in [EndpointKey].
	Endpoint, Host string
	// Attempt is the attempt that ended.
	Attempt Attempt
	// Status is the response's status code; 0 if there was no response.
	Status int
	// Err is what the base transport returned, or nil.
	Err error
	// Latency is the time from the start of the attempt to its end.
	Latency time.Duration
	// Won says that this attempt's response or error was returned; Superseded that it was cancelled because another
	// attempt was faster, or because its resource began to rest. What the caller has cut off is not superseded. A superseded attempt most often ends with
	// an error; one whose headers came all the same, as with [SignalFirstByte], has a Status and no Err.
	Won, Superseded bool
}

func (h *Hooks) hedgeFired(ctx context.Context, e HedgeEvent) {
	if h.HedgeFired != nil {
		defer ignorePanic()
		h.HedgeFired(ctx, e)
	}
}

func (h *Hooks) hedgeSkipped(ctx context.Context, e SkipEvent) {
	if h.HedgeSkipped != nil {
		defer ignorePanic()
		h.HedgeSkipped(ctx, e)
	}
}

func (h *Hooks) circuitChange(e CircuitEvent) {
	if h.CircuitChange != nil {
		defer ignorePanic()
		h.CircuitChange(e)
	}
}

func (h *Hooks) attemptDone(ctx context.Context, e AttemptEvent) {
	if h.AttemptDone != nil {
		defer ignorePanic()
		h.AttemptDone(ctx, e)
	}
}

// ignorePanic, deferred, keeps a panic of a hook from ending the call or the process.
func ignorePanic() { _ = recover() }
