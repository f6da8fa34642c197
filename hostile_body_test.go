package hedgerow_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// Bodies that block, fail, and are closed twice, while they are read, or late.
func TestHostileResponseBodies(t *testing.T) {
	t.Parallel()
	for _, signal := range []hedgerow.Signal{hedgerow.SignalHeaders, hedgerow.SignalFirstByte} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			craceModes(t, func(t *testing.T, detach bool) {
				t.Helper()
				base := scripted.Func(func(_ int, req *http.Request) scripted.Step {
					switch req.URL.Path {
					case "/fails":
						return scripted.Step{BodyReader: io.NopCloser(iotest.ErrReader(errCrace))}
					case "/fails-later":
						return scripted.Step{BodyReader: io.NopCloser(io.MultiReader(strings.NewReader("part"), iotest.ErrReader(errCrace)))}
					case "/with-eof":
						return scripted.Step{BodyReader: io.NopCloser(iotest.DataErrReader(strings.NewReader("x")))}
					case "/byte-by-byte":
						return scripted.Step{BodyReader: io.NopCloser(iotest.OneByteReader(strings.NewReader("whole")))}
					default:
						return scripted.Step{BodyReader: newCraceStream(100*time.Millisecond, 1, false)}
					}
				})
				tr := craceNew(t, hedgerow.Config{Base: base, Detach: detach, Hedge: hedgerow.HedgeConfig{Signal: signal, Delay: time.Hour}})
				get := func(path string) *http.Response {
					resp, err := tr.RoundTrip(base.NewRequest(t, http.MethodGet, "http://api.test"+path, ""))
					require.NoError(t, err)
					return resp
				}
				for _, tt := range []struct {
					path, want string
					err        error
				}{
					{"/fails", "", errCrace},
					{"/fails-later", "part", errCrace},
					{"/with-eof", "x", nil},
					{"/byte-by-byte", "whole", nil},
				} {
					resp := get(tt.path)
					got, err := io.ReadAll(resp.Body)
					require.Equal(t, tt.want, string(got), tt.path)
					require.Equal(t, tt.err, err, tt.path)
					for range 3 {
						require.NoError(t, resp.Body.Close())
					}
				}

				// Close while a Read waits, from several goroutines.
				resp := get("/stream")
				var wg sync.WaitGroup
				errs := make(chan error, 1)
				wg.Go(func() {
					_, err := io.Copy(io.Discard, resp.Body)
					errs <- err
				})
				time.Sleep(time.Second + 50*time.Millisecond)
				start := time.Now()
				for range 3 {
					wg.Go(func() { _ = resp.Body.Close() })
				}
				wg.Wait()
				require.Zero(t, time.Since(start))
				require.Error(t, <-errs)
				_, err := resp.Body.Read(make([]byte, 1))
				require.Error(t, err)

				// Never closed: ends with the caller's context.
				ctx, cancel := context.WithCancel(t.Context())
				_, err = tr.RoundTrip(base.NewRequest(t, http.MethodGet, "http://api.test/stream", "").WithContext(ctx))
				require.NoError(t, err)
				cancel()
				bodies := base.Bodies()
				require.Zero(t, bodies[len(bodies)-1].Closes())
				for _, b := range bodies[:len(bodies)-1] {
					require.Equal(t, 1, b.Closes())
				}
			})
		})
	}
}

// A response without a body, and one whose body is not for reading, also where the first byte is waited for.
func TestHostileFirstByteOfNothing(t *testing.T) {
	t.Parallel()
	for _, hedging := range []bool{false, true} {
		t.Run(fmt.Sprintf("hedging=%t", hedging), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				pr, pw := io.Pipe()
				duplex := struct {
					io.ReadCloser
					io.Writer
				}{pr, pw}
				base := scripted.New(scripted.Step{Status: http.StatusSwitchingProtocols, BodyReader: duplex})
				tr := craceNew(t, hedgerow.Config{Base: base, Hedge: hedgerow.HedgeConfig{Signal: hedgerow.SignalFirstByte}})
				tr.SetHedging(hedging)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				req := base.NewRequest(t, http.MethodGet, craceURL, "").WithContext(ctx)
				req.Header.Set("Upgrade", "echo")
				time.AfterFunc(30*time.Second, func() { _ = pw.CloseWithError(errCrace) })
				start := time.Now()
				resp, err := tr.RoundTrip(req)
				require.NoError(t, err)
				require.Zero(t, time.Since(start), "the peer of an upgrade may wait for us to speak")
				require.Implements(t, (*io.ReadWriteCloser)(nil), resp.Body)
				require.NoError(t, resp.Body.Close())
				base.Check(t)
			})
		})
	}
}

// Switching hedging off changes nothing for a call that could not have been hedged: here a stream in both directions, whose
// server says 200 and waits for what the client sends then.
func TestHostileDuplexStream(t *testing.T) {
	t.Parallel()
	for _, hedging := range []bool{false, true} {
		t.Run(fmt.Sprintf("hedging=%t", hedging), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				base := roundTripper(func(req *http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: http.StatusOK, ContentLength: -1, ProtoMajor: 2, Body: req.Body}, nil // an echo
				})
				tr := craceNew(t, hedgerow.Config{Base: base, Hedge: hedgerow.HedgeConfig{Signal: hedgerow.SignalFirstByte}})
				tr.SetHedging(hedging)
				pr, pw := io.Pipe()
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, craceURL, pr)
				require.NoError(t, err)
				time.AfterFunc(time.Hour, func() { _ = pw.Close() })
				start := time.Now()
				resp, err := tr.RoundTrip(req)
				require.NoError(t, err)
				require.Zero(t, time.Since(start))
				go func() {
					_, _ = io.WriteString(pw, "ping")
					_ = pw.Close()
				}()
				got, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.Equal(t, "ping", string(got))
				require.NoError(t, resp.Body.Close())
			})
		})
	}
}

// TestForgottenLength has a base whose responses, made by hand, do not say how long they are, or do; its bodies end with the context.
// What the zero value says is no reason to end that.
func TestForgottenLength(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(http.RoundTripper) http.RoundTripper{
		"a Transport": func(base http.RoundTripper) http.RoundTripper {
			return contractNew(t, hedgerow.Config{Base: base, Hedge: hedgerow.HedgeConfig{Delay: time.Hour}})
		},
		"a Pool": func(base http.RoundTripper) http.RoundTripper {
			return pspecPool(t, hedgerow.PoolConfig{Resources: pspecKeys(1)}).Wrap(base)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp, err := wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
				resp := sharedAnswer(req, http.StatusOK, "")
				resp.ProtoMajor, resp.ProtoMinor = 1, 1
				resp.Body = io.NopCloser(readerFunc(func(p []byte) (int, error) {
					if err := req.Context().Err(); err != nil {
						return 0, err
					}
					return copy(p, "whole"), io.EOF
				}))
				return resp, nil
			})).RoundTrip(contractGet(t.Context(), t, pspecURL))
			require.NoError(t, err)
			require.Equal(t, "whole", contractRead(t, resp))
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
