package hedgerow_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// pspecURL is where calls of the pool tests go when nobody listens.
const pspecURL = "https://api.test/v1/things"

// pspecKeys returns resources named A, B, ... with a Bearer secret each, "secret-A" and so on.
func pspecKeys(n int) []hedgerow.Resource {
	all := make([]hedgerow.Resource, n)
	for i := range all {
		id := string(rune('A' + i))
		all[i] = hedgerow.Resource{ID: id, Credential: hedgerow.Bearer("secret-" + id)}
	}
	return all
}

// pspecPool returns a pool for api.test that makes no pauses unless cfg says otherwise.
func pspecPool(t *testing.T, cfg hedgerow.PoolConfig) *hedgerow.Pool {
	t.Helper()
	if cfg.Hosts == nil {
		cfg.Hosts = []string{"api.test"}
	}
	if cfg.RetryDelay == 0 {
		cfg.RetryDelay = -1
	}
	p, err := hedgerow.NewPool(cfg)
	require.NoError(t, err)
	return p
}

// pspecKey returns the letter of the key that a request carries; "" is none.
func pspecKey(h http.Header) string {
	return strings.TrimPrefix(h.Get("Authorization"), "Bearer secret-")
}

// pspecScript plays for each key its own steps, the last of which repeats; a key without steps answers 200.
func pspecScript(steps map[string][]scripted.Step) *scripted.Transport {
	var mu sync.Mutex
	next := make(map[string]int)
	return scripted.Func(func(_ int, req *http.Request) scripted.Step {
		key := pspecKey(req.Header)
		mu.Lock()
		defer mu.Unlock()
		n := next[key]
		next[key]++
		if all := steps[key]; len(all) > 0 {
			return all[min(n, len(all)-1)]
		}
		return scripted.Step{Body: key}
	})
}

// pspecSent returns the keys of the attempts in the order in which they began.
func pspecSent(base *scripted.Transport) string {
	var b strings.Builder
	for _, r := range base.Records() {
		b.WriteString(pspecKey(r.Header))
	}
	return b.String()
}

// pspecGet makes a GET through rt and reads the response; the status is 0 after an error.
func pspecGet(t *testing.T, rt http.RoundTripper, opts ...hedgerow.Call) (status int, body string, err error) {
	t.Helper()
	ctx := t.Context()
	if len(opts) > 0 {
		ctx = hedgerow.WithCall(ctx, opts[0])
	}
	return pspecDo(t, rt, contractGet(ctx, t, pspecURL))
}

// pspecDo sends req through rt and reads the response.
func pspecDo(t *testing.T, rt http.RoundTripper, req *http.Request) (status int, body string, err error) {
	t.Helper()
	resp, err := rt.RoundTrip(req)
	if err != nil {
		require.Nil(t, resp)
		return 0, "", err
	}
	require.Same(t, req, resp.Request)
	return resp.StatusCode, contractRead(t, resp), nil
}

// A pspecOutcome is what a call in a goroutine of its own ended with.
type pspecOutcome struct {
	status int
	body   string
	err    error
	at     time.Duration // from when it was begun
}

// pspecGo makes a GET in a goroutine, and waits until the bubble has nothing left to do for it.
func pspecGo(ctx context.Context, t *testing.T, rt http.RoundTripper) <-chan pspecOutcome {
	t.Helper()
	done := make(chan pspecOutcome, 1)
	req := contractGet(ctx, t, pspecURL)
	go func() {
		start := time.Now()
		resp, err := rt.RoundTrip(req)
		o := pspecOutcome{err: err, at: time.Since(start)}
		if err == nil {
			var b strings.Builder
			o.status = resp.StatusCode
			buf := make([]byte, 512)
			for {
				n, err := resp.Body.Read(buf)
				b.Write(buf[:n])
				if err != nil {
					break
				}
			}
			_ = resp.Body.Close()
			o.body = b.String()
		}
		done <- o
	}()
	synctest.Wait()
	return done
}

// pspecRest says how long each resource of the pool still rests, -1 if it is disabled.
func pspecRest(p *hedgerow.Pool) map[string]time.Duration {
	rests := make(map[string]time.Duration)
	for _, s := range p.Snapshot() {
		switch s.State {
		case hedgerow.ResourceCooling:
			rests[s.ID] = time.Until(s.Until)
		case hedgerow.ResourceDisabled:
			rests[s.ID] = -1
		default:
		}
	}
	return rests
}

// pspecIdle checks that no attempt holds a slot, and that every call has ended in one way.
func pspecIdle(t *testing.T, p *hedgerow.Pool, calls int) {
	t.Helper()
	s := p.Stats()
	require.Zero(t, s.InFlight)
	require.Equal(t, calls, int(s.CallsOK+s.CallsExhausted+s.CallsFailed+s.CallsCanceled), "%+v", s)
}

// pspecHeld is a step that answers 200 when the channel is closed.
func pspecHeld(release <-chan struct{}) scripted.Step {
	return scripted.Step{Do: func(req *http.Request) (*http.Response, error) {
		select {
		case <-release:
		case <-req.Context().Done():
			return nil, context.Cause(req.Context())
		}
		return &http.Response{
			StatusCode: http.StatusOK, Body: http.NoBody, Header: make(http.Header), Request: req,
		}, nil
	}}
}

// pspecHint is the header of a response that asks for a wait.
func pspecHint(after string) http.Header { return http.Header{"Retry-After": {after}} }

// The steps that end in each verdict.
var (
	pspec401 = scripted.Step{Status: http.StatusUnauthorized, Body: "401"}
	pspec429 = scripted.Step{Status: http.StatusTooManyRequests, Body: "429"}
	pspec502 = scripted.Step{Status: http.StatusBadGateway, Body: "502"}
)
