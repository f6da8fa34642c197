// Package websocket_test shows github.com/coder/websocket on top of hedgerow: the handshake is a call that is sent once, and
// the connection that comes of it is the caller's own.
package websocket_test

import (
	"context"
	"net/http"

	"github.com/coder/websocket"
)

// dial is the shortest set-up: the handshake is a call of a client whose transport is hedgerow.
func dial(ctx context.Context, url string, tr http.RoundTripper) (*websocket.Conn, *http.Response, error) {
	return websocket.Dial(ctx, url, &websocket.DialOptions{HTTPClient: &http.Client{Transport: tr}})
}
