package otel_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// meters are a provider of histograms that keep all they are given. Everything else is a no-op.
type meters struct {
	noop.MeterProvider

	mu  sync.Mutex // guards all
	all map[string][]measurement
}

type measurement struct {
	value float64
	attrs attribute.Set
}

func newMeters() *meters { return &meters{all: make(map[string][]measurement)} }

func (m *meters) Meter(string, ...metric.MeterOption) metric.Meter { return meter{of: m} }

// values returns what the histogram of that name was given.
func (m *meters) values(name string) []float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	var values []float64
	for _, each := range m.all[name] {
		values = append(values, each.value)
	}
	return values
}

// kinds counts what the histogram of that name was given, by the kind of attempt.
func (m *meters) kinds(name string) map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	kinds := make(map[string]int)
	for _, each := range m.all[name] {
		kind, _ := each.attrs.Value("hedgerow.kind")
		kinds[kind.String()]++
	}
	return kinds
}

func (m *meters) record(name string, value float64, attrs attribute.Set) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[name] = append(m.all[name], measurement{value, attrs})
}

type meter struct {
	noop.Meter

	of *meters
}

func (m meter) Float64Histogram(name string, _ ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return floats{of: m.of, name: name}, nil
}

func (m meter) Int64Histogram(name string, _ ...metric.Int64HistogramOption) (metric.Int64Histogram, error) {
	return ints{of: m.of, name: name}, nil
}

type floats struct {
	noop.Float64Histogram

	of   *meters
	name string
}

func (floats) Enabled(context.Context) bool { return true }

func (h floats) Record(_ context.Context, v float64, opts ...metric.RecordOption) {
	h.of.record(h.name, v, metric.NewRecordConfig(opts).Attributes())
}

type ints struct {
	noop.Int64Histogram

	of   *meters
	name string
}

func (ints) Enabled(context.Context) bool { return true }

func (h ints) Record(_ context.Context, v int64, opts ...metric.RecordOption) {
	h.of.record(h.name, float64(v), metric.NewRecordConfig(opts).Attributes())
}

// requireLine writes a line to the body of a 101, and requires it back.
func requireLine(t *testing.T, resp *http.Response) {
	t.Helper()
	conn, ok := resp.Body.(io.ReadWriter)
	require.True(t, ok)
	_, err := io.WriteString(conn, "hello\n")
	require.NoError(t, err)
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "hello\n", line)
}
