package hedgerow

import (
	"context"
	"errors"
	"fmt"
	"time"
)

var (
	// ErrUnknownEndpoint is what a call fails with whose [Call].Endpoint names no registered endpoint. The error
	// returned wraps it and says the name.
	ErrUnknownEndpoint = errors.New("hedgerow: unknown endpoint")

	// ErrCircuitOpen matches every [*CircuitOpenError].
	ErrCircuitOpen = errors.New("hedgerow: circuit open")

	// ErrSuperseded is the cause ([context.Cause]) of the cancellation of an attempt that another one has made
	// superfluous. Layers below the Transport see it on losers; it is never returned to a caller. It matches
	// [context.Canceled], so that what already tells cancellations from failures goes on doing so.
	ErrSuperseded error = supersededError{}
)

// supersededError is the type of ErrSuperseded.
type supersededError struct{}

func (supersededError) Error() string { return "hedgerow: attempt superseded by another one" }

func (supersededError) Is(target error) bool { return target == context.Canceled }

// Faults of a base transport or a request that net/http would report in one way or another.
var (
	errNilRequest = errors.New("hedgerow: nil Request")
	errNilURL     = errors.New("hedgerow: nil Request.URL")
	errNilHeader  = errors.New("hedgerow: nil Request.Header")
	errNoHost     = errors.New("hedgerow: no host in Request.URL")
	errNoOutcome  = errors.New("hedgerow: base RoundTripper returned neither a response nor an error")
	errBodyShared = errors.New("hedgerow: Request.GetBody returned the body that another attempt is sending")
	errBodyClosed = errors.New("hedgerow: read of a request body after Close")
	errBodyFault  = errors.New("hedgerow: response body panicked, or returned an impossible count")
	errBystander  = errors.New("hedgerow: connection closed by the end of another attempt")
	errGoexit     = errors.New("hedgerow: attempt ended by runtime.Goexit in the base RoundTripper")
)

// A CircuitOpenError is what a call fails with that an open circuit refused, which only [BreakerConfig].FailFast makes
// it do. Nothing was sent. It matches [ErrCircuitOpen].
type CircuitOpenError struct {
	// Scope is the circuit's; the host's is named if both are open.
	Scope CircuitScope
	// Endpoint and Host are those of the call, as in [EndpointKey]; Endpoint is "" in the host scope.
	Endpoint, Host string
	// Until is when the circuit's cooldown ends; zero while the circuit waits for the outcome of its trials.
	Until time.Time
}

// Error names the scope, the endpoint and the host, and when the cooldown ends.
func (e *CircuitOpenError) Error() string {
	key := EndpointKey{Name: e.Endpoint, Host: e.Host}
	if e.Until.IsZero() {
		return fmt.Sprintf("hedgerow: circuit open: %s %s: waiting for its trials", e.Scope, key)
	}
	return fmt.Sprintf("hedgerow: circuit open: %s %s: until %s", e.Scope, key, e.Until.Format(time.RFC3339))
}

// Is reports whether target is [ErrCircuitOpen].
func (*CircuitOpenError) Is(target error) bool { return target == ErrCircuitOpen }
