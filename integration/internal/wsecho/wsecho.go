// Package wsecho has the WebSocket server of the tests.
package wsecho

import (
	"context"
	"net/http"

	"github.com/coder/websocket"
)

// Handler answers every message with itself, until its client has gone.
func Handler(opts websocket.AcceptOptions) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, &opts)
		if err != nil {
			return // it has answered
		}
		defer func() { _ = conn.CloseNow() }()
		conn.SetReadLimit(-1)
		ctx := context.WithoutCancel(r.Context()) // it has ended with the hijacking
		for {
			kind, message, err := conn.Read(ctx)
			if err != nil || conn.Write(ctx, kind, message) != nil {
				return
			}
		}
	})
}
