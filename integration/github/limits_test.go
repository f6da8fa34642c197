package github_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-github/v88/github"
	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

// Reads and writes alike go on with the other token: GitHub has refused before it has done anything.
func TestTokensRotate(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		for _, refusal := range refusals() {
			t.Run(refusal.name, func(t *testing.T) {
				t.Parallel()
				text := string(bed.Pattern(64 << 10))
				srv := bed.Serve(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					body := bed.ReadBody(t, r)
					if bed.Key(r) == "one" {
						refusal.write(w)
						return
					}
					var issue github.IssueRequest
					if r.Method == http.MethodPost && json.Unmarshal(body, &issue) != nil {
						t.Errorf("request: %d bytes", len(body))
					}
					answer(t, w, map[string]any{"number": 1, "body": issue.GetBody()})
				}))
				tokens := newTokens(t, srv, rateLimits)
				tr := bed.New(t, hedgerow.Config{Base: tokens.Wrap(srv.Base), Hedge: bed.Off()})
				client := newClient(t, tr)

				made, _, err := client.Issues.Create(t.Context(), "o", "r", &github.IssueRequest{Body: &text})
				require.NoError(t, err)
				require.Equal(t, text, made.GetBody())
				for range 3 {
					_, _, err := client.Issues.Get(t.Context(), "o", "r", 1)
					require.NoError(t, err)
				}
				bed.Settle(t, tr, tokens)
				limited := bed.Status(t, tokens, "token-1")
				require.EqualValues(t, 1, limited.Attempts, "it was asked again")
				require.True(t, limited.State != hedgerow.ResourceHealthy || len(limited.Scopes) > 0)
				require.EqualValues(t, 4, tokens.Stats().CallsOK)
			})
		}
	})
}

// The default classifier rotates on 429 and 401, and passes a 403 on: the client sees the limit of one token, and the other
// one stays unused.
func TestDefaultClassifierPassesForbiddenOn(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		for _, refusal := range refusals() {
			t.Run(refusal.name, func(t *testing.T) {
				t.Parallel()
				srv := bed.Serve(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if bed.Key(r) == "one" {
						refusal.write(w)
						return
					}
					answer(t, w, map[string]any{"id": 7})
				}))
				tokens := newTokens(t, srv, nil)
				tr := bed.New(t, hedgerow.Config{Base: tokens.Wrap(srv.Base), Hedge: bed.Off()})

				_, _, err := newClient(t, tr).Repositories.Get(t.Context(), "o", "r")
				bed.Settle(t, tr, tokens)
				if refusal.status != http.StatusForbidden {
					require.NoError(t, err)
					return
				}
				if refusal.remain == 0 {
					_, ok := errors.AsType[*github.RateLimitError](err)
					require.True(t, ok, "%T", err)
				} else {
					_, ok := errors.AsType[*github.AbuseRateLimitError](err)
					require.True(t, ok, "%T", err)
				}
				require.Zero(t, bed.Status(t, tokens, "token-2").Attempts)
				require.Equal(t, hedgerow.ResourceHealthy, bed.Status(t, tokens, "token-1").State)
			})
		}
	})
}

// What is no rate limit reaches the client as GitHub has said it, with its whole body, and no token is the worse for it.
func TestOtherForbiddenIsPassedOn(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		message := "Resource not accessible by personal access token " + string(bed.Pattern(64<<10))
		srv := bed.Serve(t, proto, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			refusal{status: 403, remain: 4990, body: `{"message":"` + message + `"}`}.write(w)
		}))
		tokens := newTokens(t, srv, rateLimits)
		tr := bed.New(t, hedgerow.Config{Base: tokens.Wrap(srv.Base), Hedge: bed.Off()})

		_, _, err := newClient(t, tr).Repositories.Get(t.Context(), "o", "r")
		refused, ok := errors.AsType[*github.ErrorResponse](err)
		require.True(t, ok, "%T", err)
		require.Equal(t, message, refused.Message)
		bed.Settle(t, tr, tokens)
		require.EqualValues(t, 1, tokens.Stats().Attempts)
		require.Equal(t, 2, tokens.Stats().Healthy)
	})
}

// A search that is limited does not keep the token from other calls: that is what ScopeOf is for.
func TestSearchIsLimitedApart(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		var mu sync.Mutex
		used := map[string]bool{}
		srv := bed.Serve(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if rateClass(r) == "search" && bed.Key(r) == "one" {
				primary403().write(w)
				return
			}
			mu.Lock()
			used[rateClass(r)+" "+bed.Key(r)] = true
			mu.Unlock()
			answer(t, w, map[string]any{"id": 7})
		}))
		tokens := newTokens(t, srv, rateLimits)
		tr := bed.New(t, hedgerow.Config{Base: tokens.Wrap(srv.Base), Hedge: bed.Off()})
		client := newClient(t, tr)

		for range 4 {
			_, _, err := client.Search.Repositories(t.Context(), "x", nil)
			require.NoError(t, err)
			_, _, err = client.Repositories.Get(t.Context(), "o", "r")
			require.NoError(t, err)
		}
		bed.Settle(t, tr, tokens)
		mu.Lock()
		defer mu.Unlock()
		require.True(t, used["search two"])
		require.True(t, used["core one"], "%v", used)
		require.Contains(t, bed.Status(t, tokens, "token-1").Scopes, "search")
	})
}

// By default go-github takes the limit of the last response for that of the client. So the last call that one token had
// left, a success, stops all calls for an hour, though the other token is fresh.
func TestClientSideRateLimitCheck(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		for name, check := range map[string]bool{"default": true, "disabled": false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var arrived atomic.Int64
				srv := bed.Serve(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					switch {
					case arrived.Add(1) == 1: // the last one that token one had
						limits(w, 0, "core")
						_, _ = io.WriteString(w, `{"id":7}`)
					case bed.Key(r) == "one":
						primary403().write(w)
					default:
						answer(t, w, map[string]any{"id": 7})
					}
				}))
				tokens := newTokens(t, srv, rateLimits)
				tr := bed.New(t, hedgerow.Config{Base: tokens.Wrap(srv.Base), Hedge: bed.Off()})
				opts := []github.ClientOptionsFunc{github.WithTransport(tr)}
				if !check {
					opts = append(opts, github.WithDisableRateLimitCheck())
				}
				client, err := github.NewClient(opts...)
				require.NoError(t, err)

				_, _, err = client.Repositories.Get(t.Context(), "o", "r")
				require.NoError(t, err)
				for range 4 {
					_, _, err = client.Repositories.Get(t.Context(), "o", "r")
					if check {
						limited, ok := errors.AsType[*github.RateLimitError](err)
						require.True(t, ok, "%T", err)
						require.Contains(t, limited.Message, "not making remote request")
					} else {
						require.NoError(t, err)
					}
				}
				bed.Settle(t, tr, tokens)
				if check {
					require.EqualValues(t, 1, arrived.Load())
				}
			})
		}
	})
}

// When every token rests the client gets GitHub's last answer, which go-github reads as ever, and then the pool's refusals.
func TestAllTokensRest(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		srv := bed.Serve(t, proto, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			primary403().write(w)
		}))
		tokens := newTokens(t, srv, rateLimits)
		tr := bed.New(t, hedgerow.Config{Base: tokens.Wrap(srv.Base), Hedge: bed.Off()})
		client := newClient(t, tr)

		_, _, err := client.Repositories.Get(t.Context(), "o", "r")
		limited, ok := errors.AsType[*github.RateLimitError](err)
		require.True(t, ok, "%T", err)
		require.Contains(t, limited.Message, "API rate limit exceeded")

		_, _, err = client.Repositories.Get(t.Context(), "o", "r")
		exhausted, ok := errors.AsType[*hedgerow.ExhaustedError](err)
		require.True(t, ok, "%T", err)
		require.Greater(t, time.Until(exhausted.NextAvailable), 50*time.Minute)
		bed.Settle(t, tr, tokens)
		require.EqualValues(t, 2, tokens.Stats().Attempts)
	})
}
