package hedgerow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

var (
	errNoBody    = errors.New("hedgerow: pool: Request.GetBody returned no body")
	errProxyBase = errors.New("hedgerow: pool: a Resource.Proxy needs an http.Transport under the pool; give the resource a Base")
	errUnplaced  = errors.New("hedgerow: pool: no resource that the call does not use yet")
)

// A siblingError says that an attempt was cancelled because its resource cools or is disabled.
type siblingError struct {
	action Action
	id     string
}

func (e *siblingError) Error() string {
	if e.action == ActionDisable {
		return fmt.Sprintf("hedgerow: pool: resource %q was disabled while the attempt ran", e.id)
	}
	return fmt.Sprintf("hedgerow: pool: resource %q went into cooldown while the attempt ran", e.id)
}

// checkLocal returns what net/http would refuse req for, whatever resource it goes to.
func checkLocal(req *http.Request) error {
	if err := checkRequest(req); err != nil {
		return err
	}
	if req.Method != "" && !validToken(req.Method) {
		return fmt.Errorf("hedgerow: invalid method %q", req.Method)
	}
	for name, values := range req.Header {
		if !validToken(name) {
			return fmt.Errorf("hedgerow: invalid header field name %q", name)
		}
		for _, v := range values {
			if !validHeaderValue(v) {
				return fmt.Errorf("hedgerow: invalid value of header field %q", name)
			}
		}
	}
	return nil
}

// isDialError reports whether err came before a connection was there, so that nothing can have been sent. The error of an
// http.Client, which has followed redirects, does not say so.
func isDialError(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) { // not into a joined error, whose parts are of several attempts
		switch e := err.(type) { //nolint:errorlint // one level at a time
		case *url.Error:
			return false
		case *net.OpError:
			return e.Op == "dial" || e.Op == "proxyconnect"
		}
	}
	return false
}

func isExhausted(err error) bool {
	_, ok := errors.AsType[*ExhaustedError](err)
	return ok
}

// noteSent counts a send.
func (p *Pool) noteSent(a *try) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total.Attempts++
	a.slot.m.attempts++
	if a.walk.attempts > 1 {
		p.total.Retries++
	}
}

// commit says that an attempt has its response: siblings leave it alone from here on. It reports whether one has cancelled
// it before.
func (p *Pool) commit(s *slot) (cancelled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.committed = true
	return s.cancelled
}

// doom returns what a sibling has cancelled the attempt for, ActionDefault if none has. A disable takes the place of a
// cooldown.
func (p *Pool) doom(s *slot) Action {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.doomed == ActionCooldown && s.m.disabled {
		return ActionDisable
	}
	return s.doomed
}

// apply takes in the verdict of an attempt, and how long it took.
func (p *Pool) apply(a *try, gone bool) {
	now := a.end
	p.mu.Lock()
	s := a.slot
	m := s.m
	if !a.unsent() && (a.err == nil || gone) {
		m.learnLocked(a.end.Sub(a.sent), a.err != nil, now)
	}
	if gone && a.err != nil && errors.Is(context.Cause(a.walk.ctx), ErrSuperseded) && !a.unsent() {
		m.lagLocked(a.end.Sub(a.sent), now)
	}
	failed := a.err != nil && !errors.Is(a.err, errBystander)
	if a.verdict.Action == ActionRetry || a.verdict.Action == ActionNeutral && a.resp != nil {
		p.probeFailedLocked(m, s, now)
	}
	e := p.judgeLocked(m, s, s.key, a.verdict, failed, now)
	p.mu.Unlock()
	e.run(p)
	p.deliver()
}

// over is the end of the response body: it frees the slot, and ends the attempt's context as [attempt.over] does.
func (a *try) over(cause error) {
	a.releaseSlot()
	if a.body.whole {
		a.own.afterwards(a.cancel)
	} else {
		a.cancel(cause)
	}
}

// release frees the slot and ends the attempt's context.
func (a *try) release(cause error) {
	a.releaseSlot()
	a.cancel(cause)
}

func (a *try) releaseSlot() {
	if a.unstop != nil {
		a.unstop()
	}
	a.freeSlot()
}

func (a *try) freeSlot() { a.walk.p.release(a.slot) }

// release frees a slot, once.
func (p *Pool) release(s *slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.releaseLocked(s)
}

// hand makes the outcome of an attempt the call's.
func (w *walk) hand(a *try) (*http.Response, error) {
	if w.last != nil {
		w.last.drop()
	}
	if a.err != nil {
		a.release(nil)
		w.finishError()
		return nil, a.slot.spec.redact(a.err)
	}
	w.finish(func(t *poolTotals) { t.CallsOK++ })
	a.deliver()
	return a.resp, nil
}

// deliver makes the response the caller's. It holds its slot until the body ends, at the latest until the caller's context
// does. An upgraded connection outlives that context.
func (a *try) deliver() {
	conn, writable := a.resp.Body.(io.ReadWriteCloser)
	switch {
	case writable && a.resp.StatusCode == http.StatusSwitchingProtocols:
		a.resp.Body = upgradedBody(&a.body, conn)
		return
	case bodiless(a.resp):
		a.body.end(true)
		return
	case !a.plain && declaredEmpty(a.resp, a.walk.req.Method):
		a.body.end(true)
		a.resp.Body = &emptyBody{&a.body}
		return
	default:
		a.resp.Body = &a.body
	}
	if ctx := a.walk.ctx; ctx.Done() != nil {
		a.unstop = context.AfterFunc(ctx, a.freeSlot)
	}
}

// stop ends the call without another attempt: with the last response, else with an error.
func (w *walk) stop(why refusal) (*http.Response, error) {
	if gone, _ := callerGone(w.ctx, w.stopped); gone && (w.attempts == 0 || why.reason == 0) {
		return nil, w.gone()
	}
	if w.unplaced() {
		w.closeBody()
		return nil, errUnplaced
	}
	if a := w.last; a != nil {
		w.tell(func(n *note) { n.refused = w.lastCode })
		a.deliver()
		w.finish(func(t *poolTotals) { t.CallsExhausted++ })
		return a.resp, nil
	}
	w.closeBody()
	if w.attempts == 1 && !w.sibling && w.lastError != nil {
		w.finish(func(t *poolTotals) { t.CallsFailed++ })
		return nil, w.lastError
	}
	err := &ExhaustedError{
		Pool: w.p.cfg.Name, Reason: why.reason, Attempts: w.attempts, LastStatus: w.lastCode,
		NextAvailable: why.next, Err: w.lastError, Resources: w.p.Snapshot(),
	}
	w.finish(func(t *poolTotals) { t.CallsExhausted++ })
	if w.p.cfg.Synthetic429 {
		w.tell(func(n *note) { n.refused = http.StatusTooManyRequests })
		return err.response(w.req, time.Now()), nil
	}
	return nil, err
}

// uncertain ends a call that must not be sent again with the error of its latest attempt, which may have reached the server.
func (w *walk) uncertain() (*http.Response, error) {
	if w.last != nil {
		w.last.drop()
		w.last = nil
	}
	w.finish(func(t *poolTotals) { t.CallsFailed++ })
	return nil, w.lastError
}

// refuse ends a call with a local error.
func (w *walk) refuse(err error) error {
	w.closeBody()
	w.finishError()
	return err
}

// finishError ends a call with an error that is not the pool's.
func (w *walk) finishError() {
	gone, _ := callerGone(w.ctx, w.stopped)
	switch {
	case w.unplaced():
	case gone:
		w.finish(func(t *poolTotals) { t.CallsCanceled++ })
	default:
		w.finish(func(t *poolTotals) { t.CallsFailed++ })
	}
}

// unplaced ends a hedge of which nothing was sent, if it is one. It counts nowhere.
func (w *walk) unplaced() bool {
	if !w.isHedge() || w.sends > 0 {
		return false
	}
	var unplaced bool
	w.tell(func(n *note) {
		unplaced = n.sentAt.IsZero() // or a layer between has tried before
		n.unplaced = unplaced
	})
	w.ended = w.ended || unplaced
	return unplaced
}

// gone ends a call whose caller has given up.
func (w *walk) gone() error {
	if w.last != nil {
		w.last.drop()
	}
	w.closeBody()
	w.finishError()
	return goneError(w.ctx)
}

// closeBody closes the caller's request body, unless an attempt has taken it over.
func (w *walk) closeBody() {
	if w.attempts == 0 && w.req.Body != nil {
		_ = w.req.Body.Close()
	}
}

// finish ends the call, and counts it.
func (w *walk) finish(add func(*poolTotals)) {
	w.ended = true
	if w.owes {
		w.p.retry.refund(time.Now())
	}
	w.p.count(add)
}

// upgradedBody returns the body of a 101, whose slot is held until it is closed: an io.ReadWriteCloser, with the CloseWrite
// of conn if that has one.
func upgradedBody(b *responseBody, conn io.ReadWriteCloser) io.ReadCloser {
	if half, ok := conn.(closeWriter); ok {
		return struct {
			*responseBody
			io.Writer
			closeWriter
		}{b, conn, half}
	}
	return struct {
		*responseBody
		io.Writer
	}{b, conn}
}

type closeWriter interface{ CloseWrite() error }
