package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/hedgerow-go/hedgerow"
)

// A report is what came of a run.
type report struct {
	duration  time.Duration
	upstreams []*upstream
	bulk      *bulk
	stats     hedgerow.Stats
	pool      hedgerow.PoolStats

	mu     sync.Mutex        // guards the fields below
	thirds [3][2]measurement // searches and bulk writes
	failed []error
}

// A measurement is what callers saw.
type measurement struct {
	latencies []time.Duration // of all calls, also of those that failed
	errors    int
}

func (r *report) called(n int, at, took time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kind := 0
	if isBulk(n) {
		kind = 1
	}
	m := &r.thirds[min(int(3*at/r.duration), 2)][kind]
	m.latencies = append(m.latencies, took)
	if err != nil {
		m.errors++
		r.failed = append(r.failed, err)
	}
}

// String returns the tables. The calls have ended.
func (r *report) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	b.WriteString("What callers saw\n\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprint(w, "time\tsearches\terrors\tp50\tp99\tbulk writes\terrors\t\n")
	for i, phase := range []string{"all alive", "one dead", "all alive again"} {
		search, bulk := &r.thirds[i][0], &r.thirds[i][1]
		slices.Sort(search.latencies)
		_, _ = fmt.Fprintf(w, "%s\t%d\t%d\t%v\t%v\t%d\t%d\t\n", phase, len(search.latencies), search.errors,
			quantile(search.latencies, 0.5), quantile(search.latencies, 0.99), len(bulk.latencies), bulk.errors)
	}
	_ = w.Flush() // to memory
	if len(r.failed) > 0 {
		fmt.Fprintf(&b, "the first error: %v\n", r.failed[0])
	}

	b.WriteString("\nWhere the calls went\n\n")
	w = tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprint(w, "upstream\tlatency\tattempts\tserved\tfailed in a row now\t\n")
	for i, u := range r.upstreams {
		s := r.pool.Resources[i]
		_, _ = fmt.Fprintf(w, "%s\t%v\t%d\t%d\t%d\t\n", u.name, u.latency, s.Attempts, u.served.Load(), s.ConsecutiveFailures)
	}
	_ = w.Flush() // to memory
	t := r.stats.Total
	fmt.Fprintf(&b, "\n%d calls, %d attempts: %d hedges, of which %d won, and %d repeats; %d bulk writes came twice\n",
		t.Requests, r.pool.Attempts, t.Hedges, t.HedgeWins, r.pool.Retries, r.bulk.twice())
	return b.String()
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))].Round(100 * time.Microsecond)
}
