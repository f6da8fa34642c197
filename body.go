package hedgerow

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
)

// maxEmptyReads is how often a body may return neither a byte nor an error.
const maxEmptyReads = 100

// A responseBody is the one wrapper of response bodies: it ends the context of its attempt when the body has ended, by
// EOF, a read error or Close, whichever is first. Otherwise it forwards Read and Close as they are; only the byte that
// peek has read is kept. Close may be called at any time and any number of times.
type responseBody struct {
	rc       io.ReadCloser
	cancel   context.CancelCauseFunc
	closed   atomic.Bool
	released atomic.Bool

	peeked  bool // first and err hold what peek has read and Read has not returned yet
	n       int  // of first
	first   [1]byte
	peekErr error
}

// Read reads from the base's body.
func (b *responseBody) Read(p []byte) (int, error) {
	if b.peeked && !b.closed.Load() {
		return b.readPeeked(p)
	}
	n, err := b.rc.Read(p)
	if err != nil {
		b.release()
	}
	return n, err
}

// peek reads the first byte, or the end. It returns an error if the body failed before.
func (b *responseBody) peek() error {
	for tries := 0; b.n == 0 && b.peekErr == nil; tries++ {
		if tries == maxEmptyReads {
			return io.ErrNoProgress
		}
		b.n, b.peekErr = b.rc.Read(b.first[:])
	}
	b.peeked = true
	if b.peekErr != nil {
		b.release()
	}
	if b.n > 0 || b.peekErr == io.EOF { //nolint:errorlint // io.Reader's contract is about this very value
		return nil
	}
	return b.peekErr
}

// readPeeked returns what peek has read.
func (b *responseBody) readPeeked(p []byte) (int, error) {
	n := copy(p, b.first[:b.n])
	b.n -= n
	if b.n > 0 {
		return n, nil // p is empty
	}
	if b.peekErr == nil {
		b.peeked = false
	}
	return n, b.peekErr
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

// bodiless reports whether the context of resp's attempt may end with the headers: resp cannot have a body, or is a 101,
// whose body is the connection, outlives the context, and has to stay an io.ReadWriteCloser. A response without a
// protocol version was not read from a wire, and its zero ContentLength says nothing.
func bodiless(resp *http.Response, method string) bool {
	switch {
	case method == http.MethodHead, resp.Body == nil, resp.Body == http.NoBody:
		return true
	}
	switch resp.StatusCode {
	case http.StatusSwitchingProtocols, http.StatusNoContent, http.StatusNotModified:
		return true
	}
	return resp.ContentLength == 0 && resp.ProtoMajor > 0
}

// A requestBody is a request body that can be closed while the base transport reads it, because its attempt is
// superfluous: an HTTP/1.1 attempt that blocks in Read does not see its context end (go.dev/issue/78555). It also
// remembers whether the body itself has failed. It closes the user's body once.
type requestBody struct {
	rc     io.ReadCloser
	closed atomic.Bool
	failed atomic.Bool
}

func (b *requestBody) Read(p []byte) (int, error) {
	if b.closed.Load() {
		return 0, errBodyClosed
	}
	n, err := b.rc.Read(p)
	if err != nil && err != io.EOF && !b.closed.Load() {
		b.failed.Store(true)
	}
	return n, err
}

func (b *requestBody) Close() error {
	if !b.closed.CompareAndSwap(false, true) {
		return nil
	}
	return b.rc.Close()
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
