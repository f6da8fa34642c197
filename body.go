package hedgerow

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// peekStep is how much room peek makes at a time.
const peekStep = 4096

// maxEmptyReads is how often in a row a body may return neither a byte nor an error before peek gives up on it.
const maxEmptyReads = 100

// A responseBody wraps the body of a response: it ends the context of its attempt when the body has ended, by EOF, a read
// error or Close, whichever is first. Otherwise it forwards Read and Close as they are; only what peek has read is kept.
// Close may be called at any time and any number of times; the base's body is closed once.
type responseBody struct {
	rc       io.ReadCloser
	cancel   context.CancelCauseFunc
	peeked   *peeked // nil: nothing, or all of it was read
	closed   atomic.Bool
	released atomic.Bool
}

// peeked is what was read of a body before its reader asked for it.
type peeked struct {
	data []byte
	err  error
}

// Read reads from the base's body.
func (b *responseBody) Read(p []byte) (int, error) {
	if b.peeked != nil && !b.closed.Load() {
		return b.readPeeked(p)
	}
	n, err := b.rc.Read(p)
	if err != nil {
		b.release()
	}
	return n, err
}

// peek reads up to n bytes, and returns them, or how the body has failed before. What was read is still to be read.
func (b *responseBody) peek(n int) ([]byte, error) {
	k := &peeked{data: make([]byte, 0, min(n, peekStep))}
	for empty := 0; len(k.data) < n && k.err == nil; empty++ {
		if empty == maxEmptyReads {
			k.err = io.ErrNoProgress
			break
		}
		if len(k.data) == cap(k.data) {
			k.data = slices.Grow(k.data, min(n-len(k.data), peekStep))
		}
		var got int
		got, k.err = b.rc.Read(k.data[len(k.data):min(cap(k.data), n)])
		if got > 0 {
			empty = 0
			k.data = k.data[:len(k.data)+got]
		}
	}
	b.peeked = k
	if len(k.data) > 0 || k.err == io.EOF { //nolint:errorlint // io.Reader's contract is about this very value
		return k.data, nil
	}
	return nil, k.err
}

// readPeeked returns what peek has read.
func (b *responseBody) readPeeked(p []byte) (int, error) {
	k := b.peeked
	n := copy(p, k.data)
	k.data = k.data[n:]
	switch {
	case len(k.data) > 0: // p is too small
		return n, nil
	case k.err == nil:
		b.peeked = nil
		return n, nil
	}
	b.release()
	return n, k.err
}

// Close closes the base's body the first time, and then ends the attempt.
func (b *responseBody) Close() error {
	if !b.closed.CompareAndSwap(false, true) {
		return nil
	}
	defer b.release()
	return b.rc.Close()
}

func (b *responseBody) release() {
	if b.released.CompareAndSwap(false, true) {
		b.cancel(nil)
	}
}

// bodiless reports whether there is nothing to read from resp, or it is a 101, whose body is the connection, outlives the
// context of its attempt, and has to stay an io.ReadWriteCloser. What the headers say is not enough: an HTTP/2 stream may
// go on without content, and end with trailers. The bodies of net/http without anything to read, NoBody and the one for
// HTTP/2, have no fields.
func bodiless(resp *http.Response) bool {
	if resp.Body == nil || resp.StatusCode == http.StatusSwitchingProtocols {
		return true
	}
	t := reflect.TypeOf(resp.Body)
	return t.Size() == 0 && strings.HasPrefix(t.PkgPath(), "net/http")
}

// declaredEmpty reports whether resp says that it has no content. A response without a protocol version was not read from
// a wire, and its zero ContentLength says nothing.
func declaredEmpty(resp *http.Response, method string) bool {
	switch {
	case method == http.MethodHead, resp.StatusCode == http.StatusNoContent, resp.StatusCode == http.StatusNotModified:
		return true
	}
	return resp.ContentLength == 0 && resp.ProtoMajor > 0
}

// An emptyBody is the body of a response that is declared empty and comes from a base that nothing is known of. Callers
// need not close it, so the context of its attempt has ended already, which is no reason for it to fail.
type emptyBody struct{ rc io.ReadCloser }

func (b *emptyBody) Read(p []byte) (int, error) {
	n, err := b.rc.Read(p)
	if errors.Is(err, context.Canceled) {
		err = io.EOF
	}
	return n, err
}

func (b *emptyBody) Close() error { return b.rc.Close() }

// A sentBody is the body of an attempt's request, in all its copies: net/http has one made by GetBody when it sends a request
// again. It can be closed while the base transport reads it, because its attempt is superfluous: an HTTP/1.1 attempt that
// blocks in Read does not see its context end (go.dev/issue/78555). It also remembers whether the body itself has failed.
//
// GetBody is to return a new copy. There are clients whose GetBody rewinds the one reader they have and returns that
// again. So it is called while no other attempt of the call reads; if it has returned what one of them had, that one gets
// nothing more to send.
type sentBody struct {
	memory bool  // reads cannot block, so that Close waits for the one in progress: the bytes are the caller's again
	want   int64 // its length; not positive: unknown
	failed atomic.Bool

	mu     sync.Mutex // guards the fields below
	closed bool
	copies []*requestBody
}

// take makes the body of req, and what its GetBody returns, parts of b. req is the attempt's own.
func (b *sentBody) take(req *http.Request) {
	body, err := b.add(req.Body)
	if err != nil {
		return // it is closed, and so was the body
	}
	req.Body = body
	if get := req.GetBody; get != nil {
		req.GetBody = func() (io.ReadCloser, error) {
			rc, err := get()
			if err != nil || rc == nil {
				return rc, err
			}
			return b.add(rc)
		}
	}
}

func (b *sentBody) add(rc io.ReadCloser) (io.ReadCloser, error) {
	c := &requestBody{of: b, rc: rc}
	b.mu.Lock()
	closed := b.closed
	if !closed {
		b.copies = append(b.copies, c)
	}
	b.mu.Unlock()
	if closed {
		closeQuietly(rc)
		return nil, errBodyClosed
	}
	return c, nil
}

// end closes all copies, and those that are still to come.
func (b *sentBody) end() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	for _, c := range b.all() {
		closeQuietly(c)
	}
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

// seize leaves b without what it has not read yet, which belongs to another attempt now, its Close included. b may be nil.
func (b *sentBody) seize() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, c := range b.copies {
		c.seized.Store(true)
		if c.closed.CompareAndSwap(false, true) {
			b.failed.Store(true) // which says nothing of the host
		}
	}
}

// getBody calls the GetBody of req, whose body the attempts with the bodies in sent may be reading; nil ones have none, or
// one that is sent as it is.
func getBody(req *http.Request, sent ...*sentBody) (io.ReadCloser, error) {
	for _, b := range sent {
		for _, c := range b.all() {
			if c.pause() {
				defer c.reading.Unlock()
			}
		}
	}
	body, err := req.GetBody()
	if err == nil && body != nil && sameBody(body, req.Body) {
		for _, b := range sent {
			b.seize()
		}
	}
	return body, err
}

// sameBody reports whether a and b are one body, or wrap one reader.
func sameBody(a, b io.ReadCloser) bool {
	v := reflect.ValueOf(a)
	return v.Type() == reflect.TypeOf(b) && v.Type().Size() > 0 && v.Comparable() && a == b
}

// A requestBody is one copy of a sentBody. It closes the user's body once.
type requestBody struct {
	of     *sentBody
	rc     io.ReadCloser
	got    int64 // bytes read
	closed atomic.Bool
	seized atomic.Bool

	reading sync.Mutex // held by a Read
}

func (b *requestBody) Read(p []byte) (int, error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	if b.closed.Load() {
		return 0, errBodyClosed
	}
	n, err := b.rc.Read(p)
	if b.seized.Load() {
		return 0, errBodyClosed // there is no telling what it has read
	}
	b.got += int64(n)
	fails := err != nil && err != io.EOF && !b.closed.Load()
	if fails || b.of.want > 0 && (b.got > b.of.want || b.got < b.of.want && err == io.EOF) {
		b.of.failed.Store(true) // net/http refuses a body of another length as well
	}
	return n, err
}

// pauseTries is how often pause tries: many times what a Read from memory takes.
const pauseTries = 1000

// pause keeps b from being read, until reading is unlocked, and reports whether it does. A Read that blocks goes on: it is
// of no memory that two attempts could share.
func (b *requestBody) pause() bool {
	for range pauseTries {
		if b.reading.TryLock() {
			return true
		}
		runtime.Gosched()
	}
	return false
}

func (b *requestBody) Close() error {
	if !b.closed.CompareAndSwap(false, true) {
		return nil
	}
	if b.of.memory {
		b.reading.Lock()
		defer b.reading.Unlock()
	}
	return b.rc.Close()
}

// closeQuietly closes what nobody wants to hear of any more, in a goroutine where a panic would end the process.
func closeQuietly(c io.Closer) {
	defer ignorePanic()
	_ = c.Close()
}

// inMemory reports whether body is one that http.NewRequest made of a reader that cannot block or fail. Wrapped, it would
// make net/http send the headers in a packet of their own.
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
