package connect_test

import (
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
