package hedgerow

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// gone reports whether the caller has given up.
func (c *call) gone() bool {
	gone, _ := callerGone(c.ctx, c.stopped)
	return gone
}

// canceled reports whether the caller has given up otherwise than by its deadline.
func (c *call) canceled() bool {
	gone, deadline := callerGone(c.ctx, c.stopped)
	return gone && !deadline
}

// checkRequest returns what is wrong with req that net/http would refuse before it sends anything, so far as an endpoint
// cannot be found for it. The rest is left to the base transport.
func checkRequest(req *http.Request) error {
	switch {
	case req.URL == nil:
		return errNilURL
	case req.Header == nil:
		return errNilHeader
	case req.URL.Host == "" && (req.URL.Scheme == "http" || req.URL.Scheme == "https"):
		return errNoHost
	}
	return nil
}

// unsendable reports whether net/http refuses req for a control character in its URL, which it says only when it has a connection.
func unsendable(req *http.Request) bool {
	return strings.ContainsFunc(req.URL.RequestURI(), func(c rune) bool { return c < ' ' || c == 0x7f })
}

// mayBeBodyError reports whether err, of an http.Transport, may be the error of the request's own body, which would say nothing
// of the host. A body sent as it is cannot be watched; the errors of the network are known by their interface.
func mayBeBodyError(err error, req *http.Request) bool {
	if !hasBody(req) || inMemory(req.Body) {
		return false
	}
	if errors.Is(err, io.EOF) {
		return false // that of a body is no error
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "readfrom" {
		err = op.Err // of either side
	}
	_, network := errors.AsType[net.Error](err)
	return !network
}

// hasBody reports whether req has a body to send.
func hasBody(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }

// callerGone reports whether the caller has given up on the call, and whether by its deadline. Request.Cancel counts:
// http.Client.Timeout closes it together with the context's deadline, in either order.
func callerGone(ctx context.Context, stopped <-chan struct{}) (gone, deadline bool) {
	if err := ctx.Err(); err != nil {
		return true, err == context.DeadlineExceeded
	}
	if stopped == nil {
		return false, false
	}
	select {
	case <-stopped:
		d, ok := ctx.Deadline()
		return true, ok && !time.Now().Before(d)
	default:
		return false, false
	}
}

// goneError is the error of a call whose caller has given up.
func goneError(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	return context.Canceled // by Request.Cancel
}
