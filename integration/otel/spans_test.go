package otel_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

// Beneath hedgerow there is a span for each attempt, and they are siblings. Each attempt carries the traceparent of its own
// span. That of the winner ends with its body.
func TestBeneath(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		s, tracing := newTraced(), newTracing()
		srv := bed.Serve(t, proto, s.noting(bed.HoldPrimary(s)))

		base := newBase(bed.Mark(srv.Base), tracing.options()...)
		tr, err := hedgerow.New(hedgerow.Config{Base: base, Hedge: bed.Once()})
		require.NoError(t, err)
		root, resp := tracing.get(t, tr, srv.URL)

		require.Len(t, tracing.ended(), 1, "the winner's body has not ended")
		bed.RequireWhole(t, resp, nil)
		spans := tracing.ended()
		require.Len(t, spans, 2)
		loser, winner := spans[0], spans[1]
		require.Equal(t, root.SpanID(), loser.Parent().SpanID())
		require.Equal(t, root.SpanID(), winner.Parent().SpanID())
		require.Equal(t, map[string]string{
			"primary": parent(loser.SpanContext()), "hedge": parent(winner.SpanContext()),
		}, s.seen(2))

		require.Equal(t, "0", attr(loser, "hedgerow.attempt"))
		require.Equal(t, "primary", attr(loser, "hedgerow.kind"))
		require.Equal(t, "true", attr(loser, "hedgerow.superseded"))
		require.Equal(t, trace.Status{Code: codes.Ok}, loser.Status())
		require.NotEmpty(t, attr(loser, "error.type"), "which stays, as what the wire saw")

		require.Equal(t, "1", attr(winner, "hedgerow.attempt"))
		require.Equal(t, "hedge", attr(winner, "hedgerow.kind"))
		require.Equal(t, trace.Status{Code: codes.Unset}, winner.Status())
		require.Equal(t, "200", attr(winner, "http.response.status_code"))
		require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
	})
}

// Without a layer beneath it otelhttp marks a superseded attempt as an error, because that is what it gets.
func TestBeneathAlone(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		s, tracing := newTraced(), newTracing()
		srv := bed.Serve(t, proto, bed.HoldPrimary(s))
		tr := bed.New(t, hedgerow.Config{
			Base: otelhttp.NewTransport(bed.Mark(srv.Base), tracing.options()...), Hedge: bed.Once(),
		})
		_, resp := tracing.get(t, tr, srv.URL)
		bed.RequireWhole(t, resp, nil)
		spans := tracing.ended()
		require.Len(t, spans, 2)
		require.Equal(t, codes.Error, spans[0].Status().Code)
		require.Equal(t, codes.Unset, spans[1].Status().Code)
	})
}

// An attempt that fails on its own is an error, and so is one whose caller gives up.
func TestFailuresStayErrors(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		tracing := newTracing()
		arrived := make(chan struct{})
		srv := bed.Serve(t, proto, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/hold" {
				close(arrived)
				bed.Hold(r)
			}
			panic(http.ErrAbortHandler) // or a client may see an answer yet, while it closes its connection
		}))
		tr := bed.New(t, hedgerow.Config{
			Base:  newBase(srv.Base, tracing.options()...),
			Hedge: hedgerow.HedgeConfig{Delay: time.Hour},
		})
		client := &http.Client{Transport: tr}
		_, err := client.Get(srv.URL + "/abort")
		require.Error(t, err)

		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-arrived
			cancel()
		}()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+"/hold", nil)
		require.NoError(t, err)
		_, err = client.Do(req)
		require.Error(t, err)

		spans := tracing.ended()
		require.Len(t, spans, 2)
		for _, span := range spans {
			require.Equal(t, codes.Error, span.Status().Code)
			require.Empty(t, attr(span, "hedgerow.superseded"))
		}
	})
}

// late gives the primary's response back only when a hedge has won, as happens to one that comes at the same time.
type late struct{ next http.RoundTripper }

func (l late) RoundTrip(req *http.Request) (*http.Response, error) {
	a, _ := hedgerow.AttemptFromContext(req.Context())
	if a.Kind != hedgerow.AttemptPrimary {
		return l.next.RoundTrip(req)
	}
	<-req.Context().Done()
	return l.next.RoundTrip(req.WithContext(context.WithoutCancel(req.Context())))
}

// A loser that has a response is closed by hedgerow, which ends its span. It is no error.
func TestLateResponse(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		tracing := newTracing()
		srv := bed.Serve(t, proto, newTraced())
		tr := bed.New(t, hedgerow.Config{
			Base: newBase(late{srv.Base}, tracing.options()...), Hedge: bed.Once(),
		})
		_, resp := tracing.get(t, tr, srv.URL)
		bed.RequireWhole(t, resp, nil)
		require.Eventually(t, func() bool { return len(tracing.ended()) == 2 }, bed.Patience, bed.Tick)
		kinds := make(map[string]codes.Code)
		for _, span := range tracing.ended() {
			kinds[attr(span, "hedgerow.kind")] = span.Status().Code
		}
		require.Equal(t, map[string]codes.Code{"primary": codes.Unset, "hedge": codes.Unset}, kinds)
	})
}

// Above hedgerow there is one span for a call, however many attempts it takes, and all of them carry its traceparent.
func TestAbove(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		s, tracing := newTraced(), newTracing()
		srv := bed.Serve(t, proto, s.noting(bed.HoldPrimary(s)))

		tr, err := hedgerow.New(hedgerow.Config{Base: bed.Mark(srv.Base), Hedge: bed.Once()})
		require.NoError(t, err)
		root, resp := tracing.get(t, otelhttp.NewTransport(tr, tracing.options()...), srv.URL)

		require.Empty(t, tracing.ended())
		bed.RequireWhole(t, resp, nil)
		spans := tracing.ended()
		require.Len(t, spans, 1)
		require.Equal(t, root.SpanID(), spans[0].Parent().SpanID())
		require.Equal(t, codes.Unset, spans[0].Status().Code)
		call := parent(spans[0].SpanContext())
		require.Equal(t, map[string]string{"primary": call, "hedge": call}, s.seen(2))
		require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
	})
}

// On both sides the spans of the attempts are children of that of their call.
func TestBoth(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		s, tracing := newTraced(), newTracing()
		srv := bed.Serve(t, proto, s.noting(bed.HoldPrimary(s)))

		base := newBase(bed.Mark(srv.Base), tracing.options()...)
		tr, err := hedgerow.New(hedgerow.Config{Base: base, Hedge: bed.Once()})
		require.NoError(t, err)
		root, resp := tracing.get(t, otelhttp.NewTransport(tr, tracing.options()...), srv.URL)

		bed.RequireWhole(t, resp, nil)
		spans := tracing.ended()
		require.Len(t, spans, 3)
		loser, winner, call := spans[0], spans[1], spans[2]
		require.Equal(t, root.SpanID(), call.Parent().SpanID())
		require.Equal(t, call.SpanContext().SpanID(), loser.Parent().SpanID())
		require.Equal(t, call.SpanContext().SpanID(), winner.Parent().SpanID())
		require.Equal(t, map[string]string{
			"primary": parent(loser.SpanContext()), "hedge": parent(winner.SpanContext()),
		}, s.seen(2))
		require.Equal(t, []codes.Code{codes.Ok, codes.Unset, codes.Unset},
			[]codes.Code{loser.Status().Code, winner.Status().Code, call.Status().Code})
	})
}
