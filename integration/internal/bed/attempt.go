package bed

import (
	"cmp"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/hedgerow-go/hedgerow"
)

// MarkHeader is the request header in which [Mark] tells a handler which attempt it serves: primary, hedge or retry.
const MarkHeader = "X-Test-Attempt"

// Mark returns base with each request's kind of attempt in [MarkHeader], so that a handler can tell a hedge from a
// primary without counting arrivals.
func Mark(base http.RoundTripper) http.RoundTripper { return mark{base} }

type mark struct{ base http.RoundTripper }

func (m mark) RoundTrip(req *http.Request) (*http.Response, error) {
	a, ok := hedgerow.AttemptFromContext(req.Context())
	if !ok {
		return m.base.RoundTrip(req)
	}
	marked := req.Clone(req.Context())
	marked.Header.Set(MarkHeader, a.Kind.String())
	return m.base.RoundTrip(marked)
}

func (m mark) CloseIdleConnections() {
	if c, ok := m.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// IsHedge reports whether r is a hedge, by the header that [Mark] has set.
func IsHedge(r *http.Request) bool { return r.Header.Get(MarkHeader) == hedgerow.AttemptHedge.String() }

// IsPrimary reports whether r is a primary, by the header that [Mark] has set.
func IsPrimary(r *http.Request) bool {
	return r.Header.Get(MarkHeader) == hedgerow.AttemptPrimary.String()
}

// HoldPrimary returns next with every primary held until its client has gone away, so that only a hedge can answer. It
// needs [Mark] at the client.
func HoldPrimary(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if IsPrimary(r) {
			Hold(r)
		}
		next.ServeHTTP(w, r)
	})
}

// Hold waits until the client of r has gone away, or a minute, and ends the handler without an answer, which the client could
// see yet while it closes its connection. It reads the request's body first, because only then does a server of HTTP/1.1 notice.
func Hold(r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // it fails when the client has gone already
	select {
	case <-r.Context().Done():
	case <-time.After(time.Minute):
	}
	panic(http.ErrAbortHandler)
}

// Await waits for c, or until the client of r has gone away, and reports whether c came.
func Await(r *http.Request, c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-r.Context().Done():
		return false
	}
}

// Key returns the API key of a request: the bearer token, else the value of X-Api-Key, else that of Api-Key.
func Key(r *http.Request) string {
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return token
	}
	return cmp.Or(r.Header.Get("X-Api-Key"), r.Header.Get("Api-Key"))
}
