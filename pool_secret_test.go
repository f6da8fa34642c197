package hedgerow_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// pspecSecret is a secret that looks different in a header, a query, a path and a quoted string.
const pspecSecret = `hunter2 &="%/+é~`

// pspecLeaks lists the forms of pspecSecret that text holds. Every form contains what is left of it without escapes.
func pspecLeaks(text string) (found []string) {
	for _, form := range []string{
		pspecSecret, "hunter2", url.QueryEscape(pspecSecret), url.PathEscape(pspecSecret), fmt.Sprintf("%q", pspecSecret),
		base64.StdEncoding.EncodeToString([]byte(pspecSecret)),
		base64.StdEncoding.EncodeToString([]byte("user:" + pspecSecret)), fmt.Sprintf("%x", pspecSecret),
	} {
		if strings.Contains(text, form) {
			found = append(found, form)
		}
	}
	return found
}

// pspecCredentials are all the kinds with a secret that can be masked.
func pspecCredentials() map[string]hedgerow.Credential {
	return map[string]hedgerow.Credential{
		"Bearer":    hedgerow.Bearer(pspecSecret),
		"HeaderKey": hedgerow.HeaderKey("x-api-key", pspecSecret),
		"QueryKey":  hedgerow.QueryKey("key", pspecSecret),
		"BasicAuth": hedgerow.BasicAuth("user", pspecSecret),
	}
}

// pspecProxy is a proxy whose password is pspecSecret.
func pspecProxy(host string) hedgerow.Proxy {
	u := url.URL{Scheme: "http", Host: host, User: url.UserPassword("user", pspecSecret)}
	return hedgerow.ProxyURL(u.String())
}

var pspecVerbs = []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T", "%5.2v", "%-8s"}

func TestP81SecretsArePrintedNowhere(t *testing.T) {
	t.Parallel()
	for name, c := range pspecCredentials() {
		proxy := pspecProxy("proxy.test:8080")
		r := hedgerow.Resource{ID: "a", Credential: c, Proxy: proxy}
		cfg := hedgerow.PoolConfig{Hosts: []string{"api.test"}, Resources: []hedgerow.Resource{r}}
		p, err := hedgerow.NewPool(cfg)
		require.NoError(t, err)
		type outer struct {
			Shown  any
			hidden hedgerow.Credential
			proxy  hedgerow.Proxy
			res    hedgerow.Resource
			ptr    *hedgerow.Resource
		}
		base := &http.Transport{}
		for what, v := range map[string]any{
			"credential": c, "its pointer": &c, "proxy": proxy, "resource": r, "its address": &r, "config": cfg, "config pointer": &cfg,
			"pool": p, "wrapped": p.Wrap(base), "snapshot": p.Snapshot(), "stats": p.Stats(),
			"shown":  outer{Shown: c},
			"hidden": outer{hidden: c, proxy: proxy, res: r, ptr: &r}, "hidden pointer": &outer{hidden: c, proxy: proxy, res: r},
			"map": map[string]any{"c": c, "r": r}, "slice": []hedgerow.Credential{c}, "proxies": []hedgerow.Proxy{proxy},
		} {
			for _, verb := range pspecVerbs {
				require.Empty(t, pspecLeaks(fmt.Sprintf(verb, v)), "%s %s as %s", name, what, verb)
			}
			if text, err := json.Marshal(v); err == nil {
				require.Empty(t, pspecLeaks(string(text)), "%s %s", name, what)
			}
			var logged bytes.Buffer
			for _, h := range []slog.Handler{slog.NewTextHandler(&logged, nil), slog.NewJSONHandler(&logged, nil)} {
				slog.New(h).Info("x", "v", v)
			}
			require.Empty(t, pspecLeaks(logged.String()), "%s %s", name, what)
		}
		require.Equal(t, "***", fmt.Sprintf("%v", c))
		require.Equal(t, "http://user:xxxxx@proxy.test:8080", fmt.Sprintf("%s", proxy))
		text, err := json.Marshal(map[string]any{"c": c, "p": proxy, "zero": hedgerow.Proxy{}})
		require.NoError(t, err)
		require.JSONEq(t, `{"c":"***","p":"http://user:xxxxx@proxy.test:8080","zero":""}`, string(text))
		require.Equal(t, "***", c.LogValue().String())
	}
	require.Equal(t, "***", fmt.Sprintf("%+v", hedgerow.ProxyURL("ftp://u:"+pspecSecret+"@x")))
}

// A base that says in its errors all it was sent.
func pspecTattler(req *http.Request) error {
	all := fmt.Sprintf("%v %q %s %s %+v", req.Header, req.Header.Get("Authorization"), req.URL, req.URL.RawQuery, req.URL.Query())
	return &url.Error{Op: "Get", URL: req.URL.String(), Err: errors.New(all)}
}

func TestC90SecretsInErrorsAndHooks(t *testing.T) {
	t.Parallel()
	for name, c := range pspecCredentials() {
		for _, attempts := range []int{1, 2} {
			for _, direct := range []bool{true, false} {
				t.Run(fmt.Sprint(name, attempts, direct), func(t *testing.T) {
					t.Parallel()
					var mu sync.Mutex
					var told []string
					tell := func(v ...any) {
						mu.Lock()
						defer mu.Unlock()
						for _, verb := range pspecVerbs {
							told = append(told, fmt.Sprintf(verb, v))
						}
					}
					p := pspecPool(t, hedgerow.PoolConfig{
						Resources:      []hedgerow.Resource{{ID: "a", Credential: c}, {ID: "b", Credential: c}},
						MaxAttempts:    attempts,
						ResourceChange: func(e hedgerow.ResourceEvent) { tell(e) },
					})
					base := scripted.Func(func(int, *http.Request) scripted.Step {
						return scripted.Step{Do: func(req *http.Request) (*http.Response, error) { return nil, pspecTattler(req) }}
					})
					rt := p.Wrap(base)
					if !direct {
						rt = contractNew(t, hedgerow.Config{Base: rt, Hooks: hedgerow.Hooks{
							AttemptDone: func(_ context.Context, e hedgerow.AttemptEvent) { tell(e, e.Err) },
						}})
					}
					_, _, err := pspecGet(t, rt)
					require.Error(t, err)
					require.Contains(t, err.Error(), "***")
					tell(err, errors.Unwrap(err), p.Stats(), p.Snapshot())
					client := &http.Client{Transport: rt}
					_, err = client.Do(contractGet(t.Context(), t, pspecURL))
					tell(err, errors.Unwrap(err))
					if exhausted, ok := errors.AsType[*hedgerow.ExhaustedError](err); ok {
						require.Equal(t, 2, attempts)
						tell(*exhausted, exhausted.Err)
					} else {
						require.Equal(t, 1, attempts)
					}
					var logged bytes.Buffer
					slog.New(slog.NewJSONHandler(&logged, nil)).Error("x", "err", err, "stats", p.Stats())
					require.Empty(t, pspecLeaks(logged.String()+strings.Join(told, "\n")))
				})
			}
		}
	}
}

// A masked error still says what callers ask of errors.
func TestC90MaskedErrorsAnswerForTheirCause(t *testing.T) {
	t.Parallel()
	p := pspecPool(t, hedgerow.PoolConfig{
		Resources:   []hedgerow.Resource{{ID: "a", Credential: hedgerow.Bearer("hunter2")}},
		MaxAttempts: 1,
	})
	for _, cause := range []error{context.DeadlineExceeded, errContract, io.ErrUnexpectedEOF} {
		base := scripted.New(scripted.Step{Err: fmt.Errorf("sent hunter2: %w", cause)})
		_, _, err := pspecGet(t, p.Wrap(base))
		require.EqualError(t, err, "sent ***: "+cause.Error())
		require.ErrorIs(t, err, cause)
		timeout, ok := err.(interface{ Timeout() bool })
		require.True(t, ok)
		require.Equal(t, errors.Is(cause, context.DeadlineExceeded), timeout.Timeout())
		require.NotContains(t, fmt.Sprintf("%#v %+v", err, err), "hunter2")
	}
	clean := errors.New("nothing of it")
	_, _, err := pspecGet(t, p.Wrap(scripted.New(scripted.Step{Err: clean})))
	require.Same(t, clean, err) // untouched
}

// A short secret that is a part of its own encoded form does not leave the rest of that.
func TestC90TheLongestSpellingGoesFirst(t *testing.T) {
	t.Parallel()
	pair := base64.StdEncoding.EncodeToString([]byte("user:dX"))
	require.Contains(t, pair, "dX")
	p := pspecPool(t, hedgerow.PoolConfig{
		Resources: []hedgerow.Resource{{ID: "a", Credential: hedgerow.BasicAuth("user", "dX")}}, MaxAttempts: 1,
	})
	_, _, err := pspecGet(t, p.Wrap(scripted.New(scripted.Step{Err: errors.New("sent Basic " + pair)})))
	require.EqualError(t, err, "sent Basic ***")
}

func TestCredentialsReplaceWhatTheCallerHasSet(t *testing.T) {
	t.Parallel()
	const query = "a=1&&key=mine&b=%zz;c&k%65y=mine&KEY=other"
	for name, tc := range map[string]struct {
		c      hedgerow.Credential
		header string // "": that of the caller
		query  string // "": that of the caller
	}{
		"bearer": {hedgerow.Bearer("s"), "Bearer s", ""},
		"basic":  {hedgerow.BasicAuth("user", "s"), "Basic dXNlcjpz", ""},
		"header": {hedgerow.HeaderKey("aUTHORIZATION", "s"), "s", ""},
		"query":  {hedgerow.QueryKey("key", "s t"), "", "a=1&&b=%zz;c&KEY=other&key=s+t"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pspecPool(t, hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "a", Credential: tc.c}}})
			base := scripted.New(scripted.Step{})
			req := contractGet(t.Context(), t, "https://api.test/x?"+query)
			req.Header = http.Header{
				"Authorization": {"caller", "twice"}, "authorization": {"lower"}, "AUTHORIZATION": {"upper"},
				"User-Agent": nil, "x-lower": {"1"},
			}
			before := contractCopy(req)
			_, _, err := pspecDo(t, p.Wrap(base), req)
			require.NoError(t, err)
			require.Equal(t, before, contractCopy(req)) // C1
			rec := base.Records()[0]
			sent := rec.Request
			if tc.header != "" {
				require.Equal(t, http.Header{
					"Authorization": {tc.header}, "User-Agent": nil, "x-lower": {"1"},
				}, rec.Header) // C7
				require.Equal(t, query, sent.URL.RawQuery)
			} else {
				require.Equal(t, before.Header, rec.Header)
				require.Equal(t, tc.query, sent.URL.RawQuery)
			}
			// C6: no value slice is shared.
			sent.Header["x-lower"] = append(sent.Header["x-lower"], "more")
			require.Equal(t, before, contractCopy(req))
		})
	}
}

func TestCredentialFuncIsCalledLast(t *testing.T) {
	t.Parallel()
	type seen struct{ url, host, header string }
	var got seen
	sign := func(req *http.Request) error {
		got = seen{req.URL.String(), req.Host, req.Header.Get("X-Caller")}
		req.Header.Set("X-Signature", "s")
		req.Header.Set("X-Caller", "changed")
		req.URL.RawQuery = "signed=1"
		return nil
	}
	p := pspecPool(t, hedgerow.PoolConfig{Resources: []hedgerow.Resource{
		{ID: "a", Credential: hedgerow.CredentialFunc(sign), Upstream: "http://up.test:81/base"},
	}})
	base := scripted.New(scripted.Step{})
	req := contractGet(t.Context(), t, "https://api.test/x?q=1")
	req.Header.Set("X-Caller", "c")
	before := contractCopy(req)
	_, _, err := pspecDo(t, p.Wrap(base), req)
	require.NoError(t, err)
	require.Equal(t, seen{"http://up.test:81/base/x?q=1", "up.test:81", "c"}, got)
	require.Equal(t, before, contractCopy(req))
	require.Equal(t, "http://up.test:81/base/x?signed=1", base.Records()[0].URL)
	require.Equal(t, "s", base.Records()[0].Header.Get("X-Signature"))
}

// An error of a CredentialFunc sends nothing, and may be repeated for any method that can be rewound. It counts as a transport
// failure.
func TestCredentialFuncThatFails(t *testing.T) {
	t.Parallel()
	fails := hedgerow.CredentialFunc(func(*http.Request) error { return errContract })
	p := pspecPool(t, hedgerow.PoolConfig{
		Strategy:  hedgerow.PrimaryBackup,
		Resources: []hedgerow.Resource{{ID: "bad", Credential: fails}, pspecKeys(1)[0]},
	})
	base := scripted.New(scripted.Step{Body: "ok"})
	status, body, err := pspecDo(t, p.Wrap(base), base.NewRequest(t, http.MethodPost, pspecURL, "payload"))
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "ok", body)
	require.Equal(t, "payload", string(base.Records()[0].Body))
	base.Check(t)
	s := p.Stats()
	require.EqualValues(t, 1, s.Attempts)
	require.Zero(t, s.Resources[0].Attempts)
	require.Equal(t, 1, s.Resources[0].ConsecutiveFailures)

	alone := pspecPool(t, hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "bad", Credential: fails}}, MaxAttempts: 1})
	req := base.NewRequest(t, http.MethodPost, pspecURL, "payload")
	_, _, err = pspecDo(t, alone.Wrap(base), req)
	require.Same(t, errContract, err)
	base.Check(t)
	require.Len(t, base.Records(), 1)
}

// A resource whose CredentialFunc fails is offered only where nothing else is, for as long as after transport failures.
func TestCredentialFuncThatFailsRests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked, broken := 0, true
		set := hedgerow.CredentialFunc(func(*http.Request) error {
			asked++
			if broken {
				return errContract
			}
			return nil
		})
		p := pspecPool(t, hedgerow.PoolConfig{
			Strategy:  hedgerow.PrimaryBackup,
			Resources: []hedgerow.Resource{{ID: "bad", Credential: set}, pspecKeys(1)[0]},
		})
		base := pspecScript(nil)
		call := func() {
			_, _, err := pspecDo(t, p.Wrap(base), base.NewRequest(t, http.MethodGet, pspecURL, ""))
			require.NoError(t, err)
		}
		for _, rest := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
			before := asked
			for range 10 {
				call()
			}
			require.Equal(t, before+1, asked, rest)
			time.Sleep(rest)
		}
		require.Equal(t, 3, p.Snapshot()[0].ConsecutiveFailures)

		broken = false
		call()
		require.Zero(t, p.Snapshot()[0].ConsecutiveFailures)
		require.EqualValues(t, 1, p.Snapshot()[0].Attempts)
		require.EqualValues(t, 3, p.Stats().Retries) // by the other one, after an error of the first
	})
}

// The error of a CredentialFunc is that of its resource, also if it is of another pool.
func TestCredentialFuncThatFindsAPoolExhausted(t *testing.T) {
	t.Parallel()
	tokens := pspecPool(t, hedgerow.PoolConfig{Name: "tokens", Hosts: []string{"token.test"}, Resources: pspecKeys(1)})
	require.NoError(t, tokens.Disable("A"))
	fetch := hedgerow.CredentialFunc(func(req *http.Request) error {
		_, err := tokens.Wrap(scripted.New()).RoundTrip(contractGet(req.Context(), t, "https://token.test/"))
		require.ErrorContains(t, err, "no resource is eligible")
		return err
	})
	p := pspecPool(t, hedgerow.PoolConfig{
		Strategy:  hedgerow.PrimaryBackup,
		Resources: []hedgerow.Resource{{ID: "bad", Credential: fetch}, pspecKeys(1)[0]},
	})
	status, _, err := pspecGet(t, p.Wrap(scripted.New(scripted.Step{})))
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, 1, p.Snapshot()[0].ConsecutiveFailures)
}

// A hedge that has lost while its CredentialFunc ran says nothing of a resource, also if a layer between has kept the end of
// its context from the pool.
func TestCredentialFuncOfALostHedge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		slow := hedgerow.CredentialFunc(func(*http.Request) error {
			if asked.Add(1) > 1 {
				time.Sleep(time.Second)
			}
			return nil
		})
		p := pspecPool(t, hedgerow.PoolConfig{
			Resources: []hedgerow.Resource{{ID: "a", Credential: slow}, {ID: "b", Credential: slow}, {ID: "c", Credential: slow}},
		})
		pool := p.Wrap(scripted.New(scripted.Step{After: 100 * time.Millisecond}))
		layer := roundTrip(func(req *http.Request) (*http.Response, error) {
			return pool.RoundTrip(req.WithContext(context.WithoutCancel(req.Context())))
		})
		tr := contractNew(t, hedgerow.Config{Base: layer, Hedge: hedgerow.HedgeConfig{Delay: 10 * time.Millisecond, MaxHedges: 1}})
		_, _, err := pspecGet(t, tr)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.EqualValues(t, 2, asked.Load())
		for _, r := range p.Snapshot() {
			require.Zero(t, r.ConsecutiveFailures, r.ID)
		}
	})
}

// What a Classifier is shown does not lead to the secret either, but for the base's own error.
func TestC30TheRequestOfAResponseIsTheCallers(t *testing.T) {
	t.Parallel()
	for name, c := range pspecCredentials() {
		var asked []*http.Request
		note := func(resp *http.Response) bool {
			asked = append(asked, resp.Request)
			return true
		}
		p := pspecPool(t, hedgerow.PoolConfig{
			Resources: []hedgerow.Resource{{ID: "a", Credential: c, Upstream: "http://up.test"}, {ID: "b", Credential: c}},
			Peek:      note,
			Classifier: func(o hedgerow.Outcome) hedgerow.Verdict {
				note(o.Response)
				asked = append(asked, o.Request)
				return hedgerow.Verdict{}
			},
		})
		base := scripted.New(pspec429, scripted.Step{Body: "ok"})
		req := contractGet(t.Context(), t, pspecURL)
		_, _, err := pspecDo(t, p.Wrap(base), req)
		require.NoError(t, err)
		require.Len(t, asked, 6)
		for _, r := range asked {
			require.Same(t, req, r, name)
		}
	}
	p := pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(2), MaxAttempts: 2})
	status, _, err := pspecGet(t, p.Wrap(scripted.New(pspec429, pspec429)))
	require.NoError(t, err)
	require.Equal(t, http.StatusTooManyRequests, status)
}

// A layer beneath may print the context of a request, into a log or the arguments of a mock.
func TestSecretInAPrintedContext(t *testing.T) {
	t.Parallel()
	pool := pspecPool(t, hedgerow.PoolConfig{
		Resources: []hedgerow.Resource{{ID: "a", Credential: hedgerow.Bearer("hunter2")}}, Hosts: []string{"api.test"},
	})
	var printed []string
	base := roundTrip(func(req *http.Request) (*http.Response, error) {
		for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d"} {
			printed = append(printed, fmt.Sprintf(format, req.Context()))
		}
		return sharedAnswer(req, http.StatusOK, ""), nil
	})
	for _, rt := range []http.RoundTripper{pool.Wrap(base), contractNew(t, hedgerow.Config{Base: pool.Wrap(base), Hedge: hedgerow.HedgeConfig{Delay: time.Hour}})} {
		printed = nil
		resp, err := rt.RoundTrip(contractGet(t.Context(), t, pspecURL))
		require.NoError(t, err)
		contractRead(t, resp)
		for _, s := range printed {
			require.Equal(t, "hedgerow.try", s)
		}
	}
	resp, err := contractNew(t, hedgerow.Config{Base: base, Hedge: hedgerow.HedgeConfig{Delay: time.Hour}}).RoundTrip(contractGet(t.Context(), t, pspecURL))
	require.NoError(t, err)
	contractRead(t, resp)
	require.Equal(t, "hedgerow.attempt", printed[len(printed)-1])
}

// A server may redirect to a login that is to redirect back, and puts the URL that was asked for into a parameter for that. The
// key is taken out of it, and nothing else is changed.
func TestSecretInAURLOfALocation(t *testing.T) {
	t.Parallel()
	const secret = "hunter2+/="
	key, esc := "key="+url.QueryEscape(secret), url.QueryEscape
	for to, want := range map[string]string{
		"http://other.test/in?next=" + esc("http://api.test/x?a=1&"+key+"&b=%20#part") + "&c=d+e": "http://other.test/in?next=" +
			esc("http://api.test/x?a=1&b=%20#part") + "&c=d+e",
		"http://other.test/in?next=" + esc("/in?to="+esc("/x?"+key)) + "#end": "http://other.test/in?next=" + esc("/in?to="+esc("/x")) + "#end",
		"/in?next=/x?" + key + "&" + key:                                      "/in?next=/x",
		"/in?next=" + esc("/x?key=of-somebody-else") + "&%zz=%zz?" + "&e":     "/in?next=" + esc("/x?key=of-somebody-else") + "&%zz=%zz?" + "&e",
		"/in": "/in",
	} {
		pool := pspecPool(t, hedgerow.PoolConfig{
			Resources: []hedgerow.Resource{{ID: "a", Credential: hedgerow.QueryKey("key", secret)}}, Hosts: []string{"api.test"},
		})
		resp, err := pool.Wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
			resp := sharedAnswer(req, http.StatusFound, "")
			resp.Header.Set("Location", to)
			return resp, nil
		})).RoundTrip(contractGet(t.Context(), t, pspecURL))
		require.NoError(t, err)
		contractRead(t, resp)
		require.Equal(t, want, resp.Header.Get("Location"), to)
	}
}

// TestSecretInAPanicOfAHedge has the base panic with the URL, in which the key is. A hook sees that as the hedge's error.
func TestSecretInAPanicOfAHedge(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		panics func(*http.Request)
		told   string
	}{
		"with the URL": {func(req *http.Request) { panic("cannot send to " + req.URL.String()) }, "panicked: string"},
		"by a bug":     {func(req *http.Request) { req.Header["X"][0] = "" }, "index out of range"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				pool := pspecPool(t, hedgerow.PoolConfig{Hosts: []string{"http://api.test"}, Resources: []hedgerow.Resource{
					{ID: "a", Credential: hedgerow.QueryKey("key", "secret-A")}, {ID: "b", Credential: hedgerow.QueryKey("key", "secret-B")},
				}})
				errs := make(chan error, 1)
				tr := contractNew(t, hedgerow.Config{
					Base: pool.Wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
						if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Kind == hedgerow.AttemptHedge {
							tt.panics(req)
						}
						time.Sleep(time.Second)
						return sharedAnswer(req, http.StatusOK, ""), nil
					})),
					Hedge: hedgerow.HedgeConfig{MaxHedges: 1},
					Hooks: hedgerow.Hooks{AttemptDone: func(_ context.Context, e hedgerow.AttemptEvent) {
						if e.Err != nil {
							errs <- e.Err
						}
					}},
				})
				resp, err := tr.RoundTrip(contractGet(t.Context(), t, contractURL))
				require.NoError(t, err)
				contractRead(t, resp)
				told := <-errs
				require.ErrorContains(t, told, tt.told)
				require.NotContains(t, told.Error(), "secret")
			})
		})
	}
}
