package hedgerow_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

func diffStatus(status int) func(*diffRun, http.ResponseWriter, *http.Request) {
	return func(_ *diffRun, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Status", strconv.Itoa(status))
		w.WriteHeader(status)
	}
}

// diffEmptyBodies sends the body of unknown length first: on a connection of HTTP/2 that is there already, net/http
// answers it with a response to a copy of the request, which is nothing to be imitated.
func diffEmptyBodies(method string) func(*diffRun) {
	return func(x *diffRun) {
		x.send(x.request(method, "/unknown", io.MultiReader()))
		x.send(x.request(method, "/none", http.NoBody))
		x.send(x.request(method, "/memory", strings.NewReader("")))
	}
}

func diffHost(x *diffRun) {
	req := x.request(http.MethodGet, "/", nil)
	req.Host = "other.test"
	x.send(req)
}

func diffUserAgent(x *diffRun) {
	x.send(x.request(http.MethodGet, "/own", nil, "User-Agent", "someone"))
	req := x.request(http.MethodGet, "/none", nil)
	req.Header["User-Agent"] = nil
	x.send(req)
}

func diffSpelling(x *diffRun) {
	req := x.request(http.MethodGet, "/", nil, "X-Many", "1", "X-Many", "2")
	req.Header["x-lower"] = []string{"a", ""}
	req.Header["X-Nothing"] = []string{}
	x.send(req)
}

func diffPassword(x *diffRun) {
	req := x.request(http.MethodGet, "/", nil)
	req.URL.User = url.UserPassword("user", "secret")
	x.send(req)
	req = x.request(http.MethodGet, "/", nil, "Authorization", "Bearer x")
	req.URL.User = url.UserPassword("user", "secret")
	x.send(req)
}

// diffBareRoundTrip checks that the request is left alone, and is that of the response.
func diffBareRoundTrip(x *diffRun) {
	req := x.request("", "/a?b", strings.NewReader("payload"), "X-A", "1", "X-A", "2")
	req.Method = ""
	before := fmt.Sprintf("%v %v %v %v %v", req.Header, req.URL, req.Host, req.ContentLength, req.Close)
	resp, err := x.client.Transport.RoundTrip(req)
	require.NoError(x.t, err)
	x.finish(req, resp)
	require.Equal(x.t, before, fmt.Sprintf("%v %v %v %v %v", req.Header, req.URL, req.Host, req.ContentLength, req.Close))
}

func diffGzip(_ *diffRun, w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Asked", r.Header.Get("Accept-Encoding"))
	if r.Header.Get("Accept-Encoding") != "gzip" {
		_, _ = io.WriteString(w, "plain")
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	if r.URL.Path == "/false" {
		_, _ = io.WriteString(w, "this was never compressed")
		return
	}
	z := gzip.NewWriter(w)
	_, _ = io.WriteString(z, "compressed")
	if r.URL.Path == "/cut" {
		_ = z.Flush()
		return
	}
	_ = z.Close()
}

func diffContent(_ *diffRun, w http.ResponseWriter, r *http.Request) {
	w.Header().Set("ETag", `"tag"`)
	http.ServeContent(w, r, "file.txt", time.Unix(1e9, 0), strings.NewReader("0123456789"))
}

// diffRedirect redirects /{status} and /away to /target, and /loop to itself.
func diffRedirect(x *diffRun, w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/target":
		diffEcho(x, w, r)
	case "/loop":
		http.Redirect(w, r, "/loop", http.StatusFound)
	case "/away":
		http.Redirect(w, r, strings.Replace(x.srv.URL, "127.0.0.1", "example.com", 1)+"/target", http.StatusFound)
	default:
		status, err := strconv.Atoi(r.URL.Path[1:])
		if err != nil {
			status = http.StatusBadRequest
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Set-Cookie", "seen="+r.URL.Path[1:])
		http.Redirect(w, r, "/target?from="+r.URL.Path, status)
	}
}

func diffEveryRedirect(method string, header ...string) func(*diffRun) {
	return func(x *diffRun) {
		for _, path := range []string{"/301", "/302", "/303", "/307", "/308"} {
			x.send(x.request(method, path, strings.NewReader("payload"), header...))
		}
	}
}

// diffRedirectOnce cannot send its body a second time.
func diffRedirectOnce(x *diffRun) {
	x.send(x.request(http.MethodPost, "/307", io.MultiReader(strings.NewReader("payload"))))
}

func diffCheckRedirect(err error) func(*diffRun) {
	return func(x *diffRun) {
		x.client.CheckRedirect = func(req *http.Request, via []*http.Request) error {
			x.note("%s after %d", req.URL, len(via))
			return err
		}
		x.send(x.request(http.MethodGet, "/302", nil))
	}
}

func diffCookies(x *diffRun, w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/login" {
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "1", Path: "/", HttpOnly: true})
		http.SetCookie(w, &http.Cookie{Name: "narrow", Value: "2", Path: "/login"})
		http.Redirect(w, r, "/home", http.StatusSeeOther)
		return
	}
	diffEcho(x, w, r)
}

func diffLogin(x *diffRun) {
	x.jar()
	x.send(x.request(http.MethodGet, "/login", nil))
	x.send(x.request(http.MethodGet, "/home", nil, "Cookie", "own=3"))
	x.note("%v", x.client.Jar.Cookies(x.request(http.MethodGet, "/login", nil).URL))
}

// diffTrailers announces one of its trailers, except at /surprise.
func diffTrailers(_ *diffRun, w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/surprise" {
		w.Header().Set("Trailer", "X-Announced, X-Missing")
		defer w.Header().Set("X-Announced", "1")
	}
	_, _ = io.WriteString(w, "before")
	_ = http.NewResponseController(w).Flush()
	_, _ = io.WriteString(w, " and after")
	w.Header().Set(http.TrailerPrefix+"X-Unannounced", "2")
}

// diffInvalid makes a call that is not to be sent.
func diffInvalid(spoil func(*http.Request)) func(*diffRun) {
	return func(x *diffRun) {
		for _, send := range []func(*http.Request) (*http.Response, error){x.client.Do, x.client.Transport.RoundTrip} {
			body := diffBodyOf(strings.NewReader("payload"))
			req := x.request(http.MethodPost, "/", body)
			spoil(req)
			_, err := send(req)
			require.Error(x.t, err)
			x.fail(err)
			x.noteBody(body)
		}
	}
}

// diffIncomplete makes a call for which no endpoint can be found. The error is hedgerow's own.
func diffIncomplete(spoil func(*http.Request)) func(*diffRun) {
	return func(x *diffRun) {
		body := diffBodyOf(strings.NewReader("payload"))
		req := x.request(http.MethodPost, "/", body)
		spoil(req)
		_, err := x.client.Transport.RoundTrip(req)
		require.Error(x.t, err)
		x.noteBody(body)
	}
}

func diffRefused(x *diffRun) {
	req := x.request(http.MethodGet, "/", nil)
	req.URL.Host = "127.0.0.1:1" // a privileged port, on which nobody listens
	x.send(req)
}

// diffWrongScheme speaks the one protocol to a server of the other.
func diffWrongScheme(x *diffRun) {
	req := x.request(http.MethodGet, "/", nil)
	req.URL.Scheme = map[bool]string{true: "http", false: "https"}[x.protocol.tls]
	x.send(req)
}

// diffUnread closes bodies of which it has not read anything.
func diffUnread(x *diffRun) {
	for range 3 {
		req := x.request(http.MethodGet, "/", nil)
		resp, err := x.client.Do(req)
		require.NoError(x.t, err)
		x.response(req, resp)
		x.note("closed: %v %v", resp.Body.Close(), resp.Body.Close())
		_, err = resp.Body.Read(make([]byte, 1))
		x.note("read after close: %v", err)
	}
}

func diffCloseIdle(x *diffRun) {
	x.send(x.request(http.MethodGet, "/", nil))
	x.client.CloseIdleConnections()
	x.send(x.request(http.MethodGet, "/", nil))
}

func diffLast(x *diffRun, w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "close")
	diffEcho(x, w, r)
}
