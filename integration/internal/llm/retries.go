package llm

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
	"github.com/hedgerow-go/hedgerow/internal/memhttp"
)

// A RetryCase is what every key answers, and who repeats what then. A digit stands for each request that the service has
// seen: it is its X-Stainless-Retry-Count, the number of the SDK's try. What has the same number is the pool's.
type RetryCase struct {
	Name       string
	Status     int // 0: the connection breaks
	Header     []string
	Idempotent bool   // the endpoint is declared so
	Key        string // Idempotency-Key of the caller's
	Synthetic  bool   // Synthetic429

	Off, On string        // the SDK's retries
	Last    int           // status of the error with retries on; 0: the transport's; Exhausted: the pool's
	Waits   time.Duration // with retries on; -1: a random backoff
}

// Exhausted is the Last of a call that ends in the pool.
const Exhausted = -1

func retryCases() []RetryCase {
	vetoed, asked := []string{"X-Should-Retry", "false"}, []string{"X-Should-Retry", "true"}
	return []RetryCase{
		// The pool repeats what was refused before it was acted on, and that once per key, whatever the method.
		{Name: "429 for a second", Status: 429, Header: []string{"Retry-After", "1"}, Off: "00", On: "001122", Last: 429, Waits: 2 * time.Second},
		// The SDK tries again after half a second, the keys rest for thirty: its tries end in the pool.
		{Name: "429", Status: 429, Off: "00", On: "00", Last: Exhausted, Waits: -1},
		// Told so by the pool, the SDK waits, for longer than a caller may like.
		{Name: "429 synthetic", Status: 429, Synthetic: true, Off: "00", On: "0022", Last: 429, Waits: -1},
		{Name: "429 and no retry", Status: 429, Header: vetoed, Off: "00", On: "00", Last: 429},
		{Name: "401", Status: 401, Off: "00", On: "00", Last: 401},
		// What may have been acted on only the SDK repeats, without an idempotency key, unless its owner lets the pool.
		{Name: "503", Status: 503, Off: "0", On: "012", Last: 503, Waits: -1},
		{Name: "503 idempotent", Status: 503, Idempotent: true, Off: "000", On: "000111222", Last: 503, Waits: -1},
		{Name: "503 with a key", Status: 503, Key: "order-17", Off: "000", On: "000111222", Last: 503, Waits: -1},
		{Name: "broken", Off: "0", On: "012", Waits: -1},
		{Name: "broken idempotent", Idempotent: true, Off: "000", On: "000111222", Last: Exhausted, Waits: -1},
		// Neither is what the pool has no opinion of.
		{Name: "500", Status: 500, Off: "0", On: "012", Last: 500, Waits: -1},
		{Name: "500 idempotent", Status: 500, Idempotent: true, Off: "0", On: "012", Last: 500, Waits: -1},
		{Name: "500 and no retry", Status: 500, Header: vetoed, Off: "0", On: "0", Last: 500},
		{Name: "400 and retry", Status: 400, Header: asked, Off: "0", On: "012", Last: 400, Waits: -1},
		{Name: "400", Status: 400, Off: "0", On: "0", Last: 400},
	}
}

// CheckRetries shows in virtual time who repeats what, and how often, by the cases that the APIs have in common and more.
func (api API) CheckRetries(t *testing.T, more ...RetryCase) {
	t.Helper()
	for _, c := range slices.Concat(retryCases(), more) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			for name, on := range map[string]bool{"off": false, "on": true} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					memhttp.Each(t, func(t *testing.T, proto memhttp.Protocol) {
						t.Helper()
						api.retried(t, proto, c, on)
					})
				})
			}
		})
	}
}

func (api API) retried(t *testing.T, proto memhttp.Protocol, c RetryCase, on bool) {
	t.Helper()
	svc := NewService(t, api)
	svc.Respond = func(w http.ResponseWriter, _ *http.Request, _ Arrival) {
		if c.Status == 0 {
			panic(http.ErrAbortHandler)
		}
		svc.Fail(w, c.Status, c.Header...)
	}
	srv := memhttp.NewServer(t, proto, svc)
	pool := bed.NewPool(t, hedgerow.PoolConfig{
		Hosts: []string{srv.URL()}, Resources: api.TwoKeys(), RetryDelay: -1, Synthetic429: c.Synthetic,
	})
	tr := bed.New(t, hedgerow.Config{Base: pool.Wrap(srv.Transport())})
	require.NoError(t, tr.Register("POST "+api.Path, hedgerow.EndpointConfig{Idempotent: c.Idempotent}))
	client := api.New(tr, srv.URL(), on)
	var header []string
	if c.Key != "" {
		header = []string{"Idempotency-Key", c.Key}
	}

	start := time.Now()
	prompt := LongPrompt()
	_, _, err := client.Ask(t.Context(), prompt, header...)
	took := time.Since(start)

	var counts strings.Builder
	for _, a := range svc.Arrivals() {
		counts.WriteString(a.Header.Get("X-Stainless-Retry-Count"))
		require.Equal(t, c.Key, a.Header.Get("Idempotency-Key"), "the SDK makes up none, and keeps the caller's")
		bed.RequireSame(t, prompt, a.Prompt)
	}
	want := c.Off
	if on {
		want = c.On
	}
	require.Equal(t, want, counts.String())
	if on && c.Waits >= 0 {
		require.Equal(t, c.Waits, took)
	} else if !on {
		require.Zero(t, took)
	}

	failed, ok := api.Failure(err)
	switch {
	case on && c.Last == Exhausted:
		var none *hedgerow.ExhaustedError
		require.ErrorAs(t, err, &none)
	case c.Status > 0:
		require.True(t, ok, "%v", err)
		require.Equal(t, c.Status, failed.Status)
	default:
		require.Error(t, err)
	}
	(&Rig{Service: svc, Pool: pool, Transport: tr}).Settled(t)
	require.EqualValues(t, len(want), pool.Stats().Attempts)
}
