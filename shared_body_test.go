package hedgerow_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// sharedPayload is what is sent. The parts of it differ, so that one in the place of another shows.
const sharedPayload = "the first half, the other half"

// sharedBodies are ways in which a GetBody returns the one reader that there is, rewound, which it should not do and some
// clients do, and one that returns a new copy. None has a lock, so that the race detector sees who shares it.
func sharedBodies() map[string]func(*http.Request) {
	return map[string]func(*http.Request){
		"the same body": func(req *http.Request) {
			body := &rewound{Reader: strings.NewReader(sharedPayload)}
			req.Body = body
			req.GetBody = func() (io.ReadCloser, error) {
				_, err := body.Seek(0, io.SeekStart)
				return body, err
			}
		},
		"the same reader": func(req *http.Request) {
			r := bytes.NewReader([]byte(sharedPayload))
			req.Body = io.NopCloser(r)
			req.GetBody = func() (io.ReadCloser, error) {
				_, err := r.Seek(0, io.SeekStart)
				return io.NopCloser(r), err
			}
		},
		"a copy": func(req *http.Request) {
			req.GetBody = func() (io.ReadCloser, error) {
				return &rewound{Reader: strings.NewReader(sharedPayload)}, nil
			}
			req.Body, _ = req.GetBody()
		},
	}
}

type rewound struct{ *strings.Reader }

func (rewound) Close() error { return nil }

// A roundTrip is a base.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func sharedAnswer(req *http.Request, status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: req,
	}
}

// TestHedgeOfASharedBody makes hedges while the primary has sent half of its body. Whatever GetBody does, no attempt sends
// other bytes than the caller's: an upload that has lost its reader fails.
func TestHedgeOfASharedBody(t *testing.T) {
	t.Parallel()
	for name, set := range sharedBodies() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made := make(chan struct{})
			primary := make(chan error, 1)
			base := roundTrip(func(req *http.Request) (*http.Response, error) {
				a, _ := hedgerow.AttemptFromContext(req.Context())
				if a.Kind == hedgerow.AttemptHedge {
					close(made)
					body, err := io.ReadAll(req.Body)
					return sharedAnswer(req, http.StatusOK, string(body)), errors.Join(err, req.Body.Close())
				}
				half := make([]byte, len(sharedPayload)/2)
				if _, err := io.ReadFull(req.Body, half); err != nil {
					return nil, err
				}
				<-made
				rest, err := io.ReadAll(req.Body)
				if body := string(half) + string(rest); err == nil && body != sharedPayload {
					err = errors.New("sent " + body)
				} else if err != nil {
					err = nil // it was not sent
				}
				primary <- err
				<-req.Context().Done()
				return nil, req.Context().Err()
			})
			tr, err := hedgerow.New(hedgerow.Config{
				Base: base, Hedge: hedgerow.HedgeConfig{Delay: time.Millisecond, MaxHedges: 1},
			})
			require.NoError(t, err)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://shared.test/", nil)
			require.NoError(t, err)
			req.ContentLength = int64(len(sharedPayload))
			req.Header.Set("Idempotency-Key", "k1")
			set(req)
			resp, err := tr.RoundTrip(req)
			require.NoError(t, err)
			require.Equal(t, sharedPayload, contractRead(t, resp))
			require.NoError(t, contractTimeout(t, primary, "the primary"))
		})
	}
}

// TestSharedBodyLost shows that an upload which has lost its reader to a hedge says nothing of the host.
func TestSharedBodyLost(t *testing.T) {
	t.Parallel()
	made, failed := make(chan struct{}), make(chan struct{})
	tr, err := hedgerow.New(hedgerow.Config{
		Base: roundTrip(func(req *http.Request) (*http.Response, error) {
			a, _ := hedgerow.AttemptFromContext(req.Context())
			if a.Kind == hedgerow.AttemptPrimary {
				<-made
				defer close(failed)
				_, err := io.ReadAll(req.Body)
				return nil, err
			}
			close(made)
			<-failed
			body, err := io.ReadAll(req.Body)
			return sharedAnswer(req, http.StatusOK, string(body)), err
		}),
		Hedge:   hedgerow.HedgeConfig{Delay: time.Millisecond, MaxHedges: 1},
		Breaker: hedgerow.BreakerConfig{MinSamples: 1, ErrorRateThreshold: 0.1},
	})
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://shared.test/", nil)
	require.NoError(t, err)
	req.ContentLength = int64(len(sharedPayload))
	req.Header.Set("Idempotency-Key", "k1")
	sharedBodies()["the same body"](req)
	resp, err := tr.RoundTrip(req)
	require.NoError(t, err)
	require.Equal(t, sharedPayload, contractRead(t, resp))
	require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
	require.Equal(t, hedgerow.CircuitClosed, tr.Circuit(hedgerow.CircuitHost, hedgerow.EndpointKey{Host: "shared.test"}))
}

// TestRepeatOfASharedBody has a server refuse a call while its body is still being sent. The pool's next attempt sends it
// whole, and the first one goes on with its own or with nothing.
func TestRepeatOfASharedBody(t *testing.T) {
	t.Parallel()
	for name, set := range sharedBodies() {
		if name == "the same reader" {
			continue // without a Transport above it is sent as it is, in one packet with the headers
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next, rest := make(chan struct{}), make(chan error, 1)
			base := roundTrip(func(req *http.Request) (*http.Response, error) {
				a, _ := hedgerow.AttemptFromContext(req.Context())
				if a.Number > 0 {
					close(next)
					if err := <-rest; err != nil {
						return nil, err
					}
					body, err := io.ReadAll(req.Body)
					return sharedAnswer(req, http.StatusOK, string(body)), errors.Join(err, req.Body.Close())
				}
				if _, err := io.ReadFull(req.Body, make([]byte, len(sharedPayload)/2)); err != nil {
					return nil, err
				}
				go func() {
					<-next
					if more, err := io.ReadAll(req.Body); err == nil && string(more) != sharedPayload[len(sharedPayload)/2:] {
						rest <- errors.New("the refused attempt went on with " + string(more))
					}
					_ = req.Body.Close()
					close(rest)
				}()
				return sharedAnswer(req, http.StatusTooManyRequests, ""), nil
			})
			pool, err := hedgerow.NewPool(hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "a"}, {ID: "b"}}})
			require.NoError(t, err)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://shared.test/", nil)
			require.NoError(t, err)
			req.ContentLength = int64(len(sharedPayload))
			set(req)
			resp, err := pool.Wrap(base).RoundTrip(req)
			require.NoError(t, err)
			require.Equal(t, sharedPayload, contractRead(t, resp))
			require.Equal(t, http.StatusOK, resp.StatusCode)
		})
	}
}

// TestRepeatAfterABlockedRead refuses a call whose body blocks in Read: that does not keep the next attempt from its own.
func TestRepeatAfterABlockedRead(t *testing.T) {
	t.Parallel()
	body, w := io.Pipe()
	reading := make(chan struct{})
	base := roundTrip(func(req *http.Request) (*http.Response, error) {
		if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Number > 0 {
			content, err := io.ReadAll(req.Body)
			return sharedAnswer(req, http.StatusOK, string(content)), err
		}
		go func() {
			_, _ = req.Body.Read(make([]byte, 1))
			close(reading)
			_, _ = io.ReadAll(req.Body)
		}()
		<-reading
		return sharedAnswer(req, http.StatusTooManyRequests, ""), nil
	})
	pool, err := hedgerow.NewPool(hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "a"}, {ID: "b"}}})
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://shared.test/", body)
	require.NoError(t, err)
	req.ContentLength = int64(len(sharedPayload))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(sharedPayload)), nil }
	go func() { _, _ = io.WriteString(w, "t") }() // and no more
	resp, err := pool.Wrap(base).RoundTrip(req)
	require.NoError(t, err)
	require.Equal(t, sharedPayload, contractRead(t, resp))
	require.NoError(t, w.Close())
}

// TestLoserReadsLate has a base that reads the body of a loser when RoundTrip has returned, as HTTP/2 may for a moment: the
// bytes are the caller's again by then.
func TestLoserReadsLate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		loser hedgerow.AttemptKind
		plain bool // over an http.Transport
	}{
		{"primary", hedgerow.AttemptPrimary, false},
		{"hedge", hedgerow.AttemptHedge, false},
		{"primary over an http.Transport", hedgerow.AttemptPrimary, true},
		{"hedge over an http.Transport", hedgerow.AttemptHedge, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			hedged, returned, read := make(chan struct{}), make(chan struct{}), make(chan int64, 1)
			service := roundTrip(func(req *http.Request) (*http.Response, error) {
				a, _ := hedgerow.AttemptFromContext(req.Context())
				if a.Kind == hedgerow.AttemptHedge {
					close(hedged)
				}
				if a.Kind == tt.loser {
					go func() {
						<-returned
						n, _ := io.Copy(io.Discard, req.Body)
						read <- n
					}()
					<-req.Context().Done()
					return nil, req.Context().Err()
				}
				<-hedged
				return sharedAnswer(req, http.StatusOK, ""), nil
			})
			plain := &http.Transport{}
			plain.RegisterProtocol("http", service)
			tr, err := hedgerow.New(hedgerow.Config{
				Base:  map[bool]http.RoundTripper{false: service, true: plain}[tt.plain],
				Hedge: hedgerow.HedgeConfig{Delay: time.Millisecond, MaxHedges: 1},
			})
			require.NoError(t, err)
			ctx := hedgerow.WithCall(t.Context(), hedgerow.Call{Idempotent: true})
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://shared.test/", strings.NewReader(sharedPayload))
			require.NoError(t, err)
			resp, err := tr.RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			close(returned)
			require.Zero(t, contractTimeout(t, read, "the loser"))
		})
	}
}
