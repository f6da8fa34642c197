// Package prom exposes the statistics of a [hedgerow.Transport] and of each [hedgerow.Pool] to Prometheus. It is a
// package of its own so that programs that do not import it do not link client_golang.
//
//	prometheus.MustRegister(prom.NewCollector(tr, pools...))
//
// A Transport has one collector. For several Transports in one registry give each a label of its own, by
// [prometheus.WrapRegistererWith].
//
// # Families
//
// Labelled endpoint and host, as in [hedgerow.EndpointKey]; endpoint is "" for the unmatched calls of the host:
//
//	hedgerow_calls_total                    calls
//	hedgerow_hedged_calls_total             calls for which a hedge was sent
//	hedgerow_hedges_total                   hedges sent
//	hedgerow_wins_total{attempt}            hedged calls by who won: primary, hedge
//	hedgerow_warmup_calls_total             calls made while the endpoint was warming up
//	hedgerow_errors_total                   calls that ended in an error or a 5xx
//	hedgerow_skipped_total{reason}          calls that were refused a hedge, once per reason
//	hedgerow_calls_per_second               observed rate of calls
//	hedgerow_hedge_delay_seconds            hedge delay in force
//	hedgerow_latency_seconds{q}             latency as callers saw it, at quantile q: 0.5, 0.9, 0.95, 0.99, 0.999
//	hedgerow_latency_samples                latencies that the quantiles are of
//	hedgerow_circuit_state{scope,state}     1 for the state that the circuit is in, 0 for the others
//
// Without those labels, over all endpoints:
//
//	hedgerow_transport_calls_total
//	hedgerow_transport_hedged_calls_total
//	hedgerow_transport_hedges_total
//	hedgerow_transport_wins_total{attempt}
//	hedgerow_transport_warmup_calls_total
//	hedgerow_transport_errors_total
//	hedgerow_transport_skipped_total{reason}
//
// Only the latter are fit for totals. The series of an endpoint vanish when the Transport drops it (see
// [hedgerow.Config].MaxEndpoints), and begin at zero when it comes back; a sum over endpoints therefore goes back, the
// hedgerow_transport_ families never do.
//
// Every reason, attempt and state always has a series, zero ones too, so that rate() sees the first increase. The
// exception is hedgerow_latency_seconds, which has none while there are no samples. It is a gauge and not a summary,
// because its samples are those of the last one to two [hedgerow.HedgeConfig].Window: the _count and _sum of a summary
// must never go back. The quantiles of several instances cannot be averaged into one of all.
//
// hedgerow_circuit_state has the circuits of hosts as scope="host", with endpoint "". Where the scrape adds an endpoint
// label of its own, as the Prometheus Operator does, this one arrives as exported_endpoint unless honor_labels is set.
//
// # Families of pools
//
// Labelled pool, by [hedgerow.Pool.Name]:
//
//	hedgerow_pool_calls_total{outcome}         calls by how they ended: ok, exhausted, error, cancelled
//	hedgerow_pool_attempts_total               attempts sent
//	hedgerow_pool_successes_total              attempts with verdict OK
//	hedgerow_pool_cooldowns_total              cooldowns, also of resources that were cooling
//	hedgerow_pool_disables_total               resources that were disabled
//	hedgerow_pool_sibling_cancels_total        attempts cancelled because their resource cools or was disabled
//	hedgerow_pool_retries_total                attempts started after another one of their call ended badly
//	hedgerow_pool_retries_refused_total        attempts not started for want of retry budget
//	hedgerow_pool_passed_through_total         calls to other hosts than the pool's
//	hedgerow_pool_in_flight                    attempts that hold a slot
//	hedgerow_pool_eligible                     resources that may be picked
//	hedgerow_pool_saturated                    healthy resources at their cap
//	hedgerow_pool_resources{status}            resources by status: healthy, cooling, disabled
//
// Labelled pool and resource_id:
//
//	hedgerow_pool_resource_status{status}                1 for the status of the resource, 0 for the others
//	hedgerow_pool_resource_in_flight                     attempts that hold a slot
//	hedgerow_pool_resource_max_in_flight                 cap in force, +Inf without one
//	hedgerow_pool_resource_consecutive_cooldown          cooldowns counted since the last success
//	hedgerow_pool_resource_cooldown_remaining_seconds    time until the cooldown ends
//	hedgerow_pool_resource_acquires_total                attempts sent
//	hedgerow_pool_resource_successes_total               attempts with verdict OK
//	hedgerow_pool_resource_cooldowns_total               cooldowns
//	hedgerow_pool_resource_disables_total                times disabled
//	hedgerow_pool_resource_sibling_cancels_total         attempts cancelled because the resource cools or was disabled
//
// The counters of a resource are those of its stay in the pool: its series vanish when it is removed, and begin at zero when
// it comes back. A sum over resources therefore goes back; the counters of the pool never do.
//
// Every outcome and status always has a series. Reasons are no labels, and neither is anything secret.
//
// # Cardinality
//
// Each endpoint and host has up to 27 series and each host 3 more, and there are never more endpoints than
// [hedgerow.Config].MaxEndpoints. Requests to hosts that others choose, such as those of a crawler or of webhooks, fill
// that up. Drop the series with a host label when scraping, or lower MaxEndpoints, but not below what is in use at a
// time: the hedgerow_transport_ families are left. A pool has 18 series, and 12 for each resource.
package prom

import (
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hedgerow-go/hedgerow"
)

// NewCollector returns a collector of the statistics of tr and of pools, each of which is read once per scrape, as one
// snapshot. tr may be nil and there may be no pools: all families are described, and those of what is missing are empty. A
// nil pool is left out. Two pools of one name are an error of the scrape, which then goes without the second of
// them. It is safe for concurrent use.
func NewCollector(tr *hedgerow.Transport, pools ...*hedgerow.Pool) prometheus.Collector {
	byEndpoint := []string{"endpoint", "host"}
	return &collector{
		tr:       tr,
		pools:    slices.DeleteFunc(slices.Clone(pools), func(p *hedgerow.Pool) bool { return p == nil }),
		pool:     newPoolDescs(),
		total:    newCounterDescs("hedgerow_transport_", ", over all endpoints"),
		endpoint: newCounterDescs("hedgerow_", "", byEndpoint...),
		rate: newDesc("hedgerow_calls_per_second",
			"Observed rate of calls.", byEndpoint),
		delay: newDesc("hedgerow_hedge_delay_seconds",
			"Hedge delay in force.", byEndpoint),
		latency: newDesc("hedgerow_latency_seconds",
			"Latency as callers saw it, at quantile q of the recent samples.", byEndpoint, "q"),
		samples: newDesc("hedgerow_latency_samples",
			"Recent samples that the latency quantiles are of.", byEndpoint),
		circuit: newDesc("hedgerow_circuit_state",
			"1 for the state that the circuit is in, 0 for the others.", nil, "scope", "endpoint", "host", "state"),
	}
}

type collector struct {
	tr    *hedgerow.Transport // nil: there is none
	pools []*hedgerow.Pool

	pool                                   poolDescs
	total, endpoint                        counterDescs
	rate, delay, latency, samples, circuit *prometheus.Desc
}

// counterDescs describe the families of [hedgerow.Counters].
type counterDescs struct {
	calls, hedgedCalls, hedges, wins, warmupCalls, errors, skipped *prometheus.Desc
}

// newCounterDescs returns families whose names begin with prefix and whose help ends with suffix.
func newCounterDescs(prefix, suffix string, labels ...string) counterDescs {
	desc := func(name, help string, more ...string) *prometheus.Desc {
		return newDesc(prefix+name, help+suffix+".", labels, more...)
	}
	return counterDescs{
		calls:       desc("calls_total", "Calls"),
		hedgedCalls: desc("hedged_calls_total", "Calls for which a hedge was sent"),
		hedges:      desc("hedges_total", "Hedges sent"),
		wins:        desc("wins_total", "Hedged calls by the attempt whose outcome was returned", "attempt"),
		warmupCalls: desc("warmup_calls_total", "Calls made while their endpoint was warming up"),
		errors:      desc("errors_total", "Calls that ended in an error or a 5xx"),
		skipped:     desc("skipped_total", "Calls that were refused a hedge, once per reason", "reason"),
	}
}

func newDesc(name, help string, labels []string, more ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append(slices.Clip(labels), more...), nil)
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*counterDescs{&c.total, &c.endpoint} {
		for _, desc := range []*prometheus.Desc{
			d.calls, d.hedgedCalls, d.hedges, d.wins, d.warmupCalls, d.errors, d.skipped,
		} {
			ch <- desc
		}
	}
	for _, desc := range []*prometheus.Desc{c.rate, c.delay, c.latency, c.samples, c.circuit} {
		ch <- desc
	}
	for _, desc := range c.pool.all() {
		ch <- desc
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.collectPools(ch)
	if c.tr == nil {
		return
	}
	s := c.tr.Stats()
	c.total.collect(ch, s.Total)
	for key, ep := range s.Endpoints {
		c.collectEndpoint(ch, labelValue(key.Name), labelValue(key.Host), ep)
	}
	for host, h := range s.Hosts {
		c.collectCircuit(ch, hedgerow.CircuitHost, "", labelValue(host), h.Circuit)
	}
}

func (d *counterDescs) collect(ch chan<- prometheus.Metric, c hedgerow.Counters, labels ...string) {
	labels = slices.Clip(labels) // what is appended stays apart
	count := func(desc *prometheus.Desc, n uint64, more ...string) {
		counter(ch, desc, n, append(labels, more...)...)
	}
	count(d.calls, c.Requests)
	count(d.hedgedCalls, c.Hedged)
	count(d.hedges, c.Hedges)
	count(d.wins, c.PrimaryWins, hedgerow.AttemptPrimary.String())
	count(d.wins, c.HedgeWins, hedgerow.AttemptHedge.String())
	count(d.warmupCalls, c.Warmup)
	count(d.errors, c.Errors)
	for _, r := range skipReasons() {
		count(d.skipped, c.Skipped[r], r.String())
	}
}

func (c *collector) collectEndpoint(ch chan<- prometheus.Metric, name, host string, ep hedgerow.EndpointStats) {
	c.endpoint.collect(ch, ep.Counters, name, host)
	c.collectCircuit(ch, hedgerow.CircuitEndpoint, name, host, ep.Circuit)
	gauge(ch, c.rate, ep.RatePerSecond, name, host)
	gauge(ch, c.delay, ep.Delay.Seconds(), name, host)
	gauge(ch, c.samples, float64(ep.Latency.Count), name, host)
	if ep.Latency.Count == 0 {
		return // a zero would say that calls are fast
	}
	gauge(ch, c.latency, ep.Latency.P50.Seconds(), name, host, "0.5")
	gauge(ch, c.latency, ep.Latency.P90.Seconds(), name, host, "0.9")
	gauge(ch, c.latency, ep.Latency.P95.Seconds(), name, host, "0.95")
	gauge(ch, c.latency, ep.Latency.P99.Seconds(), name, host, "0.99")
	gauge(ch, c.latency, ep.Latency.P999.Seconds(), name, host, "0.999")
}

func (c *collector) collectCircuit(
	ch chan<- prometheus.Metric, scope hedgerow.CircuitScope, name, host string, state hedgerow.CircuitState,
) {
	for _, s := range circuitStates() {
		in := 0.0
		if s == state {
			in = 1
		}
		gauge(ch, c.circuit, in, scope.String(), name, host, s.String())
	}
}

func gauge(ch chan<- prometheus.Metric, desc *prometheus.Desc, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
}

// labelValue returns s, quoted if it is not UTF-8, which a label must be: the name of an endpoint and the host of a URL
// may be any bytes, and a scrape must survive them.
func labelValue(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strconv.Quote(s)
}

// skipReasons returns every reason there is.
func skipReasons() []hedgerow.SkipReason {
	return []hedgerow.SkipReason{
		hedgerow.SkipDisabled, hedgerow.SkipMethod, hedgerow.SkipBody, hedgerow.SkipUpgrade, hedgerow.SkipDeadline,
		hedgerow.SkipCircuit, hedgerow.SkipBudget, hedgerow.SkipPushback, hedgerow.SkipNoResource,
	}
}

// circuitStates returns every state there is.
func circuitStates() []hedgerow.CircuitState {
	return []hedgerow.CircuitState{hedgerow.CircuitClosed, hedgerow.CircuitOpen, hedgerow.CircuitHalfOpen}
}
