package prom_test

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/prom"
)

func ExampleNewCollector() {
	tr, err := hedgerow.New(hedgerow.Config{})
	if err != nil {
		panic(err)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(prom.NewCollector(tr)) // and promhttp.HandlerFor(reg, ...) to be scraped

	families, err := reg.Gather()
	if err != nil {
		panic(err)
	}
	for _, f := range families {
		fmt.Println(f.GetName()) // those of endpoints come with the first call
	}
	// Output:
	// hedgerow_transport_calls_total
	// hedgerow_transport_errors_total
	// hedgerow_transport_hedged_calls_total
	// hedgerow_transport_hedges_total
	// hedgerow_transport_skipped_total
	// hedgerow_transport_warmup_calls_total
	// hedgerow_transport_wins_total
}

// Two Transports in one registry are told apart by a label.
func ExampleNewCollector_severalTransports() {
	reg := prometheus.NewRegistry()
	for _, name := range []string{"mail", "search"} {
		tr, err := hedgerow.New(hedgerow.Config{})
		if err != nil {
			panic(err)
		}
		prometheus.WrapRegistererWith(prometheus.Labels{"transport": name}, reg).MustRegister(prom.NewCollector(tr))
	}

	families, err := reg.Gather()
	if err != nil {
		panic(err)
	}
	fmt.Println(families[0].GetName())
	for _, m := range families[0].GetMetric() {
		fmt.Println(m.GetLabel()[0].GetValue(), m.GetCounter().GetValue())
	}
	// Output:
	// hedgerow_transport_calls_total
	// mail 0
	// search 0
}

// A pool's families stand beside those of the Transport.
func ExampleNewCollector_pools() {
	keys, err := hedgerow.NewPool(hedgerow.PoolConfig{
		Name: "search", Hosts: []string{"api.example.com"},
		Resources: []hedgerow.Resource{{ID: "paid", Credential: hedgerow.Bearer("sk-...")}},
	})
	if err != nil {
		panic(err)
	}
	tr, err := hedgerow.New(hedgerow.Config{Base: keys.Wrap(nil)})
	if err != nil {
		panic(err)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(prom.NewCollector(tr, keys))

	families, err := reg.Gather()
	if err != nil {
		panic(err)
	}
	for _, f := range families {
		if f.GetName() == "hedgerow_pool_resources" {
			for _, m := range f.GetMetric() {
				fmt.Println(m.GetLabel()[1].GetValue(), m.GetGauge().GetValue())
			}
		}
	}
	// Output:
	// cooling 0
	// disabled 0
	// healthy 1
}
