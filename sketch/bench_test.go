package sketch_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hedgerow-go/hedgerow/sketch"
)

// filled returns a window with both kinds of samples in both generations, over about 200 buckets, and its time.
func filled(b *testing.B) (*sketch.Window, time.Time) {
	b.Helper()
	w := newWindow(b, 0.01, 30*time.Second)
	rng := rand.New(rand.NewPCG(2, 2))
	for k := range 20_000 {
		now := epoch.Add(time.Duration(k) * 2 * ms)
		d := workload(rng)
		if d > 9*ms {
			w.AddCensored(now, 9*ms+time.Duration(rng.Int64N(int64(10*ms))))
		} else {
			w.Add(now, d)
		}
		if k%10 == 0 {
			w.Add(now, d)
		}
	}
	return w, epoch.Add(40 * time.Second)
}

func BenchmarkAdd(b *testing.B) {
	w, now := filled(b)
	rng := rand.New(rand.NewPCG(3, 3))
	samples := make([]time.Duration, 1024)
	for k := range samples {
		samples[k] = workload(rng)
	}
	k := 0
	b.ReportAllocs()
	for b.Loop() {
		w.Add(now, samples[k&1023])
		k++
	}
}

func BenchmarkAddContended(b *testing.B) {
	w, now := filled(b)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			w.Add(now, 5*ms)
		}
	})
}

func BenchmarkQuantiles(b *testing.B) {
	w, now := filled(b)
	qs := []float64{0.5, 0.9, 0.95, 0.99, 0.999}
	out := make([]time.Duration, len(qs))
	b.ReportAllocs()
	for b.Loop() {
		w.Quantiles(now, qs, out)
	}
}

func BenchmarkSurvivalFill(b *testing.B) {
	w, now := filled(b)
	var s sketch.Survival
	b.ReportAllocs()
	for b.Loop() {
		w.Survival(now, &s)
	}
	b.ReportMetric(float64(s.Buckets()), "buckets")
}

func BenchmarkSurvivalAt(b *testing.B) {
	w, now := filled(b)
	var s sketch.Survival
	w.Survival(now, &s)
	at := ms
	b.ReportAllocs()
	for b.Loop() {
		s.At(at)
		if at += 100 * time.Microsecond; at > 100*ms {
			at = ms
		}
	}
}

func BenchmarkSurvivalQuantile(b *testing.B) {
	w, now := filled(b)
	var s sketch.Survival
	w.Survival(now, &s)
	b.ReportAllocs()
	for b.Loop() {
		s.Quantile(0.9)
	}
}
