package hedgerow

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// A sentBody is the body of an attempt's request, in all its copies: net/http has one made by GetBody when it sends a request
// again. It can be closed while the base transport reads it, because its attempt is superfluous: an HTTP/1.1 attempt that
// blocks in Read does not see its context end (go.dev/issue/78555). It also remembers whether the body itself has failed.
//
// GetBody is to return a new copy. There are clients whose GetBody rewinds the one reader they have and returns that
// again: see [bodyFrom].
type sentBody struct {
	ctx    context.Context //nolint:containedctx // the attempt's
	want   int64           // its length; not positive: unknown
	own    *requestBody    // the body of the request itself; nil: it was closed before
	gets   chan struct{}   // the turn to call GetBody and to add what it returns; the attempts of a race have one between them
	beside beside          // the rest of the race; nil: there is none
	failed atomic.Bool     // the body itself has, so that the error of its attempt says nothing of the host
	awaits atomic.Bool     // an http.Transport has it, which asks for copies to send them: see afterwards
	final  atomic.Bool     // nothing more is read, and no more copies are made

	mu     sync.Mutex // guards the fields below
	copies []*requestBody
	after  context.CancelCauseFunc // see afterwards; nil: not asked for
}

// beside calls get for a further body of an attempt, with the copies that it has so far, beside the other attempts of its race.
type beside func(get getBody, own []*requestBody) (io.ReadCloser, error)

// getBody is a GetBody.
type getBody func() (io.ReadCloser, error)

// newSentBody returns what the body of req is to be a part of. ctx is the attempt's.
func newSentBody(ctx context.Context, req *http.Request) *sentBody {
	return &sentBody{ctx: ctx, want: req.ContentLength, gets: make(chan struct{}, 1)}
}

// take makes the body of req, and what its GetBody returns, parts of b. req is the attempt's own.
func (b *sentBody) take(req *http.Request) {
	body, err := b.add(req.Body, b.want)
	if err != nil {
		return // it is closed, and so was the body
	}
	b.own, req.Body = body, body
	if get := req.GetBody; get != nil {
		req.GetBody = func() (io.ReadCloser, error) {
			select {
			case b.gets <- struct{}{}:
				defer func() { <-b.gets }()
			case <-b.ctx.Done():
				return nil, context.Cause(b.ctx)
			}
			return b.another(get)
		}
	}
}

// another adds a copy: for a send that follows one which has failed, or to be looked at before. Its turn must be held.
func (b *sentBody) another(get getBody) (rc io.ReadCloser, err error) {
	switch {
	case b.ctx.Err() != nil, b.final.Load():
		return nil, b.ended()
	case b.beside != nil:
		rc, err = b.beside(get, b.all())
	default:
		rc, err = bodyFrom(get, b.all(), nil)
	}
	if err != nil || rc == nil {
		return rc, err
	}
	c, err := b.add(rc, b.want)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// add makes rc, whose length is want, a part of b. An error says that it is closed, because b has ended.
func (b *sentBody) add(rc io.ReadCloser, want int64) (*requestBody, error) {
	c := &requestBody{of: b, want: want, rc: rc, memory: fromMemory(rc), turn: make(chan struct{}, 1)}
	b.mu.Lock()
	c.second = slices.ContainsFunc(b.copies, func(o *requestBody) bool { return o.second })
	if b.awaits.Load() {
		await(c)
	}
	final := b.final.Load() // under mu: end closes what is added before it looks
	if !final {
		b.copies = append(b.copies, c)
	}
	b.mu.Unlock()
	if final {
		closeQuietly(rc)
		return nil, b.ended()
	}
	return c, nil
}

// ended returns why nothing more is read of a body that was closed: the attempt's own end, if that came first.
func (b *sentBody) ended() error {
	if err := context.Cause(b.ctx); err != nil {
		return err
	}
	return errBodyClosed
}

// all returns the copies. b may be nil.
func (b *sentBody) all() []*requestBody {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.copies)
}

// end closes all copies, and those that are still to come: at once those in memory, and those that may block in a goroutine of
// their own. A reader that others have had may be had again when RoundTrip has returned, so what reads it is waited for a little.
// b may be nil.
func (b *sentBody) end() {
	if b == nil || b.final.Swap(true) {
		return
	}
	for _, c := range b.all() {
		switch {
		case c.memory:
			closeQuietly(c)
			continue
		case !c.closed.Load():
			go closeQuietly(c)
		}
		if c.second && takeTurn(c.turn) {
			<-c.turn
		}
	}
}

// bodyFrom calls get for another body than the copies: those of an attempt's own, whose sends have failed, and those of
// attempts beside it. If it is what one of them reads, that one gets nothing more of it; but there is none while one beside is
// still sending it. If it was read while get ran, nobody knows where it was: then that attempt loses it all the same.
func bodyFrom(get getBody, own, beside []*requestBody) (body io.ReadCloser, err error) {
	p := pauseReads(slices.Concat(own, beside))
	defer p.resume() // also if get panics
	body, err = get()
	quiet, shared := p.held(), sharing(beside, body)
	if quiet {
		if k := slices.IndexFunc(shared, (*requestBody).unfinished); k >= 0 {
			shared[k].behind = shared[k].got
			return nil, errBodyShared
		}
	}
	shared = append(shared, sharing(own, body)...)
	for _, c := range shared {
		c.seize()
	}
	p.resume() // getQuietly takes turns
	if len(shared) == 0 {
		return body, err
	}
	defer func() {
		if body == nil || err != nil || !sameBody(body, shared[0].rc) {
			closeQuietly(shared[0].rc) // which is nobody's now
		}
	}()
	if !quiet {
		body = nil // if get panics
		body, err = getQuietly(shared, get)
	}
	return body, err
}

// sharing returns those of the copies that body is one with.
func sharing(copies []*requestBody, body io.ReadCloser) []*requestBody {
	if body == nil {
		return nil
	}
	var shared []*requestBody
	for _, c := range copies {
		if sameBody(body, c.rc) {
			shared = append(shared, c)
		}
	}
	return shared
}

// sameBody reports whether a and b are one body, or an io.NopCloser of one reader. Values without fields are equal although
// nothing is shared.
func sameBody(a, b io.ReadCloser) bool {
	v := reflect.ValueOf(a)
	if v.Type() != reflect.TypeOf(b) || v.Type().Size() == 0 || !v.Comparable() || a != b {
		return false
	}
	t := v.Type()
	if t == reflect.TypeOf(io.NopCloser(nil)) {
		t = reflect.TypeOf(v.Field(0).Interface())
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Size() > 0
}

// A requestBody is one copy of a sentBody. It closes the user's body once.
type requestBody struct {
	of     *sentBody
	want   int64 // its length; not positive: unknown
	rc     io.ReadCloser
	memory bool // reads cannot block: Close waits for the one in progress, because the bytes are the caller's after it
	second bool // rc was another attempt's before
	closed atomic.Bool
	seized atomic.Bool // rc is another copy's, its Close included
	lent   atomic.Bool // see sentBody.lend
	gone   atomic.Bool // closed or seized, and no Read from memory is left

	begun, ended atomic.Bool // a Read has begun, and one has returned an error or the end
	awaited      atomic.Bool // its end is waited for: see sentBody.afterwards

	// turn holds one token while a Read runs; it guards got, atEnd and behind. It is no mutex, because GetBody may sleep, which in a
	// testing/synctest bubble would stop the clock for a Read that waits for a mutex.
	turn   chan struct{}
	got    int64                 // bytes read
	atEnd  bool                  // rc has said that it is at its end
	behind int64                 // how many of them are to be read once more, because rc was rewound
	doubt  atomic.Pointer[pause] // what is read while it lasts is not known to be ours
}

func (b *requestBody) Read(p []byte) (n int, err error) {
	b.begun.Store(true)
	defer func() {
		if err != nil {
			b.ended.Store(true)
		}
	}()
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	b.doubt.Load().wait()
	switch {
	case b.atEnd, b.taken() && b.want > 0 && b.got == b.want:
		return 0, io.EOF // for net/http's second look at the end, when a server may have closed rc: go.dev/issue/40747
	case b.taken():
		return 0, b.fail(errBodyClosed)
	case b.closed.Load(), b.of.final.Load():
		return 0, b.of.ended()
	}
	if err := b.catchUp(p); err != nil {
		return 0, err
	}
	n, err = b.rc.Read(p)
	b.doubt.Load().wait()
	if b.taken() {
		return 0, b.fail(errBodyClosed) // there is no telling what it has read
	}
	b.got += int64(n)
	b.atEnd = err == io.EOF
	fails := err != nil && err != io.EOF
	wrong := b.want > 0 && (b.got > b.want || b.got < b.want && err == io.EOF) // net/http refuses that as well
	switch {
	case !fails && !wrong:
	case !b.closed.Load():
		b.of.failed.Store(true)
	case fails:
		return n, b.of.ended() // Close is what has failed it
	}
	return n, err
}

func (b *requestBody) Close() error {
	if b.lent.Load() {
		return nil
	}
	first := b.closed.CompareAndSwap(false, true)
	defer func() { // when others may have the turn again
		b.gone.Store(true)
		b.of.settle()
	}()
	if b.memory { // whoever closes it, no Read is left
		b.turn <- struct{}{}
		defer func() { <-b.turn }()
	}
	if !first {
		return nil
	}
	return b.rc.Close()
}

// catchUp brings a reader that was rewound back to where b was, by way of p. Its turn must be held.
func (b *requestBody) catchUp(p []byte) error {
	for b.behind > 0 && len(p) > 0 {
		n, err := b.rc.Read(p[:min(b.behind, int64(len(p)))])
		b.behind -= int64(n)
		switch {
		case b.closed.Load():
			return b.of.ended()
		case err == io.EOF: // b.got is less than its length
			return b.fail(io.ErrUnexpectedEOF)
		case err != nil:
			return b.fail(err)
		}
	}
	return nil
}

// fail notes that the body itself has failed, and returns err.
func (b *requestBody) fail(err error) error {
	b.of.failed.Store(true)
	return err
}

// unfinished reports whether the base transport may want more of b. Its turn must be held.
func (b *requestBody) unfinished() bool { return !b.closed.Load() && b.got < b.want }

// sending reports whether b is being read, or the base transport may want more of it.
func (b *requestBody) sending() bool {
	if !tryTurn(b.turn) {
		return true
	}
	defer func() { <-b.turn }()
	return b.unfinished()
}

// taken reports whether another copy has the reader of b.
func (b *requestBody) taken() bool { return b.seized.Load() }

// robbed reports whether another copy has the reader of b before b has sent all of it.
func (b *requestBody) robbed() bool {
	if !b.taken() {
		return false
	}
	if !tryTurn(b.turn) {
		return true
	}
	defer func() { <-b.turn }()
	return b.got < b.want
}

// seize leaves b with what it has read so far.
func (b *requestBody) seize() {
	b.seized.Store(true)
	b.closed.Store(true)
	b.gone.Store(true)
}

// closeQuietly closes what nobody wants to hear of any more, in a goroutine where a panic would end the process.
func closeQuietly(c io.Closer) {
	defer ignorePanic()
	_ = c.Close()
}

// smallBody is what net/http writes at once with the headers of a request, over HTTP/1.1.
const smallBody = 4 << 10

// inOnePacket reports whether base writes req as a whole before there can be an answer. Its body need not be taken over, after which
// it would go in a packet of its own.
func inOnePacket(base http.RoundTripper, req *http.Request) bool {
	t, _ := base.(*http.Transport)
	if t == nil || req.URL.Scheme != "http" || t.Protocols != nil && t.Protocols.UnencryptedHTTP2() || !inMemory(req.Body) {
		return false
	}
	r, ok := reflect.TypeAssert[interface{ Len() int }](reflect.ValueOf(req.Body).Field(0))
	return ok && int64(r.Len()) == req.ContentLength && req.ContentLength <= smallBody
}

// inMemory reports whether body is one that http.NewRequest made of a reader that cannot block or fail.
func inMemory(body io.ReadCloser) bool {
	t := reflect.TypeOf(body)
	if t != reflect.TypeOf(io.NopCloser(nil)) && t != reflect.TypeOf(io.NopCloser(new(bytes.Buffer))) {
		return false
	}
	switch reflect.ValueOf(body).Field(0).Interface().(type) {
	case *bytes.Buffer, *bytes.Reader, *strings.Reader:
		return true
	}
	return false
}

// fromMemory is inMemory, also of a body that an attempt above has taken over.
func fromMemory(body io.ReadCloser) bool {
	if c, ok := body.(*requestBody); ok {
		return c.memory
	}
	return inMemory(body)
}
