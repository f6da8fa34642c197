package hedgerow_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/memhttp"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// C8, C11 and C93: what is refused before it is sent closes the body unread and costs no key.
func TestC11PoolClosesTheBodyOnShortCircuit(t *testing.T) {
	t.Parallel()
	canceled, cancel := context.WithCancelCause(t.Context())
	cancel(errContract)
	for name, tc := range map[string]struct {
		down   bool
		change func(*http.Request) *http.Request
	}{
		"nothing eligible": {true, func(r *http.Request) *http.Request { return r }},
		"caller gone":      {false, func(r *http.Request) *http.Request { return r.WithContext(canceled) }},
		"nil header":       {false, func(r *http.Request) *http.Request { r.Header = nil; return r }},
		"bad method":       {false, func(r *http.Request) *http.Request { r.Method = "B D"; return r }},
		"bad name":         {false, func(r *http.Request) *http.Request { r.Header["X Y"] = []string{"1"}; return r }},
		"bad value":        {false, func(r *http.Request) *http.Request { r.Header["X"] = []string{"a\nb"}; return r }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(2)})
			if tc.down {
				require.NoError(t, p.Disable("A"))
				require.NoError(t, p.Disable("B"))
			}
			body := &contractBody{src: strings.NewReader("payload")}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, pspecURL, body)
			require.NoError(t, err)
			base := scripted.New()
			_, _, err = pspecDo(t, p.Wrap(base), tc.change(req))
			require.Error(t, err)
			require.NotContains(t, err.Error(), "a\nb")
			require.Empty(t, base.Records())
			require.EqualValues(t, 1, body.closes.Load())
			require.Zero(t, body.reads.Load())
			require.Zero(t, p.Stats().Attempts)
			pspecIdle(t, p, 1)
		})
	}
}

func TestC15PoolSendsABodyWithoutGetBodyOnce(t *testing.T) {
	t.Parallel()
	for _, hedging := range []bool{false, true} {
		p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(2)})
		base := scripted.New(scripted.Step{Status: http.StatusTooManyRequests, Body: "limit"})
		rt := p.Wrap(base)
		if hedging {
			rt = contractNew(t, hedgerow.Config{Base: rt})
		}
		body := &contractBody{src: strings.NewReader("payload")}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, pspecURL, body)
		require.NoError(t, err)
		req.Header.Set("Idempotency-Key", "k")
		status, got, err := pspecDo(t, rt, req)
		require.NoError(t, err)
		require.Equal(t, http.StatusTooManyRequests, status)
		require.Equal(t, "limit", got)
		require.EqualValues(t, 1, body.closes.Load())
		base.Check(t)
		pspecIdle(t, p, 1)
	}
}

func TestC17PoolWhenGetBodyFails(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]scripted.Step{
		"429": {Status: http.StatusTooManyRequests, Body: "limit"}, "error": {Err: errContract},
	} {
		for _, get := range []func() (io.ReadCloser, error){
			func() (io.ReadCloser, error) { return nil, errors.New("no more") },
			func() (io.ReadCloser, error) { return nil, nil },
		} {
			p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(2)})
			base := scripted.New(first)
			req := base.NewRequest(t, http.MethodPut, pspecURL, "payload")
			req.Header.Set("Idempotency-Key", "k")
			req.GetBody = get
			status, body, err := pspecDo(t, p.Wrap(base), req)
			if name == "error" {
				require.Same(t, errContract, err)
			} else {
				require.NoError(t, err)
				require.Equal(t, http.StatusTooManyRequests, status)
				require.Equal(t, "limit", body)
			}
			base.Check(t)
			require.Zero(t, p.Stats().Retries)
			pspecIdle(t, p, 1)
		}
	}
}

// C20 and C93, over real connections: a fault of the request's body is returned as it is and costs no key.
func TestC20PoolAndBodiesThatFail(t *testing.T) {
	t.Parallel()
	contractEach(t, func(t *testing.T, proto memhttp.Protocol) {
		t.Helper()
		srv := contractListen(t, proto, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
		for name, tc := range map[string]struct {
			body   io.Reader
			length int64
			want   error
		}{
			"fails":            {io.MultiReader(strings.NewReader("x"), &pspecPieces{err: errContract}), 0, errContract},
			"fails at once":    {&pspecPieces{err: errContract}, 0, errContract},
			"too short":        {io.MultiReader(strings.NewReader("short")), 10, nil},
			"too long":         {io.MultiReader(strings.NewReader("much too long")), 5, nil},
			"memory, too long": {strings.NewReader("much too long"), 5, nil},
			"memory, short":    {strings.NewReader("short"), 10, nil},
		} {
			p, err := hedgerow.NewPool(hedgerow.PoolConfig{Hosts: []string{srv.URL}, Resources: pspecKeys(2), RetryDelay: -1})
			require.NoError(t, err)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, srv.URL, tc.body)
			require.NoError(t, err)
			req.Header.Set("Idempotency-Key", "k")
			again := tc.body
			req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(again), nil }
			if tc.length != 0 {
				req.ContentLength = tc.length
			}
			_, _, err = pspecDo(t, p.Wrap(srv.Base), req)
			if proto == memhttp.HTTP1 || !strings.Contains(name, "short") { // HTTP/2 sends it
				require.Error(t, err, name)
				require.EqualValues(t, 1, p.Stats().CallsFailed, name)
			}
			if tc.want != nil {
				require.ErrorIs(t, err, tc.want)
			}
			s := p.Stats()
			require.LessOrEqual(t, s.Attempts, uint64(1), name)
			for _, r := range s.Resources {
				require.Zero(t, r.ConsecutiveFailures, name)
			}
		}
	})
}

func TestC93UnsupportedSchemeCostsNoKey(t *testing.T) {
	t.Parallel()
	p := pspecPool(t, hedgerow.PoolConfig{Hosts: []string{}, Resources: []hedgerow.Resource{{ID: "a"}, {ID: "b"}}})
	base := &http.Transport{}
	_, _, err := pspecDo(t, p.Wrap(base), contractGet(t.Context(), t, "ftp://files.test/x"))
	require.ErrorContains(t, err, "unsupported protocol scheme")
	s := p.Stats()
	require.LessOrEqual(t, s.Attempts, uint64(1))
	require.Zero(t, s.Resources[0].ConsecutiveFailures)
}

// C22: a server that answers before it has read; the next attempt sends all of it, and its own Expect.
func TestC22PoolAndExpectContinue(t *testing.T) {
	t.Parallel()
	got := make(chan string, 1)
	srv := contractListen(t, memhttp.HTTP1, func(w http.ResponseWriter, r *http.Request) {
		if pspecKey(r.Header) == "A" {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		body, err := io.ReadAll(r.Body)
		got <- fmt.Sprintln(r.Header.Get("Expect"), len(body), err)
	})
	srv.Base.ExpectContinueTimeout = 5 * time.Second
	p, err := hedgerow.NewPool(hedgerow.PoolConfig{Hosts: []string{srv.URL}, Resources: pspecKeys(2)})
	require.NoError(t, err)
	text := contractText(100_000)
	first := &contractBody{src: strings.NewReader(text)}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, first)
	require.NoError(t, err)
	req.ContentLength = int64(len(text))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
	req.Header.Set("Expect", "100-continue")
	start := time.Now()
	status, _, err := pspecDo(t, p.Wrap(srv.Base), req)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	require.Less(t, time.Since(start), 4*time.Second)
	require.Equal(t, "100-continue 100000 <nil>\n", contractTimeout(t, got, "the second attempt"))
	require.Zero(t, first.reads.Load())
	require.Eventually(t, func() bool { return first.closes.Load() == 1 }, 10*time.Second, time.Millisecond) // by another goroutine
}

// C25 and C95: the last 429 reaches an SDK that retries as it came, and keys that cool are not sent to again.
func TestC25TheLast429UnderAnSDK(t *testing.T) {
	t.Parallel()
	contractEach(t, func(t *testing.T, proto memhttp.Protocol) {
		t.Helper()
		var sent atomic.Int64
		srv := contractListen(t, proto, func(w http.ResponseWriter, r *http.Request) {
			sent.Add(1)
			key := pspecKey(r.Header)
			w.Header().Set("Retry-After", map[string]string{"A": "100", "B": "200", "C": "300"}[key])
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = w.Write([]byte(strings.Repeat(key, 10_000)))
		})
		p, err := hedgerow.NewPool(hedgerow.PoolConfig{Hosts: []string{srv.URL}, Resources: pspecKeys(3), Synthetic429: true})
		require.NoError(t, err)
		client := &http.Client{Transport: contractNew(t, hedgerow.Config{Base: p.Wrap(srv.Base)})}
		for try := range 3 { // as an SDK would
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, strings.NewReader("payload"))
			require.NoError(t, err)
			resp, err := client.Do(req)
			require.NoError(t, err)
			require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
			body := contractRead(t, resp)
			if try == 0 {
				require.Equal(t, strings.Repeat("C", 10_000), body)
				require.Equal(t, "300", resp.Header.Get("Retry-After"))
				continue
			}
			require.Equal(t, "100", resp.Header.Get("Retry-After")) // the soonest
		}
		require.EqualValues(t, 3, sent.Load())
	})
}

func TestC57SleepNeverPassesTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(1), Wait: time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		o := <-pspecGo(ctx, t, p.Wrap(scripted.New(scripted.Step{Status: http.StatusTooManyRequests, Header: pspecHint("60"), Body: "limit"})))
		require.NoError(t, o.err)
		require.Equal(t, pspecOutcome{status: http.StatusTooManyRequests, body: "limit"}, o)
		require.Equal(t, time.Minute, pspecRest(p)["A"])
	})
}

// C69: streams that were handed out, and attempts whose response is being looked at, are spared.
func TestC69SiblingsSpareWhatHasAResponse(t *testing.T) {
	t.Parallel()
	memhttp.Each(t, func(t *testing.T, proto memhttp.Protocol) {
		var n atomic.Int64
		text := contractText(64 << 10)
		srv := memhttp.NewServer(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if pspecKey(r.Header) == "B" {
				_, _ = w.Write([]byte("B"))
				return
			}
			switch n.Add(1) {
			case 1: // the verdict
				time.Sleep(2 * time.Second)
				w.WriteHeader(http.StatusTooManyRequests)
			case 2, 3: // a stream; an answer that is looked at
				w.WriteHeader(map[int64]int{2: http.StatusOK, 3: http.StatusNotFound}[n.Load()])
				for i := range 8 {
					_, _ = w.Write([]byte(text[i*len(text)/8 : (i+1)*len(text)/8]))
					contractFlush(w)
					time.Sleep(time.Second)
				}
			default:
				<-r.Context().Done()
			}
		}))
		p := pspecPool(t, hedgerow.PoolConfig{
			Hosts: []string{srv.URL()}, Resources: pspecKeys(2), Strategy: hedgerow.PrimaryBackup, PeekBody: 32 << 10,
			Classifier: func(hedgerow.Outcome) hedgerow.Verdict { return hedgerow.Verdict{} },
		})
		rt := p.Wrap(srv.Transport())
		type result struct {
			body string
			err  error
		}
		var all []chan result
		for range 4 {
			ch := make(chan result, 1)
			all = append(all, ch)
			req := contractGet(t.Context(), t, srv.URL())
			go func() {
				resp, err := rt.RoundTrip(req)
				if err != nil {
					ch <- result{err: err}
					return
				}
				body, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				ch <- result{string(body), err}
			}()
			synctest.Wait()
		}
		for i, want := range []string{"B", text, text, "B"} {
			r := <-all[i]
			require.NoError(t, r.err, i)
			require.Equal(t, want, r.body, i)
		}
		require.EqualValues(t, 1, p.Stats().SiblingCancels)
		require.Zero(t, p.Snapshot()[0].ConsecutiveFailures)
		pspecIdle(t, p, 4)
	})
}
