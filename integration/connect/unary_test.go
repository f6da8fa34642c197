package connect_test

import (
	"context"
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

func TestUnary(t *testing.T) {
	t.Parallel()
	eachProtocol(t, func(t *testing.T, proto string, opt connect.ClientOption) {
		t.Helper()
		srv := bed.Serve(t, proto, newService().handler())
		tr := bed.New(t, hedgerow.Config{Base: srv.Base})
		echo := newClient(&http.Client{Transport: tr}, srv.URL+writeProcedure, opt)

		for _, text := range []string{"", "short", large} {
			requireEcho(t, echo, text)
		}
		bed.RequireSkipped(t, tr, 3, hedgerow.SkipMethod)
	})
}

// A procedure without side effects goes by GET if the client is told so, and a GET is hedged without further ado.
func TestGetIsHedged(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		srv := bed.Serve(t, proto, bed.HoldPrimary(newService().handler()))
		tr := bed.New(t, hedgerow.Config{Base: bed.Mark(srv.Base), Hedge: bed.Soon()})
		read := newClient(&http.Client{Transport: tr}, srv.URL+readProcedure,
			connect.WithHTTPGet(), connect.WithIdempotency(connect.IdempotencyNoSideEffects))

		for _, text := range []string{"short", large} { // the message is in the URL
			res := requireEcho(t, read, text)
			require.Equal(t, http.MethodGet, res.Header().Get("X-Method"))
		}
		total := tr.Stats().Total
		require.EqualValues(t, 2, total.HedgeWins)
		require.Zero(t, total.Errors)
	})
}

// Everything else is a POST, which is hedged if its endpoint says that it may be: connect gives the body of a unary call
// a length and a GetBody.
func TestIdempotentPostIsHedged(t *testing.T) {
	t.Parallel()
	eachProtocol(t, func(t *testing.T, proto string, opt connect.ClientOption) {
		t.Helper()
		srv := bed.Serve(t, proto, bed.HoldPrimary(newService().handler()))
		tr := bed.New(t, hedgerow.Config{Base: bed.Mark(srv.Base), Hedge: bed.Soon()})
		idempotent(t, tr, readProcedure)
		read := newClient(&http.Client{Transport: tr}, srv.URL+readProcedure, opt)

		for _, text := range []string{"", "short", large} {
			res := requireEcho(t, read, text)
			require.Equal(t, http.MethodPost, res.Header().Get("X-Method"))
		}
		total := tr.Stats().Total
		require.EqualValues(t, 3, total.HedgeWins)
		require.Zero(t, total.Errors)
	})
}

// A POST of which nothing is said is sent once, however long it takes.
func TestSlowPostIsSentOnce(t *testing.T) {
	t.Parallel()
	eachProtocol(t, func(t *testing.T, proto string, opt connect.ClientOption) {
		t.Helper()
		s, slow := newService(), bed.NewGate()
		srv := bed.Serve(t, proto, bed.WithClock(slow.Handler(s.handler())))
		tr := bed.New(t, hedgerow.Config{Base: bed.Mark(srv.Base), Hedge: bed.Soon()})
		write := newClient(&http.Client{Transport: tr}, srv.URL+writeProcedure, opt)

		ctx := bed.Timeout(t)
		bed.Slowly(t, tr, srv.URL, slow, func() error {
			_, err := write.CallUnary(ctx, connect.NewRequest(wrapperspb.String(large)))
			return err
		})
		require.Equal(t, 1, slow.Count())
		require.EqualValues(t, 1, s.writes.Load())
		total := tr.Stats().Total
		require.EqualValues(t, 1, total.Hedged)
		require.EqualValues(t, 1, total.HedgeWins, "of the other call")
		require.EqualValues(t, 1, total.Skipped[hedgerow.SkipMethod])
	})
}

// The deadline goes to the server in a header field, and ends the call here as well. The one of a hedge is as long as that
// of its primary, which was sent earlier.
func TestDeadline(t *testing.T) {
	t.Parallel()
	eachProtocol(t, func(t *testing.T, proto string, opt connect.ClientOption) {
		t.Helper()
		s := newService()
		mux := http.NewServeMux()
		mux.Handle(writeProcedure, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { bed.Hold(r) }))
		mux.Handle(readProcedure, bed.HoldPrimary(s.handler()))
		srv := bed.Serve(t, proto, mux)
		tr := bed.New(t, hedgerow.Config{Base: bed.Mark(srv.Base), Hedge: bed.Soon()})
		idempotent(t, tr, readProcedure)
		doer := &http.Client{Transport: tr}

		requireEcho(t, newClient(doer, srv.URL+readProcedure, opt), "short")
		require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
		require.InDelta(t, 60_000, s.deadline.Load(), 30_000)

		ctx, cancel := context.WithTimeout(t.Context(), bed.HedgeDelay)
		defer cancel()
		slow := newClient(doer, srv.URL+writeProcedure, opt)
		_, err := slow.CallUnary(ctx, connect.NewRequest(wrapperspb.String("short")))
		require.Equal(t, connect.CodeDeadlineExceeded, connect.CodeOf(err))
	})
}

// Errors come through with their code, their text and their metadata, also when two attempts have failed.
func TestErrors(t *testing.T) {
	t.Parallel()
	eachProtocol(t, func(t *testing.T, proto string, opt connect.ClientOption) {
		t.Helper()
		srv := bed.Serve(t, proto, newService().handler())
		tr := bed.New(t, hedgerow.Config{Base: srv.Base})
		idempotent(t, tr, failProcedure)
		fail := newClient(&http.Client{Transport: tr}, srv.URL+failProcedure, opt)
		for _, code := range []connect.Code{
			connect.CodeUnavailable, connect.CodeResourceExhausted, connect.CodeNotFound, connect.CodeUnauthenticated,
		} {
			_, err := fail.CallUnary(bed.Timeout(t), connect.NewRequest(wrapperspb.String(code.String())))
			var got *connect.Error
			require.ErrorAs(t, err, &got)
			require.Equal(t, code, got.Code())
			require.Equal(t, "as told", got.Message())
			require.Equal(t, "meta", got.Meta().Get("X-Meta"))
		}
		require.EqualValues(t, 4, tr.Stats().Total.Requests)
	})
}
