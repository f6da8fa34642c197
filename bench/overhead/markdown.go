package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
)

// writeMarkdown writes the table of docs/overhead.md: what a call costs over the no-op base, over loopback as a ratio
// to the bare transport, and what hedges cost in connections. Settings that were not measured have no column.
func (r *report) writeMarkdown(out io.Writer) error {
	var heads []string
	var cells []func(name string) string
	add := func(one *result, head string, cell func(*summary) string) {
		heads = append(heads, head)
		cells = append(cells, func(name string) string {
			if e := one.entry(name); e != nil {
				return cell(&e.Summary)
			}
			return "-"
		})
	}
	held := map[string]float64{}
	for _, one := range r.Results {
		for _, e := range one.Contenders {
			held[e.Name] = max(held[e.Name], e.Summary.Goroutines)
		}
		s := one.Setting
		switch {
		case s.Fires && s.Base == http1:
			add(one, "connections per hedge, h1", func(m *summary) string { return dash(m.PerHedge) })
		case s.Fires:
		case s.Base.network():
			protocol := map[base]string{http1: "h1", http2: "h2"}[s.Base]
			add(one, fmt.Sprintf("%s, %d", protocol, s.Goroutines), func(m *summary) string {
				return fmt.Sprintf("%.2f", m.VsBare.Median)
			})
		case s.Base == noop && s.Method == http.MethodGet && s.Procs == 1 && !s.Together:
			add(one, "no-op: added ns", func(m *summary) string { return fmt.Sprintf("%.0f", m.Added) })
			add(one, "of best peer", func(m *summary) string { return dash(m.Share) })
			add(one, "added allocs", func(m *summary) string { return fmt.Sprintf("%.0f", m.AddedAllocs) })
			add(one, "of best peer", func(m *summary) string { return dash(m.ShareAllocs) })
		}
	}
	w := &strings.Builder{}
	fmt.Fprintf(w, "| | %s | goroutines held |\n|---|%s\n", strings.Join(heads, " | "), strings.Repeat("--:|", len(heads)+1))
	for _, c := range contenders() {
		fmt.Fprintf(w, "| %s |", c.name)
		for _, cell := range cells {
			fmt.Fprintf(w, " %s |", cell(c.name))
		}
		fmt.Fprintf(w, " %.0f |\n", held[c.name])
	}
	fmt.Fprintf(w, "\n%s %s, %d CPUs%s.\n", r.Go, r.Platform, r.CPUs, r.peers())
	_, err := io.WriteString(out, w.String())
	return err
}
