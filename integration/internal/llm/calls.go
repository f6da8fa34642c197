package llm

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

// An answer is the same over hedgerow as over a bare client.
func (api API) testAnswer(t *testing.T, proto string) {
	t.Helper()
	rig := NewService(t, api).Start(t, proto, Setting{})
	prompt := LongPrompt()
	text, raw, err := rig.Client.Ask(t.Context(), prompt)
	require.NoError(t, err)
	bed.RequireSame(t, prompt, text)

	bare := api.New(withKey{rig.Server.Base, rig.Arrivals()[0].Header}, rig.Server.URL, true)
	_, want, err := bare.Ask(t.Context(), prompt)
	require.NoError(t, err)
	bed.RequireSame(t, want, raw)

	seen := rig.Arrivals()
	require.Len(t, seen, 2)
	bed.RequireSame(t, seen[1].Body, seen[0].Body)
	require.Equal(t, seen[1].Header, seen[0].Header, "hedgerow adds nothing to the request")
	rig.Settled(t)
}

// withKey puts the key of another request in the place of the SDK's own.
type withKey struct {
	next http.RoundTripper
	from http.Header
}

func (k withKey) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	for _, name := range []string{"Authorization", "X-Api-Key"} {
		if req.Header.Get(name) != "" {
			req.Header.Set(name, k.from.Get(name))
		}
	}
	return k.next.RoundTrip(req)
}

// What may be sent twice is hedged: reads always, the rest where its owner says so. A hedge takes another key.
func (api API) testHedge(t *testing.T, proto string) {
	t.Helper()
	tests := []struct {
		name     string
		endpoint *hedgerow.EndpointConfig
		call     hedgerow.Call
		header   []string
	}{
		{name: "endpoint", endpoint: &hedgerow.EndpointConfig{Idempotent: true}},
		{name: "call", call: hedgerow.Call{Idempotent: true}},
		{name: "key", header: []string{"Idempotency-Key", "order-17"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			svc := NewService(t, api)
			svc.Respond = func(w http.ResponseWriter, r *http.Request, a Arrival) {
				if bed.IsPrimary(r) {
					bed.Hold(r)
				}
				svc.Complete(w, a)
			}
			rig := svc.Start(t, proto, Setting{Config: hedgerow.Config{Hedge: bed.Soon()}, Endpoint: tt.endpoint})
			prompt := LongPrompt()
			text, _, err := rig.Client.Ask(hedgerow.WithCall(t.Context(), tt.call), prompt, tt.header...)
			require.NoError(t, err)
			bed.RequireSame(t, prompt, text)

			rig.Settled(t)
			require.EqualValues(t, 1, rig.Transport.Stats().Total.HedgeWins)
			for _, a := range rig.Arrivals() { // the primary may not have got there on a busy machine
				hedge := a.Header.Get(bed.MarkHeader) == hedgerow.AttemptHedge.String()
				require.Equal(t, map[bool]string{false: "key-a", true: "key-b"}[hedge], a.Key)
				bed.RequireSame(t, prompt, a.Prompt)
				require.Equal(t, "0", a.Header.Get("X-Stainless-Retry-Count"), "a hedge is no retry of the SDK")
			}
		})
	}
}

// Reads are hedged without any configuration.
func (api API) testHedgedRead(t *testing.T, proto string) {
	t.Helper()
	svc := NewService(t, api)
	svc.Respond = func(w http.ResponseWriter, r *http.Request, _ Arrival) {
		if bed.IsPrimary(r) {
			bed.Hold(r)
		}
		sendJSON(w, api.Model)
	}
	rig := svc.Start(t, proto, Setting{Config: hedgerow.Config{Hedge: bed.Soon()}})
	id, err := rig.Client.Model(t.Context(), "comet-large")
	require.NoError(t, err)
	require.Equal(t, "comet-large", id)
	rig.Settled(t)
	require.EqualValues(t, 1, rig.Transport.Stats().Total.HedgeWins)
}

// An answer costs money: without a word from its owner it is sent once, however slow it is.
func (api API) testSlowPostIsSentOnce(t *testing.T, proto string) {
	t.Helper()
	svc, slow := NewService(t, api), bed.NewGate()
	svc.Respond = func(w http.ResponseWriter, r *http.Request, a Arrival) {
		slow.Pass(r)
		svc.Complete(w, a)
	}
	rig := svc.Start(t, proto, Setting{Config: hedgerow.Config{Hedge: bed.Soon()}, Retries: true, Clock: true})
	bed.Slowly(t, rig.Transport, rig.Server.URL, slow, func() error {
		_, _, err := rig.Client.Ask(t.Context(), "hello")
		return err
	})
	require.Len(t, rig.Arrivals(), 1)
	require.Empty(t, rig.Arrivals()[0].Header.Values("Idempotency-Key"), "the SDK makes up none")
	require.EqualValues(t, 1, rig.Transport.Stats().Total.Skipped[hedgerow.SkipMethod])
	rig.Settled(t)
}

// The body is whole with the next key too, whether or not the service has read it before it refused.
func (api API) testRotation(t *testing.T, proto string) {
	t.Helper()
	for name, early := range map[string]bool{"read": false, "unread": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			svc := NewService(t, api)
			limited := func(w http.ResponseWriter, r *http.Request) bool {
				if bed.Key(r) != "key-a" {
					return false
				}
				svc.Fail(w, http.StatusTooManyRequests, "Retry-After", "60")
				return true
			}
			if early {
				svc.Early = limited
			} else {
				svc.Respond = func(w http.ResponseWriter, r *http.Request, a Arrival) {
					if !limited(w, r) {
						svc.Complete(w, a)
					}
				}
			}
			rig := svc.Start(t, proto, Setting{Pool: hedgerow.PoolConfig{Strategy: hedgerow.PrimaryBackup}})
			prompt := LongPrompt()
			text, _, err := rig.Client.Ask(t.Context(), prompt)
			require.NoError(t, err)
			bed.RequireSame(t, prompt, text)
			require.Equal(t, []string{"key-a", "key-b"}, rig.Keys())
			if !early {
				bed.RequireSame(t, rig.Arrivals()[0].Body, rig.Arrivals()[1].Body)
			}
			rig.Settled(t)
		})
	}
}

// An upload goes to the next key as well. Over 1 MiB it would not be hedged, were it declared idempotent.
func (api API) testUpload(t *testing.T, proto string) {
	t.Helper()
	svc := NewService(t, api)
	svc.Respond = func(w http.ResponseWriter, _ *http.Request, a Arrival) {
		if a.Key == "key-a" {
			svc.Fail(w, http.StatusTooManyRequests, "Retry-After", "60")
			return
		}
		sendJSON(w, api.File)
	}
	rig := svc.Start(t, proto, Setting{Pool: hedgerow.PoolConfig{Strategy: hedgerow.PrimaryBackup}})
	data := strings.Repeat(LongPrompt(), 16)
	id, err := rig.Client.Upload(t.Context(), data)
	require.NoError(t, err)
	require.Equal(t, "file-1", id)
	seen := rig.Arrivals()
	require.Len(t, seen, 2)
	_, rest, _ := strings.Cut(seen[0].Body, "\r\n\r\n") // the headers of its part
	bed.RequireSame(t, data, rest[:min(len(rest), len(data))])
	bed.RequireSame(t, seen[0].Body, seen[1].Body)
	rig.Settled(t)
}

// The SDK may also be spread over upstreams, such as a gateway in front of the same API.
func (api API) testUpstreams(t *testing.T, proto string) {
	t.Helper()
	svc := NewService(t, api)
	gateway := bed.Serve(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/llm"+api.Path || bed.Key(r) != "gateway-key" {
			t.Errorf("%s with key %q", r.URL, bed.Key(r))
		}
		svc.Fail(w, http.StatusTooManyRequests, "Retry-After", "60")
	}))
	rig := svc.Start(t, proto, Setting{Pool: hedgerow.PoolConfig{
		Resources: []hedgerow.Resource{
			{ID: "gateway", Upstream: gateway.URL + "/llm", Credential: api.Key("gateway-key")},
			{ID: "direct", Credential: api.Key("key-a")},
		},
		Strategy: hedgerow.PrimaryBackup,
	}})
	text, _, err := rig.Client.Ask(t.Context(), "hello")
	require.NoError(t, err)
	require.Equal(t, "hello", text)
	require.Equal(t, hedgerow.ResourceCooling, rig.Pool.Snapshot()[0].State)
	require.Equal(t, []string{"key-a"}, rig.Keys())
	rig.Settled(t)
}

// A limit of the SDKs: all bodies that their GetBody makes of a *bytes.Reader read from that one reader, so that a hedge has
// to wait until the upload of its primary is over. Typed parameters and []byte have no such limit.
func (api API) testRawReaderBody(t *testing.T) {
	t.Helper()
	errSeen := errors.New("seen")
	for name, body := range map[string]any{
		"bytes":  []byte(`{"n":1}`),
		"reader": bytes.NewReader([]byte(`{"n":1}`)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var first, second, rest string
			look := roundTrip(func(req *http.Request) (*http.Response, error) {
				one, err := req.GetBody()
				if err != nil {
					return nil, err
				}
				head := make([]byte, 4)
				if _, err = io.ReadFull(one, head); err != nil {
					return nil, err
				}
				two, err := req.GetBody()
				if err != nil {
					return nil, err
				}
				all, _ := io.ReadAll(two) // what is read is compared
				tail, _ := io.ReadAll(one)
				first, second, rest = string(head), string(all), string(tail)
				_ = req.Body.Close() // it is in memory
				return nil, errSeen
			})
			err := api.New(look, "https://api.example.com", false).Post(t.Context(), body)
			require.ErrorIs(t, err, errSeen)
			require.Equal(t, `{"n":1}`, second)
			require.Equal(t, name == "reader", first+rest != `{"n":1}`)
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
