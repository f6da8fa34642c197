package hedgerow

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// masked is what a secret prints as.
const masked = "***"

// A Credential is what a pool puts into the attempts on one resource. It prints as *** in every verb, in JSON and in slog;
// there is no way to read the secret back. The zero value sets nothing. It may be used by several resources.
type Credential struct {
	get func() *credential // a func, because fmt calls no methods on unexported fields of others; it may follow a pointer
}

// A credential is one of: a header field, a query parameter, a func.
type credential struct {
	header, value string
	query         string // name; the value is in value
	set           func(*http.Request) error

	secrets []string // as they may show up in texts, the longest first
	fault   string   // what is wrong with it
}

// Bearer is "Authorization: Bearer secret". The secret must not be empty, and be a valid header value.
func Bearer(secret string) Credential {
	return headerCredential("Authorization", "Bearer "+secret, secret)
}

// HeaderKey is a header field with the secret as its value. The name must be a valid one; the secret must not be empty, and
// be a valid header value.
func HeaderKey(name, secret string) Credential {
	return headerCredential(name, secret, secret)
}

// BasicAuth is "Authorization: Basic" with user and secret (RFC 7617). The user must not contain a colon; the secret must
// not be empty; neither may contain a control character.
func BasicAuth(user, secret string) Credential {
	encoded := base64.StdEncoding.EncodeToString([]byte(user + ":" + secret))
	c := headerCredential("Authorization", "Basic "+encoded, secret, encoded)
	switch {
	case strings.Contains(user, ":"):
		c.get().fault = "the user contains a colon"
	case !validHeaderValue(user + secret):
		c.get().fault = "the user or the secret contains a control character"
	}
	return c
}

// QueryKey is a query parameter with the secret as its value. Values that the caller gave for name are removed. Neither
// name nor secret may be empty.
func QueryKey(name, secret string) Credential {
	c := &credential{query: name, value: secret}
	switch {
	case name == "":
		c.fault = "the name is empty"
	case secret == "":
		c.fault = "the secret is empty"
	}
	c.secrets = spellings(secret)
	return Credential{func() *credential { return c }}
}

// CredentialFunc sets whatever it wants on the attempt's own clone of the request, such as several headers or a
// signature. It is called last, with the URL, Host and headers that the pool sends, and may run concurrently. A pool beneath may
// have upstreams of its own: what signs the URL belongs in the innermost pool. It may read a copy of the body from GetBody, which
// is nil if there is no body, or none that can be had again. It may wrap Body, or put another in its place: both are closed.
//
// An error fails the attempt before it is sent, and counts as a transport failure of its resource: the call goes on to another
// one, whatever its method, if it has no body or one that can be had again, and others are preferred for a while. With none left
// the caller gets the error, or it is the Err of an [ExhaustedError]. It takes one of [PoolConfig].MaxAttempts, but is no attempt
// to [Hooks], or to the counters.
//
// What it sets cannot be told from the rest, so neither that nor the text of its error is masked in error texts. nil is an error
// from [NewPool].
func CredentialFunc(set func(*http.Request) error) Credential {
	c := &credential{set: set}
	if set == nil {
		c.fault = "the func is nil"
	}
	return Credential{func() *credential { return c }}
}

func headerCredential(name, value string, secrets ...string) Credential {
	c := &credential{header: http.CanonicalHeaderKey(name), value: value}
	switch {
	case name == "":
		c.fault = "the name is empty"
	case !validToken(name):
		c.fault = "the name is not a valid header name"
	case secrets[0] == "":
		c.fault = "the secret is empty"
	case !validHeaderValue(value):
		c.fault = "the secret is not a valid header value"
	}
	c.secrets = spellings(secrets...)
	return Credential{func() *credential { return c }}
}

// spellings returns the forms in which secrets may show up in a text, the longest first, because one may be a part of
// another.
func spellings(secrets ...string) []string {
	var all []string
	for _, s := range secrets {
		if s == "" {
			continue
		}
		quoted := strconv.Quote(s)
		all = append(all, s, url.QueryEscape(s), url.PathEscape(s), url.UserPassword("", s).String()[1:],
			quoted[1:len(quoted)-1], base64.StdEncoding.EncodeToString([]byte(s)))
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return slices.Compact(all)
}

// IsZero reports whether the credential sets nothing.
func (c Credential) IsZero() bool { return c.get == nil }

// load returns what the credential sets, nil if that is nothing.
func (c Credential) load() *credential {
	if c.get == nil {
		return nil
	}
	return c.get()
}

// Format writes *** for every verb and flag.
func (c Credential) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(masked)) }

// MarshalText returns ***; it is also what JSON shows.
func (c Credential) MarshalText() ([]byte, error) { return []byte(masked), nil }

// LogValue returns ***.
func (c Credential) LogValue() slog.Value { return slog.StringValue(masked) }

// same reports whether c and d put the same into a request. Funcs are the same if the credentials are the same value.
func (c Credential) same(d Credential) bool {
	a, b := c.load(), d.load()
	if a == b {
		return true
	}
	return a != nil && b != nil && a.set == nil && b.set == nil &&
		a.header == b.header && a.query == b.query && a.value == b.value
}

// setsURL reports whether the credential may change the URL.
func (c Credential) setsURL() bool {
	what := c.load()
	return what != nil && (what.query != "" || what.set != nil)
}

// setsAnything reports whether the credential is a func, which may change whatever it wants.
func (c Credential) setsAnything() bool {
	v := c.load()
	return v != nil && v.set != nil
}

// apply puts the credential into req, whose headers, and URL if it sets that, are its own. value is room for a header field.
func (c Credential) apply(req *http.Request, value *[1]string) error {
	what := c.load()
	switch {
	case what == nil:
	case what.set != nil:
		return what.set(req)
	case what.query != "":
		req.URL.RawQuery = setQuery(req.URL.RawQuery, what.query, what.value)
	default:
		for k := range req.Header { // all spellings: HTTP/1.1 would send each
			if len(k) == len(what.header) && strings.EqualFold(k, what.header) {
				delete(req.Header, k)
			}
		}
		value[0] = what.value
		req.Header[what.header] = value[:1:1]
	}
	return nil
}

// setQuery returns raw with value for name, as its last parameter. The others stay byte for byte.
func setQuery(raw, name, value string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(raw, "&") {
		key, _, _ := strings.Cut(part, "=")
		if k, err := url.QueryUnescape(key); raw == "" || err == nil && k == name {
			continue
		}
		b.WriteString(part)
		b.WriteByte('&')
	}
	return b.String() + url.QueryEscape(name) + "=" + url.QueryEscape(value)
}

// redact returns err, or, if its text holds a secret of the resource, an error with the same text but for that.
func (s *spec) redact(err error) error {
	if err == nil {
		return nil
	}
	before := err.Error()
	text := before
	if c := s.Credential.load(); c != nil {
		text = mask(text, c.secrets)
	}
	if !s.Proxy.IsZero() {
		text = mask(text, s.Proxy.get().secrets)
	}
	if text == before {
		return err
	}
	return &redactedError{text: text, cause: func() error { return err }}
}

func mask(text string, secrets []string) string {
	for _, s := range secrets {
		text = strings.ReplaceAll(text, s, masked)
	}
	return text
}

// A redactedError is an error whose text held a secret. It answers for the error that it stands for, but does not hand it
// out, because printing that would show the secret.
type redactedError struct {
	text  string
	cause func() error // a func, which prints as an address
}

func (e *redactedError) Error() string { return e.text }

// Is reports whether the error matches target.
func (e *redactedError) Is(target error) bool { return errors.Is(e.cause(), target) }

// Timeout reports whether the error is a timeout.
func (e *redactedError) Timeout() bool { return isTimeout(e.cause()) }

// Temporary reports what the error says of itself. net.Error has it.
func (e *redactedError) Temporary() bool {
	t, ok := errors.AsType[interface {
		error
		Temporary() bool
	}](e.cause())
	return ok && t.Temporary()
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && t.Timeout()
}

// A Proxy is the proxy of one resource. It prints without its password. The zero value leaves it to the base transport.
type Proxy struct {
	get func() *proxy // a func, as in Credential
}

type proxy struct {
	url     *url.URL
	fault   error    // what is wrong with it; url is nil then
	str     string   // without the password
	secrets []string // as in a credential
}

// ProxyURL is the proxy at raw, such as http://user:secret@host:port. The scheme is http, https or socks5; anything else is
// an error from [NewPool].
func ProxyURL(raw string) Proxy {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		err = errors.New("is not a URL") // the error would show the password
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5":
		err = errors.New("the scheme is not http, https or socks5")
	case u.Host == "":
		err = errors.New("has no host")
	default:
		p := &proxy{url: u, str: u.Redacted()}
		password, ok := u.User.Password()
		if user := u.User.Username(); user != "" && password == "" { // some put the secret there
			shown := *u
			shown.User = url.User(masked)
			p.str = strings.ReplaceAll(shown.String(), url.PathEscape(masked), masked)
			p.secrets = spellings(user)
		} else if ok {
			pair := u.User.Username() + ":" + password
			p.secrets = spellings(password, base64.StdEncoding.EncodeToString([]byte(pair)))
		}
		return Proxy{func() *proxy { return p }}
	}
	p := &proxy{fault: err, str: masked}
	return Proxy{func() *proxy { return p }}
}

// IsZero reports whether there is no proxy.
func (p Proxy) IsZero() bool { return p.get == nil }

// String returns the URL without its password.
func (p Proxy) String() string {
	if p.get == nil {
		return ""
	}
	return p.get().str
}

// Format writes what String returns, for every verb and flag.
func (p Proxy) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(p.String())) }

// MarshalText returns what String returns.
func (p Proxy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// LogValue returns what String returns.
func (p Proxy) LogValue() slog.Value { return slog.StringValue(p.String()) }

// validToken reports whether s is a token of RFC 9110, section 5.6.2.
func validToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

// validHeaderValue reports whether net/http would send s as a field value: RFC 9110, section 5.5, without line folding.
func validHeaderValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// clean takes the secret out of where the server redirects to: servers repeat the query there, and http.Client would put it
// into the caller's request, its errors, and what it sends to another host.
func (c *credential) clean(h http.Header) {
	for i, to := range h["Location"] {
		h["Location"][i] = c.cleanURL(to, maxNested)
	}
}

// maxNested is how deep a URL is looked for in the parameters of another: the login of a login of what was asked for.
const maxNested = 3

// cleanURL returns a URL without the secret, also in the URLs that its parameters hold.
func (c *credential) cleanURL(to string, nested int) string {
	head, fragment, marked := strings.Cut(to, "#")
	path, query, ok := strings.Cut(head, "?")
	if !ok {
		return to
	}
	var parts []string
	for part := range strings.SplitSeq(query, "&") {
		k, v, _ := strings.Cut(part, "=")
		name, err1 := url.QueryUnescape(k)
		value, err2 := url.QueryUnescape(v)
		switch {
		case err1 != nil || err2 != nil:
		case name == c.query && value == c.value:
			continue
		case nested == 0:
		case c.cleanURL(v, nested-1) != v: // one that was not escaped
			part = k + "=" + c.cleanURL(v, nested-1)
		case c.cleanURL(value, nested-1) != value:
			part = k + "=" + url.QueryEscape(c.cleanURL(value, nested-1))
		}
		parts = append(parts, part)
	}
	if to = path; len(parts) > 0 {
		to += "?" + strings.Join(parts, "&")
	}
	if marked {
		to += "#" + fragment
	}
	return to
}
