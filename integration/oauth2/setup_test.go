// Package oauth2_test shows golang.org/x/oauth2 around hedgerow: above it, beneath it, and as the credential of a pool.
package oauth2_test

import (
	"context"
	"net/http"
	"testing"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

// newClient is the shortest set-up: hedgerow beneath oauth2, for the calls and for the requests for tokens.
func newClient(ctx context.Context, cfg *clientcredentials.Config, tr http.RoundTripper) *http.Client {
	return cfg.Client(context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: tr}))
}

// newBase puts oauth2 beneath hedgerow: each attempt asks for its token. The requests for tokens go by plain.
func newBase(ctx context.Context, cfg *clientcredentials.Config, plain, base http.RoundTripper) *oauth2.Transport {
	return &oauth2.Transport{Source: newSource(ctx, cfg, plain), Base: base}
}

// newSource returns a token source whose requests go by plain.
func newSource(ctx context.Context, cfg *clientcredentials.Config, plain http.RoundTripper) oauth2.TokenSource {
	return cfg.TokenSource(context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: plain}))
}

// tokenOf makes the tokens of a source the credential of a resource.
func tokenOf(source oauth2.TokenSource) hedgerow.Credential {
	return hedgerow.CredentialFunc(func(req *http.Request) error {
		token, err := source.Token()
		if err != nil {
			return err
		}
		token.SetAuthHeader(req)
		return nil
	})
}

// newAccounts returns a pool of two clients of the service, which have tokens of their own.
func newAccounts(t *testing.T, srv *bed.Server) *hedgerow.Pool {
	t.Helper()
	return bed.NewPool(t, hedgerow.PoolConfig{
		Hosts: []string{srv.Host()}, Strategy: hedgerow.PrimaryBackup,
		Resources: []hedgerow.Resource{
			{ID: "one", Credential: tokenOf(newSource(t.Context(), config(srv, "one"), srv.Base))},
			{ID: "two", Credential: tokenOf(newSource(t.Context(), config(srv, "two"), srv.Base))},
		},
	})
}

// config is that of a client of the service.
func config(srv *bed.Server, client string) *clientcredentials.Config {
	return &clientcredentials.Config{
		ClientID: client, ClientSecret: "secret", TokenURL: srv.URL + "/token",
		AuthStyle: oauth2.AuthStyleInHeader, // or a client that is refused is asked for twice, once by each style
	}
}
