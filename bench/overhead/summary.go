package main

import (
	"math"
	"slices"
)

// A summary is what the rounds of a contender come to. All but the shares are medians.
type summary struct {
	Nanoseconds float64 `json:"ns"`
	CPU         float64 `json:"cpu_ns"`
	Allocs      float64 `json:"allocs"`
	Bytes       float64 `json:"bytes"`
	P50         float64 `json:"p50_ns"`
	P99         float64 `json:"p99_ns"`

	VsBare      spread  `json:"vs_bare"`      // time, of the ratios within each round
	VsBareCPU   spread  `json:"vs_bare_cpu"`  // the same of processor time
	VsBareLeast float64 `json:"vs_bare_fast"` // the ratio of the fastest rounds
	Added       float64 `json:"added_ns"`     // of the differences within each round
	AddedLeast  float64 `json:"added_ns_fast"`
	AddedAllocs float64 `json:"added_allocs"`
	AddedBytes  float64 `json:"added_bytes"`

	// As shares of the least that a peer adds; zero if that is nothing.
	Share       float64 `json:"share"`
	ShareLeast  float64 `json:"share_fast"`
	ShareAllocs float64 `json:"share_allocs"`
	ShareBytes  float64 `json:"share_bytes"`

	Hedges     float64 `json:"hedges"`          // requests beyond the calls, per call, over all rounds
	PerHedge   float64 `json:"dials_per_hedge"` // new connections per hedge, over all rounds; zero without hedges
	Dials      float64 `json:"connections"`     // opened in the life of a process
	Goroutines float64 `json:"goroutines"`      // held when its calls have ended
	Hedged     int64   `json:"hedges_total"`    // over all rounds
	Dialed     int64   `json:"dials_in_rounds"` // over all rounds
	Called     int     `json:"calls_in_rounds"` // over all rounds
}

// A spread is a median, the quartiles around it, and between what the median is with 95 % confidence.
type spread struct {
	Low    float64 `json:"q1"`
	Median float64 `json:"median"`
	High   float64 `json:"q3"`
	From   float64 `json:"from"`
	To     float64 `json:"to"`
}

func spreadOf(all []float64) spread {
	if len(all) == 0 {
		return spread{}
	}
	sorted := slices.Sorted(slices.Values(all))
	n := len(sorted)
	off := 0.98 * math.Sqrt(float64(n)) // 1.96 standard deviations of how many of n are below the median
	return spread{
		Low: sorted[n/4], Median: sorted[n/2], High: sorted[n*3/4],
		From: sorted[max(0, int(float64(n)/2-off))], To: sorted[min(n-1, int(float64(n)/2+off))],
	}
}

func median(all []float64) float64 { return spreadOf(all).Median }

// each returns one number of all the samples.
func each[S any](samples []S, number func(S) float64) []float64 {
	all := make([]float64, len(samples))
	for k, s := range samples {
		all[k] = number(s)
	}
	return all
}

func nanoseconds(s sample) float64 { return s.Nanoseconds }
func processor(s sample) float64   { return s.CPU }
func allocs(s sample) float64      { return s.Allocs }
func bytes(s sample) float64       { return s.Bytes }

// pairs returns what f makes of the numbers of a and b in each round.
func pairs(a, b *entry, number func(sample) float64, f func(a, b float64) float64) []float64 {
	all := make([]float64, len(a.Samples))
	for k := range all {
		all[k] = f(number(a.Samples[k]), number(b.Samples[k]))
	}
	return all
}

func difference(a, b float64) float64 { return a - b }

// ratio returns a as a share of b; zero if b is nothing, as noise can have it.
func ratio(a, b float64) float64 {
	if b <= 0 {
		return 0
	}
	return a / b
}

// summarize fills in the summaries.
func (r *result) summarize() {
	first := r.Contenders[0]
	for _, e := range r.Contenders {
		e.summarize(first, r.Setting)
	}
	least := func(added func(*summary) float64) float64 {
		low := math.Inf(1)
		for _, e := range r.Contenders {
			if e.Peer {
				low = min(low, added(&e.Summary))
			}
		}
		return low
	}
	for _, c := range []struct{ added, share func(*summary) *float64 }{
		{func(s *summary) *float64 { return &s.Added }, func(s *summary) *float64 { return &s.Share }},
		{func(s *summary) *float64 { return &s.AddedLeast }, func(s *summary) *float64 { return &s.ShareLeast }},
		{func(s *summary) *float64 { return &s.AddedAllocs }, func(s *summary) *float64 { return &s.ShareAllocs }},
		{func(s *summary) *float64 { return &s.AddedBytes }, func(s *summary) *float64 { return &s.ShareBytes }},
	} {
		low := least(func(s *summary) float64 { return *c.added(s) })
		if math.IsInf(low, 1) {
			continue // no peer takes part
		}
		for _, e := range r.Contenders {
			*c.share(&e.Summary) = ratio(*c.added(&e.Summary), low)
		}
	}
}

// summarize fills in what does not depend on the peers.
func (e *entry) summarize(first *entry, of setting) {
	numbers := func(f func(sample) float64) []float64 { return each(e.Samples, f) }
	fastest := func(e *entry) float64 { return slices.Min(each(e.Samples, nanoseconds)) }
	s := &e.Summary
	*s = summary{
		Nanoseconds: median(numbers(nanoseconds)),
		CPU:         median(numbers(processor)),
		Allocs:      median(numbers(allocs)),
		Bytes:       median(numbers(bytes)),
		P50:         median(numbers(func(s sample) float64 { return s.P50 })),
		P99:         median(numbers(func(s sample) float64 { return s.P99 })),

		VsBare:      spreadOf(pairs(e, first, nanoseconds, ratio)),
		VsBareCPU:   spreadOf(pairs(e, first, processor, ratio)),
		VsBareLeast: ratio(fastest(e), fastest(first)),
		Added:       median(pairs(e, first, nanoseconds, difference)),
		AddedLeast:  fastest(e) - fastest(first),
		AddedAllocs: median(numbers(allocs)) - median(each(first.Samples, allocs)),
		AddedBytes:  median(numbers(bytes)) - median(each(first.Samples, bytes)),

		Dials:      median(each(e.Rests, func(r rest) float64 { return float64(r.Dials) })),
		Goroutines: median(each(e.Rests, func(r rest) float64 { return float64(r.Goroutines) })),
		Called:     len(e.Samples) * of.Calls,
	}
	s.Hedged = -int64(s.Called)
	for _, m := range e.Samples {
		s.Hedged += m.Requests
		s.Dialed += m.Dials
	}
	s.Hedges = ratio(float64(s.Hedged), float64(s.Called))
	s.PerHedge = ratio(float64(s.Dialed), float64(s.Hedged))
}

// entry returns what the contender of that name costs; nil if it was not measured.
func (r *result) entry(name string) *entry {
	for _, e := range r.Contenders {
		if e.Name == name {
			return e
		}
	}
	return nil
}
