//go:build !race

package sketch_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow/sketch"
)

// TestNoAllocations is out of the race detector's build, which allocates on its own.
//
//nolint:paralleltest // testing.AllocsPerRun counts the allocations of the whole process
func TestNoAllocations(t *testing.T) {
	w := newWindow(t, 0.01, time.Second)
	rng := rand.New(rand.NewPCG(1, 1))
	samples := make([]time.Duration, 4096)
	for k := range samples {
		samples[k] = workload(rng)
	}
	now, k := epoch, 0
	next := func() time.Duration {
		k++
		return samples[k%len(samples)]
	}
	// Until every array is made and as long as it gets.
	for range 2 * len(samples) {
		now = now.Add(ms)
		w.Add(now, next())
		w.AddCensored(now, next())
	}
	var s sketch.Survival
	w.Survival(now, &s)
	qs := []float64{0.5, 0.9, 0.95, 0.99, 0.999}
	out := make([]time.Duration, len(qs))
	for _, tt := range []struct {
		name string
		do   func()
	}{
		{"Add, rotation included", func() { now = now.Add(ms); w.Add(now, next()) }},
		{"AddCensored, rotation included", func() { now = now.Add(ms); w.AddCensored(now, next()) }},
		{"AddCensored after idling", func() { now = now.Add(time.Hour); w.AddCensored(now, next()) }},
		{"Add over a shifting range", func() { now = now.Add(ms); w.Add(now, next()); w.Add(now, next()*8) }},
		{"Count", func() { w.Count(now) }},
		{"Quantiles", func() { w.Quantiles(now, qs, out) }},
		{"Survival", func() { w.Survival(now, &s) }},
		{"At", func() { s.At(next()) }},
		{"Quantile", func() { s.Quantile(0.9) }},
	} {
		if tt.name == "Add over a shifting range" {
			w.Add(now, 10*time.Second) // the arrays reach their greatest length first
			w.Add(now, 50*time.Microsecond)
		}
		require.Zero(t, testing.AllocsPerRun(3000, tt.do), tt.name)
	}
}
