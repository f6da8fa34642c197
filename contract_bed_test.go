package hedgerow_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/memhttp"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// contractDelay is the hedge delay of the contract tests.
const contractDelay = 10 * time.Millisecond

// contractURL is where the requests of the contract tests go when nobody listens.
const contractURL = "http://api.test/v1/things"

var errContract = errors.New("the base failed")

// contractNew returns a Transport without circuits that sends one hedge per call after contractDelay, unless cfg says
// otherwise.
func contractNew(t *testing.T, cfg hedgerow.Config) *hedgerow.Transport {
	t.Helper()
	if cfg.Hedge.BudgetPercent == 0 {
		cfg.Hedge.BudgetPercent = 100
	}
	if cfg.Hedge.Delay == 0 {
		cfg.Hedge.Delay = contractDelay
	}
	if cfg.Hedge.MaxHedges == 0 {
		cfg.Hedge.MaxHedges = 1
	}
	if cfg.Breaker.MinSamples == 0 {
		cfg.Breaker.Disabled = true // the failures here are many
	}
	tr, err := hedgerow.New(cfg)
	require.NoError(t, err)
	return tr
}

// contractGet returns a GET without a body.
func contractGet(ctx context.Context, t *testing.T, target string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
	require.NoError(t, err)
	return req
}

// contractPost returns a POST with a tracked body that may be sent twice.
func contractPost(t *testing.T, base *scripted.Transport) *http.Request {
	t.Helper()
	req := base.NewRequest(t, http.MethodPost, contractURL, "payload")
	req.Header.Set("Idempotency-Key", "k1")
	return req
}

// contractRead reads a response to its end and closes it.
func contractRead(t *testing.T, resp *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return string(body)
}

// contractSettle waits for what the calls of a bubble have left running, for a virtual hour, and checks the account.
func contractSettle(t *testing.T, base *scripted.Transport) {
	t.Helper()
	time.Sleep(time.Hour)
	synctest.Wait()
	base.Check(t)
}

// contractBubbles runs f in a bubble for each name, as a parallel subtest.
func contractBubbles[C any](t *testing.T, cases map[string]C, f func(t *testing.T, c C)) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { f(t, c) })
		})
	}
}

// contractFields are the fields of a request that a RoundTripper could change, but for GetBody, which does not compare.
type contractFields struct {
	Context          context.Context
	Method, Host     string
	URL              url.URL
	Header, Trailer  http.Header
	Body             io.ReadCloser
	ContentLength    int64
	TransferEncoding []string
	Close            bool
	Form, PostForm   url.Values
	RemoteAddr       string
	RequestURI       string
	Pattern          string
	TLS              *tls.ConnectionState
	Cancel           <-chan struct{}
	Response         *http.Response
	Rewinds          bool
}

// contractCopy returns a deep copy of what can be compared of req.
func contractCopy(req *http.Request) contractFields {
	c := req.Clone(req.Context())
	//nolint:staticcheck // Cancel is deprecated, and must be passed on all the same
	cancel := req.Cancel
	return contractFields{
		Context: req.Context(), Method: c.Method, Host: c.Host, URL: *c.URL, Header: c.Header, Trailer: c.Trailer,
		Body: c.Body, ContentLength: c.ContentLength, TransferEncoding: c.TransferEncoding, Close: c.Close,
		Form: c.Form, PostForm: c.PostForm, RemoteAddr: c.RemoteAddr, RequestURI: c.RequestURI, Pattern: c.Pattern,
		TLS: c.TLS, Cancel: cancel, Response: c.Response, Rewinds: c.GetBody != nil,
	}
}

// A contractServer is a server on a loopback socket, and a transport to it.
type contractServer struct {
	URL   string
	Base  *http.Transport
	Conns atomic.Int64 // opened so far
}

// contractListen starts a server that speaks proto. It ends with the test.
func contractListen(t *testing.T, proto memhttp.Protocol, handler http.HandlerFunc) *contractServer {
	t.Helper()
	var protocols http.Protocols
	protocols.SetHTTP1(proto == memhttp.HTTP1)
	protocols.SetUnencryptedHTTP2(proto == memhttp.HTTP2)
	s := &contractServer{Base: &http.Transport{Protocols: &protocols}}
	srv := httptest.NewUnstartedServer(handler)
	srv.Config.Protocols = &protocols
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.Conns.Add(1)
		}
	}
	srv.Start()
	t.Cleanup(srv.Close)
	t.Cleanup(s.Base.CloseIdleConnections)
	s.URL = srv.URL
	return s
}

// contractEach runs f for HTTP/1.1 and HTTP/2 as parallel subtests, without a bubble.
func contractEach(t *testing.T, f func(t *testing.T, proto memhttp.Protocol)) {
	t.Helper()
	for _, proto := range []memhttp.Protocol{memhttp.HTTP1, memhttp.HTTP2} {
		t.Run(proto.String(), func(t *testing.T) {
			t.Parallel()
			f(t, proto)
		})
	}
}

// contractHangs wraps a handler: the first request of each path hangs until its client goes away, later ones are served.
func contractHangs(next http.HandlerFunc) http.HandlerFunc {
	var mu sync.Mutex
	seen := make(map[string]bool)
	return func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		again := seen[r.URL.Path]
		seen[r.URL.Path] = true
		mu.Unlock()
		if !again {
			_, _ = io.Copy(io.Discard, r.Body) // without it HTTP/1.1 does not see the client go
			<-r.Context().Done()
			return
		}
		next(w, r)
	}
}

// A contractBody is a body that counts what is done to it. It is no type that net/http or hedgerow knows.
type contractBody struct {
	src    io.Reader
	onRead func() // nil: nothing
	ending error  // of Close

	reads, late, closes atomic.Int64
}

func (b *contractBody) Read(p []byte) (int, error) {
	if b.closes.Load() > 0 {
		b.late.Add(1)
		return 0, http.ErrBodyReadAfterClose
	}
	b.reads.Add(1)
	if b.onRead != nil {
		b.onRead()
	}
	return b.src.Read(p)
}

func (b *contractBody) Close() error {
	b.closes.Add(1)
	return b.ending
}

// contractTimeout waits for ch in real time, and fails the test when nothing comes.
func contractTimeout[V any](t *testing.T, ch <-chan V, what string) V {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(10 * time.Second):
		require.FailNow(t, "nothing came in 10 s", what)
		panic("not reached")
	}
}

// contractText is a body of n bytes in which every place can be told from its neighbours.
func contractText(n int) string {
	return strings.Repeat("0123456789abcdefghijklmnopqrstuvwxyz.", n/37+1)[:n]
}

// contractFlush sends what a handler has written.
func contractFlush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

// A contractParent is a context that lives long and counts its children: package context asks it to tell them of its
// end, and takes that back when a child has ended. It carries a Call by itself, because a context around it would hide
// it from package context.
type contractParent struct {
	context.Context

	call *hedgerow.Call // nil: none
	done chan struct{}

	mu   sync.Mutex // guards the fields below
	live int
	ever int
}

func newContractParent(ctx context.Context) *contractParent {
	return &contractParent{Context: context.WithoutCancel(ctx), done: make(chan struct{})}
}

func (p *contractParent) Done() <-chan struct{} { return p.done }

func (p *contractParent) Value(key any) any {
	if p.call == nil {
		return p.Context.Value(key)
	}
	return hedgerow.WithCall(p.Context, *p.call).Value(key)
}

// AfterFunc is what package context looks for in a parent that is not its own.
func (p *contractParent) AfterFunc(func()) (stop func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live++
	p.ever++
	return sync.OnceValue(func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.live--
		return true
	})
}

// children returns how many children there are.
func (p *contractParent) children() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.live
}

// total returns how many children there ever were.
func (p *contractParent) total() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ever
}
