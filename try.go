package hedgerow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A try is one attempt on one resource, and the context of its request.
type try struct {
	context.Context //nolint:containedctx // it is one

	walk   *walk
	slot   *slot
	ident  identity
	signed atomic.Pointer[identity] // what the credential has made of it; nil: the same
	cancel context.CancelCauseFunc
	req    http.Request
	value  [1]string   // of the credential's header field
	sent   time.Time   // zero: it was not
	own    *sentBody   // nil: no body, or one that is left as it is
	plain  bool        // an http.Transport carries it
	lost   bool        // another attempt of the call had won before it was sent
	unstop func() bool // stops the release at the end of the caller's context

	naming sync.Mutex // guards the field below, once others have the context
	known  Attempt    // to layers beneath

	resp    *http.Response
	err     error
	end     time.Time
	body    responseBody
	verdict Verdict
}

// Value returns the try for the key that attempts have in contexts, else what the context of the call has.
func (a *try) Value(key any) any {
	if key == (attemptKey{}) {
		return a
	}
	return a.Context.Value(key)
}

// Format writes what kind of context it is, for every verb and flag: it has the credential in it.
func (a *try) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "hedgerow.try") }

func (a *try) id() Attempt {
	a.naming.Lock()
	defer a.naming.Unlock()
	return a.known
}

func (a *try) mayRepeat() bool { return a.walk.replayable }

func (a *try) identity() identity {
	if id := a.signed.Load(); id != nil {
		return *id
	}
	return a.ident
}

func (a *try) race() (*attempt, int) { return a.walk.racing, a.walk.depth + 1 }

// unsent reports whether the attempt has failed before anything was sent, or not been sent yet.
func (a *try) unsent() bool { return a.sent.IsZero() }

// begin starts an attempt on the slot.
func (w *walk) begin(s *slot) *try {
	a := &w.first
	if w.attempts > 0 {
		a = new(try)
	}
	*a = try{walk: w, slot: s}
	a.Context, a.cancel = context.WithCancelCause(w.ctx)
	w.p.mu.Lock()
	s.cancel = a.cancel
	s.cancelled = s.doomed != ActionDefault // before there was a cancel to call
	doomed := s.cancelled
	w.p.mu.Unlock()
	if doomed {
		a.cancel(ErrSuperseded)
	}
	if w.above != nil {
		a.known = w.above.id()
	}
	a.known.Pool, a.known.Resource = w.p.cfg.Name, s.spec.ID
	if w.attempts > 0 {
		a.known.Number += w.attempts
		a.known.Kind = AttemptRetry
	}
	w.now = a
	w.attempts++
	w.tried = append(w.tried, s.m)
	return a
}

// make makes the attempt's request. An error says that its body cannot be had again, so that there is no attempt.
func (a *try) make() error {
	w, s := a.walk, a.slot.spec
	a.req = *w.req.WithContext(a)
	if w.attempts > 1 && hasBody(w.req) {
		a.req.Body = nil // the earlier attempt closes it, and nobody else, if GetBody panics
		body, err := bodyFrom(w.req.GetBody, w.body.all(), nil)
		if err != nil || body == nil {
			a.release(nil)
			w.attempts--
			return errors.Join(err, errNoBody)
		}
		a.req.Body = body
	}
	base := w.via.next
	if s.Base != nil {
		base = s.Base
	}
	_, a.plain = base.(*http.Transport)
	a.req.Header = w.req.Header.Clone()
	if s.Credential.setsAnything() {
		a.req.Trailer = w.req.Trailer.Clone()
	}
	if s.upstream != nil || s.Credential.setsURL() || !a.plain {
		a.address(s)
	}
	if hasBody(&a.req) && !inOnePacket(base, &a.req) {
		a.own = newSentBody(a, &a.req)
		a.own.take(&a.req)
	}
	w.body = a.own
	a.ident = identify(&a.req)
	return nil
}

// address gives the request its URL and Host.
func (a *try) address(s *spec) {
	u := *a.req.URL
	if up := s.upstream; up != nil {
		custom := a.req.Host != "" && a.req.Host != u.Host
		u.Scheme, u.Host, u.User = up.Scheme, up.Host, nil
		if !custom {
			a.req.Host = up.Host
		}
		base := strings.TrimSuffix(up.EscapedPath(), "/")
		if _, authority, ok := strings.Cut(u.Opaque, "//"); ok && strings.HasPrefix(u.Opaque, "//") {
			_, path, _ := strings.Cut(authority, "/") // it names the host of the call
			u.Opaque = "/" + path
		}
		switch {
		case u.Opaque != "": // goes on the wire as it is, in place of the path
			u.Opaque = joinPath(base, u.Opaque)
		case base != "":
			u.RawPath = joinPath(base, u.EscapedPath())
			u.Path, _ = url.PathUnescape(u.RawPath) // both are valid
		}
	}
	a.req.URL = &u
}

// joinPath puts base, which has no slash at its end, in front of path, with one slash between.
func joinPath(base, path string) string {
	if strings.HasPrefix(path, "/") {
		return base + path
	}
	return base + "/" + path
}

// keepHost undoes a Host of the caller's where t goes by a proxy for plain HTTP, which would take the credential there: what
// it is asked for is the Host.
func (a *try) keepHost(t *http.Transport) {
	if a.walk.p.hosts == nil || a.req.URL.Scheme != "http" || t.Proxy == nil ||
		a.req.Host == "" || a.req.Host == a.req.URL.Host {
		return
	}
	if via, err := t.Proxy(&a.req); err == nil && via != nil && strings.HasPrefix(via.Scheme, "http") {
		a.req.Host = a.req.URL.Host
	}
}

// send sets the credential and makes the attempt.
func (a *try) send() {
	w := a.walk
	base, err := w.via.baseFor(a.slot.spec)
	if t, ok := base.(*http.Transport); ok && err == nil {
		w.policy(func() { a.keepHost(t) })
	}
	if err == nil {
		w.policy(func() {
			a.own.lend()
			defer a.own.takeBack(&a.req)
			err = a.slot.spec.Credential.apply(&a.req, &a.value)
		})
		err = ownError(a, err)
		if id := identify(&a.req); id != a.ident {
			a.signed.Store(&id)
		}
		if maps.EqualFunc(a.req.Trailer, w.req.Trailer, slices.Equal) {
			a.req.Trailer = w.req.Trailer // the values may come while the body is read
		}
	}
	if err != nil {
		a.fail(err)
		return
	}
	now := time.Now()
	if w.outer != nil {
		id, may := w.outer.carrier.sending(w.outer, now, a.known.Pool, a.known.Resource)
		if !may { // another attempt of the call has won meanwhile
			w.outer.cancel(ErrSuperseded)
			a.lost = true
			a.fail(ErrSuperseded)
			return
		}
		a.naming.Lock()
		a.known = id
		a.naming.Unlock()
	}
	a.sent = now
	w.sends++
	w.p.noteSent(a)
	a.resp, a.err = outcome(carry(base, &a.req)) //nolint:bodyclose // the walk closes it, or its caller
	a.err = ownError(a, a.err)
	a.end = time.Now()
	if a.resp != nil {
		a.body.rc, a.body.cancel = a.resp.Body, a.over
		a.resp.Request = w.req // the attempt's own has the credential
		if c := a.slot.spec.Credential.load(); c != nil && c.query != "" {
			c.clean(a.resp.Header)
		}
	}
}

// fail ends an attempt before anything was sent.
func (a *try) fail(err error) {
	a.err, a.end = err, time.Now()
	if a.req.Body != nil {
		_ = a.req.Body.Close()
	}
}

// baseFor returns what carries the attempts on a resource.
func (w *pooled) baseFor(s *spec) (http.RoundTripper, error) {
	switch {
	case s.Base != nil:
		return s.Base, nil
	case s.Proxy.IsZero():
		return w.next, nil
	case w.proxied == nil:
		return nil, errProxyBase
	}
	t, made := w.proxied.get(s.Proxy)
	if made {
		w.proxied.keep(w.pool.proxies(s.Proxy))
	}
	return t, nil
}

// judge takes in the outcome of an attempt, and reports whether it is the call's.
func (w *walk) judge(a *try) (done bool) {
	gone, _ := callerGone(w.ctx, w.stopped)
	if a.err == nil {
		cancelled := w.p.commit(a.slot) // before its body is looked at
		if cancelled && !a.buffer() {
			a.resp, a.err = nil, ErrSuperseded // it was cancelled as it came, and is not whole
		}
	}
	if gone && a.err != nil && (errors.Is(a.err, ErrSuperseded) || errors.Is(context.Cause(a), ErrSuperseded)) {
		a.err = goneError(w.ctx) // the caller's own cancellation wins
	}
	switch {
	case a.err == nil:
		a.verdict = w.classify(a)
	case gone, isExhausted(a.err) && !a.unsent():
		a.verdict = Verdict{Action: ActionNeutral}
	case w.p.doom(a.slot) != ActionDefault: // whatever fault of its own it has
		w.sibling = true
		w.moveOn(a)
		w.lastError = &siblingError{action: w.p.doom(a.slot), id: a.slot.spec.ID}
		a.release(nil)
		return false
	case a.isLocal(), a.lost:
		a.verdict = Verdict{Action: ActionNeutral}
	case a.unsent():
		a.verdict = Verdict{Action: ActionRetry}
	default:
		a.verdict = w.classify(a)
	}
	w.p.apply(a, gone)
	if a.verdict.Action == ActionOK || a.verdict.Action == ActionNeutral {
		return true
	}
	w.sibling = false
	w.moveOn(a)
	a.releaseSlot()
	if a.resp != nil {
		w.replaceLast(a)
	}
	w.lastError = a.slot.spec.redact(a.err)
	if a.err != nil {
		a.cancel(nil)
	}
	return false
}

// isLocal reports whether an attempt failed for a reason that lies in the request.
func (a *try) isLocal() bool {
	scheme := a.req.URL.Scheme
	return a.own != nil && a.own.failed.Load() || a.plain && (scheme != "http" && scheme != "https" || unsendable(&a.req))
}

// moveOn tells the Transport above how an attempt has ended whose outcome is not, or not at once, that of the call.
func (w *walk) moveOn(a *try) {
	if a.unsent() || w.outer == nil {
		return
	}
	e := &AttemptEvent{
		Attempt: a.known, Latency: a.end.Sub(a.sent), Err: a.slot.spec.redact(a.err), Superseded: w.sibling,
	}
	if a.resp != nil {
		e.Status = a.resp.StatusCode
	}
	w.tell(func(n *note) { n.done = e })
}

// classify asks the classifiers.
func (w *walk) classify(a *try) Verdict {
	o := Outcome{
		Request: w.req, Response: a.resp, Err: a.err, Attempt: a.known, ScopeKey: w.key, Replayable: w.replayable, Now: a.end,
	}
	if w.p.cfg.Classifier == nil {
		return DefaultClassifier(o)
	}
	var v Verdict
	w.policy(func() {
		if a.resp != nil && w.p.cfg.PeekBody > 0 && !bodiless(a.resp) && w.p.cfg.Peek(a.resp) {
			o.Body, _ = a.body.peek(w.p.cfg.PeekBody) // how it failed the caller will see
		}
		v = w.p.cfg.Classifier(o)
	})
	if v.Action <= ActionDefault || v.Action > ActionDisable {
		return DefaultClassifier(o)
	}
	return v
}

// replaceLast makes the response of a the one that is returned if nothing better comes.
func (w *walk) replaceLast(a *try) {
	if w.last != nil {
		w.last.drop()
	}
	w.last, w.lastCode = a, a.resp.StatusCode
}

// keep makes sure that the last response needs neither its connection nor its place while the next attempt runs. A response that
// is larger or slower than what is kept is forgotten. Over HTTP/1.1 its end waits for that of the upload (for 50 ms in net/http,
// whoever closes it), which cuts it off if it ends early: so the upload is ended when the response should be in.
func (w *walk) keep(upload *sentBody) {
	a := w.last
	if a == nil {
		return
	}
	if upload != nil && a.resp.ProtoMajor < 2 && !bodiless(a.resp) {
		ended := make(chan struct{})
		timer := time.AfterFunc(drainTime/2, func() {
			defer close(ended)
			upload.end()
		})
		defer func() {
			if !timer.Stop() {
				<-ended
			}
		}()
	}
	if !a.buffer() {
		w.last = nil
	}
}

// keepMeanwhile is keep during a pause or a wait, after which there may be no further attempt: nothing is forgotten.
func (w *walk) keepMeanwhile() {
	if a := w.last; a != nil && !bodiless(a.resp) && a.kept() == nil {
		go a.keepBody().readAhead()
	}
}

// buffer reads the response, a little and for a short time, and reports whether it has it all. If not, the response is closed.
func (a *try) buffer() bool {
	if a.resp.Body == nil || a.resp.Body == http.NoBody {
		return true
	}
	k, inTime := a.kept(), true
	if k == nil {
		k = a.keepBody()
		timer := time.AfterFunc(drainTime, func() { _ = k.Close() })
		k.readAhead()
		inTime = timer.Stop()
	}
	whole := inTime && k.whole()
	if !whole {
		closeQuietly(&a.body)
	}
	return whole
}

// kept returns the response body if it is read ahead, else nil.
func (a *try) kept() *keptBody {
	k, _ := a.resp.Body.(*keptBody)
	return k
}

// keepBody makes the response one whose body is read ahead, by a call of readAhead that is to follow.
func (a *try) keepBody() *keptBody {
	ended := func(error) { // unstop is for the caller to use
		a.freeSlot()
		a.cancel(nil)
	}
	k := &keptBody{
		body: &responseBody{rc: a.body.rc, peeked: a.body.peeked, cancel: ended}, ended: make(chan struct{}),
		cancel: a.cancel, from: a.resp, to: new(*a.resp),
	}
	k.to.Body, k.to.Trailer = k, a.resp.Trailer.Clone()
	a.resp = k.to
	a.body = responseBody{rc: k, cancel: a.release}
	return k
}

// drop ends a response that another one has replaced.
func (a *try) drop() {
	if a.resp.Body != nil {
		_ = a.body.Close()
	}
	a.cancel(nil)
}
