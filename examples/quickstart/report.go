package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/hedgerow-go/hedgerow"
)

// watch shows how the calls go, until they are done.
func watch(
	out *console, start time.Time, duration time.Duration, callers []*caller, tr *hedgerow.Transport,
	changes <-chan hedgerow.CircuitEvent, done <-chan struct{},
) {
	ticker := time.NewTicker(min(out.every, duration/4))
	defer ticker.Stop()
	defer out.clear()
	for {
		select {
		case <-done:
			return
		case e := <-changes:
			out.printf("%5.1f s  circuit of %s: %s -> %s\n",
				time.Since(start).Seconds(), cmp.Or(e.Endpoint, e.Host), e.From, e.To)
		case <-ticker.C:
			total := tr.Stats().Total
			out.progress(fmt.Sprintf("%5.1f s  %d calls, p99 in ms: %s, extra load %s",
				time.Since(start).Seconds(), total.Requests, soFar(callers), share(total.Hedges, total.Requests)))
		}
	}
}

// soFar returns the p99 that each caller has seen up to now.
func soFar(callers []*caller) string {
	parts := make([]string, len(callers))
	for i, c := range callers {
		var all []time.Duration
		for _, m := range c.results() {
			all = append(all, m.latencies...)
		}
		slices.Sort(all)
		parts[i] = c.name + " " + ms(quantile(all, 0.99))
	}
	return strings.Join(parts, ", ")
}

// A report is what came of the calls.
type report struct {
	endpoints []endpoint
	callers   []*caller
	results   [][]measurement // by caller and endpoint
	stats     hedgerow.Stats
	host      string // that the stats are of
}

func newReport(endpoints []endpoint, callers []*caller, stats hedgerow.Stats, host string) *report {
	r := &report{endpoints: endpoints, callers: callers, stats: stats, host: host}
	for _, c := range callers {
		r.results = append(r.results, c.results())
	}
	return r
}

// String returns the tables.
func (r *report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nWhat callers saw, in ms\n\n%-9s %-9s %6s %8s %8s %8s %8s %7s\n",
		"endpoint", "client", "calls", "p50", "p90", "p99", "p99.9", "errors")
	for i, e := range r.endpoints {
		name := e.name
		for k, c := range r.callers {
			m := r.results[k][i]
			slices.Sort(m.latencies)
			fmt.Fprintf(&b, "%-9s %-9s %6d %8s %8s %8s %8s %7d\n", name, c.name, len(m.latencies),
				ms(quantile(m.latencies, 0.50)), ms(quantile(m.latencies, 0.90)),
				ms(quantile(m.latencies, 0.99)), ms(quantile(m.latencies, 0.999)), m.errors)
			name = ""
		}
	}

	fmt.Fprintf(&b, "\nWhat hedgerow did\n\n%-9s %10s %7s %7s %10s  %s\n",
		"endpoint", "extra load", "hedges", "wins", "delay, ms", "calls refused a hedge, by reason")
	for _, e := range r.endpoints {
		s := r.endpointStats(e.name)
		delay := "-"
		if s.Hedges > 0 {
			delay = ms(s.Delay)
		}
		fmt.Fprintf(&b, "%-9s %10s %7d %7d %10s  %s\n",
			e.name, share(s.Hedges, s.Requests), s.Hedges, s.HedgeWins, delay, reasons(s.Skipped))
	}
	total := r.stats.Total
	fmt.Fprintf(&b, "%-9s %10s %7d %7d %10s  %s\n",
		"all", share(total.Hedges, total.Requests), total.Hedges, total.HedgeWins, "", reasons(total.Skipped))

	b.WriteString("\nWhat the servers saw\n\n")
	for _, c := range r.callers {
		fmt.Fprintf(&b, "%-9s %6d requests, %d orders sent twice\n", c.name, r.requests(c.server), c.server.ordersSeenTwice())
	}
	b.WriteString("\nWhat fails at once still fails, and a POST of an order is sent once: hedges are for calls that are slow and may be\n" +
		"sent twice.\n")
	return b.String()
}

// endpointStats returns what hedgerow knows of an endpoint.
func (r *report) endpointStats(name string) hedgerow.EndpointStats {
	return r.stats.Endpoints[hedgerow.EndpointKey{Name: name, Host: r.host}]
}

// requests returns how many requests a server got.
func (r *report) requests(s *server) int {
	n := 0
	for _, e := range r.endpoints {
		n += s.seen(e.name)
	}
	return n
}

// reasons lists why calls were not hedged.
func reasons(skipped map[hedgerow.SkipReason]uint64) string {
	var parts []string
	for _, r := range slices.Sorted(maps.Keys(skipped)) {
		parts = append(parts, fmt.Sprintf("%s %d", r, skipped[r]))
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}

// share returns part of whole in percent.
func share(part, whole uint64) string {
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(max(whole, 1)))
}

// quantile returns the smallest of the sorted latencies that the share q of them does not exceed.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(int(math.Ceil(q*float64(len(sorted))))-1, 0)]
}

// ms returns d in milliseconds.
func ms(d time.Duration) string {
	return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond))
}
