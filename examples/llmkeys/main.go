// Llmkeys shows a pool of API keys in front of a provider of language models that limits each key.
//
// It starts a provider on loopback that allows each key so many requests in a window and then answers 429 with Retry-After,
// as the real ones do. The pool has two free keys, which it uses first, two paid ones, which it turns to when those rest,
// and one that was revoked. Nobody tells it the limits. For a few seconds it gets calls, one of which is a stream that is
// given up in the middle; then the tables say what callers and provider saw.
//
//	go run ./examples/llmkeys
//
// What a program needs of hedgerow is in this file. The provider is in provider.go, the table in report.go.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/hedgerow-go/hedgerow"
)

// The calls of a run: fewer per second than all keys together allow, and more than the free ones do.
const (
	perSecond   = 20
	window      = time.Second // a provider's minute
	callTimeout = 10 * time.Second
)

// keys are the provider's, with the requests that each allows per window. The revoked one allows none.
func keys() []key {
	return []key{
		{id: "free-1", secret: "sk-free-1", tier: 0, limit: 4},
		{id: "free-2", secret: "sk-free-2", tier: 0, limit: 4},
		{id: "revoked", secret: "sk-revoked", tier: 0, revoked: true},
		{id: "paid-1", secret: "sk-paid-1", tier: 1, limit: 10},
		{id: "paid-2", secret: "sk-paid-2", tier: 1, limit: 10}, //nolint:gosec // of a provider that lives as long as the run
	}
}

// newPool returns a pool of the keys for the provider at host.
func newPool(host string, changed func(hedgerow.ResourceEvent)) (*hedgerow.Pool, error) {
	cfg := hedgerow.PoolConfig{
		Name:           "llm",
		Hosts:          []string{"http://" + host}, // a key is sent nowhere else, wherever a redirect points to
		Wait:           5 * time.Second,            // rather than fail at once while all keys rest
		RetryDelay:     20 * time.Millisecond,      // how far apart waiters start
		ResourceChange: changed,
	}
	for _, k := range keys() {
		cfg.Resources = append(cfg.Resources, hedgerow.Resource{
			ID: k.id, Credential: hedgerow.Bearer(k.secret), Tier: k.tier,
		})
	}
	return hedgerow.NewPool(cfg)
}

func main() {
	duration := flag.Duration("duration", 4*time.Second, "how long to make calls, at most a minute")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // the first ctrl-C ends the run, with its tables; a second one the program
	if _, err := run(ctx, os.Stdout, *duration); err != nil {
		fmt.Fprintln(os.Stderr, "llmkeys:", err)
		os.Exit(1)
	}
}

// run makes calls for a while, or until ctx ends, and reports on them.
func run(ctx context.Context, out io.Writer, duration time.Duration) (*report, error) {
	if duration <= 0 || duration > time.Minute {
		return nil, fmt.Errorf("a duration of %v is not above 0 and at most a minute", duration)
	}
	p, err := startProvider(ctx, keys(), window)
	if err != nil {
		return nil, err
	}
	defer p.close()
	r := &report{provider: p}
	pool, err := newPool(p.host, r.changed)
	if err != nil {
		return nil, err
	}
	base := &http.Transport{MaxIdleConnsPerHost: 100}
	defer base.CloseIdleConnections()
	client := &http.Client{Transport: pool.Wrap(base)}

	var calls sync.WaitGroup
	start := time.Now()
	r.start = start
	calls.Go(func() { r.streamed(stream(ctx, client, p.url)) })
	for n := range int(duration.Seconds() * perSecond) {
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(start.Add(time.Duration(n) * time.Second / perSecond))):
		}
		if ctx.Err() != nil {
			break
		}
		calls.Go(func() {
			began := time.Now()
			err := complete(ctx, client, p.url)
			r.called(time.Since(began), err)
		})
	}
	calls.Wait()
	p.settle(time.Second) // it may see the end of a stream a little later
	r.pool = pool.Stats()
	_, err = io.WriteString(out, r.String())
	return r, err
}

// complete makes a call as an SDK would: the answer in one piece.
func complete(ctx context.Context, client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := post(ctx, client, url, `{"model": "rose-1", "messages": []}`)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the provider answered %s", resp.Status)
	}
	return nil
}

// stream asks for a stream, reads three tokens, and has had enough. Its key has its place back as the body is closed.
func stream(ctx context.Context, client *http.Client, url string) (tokens int, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := post(ctx, client, url, `{"model": "rose-1", "stream": true, "messages": []}`)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }() // in the middle
	lines := bufio.NewScanner(resp.Body)
	for tokens < 3 && lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: ") {
			tokens++
		}
	}
	return tokens, lines.Err()
}

// post sends a POST. It may be repeated with another key after a 429 or a 401, because the provider has done nothing then.
func post(ctx context.Context, client *http.Client, url, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return client.Do(req)
}
