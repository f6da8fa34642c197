package connect_test

import (
	"errors"
	"io"
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

// A staged base makes a hedge when it has read half of the primary's body, and sends that hedge when the primary has failed
// to read the other half.
type staged struct {
	next        http.RoundTripper
	made, ended chan struct{}
	primary     chan error // what the primary has failed with
}

func (s staged) RoundTrip(req *http.Request) (*http.Response, error) {
	a, _ := hedgerow.AttemptFromContext(req.Context())
	if a.Kind == hedgerow.AttemptHedge {
		close(s.made)
		<-s.ended
		return s.next.RoundTrip(req)
	}
	_, err := io.CopyN(io.Discard, req.Body, req.ContentLength/2)
	<-s.made
	n, readErr := io.Copy(io.Discard, req.Body)
	if err = errors.Join(err, readErr, req.Body.Close()); err == nil {
		err = io.ErrUnexpectedEOF
	}
	s.primary <- err
	if n > 0 {
		s.primary <- errors.New("it has read what the hedge was to send")
	}
	close(s.primary)
	close(s.ended)
	return nil, err
}

// The GetBody of connect rewinds the one body there is, and returns that again. When a hedge is made during the upload of its
// primary, it takes the body over: the primary fails, and the hedge sends what was meant, all of it.
func TestSharedBody(t *testing.T) {
	t.Parallel()
	eachProtocol(t, func(t *testing.T, proto string, opt connect.ClientOption) {
		t.Helper()
		s := newService()
		srv := bed.Serve(t, proto, s.handler())
		base := staged{srv.Base, make(chan struct{}), make(chan struct{}), make(chan error, 2)}
		tr := bed.New(t, hedgerow.Config{Base: base, Hedge: bed.Once()})
		idempotent(t, tr, writeProcedure)
		requireEcho(t, newClient(&http.Client{Transport: tr}, srv.URL+writeProcedure, opt), large)
		require.ErrorContains(t, <-base.primary, "hedgerow: ", "the primary's body has been taken away")
		require.NoError(t, <-base.primary)
		require.EqualValues(t, 1, s.writes.Load())
		total := tr.Stats().Total
		require.EqualValues(t, 1, total.HedgeWins)
		require.Zero(t, total.Errors)
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
			requireEcho(t, newClient(&http.Client{Transport: ownBody{tr}}, srv.URL+writeProcedure, opt), text)
			bed.RequireRotated(t, tr, pool)
		}
		require.EqualValues(t, 2, s.writes.Load())
	})
}
