package tail_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/budget"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/hedgepolicy"
	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// A contender puts its policy in front of a service.
type contender struct {
	name string
	kind kind
	wrap func(*testing.T, *base) http.RoundTripper
}

// A kind is what a contender is there for.
type kind string

const (
	peer      kind = "peer"      // hedgerow must not be behind it
	foresight kind = "foresight" // it depends on somebody having chosen the right delay
	ours      kind = "hedgerow"
	limit     kind = "oracle"
)

// contenders returns who takes part in a workload, but for the oracle.
func (w *workload) contenders() []contender {
	all := []contender{
		{"no hedging", peer, func(_ *testing.T, b *base) http.RoundTripper { return b }},
		static(10 * ms),
		static(50 * ms),
		failsafe("failsafe-go p90", 1, false),
		failsafe("failsafe-go p90, budget", 1, true),
		failsafe("failsafe-go p90, 2 hedges, budget", 2, true),
		{"hedgerow", ours, func(t *testing.T, b *base) http.RoundTripper {
			t.Helper()
			return w.hedgerow(t, b)
		}},
	}
	if w.replicas > 0 {
		all = append(all, contender{"hedgerow with a Pool", ours, w.pooled})
	}
	if w.fanOut > 0 {
		all = append(all, w.limited(2))
	}
	return all
}

// static hedges after a fixed delay, once, as many Go libraries do. It is failsafe-go's, because cristalhq/hedgedhttp keeps
// goroutines for the whole process, for which the clock of a bubble would wait for ever.
func static(delay time.Duration) contender {
	return contender{fmt.Sprintf("static %v", delay), foresight, func(_ *testing.T, b *base) http.RoundTripper {
		policy := hedgepolicy.NewBuilderWithDelay[*http.Response](delay)
		return failsafehttp.NewRoundTripper(b, policy.CancelIf(succeeded).Build())
	}}
}

// failsafe is failsafe-go with a learned delay, at the quantile that is hedgerow's default, and with its default budget or
// none. It takes the first response that is no failure, which is better than its default of taking the first response.
func failsafe(name string, hedges int, budgeted bool) contender {
	return contender{name, peer, func(_ *testing.T, b *base) http.RoundTripper {
		policy := hedgepolicy.NewBuilderWithDelayQuantile[*http.Response](0.90, 100, 20)
		policy = policy.CancelIf(succeeded).WithMaxHedges(hedges)
		if budgeted {
			policy = policy.WithBudget(budget.New())
		}
		return failsafehttp.NewRoundTripper(b, policy.Build())
	}}
}

func succeeded(resp *http.Response, err error) bool { return err == nil && resp.StatusCode < 500 }

// limited is hedgerow with another budget for each group.
func (w *workload) limited(percents ...float64) contender {
	name := fmt.Sprintf("hedgerow, BudgetPercent %.3g", percents[0])
	return contender{name, ours, func(t *testing.T, b *base) http.RoundTripper {
		t.Helper()
		return w.hedgerow(t, b, percents...)
	}}
}

// hedgerow is a Transport with all defaults, but for the budgets if there are any. It knows the endpoints of the workload.
func (w *workload) hedgerow(t *testing.T, base http.RoundTripper, percents ...float64) http.RoundTripper {
	t.Helper()
	hedge := func(g int) (h hedgerow.HedgeConfig) {
		if len(percents) > 0 {
			h.BudgetPercent = percents[g]
			h.Quantile = min(0.90, max(1-percents[g]/100, 0.01)) // the budget decides, not the quantile
		}
		return h
	}
	tr, err := hedgerow.New(hedgerow.Config{Base: base, Hedge: hedge(0)})
	require.NoError(t, err)
	for g, group := range w.groups {
		if group.name != "" {
			h := hedge(g)
			require.NoError(t, tr.Register("GET /"+group.name, hedgerow.EndpointConfig{Hedge: &h}))
		}
	}
	return tr
}

// pooled is hedgerow that knows the replicas.
func (w *workload) pooled(t *testing.T, b *base) http.RoundTripper {
	t.Helper()
	cfg := hedgerow.PoolConfig{}
	for k := range w.replicas {
		cfg.Resources = append(cfg.Resources, hedgerow.Resource{ID: strconv.Itoa(k)})
	}
	pool, err := hedgerow.NewPool(cfg)
	require.NoError(t, err)
	b.steer = func(ctx context.Context) int {
		a, _ := hedgerow.AttemptFromContext(ctx)
		k, err := strconv.Atoi(a.Resource)
		if err != nil {
			panic(err)
		}
		return k
	}
	return w.hedgerow(t, pool.Wrap(b))
}
