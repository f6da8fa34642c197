package connect_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

type (
	message = wrapperspb.StringValue
	client  = connect.Client[message, message]
)

// newClient is the shortest set-up, for one procedure: as generated code makes it, with a doer whose transport is hedgerow:
//
//	tr, err := hedgerow.New(hedgerow.Config{Base: http.DefaultTransport})
//	c := greetv1connect.NewGreetServiceClient(&http.Client{Transport: tr}, "https://api.example.com")
func newClient(doer connect.HTTPClient, url string, opts ...connect.ClientOption) *client {
	return connect.NewClient[message, message](doer, url, opts...)
}

// ownBody gives each attempt of a unary call a body of its own: the GetBody of connect rewinds the one body there is, and
// returns that again. A hedge takes it over from its primary, which fails then, as TestSharedBody shows. This is for calls of
// which the hedge may fail as well, and for those that a pool repeats while the refused attempt may still be sending.
type ownBody struct{ next http.RoundTripper }

func (t ownBody) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.ContentLength <= 0 || req.GetBody == nil {
		return t.next.RoundTrip(req) // there is none, or it is a stream
	}
	data := make([]byte, req.ContentLength)
	_, err := io.ReadFull(req.Body, data)
	if err = errors.Join(err, req.Body.Close()); err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	req.Body, _ = req.GetBody()
	return t.next.RoundTrip(req)
}
