// Package otel_test shows go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp around hedgerow: beneath it, with a
// span for each attempt, above it, with a span for each call, and both.
package otel_test

import (
	"context"
	"errors"
	"net/http"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/hedgerow-go/hedgerow"
)

// newBase is the shortest set-up: otelhttp beneath hedgerow, with a span for each attempt. A program with a global provider
// and a global propagator needs no options.
func newBase(next http.RoundTripper, opts ...otelhttp.Option) *otelhttp.Transport {
	return otelhttp.NewTransport(attempts{next}, opts...)
}

// attempts tells the spans of attempts apart, and those that were superseded from those that failed. It goes beneath
// otelhttp, whose span it finds in the context.
type attempts struct{ next http.RoundTripper }

func (t attempts) RoundTrip(req *http.Request) (*http.Response, error) {
	span := trace.SpanFromContext(req.Context())
	if a, ok := hedgerow.AttemptFromContext(req.Context()); ok {
		span.SetAttributes(
			attribute.Int("hedgerow.attempt", a.Number),
			attribute.Stringer("hedgerow.kind", a.Kind),
			attribute.String("hedgerow.resource", a.Resource),
		)
	}
	resp, err := t.next.RoundTrip(req)
	if err != nil && errors.Is(context.Cause(req.Context()), hedgerow.ErrSuperseded) {
		span.SetAttributes(attribute.Bool("hedgerow.superseded", true))
		span.SetStatus(codes.Ok, "") // final: the Error that otelhttp sets after it is ignored
	}
	return resp, err
}

// labels gives the measurements of otelhttp beneath it the kind of their attempt. There are three, so it adds little to the
// number of series. It goes between hedgerow and otelhttp, because each attempt needs a labeler of its own: otelhttp would
// take that of a layer above hedgerow for all of them.
type labels struct{ next http.RoundTripper }

func (l labels) RoundTrip(req *http.Request) (*http.Response, error) {
	labeler := new(otelhttp.Labeler)
	if a, ok := hedgerow.AttemptFromContext(req.Context()); ok {
		labeler.Add(attribute.Stringer("hedgerow.kind", a.Kind))
	}
	return l.next.RoundTrip(req.WithContext(otelhttp.ContextWithClientLabeler(req.Context(), labeler)))
}
