package hedgerow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

func TestNewPoolReportsEveryFault(t *testing.T) {
	t.Parallel()
	p, err := hedgerow.NewPool(hedgerow.PoolConfig{
		Hosts: []string{
			"api.test", "https://API.test:443", "ftp://files.test", "api.test/v1", "user:hunter2@api.test", "http://x.test?q=1",
			"", "*.test", "http://[::1", "x.test#f",
		},
		Strategy: 9, Selector: func(*http.Request, []hedgerow.Candidate) int { return 0 },
		MaxAttempts: -1, Wait: -2, CooldownTable: []time.Duration{time.Second, 0, -1}, MaxCooldown: -3,
		FailureBackoff: -4, MaxFailureBackoff: -5, ProbeDisabled: -6, RetryBudgetPercent: 101,
		Resources: []hedgerow.Resource{
			{ID: "a", Weight: -2, MaxInFlight: -1, Tier: -3, RateLimit: -4, RateBurst: -5},
			{ID: "a", Weight: math.Inf(1), RateLimit: math.NaN(), Upstream: "example.com/v1"},
			{Credential: hedgerow.Bearer(""), Proxy: hedgerow.ProxyURL("ftp://u:hunter2@proxy.test"), Base: http.DefaultTransport},
			{ID: "nl", Credential: hedgerow.Bearer("hunter2\nX-Evil: 1"), RateBurst: 1, Weight: math.NaN()},
		},
	})
	require.Nil(t, p)
	require.EqualError(t, err, strings.Join([]string{
		`hedgerow: PoolConfig.Strategy: Strategy(9) is not a strategy`,
		`hedgerow: PoolConfig.Selector: set together with Strategy Strategy(9) excludes it`,
		`hedgerow: PoolConfig.MaxAttempts: -1: must not be negative`,
		`hedgerow: PoolConfig.Wait: -2ns: must not be negative`,
		`hedgerow: PoolConfig.CooldownTable[1]: 0s: must be above 0`,
		`hedgerow: PoolConfig.CooldownTable[2]: -1ns: must be above 0`,
		`hedgerow: PoolConfig.MaxCooldown: -3ns: must not be negative`,
		`hedgerow: PoolConfig.FailureBackoff: -4ns: must not be negative`,
		`hedgerow: PoolConfig.MaxFailureBackoff: -5ns: must not be negative`,
		`hedgerow: PoolConfig.ProbeDisabled: -6ns: must not be negative`,
		`hedgerow: PoolConfig.RetryBudgetPercent: 101 is above 100`,
		`hedgerow: PoolConfig.Hosts[1]: "API.test:443" is given twice`,
		`hedgerow: PoolConfig.Hosts[2]: "ftp" is not http or https`,
		`hedgerow: PoolConfig.Hosts[3]: "api.test" and more: must be [scheme://]host[:port]`,
		`hedgerow: PoolConfig.Hosts[4]: "api.test" and more: must be [scheme://]host[:port]`,
		`hedgerow: PoolConfig.Hosts[5]: "x.test" and more: must be [scheme://]host[:port]`,
		`hedgerow: PoolConfig.Hosts[6]: "": must be a host, as in [scheme://]host[:port]`,
		`hedgerow: PoolConfig.Hosts[7]: "*.test": must be a host, as in [scheme://]host[:port]`,
		`hedgerow: PoolConfig.Hosts[8]: entry is not a host`,
		`hedgerow: PoolConfig.Hosts[9]: "x.test" and more: must be [scheme://]host[:port]`,
		`hedgerow: PoolConfig.Resources[0].MaxInFlight: -1: must not be negative`,
		`hedgerow: PoolConfig.Resources[0].Weight: -2: must not be negative`,
		`hedgerow: PoolConfig.Resources[0].Tier: -3: must not be negative`,
		`hedgerow: PoolConfig.Resources[0].RateLimit: -4: must not be negative`,
		`hedgerow: PoolConfig.Resources[0].RateBurst: -5: must not be negative`,
		`hedgerow: PoolConfig.Resources[1].Upstream: refused because it must be an absolute http or https URL without user, query and fragment`,
		`hedgerow: PoolConfig.Resources[1].Weight: +Inf is not a finite number`,
		`hedgerow: PoolConfig.Resources[1].RateLimit: NaN is not a finite number`,
		`hedgerow: PoolConfig.Resources[1].ID: "a" is given twice`,
		`hedgerow: PoolConfig.Resources[2].ID: "": must not be empty`,
		`hedgerow: PoolConfig.Resources[2].Credential: refused because the secret is empty`,
		`hedgerow: PoolConfig.Resources[2].Proxy: *** the scheme is not http, https or socks5`,
		`hedgerow: PoolConfig.Resources[2].Proxy: set together with Base`,
		`hedgerow: PoolConfig.Resources[3].Credential: refused because the secret is not a valid header value`,
		`hedgerow: PoolConfig.Resources[3].Weight: NaN is not a finite number`,
		`hedgerow: PoolConfig.Resources[3].RateBurst: 1 is of no use without RateLimit`,
	}, "\n"))
	require.NotContains(t, err.Error(), "hunter2")
}

func TestNewPoolBounds(t *testing.T) {
	t.Parallel()
	const noHosts = "but the pool has no Hosts"
	fits := []hedgerow.Resource{{ID: "a"}}
	for name, tc := range map[string]struct {
		cfg  hedgerow.PoolConfig
		want string // "": it is accepted
	}{
		"smallest":             {hedgerow.PoolConfig{Resources: fits}, ""},
		"no resources":         {hedgerow.PoolConfig{}, "Resources: empty but at least one is required"},
		"empty table":          {hedgerow.PoolConfig{Resources: fits, CooldownTable: []time.Duration{}}, "CooldownTable: empty but not nil"},
		"selector alone":       {hedgerow.PoolConfig{Resources: fits, Selector: func(*http.Request, []hedgerow.Candidate) int { return 0 }}, ""},
		"backoff above max":    {hedgerow.PoolConfig{Resources: fits, FailureBackoff: 3, MaxFailureBackoff: 2}, "MaxFailureBackoff: 2ns: must not be below FailureBackoff, 3ns"},
		"max below default":    {hedgerow.PoolConfig{Resources: fits, MaxFailureBackoff: 1}, "MaxFailureBackoff: 1ns: must not be below FailureBackoff, 1s"},
		"backoff lifts max":    {hedgerow.PoolConfig{Resources: fits, FailureBackoff: time.Hour}, ""},
		"negative pause":       {hedgerow.PoolConfig{Resources: fits, RetryDelay: -1}, ""},
		"negative peek":        {hedgerow.PoolConfig{Resources: fits, PeekBody: -1}, ""},
		"negative budget":      {hedgerow.PoolConfig{Resources: fits, RetryBudgetPercent: -1}, ""},
		"budget of all":        {hedgerow.PoolConfig{Resources: fits, RetryBudgetPercent: 100}, ""},
		"budget NaN":           {hedgerow.PoolConfig{Resources: fits, RetryBudgetPercent: math.NaN()}, "RetryBudgetPercent: NaN is above 100"},
		"budget infinite":      {hedgerow.PoolConfig{Resources: fits, RetryBudgetPercent: math.Inf(1)}, "RetryBudgetPercent: +Inf is above 100"},
		"strategy below":       {hedgerow.PoolConfig{Resources: fits, Strategy: -1}, "Strategy: Strategy(-1) is not a strategy"},
		"credential, no hosts": {hedgerow.PoolConfig{Resources: pspecKeys(1)}, "Resources[0].Credential: set " + noHosts},
		"upstream, no hosts":   {hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "a", Upstream: "http://u.test"}}}, "Resources[0].Upstream: set " + noHosts},
		"proxy, no hosts":      {hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "a", Proxy: hedgerow.ProxyURL("socks5://p.test:1")}}}, ""},
		"tiny numbers":         {hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "a", Weight: 5e-324, RateLimit: 5e-324, RateBurst: 1}}}, ""},
		"huge numbers": {hedgerow.PoolConfig{
			Resources:   []hedgerow.Resource{{ID: "a", Weight: math.MaxFloat64, RateLimit: math.MaxFloat64, Tier: math.MaxInt, MaxInFlight: math.MaxInt}},
			MaxAttempts: math.MaxInt, RetryDelay: math.MaxInt64, Wait: math.MaxInt64, MaxCooldown: math.MaxInt64,
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := hedgerow.NewPool(tc.cfg)
			if tc.want == "" {
				require.NoError(t, err)
				if !tc.cfg.Resources[0].Proxy.IsZero() {
					return // it wants an http.Transport
				}
				base := scripted.New(scripted.Step{Body: "ok"})
				status, _, err := pspecGet(t, p.Wrap(base))
				require.NoError(t, err) // what NewPool accepts works
				require.Equal(t, http.StatusOK, status)
				return
			}
			require.Nil(t, p)
			require.EqualError(t, err, "hedgerow: PoolConfig."+tc.want)
		})
	}
}

func TestCredentialFaults(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		c    hedgerow.Credential
		want string // "": it is accepted
	}{
		"bearer":             {hedgerow.Bearer("s"), ""},
		"bearer, empty":      {hedgerow.Bearer(""), "the secret is empty"},
		"bearer, newline":    {hedgerow.Bearer("s\n"), "the secret is not a valid header value"},
		"bearer, return":     {hedgerow.Bearer("s\rt"), "the secret is not a valid header value"},
		"bearer, nul":        {hedgerow.Bearer("s\x00"), "the secret is not a valid header value"},
		"header":             {hedgerow.HeaderKey("x-api-key", "s"), ""},
		"header, no name":    {hedgerow.HeaderKey("", "s"), "the name is empty"},
		"header, bad name":   {hedgerow.HeaderKey("x key", "s"), "the name is not a valid header name"},
		"header, empty":      {hedgerow.HeaderKey("x-key", ""), "the secret is empty"},
		"header, newline":    {hedgerow.HeaderKey("x-key", "a\nb"), "the secret is not a valid header value"},
		"query":              {hedgerow.QueryKey("key", "a b\n&"), ""},
		"query, no name":     {hedgerow.QueryKey("", "s"), "the name is empty"},
		"query, empty":       {hedgerow.QueryKey("key", ""), "the secret is empty"},
		"basic":              {hedgerow.BasicAuth("", "s:t"), ""},
		"basic, empty":       {hedgerow.BasicAuth("u", ""), "the secret is empty"},
		"basic, colon":       {hedgerow.BasicAuth("u:v", "s"), "the user contains a colon"},
		"basic, newline":     {hedgerow.BasicAuth("u", "s\n"), "the user or the secret contains a control character"},
		"func":               {hedgerow.CredentialFunc(func(*http.Request) error { return nil }), ""},
		"func, nil":          {hedgerow.CredentialFunc(nil), "the func is nil"},
		"zero sets nothing":  {hedgerow.Credential{}, ""},
		"empty but not zero": {hedgerow.HeaderKey("", ""), "the name is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, name == "zero sets nothing", tc.c.IsZero())
			p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(1)})
			r := hedgerow.Resource{ID: "new", Credential: tc.c}
			if tc.want == "" {
				require.NoError(t, p.Add(r))
				return
			}
			require.EqualError(t, p.Add(r), "hedgerow: Resource.Credential: refused because "+tc.want)
			require.EqualError(t, p.SetResources([]hedgerow.Resource{r}),
				"hedgerow: Resources[0].Credential: refused because "+tc.want)
			require.Len(t, p.Snapshot(), 1)
		})
	}
}

func TestProxyAndUpstreamFaults(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"proxy.test:8080", "ftp://proxy.test", "http://", "://", "http://u:hunter2@pro xy", "http://[::1", "http:opaque", "/path",
	} {
		p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(1)})
		err := p.Add(hedgerow.Resource{ID: "x", Proxy: hedgerow.ProxyURL(raw)})
		require.ErrorContains(t, err, "hedgerow: Resource.Proxy: ***", raw)
		require.NotContains(t, err.Error(), "hunter2")
	}
	for _, raw := range []string{
		"u.test", "//u.test", "/v1", "ftp://u.test", "http://", "http:///v1", "http://:80", "http://u:p@u.test", "http://u.test?q",
		"http://u.test?", "http://u.test#f", "http:u.test", "http://u.test/%zz", "http://[::1",
	} {
		p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(1)})
		require.ErrorContains(t, p.Add(hedgerow.Resource{ID: "x", Upstream: raw}), "hedgerow: Resource.Upstream: refused", raw)
	}
}

func TestSetResourcesAndAddAreAllOrNothing(t *testing.T) {
	t.Parallel()
	p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(2)})
	before := p.Snapshot()
	require.EqualError(t, p.SetResources(nil), "hedgerow: Resources: empty: at least one is required")
	err := p.SetResources([]hedgerow.Resource{{ID: "C"}, {ID: "C", Tier: -1}, {}})
	require.EqualError(t, err, "hedgerow: Resources[1].Tier: -1: must not be negative\n"+
		"hedgerow: Resources[1].ID: \"C\" is given twice\n"+
		"hedgerow: Resources[2].ID: \"\": must not be empty")
	require.ErrorIs(t, p.Add(hedgerow.Resource{ID: "B"}), hedgerow.ErrDuplicateResource)
	require.Error(t, p.Add(hedgerow.Resource{ID: "D", Weight: -1}))
	require.Equal(t, before, p.Snapshot())

	open, err := hedgerow.NewPool(hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "plain"}}})
	require.NoError(t, err)
	require.EqualError(t, open.Add(pspecKeys(1)[0]), "hedgerow: Resource.Credential: set but the pool has no Hosts")
	require.Error(t, open.SetResources(pspecKeys(1)))
	for _, f := range []func(string) error{open.Enable, open.Disable, open.Remove} {
		require.ErrorIs(t, f("nobody"), hedgerow.ErrUnknownResource)
	}
	require.ErrorIs(t, open.Report("nobody", "", hedgerow.Verdict{Action: hedgerow.ActionOK}), hedgerow.ErrUnknownResource)
	require.Error(t, open.Report("plain", "", hedgerow.Verdict{}))
	require.Error(t, open.Report("plain", "", hedgerow.Verdict{Action: 99}))
}

func TestHostsDecideWhatThePoolActsOn(t *testing.T) {
	t.Parallel()
	p := pspecPool(t, hedgerow.PoolConfig{
		Hosts:     []string{"API.test", "http://Plain.test", "https://alt.test:8443", "[::1]:9000", "http://port.test:80"},
		Resources: pspecKeys(1),
	})
	for target, acts := range map[string]bool{
		"https://api.test/x": true, "https://API.TEST:443/x": true, "https://u:p@api.test/": true,
		"http://api.test/": false, "https://api.test:8443/": false, "https://api.test.evil.test/": false,
		"https://api.test@evil.test/": false, "https://sub.api.test/": false, "https://api.test./": false,
		"http://plain.test/": true, "http://plain.test:80/": true, "https://plain.test/": false,
		"https://alt.test:8443/": true, "https://alt.test/": false,
		"https://[::1]:9000/": true, "https://[::1]/": false, "http://port.test/": true,
	} {
		base := scripted.New(scripted.Step{})
		req := contractGet(t.Context(), t, target)
		resp, err := p.Wrap(base).RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		rec := base.Records()[0]
		require.Equal(t, acts, rec.Header.Get("Authorization") != "", target)
		if !acts {
			require.Same(t, req, rec.Request, target) // as if the pool were not there
		}
	}
	require.EqualValues(t, 9, p.Stats().PassedThrough)
}

func TestPoolCopiesItsConfig(t *testing.T) {
	t.Parallel()
	cfg := hedgerow.PoolConfig{
		Hosts: []string{"api.test"}, Resources: pspecKeys(1), CooldownTable: []time.Duration{time.Minute}, RetryDelay: -1,
	}
	p, err := hedgerow.NewPool(cfg)
	require.NoError(t, err)
	require.Equal(t, "default", p.Name())
	cfg.Hosts[0], cfg.CooldownTable[0] = "evil.test", time.Nanosecond
	cfg.Resources[0].ID, cfg.Resources[0].Credential = "Z", hedgerow.Bearer("secret-Z")
	base := scripted.New(scripted.Step{}, pspec429)
	_, _, err = pspecGet(t, p.Wrap(base))
	require.NoError(t, err)
	require.Equal(t, "A", pspecSent(base))
	_, _, err = pspecGet(t, p.Wrap(base))
	require.NoError(t, err)
	require.Greater(t, pspecRest(p)["A"], 59*time.Second)

	rs := []hedgerow.Resource{{ID: "N"}}
	require.NoError(t, p.SetResources(rs))
	rs[0].ID = "changed"
	require.Equal(t, "N", p.Snapshot()[0].ID)
}

func TestEnumsOfThePoolHaveNames(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]fmt.Stringer{
		"round_robin": hedgerow.RoundRobin, "primary_backup": hedgerow.PrimaryBackup, "random": hedgerow.Random,
		"weighted": hedgerow.Weighted, "least_latency": hedgerow.LeastLatency, "Strategy(9)": hedgerow.Strategy(9),
		"default": hedgerow.ActionDefault, "ok": hedgerow.ActionOK, "neutral": hedgerow.ActionNeutral,
		"retry": hedgerow.ActionRetry, "cooldown": hedgerow.ActionCooldown, "disable": hedgerow.ActionDisable,
		"resource": hedgerow.ScopeResource, "key": hedgerow.ScopeKey, "group": hedgerow.ScopeGroup,
		"group_key": hedgerow.ScopeGroupKey, "VerdictScope(-1)": hedgerow.VerdictScope(-1),
		"healthy": hedgerow.ResourceHealthy, "cooling": hedgerow.ResourceCooling, "disabled": hedgerow.ResourceDisabled,
		"no_resource": hedgerow.ExhaustedNoResource, "attempts": hedgerow.ExhaustedAttempts, "deadline": hedgerow.ExhaustedDeadline,
	} {
		text, err := json.Marshal(e)
		require.NoError(t, err)
		require.Equal(t, `"`+want+`"`, string(text))
		require.Equal(t, want, e.String())
	}
}

// Printing a pool while it is in use reads nothing that changes.
func TestPoolPrintsItsName(t *testing.T) {
	t.Parallel()
	p, err := hedgerow.NewPool(hedgerow.PoolConfig{Name: "keys", Resources: []hedgerow.Resource{{ID: "a"}}})
	require.NoError(t, err)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
		require.Equal(t, `pool "keys"`, fmt.Sprintf(verb, p))
	}
}

func TestExhaustedErrorAnswersForItsCause(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	err := &hedgerow.ExhaustedError{Pool: "p", Reason: hedgerow.ExhaustedAttempts, Attempts: 2, LastStatus: 429, Err: cause}
	require.ErrorIs(t, err, cause)
	require.False(t, err.Timeout())
	require.Equal(t, `hedgerow: pool "p": no further attempt is allowed after 2 attempts, the last one with status 429: cause`, err.Error())
	empty := &hedgerow.ExhaustedError{Pool: "p", Reason: hedgerow.ExhaustedNoResource}
	require.EqualError(t, empty, `hedgerow: pool "p": no resource is eligible after 0 attempts, the pool is empty`)
	for i := range 12 {
		err.Resources = append(err.Resources, hedgerow.ResourceStatus{ID: string(rune('a' + i)), State: hedgerow.ResourceDisabled})
	}
	err.Resources[0].Reason = "status 401"
	require.Contains(t, err.Error(), `("a" disabled: status 401, "b" disabled,`)
	require.Contains(t, err.Error(), `"h" disabled, and 4 more)`)
	require.NotContains(t, err.Error(), `"i"`)
}

// A resource at its rate limit says until when, and an error for which nothing else is to be had repeats it.
func TestRateLimitShows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pspecPool(t, hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "a", RateLimit: 0.5}, {ID: "b", MaxInFlight: 1}}})
		require.NoError(t, p.Disable("b"))
		base := scripted.New(scripted.Step{})
		require.Zero(t, p.Snapshot()[0].LimitedUntil)
		_, _, err := pspecGet(t, p.Wrap(base))
		require.NoError(t, err)
		due := time.Now().Add(2 * time.Second)
		_, _, err = pspecGet(t, p.Wrap(base))
		exhausted, ok := errors.AsType[*hedgerow.ExhaustedError](err)
		require.True(t, ok)
		require.Equal(t, due, exhausted.NextAvailable)
		require.Equal(t, due, exhausted.Resources[0].LimitedUntil)
		require.Zero(t, exhausted.Resources[1].LimitedUntil)
		require.Contains(t, err.Error(), `("a" at its rate limit until `+due.Format(time.RFC3339)+`, "b" disabled: by the administrator)`)
		time.Sleep(2 * time.Second)
		require.Zero(t, p.Snapshot()[0].LimitedUntil)
	})
}

// When one of several resources is at its cap, nobody knows which is due first.
func TestNextAvailableBesideACap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pspecPool(t, hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "a"}, {ID: "b", MaxInFlight: 1}}})
		base := scripted.New(scripted.Step{Body: "x"})
		require.NoError(t, p.Report("a", "", hedgerow.Verdict{Action: hedgerow.ActionCooldown, Wait: time.Hour}))
		resp, err := p.Wrap(base).RoundTrip(contractGet(t.Context(), t, pspecURL))
		require.NoError(t, err)
		for _, due := range []time.Time{{}, time.Now().Add(time.Hour)} {
			_, _, err = pspecGet(t, p.Wrap(base))
			exhausted, ok := errors.AsType[*hedgerow.ExhaustedError](err)
			require.True(t, ok)
			require.Equal(t, due, exhausted.NextAvailable)
			require.NoError(t, resp.Body.Close())
			require.NoError(t, p.Disable("b"))
		}
	})
}
