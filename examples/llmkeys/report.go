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
	provider *provider
	pool     hedgerow.PoolStats
	start    time.Time

	mu        sync.Mutex // guards the fields below
	latencies []time.Duration
	failed    []error
	tokens    int
	streamErr error
	changes   []string
}

func (r *report) called(took time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.latencies = append(r.latencies, took)
	if err != nil {
		r.failed = append(r.failed, err)
	}
}

func (r *report) streamed(tokens int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tokens, r.streamErr = tokens, err
}

// changed is told of each change of a key's state. There may be many, of which the first are shown.
func (r *report) changed(e hedgerow.ResourceEvent) {
	const shown = 8
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.changes) < shown {
		r.changes = append(r.changes, fmt.Sprintf("%6.2f s  %-8s %s -> %s %s",
			time.Since(r.start).Seconds(), e.ID, e.From, e.To, e.Reason))
	}
}

// String returns the tables. The calls have ended.
func (r *report) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "The first changes of state\n\n%s\n\nWhat the provider saw, by key\n\n", strings.Join(r.changes, "\n"))
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprint(w, "key\ttier\tlimit\tserved\t429\t401\tstate now\t\n")
	cut := 0
	for i, k := range keys() {
		var t tally
		t, cut = r.provider.seen(k.id)
		_, _ = fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%s\t\n", k.id, k.tier, k.limit, t.served, t.limited, t.refused, r.pool.Resources[i].State)
	}
	_ = w.Flush() // to memory
	slices.Sort(r.latencies)
	fmt.Fprintf(&b, "\nWhat callers saw\n\n%d calls, %d failed, p50 %v, slowest %v\n", len(r.latencies), len(r.failed),
		quantile(r.latencies, 0.5), quantile(r.latencies, 1))
	if len(r.failed) > 0 {
		fmt.Fprintf(&b, "the first failure: %v\n", r.failed[0])
	}
	fmt.Fprintf(&b, "a stream was given up after %d tokens; the provider saw %d end so\n", r.tokens, cut)
	fmt.Fprintf(&b, "%d attempts for %d calls; %d slots are held now\n", r.pool.Attempts, len(r.latencies)+1, r.pool.InFlight)
	return b.String()
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))].Round(time.Millisecond)
}
