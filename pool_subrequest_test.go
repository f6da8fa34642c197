package hedgerow_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// tokenLayer sends a request for a token with the context of each request, before it passes that on.
func tokenLayer(t *testing.T, auth, next http.RoundTripper, method string, call func(context.Context) context.Context) http.RoundTripper {
	t.Helper()
	return roundTrip(func(req *http.Request) (*http.Response, error) {
		sub, err := http.NewRequestWithContext(call(req.Context()), method, "http://auth.test/token", strings.NewReader("a code for one use"))
		if err != nil {
			return nil, err
		}
		if resp, err := auth.RoundTrip(sub); err == nil {
			contractRead(t, resp)
		}
		return next.RoundTrip(req)
	})
}

func asItIs(ctx context.Context) context.Context { return ctx }

func declared(ctx context.Context) context.Context {
	return hedgerow.WithCall(ctx, hedgerow.Call{Idempotent: true})
}

func subAnswer(req *http.Request) (*http.Response, error) {
	return sharedAnswer(req, http.StatusOK, ""), nil
}

// TestSubrequestIsAnotherCall has a layer fetch a token through a pool of its own, with the context of the request. The server
// may have acted when it hangs up. That is no part of the call, which may be sent twice, and is sent once.
func TestSubrequestIsAnotherCall(t *testing.T) {
	t.Parallel()
	type subrequest struct {
		method, path string
		call, sub    func(context.Context) context.Context
		pooled       bool // the layer is a credential of a pool
		posts        int
	}
	for name, tt := range map[string]subrequest{
		"of a GET":                {method: http.MethodGet, path: "/", call: asItIs, sub: asItIs, posts: 1},
		"of a declared call":      {method: http.MethodPost, path: "/", call: declared, sub: asItIs, posts: 1},
		"of a declared endpoint":  {method: http.MethodPost, path: "/declared", call: asItIs, sub: asItIs, posts: 1},
		"of a method of its own":  {method: "MOVE", path: "/token", call: declared, sub: asItIs, posts: 1},
		"of a credential":         {method: http.MethodGet, path: "/", call: asItIs, sub: asItIs, pooled: true, posts: 1},
		"of a call to the root":   {method: http.MethodPost, path: "", call: declared, sub: asItIs, posts: 1},
		"that is declared itself": {method: http.MethodGet, path: "/", call: asItIs, sub: declared, posts: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			posts := 0
			auth := pspecPool(t, hedgerow.PoolConfig{Hosts: []string{"http://auth.test"}, Resources: pspecKeys(3)}).
				Wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
					posts++
					_, err := io.Copy(io.Discard, req.Body)
					require.NoError(t, err)
					require.NoError(t, req.Body.Close())
					return nil, io.ErrUnexpectedEOF
				}))
			layer := tokenLayer(t, auth, roundTrip(subAnswer), http.MethodPost, tt.sub)
			base := layer
			if tt.pooled {
				fetch := hedgerow.CredentialFunc(func(r *http.Request) error {
					resp, err := layer.RoundTrip(r)
					if err == nil {
						contractRead(t, resp)
					}
					return err
				})
				base = pspecPool(t, hedgerow.PoolConfig{
					Hosts: []string{"http://api.test"}, Resources: []hedgerow.Resource{{ID: "a", Credential: fetch}},
				}).Wrap(roundTrip(subAnswer))
			}
			tr := contractNew(t, hedgerow.Config{Base: base, Hedge: hedgerow.HedgeConfig{Delay: time.Hour}})
			require.NoError(t, tr.Register("POST /declared", hedgerow.EndpointConfig{Idempotent: true}))
			req, err := http.NewRequestWithContext(tt.call(t.Context()), tt.method, "http://api.test"+tt.path, http.NoBody)
			require.NoError(t, err)
			resp, err := tr.RoundTrip(req)
			require.NoError(t, err)
			contractRead(t, resp)
			require.Equal(t, tt.posts, posts)
		})
	}
}

// TestSubrequestIsNoneOfTheRace has the token come first, and then a slow answer. The hedge takes another key of the call's own pool,
// and what the pool of the tokens does counts nowhere.
func TestSubrequestIsNoneOfTheRace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		auth := pspecPool(t, hedgerow.PoolConfig{Hosts: []string{"http://auth.test"}, Resources: pspecKeys(1)}).Wrap(roundTrip(subAnswer))
		api := pspecPool(t, hedgerow.PoolConfig{Hosts: []string{"http://api.test"}, Resources: pspecKeys(2)})
		next := api.Wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
			if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Kind == hedgerow.AttemptPrimary {
				<-req.Context().Done()
				return nil, context.Cause(req.Context())
			}
			return subAnswer(req)
		}))
		var info hedgerow.CallInfo
		tr := contractNew(t, hedgerow.Config{Base: tokenLayer(t, auth, next, http.MethodGet, asItIs)})
		ctx := hedgerow.WithCall(t.Context(), hedgerow.Call{Done: func(i hedgerow.CallInfo) { info = i }})
		resp, err := tr.RoundTrip(contractGet(ctx, t, "http://api.test/"))
		require.NoError(t, err)
		contractRead(t, resp)
		require.Equal(t, 2, info.Attempts)
		require.Equal(t, hedgerow.Attempt{Number: 1, Kind: hedgerow.AttemptHedge, Pool: info.Winner.Pool, Resource: "B"}, info.Winner)
		require.EqualValues(t, 1, api.Stats().Resources[0].Attempts)
		synctest.Wait()
	})
}

// TestSubrequestThroughATransport has the token come by another Transport, where the endpoint that the caller has named is not known.
func TestSubrequestThroughATransport(t *testing.T) {
	t.Parallel()
	other := contractNew(t, hedgerow.Config{Base: roundTrip(subAnswer)})
	tr := contractNew(t, hedgerow.Config{Base: tokenLayer(t, other, roundTrip(subAnswer), http.MethodGet, asItIs)})
	require.NoError(t, tr.Register("GET /x", hedgerow.EndpointConfig{Name: "x"}))
	done := 0
	ctx := hedgerow.WithCall(t.Context(), hedgerow.Call{Endpoint: "x", Done: func(hedgerow.CallInfo) { done++ }})
	resp, err := tr.RoundTrip(contractGet(ctx, t, "http://api.test/"))
	require.NoError(t, err)
	contractRead(t, resp)
	require.Equal(t, 1, done)
	require.EqualValues(t, 1, other.Stats().Total.Requests)
	require.Zero(t, other.Stats().Total.Errors)
}

// TestSubrequestWhenTheCallIsOver has a dial go on after its call, with the values of its context, and ask a pool for something. The
// request is the caller's again, and is about the same thing by chance; and so it is with a layer's own copy.
func TestSubrequestWhenTheCallIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dns := pspecPool(t, hedgerow.PoolConfig{Hosts: []string{"http://dns.test"}, Resources: pspecKeys(1)}).Wrap(roundTrip(subAnswer))
		asked := make(chan error, 4)
		ask := func(ctx context.Context) {
			req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, "http://dns.test/query", http.NoBody)
			if err == nil {
				var resp *http.Response
				if resp, err = dns.RoundTrip(req); err == nil {
					err = resp.Body.Close()
				}
			}
			asked <- err
		}
		for _, base := range []http.RoundTripper{
			&http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				time.Sleep(time.Second)
				ask(ctx)
				return nil, io.ErrUnexpectedEOF
			}},
			roundTrip(func(req *http.Request) (*http.Response, error) {
				req.URL.Path = "/query"
				ask(req.Context())
				<-req.Context().Done()
				return nil, context.Cause(req.Context())
			}),
		} {
			tr := contractNew(t, hedgerow.Config{Base: base, Hedge: hedgerow.HedgeConfig{Delay: time.Hour}})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			var info hedgerow.CallInfo
			req := contractGet(hedgerow.WithCall(ctx, hedgerow.Call{Done: func(i hedgerow.CallInfo) { info = i }}), t, contractURL)
			resp, err := tr.RoundTrip(req)
			require.Error(t, err)
			require.Nil(t, resp)
			req.URL.Path = "/query"
			require.NoError(t, <-asked)
			require.Empty(t, info.Winner.Pool)
		}
	})
}

// TestRewrittenPathIsTheSameCall has a layer between Transport and pool change the path, but for its last segment.
func TestRewrittenPathIsTheSameCall(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/api/v1/things", "/things", "/v1/things", "/v2/things", "/deployments/x/things", "/v1/things/"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			pool := pspecPool(t, hedgerow.PoolConfig{Hosts: []string{"http://elsewhere.test"}, Resources: pspecKeys(2), RetryDelay: -1})
			sends := 0
			next := pool.Wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
				if sends++; sends == 1 {
					return nil, io.ErrUnexpectedEOF
				}
				return subAnswer(req)
			}))
			var info hedgerow.CallInfo
			tr := contractNew(t, hedgerow.Config{Hedge: hedgerow.HedgeConfig{Delay: time.Hour}, Base: roundTrip(func(req *http.Request) (*http.Response, error) {
				req = req.Clone(req.Context())
				req.URL.Host, req.URL.Path = "elsewhere.test", path
				return next.RoundTrip(req)
			})})
			ctx := hedgerow.WithCall(t.Context(), hedgerow.Call{Idempotent: true, Done: func(i hedgerow.CallInfo) { info = i }})
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, contractURL, http.NoBody)
			require.NoError(t, err)
			resp, err := tr.RoundTrip(req)
			require.NoError(t, err)
			contractRead(t, resp)
			require.Equal(t, 2, info.Attempts)
		})
	}
}

// TestSubrequestOfACredential has a credential refresh its token in a goroutine, with the context of the request, and go on.
func TestSubrequestOfACredential(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"headers alone": "", "the path as well": "/key"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			auth := pspecPool(t, hedgerow.PoolConfig{Hosts: []string{"http://auth.test"}, Resources: pspecKeys(1)}).Wrap(roundTrip(subAnswer))
			fetch := tokenLayer(t, auth, roundTrip(subAnswer), http.MethodPost, context.WithoutCancel)
			fetched := make(chan error, 1)
			api := pspecPool(t, hedgerow.PoolConfig{Hosts: []string{"http://api.test"}, Resources: []hedgerow.Resource{
				{ID: "a", Credential: hedgerow.CredentialFunc(func(r *http.Request) error {
					sub, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://elsewhere.test/", http.NoBody)
					go func() {
						resp, errSent := fetch.RoundTrip(sub)
						if errSent == nil {
							errSent = resp.Body.Close()
						}
						fetched <- errSent
					}()
					r.URL.Path += path
					return err
				})},
			}})
			tr := contractNew(t, hedgerow.Config{Base: api.Wrap(roundTrip(subAnswer)), Hedge: hedgerow.HedgeConfig{Delay: time.Hour}})
			for range 20 {
				resp, err := tr.RoundTrip(contractGet(t.Context(), t, contractURL))
				require.NoError(t, err)
				contractRead(t, resp)
				require.NoError(t, <-fetched)
			}
		})
	}
}
