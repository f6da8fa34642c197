package hedgerow_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
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

// An earlyStack is what the tests below put in front of a base. No hedge is due. What passes is a pool or a Transport that has
// nothing to do with the call.
type earlyStack struct {
	pools                     int
	transport, detach         bool
	passingPool, passingTrans bool
	signer                    hedgerow.Credential // zero: earlySigner
}

var earlyStacks = map[string]earlyStack{
	"transport": {transport: true}, "detached": {transport: true, detach: true}, "pool": {pools: 1}, "pools": {pools: 2},
	"both": {pools: 1, transport: true}, "transport, pool passes": {transport: true, passingPool: true},
	"pool, transport passes": {pools: 1, passingTrans: true},
	"both, both pass":        {pools: 1, transport: true, passingPool: true, passingTrans: true},
}

// over puts the stack in front of base. Its pools sign the calls to the hosts.
func (s earlyStack) over(t *testing.T, base http.RoundTripper, hosts ...string) http.RoundTripper {
	t.Helper()
	if s.passingTrans {
		base = contractNew(t, hedgerow.Config{Base: base, Hedge: hedgerow.HedgeConfig{Disabled: true}})
	}
	if s.passingPool {
		base = pspecPool(t, hedgerow.PoolConfig{Hosts: []string{"elsewhere.test"}, Resources: pspecKeys(1)}).Wrap(base)
	}
	for range s.pools {
		a := hedgerow.Resource{ID: "a"}
		if len(hosts) > 0 {
			a.Credential = s.signer
			if a.Credential.IsZero() {
				a.Credential = earlySigner
			}
		}
		p, err := hedgerow.NewPool(hedgerow.PoolConfig{Hosts: hosts, Resources: []hedgerow.Resource{a}})
		require.NoError(t, err)
		base = p.Wrap(base)
	}
	if s.transport {
		base = contractNew(t, hedgerow.Config{Base: base, Detach: s.detach, Hedge: hedgerow.HedgeConfig{Delay: time.Hour}})
	}
	return base
}

// earlySigner looks at copies of the body: at all of it, as a hash does with or without a look at the end, at the first byte, and
// at nothing. It closes none.
var earlySigner = hedgerow.CredentialFunc(func(req *http.Request) error {
	for _, n := range []int64{math.MaxInt64, req.ContentLength, 1, 0} {
		body, err := req.GetBody()
		if err != nil {
			return err
		}
		if _, err = io.Copy(io.Discard, io.LimitReader(body, n)); err != nil {
			return err
		}
	}
	return nil
})

// earlyWrapper wraps the body, as what signs it while it is sent does.
var earlyWrapper = hedgerow.CredentialFunc(func(req *http.Request) error {
	req.Body = struct{ io.ReadCloser }{req.Body}
	return nil
})

// earlyReplacer puts a copy in the place of the body.
var earlyReplacer = hedgerow.CredentialFunc(func(req *http.Request) error {
	body, err := req.GetBody()
	if err == nil {
		_ = req.Body.Close()
		req.Body = body
	}
	return err
})

// earlyStranger reads the body, and puts what it has read in its place.
var earlyStranger = hedgerow.CredentialFunc(func(req *http.Request) error {
	content, err := io.ReadAll(req.Body)
	_ = req.Body.Close()
	req.Body = io.NopCloser(bytes.NewReader(content))
	return err
})

// earlyUpload returns a request that may be hedged, with its body in memory or from a reader that takes its time.
func earlyUpload(t *testing.T, url, content string, slow bool) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader(content))
	require.NoError(t, err)
	req.Header.Set("Idempotency-Key", "k")
	if slow {
		req.Body = io.NopCloser(earlyReader{strings.NewReader(content)})
	}
	return req
}

// An earlyReader reads a thousand bytes at a time, and takes a millisecond for that.
type earlyReader struct{ io.Reader }

func (r earlyReader) Read(p []byte) (int, error) {
	time.Sleep(time.Millisecond)
	return r.Reader.Read(p[:min(len(p), 1000)])
}

// An earlyEnd says its end with the last byte. It may be told when to begin, and says when it has.
type earlyEnd struct {
	*strings.Reader

	may  <-chan struct{}
	read chan<- struct{}
}

func (r earlyEnd) Read(p []byte) (int, error) {
	<-r.may
	first := r.Len() == int(r.Size())
	n, err := r.Reader.Read(p)
	if r.Len() == 0 {
		err = io.EOF
	}
	if first {
		close(r.read)
	}
	return n, err
}

// earlyAnswers are responses that are over at once.
func earlyAnswers() map[string]func() *http.Response {
	return map[string]func() *http.Response{
		"nothing": func() *http.Response {
			return &http.Response{StatusCode: http.StatusNoContent, Header: http.Header{}, Body: http.NoBody}
		},
		"declared empty": func() *http.Response {
			return &http.Response{
				StatusCode: http.StatusOK, Header: http.Header{"Content-Length": {"0"}}, Body: io.NopCloser(strings.NewReader("")),
			}
		},
		"content": func() *http.Response {
			return &http.Response{
				StatusCode: http.StatusOK, Header: http.Header{}, ContentLength: -1, Body: io.NopCloser(strings.NewReader("x")),
			}
		},
	}
}

// An earlyBase answers when it has begun to read the request, and goes on with that.
type earlyBase struct {
	answer func() *http.Response
	upto   int64 // how much it reads

	sent *http.Request
	got  chan string
}

func (b *earlyBase) RoundTrip(req *http.Request) (*http.Response, error) {
	b.sent, b.got = req, make(chan string, 1)
	var got bytes.Buffer
	_, err := io.CopyN(&got, req.Body, 500)
	go func() {
		for err == nil && int64(got.Len()) < b.upto && req.Context().Err() == nil {
			time.Sleep(time.Millisecond)
			_, err = io.CopyN(&got, req.Body, 500)
		}
		_ = req.Body.Close()
		b.got <- got.String()
	}()
	return b.answer(), nil
}

// A server may answer in full before it has the whole of an upload, and go on to read that (RFC 9113, section 8.1). The
// context of the attempt lasts until the base is through with the request, and no longer.
func TestEarlyResponseLeavesTheUploadAlone(t *testing.T) {
	t.Parallel()
	content := contractText(20_000)
	for name, stack := range earlyStacks {
		for answer, response := range earlyAnswers() {
			for _, slow := range []bool{true, false} {
				for _, upto := range []int{10_000, 20_000, 30_000} { // the base closes it early, at its length, at its end
					t.Run(fmt.Sprintf("%s, %s, slow %v, %d", name, answer, slow, upto), func(t *testing.T) {
						t.Parallel()
						synctest.Test(t, func(t *testing.T) {
							base := &earlyBase{answer: response, upto: int64(upto)}
							var hosts []string
							stack := stack
							if upto == len(content) {
								hosts, stack.signer = []string{"http://x.test"}, earlyReplacer
							}
							resp, err := stack.over(t, base, hosts...).RoundTrip(earlyUpload(t, "http://x.test/", content, slow))
							require.NoError(t, err)
							_, err = io.Copy(io.Discard, resp.Body)
							require.NoError(t, err)
							synctest.Wait()
							require.NoError(t, base.sent.Context().Err())
							require.Equal(t, content[:min(upto, len(content))], <-base.got)
							synctest.Wait()
							require.Error(t, base.sent.Context().Err())
							require.NoError(t, resp.Body.Close())
						})
					})
				}
			}
		}
	}
}

// The same for the upload of an attempt that follows one which was refused early.
func TestEarlyResponseAfterARefusal(t *testing.T) {
	t.Parallel()
	content := contractText(20_000)
	for name, stack := range map[string]earlyStack{"pool": {}, "pools": {pools: 1}, "both": {transport: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				second := &earlyBase{answer: earlyAnswers()["nothing"], upto: 30_000}
				refusing := &earlyBase{answer: func() *http.Response {
					return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{}, Body: http.NoBody}
				}, upto: 30_000}
				p := pspecPool(t, hedgerow.PoolConfig{
					Hosts: []string{"http://x.test"}, Resources: pspecKeys(2), Strategy: hedgerow.PrimaryBackup,
				})
				rt := stack.over(t, p.Wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
					if pspecKey(req.Header) == "A" {
						return refusing.RoundTrip(req)
					}
					return second.RoundTrip(req)
				})))
				resp, err := rt.RoundTrip(earlyUpload(t, "http://x.test/", content, false))
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, content, <-second.got)
				synctest.Wait()
				require.Error(t, second.sent.Context().Err())
				require.Error(t, refusing.sent.Context().Err())
				require.Less(t, len(<-refusing.got), len(content))
			})
		})
	}
}

// A refusal that comes early over HTTP/1.1 is followed by the next attempt at once, and kept, although its end waits for that of
// the upload (contract C74).
func TestEarlyRefusalIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	for _, last := range []int{http.StatusOK, http.StatusServiceUnavailable, 0} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			var at time.Duration
			srv := memhttp.NewServer(t, memhttp.HTTP1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_ = http.NewResponseController(w).EnableFullDuplex()
				if pspecKey(r.Header) == "A" {
					w.WriteHeader(http.StatusTooManyRequests)
					for _, part := range []string{"ref", "used"} {
						_, _ = io.WriteString(w, part)
						contractFlush(w)
						time.Sleep(time.Millisecond)
					}
					return
				}
				at = time.Since(start)
				if last == 0 {
					panic(http.ErrAbortHandler)
				}
				_, _ = io.Copy(io.Discard, r.Body)
				w.WriteHeader(last)
			}))
			p := pspecPool(t, hedgerow.PoolConfig{
				Hosts: []string{srv.URL()}, Resources: pspecKeys(2), Strategy: hedgerow.PrimaryBackup, MaxAttempts: 2,
			})
			resp, err := p.Wrap(srv.Transport()).RoundTrip(earlyUpload(t, srv.URL(), contractText(200_000), true))
			require.NoError(t, err)
			require.Less(t, at, 10*time.Millisecond)
			if last == 0 {
				require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
				require.Equal(t, "refused", contractRead(t, resp))
				return
			}
			require.Equal(t, last, resp.StatusCode)
			require.NoError(t, resp.Body.Close())
		})
	}
}

// The same beneath a pool and a race: that a hedge is signed does not concern the upload of the primary beside it.
func TestEarlyResponseBesideASignedHedge(t *testing.T) {
	t.Parallel()
	content := contractText(200_000)
	for _, signer := range []hedgerow.Credential{earlySigner, hedgerow.CredentialFunc(func(*http.Request) error { return nil })} {
		synctest.Test(t, func(t *testing.T) {
			primary := &earlyBase{upto: 1 << 20, answer: func() *http.Response {
				time.Sleep(100 * time.Millisecond) // a hedge is sent meanwhile
				return earlyAnswers()["nothing"]()
			}}
			var hedges atomic.Int32
			signing := pspecPool(t, hedgerow.PoolConfig{
				Hosts: []string{"http://x.test"}, Resources: []hedgerow.Resource{{ID: "a", Credential: signer}, {ID: "b", Credential: signer}},
			})
			race := contractNew(t, hedgerow.Config{
				Hedge: hedgerow.HedgeConfig{Delay: 10 * time.Millisecond, MaxHedges: 1},
				Base: signing.Wrap(roundTrip(func(req *http.Request) (*http.Response, error) {
					if a, _ := hedgerow.AttemptFromContext(req.Context()); a.Kind == hedgerow.AttemptPrimary {
						return primary.RoundTrip(req)
					}
					hedges.Add(1)
					<-req.Context().Done()
					return nil, req.Context().Err()
				})),
			})
			resp, err := earlyStack{pools: 1}.over(t, race).RoundTrip(earlyUpload(t, "http://x.test/", content, false))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, content, <-primary.got)
			require.EqualValues(t, 1, hedges.Load())
			synctest.Wait()
			require.Error(t, primary.sent.Context().Err())
		})
	}
}

// A response without content need not be read before it is closed.
func TestEarlyEmptyResponseClosedUnread(t *testing.T) {
	t.Parallel()
	for name, stack := range earlyStacks {
		for _, answer := range []string{"nothing", "declared empty"} {
			t.Run(name+", "+answer, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					base := &earlyBase{answer: earlyAnswers()[answer], upto: 30_000}
					resp, err := stack.over(t, base).RoundTrip(earlyUpload(t, "http://x.test/", contractText(20_000), true))
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
					require.Len(t, <-base.got, 20_000)
				})
			})
		}
	}
}

// What a CredentialFunc sends without a body has it closed.
func TestCredentialFuncSendsNoBody(t *testing.T) {
	t.Parallel()
	for _, instead := range []io.ReadCloser{nil, http.NoBody} {
		base := scripted.New(scripted.Step{})
		p := pspecPool(t, hedgerow.PoolConfig{Resources: []hedgerow.Resource{
			{ID: "a", Credential: hedgerow.CredentialFunc(func(req *http.Request) error {
				req.Body, req.ContentLength = instead, 0
				return nil
			})},
		}})
		body := &contractBody{src: strings.NewReader("payload")}
		req := contractGet(t.Context(), t, pspecURL)
		req.Method, req.Body, req.ContentLength = http.MethodPut, body, 7
		resp, err := p.Wrap(base).RoundTrip(req)
		require.NoError(t, err)
		_ = contractRead(t, resp)
		require.EqualValues(t, 1, body.closes.Load())
	}
}

// A response that is closed before its end ends the upload.
func TestEarlyCloseEndsTheUpload(t *testing.T) {
	t.Parallel()
	for name, stack := range earlyStacks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				base := &earlyBase{answer: earlyAnswers()["content"], upto: 1 << 20}
				resp, err := stack.over(t, base).RoundTrip(earlyUpload(t, "http://x.test/", contractText(20_000), true))
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Error(t, base.sent.Context().Err())
				require.Less(t, len(<-base.got), 20_000)
			})
		})
	}
}

// Over HTTP/2 an http.Transport goes on with such an upload, also if it had no leave to send any of it before, and if it is a
// second send of its own after a stream that was refused.
func TestEarlyEndOfStream(t *testing.T) {
	t.Parallel()
	for name, stack := range earlyStacks {
		for _, answer := range []string{"", "x"} {
			for _, body := range []string{"in memory", "slow", "at its end"} {
				for size, refused := range map[int]bool{3000: false, 4000: false, 5000: true, 6000: true, 150_000: true, 200_000: false} {
					t.Run(fmt.Sprintf("%s, %q, %s, %d", name, answer, body, size), func(t *testing.T) {
						t.Parallel()
						read := make(chan struct{})
						gated := body == "at its end" && !refused // of a stream that is refused nothing may have been read
						if !gated {
							close(read)
						}
						url, settled, allow, sent := earlyServer(t, answer, refused, read)
						var hosts []string
						stack := stack
						if size%3000 != 0 {
							hosts = []string{url}
							switch {
							case size%4000 == 0 && body == "at its end":
								stack.signer = earlyWrapper
							case size%4000 == 0 && body == "slow":
								stack.signer = earlyStranger
							case size%4000 == 0:
								stack.signer = earlyReplacer
							}
						}
						base := &http.Transport{
							TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
							ForceAttemptHTTP2: true,
						}
						defer base.CloseIdleConnections()
						req := earlyUpload(t, url, contractText(size), body == "slow")
						if gated {
							req.Body = io.NopCloser(earlyEnd{strings.NewReader(contractText(size)), settled, read})
						}
						resp, err := stack.over(t, base, hosts...).RoundTrip(req)
						require.NoError(t, err)
						require.Equal(t, 2, resp.ProtoMajor)
						got, err := io.ReadAll(resp.Body)
						require.NoError(t, err)
						require.Equal(t, answer, string(got))
						close(allow)
						require.Equal(t, fmt.Sprint(size, " bytes, whole"), contractTimeout(t, sent, "the upload"))
						require.NoError(t, resp.Body.Close())
					})
				}
			}
		}
	}
}

// What is not sent is not waited for: a copy that was made for a signature or that a layer has looked at, and a body that a layer
// has read in place of the base. Neither is closed.
func TestEarlyResponseAwaitsOnlyWhatIsSent(t *testing.T) {
	t.Parallel()
	for name, stack := range earlyStacks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(w, r.Body)
			}))
			defer srv.Close()
			base := &http.Transport{}
			defer base.CloseIdleConnections()
			signing := earlyStack{pools: 1}.over(t, base, srv.URL)
			get := func(req *http.Request, look func(io.Reader) error) {
				body, err := req.GetBody()
				require.NoError(t, err)
				require.NoError(t, look(body))
			}
			looking := func(look func(io.Reader) error, below http.RoundTripper) http.RoundTripper {
				return roundTrip(func(req *http.Request) (*http.Response, error) {
					get(req, look)
					resp, err := below.RoundTrip(req)
					get(req, look) // for its log
					return resp, err
				})
			}
			all := func(r io.Reader) error { _, err := io.Copy(io.Discard, r); return err }
			length := func(r io.Reader) error { _, err := io.CopyN(io.Discard, r, 10_000); return err }
			begin := func(r io.Reader) error { _, err := io.CopyN(io.Discard, r, 1); return err }
			replacing, err := hedgerow.NewPool(hedgerow.PoolConfig{Hosts: []string{srv.URL}, Resources: []hedgerow.Resource{
				{ID: "a", Credential: hedgerow.CredentialFunc(func(req *http.Request) error {
					body, err := req.GetBody()
					if err == nil {
						_, err = io.CopyN(io.Discard, body, 1)
					}
					req.Body = struct{ io.ReadCloser }{req.Body}
					return err
				})},
			}})
			require.NoError(t, err)
			forgetting, err := hedgerow.NewPool(hedgerow.PoolConfig{Hosts: []string{srv.URL}, Resources: []hedgerow.Resource{
				{ID: "a", Credential: hedgerow.CredentialFunc(func(req *http.Request) error {
					req.Body = io.NopCloser(strings.NewReader(contractText(10_000)))
					return nil
				})},
			}})
			require.NoError(t, err)
			passing := earlyStack{passingPool: true}.over(t, base)
			var attempts []context.Context
			for _, below := range []http.RoundTripper{
				signing,
				earlyStack{pools: 1}.over(t, roundTrip(base.RoundTrip), srv.URL),
				replacing.Wrap(base), forgetting.Wrap(base),
				looking(all, signing), looking(length, signing), looking(begin, signing),
				looking(all, base), looking(length, base), looking(begin, base),
				looking(begin, passing), looking(begin, roundTrip(base.RoundTrip)),
				roundTrip(func(req *http.Request) (*http.Response, error) {
					wrapped := req.Clone(req.Context())
					wrapped.Body = struct{ io.ReadCloser }{req.Body}
					return signing.RoundTrip(wrapped)
				}),
				roundTrip(func(req *http.Request) (*http.Response, error) {
					content, err := io.ReadAll(req.Body)
					return sharedAnswer(req, http.StatusOK, string(content)), err
				}),
				roundTrip(func(req *http.Request) (*http.Response, error) { return sharedAnswer(req, http.StatusOK, ""), nil }),
			} {
				spy := roundTrip(func(req *http.Request) (*http.Response, error) {
					attempts = append(attempts, req.Context())
					return below.RoundTrip(req)
				})
				resp, err := stack.over(t, spy).RoundTrip(earlyUpload(t, srv.URL, contractText(10_000), false))
				require.NoError(t, err)
				_ = contractRead(t, resp)
			}
			for _, ctx := range attempts {
				contractTimeout(t, ctx.Done(), "the end of the attempt")
			}
		})
	}
}

// earlyServer speaks enough HTTP/2 (RFC 9113) for one upload: it closes settled when the client knows that it has no leave to send,
// answers at the first HEADERS, or then if it may not yet, ends the stream on its side, and gives leave to send when allow is closed. It says how
// the upload has ended.
func earlyServer(t *testing.T, content string, refuses bool, may <-chan struct{}) (
	url string, settled <-chan struct{}, allow chan<- struct{}, got <-chan string,
) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.StartTLS() // for its certificate
	config := &tls.Config{Certificates: s.TLS.Certificates, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}
	s.Close()
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	require.NoError(t, err)
	ended, allowed, done, knows := make(chan string, 1), make(chan struct{}), make(chan struct{}), make(chan struct{})
	t.Cleanup(func() {
		close(done)
		require.NoError(t, l.Close())
	})
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		n, how := earlyServe(conn, content, refuses, knows, may, allowed)
		ended <- fmt.Sprint(n, " bytes, ", how)
		<-done
		_ = conn.Close()
	}()
	return "https://" + l.Addr().String(), knows, allowed, ended
}

// earlyServe serves one upload, and returns how many bytes of it came and how it ended.
func earlyServe(
	conn io.ReadWriter, content string, refuses bool, settled chan<- struct{}, may, allowed <-chan struct{},
) (n int, how string) {
	const (
		data, headers, reset, settings, windowUpdate = 0, 1, 3, 4, 8 // frame types

		ack, endStream, endHeaders = 1, 1, 4 // flags
	)
	write := func(kind, flags byte, stream uint32, payload ...byte) {
		frame := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
		frame = binary.BigEndian.AppendUint32(append(frame, flags), stream)
		_, _ = conn.Write(append(frame, payload...))
	}
	preface := make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
	if _, err := io.ReadFull(conn, preface); err != nil {
		return 0, err.Error()
	}
	write(settings, 0, 0, 0, 4, 0, 0, 0, 0) // SETTINGS_INITIAL_WINDOW_SIZE: 0
	var asked uint32                        // the stream to answer
	acked := false                          // or it does not matter
	select {
	case <-may:
		acked = true
	default:
	}
	for header := make([]byte, 9); ; {
		if acked && asked != 0 {
			<-may
			if content == "" {
				write(headers, endHeaders|endStream, asked, 0x88) // :status 200
			} else {
				write(headers, endHeaders, asked, 0x88)
				write(data, endStream, asked, []byte(content)...)
			}
			<-allowed
			write(windowUpdate, 0, asked, 0, 0, 0xff, 0xff)
			asked = 0
		}
		if _, err := io.ReadFull(conn, header); err != nil {
			return n, err.Error()
		}
		kind, flags, stream := header[3], header[4], binary.BigEndian.Uint32(header[5:])
		payload := make([]byte, binary.BigEndian.Uint32(header)>>8)
		if _, err := io.ReadFull(conn, payload); err != nil {
			return n, err.Error()
		}
		switch {
		case kind == settings && flags&ack == 0:
			write(settings, ack, 0)
		case kind == settings:
			acked = true
			close(settled)
		case kind == headers && refuses && stream == 1:
			write(reset, 0, stream, 0, 0, 0, 7) // REFUSED_STREAM
		case refuses && stream == 1:
			if kind == data { // sent before the settings came
				write(windowUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, uint32(len(payload)))...)
			}
		case kind == headers:
			asked = stream
		case kind == reset:
			return n, "reset"
		case kind == data:
			n += len(payload)
			if flags&endStream != 0 {
				return n, "whole"
			}
			room := binary.BigEndian.AppendUint32(nil, uint32(len(payload)))
			write(windowUpdate, 0, 0, room...)
			write(windowUpdate, 0, stream, room...)
		}
	}
}
