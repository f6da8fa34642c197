package websocket_test

import (
	"bytes"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

func TestMain(m *testing.M) { bed.VerifyMain(m) }

// logicalURL is what callers of a pool with upstreams dial. No name server is asked for it.
const logicalURL = "wss://ws.example.com/chat"

// requireEcho sends messages of up to 256 KiB over conn, and reads each back.
func requireEcho(t *testing.T, conn *websocket.Conn) {
	t.Helper()
	ctx := bed.Timeout(t)
	conn.SetReadLimit(-1)
	for _, size := range []int{0, 1, 64 << 10, 256 << 10} {
		for _, kind := range []websocket.MessageType{websocket.MessageText, websocket.MessageBinary} {
			sent := bytes.Repeat([]byte("a"), size)
			require.NoError(t, conn.Write(ctx, kind, sent))
			gotKind, got, err := conn.Read(ctx)
			require.NoError(t, err)
			require.Equal(t, kind, gotKind)
			require.True(t, bytes.Equal(sent, got), "%s of %d bytes came back as %d", kind, size, len(got))
		}
	}
}
