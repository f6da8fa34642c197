package hedgerow_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
)

// diffDownload answers with so many blocks of 64 KB.
func diffDownload(blocks int) func(*diffRun, http.ResponseWriter, *http.Request) {
	return func(_ *diffRun, w http.ResponseWriter, _ *http.Request) {
		block := bytes.Repeat([]byte("download"), 8<<10)
		for range blocks {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}
}

func diffUpload(x *diffRun) {
	x.send(x.request(http.MethodPost, "/", bytes.NewReader(bytes.Repeat([]byte("uploaded"), 1<<20))))
}

func diffUploadChunked(x *diffRun) {
	body := diffBodyOf(bytes.NewReader(bytes.Repeat([]byte("uploaded"), 64<<10)))
	x.send(x.request(http.MethodPut, "/", body))
	x.noteBody(body)
}

// diffUploadCounted can be sent again, but not from memory that net/http knows of.
func diffUploadCounted(x *diffRun) {
	var bodies []*diffBody
	var mu sync.Mutex
	body := func() (io.ReadCloser, error) {
		b := diffBodyOf(iotest.OneByteReader(strings.NewReader("payload")))
		mu.Lock()
		defer mu.Unlock()
		bodies = append(bodies, b)
		return b, nil
	}
	req := x.request(http.MethodPost, "/", nil, "Idempotency-Key", "1")
	req.Body, _ = body()
	req.GetBody, req.ContentLength = body, 7
	x.send(req)
	mu.Lock()
	defer mu.Unlock()
	for _, b := range bodies {
		x.awaitClose(b)
	}
}

func diffUploadBroken(x *diffRun) {
	body := diffBodyOf(io.MultiReader(strings.NewReader("part"), iotest.ErrReader(errDiff)))
	x.send(x.request(http.MethodPost, "/", body))
	x.noteBody(body)
}

func diffUploadDeclared(length int64) func(*diffRun) {
	return func(x *diffRun) {
		body := diffBodyOf(strings.NewReader("payload"))
		req := x.request(http.MethodPost, "/", body)
		req.ContentLength, x.misdeclared = length, true
		x.send(req)
		x.awaitClose(body)
	}
}

// diffSendTrailers sends a trailer that is known only when the body has been read.
func diffSendTrailers(x *diffRun) {
	var req *http.Request
	end := diffReader(func([]byte) (int, error) {
		req.Trailer.Set("X-Sum", "7")
		return 0, io.EOF
	})
	req = x.request(http.MethodPost, "/", io.MultiReader(strings.NewReader("payload"), end))
	req.Trailer = http.Header{"X-Sum": nil}
	x.send(req)
}

// A diffReader is a function that is a reader.
type diffReader func([]byte) (int, error)

func (f diffReader) Read(p []byte) (int, error) { return f(p) }

// diffInterim leaves its header alone once it has sent an interim response: over HTTP/2 the server may still read it when
// the client has reset the stream.
func diffInterim(_ *diffRun, w http.ResponseWriter, _ *http.Request) {
	w.Header()["Link"] = []string{"</a.css>", "</b.css>"}
	w.WriteHeader(http.StatusEarlyHints)
	w.WriteHeader(http.StatusProcessing)
	_, _ = io.WriteString(w, "done")
}

// A diffInterims notes interim responses in their order, and what a hedge brings again only once.
type diffInterims struct {
	mu   sync.Mutex // guards seen
	seen []string
}

func (i *diffInterims) trace(ctx context.Context) context.Context {
	add := func(s string) {
		i.mu.Lock()
		defer i.mu.Unlock()
		if !slices.Contains(i.seen, s) {
			i.seen = append(i.seen, s)
		}
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		Got100Continue: func() { add("continue") },
		Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			add(fmt.Sprint(code, header["Link"]))
			return nil
		},
	})
}

func (i *diffInterims) String() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return strings.Join(i.seen, ", ")
}

func diffSendTraced(x *diffRun) {
	var interims diffInterims
	x.send(x.request(http.MethodGet, "/", nil).WithContext(interims.trace(x.ctx)))
	x.note("%s", &interims)
}

func diffExpect(x *diffRun) {
	var interims diffInterims
	body := diffBodyOf(strings.NewReader("payload"))
	req := x.request(http.MethodPost, "/", body, "Expect", "100-continue")
	req.ContentLength = 7
	x.send(req.WithContext(interims.trace(x.ctx)))
	x.note("%s", &interims)
	x.noteBody(body)
}

// diffEvents sends an event with its header, and each of the others when the one before was seen.
func diffEvents(x *diffRun, w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	for i := range 4 {
		_, _ = fmt.Fprintf(w, "event %d\n", i)
		_ = http.NewResponseController(w).Flush()
		x.await(r.Context(), fmt.Sprint("event ", i))
		if r.Context().Err() != nil {
			x.reach("gone")
			panic(http.ErrAbortHandler) // or the response might still come to its end
		}
	}
}

// listen reads events until the body ends, and lets the server know of each.
func (x *diffRun) listen(req *http.Request, resp *http.Response, err error) {
	require.NoError(x.t, err)
	x.response(req, resp)
	for events := bufio.NewReader(resp.Body); ; {
		line, err := events.ReadString('\n')
		if err != nil {
			x.note("%q %v", line, x.errorOf(err))
			break
		}
		x.note("%s", line)
		x.reach(strings.TrimSpace(line))
	}
	x.note("%v", resp.Body.Close())
}

func diffListen(x *diffRun) { x.listenBy(x.client, x.request(http.MethodGet, "/", nil)) }

func (x *diffRun) listenBy(client *http.Client, req *http.Request) {
	resp, err := client.Do(req)
	x.listen(req, resp, err)
}

// start makes a request and reads one line of the response.
func (x *diffRun) firstLine(client *http.Client, req *http.Request) *http.Response {
	resp, err := client.Do(req)
	require.NoError(x.t, err)
	x.response(req, resp)
	line := make([]byte, len("event 0\n"))
	_, err = io.ReadFull(resp.Body, line)
	x.note("%q %v", line, x.errorOf(err))
	return resp
}

// rest reads the rest of a body, which is to fail.
func (x *diffRun) rest(resp *http.Response) {
	body, err := io.ReadAll(resp.Body)
	x.note("%q %+v", body, x.errorOf(err))
	x.note("%v", resp.Body.Close())
}

func diffHangUp(x *diffRun) {
	resp := x.firstLine(x.client, x.request(http.MethodGet, "/", nil))
	x.note("%v", resp.Body.Close())
	x.await(x.ctx, "gone")
}

// diffDuplex answers each line before it reads the next.
func diffDuplex(_ *diffRun, w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	if r.Method == http.MethodConnect && r.ProtoMajor == 1 {
		conn, buf, err := rc.Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
		diffAnswer(conn, buf, func() error { return nil })
		_ = conn.Close()
		return
	}
	_ = rc.EnableFullDuplex() // HTTP/2 needs no leave
	w.WriteHeader(http.StatusOK)
	_ = rc.Flush()
	diffAnswer(w, r.Body, rc.Flush)
}

func diffAnswer(w io.Writer, r io.Reader, flush func() error) {
	for lines := bufio.NewReader(r); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		_, _ = io.WriteString(w, "heard "+line)
		_ = flush()
		if line == "bye\n" {
			return
		}
	}
}

func diffConverse(method, path string, header ...string) func(*diffRun) {
	return func(x *diffRun) {
		body, say := io.Pipe()
		req := x.request(method, path, body, header...)
		resp, err := x.client.Do(req)
		require.NoError(x.t, err)
		x.response(req, resp)
		answers := bufio.NewReader(resp.Body)
		for _, line := range []string{"one\n", "two\n", "bye\n"} {
			_, err := io.WriteString(say, line)
			require.NoError(x.t, err)
			answer, err := answers.ReadString('\n')
			x.note("%q %v", answer, err)
		}
		require.NoError(x.t, say.Close())
		x.rest(resp)
	}
}

// diffHang reads the request and does not answer.
func diffHang(x *diffRun, _ http.ResponseWriter, r *http.Request) {
	x.reach("started")
	if _, err := io.Copy(io.Discard, r.Body); err == nil {
		<-r.Context().Done()
	}
	x.reach("gone")
	panic(http.ErrAbortHandler)
}

func diffTimeout(x *diffRun) {
	x.client.Timeout = 20 * time.Millisecond
	x.send(x.request(http.MethodGet, "/", nil))
}

// diffTimeoutInBody gives more time when it was too short to get into the body.
func diffTimeoutInBody(x *diffRun) {
	for x.client.Timeout = 50 * time.Millisecond; ; x.client.Timeout *= 2 {
		req := x.request(http.MethodGet, "/", nil)
		resp, err := x.client.Do(req)
		if err != nil {
			require.Less(x.t, x.client.Timeout, time.Minute, "%v", err)
			continue
		}
		if _, err = io.ReadFull(resp.Body, make([]byte, len("event 0\n"))); err != nil {
			_ = resp.Body.Close()
			continue
		}
		x.response(req, resp)
		_, err = io.ReadAll(resp.Body)
		x.fail(err)
		_ = resp.Body.Close() // over HTTP/2 it may fail, over anything but an http.Transport
		return
	}
}

func diffDeadline(x *diffRun) {
	ctx, cancel := context.WithTimeout(x.ctx, 20*time.Millisecond)
	defer cancel()
	x.send(x.request(http.MethodGet, "/", nil).WithContext(ctx))
}

func diffDeadlinePassed(x *diffRun) {
	ctx, cancel := context.WithTimeout(x.ctx, -time.Second)
	defer cancel()
	body := diffBodyOf(strings.NewReader("payload"))
	x.send(x.request(http.MethodPost, "/", body).WithContext(ctx))
	x.noteBody(body)
}

func diffCancelBefore(x *diffRun) {
	for _, cause := range []error{nil, errDiff} {
		ctx, cancel := context.WithCancelCause(x.ctx)
		cancel(cause)
		x.send(x.request(http.MethodGet, "/", nil).WithContext(ctx))
	}
}

func diffCancelWaiting(x *diffRun) {
	ctx, cancel := context.WithCancel(x.ctx)
	go func() {
		x.await(ctx, "started")
		cancel()
	}()
	x.send(x.request(http.MethodGet, "/", nil).WithContext(ctx))
	x.await(x.ctx, "gone")
}

// diffCancelCause accepts the cause as well as the plain error: HTTP/1.1 returns the one, HTTP/2 the other
// (go.dev/issue/72898), and a detached call always the first.
func diffCancelCause(x *diffRun) {
	ctx, cancel := context.WithCancelCause(x.ctx)
	go func() {
		x.await(ctx, "started")
		cancel(errDiff)
	}()
	_, err := x.client.Do(x.request(http.MethodGet, "/", nil).WithContext(ctx))
	require.Error(x.t, err)
	x.note("%v", errors.Is(err, errDiff) || errors.Is(err, context.Canceled))
	x.await(x.ctx, "gone")
}

func diffCancelUpload(x *diffRun) {
	ctx, cancel := context.WithCancel(x.ctx)
	go func() {
		x.await(ctx, "started")
		cancel()
	}()
	body := diffBodyOf(diffReader(func(p []byte) (int, error) { return len(p), nil }))
	x.send(x.request(http.MethodPost, "/", body).WithContext(ctx))
	x.awaitClose(body)
	x.await(x.ctx, "gone")
}

func diffCancelReading(x *diffRun) {
	ctx, cancel := context.WithCancel(x.ctx)
	resp := x.firstLine(x.client, x.request(http.MethodGet, "/", nil).WithContext(ctx))
	cancel()
	x.rest(resp)
	x.await(x.ctx, "gone")
}

func diffCancelRequest(x *diffRun) {
	req := x.request(http.MethodGet, "/", nil)
	stop := make(chan struct{})
	req.Cancel = stop //nolint:staticcheck // it is deprecated, but http.Client.Timeout uses it
	go func() {
		x.await(x.ctx, "started")
		close(stop)
	}()
	_, err := x.client.Do(req)
	require.Error(x.t, err) // net/http's own, which is not exported, or if the call is detached another one
	x.note("%v", x.errorOf(err).Timeout)
	x.await(x.ctx, "gone")
}
