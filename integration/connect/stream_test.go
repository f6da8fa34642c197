package connect_test

import (
	"errors"
	"io"
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

// Streams pass through untouched, each of them sent once. They hold their slot in a pool until they have ended.
func TestStreams(t *testing.T) {
	t.Parallel()
	eachProtocol(t, func(t *testing.T, proto string, opt connect.ClientOption) {
		t.Helper()
		srv := bed.Serve(t, proto, newService().handler())
		pool := bed.NewPool(t, hedgerow.PoolConfig{
			Hosts:     []string{srv.Host()},
			Resources: []hedgerow.Resource{{ID: "a", Credential: hedgerow.Bearer("good")}},
		})
		tr := bed.New(t, hedgerow.Config{Base: pool.Wrap(srv.Base)})
		doer := &http.Client{Transport: tr}
		m := wrapperspb.String(large)

		up := newClient(doer, srv.URL+clientProcedure, opt).CallClientStream(bed.Timeout(t))
		for range 3 {
			require.NoError(t, up.Send(m))
		}
		res, err := up.CloseAndReceive()
		require.NoError(t, err)
		require.Len(t, res.Msg.GetValue(), 3*len(large))
		require.Equal(t, "trailer", res.Trailer().Get("X-Trailer"))

		down, err := newClient(doer, srv.URL+serverProcedure, opt).CallServerStream(bed.Timeout(t), connect.NewRequest(m))
		require.NoError(t, err)
		var received int
		for down.Receive() {
			bed.RequireSame(t, large, down.Msg().GetValue())
			received++
		}
		require.NoError(t, down.Err())
		require.Equal(t, 3, received)
		require.Equal(t, "trailer", down.ResponseTrailer().Get("X-Trailer"))
		require.NoError(t, down.Close())

		calls := uint64(2)
		if proto == "h2" { // the only one that can do it
			calls++
			both := newClient(doer, srv.URL+bidiProcedure, opt).CallBidiStream(bed.Timeout(t))
			for range 3 {
				require.NoError(t, both.Send(m))
				got, err := both.Receive()
				require.NoError(t, err)
				bed.RequireSame(t, large, got.GetValue())
				require.Equal(t, 1, pool.Snapshot()[0].InFlight)
			}
			require.NoError(t, both.CloseRequest())
			_, err = both.Receive()
			require.ErrorIs(t, err, io.EOF)
			require.Equal(t, "trailer", both.ResponseTrailer().Get("X-Trailer"))
			require.NoError(t, both.CloseResponse())
		}

		require.Zero(t, pool.Snapshot()[0].InFlight)
		require.Equal(t, calls, pool.Stats().CallsOK)
		require.Equal(t, calls, pool.Stats().Attempts)
		bed.RequireSkipped(t, tr, calls, hedgerow.SkipMethod)
	})
}

// A stream of requests cannot be sent twice, whatever its endpoint says.
func TestIdempotentBidiStreamIsSentOnce(t *testing.T) {
	t.Parallel()
	srv := bed.Serve(t, "h2", newService().handler())
	tr := bed.New(t, hedgerow.Config{Base: srv.Base})
	idempotent(t, tr, bidiProcedure)
	both := newClient(&http.Client{Transport: tr}, srv.URL+bidiProcedure).CallBidiStream(bed.Timeout(t))
	require.NoError(t, both.Send(wrapperspb.String("one")))
	got, err := both.Receive()
	require.NoError(t, err)
	require.Equal(t, "one", got.GetValue())
	require.NoError(t, both.CloseRequest())
	_, err = both.Receive()
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, both.CloseResponse())
	require.Equal(t, map[hedgerow.SkipReason]uint64{hedgerow.SkipBody: 1}, tr.Stats().Total.Skipped)
}

// A stream of answers to one message may be declared idempotent. The race is for its first message then.
func TestIdempotentServerStreamIsHedged(t *testing.T) {
	t.Parallel()
	eachProtocol(t, func(t *testing.T, proto string, opt connect.ClientOption) {
		t.Helper()
		service := newService().handler()
		srv := bed.Serve(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if bed.IsPrimary(r) { // a server that sends its headers at once, and nothing after them
				_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 has it anyway
				w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
				_ = http.NewResponseController(w).Flush()
				bed.Hold(r)
			}
			service.ServeHTTP(w, r)
		}))
		tr := bed.New(t, hedgerow.Config{Base: bed.Mark(srv.Base), Hedge: bed.Soon()})
		require.NoError(t, tr.Register("POST "+serverProcedure, hedgerow.EndpointConfig{
			Idempotent: true, Hedge: &hedgerow.HedgeConfig{Signal: hedgerow.SignalFirstByte},
		}))
		c := newClient(&http.Client{Transport: tr}, srv.URL+serverProcedure, opt)
		down, err := c.CallServerStream(bed.Timeout(t), connect.NewRequest(wrapperspb.String(large)))
		require.NoError(t, err)
		var received int
		for down.Receive() {
			bed.RequireSame(t, large, down.Msg().GetValue())
			received++
		}
		require.NoError(t, errors.Join(down.Err(), down.Close()))
		require.Equal(t, 3, received)
		require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
	})
}
