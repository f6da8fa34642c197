package hedgerow_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

const craceURL = "http://api.test/v1"

var errCrace = errors.New("upstream fault")

// craceLog keeps what the hooks are told.
type craceLog struct {
	mu      sync.Mutex
	fired   []hedgerow.HedgeEvent
	skipped []hedgerow.SkipEvent
	moves   []hedgerow.CircuitEvent
	done    []hedgerow.AttemptEvent
}

func (l *craceLog) hooks() hedgerow.Hooks {
	return hedgerow.Hooks{
		HedgeFired: func(_ context.Context, e hedgerow.HedgeEvent) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.fired = append(l.fired, e)
		},
		HedgeSkipped: func(_ context.Context, e hedgerow.SkipEvent) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.skipped = append(l.skipped, e)
		},
		CircuitChange: func(e hedgerow.CircuitEvent) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.moves = append(l.moves, e)
		},
		AttemptDone: func(_ context.Context, e hedgerow.AttemptEvent) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.done = append(l.done, e)
		},
	}
}

// ends returns the ends of attempts, by their numbers, such as "1 hedge 200 won" or "0 primary err superseded".
func (l *craceLog) ends() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	ends := []string{}
	for _, e := range l.done {
		outcome := "err"
		if e.Err == nil {
			outcome = strconv.Itoa(e.Status)
		}
		end := fmt.Sprintf("%d %s %s", e.Attempt.Number, e.Attempt.Kind, outcome)
		if e.Won {
			end += " won"
		}
		if e.Superseded {
			end += " superseded"
		}
		ends = append(ends, end)
	}
	slices.Sort(ends)
	return ends
}

func (l *craceLog) reasons() []hedgerow.SkipReason {
	l.mu.Lock()
	defer l.mu.Unlock()
	reasons := []hedgerow.SkipReason{}
	for _, e := range l.skipped {
		reasons = append(reasons, e.Reason)
	}
	return reasons
}

// craceNew returns a Transport whose calls ask for one hedge after a second, unless cfg says otherwise, and always get it.
func craceNew(t *testing.T, cfg hedgerow.Config) *hedgerow.Transport {
	t.Helper()
	if cfg.Hedge.Delay == 0 {
		cfg.Hedge.Delay = time.Second
	}
	if cfg.Hedge.MaxHedges == 0 {
		cfg.Hedge.MaxHedges = 1
	}
	if cfg.Hedge.BudgetPercent == 0 {
		cfg.Hedge.BudgetPercent = 100
	}
	tr, err := hedgerow.New(cfg)
	require.NoError(t, err)
	return tr
}

// craceAnswer is how a call ended for its caller.
type craceAnswer struct {
	Status int
	Body   string
	Err    error
	At     time.Duration // from the start of the call to the return of RoundTrip
}

// craceCall makes a call, reads its response and closes it.
func craceCall(rt http.RoundTripper, req *http.Request) (a craceAnswer) {
	start := time.Now()
	resp, err := rt.RoundTrip(req)
	a = craceAnswer{Err: err, At: time.Since(start)}
	if err != nil {
		return a
	}
	a.Status = resp.StatusCode
	content, err := io.ReadAll(resp.Body)
	a.Body = string(content)
	a.Err = errors.Join(err, resp.Body.Close())
	return a
}

// craceGuard makes a call in a goroutine of its own, and returns what it panicked with and whether it came to its end by
// itself, that is neither by a panic nor by Goexit.
func craceGuard(rt http.RoundTripper, req *http.Request) (a craceAnswer, panicked any, returned bool) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() { panicked = recover() }()
		a = craceCall(rt, req)
		returned = true
	}()
	<-ended
	return a, panicked, returned
}

// craceModes runs f with the primary in the caller's goroutine and in one of its own, each in a bubble.
func craceModes(t *testing.T, f func(t *testing.T, detach bool)) {
	t.Helper()
	for _, detach := range []bool{false, true} {
		t.Run(fmt.Sprintf("detach=%t", detach), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { f(t, detach) })
		})
	}
}

// craceScript returns a base that plays the steps, and answers "next" once they are used up.
func craceScript(steps []scripted.Step) *scripted.Transport {
	return scripted.Func(func(attempt int, _ *http.Request) scripted.Step {
		if attempt < len(steps) {
			return steps[attempt]
		}
		return scripted.Step{Body: "next"}
	})
}
