// Quickstart shows what hedging does to the slow calls of a service, on traffic of its own.
//
// It starts two equal servers on loopback, with endpoints that are fast, slow, failing for a while, and not to be called
// twice. Both get the same calls at the same times for 15 seconds: one through a bare http.Transport, the other
// through hedgerow in front of such a one. Then it prints what the callers saw and what it cost, all of it measured.
//
//	go run ./examples/quickstart
//	go run ./examples/quickstart -duration 1m
//
// What a program needs of hedgerow is in this file. The servers are in server.go, the callers in load.go, the tables in
// report.go and console.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/hedgerow-go/hedgerow"
)

// newTransport puts hedgerow in front of base.
func newTransport(
	base http.RoundTripper, breaker hedgerow.BreakerConfig, changed func(hedgerow.CircuitEvent),
) (*hedgerow.Transport, error) {
	// An empty Config works: it learns each host's latency, and hedges what is safe to send twice.
	tr, err := hedgerow.New(hedgerow.Config{
		Base:  base,
		Hooks: hedgerow.Hooks{CircuitChange: changed},
	})
	if err != nil {
		return nil, err
	}
	// Endpoints that differ in latency are told apart by patterns, as in http.ServeMux. Each learns when to hedge.
	return tr, errors.Join(
		tr.Register("GET /profile/{id}", hedgerow.EndpointConfig{Name: "profile"}),
		tr.Register("GET /search", hedgerow.EndpointConfig{Name: "search"}),
		tr.Register("GET /prices/{symbol}", hedgerow.EndpointConfig{Name: "prices", Breaker: &breaker}),
		// A POST without an Idempotency-Key is never sent twice, unless Idempotent says that it may be.
		tr.Register("POST /orders", hedgerow.EndpointConfig{Name: "orders"}),
	)
}

func main() {
	duration := flag.Duration("duration", 15*time.Second, "how long to make calls")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // the first ctrl-C ends the run, with its tables; a second one the program
	if _, err := run(ctx, newConsole(os.Stdout), *duration); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// newBase returns what carries the requests of one client. The default of two idle connections per host would have a busy
// client dial all the time.
func newBase() *http.Transport {
	return &http.Transport{MaxIdleConnsPerHost: 100}
}

// run makes calls through both clients for a while, or until ctx ends, and reports on them.
func run(ctx context.Context, out *console, duration time.Duration) (*report, error) {
	if duration < time.Second {
		return nil, fmt.Errorf("a duration of %v is too short to learn from, take a second or more", duration)
	}
	bareServer, err := startServer(ctx)
	if err != nil {
		return nil, err
	}
	defer bareServer.close()
	hedgedServer, err := startServer(ctx)
	if err != nil {
		return nil, err
	}
	defer hedgedServer.close()

	// Hooks run on the path of calls, so this one hands over what it is told, and never waits.
	changes := make(chan hedgerow.CircuitEvent, 100)
	// The defaults of 30 s suit services; a run of 15 s takes shorter ones.
	breaker := hedgerow.BreakerConfig{Window: duration / 10, Cooldown: duration / 10, MinSamples: 10}
	tr, err := newTransport(newBase(), breaker, func(e hedgerow.CircuitEvent) {
		select {
		case changes <- e:
		default:
		}
	})
	if err != nil {
		return nil, err
	}
	defer tr.CloseIdleConnections()
	bare := newBase()
	defer bare.CloseIdleConnections()

	endpoints := service()
	callers := []*caller{
		newCaller("bare", &http.Client{Transport: bare}, bareServer, endpoints),
		newCaller("hedgerow", &http.Client{Transport: tr}, hedgedServer, endpoints),
	}
	arrivals := schedule(endpoints, duration)
	outage := duration / 3
	out.printf("%d calls in %v to each of two equal servers: one gets them through a bare transport, the other\n"+
		"through hedgerow. From %.1f s to %.1f s most calls of prices fail.\n\n",
		len(arrivals), duration, outage.Seconds(), 2*outage.Seconds())

	start := time.Now()
	for _, c := range callers {
		c.server.fail(start.Add(outage), outage)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		makeCalls(ctx, start, arrivals, callers)
	}()
	watch(out, start, duration, callers, tr, changes, done)

	r := newReport(endpoints, callers, tr.Stats(), hedgedServer.host)
	out.printf("%s", r)
	return r, out.err
}
