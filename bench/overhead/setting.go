package main

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"time"
)

// A base is what the contenders send their calls to.
type base string

const (
	noop    base = "no-op http.Transport"
	unknown base = "no-op unknown base"
	http1   base = "loopback HTTP/1.1"
	http2   base = "loopback HTTP/2"
)

func (b base) network() bool { return b == http1 || b == http2 }

// The hedge delays: of calls that shall not be hedged, and of those of which some shall.
const (
	neverDue = time.Second
	dueSoon  = 5 * time.Millisecond
)

// A setting is what is measured.
type setting struct {
	Name       string `json:"name"`
	Base       base   `json:"base"`
	Method     string `json:"method"`
	Procs      int    `json:"procs"` // processors of the client; zero: all
	Goroutines int    `json:"goroutines"`
	Calls      int    `json:"calls"` // in a round
	Rounds     int    `json:"rounds"`
	Life       int    `json:"life"`     // rounds that a process lives
	Together   bool   `json:"together"` // all contenders in one process
	Fires      bool   `json:"fires"`    // hedges are due
}

// delay returns the hedge delay of contenders that do not learn theirs.
func (s setting) delay() time.Duration {
	if s.Fires {
		return dueSoon
	}
	return neverDue
}

// takes reports whether the contender is measured in the setting.
func (s setting) takes(c contender) bool {
	switch {
	case s.Fires:
		return !c.learns
	case s.Base.network():
		return c.name != learning // the machine's noise is above what it adds to a timer
	}
	return c.name != oursLike // nothing takes long enough there for the zero Config to hedge
}

// A plan says what of all settings is measured.
type plan struct {
	short  bool
	rounds int            // zero: the default
	wanted *regexp.Regexp // settings; nil: all
	whom   *regexp.Regexp // contenders; nil: all
}

// contenders returns who takes part in the setting, the bare base first.
func (p plan) contenders(s setting) []contender {
	return slices.DeleteFunc(contenders(), func(c contender) bool {
		return !s.takes(c) || c.name != bare && p.whom != nil && !p.whom.MatchString(c.name)
	})
}

// settings returns what the plan measures.
func (p plan) settings() []setting {
	rounds := cmp.Or(p.rounds, 15)
	// Over a network many short rounds: what disturbs the machine shall not end between two contenders.
	noopCalls, network, firing := 20_000, 2*rounds+1, max(1, rounds*2/3)
	goroutines, busy := []int{1, 4, 16, 64, 256}, []int{16, 256}
	if p.short {
		noopCalls, network, firing = 5_000, rounds*2/3+1, max(1, rounds/5)
		goroutines, busy = []int{1, 16}, nil
	}

	all := []setting{
		{Name: "no-op over an http.Transport, one processor", Base: noop, Procs: 1},
		{Name: "no-op over an http.Transport, all processors", Base: noop},
		{Name: "no-op over an http.Transport, one processor, one process", Base: noop, Procs: 1, Together: true},
		{Name: "no-op over an unknown base, one processor", Base: unknown, Procs: 1},
		{Name: "pass-through over an http.Transport, one processor", Base: noop, Procs: 1, Method: http.MethodPost},
		{Name: "pass-through over an unknown base, one processor", Base: unknown, Procs: 1, Method: http.MethodPost},
	}
	for _, n := range busy {
		all = append(all, setting{
			Name: fmt.Sprintf("no-op over an http.Transport, all processors, %d goroutines", n), Base: noop, Goroutines: n,
		})
	}
	for k := range all {
		all[k].Calls, all[k].Life = noopCalls, 1
	}
	for _, b := range []base{http1, http2} {
		for _, n := range goroutines {
			// One goroutine waits for the server most of the time; many need some calls each, or the first and the
			// last ones, when not all of them are at work, count for too much.
			calls := max(2000, 12*n)
			if n == 1 {
				calls = 1000
			}
			all = append(all, setting{
				Name: fmt.Sprintf("%s, %s", b, plural(n, "goroutine")), Base: b, Goroutines: n, Calls: calls, Life: 8,
			})
		}
	}
	for k := range all {
		all[k].Rounds = rounds
		if all[k].Base.network() {
			all[k].Rounds = network
		}
	}
	for _, b := range []base{http1, http2} {
		all = append(all, setting{
			Name: fmt.Sprintf("%s, hedges fire", b), Base: b, Goroutines: 16, Calls: 2000, Life: rounds,
			Rounds: firing, Fires: true,
		})
	}
	for k := range all {
		all[k].Goroutines = max(all[k].Goroutines, 1)
		if all[k].Method == "" {
			all[k].Method = http.MethodGet
		}
	}
	return slices.DeleteFunc(all, func(s setting) bool { return p.wanted != nil && !p.wanted.MatchString(s.Name) })
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
