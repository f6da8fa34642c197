//go:build !race

package bench_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cristalhq/hedgedhttp"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/hedgepolicy"
	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// service answers at once, with a small body. What it costs is the same under every contender.
type service struct{}

// An answer is a response and its body in one piece.
type answer struct {
	resp   http.Response
	unread int
}

func (service) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
	a := &answer{unread: 64}
	a.resp = http.Response{
		StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(a.unread), Body: a, Request: req,
	}
	return &a.resp, nil
}

func (a *answer) Read(p []byte) (int, error) {
	n := min(len(p), a.unread)
	if a.unread -= n; a.unread == 0 {
		return n, io.EOF
	}
	return n, nil
}

func (*answer) Close() error { return nil }

// plain returns an http.Transport that answers by service, without a network.
func plain() http.RoundTripper {
	tr := &http.Transport{}
	tr.RegisterProtocol("http", service{})
	return tr
}

// unknown returns a base that no library can know.
func unknown() http.RoundTripper { return service{} }

// A contender puts its layer around a base. No hedge is ever due: nothing takes as long as delay.
type contender struct {
	name string
	wrap func(testing.TB, http.RoundTripper) http.RoundTripper
}

const delay = time.Second

var (
	bare = contender{"bare", func(_ testing.TB, base http.RoundTripper) http.RoundTripper { return base }}

	ours = contender{"hedgerow", func(tb testing.TB, base http.RoundTripper) http.RoundTripper {
		tb.Helper()
		tr, err := hedgerow.New(hedgerow.Config{Base: base})
		require.NoError(tb, err)
		return tr
	}}

	hedged = contender{"cristalhq/hedgedhttp", func(tb testing.TB, base http.RoundTripper) http.RoundTripper {
		tb.Helper()
		tr, err := hedgedhttp.NewRoundTripper(delay, 2, base)
		require.NoError(tb, err)
		return tr
	}}

	failsafe = contender{"failsafe-go", func(_ testing.TB, base http.RoundTripper) http.RoundTripper {
		return failsafehttp.NewRoundTripper(base, hedgepolicy.NewWithDelay[*http.Response](delay))
	}}
)

// A caller makes calls one after the other and reads each response to its end. The requests have no headers of their
// own and a context that cannot be cancelled.
type caller struct {
	rt  http.RoundTripper
	req *http.Request
	buf [512]byte
}

func newCaller(tb testing.TB, rt http.RoundTripper, method string) *caller {
	tb.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, "http://bench.test/v1/users/17", nil)
	require.NoError(tb, err)
	return &caller{rt: rt, req: req}
}

func (c *caller) call() {
	resp, err := c.rt.RoundTrip(c.req)
	if err != nil {
		panic(err)
	}
	for err == nil {
		_, err = resp.Body.Read(c.buf[:])
	}
	_ = resp.Body.Close()
}

// A cost is what one call takes.
type cost struct {
	Nanoseconds, Allocs float64
}

const (
	rounds        = 15
	callsPerRound = 20_000
)

// measure returns what a call takes in this process.
func (c *caller) measure() cost {
	for range callsPerRound / 10 {
		c.call()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	for range callsPerRound {
		c.call()
	}
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	return cost{float64(took) / callsPerRound, float64(after.Mallocs-before.Mallocs) / callsPerRound}
}

// A setting is what is measured.
type setting struct {
	name   string
	base   func() http.RoundTripper
	method string
	procs  int // processors; zero: all
}

// On one processor a call costs what it computes, its share of collecting the garbage included. On several, peers that
// hand each call to another goroutine spread it, and what they show depends on how idle the machine is.
var (
	armedPlain    = setting{"armed over an http.Transport, one processor", plain, http.MethodGet, 1}
	armedPlainAll = setting{"armed over an http.Transport, all processors", plain, http.MethodGet, 0}
	armedUnknown  = setting{"armed over an unknown base, one processor", unknown, http.MethodGet, 1}
	passPlain     = setting{"not hedgeable over an http.Transport, one processor", plain, http.MethodPost, 1}
	passUnknown   = setting{"not hedgeable over an unknown base, one processor", unknown, http.MethodPost, 1}
)

// soloEnv names the setting and the contender that a process started by this test is to measure.
const soloEnv = "HEDGEROW_BENCH_SOLO"

// TestSolo is one round of one contender in a process of its own. Within one process the contenders would pay for each
// other: what one leaves behind, such as a pool of goroutines, is scanned by every collection of the garbage that another
// makes.
//
//nolint:paralleltest // it measures time and the allocations of the whole process
func TestSolo(t *testing.T) {
	want := os.Getenv(soloEnv)
	if want == "" {
		return // it runs for the other tests
	}
	for _, s := range []setting{armedPlain, armedPlainAll, armedUnknown, passPlain, passUnknown} {
		for _, c := range []contender{bare, ours, hedged, failsafe} {
			if want == s.name+"/"+c.name {
				out, err := json.Marshal(newCaller(t, c.wrap(t, s.base()), s.method).measure())
				require.NoError(t, err)
				t.Logf("%s%s", soloMark, out)
			}
		}
	}
}

const soloMark = "cost of a call: "

// solo measures one contender in a new process.
func solo(t *testing.T, s setting, c contender) (one cost) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSolo$", "-test.v")
	cmd.Env = append(os.Environ(), soloEnv+"="+s.name+"/"+c.name)
	if s.procs > 0 {
		cmd.Env = append(cmd.Env, "GOMAXPROCS="+strconv.Itoa(s.procs))
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	_, text, found := strings.Cut(string(out), soloMark)
	require.True(t, found, string(out))
	text, _, _ = strings.Cut(text, "\n")
	require.NoError(t, json.Unmarshal([]byte(text), &one))
	return one
}

// A result is what a contender costs, by round.
type result struct {
	contender

	ns, allocs []float64
	added      []float64 // nanoseconds more than the bare base takes in the same round
}

// compare lets the contenders take turns, so that what disturbs the machine disturbs all of them. The first one is what
// the others are compared with.
func compare(t *testing.T, s setting, contenders ...contender) []result {
	t.Helper()
	results := make([]result, len(contenders))
	for round := range rounds {
		for n := range contenders {
			k := (round + n) % len(contenders)
			one := solo(t, s, contenders[k])
			results[k].contender = contenders[k]
			results[k].ns = append(results[k].ns, one.Nanoseconds)
			results[k].allocs = append(results[k].allocs, one.Allocs)
		}
		for k := range results {
			results[k].added = append(results[k].added, results[k].ns[round]-results[0].ns[round])
		}
	}
	return results
}

func median(all []float64) float64 { return slices.Sorted(slices.Values(all))[len(all)/2] }

// addedAllocs returns the allocations beyond those of b.
func (r *result) addedAllocs(b *result) float64 { return median(r.allocs) - median(b.allocs) }

// addedLeast returns the time beyond that of b with both taken at their fastest round: noise only makes them slower.
func (r *result) addedLeast(b *result) float64 { return slices.Min(r.ns) - slices.Min(b.ns) }

// ratio returns the time that r adds to b as a share of what peer adds, by medians and by the fastest rounds.
func (r *result) ratio(b, peer *result) (byMedian, byLeast float64) {
	return median(r.added) / median(peer.added), r.addedLeast(b) / peer.addedLeast(b)
}

// table shows the results, with the time that each adds as a share of what the third adds.
func table(s setting, results []result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: medians of %d rounds of %d calls, fastest rounds in brackets\n", s.name, rounds, callsPerRound)
	fmt.Fprintf(&b, "%-22s %14s %14s %14s %8s\n", "", "ns", "ns added", "ratio", "allocs")
	for k := range results {
		r := &results[k]
		byMedian, byLeast := r.ratio(&results[0], &results[min(2, len(results)-1)])
		fmt.Fprintf(&b, "%-22s %6.0f (%5.0f) %6.0f (%5.0f) %6.2f (%5.2f) %8.2f\n", r.name, median(r.ns), slices.Min(r.ns),
			median(r.added), r.addedLeast(&results[0]), byMedian, byLeast, r.addedAllocs(&results[0]))
	}
	return b.String()
}

// TestOverhead compares what the libraries add to a call that could be hedged and is not, and holds the share of what
// cristalhq/hedgedhttp adds.
//
//nolint:paralleltest // it measures time
func TestOverhead(t *testing.T) {
	for _, tt := range []struct {
		setting

		allocs, share float64
	}{
		{armedPlain, 6, 1.0 / 3},
		{armedPlainAll, 6, 1},
		// The headers are copied for a base that may change them, which the peers do not do.
		{armedUnknown, 9, 2.0 / 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			results := compare(t, tt.setting, bare, ours, hedged, failsafe)
			t.Log("\n" + table(tt.setting, results))
			require.LessOrEqual(t, results[1].addedAllocs(&results[0]), tt.allocs+0.05)
			byMedian, byLeast := results[1].ratio(&results[0], &results[2])
			require.LessOrEqual(t, min(byMedian, byLeast), tt.share)
		})
	}
}

// TestPassThrough measures a call that cannot be hedged.
//
//nolint:paralleltest // it measures time
func TestPassThrough(t *testing.T) {
	for _, tt := range []struct {
		setting

		allocs float64
	}{
		{passPlain, 0},
		{passUnknown, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			results := compare(t, tt.setting, bare, ours)
			t.Log("\n" + table(tt.setting, results))
			require.LessOrEqual(t, results[1].addedAllocs(&results[0]), tt.allocs+0.05)
			require.LessOrEqual(t, min(median(results[1].added), results[1].addedLeast(&results[0])), 500.0)
		})
	}
}

// BenchmarkOverhead is the same for benchstat.
func BenchmarkOverhead(b *testing.B) {
	for _, c := range []contender{bare, ours, hedged, failsafe} {
		b.Run(c.name, func(b *testing.B) {
			caller := newCaller(b, c.wrap(b, plain()), http.MethodGet)
			b.ReportAllocs()
			for b.Loop() {
				caller.call()
			}
		})
	}
}
