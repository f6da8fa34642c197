package scripted_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errScript = errors.New("scripted fault")

// recorder is a testing.TB that keeps what Check reports.
type recorder struct {
	testing.TB
	faults []string
}

func (*recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

func TestStepsInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := scripted.New(
			scripted.Step{After: time.Second, Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"5"}}, Body: "limit"},
			scripted.Step{Err: errScript},
			scripted.Step{},
		)
		start := time.Now()

		resp, err := base.RoundTrip(base.NewRequest(t, http.MethodPost, "http://api.test/v1", "payload"))
		require.NoError(t, err)
		require.Equal(t, time.Second, time.Since(start))
		require.Equal(t, "429 Too Many Requests", resp.Status)
		require.Equal(t, http.Header{"Retry-After": {"5"}}, resp.Header)
		require.EqualValues(t, 5, resp.ContentLength)
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, "limit", string(got))
		require.NoError(t, resp.Body.Close())

		_, err = base.RoundTrip(base.NewRequest(t, http.MethodGet, "http://api.test/v2", ""))
		require.Same(t, errScript, err)

		resp, err = base.RoundTrip(base.NewRequest(t, http.MethodGet, "http://api.test/v3", ""))
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
		base.Check(t)

		records := base.Records()
		require.Len(t, records, 3)
		require.Equal(t, "payload", string(records[0].Body))
		require.Equal(t, http.MethodPost+" http://api.test/v1", records[0].Method+" "+records[0].URL)
		require.Equal(t, time.Second, records[0].End.Sub(records[0].Start))
		require.NoError(t, records[0].Cause)
	})
}

func TestCheckReports(t *testing.T) {
	t.Parallel()
	const url = "http://api.test/"
	for _, tt := range []struct {
		name string
		do   func(t *testing.T, base *scripted.Transport)
		want []string
	}{
		{"response body left open", func(t *testing.T, base *scripted.Transport) {
			t.Helper()
			_, err := base.RoundTrip(base.NewRequest(t, http.MethodGet, url, ""))
			require.NoError(t, err)
		}, []string{"scripted: body 0, of a response, closed 0 times"}},
		{"response body closed twice", func(t *testing.T, base *scripted.Transport) {
			t.Helper()
			resp, err := base.RoundTrip(base.NewRequest(t, http.MethodGet, url, ""))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.NoError(t, resp.Body.Close())
		}, []string{"scripted: body 0, of a response, closed 2 times"}},
		{"request bodies left open", func(t *testing.T, base *scripted.Transport) {
			t.Helper()
			_, err := base.NewRequest(t, http.MethodPost, url, "never sent").GetBody()
			require.NoError(t, err)
		}, []string{
			"scripted: body 0, of a request, closed 0 times",
			"scripted: body 1, of a request, closed 0 times",
		}},
		{"attempt beyond the script", func(t *testing.T, base *scripted.Transport) {
			t.Helper()
			resp, err := base.RoundTrip(base.NewRequest(t, http.MethodGet, url, ""))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			_, err = base.RoundTrip(base.NewRequest(t, http.MethodGet, url, ""))
			require.ErrorContains(t, err, "no step for attempt 1")
		}, []string{"scripted: 1 attempts beyond the script"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			base := scripted.New(scripted.Step{})
			tt.do(t, base)
			r := &recorder{TB: t}
			base.Check(r)
			require.Equal(t, tt.want, r.faults)
		})
	}
}

func TestCheckReportsRunningAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := scripted.New(scripted.Step{After: time.Second, Err: errScript})
		req := base.NewRequest(t, http.MethodGet, "http://api.test/", "")
		ended := make(chan error)
		go func() {
			_, err := base.RoundTrip(req)
			ended <- err
		}()
		synctest.Wait()
		r := &recorder{TB: t}
		base.Check(r)
		require.Equal(t, []string{"scripted: attempt 0, GET http://api.test/, has not ended"}, r.faults)
		require.ErrorIs(t, <-ended, errScript)
		base.Check(t)
	})
}

func TestContext(t *testing.T) {
	t.Parallel()
	cancelled := errors.New("superseded")
	for _, tt := range []struct {
		name              string
		step              scripted.Step
		callErr, readErr  error
		callTime, allTime time.Duration
	}{
		{"during After", scripted.Step{After: time.Minute}, cancelled, nil, time.Second, time.Second},
		{"during BodyAfter", scripted.Step{BodyAfter: time.Minute, Body: "x"}, nil, cancelled, 0, time.Second},
		{"After ignores it", scripted.Step{After: time.Minute, IgnoreContext: true}, nil, nil, time.Minute, time.Minute},
		{"BodyAfter ignores it", scripted.Step{BodyAfter: time.Minute, IgnoreContext: true}, nil, nil, 0, time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				base := scripted.New(tt.step)
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(cancelled) })
				start := time.Now()
				resp, err := base.RoundTrip(base.NewRequest(t, http.MethodGet, "http://api.test/", "").WithContext(ctx))
				require.Equal(t, tt.callErr, err)
				require.Equal(t, tt.callTime, time.Since(start))
				if err == nil {
					_, err = io.ReadAll(resp.Body)
					require.Equal(t, tt.readErr, err)
					require.NoError(t, resp.Body.Close())
				} else {
					require.Equal(t, cancelled, base.Records()[0].Cause)
				}
				require.Equal(t, tt.allTime, time.Since(start))
				base.Check(t)
			})
		})
	}
}

// A winner whose context is cancelled too early loses the rest of its body.
func TestCancelInTheMiddleOfABody(t *testing.T) {
	t.Parallel()
	base := scripted.New(scripted.Step{Body: "0123456789"})
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := base.RoundTrip(base.NewRequest(t, http.MethodGet, "http://api.test/", "").WithContext(ctx))
	require.NoError(t, err)
	_, err = io.ReadFull(resp.Body, make([]byte, 4))
	require.NoError(t, err)
	cancel()
	_, err = resp.Body.Read(make([]byte, 4))
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, resp.Body.Close())
	base.Check(t)
}

func TestCloseWakesARead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := scripted.New(scripted.Step{BodyAfter: time.Hour})
		resp, err := base.RoundTrip(base.NewRequest(t, http.MethodGet, "http://api.test/", ""))
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() { _ = resp.Body.Close() })
		for range 2 {
			_, err = resp.Body.Read(make([]byte, 1))
			require.ErrorIs(t, err, http.ErrBodyReadAfterClose)
		}
		body := base.Bodies()[0]
		require.Equal(t, []int{2, 1, 1}, []int{body.Reads(), body.ReadsAfterClose(), body.Closes()})
		base.Check(t)
	})
}

func TestRequestBody(t *testing.T) {
	t.Parallel()
	t.Run("left unread", func(t *testing.T) {
		t.Parallel()
		base := scripted.New(scripted.Step{LeaveBody: true, Err: errScript})
		_, err := base.RoundTrip(base.NewRequest(t, http.MethodPut, "http://api.test/", "payload"))
		require.Same(t, errScript, err)
		require.Empty(t, base.Records()[0].Body)
		require.Equal(t, []int{0, 1}, []int{base.Bodies()[0].Reads(), base.Bodies()[0].Closes()})
		base.Check(t)
	})
	t.Run("read fault", func(t *testing.T) {
		t.Parallel()
		base := scripted.New(scripted.Step{})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://api.test/", iotest.ErrReader(errScript))
		require.NoError(t, err)
		_, err = base.RoundTrip(req)
		require.Same(t, errScript, err)
		base.Check(t)
	})
}

func TestPanicAndGoexit(t *testing.T) {
	t.Parallel()
	base := scripted.New(scripted.Step{Panic: "boom"}, scripted.Step{Goexit: true})
	require.PanicsWithValue(t, "boom", func() {
		_, _ = base.RoundTrip(base.NewRequest(t, http.MethodPut, "http://api.test/", "payload"))
	})
	req := base.NewRequest(t, http.MethodPut, "http://api.test/", "payload")
	returned, exited := false, make(chan struct{})
	go func() {
		defer close(exited)
		_, _ = base.RoundTrip(req)
		returned = true
	}()
	<-exited
	require.False(t, returned)
	require.Len(t, base.Records(), 2)
	base.Check(t)
}

func TestFuncAndDo(t *testing.T) {
	t.Parallel()
	base := scripted.Func(func(attempt int, _ *http.Request) scripted.Step {
		if attempt == 0 {
			return scripted.Step{Do: func(*http.Request) (*http.Response, error) { return nil, nil }}
		}
		return scripted.Step{Do: func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusTeapot, Body: io.NopCloser(req.Body)}, nil
		}}
	})
	resp, err := base.RoundTrip(base.NewRequest(t, http.MethodGet, "http://api.test/", ""))
	require.NoError(t, err)
	require.Nil(t, resp)
	resp, err = base.RoundTrip(base.NewRequest(t, http.MethodPut, "http://api.test/", "payload"))
	require.NoError(t, err)
	require.Equal(t, http.StatusTeapot, resp.StatusCode)
	require.NoError(t, resp.Body.Close())
	base.Check(t)
}

func TestResponseAndErrorTogether(t *testing.T) {
	t.Parallel()
	base := scripted.New(scripted.Step{Status: http.StatusBadGateway, Err: errScript})
	resp, err := base.RoundTrip(base.NewRequest(t, http.MethodGet, "http://api.test/", ""))
	require.Same(t, errScript, err)
	require.Equal(t, http.StatusBadGateway, resp.StatusCode)
	require.NoError(t, resp.Body.Close())
	base.Check(t)
}

func TestBodyReader(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	duplex := struct {
		io.ReadCloser
		io.Writer
	}{r, w}
	base := scripted.New(
		scripted.Step{Status: http.StatusSwitchingProtocols, BodyReader: duplex},
		scripted.Step{Status: http.StatusNoContent, BodyReader: http.NoBody},
	)
	resp, err := base.RoundTrip(base.NewRequest(t, http.MethodGet, "http://api.test/", ""))
	require.NoError(t, err)
	rw, ok := resp.Body.(io.ReadWriteCloser)
	require.True(t, ok)
	go func() { _, _ = rw.Write([]byte("hello")) }()
	got := make([]byte, 5)
	_, err = io.ReadFull(rw, got)
	require.NoError(t, err)
	require.Equal(t, "hello", string(got))
	require.NoError(t, rw.Close())

	resp, err = base.RoundTrip(base.NewRequest(t, http.MethodGet, "http://api.test/", ""))
	require.NoError(t, err)
	require.Equal(t, http.NoBody, resp.Body)
	base.Check(t)
}
