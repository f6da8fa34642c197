package reverseproxy_test

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
	"github.com/hedgerow-go/hedgerow/integration/internal/wsecho"
)

func TestWebsocket(t *testing.T) {
	t.Parallel()
	back := bed.Serve(t, "h1", wsecho.Handler(websocket.AcceptOptions{}))
	pool := bed.NewPool(t, hedgerow.PoolConfig{
		Hosts: []string{"ws.example.com"}, Resources: []hedgerow.Resource{{ID: "a", Upstream: back.URL}},
	})
	tr := bed.New(t, hedgerow.Config{Base: pool.Wrap(bed.Mark(back.Base)), Hedge: bed.Soon()})
	done := make(chan struct{})
	through := newProxy(t, "https://ws.example.com", tr)
	front := bed.Serve(t, "h1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		through.ServeHTTP(w, r)
	}))

	conn, _, err := websocket.Dial(bed.Timeout(t), front.URL, &websocket.DialOptions{HTTPClient: front.Client()})
	require.NoError(t, err)
	conn.SetReadLimit(-1)
	require.NoError(t, conn.Write(bed.Timeout(t), websocket.MessageText, []byte(large)))
	_, got, err := conn.Read(bed.Timeout(t))
	require.NoError(t, err)
	bed.RequireSame(t, large, string(got))
	require.Equal(t, 1, pool.Stats().InFlight)
	require.NoError(t, conn.Close(websocket.StatusNormalClosure, ""))
	<-done
	require.Zero(t, pool.Stats().InFlight)
	require.Equal(t, map[hedgerow.SkipReason]uint64{hedgerow.SkipUpgrade: 1}, tr.Stats().Total.Skipped)
}

// Trailers come through, announced or not, also those of a hedge.
func TestTrailers(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		back := bed.Serve(t, proto, bed.HoldPrimary(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Announced")
			bed.Echo(w, r)
			w.Header().Set("X-Announced", "one")
			w.Header().Set(http.TrailerPrefix+"X-Late", "two")
		})))
		tr := bed.New(t, hedgerow.Config{Base: bed.Mark(back.Base), Hedge: bed.Soon()})
		front := bed.Serve(t, proto, newProxy(t, back.URL, tr))
		resp, err := front.Client().Get(front.URL)
		bed.RequireWhole(t, resp, err)
		require.Equal(t, http.Header{"X-Announced": {"one"}, "X-Late": {"two"}}, resp.Trailer)
		require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
	})
}

// Events come through one by one, also those of a hedge: each is sent when the one before has been read.
func TestServerSentEvents(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		next := make(chan struct{})
		back := bed.Serve(t, proto, bed.HoldPrimary(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for _, event := range []string{"one", "two", "three"} {
				_, err := io.WriteString(w, "data: "+event+"\n\n")
				if err = errors.Join(err, http.NewResponseController(w).Flush()); err != nil {
					t.Error(err)
				}
				if !bed.Await(r, next) {
					return
				}
			}
		})))
		tr := bed.New(t, hedgerow.Config{Base: bed.Mark(back.Base), Hedge: bed.Once()})
		p := newProxy(t, back.URL, tr)
		p.FlushInterval = -1
		front := bed.Serve(t, proto, p)
		req, err := http.NewRequestWithContext(bed.Timeout(t), http.MethodGet, front.URL, nil)
		require.NoError(t, err)
		resp, err := front.Client().Do(req)
		require.NoError(t, err)
		events := bufio.NewReader(resp.Body)
		for _, event := range []string{"one", "two", "three"} {
			line, err := events.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, "data: "+event+"\n", line)
			_, err = events.ReadString('\n')
			require.NoError(t, err)
			next <- struct{}{}
		}
		_, err = events.ReadByte()
		require.ErrorIs(t, err, io.EOF)
		require.NoError(t, resp.Body.Close())
		require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
	})
}

// Fields that are for one hop stay on it. Those that the proxy adds are on every attempt.
func TestHopByHop(t *testing.T) {
	t.Parallel()
	back := bed.Serve(t, "h1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("X-Private") + r.Header.Get("Proxy-Authorization"); got != "" {
			t.Errorf("%s got %q", r.Header.Get(bed.MarkHeader), got)
		}
		if got := r.Header.Get("X-Forwarded-For"); got != "127.0.0.1" {
			t.Errorf("%s came for %q", r.Header.Get(bed.MarkHeader), got)
		}
		if bed.IsPrimary(r) {
			bed.Hold(r)
		}
		w.Header().Set("Connection", "X-Secret")
		w.Header().Set("X-Secret", "secret")
		w.Header().Set("X-Public", "public")
		bed.Echo(w, r)
	}))
	tr := bed.New(t, hedgerow.Config{Base: bed.Mark(back.Base), Hedge: bed.Soon()})
	p := newProxy(t, back.URL, tr)
	rewrite := p.Rewrite
	p.Rewrite = func(r *httputil.ProxyRequest) {
		rewrite(r)
		r.SetXForwarded()
	}
	front := bed.Serve(t, "h1", p)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front.URL, nil)
	require.NoError(t, err)
	req.Header.Set("Connection", "X-Private")
	req.Header.Set("X-Private", "private")
	req.Header.Set("Proxy-Authorization", "private")
	resp, err := front.Client().Do(req)
	bed.RequireWhole(t, resp, err)
	require.Empty(t, resp.Header.Get("X-Secret"))
	require.Equal(t, "public", resp.Header.Get("X-Public"))
	require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
}

// Informational responses come through from every attempt, so a client of a hedged call may see one twice: here the hedge
// sends its own when the client has seen that of the primary.
func TestInformational(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		first := make(chan struct{})
		back := bed.Serve(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if bed.IsHedge(r) && !bed.Await(r, first) {
				return
			}
			w.Header().Set("Link", "</"+r.Header.Get(bed.MarkHeader)+".css>")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
			if bed.IsPrimary(r) {
				bed.Hold(r)
			}
			bed.Echo(w, r)
		}))
		tr := bed.New(t, hedgerow.Config{Base: bed.Mark(back.Base), Hedge: bed.Once()})
		front := bed.Serve(t, proto, newProxy(t, back.URL, tr))
		var links []string
		ctx := httptrace.WithClientTrace(bed.Timeout(t), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
				if code == http.StatusEarlyHints {
					if links = append(links, header.Get("Link")); len(links) == 1 {
						close(first)
					}
				}
				return nil
			},
		})
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, front.URL, nil)
		require.NoError(t, err)
		resp, err := front.Client().Do(req)
		bed.RequireWhole(t, resp, err)
		require.Empty(t, resp.Header.Get("Link"))
		require.Equal(t, []string{"</primary.css>", "</hedge.css>"}, links)
		require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
	})
}
