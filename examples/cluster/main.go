// Cluster shows a pool of upstreams in front of a search cluster like Elasticsearch, one of which dies and returns.
//
// It starts three upstreams on loopback and gets them calls for a few seconds: searches over POST, which the owner declares
// idempotent, so that they may be repeated and hedged; and bulk writes, which are never sent twice. One upstream is slower
// than the others all the time. Another one dies at a third of the time and returns at two thirds. Then a table says what
// callers saw in each third, and where their calls went.
//
//	go run ./examples/cluster
//
// What a program needs of hedgerow is in this file. The upstreams are in upstream.go, the table in report.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hedgerow-go/hedgerow"
)

const (
	clusterURL  = "http://cluster.test" // the pool puts an upstream in its place
	perSecond   = 100
	bulkEvery   = 10 // one call in so many is a bulk write
	callTimeout = 5 * time.Second
)

// newTransport returns a Transport over a pool of the upstreams.
func newTransport(base http.RoundTripper, upstreams []*upstream) (*hedgerow.Transport, *hedgerow.Pool, error) {
	cfg := hedgerow.PoolConfig{
		Name:     "cluster",
		Hosts:    []string{clusterURL},
		Strategy: hedgerow.LeastLatency,
		// A run of seconds rests what fails for less than the default of 1 s to 30 s.
		FailureBackoff: 100 * time.Millisecond, MaxFailureBackoff: 300 * time.Millisecond,
		RetryDelay: 20 * time.Millisecond,
	}
	for _, u := range upstreams {
		cfg.Resources = append(cfg.Resources, hedgerow.Resource{ID: u.name, Upstream: "http://" + u.addr})
	}
	pool, err := hedgerow.NewPool(cfg)
	if err != nil {
		return nil, nil, err
	}
	tr, err := hedgerow.New(hedgerow.Config{Base: pool.Wrap(base)})
	if err != nil {
		return nil, nil, err
	}
	return tr, pool, errors.Join(
		// A search is a read, whatever its method.
		tr.Register("POST /{index}/_search", hedgerow.EndpointConfig{Name: "search", Idempotent: true}),
		// A bulk write is not: it goes elsewhere only when it cannot have reached an upstream.
		tr.Register("POST /_bulk", hedgerow.EndpointConfig{Name: "bulk"}),
	)
}

func main() {
	duration := flag.Duration("duration", 4*time.Second, "how long to make calls, at most a minute")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // the first ctrl-C ends the run, with its tables; a second one the program
	if _, err := run(ctx, os.Stdout, *duration); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// run makes calls for a while, or until ctx ends, and reports on them.
func run(ctx context.Context, out io.Writer, duration time.Duration) (*report, error) {
	if duration < 300*time.Millisecond || duration > time.Minute {
		return nil, fmt.Errorf("a duration of %v is not from 300ms to a minute", duration)
	}
	r := &report{duration: duration, bulk: &bulk{seen: make(map[string]int)}}
	for i, latency := range []time.Duration{5 * time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond} {
		u := &upstream{name: fmt.Sprint("search-", i+1), latency: latency, bulk: r.bulk}
		if err := u.start(ctx); err != nil {
			return nil, err
		}
		defer u.die()
		r.upstreams = append(r.upstreams, u)
	}
	base := &http.Transport{MaxIdleConnsPerHost: 100}
	defer base.CloseIdleConnections()
	tr, pool, err := newTransport(base, r.upstreams)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: tr}

	var calls sync.WaitGroup
	start := time.Now()
	fate := make(chan error, 1)
	go func() { fate <- dieAndReturn(ctx, r.upstreams[0], duration/3) }()
	for n := range int(duration.Seconds() * perSecond) {
		if !pause(ctx, time.Until(start.Add(time.Duration(n)*time.Second/perSecond))) {
			break
		}
		calls.Go(func() {
			began := time.Now()
			err := call(ctx, client, n)
			r.called(n, began.Sub(start), time.Since(began), err)
		})
	}
	calls.Wait()
	err = <-fate
	r.stats, r.pool = tr.Stats(), pool.Stats()
	_, wrote := io.WriteString(out, r.String())
	return r, errors.Join(err, wrote)
}

// dieAndReturn kills an upstream after a while, and starts it again after another.
func dieAndReturn(ctx context.Context, u *upstream, while time.Duration) error {
	if !pause(ctx, while) {
		return nil
	}
	u.die()
	if !pause(ctx, while) {
		return nil
	}
	return u.start(ctx)
}

func isBulk(n int) bool { return n%bulkEvery == 0 }

// call makes call n.
func call(ctx context.Context, client *http.Client, n int) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	path, body := "/roses/_search", `{"query": {"match": {"color": "red"}}}`
	if isBulk(n) {
		path, body = "/_bulk", `{"index": {"_index": "roses"}}`
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, clusterURL+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(writeHeader, strconv.Itoa(n))
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// pause waits, and reports whether ctx is still there.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
