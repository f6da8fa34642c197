package hedgerow_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
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

// C35: the winner's body is whole, although it comes long after the race.
func TestC35WinnersBodyIsWhole(t *testing.T) {
	t.Parallel()
	text := contractText(256 << 10)
	type winner struct {
		hedge, detach bool
		signal        hedgerow.Signal
	}
	winners := map[string]winner{
		"primary":             {},
		"hedge":               {hedge: true},
		"primary, detached":   {detach: true},
		"hedge, detached":     {hedge: true, detach: true},
		"primary, first byte": {signal: hedgerow.SignalFirstByte},
		"hedge, first byte":   {hedge: true, signal: hedgerow.SignalFirstByte},
	}
	run := func(t *testing.T, base *http.Transport, target string, served *atomic.Int64, c winner) {
		t.Helper()
		tr := contractNew(t, hedgerow.Config{
			Base: contractMark{base}, Detach: c.detach,
			Hedge: hedgerow.HedgeConfig{Signal: c.signal, Delay: contractDelay},
		})
		resp, err := tr.RoundTrip(contractGet(t.Context(), t, target))
		require.NoError(t, err)
		require.Equal(t, text, contractRead(t, resp))
		require.EqualValues(t, 2, served.Load())
		want := hedgerow.Counters{Requests: 1, Hedged: 1, Hedges: 1, PrimaryWins: 1}
		if c.hedge {
			want.PrimaryWins, want.HedgeWins = 0, 1
		}
		require.Equal(t, want, tr.Stats().Total)
	}
	// The primary answers after twice the hedge delay, or not at all; the hedge the other way round.
	handler := func(c winner, served *atomic.Int64) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			served.Add(1)
			if primary := r.Header.Get("X-Attempt") == "primary"; primary == c.hedge {
				<-r.Context().Done()
				return
			}
			for served.Load() < 2 { // the winner waits for the other
				time.Sleep(contractDelay)
			}
			for i := range 8 {
				_, _ = io.WriteString(w, text[i*len(text)/8:(i+1)*len(text)/8])
				contractFlush(w)
				time.Sleep(contractDelay)
			}
		}
	}
	for name, c := range winners {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			memhttp.Each(t, func(t *testing.T, proto memhttp.Protocol) {
				var served atomic.Int64
				srv := memhttp.NewServer(t, proto, handler(c, &served))
				run(t, srv.Transport(), srv.URL()+"/", &served, c)
			})
		})
		t.Run(name+" on loopback", func(t *testing.T) {
			t.Parallel()
			contractEach(t, func(t *testing.T, proto memhttp.Protocol) {
				t.Helper()
				var served atomic.Int64
				srv := contractListen(t, proto, handler(c, &served))
				run(t, srv.Base, srv.URL+"/", &served, c)
			})
		})
	}
}

// contractSwitch is a handler that takes over the connection and echoes until the client has closed its side.
func contractSwitch(w http.ResponseWriter, _ *http.Request) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	_ = rw.Flush()
	_, _ = io.Copy(conn, rw)
	_, _ = conn.Write([]byte("bye"))
}

// C36: a connection that was taken over stays one, asked for or not.
func TestC36SwitchingProtocols(t *testing.T) {
	t.Parallel()
	srv := contractListen(t, memhttp.HTTP1, contractSwitch)
	slow := contractListen(t, memhttp.HTTP1, contractHangs(contractSwitch))
	echo := func(t *testing.T, resp *http.Response) {
		t.Helper()
		require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
		conn, ok := resp.Body.(io.ReadWriteCloser)
		require.True(t, ok, "%T", resp.Body)
		half, ok := resp.Body.(interface{ CloseWrite() error })
		require.True(t, ok, "%T", resp.Body)
		time.Sleep(2 * contractDelay) // no hedge comes between
		text := contractText(100 << 10)
		go func() {
			_, _ = io.WriteString(conn, text)
			_ = half.CloseWrite()
		}()
		got, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.Equal(t, text+"bye", string(got))
		require.NoError(t, conn.Close())
	}
	upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}}
	for _, signal := range []hedgerow.Signal{hedgerow.SignalHeaders, hedgerow.SignalFirstByte} {
		for name, wrap := range map[string]func(*http.Transport) http.RoundTripper{
			"over net/http":     func(b *http.Transport) http.RoundTripper { return b },
			"over unknown base": func(b *http.Transport) http.RoundTripper { return contractMark{b} },
		} {
			t.Run(name+" by "+signal.String(), func(t *testing.T) {
				t.Parallel()
				hedge := hedgerow.HedgeConfig{Signal: signal}
				tr := contractNew(t, hedgerow.Config{Base: wrap(srv.Base), Hedge: hedge})
				for _, call := range []hedgerow.Call{{}, {NoHedge: true}} {
					req := contractGetWith(t, srv.URL+"/", upgrade)
					resp, err := tr.RoundTrip(req.WithContext(hedgerow.WithCall(req.Context(), call)))
					require.NoError(t, err)
					echo(t, resp)
				}
				require.Equal(t, map[hedgerow.SkipReason]uint64{hedgerow.SkipUpgrade: 1, hedgerow.SkipDisabled: 1},
					tr.Stats().Total.Skipped)

				tr = contractNew(t, hedgerow.Config{Base: wrap(srv.Base), Hedge: hedge})
				resp, err := tr.RoundTrip(contractGet(t.Context(), t, srv.URL+"/"))
				require.NoError(t, err)
				echo(t, resp)

				tr = contractNew(t, hedgerow.Config{Base: wrap(slow.Base), Hedge: hedge})
				resp, err = tr.RoundTrip(contractGet(t.Context(), t, slow.URL+"/"+url.PathEscape(t.Name())))
				require.NoError(t, err)
				echo(t, resp)
				total := tr.Stats().Total
				require.EqualValues(t, 1, total.Hedges)
				require.EqualValues(t, 1, total.HedgeWins+total.PrimaryWins) // which came first, and hangs, is the network's choice
			})
		}
	}
	t.Run("through ReverseProxy", func(t *testing.T) {
		t.Parallel()
		upstream, err := url.Parse(srv.URL)
		require.NoError(t, err)
		proxy := httputil.NewSingleHostReverseProxy(upstream)
		proxy.Transport = contractNew(t, hedgerow.Config{Base: srv.Base})
		front := httptest.NewServer(proxy)
		t.Cleanup(front.Close)
		client := &http.Transport{}
		t.Cleanup(client.CloseIdleConnections)
		resp, err := client.RoundTrip(contractGetWith(t, front.URL+"/", upgrade))
		require.NoError(t, err)
		echo(t, resp)
	})
}

// C38: a body may be closed after its end, and twice.
func TestC38CloseAfterEOF(t *testing.T) {
	t.Parallel()
	contractBubbles(t, map[string]hedgerow.Config{
		"headers":    {},
		"first byte": {Hedge: hedgerow.HedgeConfig{Signal: hedgerow.SignalFirstByte}},
		"detached":   {Detach: true},
		"not hedged": {Hedge: hedgerow.HedgeConfig{Disabled: true}},
		"not hedged, first byte": {Hedge: hedgerow.HedgeConfig{
			Disabled: true, Signal: hedgerow.SignalFirstByte,
		}},
	}, func(t *testing.T, cfg hedgerow.Config) {
		t.Helper()
		base := scripted.Func(func(int, *http.Request) scripted.Step { return scripted.Step{Body: "ok"} })
		cfg.Base = base
		tr := contractNew(t, cfg)
		for _, read := range []bool{true, false} {
			resp, err := tr.RoundTrip(contractGet(t.Context(), t, contractURL))
			require.NoError(t, err)
			if read {
				body, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.Equal(t, "ok", string(body))
			}
			ctx := base.Records()[len(base.Records())-1].Request.Context()
			require.NoError(t, resp.Body.Close())
			if !cfg.Hedge.Disabled {
				require.Error(t, ctx.Err(), "the attempt has ended")
				require.NoError(t, resp.Body.Close())
			}
			n, err := resp.Body.Read(make([]byte, 1))
			require.Error(t, err)
			require.Zero(t, n)
		}
		contractSettle(t, base)
	})
}

// C41: trailers, announced or not, are on the response that was returned.
func TestC41TrailersArriveWithTheEnd(t *testing.T) {
	t.Parallel()
	text := contractText(64 << 10)
	trailers := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "A")
		_, _ = io.WriteString(w, text)
		contractFlush(w)
		time.Sleep(contractDelay)
		w.Header().Set("A", "1")
		w.Header().Set(http.TrailerPrefix+"B", "2")
	}
	for name, hangs := range map[string]bool{"primary": false, "hedge": true} {
		for _, signal := range []hedgerow.Signal{hedgerow.SignalHeaders, hedgerow.SignalFirstByte} {
			t.Run(name+" by "+signal.String(), func(t *testing.T) {
				t.Parallel()
				contractEach(t, func(t *testing.T, proto memhttp.Protocol) {
					t.Helper()
					handler := trailers
					if hangs {
						handler = contractHangs(trailers)
					}
					srv := contractListen(t, proto, handler)
					tr := contractNew(t, hedgerow.Config{Base: srv.Base, Hedge: hedgerow.HedgeConfig{Signal: signal}})
					resp, err := tr.RoundTrip(contractGet(t.Context(), t, srv.URL+"/"))
					require.NoError(t, err)
					require.Equal(t, text, contractRead(t, resp))
					require.Equal(t, http.Header{"A": {"1"}, "B": {"2"}}, resp.Trailer)
				})
			})
		}
	}
}

// C41: also those of a stream that is declared to have no content, beneath a layer that hides the transport.
func TestC41TrailersOfAnEmptyStream(t *testing.T) {
	t.Parallel()
	srv := contractListen(t, memhttp.HTTP2, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "A")
		w.Header().Set("Content-Length", "0")
		contractFlush(w)
		time.Sleep(contractDelay)
		w.Header().Set("A", "1")
	})
	pool, err := hedgerow.NewPool(hedgerow.PoolConfig{Resources: []hedgerow.Resource{{ID: "a"}}})
	require.NoError(t, err)
	wrapped := roundTrip(srv.Base.RoundTrip)
	for name, rt := range map[string]http.RoundTripper{
		"hedged": contractNew(t, hedgerow.Config{Base: wrapped, Hedge: hedgerow.HedgeConfig{Delay: time.Hour}}),
		"pooled": pool.Wrap(wrapped),
	} {
		resp, err := rt.RoundTrip(contractGet(t.Context(), t, srv.URL+"/"))
		require.NoError(t, err, name)
		require.Empty(t, contractRead(t, resp), name)
		require.Equal(t, http.Header{"A": {"1"}}, resp.Trailer, name)
	}
}

// C42: Close ends a Read that blocks.
func TestC42CloseUnblocksRead(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]bool{"primary": false, "hedge": true} {
		for _, signal := range []hedgerow.Signal{hedgerow.SignalHeaders, hedgerow.SignalFirstByte} {
			t.Run(name+" by "+signal.String(), func(t *testing.T) {
				t.Parallel()
				contractEach(t, func(t *testing.T, proto memhttp.Protocol) {
					t.Helper()
					open := func(w http.ResponseWriter, r *http.Request) {
						_, _ = io.WriteString(w, "first")
						contractFlush(w)
						<-r.Context().Done()
					}
					if hangs {
						open = contractHangs(open)
					}
					srv := contractListen(t, proto, open)
					tr := contractNew(t, hedgerow.Config{Base: srv.Base, Hedge: hedgerow.HedgeConfig{Signal: signal}})
					resp, err := tr.RoundTrip(contractGet(t.Context(), t, srv.URL+"/"))
					require.NoError(t, err)
					first := make([]byte, 5)
					_, err = io.ReadFull(resp.Body, first)
					require.NoError(t, err)
					require.Equal(t, "first", string(first))
					ended := make(chan error, 1)
					go func() {
						_, err := resp.Body.Read(first)
						ended <- err
					}()
					time.Sleep(5 * time.Millisecond)
					require.NoError(t, resp.Body.Close())
					require.Error(t, contractTimeout(t, ended, "the read"))
				})
			})
		}
	}
}

// contractValues is a body of scripted reads.
type contractValues struct {
	reads []contractValue
	next  int
}

type contractValue struct {
	data string
	err  error
}

func (b *contractValues) Read(p []byte) (int, error) {
	if b.next == len(b.reads) {
		return 0, io.EOF
	}
	v := &b.reads[b.next]
	n := copy(p, v.data)
	if v.data = v.data[n:]; v.data != "" {
		return n, nil
	}
	b.next++
	return n, v.err
}

func (*contractValues) Close() error { return nil }

// C44: what the body's Read returns is what the caller gets.
func TestC44ReadResultsPassUnchanged(t *testing.T) {
	t.Parallel()
	custom := fmt.Errorf("wrapped: %w", io.EOF)
	bodies := map[string][]contractValue{
		"cancelled":         {{"abc", nil}, {"", context.Canceled}},
		"cut short":         {{"abc", nil}, {"", io.ErrUnexpectedEOF}},
		"data with EOF":     {{"abc", io.EOF}},
		"data with error":   {{"abc", custom}},
		"one byte with EOF": {{"a", io.EOF}},
		"a byte with error": {{"a", custom}},
		"nothing, then EOF": {{"", io.EOF}},
		"empty reads":       {{"", nil}, {"a", nil}, {"", nil}, {"", nil}, {"bc", nil}, {"", custom}},
		"pieces":            {{"ab", nil}, {"c", nil}, {"defg", nil}},
	}
	for name, reads := range bodies {
		for _, signal := range []hedgerow.Signal{hedgerow.SignalHeaders, hedgerow.SignalFirstByte} {
			for kind, attempts := range map[string]int{"primary": 1, "hedge": 2} {
				t.Run(name+" of the "+kind+" by "+signal.String(), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						want, bare := contractValuesRead(&contractValues{reads: append([]contractValue(nil), reads...)}, false)
						last := scripted.Step{BodyReader: &contractValues{reads: append([]contractValue(nil), reads...)}}
						base := scripted.New(last)
						if attempts == 2 {
							base = scripted.New(scripted.Step{After: time.Minute}, last)
						}
						tr := contractNew(t, hedgerow.Config{Base: base, Hedge: hedgerow.HedgeConfig{Signal: signal}})
						resp, err := tr.RoundTrip(contractGet(t.Context(), t, contractURL))
						require.NoError(t, err)
						// With SignalFirstByte an empty read must not lose the byte that was looked at.
						text, got := contractValuesRead(resp.Body, signal == hedgerow.SignalFirstByte)
						require.Equal(t, want, text)
						require.Equal(t, bare[len(bare)-1].err, got[len(got)-1].err)
						if signal == hedgerow.SignalHeaders {
							require.Equal(t, bare, got)
						}
						require.NoError(t, resp.Body.Close())
						contractSettle(t, base)
					})
				})
			}
		}
	}
}

// contractValuesRead reads body to its end, and returns the text and each result.
func contractValuesRead(body io.Reader, poke bool) (string, []contractValue) {
	var text strings.Builder
	var results []contractValue
	p := make([]byte, 3)
	for {
		if poke && len(results) == 0 {
			if n, err := body.Read(nil); n != 0 {
				return "", []contractValue{{"", errors.Join(errContract, err)}}
			}
		}
		n, err := body.Read(p)
		text.Write(p[:n])
		results = append(results, contractValue{string(p[:n]), err})
		if err != nil {
			return text.String(), results
		}
	}
}
