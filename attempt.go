package hedgerow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"
)

// What is read of a response that nobody wants, so that HTTP/1.1 can use its connection again.
const (
	drainBytes = 4 << 10
	drainTime  = 5 * time.Millisecond
)

// An attempt is one send through the base transport. It is the context of its request as well: that of the call, which
// the attempt can end by itself, and with the attempt in it. Its fields are written by the goroutine that sends it;
// others read the outcome once that goroutine has delivered it under the mutex of its race.
//
// Attempts are kept small, because every call that may be hedged allocates one.
type attempt struct {
	context.Context //nolint:containedctx // it is one

	cancel  context.CancelCauseFunc
	ep      *endpoint
	carrier carrier // the call
	note    *note   // what a pool beneath says of it; guarded by the flight's mutex
	req     *http.Request
	reqBody *sentBody     // nil: no body, or one in memory of a call that is not hedged
	trial   *trial        // in the circuits; nil: it has no places there
	began   time.Duration // from the start of the call

	// The outcome: one of resp and err is set.
	heard *note // what the pool had said by then; nil: there is none
	resp  *http.Response
	err   error
	ended time.Duration // from the start of the call
	body  responseBody  // around resp.Body, which it closes once

	number     atomic.Int32 // layers may ask for it when it changes: see [race.bypassed]
	hedge      bool         // else it is the primary
	declared   bool         // the call may be sent more than once, whatever its method
	placed     bool         // a hedge: it was counted; the primary: a pool has passed it on; does not change once the race is over
	acceptable bool         // it may win while others are in flight
	failure    failure
	broken     bool          // the response body failed before its first byte
	badBody    bool          // the request body could not be read, which says nothing of the host
	delivered  bool          // the race has the outcome
	announce   func(Attempt) // tells the hooks of a hedge that is sent
	discarded  bool          // the primary: conclude has begun to discard it
	peeking    atomic.Bool   // body is being read for its first byte
}

// Value returns the attempt for the key that it has in contexts, else what the context of the call has.
func (a *attempt) Value(key any) any {
	if key == (attemptKey{}) {
		return a
	}
	return a.Context.Value(key)
}

// Format writes what kind of context it is, for every verb and flag, and nothing of the call.
func (a *attempt) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "hedgerow.attempt") }

// id returns the attempt as others see it.
func (a *attempt) id() Attempt {
	id := Attempt{Number: int(a.number.Load()), Endpoint: a.ep.key.Name}
	if a.hedge {
		id.Kind = AttemptHedge
	}
	return id
}

// who returns the attempt as it was sent by the pool beneath, if there is one.
func (a *attempt) who() Attempt {
	if a.heard == nil || a.heard.sentAt.IsZero() {
		return a.id()
	}
	return a.heard.sent
}

// unsent reports whether the attempt has ended in the pool beneath and nothing was sent.
func (a *attempt) unsent() bool { return a.beside() && (a.err != nil || a.refused()) }

// beside reports whether a pool beneath has sent nothing of the attempt. Its response may be that of a layer between.
func (a *attempt) beside() bool { return a.heard != nil && a.heard.sentAt.IsZero() }

// refused reports whether the response is one after which a pool beneath sends calls elsewhere, and not that of a layer
// between which makes up for it.
func (a *attempt) refused() bool {
	return a.heard != nil && a.heard.refused > 0 && a.resp != nil && a.heard.refused == a.resp.StatusCode
}

func (a *attempt) mayRepeat() bool { return a.declared }

func (a *attempt) identity() identity { return a.carrier.identity() }

func (a *attempt) race() (*attempt, int) { return a, 0 }

// begin gives the attempt its context, a child of the call's.
func (a *attempt) begin(ctx context.Context) {
	a.Context, a.cancel = context.WithCancelCause(ctx)
}

// own takes over the body of the attempt's request, so that it can be ended by closing it. One in memory too, although it
// costs a packet (see inOnePacket): a loser may read it when RoundTrip has returned, and the bytes are the caller's again.
func (a *attempt) own(req *http.Request) {
	a.req = req
	if hasBody(req) {
		a.reqBody = newSentBody(a, req)
		a.reqBody.take(req)
	}
}

// run makes the attempt. A panic of the base transport passes through.
func (a *attempt) run(base http.RoundTripper) {
	a.resp, a.err = outcome(carry(base, a.req)) //nolint:bodyclose // the race closes it, or its caller
	a.err = ownError(a, a.err)
	a.badBody = a.reqBody != nil && a.reqBody.failed.Load()
	if a.resp != nil {
		a.body.rc, a.body.cancel = a.resp.Body, a.cancel
		if a.reqBody != nil { // else without over: a method value is an allocation
			a.body.cancel = a.over
		}
	}
}

// over ends the attempt's context with the response body: if that has come to its end, when the request body has as well.
func (a *attempt) over(cause error) {
	if a.body.whole {
		a.reqBody.afterwards(a.cancel)
	} else {
		a.cancel(cause)
	}
}

// outcome returns what a base transport returned, or an error if that was no response or one that came with an error.
func outcome(resp *http.Response, err error) (*http.Response, error) {
	switch {
	case err != nil:
		if resp != nil && resp.Body != nil {
			_ = resp.Body.Close() // the error is what counts
		}
		return nil, err
	case resp == nil:
		return nil, errNoOutcome
	}
	return resp, nil
}

// ownError returns err, of an attempt whose context is ctx, or an error of its own if err is that of another attempt's
// cancellation: over HTTP/1.1 a connection that was just given to the one may be closed by the end of the other, the
// cause of which net/http then returns to both.
func ownError(ctx context.Context, err error) error {
	if err != nil && errors.Is(err, ErrSuperseded) && !errors.Is(context.Cause(ctx), ErrSuperseded) {
		return errBystander
	}
	return err
}

// firstByte waits for the first byte of the response body, or its end, and returns how else the body failed. What was
// read is still to be read by the caller. It returns when the attempt is superseded.
func (a *attempt) firstByte() error {
	if bodiless(a.resp) {
		return nil
	}
	a.peeking.Store(true)
	if err := a.Err(); err != nil { // superseded before it could see that this reads
		return err
	}
	_, err := a.body.peek(1)
	return err
}

// breaks takes in how the response body failed before its first byte, if it did.
func (a *attempt) breaks(err error) {
	if err != nil {
		a.acceptable, a.broken = false, true
		a.failure = failure{host: true, endpoint: true}
	}
}

// supersede ends an attempt that another one has made superfluous: its context, and what a base that ignores it may
// block on. The goroutine that runs the attempt does the rest when it comes back.
func (a *attempt) supersede() {
	a.cancel(ErrSuperseded)
	if a.reqBody != nil {
		a.reqBody.end()
	}
	if a.peeking.Load() {
		go closeQuietly(&a.body)
	}
}

// discard ends a response that nobody wants. A little of it is read, so that its connection can be used again, unless
// the attempt was superseded.
func (a *attempt) discard() {
	if a.resp != nil && a.resp.Body != nil {
		if a.Err() == nil {
			stop := time.AfterFunc(drainTime, a.supersedeBody)
			a.drain()
			stop.Stop()
		}
		closeQuietly(&a.body)
	}
	a.cancel(ErrSuperseded)
}

func (a *attempt) drain() {
	defer ignorePanic() // of a body, which must not end the process
	_, _ = io.CopyN(io.Discard, &a.body, drainBytes)
}

func (a *attempt) supersedeBody() {
	a.cancel(ErrSuperseded)
	closeQuietly(&a.body)
}

// hand makes the attempt's outcome the caller's. The attempt's context ends with the response body, see over. plain says that
// the base is an http.Transport.
func (a *attempt) hand(req *http.Request, plain bool) (*http.Response, error) {
	if a.err != nil {
		a.cancel(nil)
		return nil, a.err
	}
	a.resp.Request = req
	switch {
	case bodiless(a.resp):
		a.body.end(true)
	case !plain && declaredEmpty(a.resp, req.Method):
		a.body.end(true)
		a.resp.Body = &emptyBody{&a.body}
	default:
		a.resp.Body = &a.body
	}
	return a.resp, nil
}

// panicError is the outcome of a hedge whose base transport panicked with v, of which but the type is told if it may show what a
// pool has put into the request.
func panicError(v any, pooled bool) error {
	if _, bug := v.(runtime.Error); pooled && !bug {
		return fmt.Errorf("hedgerow: base RoundTripper panicked: %T", v)
	}
	return fmt.Errorf("hedgerow: base RoundTripper panicked: %v", v)
}
