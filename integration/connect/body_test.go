package connect_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

// A staged base reads the second half of the primary's body when a hedge was refused meanwhile, and answers by the hedge
// alone.
type staged struct {
	next    http.RoundTripper
	refused chan struct{}
	primary chan []byte // what the primary has read
}

func (s staged) RoundTrip(req *http.Request) (*http.Response, error) {
	a, _ := hedgerow.AttemptFromContext(req.Context())
	if a.Kind == hedgerow.AttemptHedge {
		return s.next.RoundTrip(req)
	}
	body := make([]byte, req.ContentLength)
	half := len(body) / 2
	_, err := io.ReadFull(req.Body, body[:half])
	<-s.refused
	_, readErr := io.ReadFull(req.Body, body[half:])
	if err = errors.Join(err, readErr, req.Body.Close()); err != nil {
		return nil, err
	}
	s.primary <- body
	<-req.Context().Done()
	return nil, context.Cause(req.Context())
}

// The GetBody of connect rewinds the one body there is, and returns that again. A hedge that is due during the upload of its
// primary is refused, and the upload goes on where it was. When it is over, the hedge gets the body.
func TestSharedBody(t *testing.T) {
	t.Parallel()
	eachProtocol(t, func(t *testing.T, proto string, opt connect.ClientOption) {
		t.Helper()
		s := newService()
		srv := bed.Serve(t, proto, s.handler())
		base := staged{srv.Base, make(chan struct{}), make(chan []byte, 1)}
		hedge := bed.Once()
		hedge.Delay *= 10 // on a busy machine too, some of the eight asks come when the upload is over
		tr := bed.New(t, hedgerow.Config{Base: base, Hedge: hedge, Hooks: hedgerow.Hooks{
			HedgeSkipped: func(_ context.Context, e hedgerow.SkipEvent) {
				if e.Reason == hedgerow.SkipBody {
					close(base.refused)
				}
			},
		}})
		idempotent(t, tr, writeProcedure)
		requireEcho(t, newClient(&http.Client{Transport: tr}, srv.URL+writeProcedure, opt), large)
		require.Contains(t, string(<-base.primary), large, "the primary's body is whole")
		require.EqualValues(t, 1, s.writes.Load())
		require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
	})
}

// A gateway may refuse a key when it has seen half of an upload. The next attempt sends all of it, while the refused one may
// still be at its half.
func TestRefusalDuringTheUpload(t *testing.T) {
	t.Parallel()
	eachProtocol(t, func(t *testing.T, proto string, opt connect.ClientOption) {
		t.Helper()
		s := newService()
		service := s.handler()
		srv := bed.Serve(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if bed.Key(r) == "spent" {
				_, _ = io.CopyN(io.Discard, r.Body, r.ContentLength/2)
				http.Error(w, "no more", http.StatusTooManyRequests)
				return
			}
			service.ServeHTTP(w, r)
		}))
		text := string(bed.Pattern(960 << 10)) // more than what the sockets hold
		for range 2 {
			pool := bed.NewPool(t, hedgerow.PoolConfig{
				Hosts: []string{srv.Host()}, Strategy: hedgerow.PrimaryBackup, Resources: bed.SpentAndGood(),
			})
			tr := bed.New(t, hedgerow.Config{Base: pool.Wrap(srv.Base)})
			requireEcho(t, newClient(&http.Client{Transport: tr}, srv.URL+writeProcedure, opt), text)
			bed.RequireRotated(t, tr, pool)
		}
		require.EqualValues(t, 2, s.writes.Load())
	})
}
