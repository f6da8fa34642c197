package hedgerow

import (
	"io"
	"net/http"
	"sync"
	"time"
)

// keepBytes bounds what is kept of a response that another attempt may replace, until that one has answered.
const keepBytes = 64 << 10

// A keptBody reads a response body ahead of its reader, in a goroutine that ends with the body, at keepBytes, or soon after the
// first Read or Close. So the connection is free while the call waits for another attempt, and where there is none, nothing of the
// response is lost.
type keptBody struct {
	body  *responseBody
	ended chan struct{} // closed when nothing is read ahead any more

	mu     sync.Mutex // guards the fields below
	data   []byte     // read ahead, and not taken yet
	err    error      // how the body has ended; nil: it has not
	stop   bool       // the reader takes over
	closed bool
}

func newKeptBody(body *responseBody) *keptBody {
	b := &keptBody{body: body, ended: make(chan struct{})}
	go b.readAhead()
	return b
}

func (b *keptBody) readAhead() {
	defer close(b.ended)
	p := make([]byte, peekStep)
	for got, empty := 0, 0; got <= keepBytes; empty++ {
		n, err := b.readNext(p)
		if got += n; n > 0 {
			empty = 0
		}
		if err == nil && empty == maxEmptyReads {
			err = io.ErrNoProgress
		}
		stop := b.add(p[:n], err)
		if err != nil {
			closeQuietly(b.body)
		}
		if err != nil || stop {
			return
		}
	}
}

// readNext reads once. A panic of the body is an error, because here it would end the process.
func (b *keptBody) readNext(p []byte) (n int, err error) {
	defer func() {
		if recover() != nil {
			err = errBodyPanic
		}
	}()
	return b.body.Read(p)
}

// add takes in what was read ahead, and reports whether the reader has taken over.
func (b *keptBody) add(p []byte, err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data = append(b.data, p...)
	b.err = err
	return b.stop
}

// whole reports whether all of the body was read ahead, for which it waits a little.
func (b *keptBody) whole() bool {
	timer := time.NewTimer(drainTime)
	defer timer.Stop()
	select {
	case <-b.ended:
	case <-timer.C:
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err == io.EOF && len(b.data) <= keepBytes //nolint:errorlint // io.Reader's contract is about this very value
}

// Read returns what was read ahead, and then the rest.
func (b *keptBody) Read(p []byte) (int, error) {
	if n, err, ok := b.take(p); ok {
		return n, err
	}
	<-b.ended
	if n, err, ok := b.take(p); ok {
		return n, err
	}
	return b.body.Read(p)
}

// take returns what there is without reading, and whether there is anything.
func (b *keptBody) take(p []byte) (n int, err error, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stop = true
	switch {
	case b.closed:
		return 0, http.ErrBodyReadAfterClose, true
	case len(b.data) > 0:
		n = copy(p, b.data)
		b.data = b.data[n:]
		return n, nil, true
	}
	return 0, b.err, b.err != nil
}

// Close closes the body.
func (b *keptBody) Close() error {
	b.mu.Lock()
	b.stop, b.closed = true, true
	b.mu.Unlock()
	return b.body.Close()
}
