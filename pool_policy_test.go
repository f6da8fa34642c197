package hedgerow_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

func TestClassifiersAskInTurn(t *testing.T) {
	t.Parallel()
	silent := func(hedgerow.Outcome) hedgerow.Verdict {
		return hedgerow.Verdict{Wait: time.Hour, Scope: hedgerow.ScopeGroup, Reason: "ignored"}
	}
	says := func(a hedgerow.Action) hedgerow.Classifier {
		return func(hedgerow.Outcome) hedgerow.Verdict { return hedgerow.Verdict{Action: a} }
	}
	for name, tc := range map[string]struct {
		c    hedgerow.Classifier
		want string // the keys sent to, with a 429 of A
	}{
		"none":           {nil, "AB"},
		"no opinion":     {silent, "AB"},
		"empty stack":    {hedgerow.Classifiers(), "AB"},
		"nil in a stack": {hedgerow.Classifiers(nil, silent, nil), "AB"},
		"first opinion":  {hedgerow.Classifiers(silent, says(hedgerow.ActionOK), says(hedgerow.ActionDisable)), "A"},
		"no such action": {says(99), "AB"},
		"negative":       {says(-1), "AB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(2), Strategy: hedgerow.PrimaryBackup, Classifier: tc.c})
			base := scripted.New(pspec429, scripted.Step{})
			_, _, err := pspecGet(t, p.Wrap(base))
			require.NoError(t, err)
			require.Equal(t, tc.want, pspecSent(base))
			if tc.want == "AB" {
				require.Equal(t, "status 429", p.Snapshot()[0].Reason)
			}
		})
	}
}

func TestClassifierSeesTheOutcome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen []hedgerow.Outcome
		p := pspecPool(t, hedgerow.PoolConfig{
			Name: "keys", Resources: pspecKeys(2), Strategy: hedgerow.PrimaryBackup,
			ScopeOf: func(r *http.Request) string { return r.URL.Path },
			Classifier: func(o hedgerow.Outcome) hedgerow.Verdict {
				seen = append(seen, o)
				return hedgerow.Verdict{}
			},
		})
		base := scripted.New(scripted.Step{Err: errContract}, scripted.Step{Status: 404, Body: "gone", After: time.Second})
		req := contractGet(t.Context(), t, pspecURL)
		status, _, err := pspecDo(t, p.Wrap(base), req)
		require.NoError(t, err)
		require.Equal(t, http.StatusNotFound, status)
		require.Len(t, seen, 2)
		require.Equal(t, hedgerow.Attempt{Pool: "keys", Resource: "A"}, seen[0].Attempt)
		require.Equal(t, hedgerow.Attempt{Number: 1, Kind: hedgerow.AttemptRetry, Pool: "keys", Resource: "B"}, seen[1].Attempt)
		require.Same(t, errContract, seen[0].Err)
		require.Nil(t, seen[0].Response)
		require.NoError(t, seen[1].Err)
		require.Equal(t, "gone", string(seen[1].Body))
		require.Equal(t, time.Second, seen[1].Now.Sub(seen[0].Now))
		for _, o := range seen {
			require.Same(t, req, o.Request)
			require.Equal(t, "/v1/things", o.ScopeKey)
		}
	})
}

// Which resources rest for which calls, by the scope of a verdict on A, for a call whose key is m1 or "".
func TestVerdictScopes(t *testing.T) {
	t.Parallel()
	const m1, none = "m1", ""
	for _, tc := range []struct {
		scope  hedgerow.VerdictScope
		action hedgerow.Action
		key    string
		grouped,
		own, other string // who may serve after it: calls with the same key; with another one. P is of no group
	}{
		{hedgerow.ScopeDefault, hedgerow.ActionCooldown, m1, "yes", "BP", "ABP"},
		{hedgerow.ScopeDefault, hedgerow.ActionCooldown, none, "yes", "BP", "BP"},
		{hedgerow.ScopeResource, hedgerow.ActionCooldown, m1, "yes", "BP", "BP"},
		{hedgerow.ScopeKey, hedgerow.ActionCooldown, m1, "yes", "BP", "ABP"},
		{hedgerow.ScopeKey, hedgerow.ActionCooldown, none, "yes", "BP", "BP"},
		{hedgerow.ScopeGroup, hedgerow.ActionCooldown, m1, "yes", "P", "P"},
		{hedgerow.ScopeGroup, hedgerow.ActionCooldown, m1, "", "BP", "BP"},
		{hedgerow.ScopeGroupKey, hedgerow.ActionCooldown, m1, "yes", "P", "ABP"},
		{hedgerow.ScopeGroupKey, hedgerow.ActionCooldown, none, "yes", "P", "P"},
		{hedgerow.ScopeGroupKey, hedgerow.ActionCooldown, m1, "", "BP", "ABP"},
		{hedgerow.ScopeGroupKey, hedgerow.ActionCooldown, none, "", "BP", "BP"},
		{hedgerow.VerdictScope(99), hedgerow.ActionCooldown, m1, "yes", "BP", "BP"},
		{hedgerow.ScopeDefault, hedgerow.ActionDisable, m1, "yes", "BP", "BP"},
		{hedgerow.ScopeResource, hedgerow.ActionDisable, m1, "yes", "BP", "BP"},
		{hedgerow.ScopeGroup, hedgerow.ActionDisable, m1, "yes", "P", "P"},
		{hedgerow.ScopeGroup, hedgerow.ActionDisable, none, "", "BP", "BP"},
	} {
		for _, reported := range []bool{false, true} {
			name := tc.scope.String() + " " + tc.action.String() + " " + tc.key + " " + tc.grouped
			if reported {
				name += " reported"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					rs := pspecKeys(2)
					if tc.grouped != "" {
						rs[0].Group, rs[1].Group = "g", "g"
					}
					rs = append(rs, hedgerow.Resource{ID: "P", Credential: hedgerow.Bearer("secret-P")})
					v := hedgerow.Verdict{Action: tc.action, Scope: tc.scope}
					p := pspecPool(t, hedgerow.PoolConfig{
						Resources: rs, Strategy: hedgerow.PrimaryBackup, MaxAttempts: 1,
						ScopeOf: func(r *http.Request) string { return r.Header.Get("Model") },
						Classifier: func(o hedgerow.Outcome) hedgerow.Verdict {
							if o.Attempt.Resource == "A" && o.Response.StatusCode == http.StatusTeapot {
								return v
							}
							return hedgerow.Verdict{}
						},
					})
					if reported {
						require.NoError(t, p.Report("A", tc.key, v))
					} else {
						base := scripted.New(scripted.Step{Status: http.StatusTeapot})
						req := contractGet(t.Context(), t, pspecURL)
						req.Header.Set("Model", tc.key)
						_, _, err := pspecDo(t, p.Wrap(base), req)
						require.NoError(t, err)
					}
					serve := func(key string) string {
						release := make(chan struct{})
						base := scripted.Func(func(int, *http.Request) scripted.Step { return pspecHeld(release) })
						ctx, cancel := context.WithCancel(t.Context())
						defer cancel()
						var served string
						for range 3 {
							done := pspecGo(hedgerow.WithCall(ctx, hedgerow.Call{ScopeKey: key}), t, p.Wrap(base))
							sent := pspecSent(base)
							if len(sent) == len(served) {
								<-done
								break
							}
							served = sent
							require.NoError(t, p.Disable(sent[len(sent)-1:]))
						}
						close(release)
						synctest.Wait()
						for _, id := range served {
							require.NoError(t, p.Enable(string(id)))
						}
						return served
					}
					if tc.key != "" { // Enable ends every rest of those that serve, so the key that may use more goes last
						require.Equal(t, tc.own, serve(tc.key))
					}
					require.Equal(t, tc.other, serve("m2"))
				})
			})
		}
	}
}

// A panic in a policy function reaches the caller of RoundTrip, also from a hedge, and leaves everything free.
func TestC68PanicInAPolicyFunctionOfThePool(t *testing.T) {
	t.Parallel()
	type policies struct{ classifier, peek, scope, selector, credential bool }
	for name, pol := range map[string]policies{
		"Classifier": {classifier: true}, "Peek": {peek: true}, "ScopeOf": {scope: true}, "Selector": {selector: true},
		"CredentialFunc": {credential: true},
	} {
		for _, on := range []string{"bare", "primary", "retry", "hedge", "detached"} {
			if on == "retry" && pol.scope {
				continue // it is asked once
			}
			t.Run(name+" "+on, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					armed := true
					boom := func(mine bool, attempt hedgerow.Attempt, known bool) {
						if !mine || !armed {
							return
						}
						hedge := known && attempt.Kind == hedgerow.AttemptHedge
						if (on == "hedge") == hedge && (on != "retry" || attempt.Kind == hedgerow.AttemptRetry) {
							panic("policy")
						}
					}
					calls := 0
					cfg := hedgerow.PoolConfig{
						ScopeOf: func(r *http.Request) string {
							calls++
							boom(pol.scope, hedgerow.Attempt{Kind: hedgerow.AttemptKind(min(calls-1, 1))}, on == "hedge")
							return ""
						},
						Classifier: func(o hedgerow.Outcome) hedgerow.Verdict {
							boom(pol.classifier, o.Attempt, true)
							return hedgerow.Verdict{}
						},
					}
					cfg.Peek = func(resp *http.Response) bool {
						a, _ := hedgerow.AttemptFromContext(resp.Request.Context())
						if on == "retry" && resp.StatusCode == http.StatusOK {
							a.Kind = hedgerow.AttemptRetry
						}
						boom(pol.peek, a, true)
						return true
					}
					picks := 0
					cfg.Selector = func(*http.Request, []hedgerow.Candidate) int {
						picks++
						kind := hedgerow.AttemptPrimary
						if picks > 1 {
							kind = map[bool]hedgerow.AttemptKind{true: hedgerow.AttemptHedge, false: hedgerow.AttemptRetry}[on == "hedge"]
						}
						boom(pol.selector, hedgerow.Attempt{Kind: kind}, true)
						return 0
					}
					for _, id := range []string{"A", "B"} {
						cfg.Resources = append(cfg.Resources, hedgerow.Resource{ID: id, MaxInFlight: 1, Credential: hedgerow.CredentialFunc(
							func(req *http.Request) error {
								a, ok := hedgerow.AttemptFromContext(req.Context())
								if ok && on == "hedge" && id == "B" {
									a.Kind = hedgerow.AttemptHedge
								}
								boom(pol.credential, a, ok)
								return nil
							})})
					}
					p := pspecPool(t, cfg)
					first := scripted.Step{Body: "slow", After: time.Second}
					if on == "retry" {
						first = pspec429
					}
					second := scripted.Step{Body: "second"}
					if on == "primary" || on == "detached" {
						second.After = time.Minute // the hedge must not win
					}
					base := scripted.New(first, second, scripted.Step{Body: "later"})
					rt := p.Wrap(base)
					if on != "bare" {
						rt = contractNew(t, hedgerow.Config{Base: rt, Detach: on == "detached"})
					}
					req := base.NewRequest(t, http.MethodPost, pspecURL, "payload")
					req.Header.Set("Idempotency-Key", "k")
					require.PanicsWithValue(t, "policy", func() { _, _ = rt.RoundTrip(req) })
					synctest.Wait()
					require.Zero(t, p.Stats().InFlight)
					armed = false
					resp, err := rt.RoundTrip(contractGet(t.Context(), t, pspecURL))
					require.NoError(t, err)
					_, err = io.Copy(io.Discard, resp.Body)
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
					contractSettle(t, base)
					require.Zero(t, p.Stats().InFlight)
				})
			})
		}
	}
}
