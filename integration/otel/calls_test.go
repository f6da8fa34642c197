package otel_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/codes"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

// Beneath a pool there is a span for each send, with its resource. One that a key was refused for is an error, as every
// response of 400 or more is to otelhttp.
func TestPool(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		s, tracing := newTraced(), newTracing()
		srv := bed.Serve(t, proto, bed.Keyed(http.StatusTooManyRequests, s))

		pool, err := hedgerow.NewPool(hedgerow.PoolConfig{
			Hosts: []string{srv.Host()}, Strategy: hedgerow.PrimaryBackup,
			Resources: []hedgerow.Resource{
				{ID: "a", Credential: hedgerow.Bearer("spent")}, {ID: "b", Credential: hedgerow.Bearer("good")},
			},
		})
		require.NoError(t, err)
		base := newBase(srv.Base, tracing.options()...)
		tr, err := hedgerow.New(hedgerow.Config{Base: pool.Wrap(base), Hedge: hedgerow.HedgeConfig{Delay: time.Hour}})
		require.NoError(t, err)
		root, resp := tracing.get(t, tr, srv.URL)

		bed.RequireWhole(t, resp, nil)
		spans := tracing.ended()
		require.Len(t, spans, 2)
		for i, want := range [][]string{{"0", "primary", "a", "429"}, {"1", "retry", "b", "200"}} {
			require.Equal(t, root.SpanID(), spans[i].Parent().SpanID())
			require.Equal(t, want, []string{
				attr(spans[i], "hedgerow.attempt"), attr(spans[i], "hedgerow.kind"),
				attr(spans[i], "hedgerow.resource"), attr(spans[i], "http.response.status_code"),
			})
		}
		require.Equal(t, codes.Error, spans[0].Status().Code)
		require.Equal(t, codes.Unset, spans[1].Status().Code)
		require.Zero(t, pool.Stats().InFlight)
		require.EqualValues(t, 2, pool.Stats().Attempts)
	})
}

// A POST is sent once, with one span. The layers around it leave its body alone.
func TestPost(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		tracing, meters := newTracing(), newMeters()
		srv := bed.Serve(t, proto, http.HandlerFunc(bed.Echo))
		opts := append(tracing.options(), otelhttp.WithMeterProvider(meters))
		tr := bed.New(t, hedgerow.Config{
			Base:  newBase(srv.Base, opts...),
			Hedge: hedgerow.HedgeConfig{Delay: time.Millisecond},
		})
		resp, err := (&http.Client{Transport: tr}).Post(srv.URL, "text/plain", strings.NewReader(large))
		bed.RequireWhole(t, resp, err)
		spans := tracing.ended()
		require.Len(t, spans, 1)
		require.Equal(t, "primary", attr(spans[0], "hedgerow.kind"))
		require.Equal(t, map[hedgerow.SkipReason]uint64{hedgerow.SkipMethod: 1}, tr.Stats().Total.Skipped)
		require.Eventually(t, func() bool { // net/http closes the body when it likes
			return len(meters.values("http.client.request.body.size")) == 1
		}, bed.Patience, bed.Tick)
		require.Equal(t, []float64{float64(len(large))}, meters.values("http.client.request.body.size"))
	})
}

// A POST that is declared idempotent is hedged through the body that otelhttp wraps, on both sides of hedgerow.
func TestIdempotentPost(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		tracing := newTracing()
		srv := bed.Serve(t, proto, bed.HoldPrimary(http.HandlerFunc(bed.Echo)))
		base := newBase(bed.Mark(srv.Base), tracing.options()...)
		tr := bed.New(t, hedgerow.Config{Base: base, Hedge: bed.Once()})
		require.NoError(t, tr.Register("POST /", hedgerow.EndpointConfig{Idempotent: true}))
		client := &http.Client{Transport: otelhttp.NewTransport(tr, tracing.options()...)}
		resp, err := client.Post(srv.URL+"/", "text/plain", strings.NewReader(large))
		bed.RequireWhole(t, resp, err)
		require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
		require.Len(t, tracing.ended(), 3)
	})
}

// The metrics of otelhttp count attempts beneath hedgerow, and calls above it. A label tells the attempts apart.
func TestMetrics(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		tracing, below, above := newTracing(), newMeters(), newMeters()
		srv := bed.Serve(t, proto, bed.HoldPrimary(newTraced()))
		base := labels{otelhttp.NewTransport(bed.Mark(srv.Base),
			append(tracing.options(), otelhttp.WithMeterProvider(below))...)}
		tr := bed.New(t, hedgerow.Config{Base: base, Hedge: bed.Once()})
		_, resp := tracing.get(t,
			otelhttp.NewTransport(tr, append(tracing.options(), otelhttp.WithMeterProvider(above))...), srv.URL)
		bed.RequireWhole(t, resp, nil)
		require.Equal(t, map[string]int{"primary": 1, "hedge": 1}, below.kinds("http.client.request.duration"))
		require.Equal(t, map[string]int{"": 1}, above.kinds("http.client.request.duration"))
	})
}

// An upgrade's body can still be written to between two layers of otelhttp and a pool.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	tracing := newTracing()
	srv := bed.Serve(t, "h1", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, err := "", rw.Flush()
		if err == nil {
			line, err = rw.ReadString('\n')
		}
		_, _ = rw.WriteString(line)
		if err = errors.Join(err, rw.Flush()); err != nil {
			t.Error(err)
		}
	}))
	pool := bed.NewPool(t, hedgerow.PoolConfig{
		Hosts: []string{srv.Host()}, Resources: []hedgerow.Resource{{ID: "a", Credential: hedgerow.Bearer("good")}},
	})
	base := newBase(srv.Base, tracing.options()...)
	tr := bed.New(t, hedgerow.Config{Base: pool.Wrap(base)})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
	require.NoError(t, err)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	resp, err := otelhttp.NewTransport(tr, tracing.options()...).RoundTrip(req)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	requireLine(t, resp)
	require.NoError(t, resp.Body.Close())
	require.Zero(t, pool.Stats().InFlight)
	require.Len(t, tracing.ended(), 2)
	require.Equal(t, map[hedgerow.SkipReason]uint64{hedgerow.SkipUpgrade: 1}, tr.Stats().Total.Skipped)
}
