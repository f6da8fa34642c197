package hedgerow

import (
	"context"
	"io"
	"maps"
	"net/http"
	"sync"
	"time"
)

// keepBytes bounds what is kept of a response that another attempt may replace, until that one has answered.
const keepBytes = 64 << 10

// A keptBody is read ahead of its reader: by the call before its next attempt, or while it waits for that by a goroutine which ends
// with the body, at keepBytes, or soon after the first Read or Close. So the connection is free while the call waits, and where no
// other attempt follows, nothing of the response is lost.
type keptBody struct {
	body   *responseBody
	cancel context.CancelCauseFunc // ends the attempt, and with it a Read in progress
	ended  chan struct{}           // closed when nothing is read ahead any more

	// The base sets the trailers of its response at the end of the body, when the caller may look at those of what it has.
	from, to *http.Response

	mu     sync.Mutex // guards the fields below
	data   []byte     // read ahead, and not taken yet
	err    error      // how the body has ended; nil: it has not
	stop   bool       // the reader takes over
	closed bool
}

// readAhead reads, once for a body.
func (b *keptBody) readAhead() {
	defer close(b.ended)
	p := make([]byte, peekStep)
	for got, empty := 0, 0; got <= keepBytes && empty < maxEmptyReads; empty++ {
		n, err := b.readNext(p)
		if got += n; n > 0 {
			empty = 0
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

// readNext reads once. A body that panics, or says that it has read what it cannot have, has failed: here that would end the process.
func (b *keptBody) readNext(p []byte) (n int, err error) {
	defer func() {
		if recover() != nil || n < 0 || n > len(p) {
			n, err = 0, errBodyFault
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
	return b.err == io.EOF && !b.closed && len(b.data) <= keepBytes //nolint:errorlint // io.Reader's contract is about this very value
}

// Read returns what was read ahead, and then the rest.
func (b *keptBody) Read(p []byte) (int, error) {
	n, err, ok := b.take(p)
	if !ok {
		<-b.ended
		n, err, ok = b.take(p)
	}
	if !ok {
		n, err = b.body.Read(p)
	}
	if err == io.EOF { //nolint:errorlint // io.Reader's contract is about this very value
		b.endTrailer()
	}
	return n, err
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

// endTrailer gives the caller the trailers, at the end of the body.
func (b *keptBody) endTrailer() {
	if b.to.Trailer == nil {
		b.to.Trailer = b.from.Trailer
	} else {
		maps.Copy(b.to.Trailer, b.from.Trailer)
	}
}

// Close closes the body. A Read in progress is ended by its context first, and the body closed when it has come back, or a little
// later: bodies need not bear both at once, and their Close may wait for the Read.
func (b *keptBody) Close() error {
	b.mu.Lock()
	b.stop, b.closed = true, true
	b.mu.Unlock()
	select {
	case <-b.ended:
		return b.body.Close()
	default:
	}
	b.cancel(nil)
	go func() {
		timer := time.NewTimer(drainTime)
		defer timer.Stop()
		select {
		case <-b.ended:
		case <-timer.C:
		}
		closeQuietly(b.body)
	}()
	return nil
}
