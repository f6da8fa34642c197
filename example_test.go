package hedgerow_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/hedgerow-go/hedgerow"
)

// slowOnce returns a server whose first answer takes a second, and the others none.
func slowOnce() *httptest.Server {
	var calls atomic.Int32
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			select {
			case <-time.After(time.Second):
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, "hello")
	}))
}

func fetch(client *http.Client, ctx context.Context, url string) (string, error) { //nolint:revive // reads as a call
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// One value as the Transport of a client, and slow calls get a second attempt.
func Example() {
	server := slowOnce()
	defer server.Close()

	tr, err := hedgerow.New(hedgerow.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr}

	start := time.Now()
	body, err := fetch(client, context.Background(), server.URL)
	fmt.Println(body, err, time.Since(start) < time.Second)
	fmt.Println("hedges:", tr.Stats().Total.Hedges)
	// Output:
	// hello <nil> true
	// hedges: 1
}

func ExampleNew() {
	_, err := hedgerow.New(hedgerow.Config{
		Hedge:   hedgerow.HedgeConfig{Quantile: 95, BudgetPercent: 5},
		Breaker: hedgerow.BreakerConfig{Cooldown: -time.Second},
	})
	fmt.Println(err)
	// Output:
	// hedgerow: Config.Hedge.Quantile: 95 is not in (0, 1)
	// hedgerow: Config.Breaker.Cooldown: -1s: must not be negative
}

func ExampleTransport_Register() {
	tr, err := hedgerow.New(hedgerow.Config{Hedge: hedgerow.HedgeConfig{Disabled: true}}) // only where it is asked for
	if err != nil {
		fmt.Println(err)
		return
	}
	err = errors.Join(
		tr.Register("GET /v1/users/{id}", hedgerow.EndpointConfig{Hedge: &hedgerow.HedgeConfig{Quantile: 0.95}}),
		tr.Register("POST search.example.com/v1/query", hedgerow.EndpointConfig{
			Name:       "query",
			Hedge:      &hedgerow.HedgeConfig{MaxDelay: 200 * time.Millisecond},
			Idempotent: true, // a query may be sent twice
		}),
	)
	fmt.Println(err)
	fmt.Println(tr.Register("GET /v1/users/{name}", hedgerow.EndpointConfig{Name: "user"}))
	// Output:
	// <nil>
	// hedgerow: pattern "GET /v1/users/{name}": same as "GET /v1/users/{id}", which is registered already
}

func ExampleWithCall() {
	server := slowOnce()
	defer server.Close()
	tr, err := hedgerow.New(hedgerow.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tr.CloseIdleConnections()

	ctx := hedgerow.WithCall(context.Background(), hedgerow.Call{
		Delay: 20 * time.Millisecond,
		Done: func(info hedgerow.CallInfo) {
			fmt.Println(info.Attempts, "attempts, won by the", info.Winner.Kind, "after", info.Delay)
		},
	})
	body, err := fetch(&http.Client{Transport: tr}, ctx, server.URL)
	fmt.Println(body, err)
	// Output:
	// 2 attempts, won by the hedge after 20ms
	// hello <nil>
}

func ExampleAttemptFromContext() {
	server := slowOnce()
	defer server.Close()

	// A layer between the Transport and the wire, such as a signer or a tracer.
	sends := make(chan hedgerow.Attempt, 2)
	layer := roundTripper(func(req *http.Request) (*http.Response, error) {
		if a, ok := hedgerow.AttemptFromContext(req.Context()); ok {
			sends <- a
		}
		return http.DefaultTransport.RoundTrip(req)
	})
	tr, err := hedgerow.New(hedgerow.Config{Base: layer})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := fetch(&http.Client{Transport: tr}, context.Background(), server.URL); err != nil {
		fmt.Println(err)
	}
	for range 2 {
		a := <-sends
		fmt.Println(a.Number, a.Kind)
	}
	// Output:
	// 0 primary
	// 1 hedge
}

// roundTripper is a RoundTripper of a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func ExampleCircuitOpenError() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer server.Close()
	tr, err := hedgerow.New(hedgerow.Config{
		Hedge:   hedgerow.HedgeConfig{Disabled: true}, // a hedge that fails counts as well
		Breaker: hedgerow.BreakerConfig{MinSamples: 3, FailFast: true},
		Hooks: hedgerow.Hooks{CircuitChange: func(e hedgerow.CircuitEvent) {
			fmt.Println(e.Scope, e.From, "to", e.To)
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr}
	for range 3 {
		if _, err := fetch(client, context.Background(), server.URL); err != nil {
			fmt.Println(err)
		}
	}
	_, err = fetch(client, context.Background(), server.URL)
	open, ok := errors.AsType[*hedgerow.CircuitOpenError](err)
	fmt.Println(ok, errors.Is(err, hedgerow.ErrCircuitOpen), time.Until(open.Until) > 29*time.Second)
	// Output:
	// host closed to open
	// endpoint closed to open
	// true true true
}
