package hedgerow

import (
	"context"
	"io"
	"net/http"
	"slices"
)

// afterwards calls cancel when nobody sends the body any more, at once if nobody does: a server may answer in full before it has
// the whole of an upload that it goes on to read (RFC 9113, section 8.1). An http.Transport closes what it has sent, and is waited
// for until then. Of another base it is known only that it has begun to read the body and not come to its end, after which it may
// leave it open; a copy may be one that it has but looked at, so none of those count. b may be nil.
func (b *sentBody) afterwards(cancel context.CancelCauseFunc) {
	if b == nil {
		cancel(nil)
		return
	}
	if c := b.own; c != nil && c.begun.Load() && !c.ended.Load() {
		await(c)
	}
	b.mu.Lock()
	b.after = cancel
	b.mu.Unlock()
	b.settle()
}

// settle calls after, if there is one and all copies that are awaited are closed.
func (b *sentBody) settle() {
	b.mu.Lock()
	cancel := b.after
	open := slices.ContainsFunc(b.copies, func(c *requestBody) bool { return c.awaited.Load() && !c.gone.Load() })
	b.mu.Unlock()
	if cancel != nil && !open {
		cancel(nil)
	}
}

// await has body awaited, and what it is made of, by the attempts that they are parts of: see [sentBody.afterwards].
func await(body io.ReadCloser) {
	switch b := body.(type) {
	case *requestBody:
		b.awaited.Store(true)
		await(b.rc)
	case *replacedBody:
		await(b.ReadCloser)
		await(b.own)
	}
}

// carry makes the call by base. If that is an http.Transport, the body is awaited, and the copies for which it asks meanwhile.
func carry(base http.RoundTripper, req *http.Request) (*http.Response, error) {
	if _, plain := base.(*http.Transport); plain {
		if c, ours := req.Body.(*requestBody); ours {
			await(c)
			c.of.awaits.Store(true)
			defer c.of.awaits.Store(false)
		}
	}
	return base.RoundTrip(req)
}

// A replacedBody is what a CredentialFunc has put in the place of an attempt's own body. It may be made of that, or of a copy, or
// have left it open.
type replacedBody struct {
	io.ReadCloser

	own *requestBody
}

// Close closes both.
func (b *replacedBody) Close() error {
	defer closeQuietly(b.own)
	return b.ReadCloser.Close()
}

// lend is for before a CredentialFunc gets b's own body: its Close comes to nothing, because the attempts above are to await what it
// puts in its place, which closes both. b may be nil.
func (b *sentBody) lend() {
	if b != nil && b.own != nil {
		b.own.lent.Store(true)
	}
}

// takeBack is for after lend. If req has another body now, that becomes a part of b, in the place of its own.
func (b *sentBody) takeBack(req *http.Request) {
	if b == nil || b.own == nil {
		return
	}
	b.own.lent.Store(false)
	switch req.Body {
	case b.own:
	case nil, http.NoBody:
		closeQuietly(b.own)
	default:
		if c, err := b.add(&replacedBody{req.Body, b.own}, req.ContentLength); err == nil {
			b.own, req.Body = c, c
		}
	}
}
