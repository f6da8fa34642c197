package hedgerow_test

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// TestReportOfFailingUpstream has one of three upstreams answer 502 at once, and eight workers. A Classifier reports that as a
// transport failure, as the README shows: no caller sees it, whatever the strategy, and hardly a call goes there. When all three
// answer so, the callers get it, and none an error.
func TestReportOfFailingUpstream(t *testing.T) {
	t.Parallel()
	for strategy := hedgerow.RoundRobin; strategy <= hedgerow.LeastLatency; strategy++ {
		for name, failing := range map[string]map[string]bool{
			"one": {"http://a.test": true}, "all": {"http://a.test": true, "http://b.test": true, "http://c.test": true},
		} {
			t.Run(strategy.String()+"/"+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var pool *hedgerow.Pool
					cfg := hedgerow.PoolConfig{
						Hosts: []string{"http://api.test"}, Strategy: strategy,
						Classifier: func(o hedgerow.Outcome) hedgerow.Verdict {
							if o.Response != nil && o.Response.StatusCode >= http.StatusBadGateway {
								if err := pool.Report(o.Attempt.Resource, "", hedgerow.Verdict{Action: hedgerow.ActionRetry}); err != nil {
									t.Error(err)
								}
							}
							return hedgerow.Verdict{}
						},
					}
					for _, id := range []string{"a", "b", "c"} {
						cfg.Resources = append(cfg.Resources, hedgerow.Resource{ID: id, Upstream: "http://" + id + ".test"})
					}
					pool = pspecPool(t, cfg)
					rt := pool.Wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
						if failing[req.URL.Scheme+"://"+req.URL.Host] {
							return sharedAnswer(req, http.StatusBadGateway, ""), nil
						}
						time.Sleep(20 * time.Millisecond)
						return sharedAnswer(req, http.StatusOK, ""), nil
					}))
					want := http.StatusOK
					if name == "all" {
						want = http.StatusBadGateway
					}
					const workers, each = 8, 150
					var wg sync.WaitGroup
					for range workers {
						wg.Go(func() {
							for range each {
								resp, err := rt.RoundTrip(contractGet(t.Context(), t, "http://api.test/"))
								if err != nil || resp.StatusCode != want {
									t.Errorf("%v, %v", resp, err)
									return
								}
								contractRead(t, resp)
								time.Sleep(5 * time.Millisecond)
							}
						})
					}
					wg.Wait()
					if name == "one" {
						require.LessOrEqual(t, pool.Stats().Resources[0].Attempts, uint64(workers*each/50))
					}
				})
			})
		}
	}
}
