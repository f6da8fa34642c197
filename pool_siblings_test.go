package hedgerow_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// P26: a disable verdict dooms the younger attempts also when its resource is out already, or gone; then only those of the
// same stay.
func TestP26DisableOfAResourceThatIsOut(t *testing.T) {
	t.Parallel()
	for name, out := range map[string]func(*hedgerow.Pool) error{
		"disabled": func(p *hedgerow.Pool) error { return p.Disable("A") },
		"removed":  func(p *hedgerow.Pool) error { return p.Remove("A") },
		"rotated": func(p *hedgerow.Pool) error {
			return p.SetResources([]hedgerow.Resource{{ID: "A", Credential: hedgerow.Bearer("secret-N")}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(1), MaxAttempts: 2})
				elder := pspec401
				elder.After = time.Second
				base := pspecScript(map[string][]scripted.Step{"A": {elder, {After: time.Hour}}, "B": {{After: 2 * time.Second, Body: "B"}}, "N": {{After: 2 * time.Second, Body: "N"}}})
				first := pspecGo(t.Context(), t, p.Wrap(base))
				second := pspecGo(t.Context(), t, p.Wrap(base))
				require.NoError(t, out(p))
				other := "B"
				if name == "rotated" {
					other = "N"
				} else {
					require.NoError(t, p.Add(pspecKeys(2)[1]))
				}
				third := pspecGo(t.Context(), t, p.Wrap(base)) // of another resource, or of the new stay
				for _, ch := range []<-chan pspecOutcome{first, second, third} {
					o := <-ch
					require.NoError(t, o.err)
					require.Equal(t, http.StatusOK, o.status)
					require.Equal(t, other, o.body)
				}
				require.EqualValues(t, 1, p.Stats().SiblingCancels)
				require.Len(t, pspecSent(base), 5)
				pspecIdle(t, p, 3)
				base.Check(t)
			})
		})
	}
}

// P31: our own cancellation stays inside also when the request has a fault of its own, which would be returned as it is.
func TestP31VictimWithABodyThatDoesNotFit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(2), Strategy: hedgerow.PrimaryBackup})
		elder := pspec429
		elder.After = time.Second
		base := pspecScript(map[string][]scripted.Step{"A": {elder, {After: time.Hour}}})
		first := pspecGo(t.Context(), t, p.Wrap(base))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, pspecURL, strings.NewReader("payload"))
		require.NoError(t, err)
		req.ContentLength = 100
		req.Header.Set("Idempotency-Key", "k")
		_, body, err := pspecDo(t, p.Wrap(base), req)
		require.NoError(t, err)
		require.Equal(t, "B", body)
		require.NoError(t, (<-first).err)
		pspecIdle(t, p, 2)
	})
}
