// Package github_test shows google/go-github over hedgerow, with a pool of tokens.
package github_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-github/v88/github"
	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

const (
	apiHost     = "api.github.com"
	uploadsHost = "uploads.github.com"
	apiURL      = "https://" + apiHost
)

// rateLimits rests a token that GitHub has limited. GitHub says so by a 403 as well as by a 429, and the default classifier
// passes a 403 on, because most of them are about permissions.
func rateLimits(o hedgerow.Outcome) hedgerow.Verdict {
	if o.Response == nil || o.Response.StatusCode != http.StatusForbidden {
		return hedgerow.Verdict{} // as by default, a 429 too
	}
	// Primary: X-RateLimit-Remaining is 0, and X-RateLimit-Reset says when it is over. Secondary: Retry-After.
	if wait, ok := hedgerow.RetryHint(o.Response.Header, o.Now); ok {
		return hedgerow.Verdict{Action: hedgerow.ActionCooldown, Wait: wait, Reason: "rate limit"}
	}
	if bytes.Contains(o.Body, []byte("secondary-rate-limits")) { // and no header: GitHub asks for a minute at least
		return hedgerow.Verdict{
			Action: hedgerow.ActionCooldown, Wait: time.Minute, Scope: hedgerow.ScopeResource, Reason: "secondary rate limit",
		}
	}
	return hedgerow.Verdict{}
}

// rateClass is the scope of the primary limit: GitHub counts searches apart from the rest.
func rateClass(req *http.Request) string {
	if strings.HasPrefix(req.URL.Path, "/search/") {
		return "search"
	}
	return "core"
}

// newTokens returns the pool. Outside of a test the resources have no Upstream, so that calls go to GitHub.
func newTokens(t *testing.T, srv *bed.Server, classify hedgerow.Classifier) *hedgerow.Pool {
	t.Helper()
	return bed.NewPool(t, hedgerow.PoolConfig{
		Hosts: []string{apiHost, uploadsHost},
		Resources: []hedgerow.Resource{
			{ID: "token-1", Credential: hedgerow.Bearer("one"), Upstream: srv.URL},
			{ID: "token-2", Credential: hedgerow.Bearer("two"), Upstream: srv.URL},
		},
		Classifier: classify,
		ScopeOf:    rateClass,
	})
}

// newClient is the shortest set-up. go-github remembers the rate limit of the last response, which was that of one token,
// and refuses calls because of it: that is the pool's business here.
func newClient(t *testing.T, rt http.RoundTripper) *github.Client {
	t.Helper()
	client, err := github.NewClient(github.WithTransport(rt), github.WithDisableRateLimitCheck())
	require.NoError(t, err)
	return client
}
