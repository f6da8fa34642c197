package tail_test

import (
	"math"
	"math/rand/v2"
	"time"
)

const ms = time.Millisecond

// attempts is for how many attempts of a call the service times are drawn: the primary and the hedges it may ask for.
const attempts = 9

// A workload is a service and the calls it gets.
type workload struct {
	name  string // of files, too
	about string
	first bool // one of the six in which hedgerow is held to the oracle

	calls int
	rate  float64 // calls per second
	// arrive returns when the calls come, from the start of the run; nil: a Poisson process.
	arrive func(w *workload, r *rand.Rand) []time.Duration
	// groups are told apart by the path of their calls, and in the results; shares are those of the calls.
	groups []group
	// fate says how an attempt ends that is sent at that time and drew that; nil: it takes what it drew.
	fate func(at time.Duration, d drawn) answer
	// replicas is between how many upstreams the attempts are spread; 0: there is one. Number 0 is ten times slow.
	replicas int
	// fanOut is how many calls make up one request, which is as slow as the slowest of them; 0: each call is one.
	fanOut int
}

// A group is calls of a kind.
type group struct {
	name    string // "" where there is one only
	share   float64
	service service
}

// drawn is what an attempt has drawn before the run begins.
type drawn struct {
	service time.Duration
	luck    float64 // in [0, 1)
}

// An answer is how an attempt ends.
type answer struct {
	after  time.Duration
	failed bool // with a 503
}

// answer returns how an attempt ends.
func (w *workload) answer(at time.Duration, d drawn, replica int) answer {
	if w.replicas > 0 && replica == 0 {
		d.service *= 10
	}
	if w.fate != nil {
		return w.fate(at, d)
	}
	return answer{after: d.service}
}

// workloads returns all of them. Figures that are not round are explained where they stand.
func workloads() []workload {
	stragglers := []group{{share: 1, service: stragglers(5*ms, 2*ms)}}
	return []workload{
		{
			name: "stragglers", first: true, calls: 50_000, rate: 500, groups: stragglers,
			about: "lognormal(5 ms, 2 ms), one attempt in twenty ten times slower",
		},
		{
			name: "shift", first: true, calls: 50_000, rate: 500, groups: stragglers,
			about: "stragglers; after half of the run everything takes four times as long",
			fate: func(at time.Duration, d drawn) answer {
				if at >= 50*time.Second {
					d.service *= 4
				}
				return answer{after: d.service}
			},
		},
		{
			name: "outage-slow", first: true, calls: 50_000, rate: 500, groups: stragglers,
			about: "stragglers; for 10 of 100 s everything takes twenty times as long",
			fate: func(at time.Duration, d drawn) answer {
				if inOutage(at) {
					d.service *= 20
				}
				return answer{after: d.service}
			},
		},
		{
			name: "outage-failing", first: true, calls: 50_000, rate: 500, groups: stragglers,
			about: "stragglers; for 10 of 100 s nine attempts in ten fail, in a tenth of their time",
			fate: func(at time.Duration, d drawn) answer {
				if inOutage(at) && d.luck < 0.9 {
					return answer{after: d.service / 10, failed: true}
				}
				return answer{after: d.service}
			},
		},
		{
			name: "two-endpoints", first: true, calls: 50_000, rate: 500,
			about: "a fast endpoint (stragglers) and one ten times slower on the same host, 4 calls to 1",
			groups: []group{
				{"fast", 0.8, stragglers[0].service},
				{"slow", 0.2, lognormal(50*ms, 20*ms).straggling()},
			},
		},
		{
			name: "slow-replica", first: true, calls: 50_000, rate: 500, replicas: 3,
			about:  "three replicas, lognormal(5 ms, 2 ms), one of them ten times slower; every attempt goes to one at random",
			groups: []group{{share: 1, service: lognormal(5*ms, 2*ms)}},
		},
		{
			name: "pauses", calls: 50_000, rate: 500, groups: stragglers,
			about: "stragglers; every 10 s the service stands still for 50 ms, as for a collection of garbage",
			fate: func(at time.Duration, d drawn) answer {
				return answer{after: paused(at, d.service, 10*time.Second, 50*ms)}
			},
		},
		{
			name: "heavy-tail", calls: 50_000, rate: 500,
			about:  "Pareto with shape 1.1 and a minimum of 2 ms",
			groups: []group{{share: 1, service: pareto(2*ms, 1.1)}},
		},
		{
			name: "low-rate", calls: 10_000, rate: 1, groups: stragglers,
			about: "stragglers, at one call per second",
		},
		{
			name: "bursts", calls: 50_000, rate: 100, groups: stragglers, arrive: bursts,
			about: "stragglers; a hundred calls within a millisecond, every second",
		},
		{
			// The tail is chosen so that without hedges p99.9 comes to the 1.8 s, and with a hedge after 10 ms to the 74 ms
			// and 2 % that Dean and Barroso give for BigTable (The Tail at Scale, CACM 2013). They do not give the
			// distribution, so it is the shape of the result that this reproduces, not its cause.
			name: "fan-out", calls: 500_000, rate: 2000, fanOut: 100, arrive: fans,
			about:  "requests to 100 servers at once, as slow as the slowest: a leaf takes lognormal(4 ms, 1 ms), one in fifty 40 ms more on average, two in 100 000 hang for 1 to 2.5 s",
			groups: []group{{share: 1, service: leaf}},
		},
	}
}

// inOutage reports whether the outage of a run of 100 s is on.
func inOutage(at time.Duration) bool { return at >= 45*time.Second && at < 55*time.Second }

// paused returns how long an attempt takes of a service that stands still for pause at the end of every period.
func paused(at, service, period, pause time.Duration) time.Duration {
	now, work := at, service
	for {
		next := now.Truncate(period) + period - pause // when the service stops
		if now < next {
			if now+work <= next {
				return now + work - at
			}
			work -= next - now
		}
		now = next + pause
	}
}

func poisson(w *workload, r *rand.Rand) []time.Duration {
	all := make([]time.Duration, w.calls)
	next := 0.0
	for n := range all {
		all[n] = time.Duration(next * 1e9)
		next += r.ExpFloat64() / w.rate
	}
	return all
}

// bursts come within a millisecond, so that which call is first never hangs on the scheduler.
func bursts(w *workload, _ *rand.Rand) []time.Duration {
	all := make([]time.Duration, w.calls)
	for n := range all {
		all[n] = time.Duration(n/100)*time.Second + time.Duration(n%100)*10*time.Microsecond
	}
	return all
}

// fans are requests that come at random. Their calls are a microsecond apart, for the reason that those of bursts are.
func fans(w *workload, r *rand.Rand) []time.Duration {
	all := make([]time.Duration, w.calls)
	next := 0.0
	for n := range all {
		if n%w.fanOut == 0 {
			next += r.ExpFloat64() / (w.rate / float64(w.fanOut))
		}
		all[n] = time.Duration(next*1e9) + time.Duration(n%w.fanOut)*time.Microsecond
	}
	return all
}

// A service draws the time that one attempt takes.
type service func(*rand.Rand) time.Duration

// lognormal draws from the lognormal distribution with that mean and standard deviation.
func lognormal(mean, sd time.Duration) service {
	variance := math.Log1p(math.Pow(float64(sd)/float64(mean), 2))
	location := math.Log(float64(mean)) - variance/2
	return func(r *rand.Rand) time.Duration {
		return time.Duration(math.Exp(location + math.Sqrt(variance)*r.NormFloat64()))
	}
}

// straggling makes one attempt in twenty ten times slower.
func (s service) straggling() service {
	return func(r *rand.Rand) time.Duration {
		d := s(r)
		if r.Float64() < 0.05 {
			d *= 10
		}
		return d
	}
}

func stragglers(mean, sd time.Duration) service { return lognormal(mean, sd).straggling() }

func pareto(least time.Duration, shape float64) service {
	return func(r *rand.Rand) time.Duration {
		return time.Duration(float64(least) * math.Pow(1-r.Float64(), -1/shape))
	}
}

// leaf is a server of the fan-out.
func leaf(r *rand.Rand) time.Duration {
	d := lognormal(4*ms, ms)(r)
	switch luck := r.Float64(); {
	case luck < 2e-5:
		d += time.Second + time.Duration(r.Float64()*1.5e9)
	case luck < 0.02:
		d += time.Duration(r.ExpFloat64() * float64(40*ms))
	}
	return d
}
