package hedgerow

import (
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
)

// peekStep is how much room peek makes at a time.
const peekStep = 4096

// maxEmptyReads is how often in a row a body may return neither a byte nor an error before peek gives up on it.
const maxEmptyReads = 100

// A responseBody wraps the body of a response: it ends its attempt when the body has ended, by EOF, a read error or Close,
// whichever is first; at EOF the attempt may wait for the request body: see [attempt.over]. Otherwise it forwards Read and Close
// as they are; only what peek has read is kept. Close may be called at any time and any number of times; the base's body is
// closed once.
type responseBody struct {
	rc     io.ReadCloser
	cancel context.CancelCauseFunc
	peeked *peeked       // nil: nothing, or all of it was read
	state  atomic.Uint32 // of the bits below
	whole  bool          // it has ended by EOF; does not change once cancel was called
}

// What has happened to a responseBody.
const (
	bodyClosed = 1 << iota
	bodyEnded
)

// first sets a bit of state, and reports whether it was not set before.
func (b *responseBody) first(bit uint32) bool { return b.state.Or(bit)&bit == 0 }

// peeked is what was read of a body before its reader asked for it.
type peeked struct {
	data []byte
	err  error
}

// Read reads from the base's body.
func (b *responseBody) Read(p []byte) (int, error) {
	if b.peeked != nil && b.state.Load()&bodyClosed == 0 {
		return b.readPeeked(p)
	}
	n, err := b.rc.Read(p)
	if err != nil {
		b.end(err == io.EOF)
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
	b.end(k.err == io.EOF) //nolint:errorlint // io.Reader's contract is about this very value
	return n, k.err
}

// Close closes the base's body the first time, and then ends the attempt.
func (b *responseBody) Close() error {
	if !b.first(bodyClosed) {
		return nil
	}
	defer b.end(false)
	return b.rc.Close()
}

// end ends the attempt, or the part of it that is the response.
func (b *responseBody) end(whole bool) {
	if b.first(bodyEnded) {
		b.whole = whole
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

// declaredEmpty reports whether resp says that it has no content, and no trailers, which come at the end. A zero ContentLength
// says nothing by itself: who makes a response by hand may have forgotten it.
func declaredEmpty(resp *http.Response, method string) bool {
	switch {
	case method == http.MethodHead, resp.StatusCode == http.StatusNoContent, resp.StatusCode == http.StatusNotModified:
		return true
	}
	return resp.ContentLength == 0 && len(resp.Header["Content-Length"]) > 0 && len(resp.Trailer) == 0
}

// An emptyBody is the body of a response that is declared empty and comes from a base that nothing is known of. Callers
// need not close it, so the context of its attempt may have ended already, which is no reason for it to fail.
type emptyBody struct{ rc io.ReadCloser }

func (b *emptyBody) Read(p []byte) (int, error) {
	n, err := b.rc.Read(p)
	if errors.Is(err, context.Canceled) {
		err = io.EOF
	}
	return n, err
}

func (b *emptyBody) Close() error { return b.rc.Close() }
