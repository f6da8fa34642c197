package retryablehttp_test

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

func TestMain(m *testing.M) { bed.VerifyMain(m) }

// brokenTwice counts requests, answers the first two with a 500, and the next ones with what they send.
func brokenTwice(t *testing.T, arrived *atomic.Int64) http.Handler {
	t.Helper()
	return bed.ReadFirst(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if arrived.Add(1) < 3 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		bed.Echo(w, r)
	}))
}
