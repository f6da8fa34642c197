package hedgerow_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// hostRefusing is an HTTP/2 server that refuses the first stream of each connection, and answers 200 to the others.
func hostRefusing(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			serving.Go(func() { hostServeRefusing(c) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		serving.Wait()
	})
	return "http://" + ln.Addr().String()
}

// hostServeRefusing speaks as much of HTTP/2 as one client with one stream at a time needs.
func hostServeRefusing(c net.Conn) {
	defer func() { _ = c.Close() }()
	const (
		data, headers, rstStream, settings    = 0, 1, 3, 4
		endStream, ack, endHeaders            = 1, 1, 4
		refusedStream                         = 7
		prefaceLen, frameHeaderLen, settings0 = 24, 9, 0
	)
	r := bufio.NewReader(c)
	write := func(kind, flags byte, stream uint32, payload ...byte) {
		frame := []byte{0, 0, byte(len(payload)), kind, flags}
		frame = binary.BigEndian.AppendUint32(frame, stream)
		_, _ = c.Write(append(frame, payload...))
	}
	if _, err := r.Discard(prefaceLen); err != nil {
		return
	}
	write(settings, 0, settings0)
	refused := false
	for {
		var h [frameHeaderLen]byte
		if _, err := io.ReadFull(r, h[:]); err != nil {
			return
		}
		length := int(h[0])<<16 | int(h[1])<<8 | int(h[2])
		kind, flags, stream := h[3], h[4], binary.BigEndian.Uint32(h[5:])
		if _, err := r.Discard(length); err != nil {
			return
		}
		switch {
		case kind == settings && flags&ack == 0:
			write(settings, ack, 0)
		case (kind == headers || kind == data) && flags&endStream != 0 && !refused:
			refused = true
			write(rstStream, 0, stream, 0, 0, 0, refusedStream)
		case (kind == headers || kind == data) && flags&endStream != 0:
			write(headers, endStream|endHeaders, stream, 0x88) // :status: 200
		}
	}
}

// What http.Transport sends again by itself is one attempt for us, and its error is passed on as it is.
func TestC78RefusedStream(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		body  func(*http.Request)
		fault string
	}{
		{"no body", func(*http.Request) {}, ""},
		{"GetBody", func(r *http.Request) {
			r.Method = http.MethodPost
			r.ContentLength = 7
			r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("payload")), nil }
			r.Body, _ = r.GetBody()
		}, ""},
		{"no GetBody", func(r *http.Request) {
			r.Method = http.MethodPost
			r.ContentLength = 7
			r.Body = io.NopCloser(strings.NewReader("payload"))
		}, "define Request.GetBody"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var protocols http.Protocols
			protocols.SetUnencryptedHTTP2(true)
			wire := &http.Transport{Protocols: &protocols}
			t.Cleanup(wire.CloseIdleConnections)
			base := &hostCount{RoundTripper: wire}
			tr := craceNew(t, hedgerow.Config{Base: base, Hedge: hedgerow.HedgeConfig{Delay: time.Minute}})
			req := hostGet(t, hostRefusing(t))
			tt.body(req)
			a := craceCall(tr, req.WithContext(hedgerow.WithCall(req.Context(), hedgerow.Call{Idempotent: true})))
			if tt.fault == "" {
				require.Equal(t, 200, a.Status)
			} else {
				require.ErrorContains(t, a.Err, tt.fault)
				require.NotContains(t, a.Err.Error(), "hedgerow")
			}
			require.EqualValues(t, 1, base.calls.Load())
		})
	}
}

// A server that shuts down says GOAWAY. The calls go on over another connection, or fail like those of the bare transport.
func TestC78GoAway(t *testing.T) {
	t.Parallel()
	srv := newHostServer(t, true, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) })
	base := &hostCount{RoundTripper: srv.transport(t)}
	tr := craceNew(t, hedgerow.Config{Base: base})
	require.Equal(t, "HTTP/2.0", craceCall(tr, hostGet(t, srv.URL)).Body)
	require.NoError(t, srv.Config.Shutdown(t.Context()))
	a := craceCall(tr, hostGet(t, srv.URL))
	_, refused := errors.AsType[*net.OpError](a.Err)
	require.True(t, refused, "%v", a.Err)
	require.EqualValues(t, 2, base.calls.Load())
}
