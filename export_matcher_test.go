package hedgerow

import "net/url"

// Matcher is the matcher with exported methods.
type Matcher[T any] = matcher[T]

func (m *matcher[T]) With(pattern string, v T) (*matcher[T], error) { return m.with(pattern, v) }

func (m *matcher[T]) Match(method, host string, u *url.URL) (v T, ok bool) {
	return m.match(method, host, u)
}
