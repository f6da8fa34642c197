package bed_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

func TestMain(m *testing.M) { bed.VerifyMain(m) }

func TestHoldPrimary(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		srv := bed.Serve(t, proto, bed.HoldPrimary(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, r.Header.Get(bed.MarkHeader))
		})))
		tr := bed.New(t, hedgerow.Config{Base: bed.Mark(srv.Base), Hedge: bed.Soon()})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
		require.NoError(t, err)
		resp, err := tr.RoundTrip(req)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, "hedge", string(body))
		require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
	})
}
