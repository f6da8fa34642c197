package tail_test

import (
	"cmp"
	"slices"
	"testing"
)

// The oracles: the hedges of any span are bounded, or only those of the whole run.
const (
	oracleOfSpans = "oracle"
	oracleOfRun   = "oracle, 10 % of the run"
)

// A result is what a contender made of a workload, or of one group of its calls.
type result struct {
	Workload, Group, Contender string

	Kind    kind
	Delay   float64   `json:",omitempty"` // the oracle's, in ms
	Seeds   []outcome // of each seed
	Median  outcome   // of the seeds, figure by figure
	Matched *outcome  `json:",omitempty"` // the median of hedgerow with the extra load of the contender
	Curve   []float64 // of the first seed: see [workload.curve]
}

// median returns the median of every figure.
func median(all []outcome) outcome {
	of := func(figure func(outcome) float64) float64 {
		sorted := slices.SortedFunc(slices.Values(all), func(a, b outcome) int { return cmp.Compare(figure(a), figure(b)) })
		return figure(sorted[len(sorted)/2])
	}
	return outcome{
		P50:    of(func(o outcome) float64 { return o.P50 }),
		P90:    of(func(o outcome) float64 { return o.P90 }),
		P99:    of(func(o outcome) float64 { return o.P99 }),
		P999:   of(func(o outcome) float64 { return o.P999 }),
		Extra:  of(func(o outcome) float64 { return o.Extra }),
		Worst:  of(func(o outcome) float64 { return o.Worst }),
		Failed: of(func(o outcome) float64 { return o.Failed }),
	}
}

// measure runs every contender with every seed.
func (w *workload) measure(t *testing.T, seeds []uint64) []result {
	t.Helper()
	var results []result
	for _, c := range w.contenders() {
		of := w.compete(t, c, seeds)
		if c.kind == peer || c.kind == foresight {
			w.match(t, of, seeds)
		}
		results = append(results, of...)
	}
	for _, bucket := range []bool{true, false} {
		results = append(results, w.consult(seeds, bucket)...)
	}
	slices.SortStableFunc(results, func(a, b result) int { return cmp.Compare(a.Group, b.Group) })
	return results
}

// compete runs one contender. There is a result for every group.
func (w *workload) compete(t *testing.T, c contender, seeds []uint64) []result {
	t.Helper()
	results := make([]result, len(w.groups))
	for _, seed := range seeds {
		calls := w.run(t, seed, c)
		for g := range w.groups {
			results[g].Seeds = append(results[g].Seeds, w.outcome(calls, g))
			if results[g].Curve == nil {
				results[g].Curve = w.curve(calls, g)
			}
		}
	}
	for g := range results {
		r := &results[g]
		r.Workload, r.Group, r.Contender, r.Kind, r.Median = w.name, w.groups[g].name, c.name, c.kind, median(r.Seeds)
	}
	return results
}

// match adds what hedgerow does at the load of a contender. A budget is not always used up, so that it takes a second try
// with one that is larger by as much.
func (w *workload) match(t *testing.T, of []result, seeds []uint64) {
	t.Helper()
	percents := make([]float64, len(of))
	for g := range of {
		percents[g] = 100 * min(of[g].Median.Extra, 1)
		if percents[g] == 0 {
			return
		}
	}
	for range 2 {
		for g, r := range w.compete(t, w.limited(percents...), seeds) {
			of[g].Matched = &r.Median
			percents[g] = min(percents[g]*of[g].Median.Extra/r.Median.Extra, 100)
		}
	}
}

// consult asks the oracle.
func (w *workload) consult(seeds []uint64, bucket bool) []result {
	name := oracleOfRun
	if bucket {
		name = oracleOfSpans
	}
	all := make([][]*call, len(seeds))
	for k, seed := range seeds {
		all[k] = w.draw(seed)
	}
	var results []result
	for g := range w.groups {
		own := make([][]*call, len(seeds))
		for k := range all {
			own[k] = slices.DeleteFunc(slices.Clone(all[k]), func(c *call) bool { return c.group != g })
		}
		o := &oracle{w: w, group: g, bucket: bucket}
		delay, outcomes := o.search(own)
		o.play(own[0], delay)
		results = append(results, result{
			Workload: w.name, Group: w.groups[g].name, Contender: name, Kind: limit, Delay: float64(delay.Microseconds()) / 1000,
			Seeds: outcomes, Median: median(outcomes), Curve: w.curve(own[0], g),
		})
	}
	return results
}
