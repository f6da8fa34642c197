package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// A column is a head and what stands below it.
type column struct {
	head string
	cell func(*entry) string
}

// writeText writes everything as tables, and how the targets fared.
func (r *report) writeText(out io.Writer) error {
	w := &strings.Builder{}
	fmt.Fprintf(w, "%s %s, %d CPUs, GOMAXPROCS %d%s\n", r.Go, r.Platform, r.CPUs, r.GOMAXPROCS, r.peers())
	for _, one := range r.Results {
		s := one.Setting
		fmt.Fprintf(w, "\n%s: %s of %s\n", s.Name, plural(s.Rounds, "round"), plural(s.Calls, "call"))
		writeTable(w, one.Contenders, one.columns())
	}
	fmt.Fprintln(w)
	for _, t := range r.Targets {
		fmt.Fprintln(w, t)
	}
	_, err := io.WriteString(out, w.String())
	return err
}

// peers returns the versions of the libraries that hedgerow is compared with.
func (r *report) peers() string {
	var b strings.Builder
	for _, path := range []string{"github.com/cristalhq/hedgedhttp", "github.com/failsafe-go/failsafe-go"} {
		if v := r.Versions[path]; v != "" {
			b.WriteString(", " + path[strings.LastIndex(path, "/")+1:] + " " + v)
		}
	}
	return b.String()
}

// columns returns what there is to say in the setting.
func (r *result) columns() []column {
	s := r.Setting
	name := column{"", func(e *entry) string { return e.Name }}
	sent := column{"hedges %", func(e *entry) string { return fmt.Sprintf("%.2f", 100*e.Summary.Hedges) }}
	dials := column{"conns", func(e *entry) string { return fmt.Sprintf("%.0f", e.Summary.Dials) }}
	held := column{"goroutines", func(e *entry) string { return fmt.Sprintf("%.0f", e.Summary.Goroutines) }}
	latencies := []column{
		{"p50", func(e *entry) string { return duration(e.Summary.P50) }},
		{"p99", func(e *entry) string { return duration(e.Summary.P99) }},
	}
	memory := []column{
		{"allocs", func(e *entry) string { return fmt.Sprintf("%.2f", e.Summary.Allocs) }},
		{"added", func(e *entry) string { return fmt.Sprintf("%.2f", e.Summary.AddedAllocs) }},
		{"of best", func(e *entry) string { return dash(e.Summary.ShareAllocs) }},
		{"bytes", func(e *entry) string { return fmt.Sprintf("%.0f", e.Summary.Bytes) }},
		{"added", func(e *entry) string { return fmt.Sprintf("%.0f", e.Summary.AddedBytes) }},
	}
	spent := []column{
		{"ns", func(e *entry) string { return fmt.Sprintf("%.0f", e.Summary.Nanoseconds) }},
		{"added", func(e *entry) string { return fmt.Sprintf("%.0f", e.Summary.Added) }},
		{"of best", func(e *entry) string { return dash(e.Summary.Share) }},
		{"fastest", func(e *entry) string { return dash(e.Summary.ShareLeast) }},
		{"vs bare", func(e *entry) string { return fmt.Sprintf("%.3f", e.Summary.VsBare.Median) }},
	}
	if s.Fires {
		return slices.Concat([]column{
			name, sent,
			{"conns/hedge", func(e *entry) string { return dash(e.Summary.PerHedge) }},
		}, latencies, []column{dials, held})
	}
	if !s.Base.network() {
		return slices.Concat([]column{name}, spent, memory, []column{sent, held})
	}
	spent[2].head = "of best peer"
	return slices.Concat([]column{name}, spent[:3], []column{
		spent[4],
		{"quartiles", func(e *entry) string { return fmt.Sprintf("%.3f-%.3f", e.Summary.VsBare.Low, e.Summary.VsBare.High) }},
		{"fastest", func(e *entry) string { return fmt.Sprintf("%.3f", e.Summary.VsBareLeast) }},
		{"cpu", func(e *entry) string { return fmt.Sprintf("%.3f", e.Summary.VsBareCPU.Median) }},
	}, memory, latencies, []column{sent, dials, held})
}

// dash returns a ratio, or that there is none.
func dash(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", v)
}

func duration(ns float64) string {
	return time.Duration(ns).Round(time.Microsecond).String()
}

// writeTable writes an aligned table.
func writeTable(out io.Writer, entries []*entry, columns []column) {
	var b strings.Builder
	row := func(cell func(column) string) {
		for _, c := range columns {
			b.WriteString(cell(c) + "\t")
		}
		b.WriteString("\n")
	}
	row(func(c column) string { return c.head })
	for _, e := range entries {
		row(func(c column) string { return c.cell(e) })
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = io.WriteString(w, b.String()) // to a buffer
	_ = w.Flush()
}
