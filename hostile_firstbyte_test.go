package hedgerow_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// A hostPath is how a call comes to its answer.
type hostPath struct {
	answers int // the attempt that answers
	signal  hedgerow.Signal
	detach  bool
	passed  bool // hedging is switched off
}

// hostPaths returns all of them, by their names.
func hostPaths() map[string]hostPath {
	paths := make(map[string]hostPath)
	for _, signal := range []hedgerow.Signal{hedgerow.SignalHeaders, hedgerow.SignalFirstByte} {
		for _, p := range []hostPath{
			{0, signal, false, false},
			{0, signal, true, false},
			{1, signal, false, false},
			{1, signal, true, false},
			{0, signal, false, true},
		} {
			paths[fmt.Sprintf("attempt %d by %s, detach=%t, passed=%t", p.answers, p.signal, p.detach, p.passed)] = p
		}
	}
	return paths
}

// transport returns a Transport over a base whose attempt that answers does so by answer.
func (p hostPath) transport(t *testing.T, answer func(*http.Request) (*http.Response, error)) *hedgerow.Transport {
	t.Helper()
	base := roundTripper(func(req *http.Request) (*http.Response, error) {
		if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Number < p.answers {
			<-req.Context().Done()
			return nil, context.Cause(req.Context())
		}
		return answer(req)
	})
	tr := craceNew(t, hedgerow.Config{Base: base, Detach: p.detach, Hedge: hedgerow.HedgeConfig{Signal: p.signal}})
	tr.SetHedging(!p.passed)
	return tr
}

// A response that claims to be empty, and is not, is handed on whole, with the byte that was read to see whether there
// is one.
func TestHostileContentOfAnEmptyResponse(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusOK, http.StatusNoContent, http.StatusNotModified} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			contractBubbles(t, hostPaths(), func(t *testing.T, p hostPath) {
				t.Helper()
				body := &contractBody{src: strings.NewReader("content")}
				tr := p.transport(t, func(*http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: body}, nil
				})
				a := craceCall(tr, contractGet(t.Context(), t, craceURL))
				require.NoError(t, a.Err)
				require.Equal(t, "content", a.Body)
				require.EqualValues(t, 1, body.closes.Load())
			})
		})
	}
}

// hostFails is a body that fails, of a type without fields, as those of net/http are that have nothing to read.
type hostFails struct{}

func (hostFails) Read([]byte) (int, error) { return 0, errCrace }
func (hostFails) Close() error             { return nil }

// Such a body is not empty: its attempt lives until it is read.
func TestHostileBodyWithoutFields(t *testing.T) {
	t.Parallel()
	paths := hostPaths()
	maps.DeleteFunc(paths, func(_ string, p hostPath) bool { return p.signal == hedgerow.SignalFirstByte })
	contractBubbles(t, paths, func(t *testing.T, p hostPath) {
		t.Helper()
		var attempt *http.Request
		tr := p.transport(t, func(req *http.Request) (*http.Response, error) {
			attempt = req
			return hostOK(hostFails{})
		})
		resp, err := tr.RoundTrip(contractGet(t.Context(), t, craceURL))
		require.NoError(t, err)
		require.NoError(t, attempt.Context().Err())
		_, err = io.ReadAll(resp.Body)
		require.Equal(t, errCrace, err)
		require.Equal(t, !p.passed, attempt.Context().Err() != nil)
	})
}

// By first byte, it loses to one that does not fail.
func TestHostileBodyWithoutFieldsDoesNotWin(t *testing.T) {
	t.Parallel()
	for _, fails := range []int{0, 1} {
		t.Run(fmt.Sprint("attempt ", fails), func(t *testing.T) {
			t.Parallel()
			craceModes(t, func(t *testing.T, detach bool) {
				t.Helper()
				base := roundTripper(func(req *http.Request) (*http.Response, error) {
					a, _ := hedgerow.AttemptFromContext(req.Context())
					time.Sleep(1500 * time.Millisecond) // so that there is a hedge
					if a.Number == fails {
						return hostOK(hostFails{})
					}
					time.Sleep(1500 * time.Millisecond)
					return hostOK(io.NopCloser(strings.NewReader("fine")))
				})
				tr := craceNew(t, hedgerow.Config{Base: base, Detach: detach, Hedge: hedgerow.HedgeConfig{Signal: hedgerow.SignalFirstByte}})
				a := craceCall(tr, contractGet(t.Context(), t, craceURL))
				require.NoError(t, a.Err)
				require.Equal(t, "fine", a.Body)
			})
		})
	}
}

// By first byte, a body that fails before it is a failure of the host, unless the caller has cancelled the call.
func TestHostileFailureBeforeTheFirstByteCounts(t *testing.T) {
	t.Parallel()
	type failing struct {
		detach, passed bool
		ends           string // the body
		want           hedgerow.CircuitState
	}
	cases := make(map[string]failing)
	for ends, want := range map[string]hedgerow.CircuitState{
		"fails":    hedgerow.CircuitOpen,
		"deadline": hedgerow.CircuitOpen,
		"cancel":   hedgerow.CircuitClosed,
	} {
		cases[ends] = failing{false, false, ends, want}
		cases[ends+", detached"] = failing{true, false, ends, want}
		cases[ends+", passed"] = failing{false, true, ends, want}
	}
	contractBubbles(t, cases, func(t *testing.T, c failing) {
		t.Helper()
		base := roundTripper(func(req *http.Request) (*http.Response, error) {
			read := func() { <-req.Context().Done() }
			if c.ends == "fails" {
				read = nil
			}
			return hostOK(&contractBody{src: iotest.ErrReader(errCrace), onRead: read})
		})
		tr := craceNew(t, hedgerow.Config{
			Base: base, Detach: c.detach, Breaker: hedgerow.BreakerConfig{MinSamples: 5},
			Hedge: hedgerow.HedgeConfig{Signal: hedgerow.SignalFirstByte, Delay: time.Minute},
		})
		tr.SetHedging(!c.passed)
		for n := range 5 {
			require.Equal(t, hedgerow.CircuitClosed, tr.Circuit(hedgerow.CircuitHost, hedgerow.EndpointKey{Host: "api.test"}), n)
			ctx, cancel := context.WithCancel(t.Context())
			switch c.ends {
			case "cancel":
				time.AfterFunc(time.Second, cancel)
			case "deadline":
				cancel()
				ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			}
			require.Error(t, craceCall(tr, contractGet(ctx, t, craceURL)).Err)
			cancel()
			synctest.Wait()
		}
		key := hedgerow.EndpointKey{Host: "api.test"}
		require.Equal(t, c.want, tr.Circuit(hedgerow.CircuitHost, key))
		require.Equal(t, c.want, tr.Circuit(hedgerow.CircuitEndpoint, key))
	})
}
