package otel_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

func TestMain(m *testing.M) { bed.VerifyMain(m) }

// A tracing is what a program sets up once.
type tracing struct {
	*tracetest.SpanRecorder

	provider *sdktrace.TracerProvider
}

func newTracing() tracing {
	recorder := tracetest.NewSpanRecorder()
	return tracing{recorder, sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))}
}

// options are those of an otelhttp.Transport.
func (t tracing) options() []otelhttp.Option {
	return []otelhttp.Option{
		otelhttp.WithTracerProvider(t.provider), otelhttp.WithPropagators(propagation.TraceContext{}),
	}
}

// ended returns the spans of HTTP requests that have ended, in the order of their ends.
func (t tracing) ended() []sdktrace.ReadOnlySpan {
	var spans []sdktrace.ReadOnlySpan
	for _, s := range t.Ended() {
		if s.SpanKind() == trace.SpanKindClient {
			spans = append(spans, s)
		}
	}
	return spans
}

// get makes a call within a span of its own, the root, and returns the root and the response.
func (t tracing) get(tb testing.TB, rt http.RoundTripper, url string) (trace.SpanContext, *http.Response) {
	tb.Helper()
	ctx, root := t.provider.Tracer("test").Start(tb.Context(), "root")
	defer root.End()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(tb, err)
	resp, err := (&http.Client{Transport: rt}).Do(req)
	require.NoError(tb, err)
	return root.SpanContext(), resp
}

// attr returns the value of an attribute of a span, "" if it has none.
func attr(s sdktrace.ReadOnlySpan, key attribute.Key) string {
	for _, kv := range s.Attributes() {
		if kv.Key == key {
			return kv.Value.String()
		}
	}
	return ""
}

// large is a body that does not fit into one read or one frame.
var large = string(bed.Pattern(bed.Large))

// A traced server answers with a large body, and keeps the traceparent of each request by its kind of attempt.
type traced struct {
	parents chan [2]string
	order   bed.Order
}

func newTraced() traced { return traced{make(chan [2]string, 8), bed.NewOrder()} }

func (s traced) ServeHTTP(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, large) }

// noting notes what comes in, also what is held after that.
func (s traced) noting(next http.Handler) http.Handler {
	next = s.order.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.parents <- [2]string{r.Header.Get(bed.MarkHeader), r.Header.Get("Traceparent")}
		next.ServeHTTP(w, r)
	})
}

// seen returns the traceparents of the n requests that have come, by their kinds of attempt.
func (s traced) seen(n int) map[string]string {
	seen := make(map[string]string)
	for range n {
		p := <-s.parents
		seen[p[0]] = p[1]
	}
	return seen
}

// parent is the traceparent that says sc.
func parent(sc trace.SpanContext) string {
	return "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-01"
}
