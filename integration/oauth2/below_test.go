package oauth2_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/oauth2"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

// Beneath hedgerow each attempt asks for its token. One that is valid is asked for once, and shared.
func TestBelow(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		s := newService()
		srv := bed.Serve(t, proto, s.handler())
		base := newBase(t.Context(), config(srv, "app"), srv.Base, bed.Mark(srv.Base))
		tr := bed.New(t, hedgerow.Config{Base: base, Hedge: bed.Soon()})
		client := &http.Client{Transport: tr}

		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/held", nil)
		require.NoError(t, err)
		resp, err := client.Do(req)
		bed.RequireWhole(t, resp, err)
		require.Empty(t, req.Header, "the caller's request is left alone")
		resp, err = client.Post(srv.URL+"/api", "text/plain", strings.NewReader(large))
		bed.RequireWhole(t, resp, err)

		tokens := s.tokens()
		require.Equal(t, []string{"app-1"}, tokens["primary"])
		require.Contains(t, tokens["hedge"], "app-1")
		require.EqualValues(t, 1, s.grants.Load())
		total := tr.Stats().Total
		require.EqualValues(t, 2, total.Requests)
		require.EqualValues(t, 1, total.HedgeWins)
		require.EqualValues(t, 1, total.Skipped[hedgerow.SkipMethod])
	})
}

// A token that has expired meanwhile is a new one for the hedge.
func TestBelowExpired(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		s := newService()
		s.lifetime = 1 // oauth2 takes a token for expired ten seconds before it is
		srv := bed.Serve(t, proto, s.handler())
		tr := bed.New(t, hedgerow.Config{Base: newBase(t.Context(), config(srv, "app"), srv.Base, bed.Mark(srv.Base)), Hedge: bed.Once()})
		resp, err := (&http.Client{Transport: tr}).Get(srv.URL + "/held")
		bed.RequireWhole(t, resp, err)
		tokens := s.tokens()
		require.Len(t, tokens["primary"], 1)
		require.Len(t, tokens["hedge"], 1)
		require.NotEqual(t, tokens["primary"], tokens["hedge"])
		require.EqualValues(t, 2, s.grants.Load())
	})
}

// A body counts how often it is closed.
type body struct {
	io.Reader

	closed atomic.Int64
}

func (b *body) Close() error {
	b.closed.Add(1)
	return nil
}

// Each attempt has a body of its own, which is closed, also where there is no token to send it with.
func TestBelowBodies(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		for _, test := range []struct {
			name    string
			refused bool
			delay   time.Duration
			bodies  int
		}{
			{"sent", false, bed.HedgeDelay, 2},
			{"no token", true, time.Hour, 1},
		} {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				s := newService()
				if test.refused {
					s.refused = map[string]struct{}{"app": {}}
				}
				srv := bed.Serve(t, proto, s.handler())
				tr := bed.New(t, hedgerow.Config{
					Base:  newBase(t.Context(), config(srv, "app"), srv.Base, bed.Mark(srv.Base)),
					Hedge: hedgerow.HedgeConfig{Delay: test.delay, MaxHedges: 1},
				})
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/held", nil)
				require.NoError(t, err)
				req.Header.Set("Idempotency-Key", "1")
				req.ContentLength = int64(len(large))
				first, second := &body{Reader: strings.NewReader(large)}, &body{Reader: strings.NewReader(large)}
				req.Body = first
				req.GetBody = func() (io.ReadCloser, error) { return second, nil }

				resp, err := (&http.Client{Transport: tr}).Do(req)
				if test.refused {
					var refused *oauth2.RetrieveError
					require.ErrorAs(t, err, &refused)
				} else {
					bed.RequireWhole(t, resp, err)
					require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
				}
				require.Eventually(t, func() bool { // net/http closes bodies when it likes
					return first.closed.Load() == 1 && second.closed.Load() == int64(test.bodies-1)
				}, bed.Patience, bed.Tick)
			})
		}
	})
}

// A token source knows no context, so an attempt that waits for a token waits on when its call has ended. With Detach the
// caller does not.
func TestBelowSlowToken(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		s := newService()
		release := make(chan struct{})
		s.hold = map[string]<-chan struct{}{"app": release}
		srv := bed.Serve(t, proto, s.handler())
		tr := bed.New(t, hedgerow.Config{
			Base: newBase(t.Context(), config(srv, "app"), srv.Base, bed.Mark(srv.Base)), Hedge: hedgerow.HedgeConfig{Delay: time.Hour}, Detach: true,
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			<-s.asked
			cancel(errors.New("the caller has gone"))
		}()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+"/api", nil)
		require.NoError(t, err)
		_, err = (&http.Client{Transport: tr}).Do(req)
		require.ErrorContains(t, err, "the caller has gone", "while the token is still held")
		close(release)
		resp, err := (&http.Client{Transport: tr}).Get(srv.URL + "/api")
		bed.RequireWhole(t, resp, err)
		require.EqualValues(t, 1, s.grants.Load())
	})
}
