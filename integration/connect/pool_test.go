package connect_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

// What a gateway answers before the service is asked is a status, by any protocol.
func TestPoolRotatesOnStatus(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusTooManyRequests, http.StatusUnauthorized} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			eachProtocol(t, func(t *testing.T, proto string, opt connect.ClientOption) {
				t.Helper()
				s := newService()
				srv := bed.Serve(t, proto, bed.Keyed(status, s.handler()))

				pool := bed.NewPool(t, hedgerow.PoolConfig{
					Hosts: []string{srv.Host()}, Strategy: hedgerow.PrimaryBackup, Resources: bed.SpentAndGood(),
				})
				tr := bed.New(t, hedgerow.Config{Base: pool.Wrap(srv.Base)})
				write := newClient(&http.Client{Transport: tr}, srv.URL+writeProcedure, opt)

				requireEcho(t, write, large)
				require.EqualValues(t, 1, s.writes.Load())
				bed.RequireRotated(t, tr, pool)
			})
		})
	}
}

// byGRPCStatus tells a pool what a service says by gRPC: its status is 200, and its code is in the trailers, of an answer
// without a message. They are there once the end of the body has been seen: hence Peek. The codes of the connect protocol
// need nothing of this, because they come with a status.
func byGRPCStatus(o hedgerow.Outcome) hedgerow.Verdict {
	if o.Response == nil {
		return hedgerow.Verdict{}
	}
	code := o.Response.Header.Get("Grpc-Status") // of gRPC-Web, and of an answer that is nothing but trailers
	if code == "" {
		code = o.Response.Trailer.Get("Grpc-Status")
	}
	switch code {
	case "8": // resource_exhausted
		return hedgerow.Verdict{Action: hedgerow.ActionCooldown, Reason: "resource_exhausted"}
	case "16": // unauthenticated
		return hedgerow.Verdict{Action: hedgerow.ActionDisable, Reason: "unauthenticated"}
	}
	return hedgerow.Verdict{}
}

func isGRPC(resp *http.Response) bool {
	return strings.HasPrefix(resp.Header.Get("Content-Type"), "application/grpc")
}

// What the service itself says is a code.
func TestPoolRotatesOnCode(t *testing.T) {
	t.Parallel()
	for _, code := range []connect.Code{connect.CodeResourceExhausted, connect.CodeUnauthenticated} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			eachProtocol(t, func(t *testing.T, proto string, opt connect.ClientOption) {
				t.Helper()
				keyed := func(
					_ context.Context, req *connect.Request[message],
				) (*connect.Response[message], error) {
					if req.Header().Get("Authorization") == "Bearer spent" {
						return nil, connect.NewError(code, errors.New("no more"))
					}
					return answer(req.Msg.GetValue()), nil
				}
				srv := bed.Serve(t, proto, connect.NewUnaryHandler(writeProcedure, keyed))
				pool := bed.NewPool(t, hedgerow.PoolConfig{
					Hosts: []string{srv.Host()}, Strategy: hedgerow.PrimaryBackup, Resources: bed.SpentAndGood(),
					Classifier: byGRPCStatus, Peek: isGRPC, PeekBody: 1,
				})
				tr := bed.New(t, hedgerow.Config{Base: pool.Wrap(srv.Base)})
				write := newClient(&http.Client{Transport: tr}, srv.URL+writeProcedure, opt)
				requireEcho(t, write, large)
				bed.RequireRotated(t, tr, pool)
			})
		})
	}
}

// Without a classifier the code of an error by gRPC is passed on, as any response is.
func TestPoolPassesGRPCErrorsOn(t *testing.T) {
	t.Parallel()
	srv := bed.Serve(t, "h2", newService().handler())
	pool := bed.NewPool(t, hedgerow.PoolConfig{Hosts: []string{srv.Host()}, Resources: bed.SpentAndGood()})
	tr := bed.New(t, hedgerow.Config{Base: pool.Wrap(srv.Base)})
	fail := newClient(&http.Client{Transport: tr}, srv.URL+failProcedure, connect.WithGRPC())
	_, err := fail.CallUnary(bed.Timeout(t), connect.NewRequest(wrapperspb.String("resource_exhausted")))
	require.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err))
	stats := pool.Stats()
	require.EqualValues(t, 1, stats.Attempts)
	require.EqualValues(t, 1, stats.CallsOK)
	require.Zero(t, stats.InFlight)
}

// A hedge takes another upstream than its primary.
func TestPoolHedges(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		slow := bed.Serve(t, proto, bed.HoldPrimary(newService().handler()))
		fast := bed.Serve(t, proto, newService().handler())
		base := slow.Base
		base.TLSClientConfig.RootCAs.AddCert(fast.Certificate())
		pool := bed.NewPool(t, hedgerow.PoolConfig{
			Hosts: []string{"echo.example.com"}, Strategy: hedgerow.PrimaryBackup,
			Resources: []hedgerow.Resource{{ID: "slow", Upstream: slow.URL}, {ID: "fast", Upstream: fast.URL}},
		})
		tr := bed.New(t, hedgerow.Config{Base: pool.Wrap(bed.Mark(base)), Hedge: bed.Soon()})
		read := newClient(&http.Client{Transport: tr}, "https://echo.example.com"+readProcedure,
			connect.WithHTTPGet(), connect.WithIdempotency(connect.IdempotencyNoSideEffects))
		requireEcho(t, read, large)
		require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
		require.EqualValues(t, 1, pool.Snapshot()[1].Successes)
		require.Eventually(t, func() bool { return pool.Stats().InFlight == 0 }, bed.Patience, bed.Tick)
	})
}
