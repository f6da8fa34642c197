package sketch_test

import (
	"fmt"
	"time"

	"github.com/hedgerow-go/hedgerow/sketch"
)

// Of a hundred calls the first ninety took 1 to 90 ms. The others were given up after 91 ms, so nobody knows how long
// they would have taken.
func Example() {
	w, err := sketch.NewWindow(0.01, 30*time.Second)
	if err != nil {
		panic(err)
	}
	now := time.Now()
	for k := 1; k <= 90; k++ {
		w.Add(now, time.Duration(k)*time.Millisecond)
	}
	for range 10 {
		w.AddCensored(now, 91*time.Millisecond)
	}

	median := make([]time.Duration, 1)
	n := w.Quantiles(now, []float64{0.5}, median)
	fmt.Printf("%d completed, median of these %v\n", n, median[0].Round(time.Millisecond))

	var s sketch.Survival
	w.Survival(now, &s)
	p80, _ := s.Quantile(0.8)
	_, known := s.Quantile(0.95)
	fmt.Printf("%d in all, p80 %v, p95 known: %t\n", s.Count(), p80.Round(time.Millisecond), known)
	fmt.Printf("longer than a second: %.2f\n", s.At(time.Second))
	// Output:
	// 90 completed, median of these 45ms
	// 100 in all, p80 80ms, p95 known: false
	// longer than a second: 0.10
}
