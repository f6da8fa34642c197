// Package connect_test shows connectrpc.com/connect on top of hedgerow: unary calls by all three of its protocols, and
// streams.
package connect_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

func TestMain(m *testing.M) { bed.VerifyMain(m) }

// The procedures of the service that the tests call, as generated code would name them.
const (
	readProcedure   = "/test.v1.EchoService/Read"  // has no side effects
	writeProcedure  = "/test.v1.EchoService/Write" // has some
	failProcedure   = "/test.v1.EchoService/Fail"  // fails with the code in the message
	clientProcedure = "/test.v1.EchoService/ClientStream"
	serverProcedure = "/test.v1.EchoService/ServerStream"
	bidiProcedure   = "/test.v1.EchoService/BidiStream"
)

// The protocols of connect, and the options that choose them.
var protocols = map[string]connect.ClientOption{
	"connect":  connect.WithClientOptions(),
	"grpc":     connect.WithGRPC(),
	"grpc-web": connect.WithGRPCWeb(),
}

// eachProtocol runs f by each protocol, over HTTP/1.1 and over HTTP/2.
func eachProtocol(t *testing.T, f func(t *testing.T, proto string, opt connect.ClientOption)) {
	t.Helper()
	for name, opt := range protocols {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bed.Each(t, func(t *testing.T, proto string) {
				t.Helper()
				f(t, proto, opt)
			})
		})
	}
}

// A service answers what it is sent, with a header and a trailer.
type service struct {
	writes   atomic.Int64
	deadline atomic.Int64 // of the last call, in milliseconds from when it came; 0: none
}

func newService() *service { return &service{} }

func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(readProcedure, connect.NewUnaryHandler(readProcedure, s.read,
		connect.WithIdempotency(connect.IdempotencyNoSideEffects)))
	mux.Handle(writeProcedure, connect.NewUnaryHandler(writeProcedure, s.write))
	mux.Handle(failProcedure, connect.NewUnaryHandler(failProcedure, s.fail))
	mux.Handle(clientProcedure, connect.NewClientStreamHandler(clientProcedure, s.clientStream))
	mux.Handle(serverProcedure, connect.NewServerStreamHandler(serverProcedure, s.serverStream))
	mux.Handle(bidiProcedure, connect.NewBidiStreamHandler(bidiProcedure, s.bidiStream))
	return mux
}

func answer(text string) *connect.Response[message] {
	res := connect.NewResponse(wrapperspb.String(text))
	res.Header().Set("X-Header", "header")
	res.Trailer().Set("X-Trailer", "trailer")
	return res
}

func (s *service) read(ctx context.Context, req *connect.Request[message]) (*connect.Response[message], error) {
	var left int64
	if deadline, ok := ctx.Deadline(); ok {
		left = time.Until(deadline).Milliseconds()
	}
	s.deadline.Store(left)
	res := answer(req.Msg.GetValue())
	res.Header().Set("X-Method", req.HTTPMethod())
	return res, nil
}

func (s *service) write(_ context.Context, req *connect.Request[message]) (*connect.Response[message], error) {
	s.writes.Add(1)
	return answer(req.Msg.GetValue()), nil
}

func (*service) fail(_ context.Context, req *connect.Request[message]) (*connect.Response[message], error) {
	var code connect.Code
	if err := code.UnmarshalText([]byte(req.Msg.GetValue())); err != nil {
		return nil, err
	}
	err := connect.NewError(code, errors.New("as told"))
	err.Meta().Set("X-Meta", "meta")
	return nil, err
}

func (*service) clientStream(
	_ context.Context, stream *connect.ClientStream[message],
) (*connect.Response[message], error) {
	var all strings.Builder
	for stream.Receive() {
		all.WriteString(stream.Msg().GetValue())
	}
	return answer(all.String()), stream.Err()
}

func (*service) serverStream(
	_ context.Context, req *connect.Request[message], stream *connect.ServerStream[message],
) error {
	stream.ResponseTrailer().Set("X-Trailer", "trailer")
	for range 3 {
		if err := stream.Send(req.Msg); err != nil {
			return err
		}
	}
	return nil
}

func (*service) bidiStream(_ context.Context, stream *connect.BidiStream[message, message]) error {
	stream.ResponseTrailer().Set("X-Trailer", "trailer")
	for {
		m, err := stream.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(m); err != nil {
			return err
		}
	}
}

// large is a message that does not fit into one read or one frame.
var large = string(bed.Pattern(bed.Large))

// requireEcho calls c with text, and requires it back whole, with the header and the trailer of the answer.
func requireEcho(t *testing.T, c *client, text string) *connect.Response[message] {
	t.Helper()
	res, err := c.CallUnary(bed.Timeout(t), connect.NewRequest(wrapperspb.String(text)))
	require.NoError(t, err)
	bed.RequireSame(t, text, res.Msg.GetValue())
	require.Equal(t, "header", res.Header().Get("X-Header"))
	require.Equal(t, "trailer", res.Trailer().Get("X-Trailer"))
	return res
}

// idempotent registers a procedure that may be sent more than once.
func idempotent(t *testing.T, tr *hedgerow.Transport, procedure string) {
	t.Helper()
	require.NoError(t, tr.Register("POST "+procedure, hedgerow.EndpointConfig{Idempotent: true}))
}
