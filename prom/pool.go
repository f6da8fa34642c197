package prom

import (
	"fmt"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hedgerow-go/hedgerow"
)

// poolDescs describe the families of pools.
type poolDescs struct {
	calls, attempts, successes, cooldowns, disables, siblingCancels *prometheus.Desc
	retries, retriesRefused, passedThrough                          *prometheus.Desc
	inFlight, eligible, saturated, resources                        *prometheus.Desc

	resourceStatus, resourceInFlight, resourceMaxInFlight                    *prometheus.Desc
	resourceConsecutiveCooldown, resourceCooldownRemaining                   *prometheus.Desc
	resourceAcquires, resourceSuccesses, resourceCooldowns, resourceDisables *prometheus.Desc
	resourceSiblingCancels                                                   *prometheus.Desc
}

func newPoolDescs() poolDescs {
	of := func(name, help string, more ...string) *prometheus.Desc {
		return newDesc("hedgerow_pool_"+name, help, []string{"pool"}, more...)
	}
	ofResource := func(name, help string, more ...string) *prometheus.Desc {
		return newDesc("hedgerow_pool_resource_"+name, help, []string{"pool", "resource_id"}, more...)
	}
	return poolDescs{
		calls:          of("calls_total", "Calls by how they ended.", "outcome"),
		attempts:       of("attempts_total", "Attempts sent."),
		successes:      of("successes_total", "Attempts with verdict OK."),
		cooldowns:      of("cooldowns_total", "Cooldowns, also of resources that were cooling."),
		disables:       of("disables_total", "Resources that were disabled."),
		siblingCancels: of("sibling_cancels_total", "Attempts cancelled because their resource cools or was disabled."),
		retries:        of("retries_total", "Attempts started after another one of their call ended badly."),
		retriesRefused: of("retries_refused_total", "Attempts not started for want of retry budget."),
		passedThrough:  of("passed_through_total", "Calls to other hosts than the pool's."),
		inFlight:       of("in_flight", "Attempts that hold a slot."),
		eligible:       of("eligible", "Resources that may be picked."),
		saturated:      of("saturated", "Healthy resources at their cap."),
		resources:      of("resources", "Resources by status.", "status"),

		resourceStatus:              ofResource("status", "1 for the status of the resource, 0 for the others.", "status"),
		resourceInFlight:            ofResource("in_flight", "Attempts that hold a slot."),
		resourceMaxInFlight:         ofResource("max_in_flight", "Cap in force, +Inf without one."),
		resourceConsecutiveCooldown: ofResource("consecutive_cooldown", "Cooldowns counted since the last success."),
		resourceCooldownRemaining:   ofResource("cooldown_remaining_seconds", "Time until the cooldown ends."),
		resourceAcquires:            ofResource("acquires_total", "Attempts sent, of this stay in the pool."),
		resourceSuccesses:           ofResource("successes_total", "Attempts with verdict OK, of this stay in the pool."),
		resourceCooldowns:           ofResource("cooldowns_total", "Cooldowns, of this stay in the pool."),
		resourceDisables:            ofResource("disables_total", "Times disabled, of this stay in the pool."),
		resourceSiblingCancels: ofResource("sibling_cancels_total",
			"Attempts cancelled because the resource cools or was disabled, of this stay in the pool."),
	}
}

func (d *poolDescs) all() []*prometheus.Desc {
	return []*prometheus.Desc{
		d.calls, d.attempts, d.successes, d.cooldowns, d.disables, d.siblingCancels, d.retries, d.retriesRefused,
		d.passedThrough, d.inFlight, d.eligible, d.saturated, d.resources, d.resourceStatus, d.resourceInFlight,
		d.resourceMaxInFlight, d.resourceConsecutiveCooldown, d.resourceCooldownRemaining, d.resourceAcquires,
		d.resourceSuccesses, d.resourceCooldowns, d.resourceDisables, d.resourceSiblingCancels,
	}
}

// collectPools collects the pools, of which no two may have the same name: their series would be the same.
func (c *collector) collectPools(ch chan<- prometheus.Metric) {
	seen := make(map[string]bool, len(c.pools))
	for _, p := range c.pools {
		name := labelValue(p.Name())
		if seen[name] {
			ch <- prometheus.NewInvalidMetric(c.pool.calls, fmt.Errorf("prom: two pools are named %q", name))
			continue
		}
		seen[name] = true
		c.pool.collect(ch, name, p.Stats(), time.Now())
	}
}

func (d *poolDescs) collect(ch chan<- prometheus.Metric, pool string, s hedgerow.PoolStats, now time.Time) {
	counter(ch, d.calls, s.CallsOK, pool, "ok")
	counter(ch, d.calls, s.CallsExhausted, pool, "exhausted")
	counter(ch, d.calls, s.CallsFailed, pool, "error")
	counter(ch, d.calls, s.CallsCanceled, pool, "cancelled")
	counter(ch, d.attempts, s.Attempts, pool)
	counter(ch, d.successes, s.Successes, pool)
	counter(ch, d.cooldowns, s.Cooldowns, pool)
	counter(ch, d.disables, s.Disables, pool)
	counter(ch, d.siblingCancels, s.SiblingCancels, pool)
	counter(ch, d.retries, s.Retries, pool)
	counter(ch, d.retriesRefused, s.RetriesRefused, pool)
	counter(ch, d.passedThrough, s.PassedThrough, pool)
	gauge(ch, d.inFlight, float64(s.InFlight), pool)
	gauge(ch, d.eligible, float64(s.Eligible), pool)
	gauge(ch, d.saturated, float64(s.Saturated), pool)
	gauge(ch, d.resources, float64(s.Healthy), pool, hedgerow.ResourceHealthy.String())
	gauge(ch, d.resources, float64(s.Cooling), pool, hedgerow.ResourceCooling.String())
	gauge(ch, d.resources, float64(s.Disabled), pool, hedgerow.ResourceDisabled.String())
	for i := range s.Resources {
		d.collectResource(ch, pool, &s.Resources[i], now)
	}
}

func (d *poolDescs) collectResource(ch chan<- prometheus.Metric, pool string, r *hedgerow.ResourceStatus, now time.Time) {
	id := labelValue(r.ID)
	for _, state := range resourceStates() {
		in := 0.0
		if state == r.State {
			in = 1
		}
		gauge(ch, d.resourceStatus, in, pool, id, state.String())
	}
	limit, remaining := math.Inf(1), 0.0
	if r.MaxInFlight > 0 {
		limit = float64(r.MaxInFlight)
	}
	if !r.Until.IsZero() {
		remaining = max(r.Until.Sub(now).Seconds(), 0)
	}
	gauge(ch, d.resourceInFlight, float64(r.InFlight), pool, id)
	gauge(ch, d.resourceMaxInFlight, limit, pool, id)
	gauge(ch, d.resourceConsecutiveCooldown, float64(r.ConsecutiveCooldowns), pool, id)
	gauge(ch, d.resourceCooldownRemaining, remaining, pool, id)
	counter(ch, d.resourceAcquires, r.Attempts, pool, id)
	counter(ch, d.resourceSuccesses, r.Successes, pool, id)
	counter(ch, d.resourceCooldowns, r.Cooldowns, pool, id)
	counter(ch, d.resourceDisables, r.Disables, pool, id)
	counter(ch, d.resourceSiblingCancels, r.SiblingCancels, pool, id)
}

func counter(ch chan<- prometheus.Metric, desc *prometheus.Desc, n uint64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
}

// resourceStates returns every state there is.
func resourceStates() []hedgerow.ResourceState {
	return []hedgerow.ResourceState{hedgerow.ResourceHealthy, hedgerow.ResourceCooling, hedgerow.ResourceDisabled}
}
