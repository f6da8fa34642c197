// Package http3_test shows github.com/quic-go/quic-go/http3 beneath hedgerow, over UDP on the loopback interface.
package http3_test

import (
	"crypto/tls"
	"net/http"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

// newBase is what takes the place of the http.Transport. It is closed at the end, because it has goroutines until then.
func newBase(cfg *tls.Config) *http3.Transport { return &http3.Transport{TLSClientConfig: cfg} }

// newClient is the shortest set-up, with calls that are hedged once, soon.
func newClient(t *testing.T, base http.RoundTripper) (*hedgerow.Transport, *http.Client) {
	t.Helper()
	tr := bed.New(t, hedgerow.Config{Base: base, Hedge: bed.Once()})
	return tr, &http.Client{Transport: tr, Timeout: time.Minute}
}
