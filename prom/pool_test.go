package prom_test

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
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

// newPool returns a pool of three keys, of which the first must wait and the second is refused.
func newPool(t *testing.T, name string) (*hedgerow.Pool, http.RoundTripper) {
	t.Helper()
	p, err := hedgerow.NewPool(hedgerow.PoolConfig{
		Name: name, Hosts: []string{"http://a.test"}, Strategy: hedgerow.PrimaryBackup,
		Resources: []hedgerow.Resource{
			{ID: "one", Credential: hedgerow.Bearer("secret1")},
			{ID: "two", Credential: hedgerow.Bearer("secret2")},
			{ID: "three", Credential: hedgerow.Bearer("secret3"), MaxInFlight: 4},
		},
	})
	require.NoError(t, err)
	base := scripted.Func(func(_ int, req *http.Request) scripted.Step {
		switch req.Header.Get("Authorization") {
		case "Bearer secret1":
			return scripted.Step{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"20"}}}
		case "Bearer secret2":
			return scripted.Step{Status: http.StatusUnauthorized}
		}
		return scripted.Step{}
	})
	return p, p.Wrap(base)
}

// The whole exposition of a pool after a call that found the third key, and one to another host.
func TestPoolExposition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, rt := newPool(t, "")
		do(t, rt, http.MethodGet, "http://a.test/", http.StatusOK)
		do(t, rt, http.MethodGet, "http://b.test/", http.StatusOK)
		time.Sleep(5 * time.Second)

		c := prom.NewCollector(nil, p, nil)
		golden := filepath.Join("testdata", "pool.golden")
		reg := prometheus.NewPedanticRegistry()
		require.NoError(t, reg.Register(c))
		if *update {
			require.NoError(t, prometheus.WriteToTextfile(golden, reg))
		}
		expected, err := os.ReadFile(golden)
		require.NoError(t, err)
		require.NoError(t, testutil.CollectAndCompare(c, bytes.NewReader(expected)), "rewrite with -update?")
		require.NotContains(t, string(expected), "secret")
		problems, err := testutil.GatherAndLint(reg)
		require.NoError(t, err)
		require.Empty(t, problems)

		// 18 series of the pool, 12 of each resource; those of one that is removed vanish.
		require.Equal(t, 18+3*12, testutil.CollectAndCount(c))
		require.NoError(t, p.Remove("two"))
		require.Equal(t, 18+2*12, testutil.CollectAndCount(c))
		require.NoError(t, testutil.CollectAndCompare(c, strings.NewReader(`
			# HELP hedgerow_pool_disables_total Resources that were disabled.
			# TYPE hedgerow_pool_disables_total counter
			hedgerow_pool_disables_total{pool="default"} 1
		`), "hedgerow_pool_disables_total"))
	})
}

// Pools are told apart by their name; two of one name are an error of the scrape.
func TestSeveralPools(t *testing.T) {
	t.Parallel()
	a, _ := newPool(t, "a")
	b, _ := newPool(t, "b\xff")
	again, _ := newPool(t, "a")
	tr := newTransport(t, hedgerow.Config{})

	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(prom.NewCollector(tr, a, b)))
	n, err := testutil.GatherAndCount(reg, "hedgerow_pool_calls_total")
	require.NoError(t, err)
	require.Equal(t, 2*4, n)

	reg = prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(prom.NewCollector(tr, a, b, again)))
	_, err = reg.Gather()
	require.ErrorContains(t, err, `two pools are named "a"`)
}
