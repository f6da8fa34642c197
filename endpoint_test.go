package hedgerow_test

import (
	"encoding"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// answers returns a base that answers at once with 200.
func answers() *scripted.Transport {
	return scripted.Func(func(int, *http.Request) scripted.Step { return scripted.Step{} })
}

func mustNew(tb testing.TB, cfg hedgerow.Config) *hedgerow.Transport {
	tb.Helper()
	tr, err := hedgerow.New(cfg)
	require.NoError(tb, err)
	return tr
}

// get makes a call and closes its response.
func get(tb testing.TB, tr http.RoundTripper, method, url string) {
	tb.Helper()
	req, err := http.NewRequestWithContext(tb.Context(), method, url, http.NoBody)
	require.NoError(tb, err)
	resp, err := tr.RoundTrip(req)
	require.NoError(tb, err)
	require.NoError(tb, resp.Body.Close())
}

// keys returns the keys of the endpoints that are kept, as strings.
func keys(tr *hedgerow.Transport) []string {
	var all []string
	for k := range tr.Stats().Endpoints {
		all = append(all, k.String())
	}
	slices.Sort(all)
	return all
}

func TestHostsInKeys(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, url, want string }{
		{"plain", "http://api.test/", "api.test"},
		{"case", "http://API.Test/", "api.test"},
		{"default port of http", "http://api.test:80/", "api.test"},
		{"default port of https", "https://api.test:443/", "api.test"},
		{"other port", "http://api.test:443/", "api.test:443"},
		{"empty port", "http://api.test:/", "api.test"},
		{"user information", "http://user:secret@api.test/", "api.test"},
		{"IPv6", "http://[::1]:80/", "[::1]"},
		{"IPv6 with port", "http://[2001:DB8::80]:8080/", "[2001:db8::80]:8080"},
		{"IPv6 that ends like a port", "http://[2001:db8::80]/", "[2001:db8::80]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tr := mustNew(t, hedgerow.Config{Base: answers()})
			get(t, tr, http.MethodGet, tc.url)
			require.Equal(t, []string{tc.want}, keys(tr))
		})
	}
}

func TestCallsFindTheirEndpoint(t *testing.T) {
	t.Parallel()
	tr := mustNew(t, hedgerow.Config{Base: answers()})
	require.NoError(t, tr.Register("GET /v1/users/{id}", hedgerow.EndpointConfig{Name: "user"}))
	require.NoError(t, tr.Register("/v1/users/{id}", hedgerow.EndpointConfig{}))
	require.NoError(t, tr.Register("b.test/v1/users/{id}", hedgerow.EndpointConfig{Name: "user of b"}))

	get(t, tr, http.MethodGet, "http://a.test/v1/users/7")
	get(t, tr, http.MethodGet, "http://c.test/v1/users/8")
	get(t, tr, http.MethodHead, "http://a.test/v1/users/7")
	get(t, tr, http.MethodGet, "http://b.test/v1/users/7")
	get(t, tr, http.MethodGet, "http://a.test/v1/users/7/")
	require.Equal(t, []string{
		"/v1/users/{id} @ a.test", "a.test", "user @ a.test", "user @ c.test", "user of b @ b.test",
	}, keys(tr))
}

func TestRegisterRefusesWhatIsTaken(t *testing.T) {
	t.Parallel()
	tr := mustNew(t, hedgerow.Config{})
	require.NoError(t, tr.Register("GET /a/{x}", hedgerow.EndpointConfig{}))
	require.NoError(t, tr.Register("GET /b", hedgerow.EndpointConfig{Name: "b"}))
	for _, tc := range []struct{ name, pattern, endpoint string }{
		{"same pattern", "GET /a/{x}", ""},
		{"same pattern, another name", "GET /a/{x}", "other"},
		{"same pattern, another wildcard", "GET /a/{y}", ""},
		{"same name", "GET /c", "b"},
		{"name of a pattern", "GET /c", "GET /a/{x}"},
		{"no pattern", "", ""},
	} {
		require.Error(t, tr.Register(tc.pattern, hedgerow.EndpointConfig{Name: tc.endpoint}), tc.name)
	}
	require.NoError(t, tr.Register("GET /c", hedgerow.EndpointConfig{Name: "c"}), "nothing refused has left a trace")
}

func TestLeastRecentlyUsedEndpointIsDropped(t *testing.T) {
	t.Parallel()
	tr := mustNew(t, hedgerow.Config{Base: answers(), MaxEndpoints: 2})
	for _, step := range []struct {
		host string
		want []string
	}{
		{"a.test", []string{"a.test"}},
		{"b.test", []string{"a.test", "b.test"}},
		{"a.test", []string{"a.test", "b.test"}},
		{"c.test", []string{"a.test", "c.test"}},
		{"a.test", []string{"a.test", "c.test"}},
		{"b.test", []string{"a.test", "b.test"}},
	} {
		get(t, tr, http.MethodGet, "http://"+step.host+"/")
		require.Equal(t, step.want, keys(tr))
		require.Len(t, tr.Stats().Hosts, len(step.want), "a host goes with its last endpoint")
	}
	require.Equal(t, hedgerow.Counters{Requests: 6, Warmup: 6}, tr.Stats().Total, "the total keeps what was dropped")
}

func TestHostOutlivesOneOfItsEndpoints(t *testing.T) {
	t.Parallel()
	tr := mustNew(t, hedgerow.Config{Base: answers(), MaxEndpoints: 2})
	require.NoError(t, tr.Register("/x", hedgerow.EndpointConfig{}))
	get(t, tr, http.MethodGet, "http://a.test/")
	get(t, tr, http.MethodGet, "http://a.test/x")
	get(t, tr, http.MethodGet, "http://b.test/x")
	require.Equal(t, []string{"/x @ a.test", "/x @ b.test"}, keys(tr))
	require.Len(t, tr.Stats().Hosts, 2)
}

func TestEnumerationsHaveNames(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		values []encoding.TextMarshaler
		want   string
	}{
		{
			[]encoding.TextMarshaler{
				hedgerow.SkipDisabled, hedgerow.SkipMethod, hedgerow.SkipBody, hedgerow.SkipUpgrade, hedgerow.SkipDeadline,
				hedgerow.SkipCircuit, hedgerow.SkipBudget, hedgerow.SkipPushback, hedgerow.SkipNoResource, hedgerow.SkipReason(-1),
			},
			"disabled method body upgrade deadline circuit budget pushback no_resource SkipReason(-1)",
		},
		{
			[]encoding.TextMarshaler{hedgerow.CircuitClosed, hedgerow.CircuitOpen, hedgerow.CircuitHalfOpen},
			"closed open half_open",
		},
		{[]encoding.TextMarshaler{hedgerow.CircuitHost, hedgerow.CircuitEndpoint}, "host endpoint"},
		{
			[]encoding.TextMarshaler{hedgerow.AttemptPrimary, hedgerow.AttemptHedge, hedgerow.AttemptRetry},
			"primary hedge retry",
		},
		{[]encoding.TextMarshaler{hedgerow.SignalHeaders, hedgerow.SignalFirstByte, hedgerow.Signal(2)}, "headers first_byte Signal(2)"},
	} {
		var texts, strs []string
		for _, v := range tc.values {
			text, err := v.MarshalText()
			require.NoError(t, err)
			texts = append(texts, string(text))
			strs = append(strs, fmt.Sprint(v))
		}
		require.Equal(t, tc.want, strings.Join(texts, " "))
		require.Equal(t, texts, strs)
	}
}

func TestStatsMarshal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := scripted.Func(func(int, *http.Request) scripted.Step { return scripted.Step{After: time.Second} })
		tr := mustNew(t, hedgerow.Config{Base: base})
		require.NoError(t, tr.Register("POST /x", hedgerow.EndpointConfig{Name: "x"}))
		get(t, tr, http.MethodPost, "http://a.test/x")
		stats := tr.Stats()
		text, err := json.Marshal(stats)
		require.NoError(t, err)
		require.Contains(t, string(text), `"x @ a.test"`)
		require.Contains(t, string(text), `"Skipped":{"method":1}`)
		require.Contains(t, string(text), `"Circuit":"closed"`)

		ep := stats.Endpoints[hedgerow.EndpointKey{Name: "x", Host: "a.test"}]
		require.InEpsilon(t, time.Second, ep.Latency.P50, 0.01)
		ep.Latency = hedgerow.Quantiles{}
		counters := hedgerow.Counters{Requests: 1, Skipped: map[hedgerow.SkipReason]uint64{hedgerow.SkipMethod: 1}}
		require.Equal(t, hedgerow.EndpointStats{Counters: counters, Delay: 10 * time.Millisecond, RatePerSecond: 1}, ep)
		require.Equal(t, counters, stats.Total)
		require.Equal(t, map[string]hedgerow.HostStats{"a.test": {}}, stats.Hosts)
	})
}
