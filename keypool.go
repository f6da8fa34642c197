package hedgerow

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// The defaults of PoolConfig.
const (
	defaultPoolName           = "default"
	minMaxAttempts            = 3
	maxMaxAttempts            = 10
	defaultRetryDelay         = 500 * time.Millisecond
	defaultMaxCooldown        = time.Hour
	defaultFailureBackoff     = time.Second
	defaultMaxFailureBackoff  = 30 * time.Second
	defaultPeekBody           = 4096
	defaultRetryBudgetPercent = 20
	retryBudgetLeast          = 10
)

var (
	// ErrUnknownResource is what the admin methods of a [Pool] fail with for an ID that the pool does not have.
	ErrUnknownResource = errors.New("hedgerow: unknown resource")
	// ErrDuplicateResource is what [Pool.Add] fails with for an ID that the pool has already.
	ErrDuplicateResource = errors.New("hedgerow: duplicate resource ID")
)

// PoolConfig configures a [Pool]. Resources is required; the zero value of everything else works. Zero means the default;
// a negative number or one out of range is an error, except where a field says otherwise.
type PoolConfig struct {
	// Name is the label in stats, events and errors; "": "default".
	Name string
	// Hosts are the calls that the pool acts on: scheme://host[:port], or host[:port], which means https. Anything else, such
	// as a redirect to another host, passes through untouched. Required if any resource has a Credential or an Upstream;
	// otherwise the default, empty, means every call. A Host of the caller's is sent on; a proxy for plain HTTP would go by it,
	// so it is left out where such a proxy is seen, which takes a base that is an [http.Transport].
	Hosts []string
	// Resources are what the pool spreads calls over, in the order of preference of PrimaryBackup. Required; there is no
	// default.
	Resources []Resource

	// Strategy picks among the eligible resources; zero: RoundRobin.
	Strategy Strategy
	// Selector picks in place of a Strategy; nil: by Strategy. Together with a Strategy other than RoundRobin it is an error.
	Selector Selector

	// MaxAttempts bounds the attempts of one call over all resources; zero: every resource once, at least 3, at most 10.
	// Beneath a Transport a hedge is a call of its own.
	MaxAttempts int
	// RetryDelay is the pause before the same resource is tried again, times U(0.5, 1.5), and the time over which those are
	// spread that have waited for the end of one cooldown; zero: 500ms; negative: none.
	RetryDelay time.Duration
	// Wait is the longest total time that a call waits for a resource; zero: it is refused at once. [Call].Wait overrides it. A
	// call whose attempts have all been refused waits no more: see MaxAttempts.
	Wait time.Duration

	// CooldownTable holds the cooldowns without a hint, of which the last repeats; each is above 0; nil is the default: 30s,
	// 2m, 5m, 10m.
	CooldownTable []time.Duration
	// MaxCooldown is the upper bound of one cooldown, hinted or not; zero: 1h.
	MaxCooldown time.Duration
	// FailureBackoff is the rest after the first of a row of transport failures, doubled by each further one; zero: 1s.
	FailureBackoff time.Duration
	// MaxFailureBackoff is the upper bound of that rest, at least FailureBackoff; zero: 30s, or FailureBackoff if that is
	// longer.
	MaxFailureBackoff time.Duration
	// ProbeOnRecovery lets one attempt at a time through after a cooldown, until one ends well; default false.
	ProbeOnRecovery bool
	// ProbeDisabled is how long after a disable verdict one attempt is let through as a probe; zero: never.
	ProbeDisabled time.Duration
	// KeepSiblings leaves the other attempts on a resource alone that cools or is disabled; default false.
	KeepSiblings bool

	// RetryBudgetPercent bounds the repeats after a retry verdict to this share of the calls, in (0, 100], plus ten, or what
	// two seconds of calls earn if that is more; zero: 20; negative: no limit.
	RetryBudgetPercent float64
	// ForceSoonest sends to the cooling resource due soonest, never to a disabled one, when nothing is eligible; default
	// false.
	ForceSoonest bool
	// Synthetic429 answers with a 429 in place of an [*ExhaustedError]; default false. Its body is JSON,
	// {"error":{"message":...,"type":"pool_exhausted"}}, and its Retry-After says in how many seconds the first resource is due,
	// if that is known. To a Transport above it is push-back if something of the call was sent.
	Synthetic429 bool

	// Classifier turns outcomes into verdicts; nil: [DefaultClassifier], which is also asked when it has no opinion. A
	// panic in it surfaces in the goroutine that called RoundTrip. Its verdicts decide what is sent again: see
	// [ActionCooldown].
	Classifier Classifier
	// PeekBody is how many bytes of a response body are shown to Classifier; zero: 4096; negative: none. Nothing is peeked
	// without a Classifier.
	PeekBody int
	// Peek says which responses are peeked; nil: those with a status of 400 or more. A stream that is peeked is delayed
	// until PeekBody bytes or its end are in.
	Peek func(*http.Response) bool
	// ScopeOf returns the scope key of a call, such as its model; "" is no key; nil: none has one. It must not read the
	// request's Body. [Call].ScopeKey overrides it. A panic in it surfaces in the goroutine that called RoundTrip.
	ScopeOf func(*http.Request) string

	// ResourceChange is told of changes of state, in order of Seq, without a lock held; default nil. It may call the pool. A
	// panic in it is recovered.
	ResourceChange func(ResourceEvent)
}

// A Resource is one key and/or upstream and/or proxy of a pool. A negative number is an error.
type Resource struct {
	// ID names the resource, unique in the pool. It is printed everywhere, so it is never a secret. Required; there is no
	// default.
	ID string
	// Credential is set on every attempt; zero: none, and the caller's headers stay.
	Credential Credential
	// Upstream replaces the scheme and host of the call and is put in front of its path: an absolute http or https URL
	// without user information, query or fragment; "" is the default: the call's own URL.
	Upstream string
	// Proxy is the resource's own; zero: as the base transport says. It needs an [http.Transport] under the pool.
	Proxy Proxy
	// Base carries the attempts on this resource; nil: the RoundTripper under the pool. Not together with Proxy. A base that
	// follows redirects takes the credential along, to other hosts too: that is for the http.Client above.
	Base http.RoundTripper
	// MaxInFlight bounds the attempts at one time, each to the end of its response body; zero: unlimited.
	MaxInFlight int
	// Weight is the share under Weighted, finite; zero: 1.
	Weight float64
	// Tier is the resource's tier: the lowest one with an eligible resource serves; zero is the default and the lowest.
	Tier int
	// RateLimit bounds the attempts per second, finite; zero: none. Out of tokens is not eligible.
	RateLimit float64
	// RateBurst is how many tokens of RateLimit may be spent at once; zero: RateLimit, rounded up, at least 1. Without
	// RateLimit it is an error.
	RateBurst int
	// Group names what several resources share, an account or a key, for verdicts with [ScopeGroup] or [ScopeGroupKey], which
	// [DefaultClassifier] does not give; "" is the default: none.
	Group string
}

// A Pool spreads calls over resources: it picks one for each attempt, puts in its credential and upstream, judges the
// outcome, and goes on to the next one where that is safe. It is made by [NewPool], put in front of a transport by
// [Pool.Wrap], safe for concurrent use, starts no goroutine and needs no closing.
type Pool struct {
	cfg    PoolConfig
	hosts  map[string]bool // nil: every call
	jitter func() float64  // in [0, 1)
	retry  *budget         // of repeats after retry verdicts; nil: no limit

	mu         sync.Mutex // guards the fields below and all state of members and slots; only a Selector runs under it
	members    []*member  // in pool order
	drains     map[string]int
	seq        uint64          // of the latest acquisition; attempts are ordered by it
	changed    chan struct{}   // closed when something changes that may matter to waiters; nil: nobody waits
	offered    []*member       // scratch of the latest pick
	candidates []Candidate     // the same, for a Selector
	events     []ResourceEvent // not delivered yet
	telling    bool            // somebody delivers events
	told       uint64          // Seq of the latest event
	total      poolTotals
}

// NewPool returns a pool. The error joins every fault of cfg, each with its field and its bound; it shows no secret. The
// slices of cfg are copied.
func NewPool(cfg PoolConfig) (*Pool, error) {
	p := &Pool{jitter: rand.Float64, drains: make(map[string]int)}
	f := faults{path: "PoolConfig"}
	cfg.validate(&f)
	p.hosts = cfg.parseHosts(&f)
	f.check("Resources", "empty", len(cfg.Resources) > 0, "but at least one is required")
	p.cfg = cfg.withDefaults()
	var err error
	p.members, err = p.parse("PoolConfig.Resources", cfg.Resources)
	if err != nil {
		f.add(err)
	}
	if err := f.join(); err != nil {
		return nil, err
	}
	p.cfg.Resources = nil // they are in members now
	if p.cfg.RetryBudgetPercent > 0 {
		p.retry = newBudget(p.cfg.RetryBudgetPercent, 0, defaultRateWindow)
		p.retry.least(retryBudgetLeast)
	}
	return p, nil
}

// Name returns the pool's name.
func (p *Pool) Name() string { return p.cfg.Name }

// Format writes the pool's name, for every verb and flag. [Pool.Stats] tells more.
func (p *Pool) Format(f fmt.State, _ rune) { _, _ = fmt.Fprintf(f, "pool %q", p.cfg.Name) }

func (c PoolConfig) validate(f *faults) {
	f.check("Strategy", c.Strategy, c.Strategy >= RoundRobin && c.Strategy <= LeastLatency, "is not a strategy")
	f.check("Selector", "set together with Strategy "+c.Strategy.String(), c.Selector == nil || c.Strategy == RoundRobin,
		"excludes it")
	f.check("MaxAttempts", c.MaxAttempts, c.MaxAttempts >= 0, "must not be negative")
	f.notNegative("Wait", c.Wait)
	f.check("CooldownTable", "empty", c.CooldownTable == nil || len(c.CooldownTable) > 0, "but not nil")
	for i, d := range c.CooldownTable {
		f.check(fmt.Sprintf("CooldownTable[%d]", i), d, d > 0, "must be above 0")
	}
	f.notNegative("MaxCooldown", c.MaxCooldown)
	f.notNegative("FailureBackoff", c.FailureBackoff)
	f.notNegative("MaxFailureBackoff", c.MaxFailureBackoff)
	least := c.FailureBackoff
	setDefault(&least, defaultFailureBackoff)
	f.check("MaxFailureBackoff", c.MaxFailureBackoff, c.MaxFailureBackoff <= 0 || c.MaxFailureBackoff >= least,
		"must not be below FailureBackoff, "+least.String())
	f.notNegative("ProbeDisabled", c.ProbeDisabled)
	f.check("RetryBudgetPercent", c.RetryBudgetPercent, c.RetryBudgetPercent <= 100, "is above 100")
}

// withDefaults returns c with the defaults in place of its zero fields, and copies of its slices.
func (c PoolConfig) withDefaults() PoolConfig {
	setDefault(&c.Name, defaultPoolName)
	setDefault(&c.RetryDelay, defaultRetryDelay)
	c.RetryDelay = max(c.RetryDelay, 0)
	if c.CooldownTable == nil {
		c.CooldownTable = []time.Duration{30 * time.Second, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute}
	}
	c.CooldownTable = slices.Clone(c.CooldownTable)
	setDefault(&c.MaxCooldown, defaultMaxCooldown)
	setDefault(&c.FailureBackoff, defaultFailureBackoff)
	setDefault(&c.MaxFailureBackoff, max(defaultMaxFailureBackoff, c.FailureBackoff))
	setDefault(&c.RetryBudgetPercent, defaultRetryBudgetPercent)
	setDefault(&c.PeekBody, defaultPeekBody)
	if c.Peek == nil {
		c.Peek = func(resp *http.Response) bool { return resp.StatusCode >= http.StatusBadRequest }
	}
	c.Hosts = nil // they are in hosts now
	return c
}

// parseHosts returns the calls that the pool acts on, as scheme://host[:port] without the default port.
func (c PoolConfig) parseHosts(f *faults) map[string]bool {
	if len(c.Hosts) == 0 {
		return nil
	}
	hosts := make(map[string]bool, len(c.Hosts))
	for i, h := range c.Hosts {
		field := fmt.Sprintf("Hosts[%d]", i)
		raw := h
		if !strings.Contains(raw, "://") {
			raw = "https://" + raw
		}
		u, err := url.Parse(raw)
		switch {
		case err != nil:
			f.check(field, "entry", false, "is not a host")
			continue
		case u.Scheme != "http" && u.Scheme != "https":
			f.check(field, fmt.Sprintf("%q", u.Scheme), false, "is not http or https")
			continue
		case u.Hostname() == "" || strings.ContainsAny(u.Host, "*, "):
			f.check(field, fmt.Sprintf("%q", u.Host), false, "must be a host, as in [scheme://]host[:port]")
			continue
		case u.Path != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.User != nil:
			f.check(field, fmt.Sprintf("%q and more", u.Host), false, "must be [scheme://]host[:port]")
			continue
		}
		origin := originOf(u)
		f.check(field, fmt.Sprintf("%q", u.Host), !hosts[origin], "is given twice")
		hosts[origin] = true
	}
	return hosts
}

// originOf returns scheme, host and port of u in the form that hosts has.
func originOf(u *url.URL) string {
	return u.Scheme + "://" + hostOf(u)
}

// A spec is a resource as it was configured, ready for use. It never changes.
type spec struct {
	Resource

	upstream *url.URL // nil: the call's own
	hash     uint64   // of the ID
}

// quantity checks a number that may be a fraction.
func (f *faults) quantity(field string, v float64) {
	f.check(field, v, !math.IsNaN(v) && !math.IsInf(v, 1), "is not a finite number")
	f.check(field, v, v >= 0 || math.IsNaN(v), "must not be negative")
}

// parse returns fresh members for rs. path is that of rs in the configuration.
func (p *Pool) parse(path string, rs []Resource) ([]*member, error) {
	var f faults
	members := make([]*member, 0, len(rs))
	seen := make(map[string]bool, len(rs))
	for i, r := range rs {
		f.path = fmt.Sprintf("%s[%d]", path, i)
		members = append(members, p.parseOne(&f, r))
		f.check("ID", fmt.Sprintf("%q", r.ID), r.ID == "" || !seen[r.ID], "is given twice")
		seen[r.ID] = true
	}
	return members, f.join()
}

// parseOne returns a fresh member for r.
func (p *Pool) parseOne(f *faults, r Resource) *member {
	s := r.parse(f)
	f.check("Credential", "set", r.Credential.IsZero() || p.hosts != nil, "but the pool has no Hosts")
	f.check("Upstream", "set", r.Upstream == "" || p.hosts != nil, "but the pool has no Hosts")
	s.hash = hashString(r.ID)
	return newMember(s)
}

// parse checks r by itself.
func (r Resource) parse(f *faults) *spec {
	s := &spec{Resource: r}
	f.check("ID", `""`, r.ID != "", "must not be empty")
	if c := r.Credential.load(); c != nil {
		f.check("Credential", "refused", c.fault == "", "because "+c.fault)
	}
	if r.Upstream != "" {
		u, err := url.Parse(r.Upstream)
		ok := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.Opaque == "" &&
			u.User == nil && u.RawQuery == "" && !u.ForceQuery && u.Fragment == ""
		f.check("Upstream", "refused", ok, "because it must be an absolute http or https URL without user, query and fragment")
		s.upstream = u
	}
	if !r.Proxy.IsZero() {
		if err := r.Proxy.get().fault; err != nil {
			f.check("Proxy", masked, false, err.Error())
		}
		f.check("Proxy", "set", r.Base == nil, "together with Base")
	}
	f.check("MaxInFlight", r.MaxInFlight, r.MaxInFlight >= 0, "must not be negative")
	f.quantity("Weight", r.Weight)
	f.check("Tier", r.Tier, r.Tier >= 0, "must not be negative")
	f.quantity("RateLimit", r.RateLimit)
	f.check("RateBurst", r.RateBurst, r.RateBurst >= 0, "must not be negative")
	f.check("RateBurst", r.RateBurst, r.RateBurst <= 0 || r.RateLimit > 0, "is of no use without RateLimit")
	setDefault(&s.Weight, 1)
	setDefault(&s.RateBurst, int(min(max(1, math.Ceil(r.RateLimit)), math.MaxInt32)))
	return s
}

// newLimiter returns the limiter of a resource, nil if it has no limit.
func (s *spec) newLimiter() *rate.Limiter {
	if s.RateLimit == 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(s.RateLimit), s.RateBurst)
}
