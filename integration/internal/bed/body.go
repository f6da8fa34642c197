package bed

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// Large is a size that does not fit into one read, one frame or one window.
const Large = 96 << 10

// Pattern returns n bytes whose place can be told: they repeat after a length that no buffer has.
func Pattern(n int) []byte {
	b := make([]byte, n)
	for i := range min(n, 65537) {
		b[i] = byte('a' + (i*7+i/251)%26)
	}
	for done := 65537; done < n; {
		done += copy(b[done:], b[:65537])
	}
	return b
}

// ReadBody returns the body of a request, and fails the test if it does not come whole.
func ReadBody(t *testing.T, r *http.Request) []byte {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Errorf("request body: %v", err)
	}
	return b
}

// ReadFirst returns next behind [ReadBody]: it is called when the body has come whole, which it can read once more.
func ReadFirst(t *testing.T, next http.Handler) http.Handler {
	t.Helper()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = io.NopCloser(bytes.NewReader(ReadBody(t, r)))
		next.ServeHTTP(w, r)
	})
}

// Echo answers GET with [Pattern] of [Large], and anything else with what it is sent.
func Echo(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		_, _ = w.Write(Pattern(Large))
		return
	}
	body, err := io.ReadAll(r.Body)
	if err == nil { // else the client has gone
		_, _ = w.Write(body)
	}
}

// Whole returns an error unless resp is a 200 with [Pattern] of [Large] as its body, which it reads and closes.
func Whole(resp *http.Response, err error) error {
	if err != nil {
		return err
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return differ(string(Pattern(Large)), string(body))
}

// RequireWhole requires what [Whole] says.
func RequireWhole(t *testing.T, resp *http.Response, err error) {
	t.Helper()
	require.NoError(t, Whole(resp, err))
}

// RequireSame is require.Equal for texts that are too long to print.
func RequireSame(t *testing.T, want, got string) {
	t.Helper()
	require.NoError(t, differ(want, got))
}

func differ(want, got string) error {
	if want == got {
		return nil
	}
	return fmt.Errorf("%d bytes came that begin with %.40q, not %d that begin with %.40q", len(got), got, len(want), want)
}
