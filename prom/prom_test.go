package prom_test

import (
	"bytes"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
	"github.com/hedgerow-go/hedgerow/prom"
)

// newTransport returns a Transport over an upstream that takes the given times, one attempt after the other.
func newTransport(t *testing.T, cfg hedgerow.Config, latencies ...time.Duration) *hedgerow.Transport {
	t.Helper()
	steps := make([]scripted.Step, len(latencies))
	for i, d := range latencies {
		steps[i] = scripted.Step{After: d}
	}
	cfg.Base = scripted.New(steps...)
	tr, err := hedgerow.New(cfg)
	require.NoError(t, err)
	return tr
}

// do makes a call, which must get the status.
func do(t *testing.T, rt http.RoundTripper, method, url string, status int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	require.NoError(t, err)
	resp, err := rt.RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, status, resp.StatusCode)
}

// update rewrites the golden of this package's tests instead of comparing with it.
var update = flag.Bool("update", false, "rewrite the golden in testdata")

// The whole exposition after four calls. Two are to an endpoint that is registered: a slow one, whose hedge wins after
// 10 + 5 ms, and a POST, which is not hedged, and fails. Two are to one that is not, whose circuits the second opens.
func TestExposition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := scripted.New(
			scripted.Step{After: time.Second},
			scripted.Step{After: 5 * time.Millisecond},
			scripted.Step{After: 20 * time.Millisecond, Status: http.StatusInternalServerError},
			scripted.Step{After: 2 * time.Millisecond},
			scripted.Step{After: 3 * time.Millisecond, Status: http.StatusBadGateway},
		)
		tr, err := hedgerow.New(hedgerow.Config{Base: base, Breaker: hedgerow.BreakerConfig{MinSamples: 2}})
		require.NoError(t, err)
		require.NoError(t, tr.Register("/users/{id}", hedgerow.EndpointConfig{
			Name: "users", Breaker: &hedgerow.BreakerConfig{Disabled: true},
		}))
		do(t, tr, http.MethodGet, "http://a.test/users/7", http.StatusOK)
		do(t, tr, http.MethodPost, "http://a.test/users/7", http.StatusInternalServerError)
		do(t, tr, http.MethodGet, "http://b.test:8080/", http.StatusOK)
		do(t, tr, http.MethodGet, "http://b.test:8080/", http.StatusBadGateway)
		synctest.Wait()

		c := prom.NewCollector(tr)
		golden := filepath.Join("testdata", "exposition.golden")
		if *update {
			reg := prometheus.NewPedanticRegistry()
			require.NoError(t, reg.Register(c))
			require.NoError(t, prometheus.WriteToTextfile(golden, reg))
		}
		expected, err := os.ReadFile(golden)
		require.NoError(t, err)
		require.NoError(t, testutil.CollectAndCompare(c, bytes.NewReader(expected)), "rewrite with -update?")
	})
}

func TestLint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport(t, hedgerow.Config{}, time.Millisecond)
		do(t, tr, http.MethodGet, "http://a.test/", http.StatusOK)

		reg := prometheus.NewPedanticRegistry()
		require.NoError(t, reg.Register(prom.NewCollector(tr)))
		problems, err := testutil.GatherAndLint(reg)
		require.NoError(t, err)
		require.Empty(t, problems)
	})
}

// The numbers of series that the package comment promises.
func TestCardinality(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		max     int
		calls   []string
		total   int // series over all endpoints
		perHost int
		samples int // families of latencies
	}{
		{name: "no calls", total: 16},
		{name: "one endpoint", calls: []string{"http://a.test/"}, total: 16 + 27 + 3},
		{name: "two endpoints of one host", calls: []string{"http://a.test/", "http://a.test/x"}, total: 16 + 2*27 + 3},
		{name: "two hosts", calls: []string{"http://a.test/", "http://b.test/"}, total: 16 + 2*(27+3)},
		{name: "two hosts, room for one", max: 1, calls: []string{"http://a.test/", "http://b.test/"}, total: 16 + 27 + 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tr := newTransport(t, hedgerow.Config{MaxEndpoints: tt.max}, make([]time.Duration, len(tt.calls))...)
				require.NoError(t, tr.Register("/x", hedgerow.EndpointConfig{}))
				for _, url := range tt.calls {
					do(t, tr, http.MethodGet, url, http.StatusOK)
				}
				require.Equal(t, tt.total, testutil.CollectAndCount(prom.NewCollector(tr)))
			})
		})
	}
}

// With room for one endpoint, each host drops the other's counters, and only the totals go on counting.
func TestEviction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport(t, hedgerow.Config{MaxEndpoints: 1}, make([]time.Duration, 5)...)
		reg := prometheus.NewPedanticRegistry()
		require.NoError(t, reg.Register(prom.NewCollector(tr)))

		for i, step := range []struct{ host, calls string }{
			{"a.test", "1"},
			{"a.test", "2"},
			{"b.test", "1"},
			{"a.test", "1"},
			{"a.test", "2"},
		} {
			do(t, tr, http.MethodGet, "http://"+step.host+"/", http.StatusOK)
			require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(fmt.Sprintf(`
				# HELP hedgerow_calls_total Calls.
				# TYPE hedgerow_calls_total counter
				hedgerow_calls_total{endpoint="",host=%q} %s
				# HELP hedgerow_transport_calls_total Calls, over all endpoints.
				# TYPE hedgerow_transport_calls_total counter
				hedgerow_transport_calls_total %d
			`, step.host, step.calls, i+1)), "hedgerow_calls_total", "hedgerow_transport_calls_total"), "call %d", i+1)
		}
	})
}

// A circuit is in one state at a time, that of now: half-open once the cooldown has ended, without a further call.
func TestCircuitState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := scripted.New(scripted.Step{Status: http.StatusInternalServerError})
		tr, err := hedgerow.New(hedgerow.Config{Base: base, Breaker: hedgerow.BreakerConfig{MinSamples: 1}})
		require.NoError(t, err)
		reg := prometheus.NewPedanticRegistry()
		require.NoError(t, reg.Register(prom.NewCollector(tr)))
		expect := func(open, halfOpen int) {
			t.Helper()
			require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(fmt.Sprintf(`
				# HELP hedgerow_circuit_state 1 for the state that the circuit is in, 0 for the others.
				# TYPE hedgerow_circuit_state gauge
				hedgerow_circuit_state{endpoint="",host="a.test",scope="endpoint",state="closed"} 0
				hedgerow_circuit_state{endpoint="",host="a.test",scope="endpoint",state="half_open"} %[2]d
				hedgerow_circuit_state{endpoint="",host="a.test",scope="endpoint",state="open"} %[1]d
				hedgerow_circuit_state{endpoint="",host="a.test",scope="host",state="closed"} 0
				hedgerow_circuit_state{endpoint="",host="a.test",scope="host",state="half_open"} %[2]d
				hedgerow_circuit_state{endpoint="",host="a.test",scope="host",state="open"} %[1]d
			`, open, halfOpen)), "hedgerow_circuit_state"))
		}

		do(t, tr, http.MethodGet, "http://a.test/", http.StatusInternalServerError)
		expect(1, 0)
		time.Sleep(30 * time.Second)
		expect(0, 1)
	})
}

func TestNilTransport(t *testing.T) {
	t.Parallel()
	c := prom.NewCollector(nil)
	require.NoError(t, prometheus.NewPedanticRegistry().Register(c))
	require.Zero(t, testutil.CollectAndCount(c))

	descs := make(chan *prometheus.Desc, 100)
	c.Describe(descs)
	require.Len(t, descs, 19+23)
}

// Several Transports share a registry under a label of their own; one Transport's collector is not registered twice.
func TestSeveralTransports(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	for _, name := range []string{"search", "mail"} {
		wrapped := prometheus.WrapRegistererWith(prometheus.Labels{"transport": name}, reg)
		tr := newTransport(t, hedgerow.Config{})
		require.NoError(t, wrapped.Register(prom.NewCollector(tr)))
		require.ErrorAs(t, wrapped.Register(prom.NewCollector(tr)), new(prometheus.AlreadyRegisteredError))
	}
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
		# HELP hedgerow_transport_calls_total Calls, over all endpoints.
		# TYPE hedgerow_transport_calls_total counter
		hedgerow_transport_calls_total{transport="mail"} 0
		hedgerow_transport_calls_total{transport="search"} 0
	`), "hedgerow_transport_calls_total"))
}

// Names that are not UTF-8 must not break the scrape of all the others.
func TestLabelsOfAnyBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport(t, hedgerow.Config{}, make([]time.Duration, 3)...)
		require.NoError(t, tr.Register("/x", hedgerow.EndpointConfig{Name: "x\xff"}))
		require.NoError(t, tr.Register("/y", hedgerow.EndpointConfig{Name: "quote\" and\nline"}))
		for _, url := range []string{"http://a.test/x", "http://a.test/y", "http://%FF.test/"} {
			do(t, tr, http.MethodGet, url, http.StatusOK)
		}
		reg := prometheus.NewPedanticRegistry()
		require.NoError(t, reg.Register(prom.NewCollector(tr)))
		n, err := testutil.GatherAndCount(reg, "hedgerow_calls_total")
		require.NoError(t, err)
		require.Equal(t, 3, n)
	})
}

// Scrapes while calls run: for the race detector, and each must be consistent.
func TestConcurrentScrapes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := scripted.Func(func(int, *http.Request) scripted.Step { return scripted.Step{After: time.Millisecond} })
		tr, err := hedgerow.New(hedgerow.Config{Base: base, MaxEndpoints: 3})
		require.NoError(t, err)
		reg := prometheus.NewPedanticRegistry()
		require.NoError(t, reg.Register(prom.NewCollector(tr)))

		const workers, rounds = 8, 50
		failed := make(chan error, 2*workers*rounds)
		var wg sync.WaitGroup
		for i := range workers {
			wg.Go(func() {
				for k := range rounds {
					url := fmt.Sprintf("http://host-%d.test/", (i+k)%5)
					req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
					if err != nil {
						failed <- err
						return
					}
					resp, err := tr.RoundTrip(req)
					if err != nil {
						failed <- err
						continue
					}
					failed <- resp.Body.Close()
				}
			})
			wg.Go(func() {
				for range rounds {
					_, err := reg.Gather()
					failed <- err
					time.Sleep(time.Millisecond)
				}
			})
		}
		wg.Wait()
		close(failed)
		for err := range failed {
			require.NoError(t, err)
		}
		require.EqualValues(t, workers*rounds, tr.Stats().Total.Requests)
	})
}

// The collector has a series for every value of the enumerations: the one after the last has no name.
func TestEnumerationsAreComplete(t *testing.T) {
	t.Parallel()
	reasons := prom.SkipReasons()
	for i, r := range reasons {
		require.Equal(t, i, int(r))
	}
	require.Contains(t, hedgerow.SkipReason(len(reasons)).String(), "SkipReason(")
	for i, s := range prom.ResourceStates() {
		require.Equal(t, i, int(s))
	}
	require.Contains(t, hedgerow.ResourceState(len(prom.ResourceStates())).String(), "ResourceState(")
	states := prom.CircuitStates()
	for i, s := range states {
		require.Equal(t, i, int(s))
	}
	require.Contains(t, hedgerow.CircuitState(len(states)).String(), "CircuitState(")
}
