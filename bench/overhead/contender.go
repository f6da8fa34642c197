package main

import (
	"net/http"
	"slices"
	"time"

	"github.com/cristalhq/hedgedhttp"
	"github.com/failsafe-go/failsafe-go/budget"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/hedgepolicy"

	"github.com/hedgerow-go/hedgerow"
)

// The names of the contenders that others are compared with or that targets are about.
const (
	bare     = "bare"
	ours     = "hedgerow"
	oursLike = "hedgerow, fixed delay"  // configured like a peer
	leanest  = "bare, can be cancelled" // which every attempt must be able to, if it loses
	armed    = "bare, with a timer"     // as well: what every hedger pays before it does anything
	learning = "least that learns"      // and has a race, a budget and the latencies of its host
)

// What the contenders that learn their delay learn it by, and what those with a budget may spend: hedgerow's defaults.
const (
	quantile  = 0.9
	remembers = 1000 // calls
	warmup    = 20   // calls
	share     = 0.1  // of the calls in flight
)

// A contender puts its layer around a base.
type contender struct {
	name   string
	peer   bool
	learns bool // its hedge delay, so that it cannot be given one
	wrap   func(base http.RoundTripper, delay time.Duration) (http.RoundTripper, error)
}

// contenders returns all of them, the bare base first.
func contenders() []contender {
	return []contender{
		{name: bare, wrap: func(base http.RoundTripper, _ time.Duration) (http.RoundTripper, error) { return base, nil }},
		{name: leanest, learns: true, wrap: func(base http.RoundTripper, _ time.Duration) (http.RoundTripper, error) {
			return control{base: base}, nil
		}},
		{name: armed, learns: true, wrap: func(base http.RoundTripper, delay time.Duration) (http.RoundTripper, error) {
			return control{base: base, delay: delay}, nil
		}},
		{name: learning, learns: true, wrap: func(base http.RoundTripper, _ time.Duration) (http.RoundTripper, error) {
			return newLearner(base), nil
		}},
		{name: ours, learns: true, wrap: func(base http.RoundTripper, _ time.Duration) (http.RoundTripper, error) {
			return hedgerow.New(hedgerow.Config{Base: base})
		}},
		{name: oursLike, wrap: func(base http.RoundTripper, delay time.Duration) (http.RoundTripper, error) {
			return hedgerow.New(hedgerow.Config{
				Base:  base,
				Hedge: hedgerow.HedgeConfig{Delay: delay, BudgetPercent: 100, MaxHedges: 1},
			})
		}},
		{name: "hedgedhttp", peer: true, wrap: func(base http.RoundTripper, delay time.Duration) (http.RoundTripper, error) {
			return hedgedhttp.NewRoundTripper(delay, 2, base)
		}},
		failsafe("failsafe-go delay", false, false),
		failsafe("failsafe-go delay+budget", false, true),
		failsafe("failsafe-go quantile", true, false),
		failsafe("failsafe-go quantile+budget", true, true),
	}
}

// failsafe returns failsafe-go with a delay that is fixed or learned, with or without a budget.
//
//nolint:bodyclose // the responses are a type argument
func failsafe(name string, learns, limited bool) contender {
	return contender{
		name: name, peer: true, learns: learns,
		wrap: func(base http.RoundTripper, delay time.Duration) (http.RoundTripper, error) {
			policy := hedgepolicy.NewBuilderWithDelay[*http.Response](delay)
			if learns {
				policy = hedgepolicy.NewBuilderWithDelayQuantile[*http.Response](quantile, remembers, warmup)
			}
			if limited {
				policy = policy.WithBudget(budget.NewBuilder().WithMaxRate(share).Build())
			}
			return failsafehttp.NewRoundTripper(base, policy.Build()), nil
		},
	}
}

// contenderByName returns the contender of that name.
func contenderByName(name string) (contender, bool) {
	all := contenders()
	k := slices.IndexFunc(all, func(c contender) bool { return c.name == name })
	if k < 0 {
		return contender{}, false
	}
	return all[k], true
}
