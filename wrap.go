package hedgerow

import (
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync"
)

// Wrap returns the pool in front of next, which carries the attempts; nil: [http.DefaultTransport]. It may be called
// often, and all results share the pool's state. The result also has Unwrap, and CloseIdleConnections, which reaches next and
// each [Resource].Base.
//
// A response holds its resource's slot until its body ends, so callers must close it, as with any RoundTripper.
func (p *Pool) Wrap(next http.RoundTripper) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport
	}
	w := &pooled{pool: p, next: next}
	if t, ok := next.(*http.Transport); ok {
		w.plain = true
		w.proxied = &clones{of: t}
	}
	return w
}

// pooled is a pool in front of a transport.
type pooled struct {
	pool    *Pool
	next    http.RoundTripper
	plain   bool    // next is an http.Transport
	proxied *clones // of next, for resources with a Proxy; nil: next cannot have one
}

// clones are the copies of a transport for proxies, one each: HTTP/2 connections are shared by host, whatever the proxy.
type clones struct {
	of *http.Transport

	mu  sync.Mutex // guards all
	all map[string]*http.Transport
}

// get returns the clone for a proxy, and whether it was made for that.
func (c *clones) get(p Proxy) (t *http.Transport, made bool) {
	u := p.get().url
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.all[u.String()]
	if ok {
		return t, false
	}
	t = c.of.Clone()
	t.Proxy = http.ProxyURL(u)
	if _, http2 := t.TLSNextProto["h2"]; http2 { // that of c.of, where golang.org/x/net/http2 has configured it
		t.TLSNextProto, t.ForceAttemptHTTP2 = nil, true
	}
	if c.all == nil {
		c.all = make(map[string]*http.Transport)
	}
	c.all[u.String()] = t
	return t, true
}

// keep forgets the clones for other proxies than these, and the passwords of them.
func (c *clones) keep(proxies map[string]bool) {
	var gone []*http.Transport
	c.mu.Lock()
	for u, t := range c.all {
		if !proxies[u] {
			gone = append(gone, t)
			delete(c.all, u)
		}
	}
	c.mu.Unlock()
	for _, t := range gone {
		t.CloseIdleConnections()
	}
}

// list returns the clones that were made.
func (c *clones) list() []http.RoundTripper {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []http.RoundTripper
	for _, t := range c.all {
		all = append(all, t)
	}
	return all
}

// RoundTrip implements [http.RoundTripper].
func (w *pooled) RoundTrip(req *http.Request) (*http.Response, error) {
	if req == nil {
		return nil, errNilRequest
	}
	if !w.pool.actsOn(req) {
		w.pool.count(func(t *poolTotals) { t.PassedThrough++ })
		above, _ := inherited(req)
		if a, ok := above.(*attempt); ok {
			a.carrier.passes(a)
		}
		return carry(w.next, req)
	}
	c := &walk{p: w.pool, via: w, req: req, ctx: req.Context()}
	return c.run() //nolint:contextcheck // each attempt has a child of the request's
}

// Unwrap returns what the pool is in front of.
func (w *pooled) Unwrap() http.RoundTripper { return w.next }

// CloseIdleConnections closes those of every transport that carries attempts, each once.
func (w *pooled) CloseIdleConnections() {
	all := append(w.pool.bases(), w.next)
	all = append(all, w.proxied.list()...)
	seen := make(map[http.RoundTripper]bool, len(all))
	for _, base := range all {
		if !reflect.ValueOf(base).Comparable() {
			closeIdle(base)
		} else if !seen[base] {
			seen[base] = true
			closeIdle(base)
		}
	}
}

// actsOn reports whether the pool acts on a call.
func (p *Pool) actsOn(req *http.Request) bool {
	return p.hosts == nil || req.URL != nil && p.hosts[originOf(req.URL)] && !elsewhere(req.URL)
}

// elsewhere reports whether what goes on the wire in place of the path names another host than the URL.
func elsewhere(u *url.URL) bool {
	rest, ok := strings.CutPrefix(u.Opaque, "//")
	if !ok {
		return u.Opaque != "" && u.Opaque[0] != '/'
	}
	authority, _, _ := strings.Cut(rest, "/")
	return hostOf(&url.URL{Scheme: u.Scheme, Host: authority}) != hostOf(u)
}
