package hedgerow_test

import (
	"mime/multipart"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// TestBaseChangesItsRequest has a base that nothing is known of change all of the request that it gets. The caller's is as it was,
// and another attempt gets that.
func TestBaseChangesItsRequest(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*http.Request){
		"a client's":      func(*http.Request) {},
		"a server's":      func(r *http.Request) { r.Pattern = "/{name}"; r.SetPathValue("name", "caller") },
		"with a form":     func(r *http.Request) { r.Form = url.Values{"f": {"caller"}} },
		"with a PostForm": func(r *http.Request) { r.PostForm = url.Values{"f": {"caller"}} },
		"multipart": func(r *http.Request) {
			r.MultipartForm = &multipart.Form{Value: url.Values{"f": {"caller"}}}
		},
	} {
		for _, detach := range []bool{false, true} {
			req := contractGet(t.Context(), t, "http://user:caller@api.test/x?caller#caller")
			req.Header.Set("X-A", "caller")
			req.TransferEncoding = []string{"caller"}
			set(req)
			before := req.Clone(t.Context())
			tr := contractNew(t, hedgerow.Config{Detach: detach, Hedge: hedgerow.HedgeConfig{Delay: time.Hour}, Base: roundTrip(func(req *http.Request) (*http.Response, error) {
				require.Equal(t, before.URL, req.URL, name)
				req.Method, req.Host = "CHANGED", "changed.test"
				req.URL.User, req.URL.Path, req.URL.RawQuery = url.User("changed"), "/changed", "changed"
				req.Header.Set("X-A", "changed")
				req.Header["X-A"][0] = "changed"
				req.TransferEncoding[0] = "changed"
				req.SetPathValue("name", "changed")
				for _, form := range []url.Values{req.Form, req.PostForm} {
					if form != nil {
						form["f"][0] = "changed"
					}
				}
				if req.MultipartForm != nil {
					req.MultipartForm.Value["f"][0] = "changed"
				}
				return sharedAnswer(req, http.StatusOK, ""), nil
			})})
			resp, err := tr.RoundTrip(req)
			require.NoError(t, err)
			contractRead(t, resp)
			require.Equal(t, before.PathValue("name"), req.PathValue("name"), name)
			require.Equal(t, before.WithContext(req.Context()), req, name)
		}
	}
}
