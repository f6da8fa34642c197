package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"time"
)

// A report is everything that one run has measured. It has no date, so that two runs differ only in what was measured.
type report struct {
	Go         string            `json:"go"`
	Platform   string            `json:"platform"`
	CPUs       int               `json:"cpus"`
	GOMAXPROCS int               `json:"gomaxprocs"`
	Short      bool              `json:"short"`
	Versions   map[string]string `json:"versions"`
	Results    []*result         `json:"results"`
	Targets    []target          `json:"targets"`
}

// A result is one setting.
type result struct {
	Setting    setting  `json:"setting"`
	Contenders []*entry `json:"contenders"` // the bare base first
}

// An entry is what a contender costs in a setting.
type entry struct {
	Name    string   `json:"name"`
	Peer    bool     `json:"peer"`
	Summary summary  `json:"summary"`
	Samples []sample `json:"samples"` // by round
	Rests   []rest   `json:"rests"`   // by process
}

// measureAll measures what is planned.
func measureAll(ctx context.Context, p plan, progress io.Writer) (*report, error) {
	r := &report{
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(),
		GOMAXPROCS: runtime.GOMAXPROCS(0), Short: p.short, Versions: map[string]string{},
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			r.Versions[m.Path] = m.Version
		}
	}
	for _, s := range p.settings() {
		began := time.Now()
		one, err := measure(ctx, s, p.contenders(s))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		if _, err := fmt.Fprintf(progress, "%5.1fs  %s\n", time.Since(began).Seconds(), s.Name); err != nil {
			return nil, err
		}
		one.summarize()
		r.Results = append(r.Results, one)
	}
	r.Targets = r.targets()
	return r, nil
}

// A bench has the processes of one setting.
type bench struct {
	s       setting
	entries []*entry
	server  *process // nil: there is no network
	address string
	clients []*process // by contender; the same one for all, if they are together
	born    int        // generations of clients
}

// measure lets the contenders take turns in a setting.
func measure(ctx context.Context, s setting, all []contender) (_ *result, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // and what is left of the processes
	b := &bench{s: s}
	for _, c := range all {
		b.entries = append(b.entries, &entry{Name: c.name, Peer: c.peer})
	}
	if s.Base.network() {
		if b.server, err = start(ctx, role{Server: true}); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, b.server.stop()) }()
		hello, err := b.server.hear()
		if err != nil {
			return nil, err
		}
		b.address = hello.Address
	}
	for round := range s.Rounds {
		if round%s.Life == 0 {
			if err := b.renew(ctx); err != nil {
				return nil, err
			}
		}
		for _, k := range turns(round, len(b.entries)) {
			m, err := b.sample(k)
			if err != nil {
				return nil, err
			}
			b.entries[k].Samples = append(b.entries[k].Samples, m)
		}
	}
	return &result{Setting: s, Contenders: b.entries}, b.retire()
}

// turns returns in which order n contenders take turns: one further in each round, and back in every other one, so that
// no two always follow each other.
func turns(round, n int) []int {
	order := make([]int, n)
	for k := range order {
		order[k] = (round + k) % n
	}
	if round%2 == 1 {
		slices.Reverse(order)
	}
	return order
}

// lane names the lane of a contender, to the server too.
func (b *bench) lane(k int) string { return fmt.Sprintf("%d-%d", b.born, k) }

// renew replaces the clients.
func (b *bench) renew(ctx context.Context) error {
	if err := b.retire(); err != nil {
		return err
	}
	b.born++
	for k, e := range b.entries {
		if b.s.Together && k > 0 {
			b.clients = append(b.clients, b.clients[0])
		} else {
			p, err := start(ctx, role{Setting: b.s, Address: b.address})
			if err != nil {
				return err
			}
			b.clients = append(b.clients, p)
		}
		if _, err := b.clients[k].ask(order{Verb: toWarm, Contender: e.Name, Lane: b.lane(k)}); err != nil {
			return err
		}
	}
	return nil
}

// sample measures one round of one contender.
func (b *bench) sample(k int) (sample, error) {
	before, err := b.count(k)
	if err != nil {
		return sample{}, err
	}
	answer, err := b.clients[k].ask(order{Verb: toMeasure, Contender: b.entries[k].Name, Lane: b.lane(k)})
	if err != nil {
		return sample{}, err
	}
	after, err := b.count(k)
	if err != nil {
		return sample{}, err
	}
	answer.Sample.Requests += after - before
	return answer.Sample, nil
}

// count returns how many requests the server got of a contender.
func (b *bench) count(k int) (int64, error) {
	if b.server == nil {
		return 0, nil
	}
	answer, err := b.server.ask(order{Verb: toCount, Lane: b.lane(k)})
	return answer.Count, err
}

// retire looks at what the clients hold when their calls have ended, and ends them.
func (b *bench) retire() error {
	for k, p := range b.clients {
		if !b.s.Together { // else nobody knows whose it is
			answer, err := p.ask(order{Verb: toRest, Contender: b.entries[k].Name, Lane: b.lane(k)})
			if err != nil {
				return err
			}
			b.entries[k].Rests = append(b.entries[k].Rests, answer.Rest)
		}
		if b.s.Together && k < len(b.clients)-1 {
			continue
		}
		if err := p.stop(); err != nil {
			return err
		}
	}
	b.clients = nil
	return nil
}
