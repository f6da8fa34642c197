package hedgerow

import (
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
)

// masked is what a secret prints as.
const masked = "***"

// A Credential is what a pool puts into the attempts on one resource. It prints as *** in every verb, in JSON and in slog;
// there is no way to read the secret back. The zero value sets nothing. It may be used by several resources.
type Credential struct {
	c *credential // behind a pointer, because fmt calls no methods on unexported fields of others
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
// not be empty.
func BasicAuth(user, secret string) Credential {
	encoded := base64.StdEncoding.EncodeToString([]byte(user + ":" + secret))
	c := headerCredential("Authorization", "Basic "+encoded, secret, encoded)
	if strings.Contains(user, ":") {
		c.c.fault = "the user contains a colon"
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
	return Credential{c}
}

// CredentialFunc sets whatever it wants on the attempt's own clone of the request, such as several headers or a
// signature. It is called last, with the final URL, Host and headers, and may run concurrently. An error fails the
// attempt before it is sent. What it sets cannot be told from the rest, so it is not masked in error texts. nil is an
// error from [NewPool].
func CredentialFunc(set func(*http.Request) error) Credential {
	c := &credential{set: set}
	if set == nil {
		c.fault = "the func is nil"
	}
	return Credential{c}
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
	for _, s := range secrets {
		c.secrets = append(c.secrets, spellings(s)...)
	}
	return Credential{c}
}

// spellings returns the forms in which a secret may show up in a text.
func spellings(secret string) []string {
	if secret == "" {
		return nil
	}
	all := []string{secret}
	for _, s := range []string{
		url.QueryEscape(secret), url.PathEscape(secret), fmt.Sprintf("%q", secret)[1:],
		base64.StdEncoding.EncodeToString([]byte(secret)),
	} {
		s = strings.TrimSuffix(s, `"`)
		if s != secret {
			all = append(all, s)
		}
	}
	return all
}

// IsZero reports whether the credential sets nothing.
func (c Credential) IsZero() bool { return c.c == nil }

// Format writes *** for every verb and flag.
func (c Credential) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(masked)) }

// MarshalText returns ***; it is also what JSON shows.
func (c Credential) MarshalText() ([]byte, error) { return []byte(masked), nil }

// LogValue returns ***.
func (c Credential) LogValue() slog.Value { return slog.StringValue(masked) }

// same reports whether c and d put the same into a request. Funcs are the same if the credentials are the same value.
func (c Credential) same(d Credential) bool {
	if c.c == d.c {
		return true
	}
	return c.c != nil && d.c != nil && c.c.set == nil && d.c.set == nil &&
		c.c.header == d.c.header && c.c.query == d.c.query && c.c.value == d.c.value
}

// setsURL reports whether the credential may change the URL.
func (c Credential) setsURL() bool { return c.c != nil && (c.c.query != "" || c.c.set != nil) }

// apply puts the credential into req, whose headers, and URL if it sets that, are its own. value is room for a header field.
func (c Credential) apply(req *http.Request, value *[1]string) error {
	switch {
	case c.c == nil:
	case c.c.set != nil:
		return c.c.set(req)
	case c.c.query != "":
		req.URL.RawQuery = setQuery(req.URL.RawQuery, c.c.query, c.c.value)
	default:
		for k := range req.Header { // all spellings: HTTP/1.1 would send each
			if len(k) == len(c.c.header) && strings.EqualFold(k, c.c.header) {
				delete(req.Header, k)
			}
		}
		value[0] = c.c.value
		req.Header[c.c.header] = value[:1:1]
	}
	return nil
}

// setQuery returns raw with value for name, as its last parameter. The others stay byte for byte.
func setQuery(raw, name, value string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(raw, "&") {
		key, _, _ := strings.Cut(part, "=")
		if k, err := url.QueryUnescape(key); part == "" || err == nil && k == name {
			continue
		}
		b.WriteString(part)
		b.WriteByte('&')
	}
	return b.String() + url.QueryEscape(name) + "=" + url.QueryEscape(value)
}

// redact returns err, or, if its text holds one of the secrets, an error with the same text but for them.
func (c Credential) redact(err error) error {
	if c.c == nil || err == nil {
		return err
	}
	text := err.Error()
	for _, s := range c.c.secrets {
		text = strings.ReplaceAll(text, s, masked)
	}
	if text == err.Error() {
		return err
	}
	return &redactedError{text: text, cause: func() error { return err }}
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
	url func() (*url.URL, error) // a func, because fmt would print a pointer's content
	str string                   // without the password
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
		return Proxy{url: func() (*url.URL, error) { return u, nil }, str: u.Redacted()}
	}
	return Proxy{url: func() (*url.URL, error) { return nil, err }, str: masked}
}

// IsZero reports whether there is no proxy.
func (p Proxy) IsZero() bool { return p.url == nil }

// String returns the URL without its password.
func (p Proxy) String() string { return p.str }

// Format writes what String returns, for every verb and flag.
func (p Proxy) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(p.str)) }

// MarshalText returns what String returns.
func (p Proxy) MarshalText() ([]byte, error) { return []byte(p.str), nil }

// LogValue returns what String returns.
func (p Proxy) LogValue() slog.Value { return slog.StringValue(p.str) }

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
