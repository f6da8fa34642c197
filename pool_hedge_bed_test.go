package hedgerow_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// phDelay is the hedge delay of the tests of a Transport over a pool.
const phDelay = 10 * time.Millisecond

// phURL is where their calls go.
const phURL = "http://api.test/v1/things"

// A phBed is a Transport over a pool over a script that knows which resource an attempt is on.
type phBed struct {
	t     *testing.T
	base  *scripted.Transport
	pool  *hedgerow.Pool
	tr    *hedgerow.Transport
	start time.Time

	mu    sync.Mutex // guards the fields below
	sent  []phSend
	fired []hedgerow.HedgeEvent
	skips []hedgerow.SkipEvent
	done  []hedgerow.AttemptEvent
	infos []hedgerow.CallInfo
}

// A phSend is an attempt as the base sees it.
type phSend struct {
	at      time.Duration
	attempt hedgerow.Attempt
}

// A phSetup says what a bed is made of. Zero fields: resources A and B without limits, by the strategy PrimaryBackup and
// without pauses, a hedge after phDelay whatever the budget, and no circuits.
type phSetup struct {
	pool   hedgerow.PoolConfig
	config hedgerow.Config
	ids    string // of the resources, a letter each
	// between stands between the Transport and the pool; nil: nothing does.
	between func(http.RoundTripper) http.RoundTripper
	// answer plays the resource that the attempt is on.
	answer func(a hedgerow.Attempt, req *http.Request) scripted.Step
}

func phNew(t *testing.T, s phSetup) *phBed {
	t.Helper()
	b := &phBed{t: t, start: time.Now()}
	b.base = scripted.Func(func(_ int, req *http.Request) scripted.Step {
		a, _ := hedgerow.AttemptFromContext(req.Context())
		b.mu.Lock()
		b.sent = append(b.sent, phSend{time.Since(b.start), a})
		b.mu.Unlock()
		return s.answer(a, req)
	})
	if s.ids == "" {
		s.ids = "AB"
	}
	if s.pool.Resources == nil {
		for _, id := range s.ids {
			s.pool.Resources = append(s.pool.Resources, hedgerow.Resource{ID: string(id)})
		}
	}
	if s.pool.Strategy == hedgerow.RoundRobin && s.pool.Selector == nil {
		s.pool.Strategy = hedgerow.PrimaryBackup
	}
	if s.pool.RetryDelay == 0 {
		s.pool.RetryDelay = -1
	}
	var err error
	b.pool, err = hedgerow.NewPool(s.pool)
	require.NoError(t, err)
	s.config.Base = b.pool.Wrap(b.base)
	if s.between != nil {
		s.config.Base = s.between(s.config.Base)
	}
	s.config.Hooks.HedgeFired = func(_ context.Context, e hedgerow.HedgeEvent) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.fired = append(b.fired, e)
	}
	s.config.Hooks.HedgeSkipped = func(_ context.Context, e hedgerow.SkipEvent) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.skips = append(b.skips, e)
	}
	s.config.Hooks.AttemptDone = func(_ context.Context, e hedgerow.AttemptEvent) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.done = append(b.done, e)
	}
	b.tr = contractNew(t, s.config)
	return b
}

// A phResult is what a caller gets, and when.
type phResult struct {
	status int
	body   string
	err    error
	after  time.Duration
}

// call makes a GET, reads what comes, and returns it. It may run outside of the test's goroutine.
func (b *phBed) call(opts hedgerow.Call) phResult {
	return b.do(b.t.Context(), phURL, opts)
}

func (b *phBed) do(ctx context.Context, url string, opts hedgerow.Call) phResult {
	opts.Done = func(info hedgerow.CallInfo) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.infos = append(b.infos, info)
	}
	req, err := http.NewRequestWithContext(hedgerow.WithCall(ctx, opts), http.MethodGet, url, http.NoBody)
	if err != nil {
		panic(err)
	}
	return b.send(req) //nolint:contextcheck // it is the request's
}

func (b *phBed) send(req *http.Request) phResult {
	began := time.Now()
	resp, err := b.tr.RoundTrip(req)
	r := phResult{err: err, after: time.Since(began)}
	if err == nil {
		r.status = resp.StatusCode
		r.body = phRead(resp)
	}
	return r
}

// settle waits for what the calls have left running, and checks the account: of bodies, and of slots.
func (b *phBed) settle() {
	b.t.Helper()
	time.Sleep(time.Hour)
	synctest.Wait()
	b.base.Check(b.t)
	require.Zero(b.t, b.pool.Stats().InFlight)
}

// hold is an answer that does not come before an hour has passed.
func phHold() scripted.Step { return scripted.Step{After: time.Hour} }

// phOK answers 200 after d, with the resource as its body.
func phOK(a hedgerow.Attempt, d time.Duration) scripted.Step {
	return scripted.Step{After: d, Body: a.Resource}
}

// phStatus answers with a status after d.
func phStatus(status int, d time.Duration, headers ...string) scripted.Step {
	h := http.Header{}
	for i := 0; i+1 < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	return scripted.Step{After: d, Status: status, Header: h, Body: http.StatusText(status)}
}

// phRead reads a response to its end and closes it.
func phRead(resp *http.Response) string {
	defer func() { _ = resp.Body.Close() }()
	var all []byte
	buf := make([]byte, 512)
	for {
		n, err := resp.Body.Read(buf)
		all = append(all, buf[:n]...)
		if err != nil {
			return string(all)
		}
	}
}
