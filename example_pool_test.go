package hedgerow_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/hedgerow-go/hedgerow"
)

// limited returns a server whose answer says which key was used, and refuses the spent one for a minute.
func limited(name string) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer spent" {
			w.Header().Set("Retry-After", "60")
			http.Error(w, "no more", http.StatusTooManyRequests)
			return
		}
		_, _ = io.WriteString(w, name+" with "+r.Header.Get("Authorization"))
	}))
}

// Two keys of one service: a call whose key is refused gets its answer with the other one, and the refused key rests for as
// long as the service asked for.
func ExampleNewPool() {
	server := limited("server")
	defer server.Close()

	keys, err := hedgerow.NewPool(hedgerow.PoolConfig{
		Name:  "keys",
		Hosts: []string{server.URL},
		Resources: []hedgerow.Resource{
			{ID: "first", Credential: hedgerow.Bearer("spent")},
			{ID: "second", Credential: hedgerow.Bearer("good")},
		},
		Strategy: hedgerow.PrimaryBackup,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: keys.Wrap(http.DefaultTransport)} // or hedged: hedgerow.Config{Base: keys.Wrap(...)}
	defer client.CloseIdleConnections()

	fmt.Println(fetch(client, context.Background(), server.URL))
	for _, s := range keys.Snapshot() {
		fmt.Println(s.ID, s.State, s.Attempts, s.Reason)
	}
	// Output:
	// server with Bearer good <nil>
	// first cooling 1 status 429
	// second healthy 1
}

// An upstream that answers 502 or 504, or 503 without a hint, is as eligible as ever, and one that does so at once is a favourite
// of most strategies. Here such answers count as transport failures: for a while that grows the others are preferred, but the last
// one is always tried.
func ExamplePool_Report() {
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer failing.Close()
	working := limited("working")
	defer working.Close()

	var upstreams *hedgerow.Pool
	upstreams, err := hedgerow.NewPool(hedgerow.PoolConfig{
		Hosts: []string{"http://service.test"},
		Resources: []hedgerow.Resource{
			{ID: "first", Upstream: failing.URL},
			{ID: "second", Upstream: working.URL},
		},
		Classifier: func(o hedgerow.Outcome) hedgerow.Verdict {
			if o.Response != nil && o.Response.StatusCode >= http.StatusBadGateway {
				_ = upstreams.Report(o.Attempt.Resource, "", hedgerow.Verdict{Action: hedgerow.ActionRetry})
			}
			return hedgerow.Verdict{} // the default one
		},
		FailureBackoff: 30 * time.Second, // the default begins with a second
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: upstreams.Wrap(http.DefaultTransport)}
	defer client.CloseIdleConnections()

	for range 10 {
		if _, err := fetch(client, context.Background(), "http://service.test/"); err != nil {
			fmt.Println(err)
		}
	}
	for _, s := range upstreams.Snapshot() {
		fmt.Println(s.ID, s.State, s.Attempts, s.ConsecutiveFailures)
	}
	// Output:
	// first healthy 1 1
	// second healthy 10 0
}

// Two keys that work on two upstreams: a pool of keys over one of upstreams. Each leaves alone what is about the other. The spent
// key rests, whichever upstream refuses it, and the dead upstream is avoided, whichever key was to be used there.
func ExampleNewPool_nested() {
	dead, west := limited("dead"), limited("west")
	dead.Close()
	defer west.Close()

	upstreams, err := hedgerow.NewPool(hedgerow.PoolConfig{
		Name:      "upstreams",
		Hosts:     []string{"http://api.example"},
		Resources: []hedgerow.Resource{{ID: "east", Upstream: dead.URL}, {ID: "west", Upstream: west.URL}},
		Strategy:  hedgerow.PrimaryBackup,
		Classifier: func(o hedgerow.Outcome) hedgerow.Verdict {
			if o.Response != nil {
				switch o.Response.StatusCode {
				case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusTooManyRequests:
					return hedgerow.Verdict{Action: hedgerow.ActionNeutral}
				}
			}
			return hedgerow.Verdict{}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	keys, err := hedgerow.NewPool(hedgerow.PoolConfig{
		Name:  "keys",
		Hosts: []string{"http://api.example"},
		Resources: []hedgerow.Resource{
			{ID: "first", Credential: hedgerow.Bearer("spent")},
			{ID: "second", Credential: hedgerow.Bearer("good")},
		},
		Strategy: hedgerow.PrimaryBackup,
		Classifier: func(o hedgerow.Outcome) hedgerow.Verdict {
			if o.Err != nil || o.Response.StatusCode > http.StatusInternalServerError {
				return hedgerow.Verdict{Action: hedgerow.ActionNeutral}
			}
			return hedgerow.Verdict{}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: keys.Wrap(upstreams.Wrap(http.DefaultTransport))}
	defer client.CloseIdleConnections()

	fmt.Println(fetch(client, context.Background(), "http://api.example/"))
	for _, p := range []*hedgerow.Pool{keys, upstreams} {
		for _, s := range p.Snapshot() {
			fmt.Println(s.ID, s.State, s.Attempts, s.ConsecutiveFailures)
		}
	}
	// Output:
	// west with Bearer good <nil>
	// first cooling 1 0
	// second healthy 1 0
	// east healthy 1 1
	// west healthy 2 0
}

// Two keys that work on two upstreams: each pair is a resource, and the pairs of one key are a group. The refusal of a key rests
// it on both upstreams, and neither upstream for the other key.
func ExampleNewPool_keysAndUpstreams() {
	east, west := limited("east"), limited("west")
	defer east.Close()
	defer west.Close()

	var pairs []hedgerow.Resource
	for _, key := range []struct{ id, secret string }{{"first", "spent"}, {"second", "good"}} {
		for _, up := range []struct{ id, url string }{{"east", east.URL}, {"west", west.URL}} {
			pairs = append(pairs, hedgerow.Resource{
				ID: key.id + "@" + up.id, Group: key.id, Credential: hedgerow.Bearer(key.secret), Upstream: up.url,
			})
		}
	}
	pool, err := hedgerow.NewPool(hedgerow.PoolConfig{
		Hosts:     []string{"http://api.example"},
		Resources: pairs,
		Strategy:  hedgerow.PrimaryBackup,
		Classifier: func(o hedgerow.Outcome) hedgerow.Verdict {
			v := hedgerow.DefaultClassifier(o)
			if o.Response != nil && o.Response.StatusCode < http.StatusInternalServerError {
				v.Scope = hedgerow.ScopeGroup // such as a 429 or a 401: it is about the key
			}
			return v
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: pool.Wrap(http.DefaultTransport)}
	defer client.CloseIdleConnections()

	fmt.Println(fetch(client, context.Background(), "http://api.example/"))
	for _, s := range pool.Snapshot() {
		fmt.Println(s.ID, s.State, s.Attempts)
	}
	// Output:
	// east with Bearer good <nil>
	// first@east cooling 1
	// first@west cooling 0
	// second@east healthy 1
	// second@west healthy 0
}
