package tail_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// encode returns the results as JSON, one to a line.
func encode(results []result) ([]byte, error) {
	var b bytes.Buffer
	for k := range results {
		line, err := json.Marshal(&results[k])
		if err != nil {
			return nil, fmt.Errorf("tail: results: %w", err)
		}
		b.WriteString(map[bool]string{true: "[\n", false: ",\n"}[k == 0])
		b.Write(line)
	}
	b.WriteString("\n]\n")
	return b.Bytes(), nil
}

// rows returns the results by workload and group, in order.
func rows(results []result) [][]result {
	var all [][]result
	for _, r := range results {
		k := slices.IndexFunc(all, func(of []result) bool { return of[0].row() == r.row() })
		if k < 0 {
			k = len(all)
			all = append(all, nil)
		}
		all[k] = append(all[k], r)
	}
	return all
}

// find returns the result of a contender among those of a row; nil: it did not take part.
func find(row []result, contender string) *result {
	for k := range row {
		if row[k].Contender == contender {
			return &row[k]
		}
	}
	return nil
}

// row names the workload and group of a result.
func (r *result) row() string { return strings.TrimSpace(r.Workload + " " + r.Group) }

// A verdict compares the p99 of hedgerow with that of another on one workload.
type verdict struct {
	row, against string
	ratio, most  float64
}

func (v verdict) met() bool { return v.ratio <= v.most }

// The targets: no contender is ahead by more than that at equal load, but for those that need foresight; and on the first
// six workloads the oracle is not ahead by more than that.
const (
	behindPeer   = 1.02
	behindOracle = 1.10
)

// judge compares hedgerow with the contenders.
func judge(results []result) []verdict {
	first := map[string]bool{}
	for _, w := range workloads() {
		first[w.name] = w.first
	}
	var all []verdict
	for _, row := range rows(results) {
		defaults := find(row, "hedgerow").Median
		for _, r := range row {
			switch {
			case r.Kind == peer && r.Matched != nil:
				all = append(all, verdict{r.row(), r.Contender, r.Matched.P99 / r.Median.P99, behindPeer})
			case r.Kind == peer:
				all = append(all, verdict{r.row(), r.Contender, defaults.P99 / r.Median.P99, behindPeer})
			case r.Contender == oracleOfSpans && first[r.Workload]:
				all = append(all, verdict{r.row(), r.Contender, defaults.P99 / r.Median.P99, behindOracle})
			}
		}
	}
	return all
}

// summary is the table of the README.
func summary(results []result) string {
	columns := []string{
		"no hedging", "static 10ms", "failsafe-go p90", "failsafe-go p90, 2 hedges, budget", "hedgerow", oracleOfSpans,
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| p99 in ms (extra load) | %s |\n|---|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, row := range rows(results) {
		fmt.Fprintf(&b, "| %s |", row[0].row())
		for _, column := range columns {
			m := find(row, column).Median
			if column == "no hedging" {
				fmt.Fprintf(&b, " %.1f |", m.P99)
				continue
			}
			fmt.Fprintf(&b, " %.1f (%.1f %%) |", m.P99, 100*m.Extra)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// page is docs/tail.md: everything, with pictures.
func page(results []result) string {
	var b strings.Builder
	b.WriteString(pageHead)
	judged := judge(results)
	unmet := slices.DeleteFunc(slices.Clone(judged), verdict.met)
	fmt.Fprintf(&b, "\n%d of %d comparisons meet these targets: %s. ", len(judged)-len(unmet), len(judged), tally(judged))
	if len(unmet) > 0 {
		b.WriteString("Those that do not:\n\n| workload | ahead of hedgerow | p99 of hedgerow as a multiple | target |\n|---|---|---|---|\n")
		for _, v := range unmet {
			fmt.Fprintf(&b, "| %s | %s | %.2f | %.2f |\n", v.row, v.against, v.ratio, v.most)
		}
	}
	about := map[string]string{}
	for _, w := range workloads() {
		about[w.name] = fmt.Sprintf("%s. %d calls, %v per second.", w.about, w.calls, w.rate)
	}
	for _, row := range rows(results) {
		r := row[0]
		fmt.Fprintf(&b, "\n## %s\n\n", r.row())
		if r.Group == "" || r.Group == "fast" {
			fmt.Fprintf(&b, "%s\n\n", upper(about[r.Workload]))
		}
		if why := remarks()[r.row()]; why != "" {
			b.WriteString(why + "\n\n")
		}
		fmt.Fprintf(&b, "![Latency of %s](tail/%s.svg)\n\n", r.row(), fileOf(r.row()))
		b.WriteString(table(row))
	}
	return b.String()
}

// remarks say why a workload comes out as it does, where the figures do not.
func remarks() map[string]string {
	return map[string]string{
		"low-rate": `At one call per second hedgerow's budget is one hedge, and a tenth of one for each call since: over any ten calls
two at most, in an outage as well. One straggler in twenty calls is more than that can pay for: after each hedge it takes
ten calls to save up for the next, and a third of the stragglers comes in that time, so that about 1.7 % of the calls are
stragglers without a hedge, even if it were known beforehand which calls those are, and p99 is one of them. So no policy
with this bound comes near 15 ms. The oracle reaches 41 ms by saving its hedges for the longest ones; hedgerow knows the
distribution from 30 to 60 calls only. A greater share of hedges
fills the bucket faster, but it still holds one, so that with the load of failsafe-go p99 is 48 ms. failsafe-go is ahead because nothing
bounds it here: it adds 75 % and more in the worst ten seconds.`,
		"outage-slow": `A hedge in this outage is as slow as its primary. The static delays and the oracle of the whole run are ahead by
hedging half of the calls of the outage, which is what a budget is there to prevent. The bounded oracle does best with a
delay so short that its tokens are spent at once, on any call.`,
		"slow-replica": `A third of the calls is slow and a tenth can be hedged, so that little is to be gained behind a balancer that
nobody tells. A Pool knows the replicas: it sends fewer calls to the slow one, and hedges to another.`,
		"fan-out": `Quantiles are those of whole requests. Dean and Barroso report a p99.9 of 1 800 ms without hedges and of 74 ms with
one after 10 ms, for 2 % more requests: compare the p99.9 of no hedging and of static 10ms.`,
	}
}

// tally counts the comparisons by whom they are with.
func tally(judged []verdict) string {
	of := func(who string, with func(string) bool) string {
		all, met := 0, 0
		for _, v := range judged {
			if with(v.against) {
				all++
				if v.met() {
					met++
				}
			}
		}
		return fmt.Sprintf("%d of %d with %s", met, all, who)
	}
	return strings.Join([]string{
		of("failsafe-go at equal load", func(s string) bool { return strings.HasPrefix(s, "failsafe-go") }),
		of("no hedging", func(s string) bool { return s == "no hedging" }),
		of("the oracle", func(s string) bool { return s == oracleOfSpans }),
	}, ", ")
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// fileOf returns the name, without its ending, of the picture of a row.
func fileOf(row string) string { return strings.ReplaceAll(row, " ", "-") }

// table shows the results of one row.
func table(row []result) string {
	var b strings.Builder
	failures := slices.ContainsFunc(row, func(r result) bool { return r.Median.Failed > 0 })
	b.WriteString("| | p50 | p90 | p99 | p99.9 | extra | worst 10 s |")
	if failures {
		b.WriteString(" failed |")
	}
	b.WriteString(" hedgerow at that load: p99 | p99.9 | extra |\n|---|---|---|---|---|---|---|---|---|---|")
	if failures {
		b.WriteString("---|")
	}
	b.WriteByte('\n')
	for _, r := range row {
		m := r.Median
		name := r.Contender
		if r.Delay > 0 {
			name = fmt.Sprintf("%s: %.1f ms", name, r.Delay)
		}
		fmt.Fprintf(&b, "| %s | %.2f | %.2f | %.2f | %.2f | %.2f %% | %.1f %% |",
			name, m.P50, m.P90, m.P99, m.P999, 100*m.Extra, 100*m.Worst)
		if failures {
			fmt.Fprintf(&b, " %.2f %% |", 100*m.Failed)
		}
		if r.Matched != nil {
			fmt.Fprintf(&b, " %.2f | %.2f | %.2f %% |\n", r.Matched.P99, r.Matched.P999, 100*r.Matched.Extra)
		} else {
			b.WriteString(" | | |\n")
		}
	}
	return b.String()
}

const pageHead = `# Tails

What hedging policies make of services with tails, in virtual time: the median of five seeds, in ms. This page and its
pictures, the results as JSON and the table of the README are written by

` + "```" + `
make tail
` + "```" + `

in some seven minutes on an idle machine with two processors, and come out the same every time, but for failsafe-go's
rows of fan-out, which vary by less than one in a hundred. The figures of one seed are compared with the committed ones by
` + "`go test ./tail`" + ` in ` + "`bench`" + `, in less than a minute; the documentation of that package says how the simulation works. It
simulates latency, not load: an attempt does not slow down others.

- **extra** is the attempts beyond the first, per call; **worst 10 s** the same in the ten seconds that had most of them.
- **static** is a single hedge after a fixed delay. It does well where that happens to be the right one; somebody has to know.
- **failsafe-go** learns the 0.90 quantile; its budget is its default, a fifth of the calls in flight and at least three. It
  is told to take the first response that did not fail.
- **hedgerow** has no configuration but the patterns of the endpoints. Beside the static delays and
  failsafe-go stands what it does with a budget that adds the same load, as nearly as that can be had.
- **oracle** is the single delay with the lowest p99, found by search with all service times known. Its hedges over any span are bounded as
  hedgerow's are; those of "10 % of the run" only over the whole run, so that it may spend them all in one outage.

The targets: at equal load failsafe-go is not ahead of hedgerow on p99 by more than 2 %, nor is no hedging at all; and on the first six
workloads, down to slow-replica, the bounded oracle is not ahead by more than 10 %; two-endpoints counts
twice. There is none for p99.9, where failsafe-go is ahead on outage-slow, by 22 %, and on low-rate. Static delays are no peers here, because they need
to know the service.
`
