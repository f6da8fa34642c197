package main

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"slices"
)

// The targets.
const (
	timeShare    = 1.0 / 3 // of the time that the best peer adds, over the no-op base
	allocShare   = 1.0 / 2 // of its allocations
	loopbackRate = 1.03    // of the time of the bare base, over loopback
	// A round begins and ends with some idle connections, which the losers use up or not: a few in a hundred.
	dialRate = 1.02 // of the new connections per hedge of the best peer

	passNanoseconds = 500 // added to a call that cannot be hedged
	passAllocs      = 1
)

// A target is a bound and what was measured.
type target struct {
	What    string  `json:"what"`
	Setting string  `json:"setting"`
	Got     float64 `json:"got"`
	Bound   float64 `json:"bound"`
	Met     bool    `json:"met"`
	Note    string  `json:"note,omitempty"`
}

// String returns the target as a line of the report.
func (t target) String() string {
	verdict := "NOT MET"
	if t.Met {
		verdict = "met"
	}
	text := fmt.Sprintf("target %-7s %7.3f <= %7.3f  %s: %s", verdict, t.Got, t.Bound, t.Setting, t.What)
	if t.Note != "" {
		text += " (" + t.Note + ")"
	}
	return text
}

// targets compares what was measured with the targets.
func (r *report) targets() []target {
	var all []target
	add := func(s setting, what string, got, bound float64, note string) {
		all = append(all, target{what, s.Name, got, bound, got <= bound, note})
	}
	for _, one := range r.Results {
		s := one.Setting
		peers := slices.DeleteFunc(slices.Clone(one.Contenders), func(e *entry) bool { return !e.Peer })
		for _, e := range one.Contenders {
			m := e.Summary
			switch {
			case e.Name != ours && e.Name != oursLike:
			case s.Base.network() && !s.Fires:
				add(s, e.Name+": time against bare", m.VsBare.Median, loopbackRate,
					fmt.Sprintf("%.3f to %.3f, client's processor time %.3f, hedges %.1f %%",
						m.VsBare.From, m.VsBare.To, m.VsBareCPU.Median, 100*m.Hedges))
			case s.Method == http.MethodPost:
				add(s, "ns added", m.Added, passNanoseconds, fmt.Sprintf("fastest %.0f", m.AddedLeast))
				add(s, "allocations added", tenths(m.AddedAllocs), passAllocs, "")
			case len(peers) == 0:
			case s.Fires && s.Base == http1:
				best := slices.MinFunc(peers, func(a, b *entry) int { return cmp.Compare(a.Summary.PerHedge, b.Summary.PerHedge) })
				add(s, "new connections per hedge against the least of a peer, and 2 % for chance", m.PerHedge, dialRate*best.Summary.PerHedge,
					fmt.Sprintf("%d for %d hedges, %s %d for %d", m.Dialed, m.Hedged, best.Name, best.Summary.Dialed,
						best.Summary.Hedged))
			case s.Fires:
			default:
				add(s, "time added against the best peer's", m.Share, timeShare,
					fmt.Sprintf("fastest %.3f%s%s", m.ShareLeast, one.shareOf(armed), one.shareOf(learning)))
				add(s, "allocations added against the best peer's", m.ShareAllocs, allocShare, "")
			}
		}
	}
	for _, b := range []base{http1, http2} {
		for _, name := range []string{ours, oursLike} {
			m, cpu := r.pooled(b, name, bare, nanoseconds), r.pooled(b, name, bare, processor)
			if m.Median == 0 {
				continue
			}
			add(setting{Name: string(b) + ", all rounds"}, name+": time against bare", m.Median, loopbackRate,
				fmt.Sprintf("%.3f to %.3f, client's processor time %.3f, %.3f to %.3f; context and timer alone %.3f, against those %.3f",
					m.From, m.To, cpu.Median, cpu.From, cpu.To,
					r.pooled(b, armed, bare, nanoseconds).Median, r.pooled(b, name, armed, nanoseconds).Median))
		}
	}
	return all
}

// shareOf returns a note of the share that a control adds of the best peer's time; none if it took no part.
func (r *result) shareOf(name string) string {
	e := r.entry(name)
	if e == nil {
		return ""
	}
	return fmt.Sprintf("; %s %.3f", name, e.Summary.Share)
}

// pooled returns how a contender compares with another one in all rounds over that base, with however many goroutines: one
// setting alone has too few where the machine is busy.
func (r *report) pooled(b base, name, than string, number func(sample) float64) spread {
	var all []float64
	for _, one := range r.Results {
		e, other := one.entry(name), one.entry(than)
		if e != nil && other != nil && one.Setting.Base == b && !one.Setting.Fires {
			all = append(all, pairs(e, other, number, ratio)...)
		}
	}
	return spreadOf(all)
}

// tenths rounds a number of allocations per call: the rest is what else a process allocates.
func tenths(v float64) float64 { return math.Round(v*10) / 10 }
