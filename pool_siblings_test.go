package hedgerow_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
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

// To a Transport above, an attempt that a sibling's verdict has cut off is superseded, also where no other resource is left, and
// the refusal is not.
func TestSiblingIsSuperseded(t *testing.T) {
	t.Parallel()
	for n, want := range map[int][]string{
		1: {"A 429 won true, superseded false", "A 0 won false, superseded true"},
		2: {
			"A 429 won false, superseded false", "A 0 won false, superseded true",
			"B 200 won true, superseded false", "B 200 won true, superseded false",
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(n), Strategy: hedgerow.PrimaryBackup})
			elder := pspec429
			elder.After = time.Second
			base := pspecScript(map[string][]scripted.Step{"A": {elder, {After: time.Hour}}})
			var mu sync.Mutex
			var events []string
			tr := contractNew(t, hedgerow.Config{
				Base: p.Wrap(base), Hedge: hedgerow.HedgeConfig{Disabled: true},
				Hooks: hedgerow.Hooks{AttemptDone: func(_ context.Context, e hedgerow.AttemptEvent) {
					mu.Lock()
					defer mu.Unlock()
					if e.Superseded != errors.Is(e.Err, hedgerow.ErrSuperseded) {
						events = append(events, "another cause")
					}
					events = append(events, fmt.Sprintf("%s %d won %v, superseded %v", e.Attempt.Resource, e.Status, e.Won, e.Superseded))
				}},
			})
			first, second := pspecGo(t.Context(), t, tr), pspecGo(t.Context(), t, tr)
			<-first
			<-second
			require.ElementsMatch(t, want, events)
		})
	}
}

// Our own cause of another call's end, which may come by what CredentialFuncs share, stays inside as well.
func TestCredentialFuncWithTheCauseOfAnother(t *testing.T) {
	t.Parallel()
	set := hedgerow.CredentialFunc(func(*http.Request) error { return fmt.Errorf("token: %w", hedgerow.ErrSuperseded) })
	for n := range 2 {
		p := pspecPool(t, hedgerow.PoolConfig{MaxAttempts: n + 1, RetryDelay: -1, Resources: []hedgerow.Resource{{ID: "a", Credential: set}}})
		_, _, err := pspecGet(t, p.Wrap(scripted.New()))
		require.Error(t, err)
		require.NotErrorIs(t, err, hedgerow.ErrSuperseded)
	}
}

// P31: also if it has cut off what a CredentialFunc does with the context of its attempt, whose cause it returns as net/http does.
func TestP31VictimBeforeItIsSent(t *testing.T) {
	t.Parallel()
	for name, why := range map[string]func(context.Context) error{
		"cause": context.Cause, "error": context.Context.Err, "its own": func(context.Context) error { return errContract },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var asked atomic.Int32
				set := hedgerow.CredentialFunc(func(req *http.Request) error {
					if asked.Add(1) > 1 {
						<-req.Context().Done()
						return why(req.Context())
					}
					req.Header.Set("Authorization", "Bearer secret-A")
					return nil
				})
				p := pspecPool(t, hedgerow.PoolConfig{
					Strategy:  hedgerow.PrimaryBackup,
					Resources: []hedgerow.Resource{{ID: "A", Credential: set}, pspecKeys(2)[1]},
				})
				elder := pspec429
				elder.After = time.Second
				base := pspecScript(map[string][]scripted.Step{"A": {elder}})
				first := pspecGo(t.Context(), t, p.Wrap(base))
				second := pspecGo(t.Context(), t, p.Wrap(base))
				for _, ch := range []<-chan pspecOutcome{first, second} {
					o := <-ch
					require.NoError(t, o.err)
					require.Equal(t, "B", o.body)
				}
				require.Zero(t, p.Snapshot()[0].ConsecutiveFailures)
				require.EqualValues(t, 1, p.Stats().SiblingCancels)
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
