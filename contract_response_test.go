package hedgerow_test

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/memhttp"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

// C25, as far as it concerns hedges: when every attempt is refused, the primary's answer is returned, whole and at once.
func TestC25AllRefusedReturnsThePrimarysResponse(t *testing.T) {
	t.Parallel()
	after := func(s string) http.Header { return http.Header{"Retry-After": {s}} }
	refused := func(body, hint string, d time.Duration) scripted.Step {
		return scripted.Step{After: d, Status: http.StatusTooManyRequests, Body: body, Header: after(hint)}
	}
	late := refused("hedge", "9", 20*time.Millisecond)
	late.BodyAfter = time.Minute // nobody may wait for it
	contractBubbles(t, map[string]struct {
		steps []scripted.Step
		want  time.Duration
	}{
		"primary first":   {[]scripted.Step{refused("primary", "7", 15*time.Millisecond), refused("hedge", "9", 20*time.Millisecond)}, 30 * time.Millisecond},
		"hedge first":     {[]scripted.Step{refused("primary", "7", 50*time.Millisecond), refused("hedge", "9", 20*time.Millisecond)}, 50 * time.Millisecond},
		"slow hedge body": {[]scripted.Step{refused("primary", "7", 15*time.Millisecond), late}, 30 * time.Millisecond},
		"hedge error":     {[]scripted.Step{refused("primary", "7", 15*time.Millisecond), {Err: errContract}}, 15 * time.Millisecond},
	}, func(t *testing.T, c struct {
		steps []scripted.Step
		want  time.Duration
	},
	) {
		t.Helper()
		base := scripted.New(c.steps...)
		tr := contractNew(t, hedgerow.Config{Base: base})
		start := time.Now()
		resp, err := tr.RoundTrip(contractPost(t, base))
		require.NoError(t, err)
		require.Equal(t, c.want, time.Since(start))
		require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
		require.Equal(t, "7", resp.Header.Get("Retry-After"))
		require.Equal(t, "primary", contractRead(t, resp))
		contractSettle(t, base)
		require.Equal(t, hedgerow.Counters{Requests: 1, Hedged: 1, Hedges: 1, PrimaryWins: 1}, tr.Stats().Total)
	})
}

// C29: the error of the base is returned as it is, so there is as much of url.Error as without us.
func TestC29NoURLErrorIsAdded(t *testing.T) {
	t.Parallel()
	contractBubbles(t, map[string][]scripted.Step{
		"alone":    {{Err: &url.Error{Op: "Get", URL: contractURL, Err: errContract}}},
		"all fail": {{After: 15 * time.Millisecond, Err: &url.Error{Op: "Get", URL: contractURL, Err: errContract}}, {Err: io.EOF}},
	}, func(t *testing.T, steps []scripted.Step) {
		t.Helper()
		base := scripted.New(steps...)
		_, err := contractNew(t, hedgerow.Config{Base: base}).RoundTrip(contractGet(t.Context(), t, contractURL))
		require.Same(t, steps[0].Err, err)
		contractSettle(t, base)
	})
	contractBubbles(t, map[string]error{"through a client": errContract}, func(t *testing.T, fault error) {
		t.Helper()
		base := scripted.New(scripted.Step{Err: fault})
		client := &http.Client{Transport: contractNew(t, hedgerow.Config{Base: base})}
		_, err := client.Get(contractURL)
		require.EqualError(t, err, `Get "`+contractURL+`": `+fault.Error())
		contractSettle(t, base)
	})
}

// C30: the response names the request that the caller gave.
func TestC30ResponseNamesTheCallersRequest(t *testing.T) {
	t.Parallel()
	steps := map[string][]scripted.Step{
		"primary":     {{Body: "ok"}},
		"hedge":       {{After: time.Minute}, {Body: "ok"}},
		"all refused": {{After: 15 * time.Millisecond, Status: 503, Body: "ok"}, {After: time.Second, Status: 500}},
	}
	contractBubbles(t, steps, func(t *testing.T, steps []scripted.Step) {
		t.Helper()
		base := scripted.New(steps...)
		req := contractPost(t, base)
		resp, err := contractNew(t, hedgerow.Config{Base: base}).RoundTrip(req)
		require.NoError(t, err)
		require.Same(t, req, resp.Request)
		require.Equal(t, "ok", contractRead(t, resp))
		contractSettle(t, base)
	})
	for name, call := range map[string]hedgerow.Call{"hedge": {}, "pass-through": {NoHedge: true}} {
		for _, wrap := range []bool{false, true} {
			t.Run(name+" over net/http", func(t *testing.T) {
				t.Parallel()
				contractEach(t, func(t *testing.T, proto memhttp.Protocol) {
					t.Helper()
					handler := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }
					if !call.NoHedge {
						handler = contractHangs(handler)
					}
					srv := contractListen(t, proto, handler)
					var base http.RoundTripper = srv.Base
					if wrap {
						base = contractMark{base}
					}
					req := contractGet(hedgerow.WithCall(t.Context(), call), t, srv.URL+"/")
					resp, err := contractNew(t, hedgerow.Config{Base: base}).RoundTrip(req)
					require.NoError(t, err)
					require.Same(t, req, resp.Request)
					require.Equal(t, "ok", contractRead(t, resp))
				})
			})
		}
	}
}

// contractOutcome is how a call over a base that breaks its contract has to end.
type contractOutcome struct {
	steps  []scripted.Step
	detach bool
	call   hedgerow.Call
	status int // 0: an error
	total  hedgerow.Counters
}

func contractOutcomes(t *testing.T, cases map[string]contractOutcome) {
	t.Helper()
	contractBubbles(t, cases, func(t *testing.T, c contractOutcome) {
		t.Helper()
		base := scripted.New(c.steps...)
		tr := contractNew(t, hedgerow.Config{Base: base, Detach: c.detach})
		req := contractPost(t, base)
		resp, err := tr.RoundTrip(req.WithContext(hedgerow.WithCall(req.Context(), c.call)))
		if c.status == 0 {
			require.Error(t, err)
			require.Nil(t, resp)
		} else {
			require.NoError(t, err)
			require.Equal(t, c.status, resp.StatusCode)
			require.Equal(t, "ok", contractRead(t, resp))
		}
		contractSettle(t, base)
		require.Equal(t, c.total, tr.Stats().Total)
		require.Len(t, base.Records(), len(c.steps))
	})
}

// contractBroken are the ways in which calls go on over a base whose attempts all or in part break the contract by bad,
// which takes the time of its argument.
func contractBroken(bad func(time.Duration) scripted.Step) map[string]contractOutcome {
	good := scripted.Step{After: 30 * time.Millisecond, Body: "ok"}
	at15 := bad(15 * time.Millisecond)
	hedged := hedgerow.Counters{Requests: 1, Hedged: 1, Hedges: 1}
	hedgeWins, primaryWins, allFail := hedged, hedged, hedged
	hedgeWins.HedgeWins, primaryWins.PrimaryWins, allFail.PrimaryWins, allFail.Errors = 1, 1, 1, 1
	return map[string]contractOutcome{
		"alone":           {steps: []scripted.Step{bad(0)}, total: hedgerow.Counters{Requests: 1, Errors: 1}},
		"alone, detached": {steps: []scripted.Step{bad(0)}, detach: true, total: hedgerow.Counters{Requests: 1, Errors: 1}},
		"not hedged": {steps: []scripted.Step{bad(0)}, call: hedgerow.Call{NoHedge: true}, total: hedgerow.Counters{
			Requests: 1, Errors: 1, Skipped: map[hedgerow.SkipReason]uint64{hedgerow.SkipDisabled: 1},
		}},
		"primary":           {steps: []scripted.Step{at15, good}, status: 200, total: hedgeWins},
		"primary, detached": {steps: []scripted.Step{at15, good}, detach: true, status: 200, total: hedgeWins},
		"hedge":             {steps: []scripted.Step{good, bad(0)}, status: 200, total: primaryWins},
		"both":              {steps: []scripted.Step{at15, bad(15 * time.Millisecond)}, total: allFail},
		"both, detached":    {steps: []scripted.Step{at15, bad(0)}, detach: true, total: allFail},
	}
}

// C32: a base that returns nothing has failed.
func TestC32NeitherResponseNorError(t *testing.T) {
	t.Parallel()
	contractOutcomes(t, contractBroken(func(d time.Duration) scripted.Step {
		return scripted.Step{After: d, Do: func(*http.Request) (*http.Response, error) {
			return nil, nil //nolint:nilnil // the fault under test
		}}
	}))
}

// C33: a base that returns both has failed; the body is closed.
func TestC33BothResponseAndError(t *testing.T) {
	t.Parallel()
	contractOutcomes(t, contractBroken(func(d time.Duration) scripted.Step {
		return scripted.Step{After: d, Status: http.StatusOK, Body: "late", Err: errContract}
	}))
}

// A base that returns a response without a body breaks the contract as well, but its response may be had.
func TestC33ResponseWithoutABody(t *testing.T) {
	t.Parallel()
	for _, signal := range []hedgerow.Signal{hedgerow.SignalHeaders, hedgerow.SignalFirstByte} {
		for name, call := range map[string]hedgerow.Call{"hedged": {}, "not hedged": {NoHedge: true}} {
			t.Run(name+" by "+signal.String(), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					base := scripted.Func(func(attempt int, _ *http.Request) scripted.Step {
						if attempt == 0 && !call.NoHedge {
							return scripted.Step{After: time.Minute}
						}
						return scripted.Step{Do: func(*http.Request) (*http.Response, error) {
							return &http.Response{StatusCode: http.StatusOK}, nil
						}}
					})
					tr := contractNew(t, hedgerow.Config{Base: base, Hedge: hedgerow.HedgeConfig{Signal: signal}})
					resp, err := tr.RoundTrip(contractGet(hedgerow.WithCall(t.Context(), call), t, contractURL))
					require.NoError(t, err)
					require.Equal(t, http.StatusOK, resp.StatusCode)
					contractSettle(t, base)
				})
			})
		}
	}
}

// C34: the metadata of a response is what the base says.
func TestC34MetadataIsUntouched(t *testing.T) {
	t.Parallel()
	text := contractText(10_000)
	var packed bytes.Buffer
	zw := gzip.NewWriter(&packed)
	_, err := zw.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, zw.Close())

	serve := func(w http.ResponseWriter, r *http.Request) {
		if rng := r.Header.Get("Range"); rng != "" {
			w.Header().Set("Content-Range", rng)
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write([]byte(text[:100]))
			return
		}
		if r.Header.Get("Accept-Encoding") == "" {
			_, _ = w.Write([]byte("no Accept-Encoding"))
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(packed.Bytes())
	}
	calls := map[string]hedgerow.Call{"primary": {Delay: time.Minute}, "hedge": {}, "pass-through": {NoHedge: true}}
	headers := map[string]http.Header{
		"default":  {},
		"own gzip": {"Accept-Encoding": {"gzip"}},
		"range":    {"Range": {"bytes=0-99"}},
	}
	for _, h2 := range []bool{false, true} {
		for call, c := range calls {
			for name, header := range headers {
				t.Run(call+" "+name, func(t *testing.T) {
					t.Parallel()
					handler := http.HandlerFunc(serve)
					if call == "hedge" {
						handler = contractHangs(serve)
					}
					srv := httptest.NewUnstartedServer(handler)
					srv.EnableHTTP2 = h2
					srv.StartTLS()
					t.Cleanup(srv.Close)
					bare, ok := srv.Client().Transport.(*http.Transport)
					require.True(t, ok)
					t.Cleanup(bare.CloseIdleConnections)
					req := contractGet(hedgerow.WithCall(t.Context(), c), t, srv.URL+"/")
					req.Header = header.Clone()
					resp, err := contractNew(t, hedgerow.Config{Base: bare}).RoundTrip(req)
					require.NoError(t, err)
					got := contractMetadata(t, resp)
					require.Equal(t, header, req.Header)

					resp, err = bare.RoundTrip(contractGetWith(t, srv.URL+"/", header))
					require.NoError(t, err)
					require.Equal(t, contractMetadata(t, resp), got)
					require.Equal(t, name == "default", got.Uncompressed)
					require.Equal(t, h2, got.ProtoMajor == 2)
				})
			}
		}
	}
}

func contractGetWith(t *testing.T, target string, header http.Header) *http.Request {
	t.Helper()
	req := contractGet(t.Context(), t, target)
	req.Header = header.Clone()
	return req
}

// contractMeta is what a response says besides its body, and that body.
type contractMeta struct {
	Status, Proto    string
	ProtoMajor       int
	Header           http.Header
	ContentLength    int64
	TransferEncoding []string
	Close            bool
	Uncompressed     bool
	TLS              uint16
	Body             string
}

// contractMetadata reads and closes resp.
func contractMetadata(t *testing.T, resp *http.Response) contractMeta {
	t.Helper()
	require.NotNil(t, resp.TLS)
	require.GreaterOrEqual(t, resp.TLS.Version, uint16(tls.VersionTLS12))
	m := contractMeta{
		Status: resp.Status, Proto: resp.Proto, ProtoMajor: resp.ProtoMajor, Header: resp.Header.Clone(),
		ContentLength: resp.ContentLength, TransferEncoding: resp.TransferEncoding, Close: resp.Close,
		Uncompressed: resp.Uncompressed, TLS: resp.TLS.Version, Body: contractRead(t, resp),
	}
	m.Header.Del("Date")
	return m
}

// A response of a status that is not 2xx is one all the same.
func TestC25StatusIsNeverAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		statuses := []int{100, 199, 204, 301, 304, 400, 401, 418, 429, 500, 503, 599, 999}
		base := scripted.Func(func(attempt int, _ *http.Request) scripted.Step {
			return scripted.Step{Status: statuses[attempt%len(statuses)], BodyReader: io.NopCloser(strings.NewReader("x"))}
		})
		tr := contractNew(t, hedgerow.Config{Base: base})
		for _, status := range statuses {
			resp, err := tr.RoundTrip(contractGet(t.Context(), t, contractURL))
			require.NoError(t, err)
			require.Equal(t, status, resp.StatusCode)
			require.NoError(t, resp.Body.Close())
		}
		contractSettle(t, base)
	})
}
