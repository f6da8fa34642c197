package hedgerow_test

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

func TestBreakerConfigDefaults(t *testing.T) {
	t.Parallel()
	got := hedgerow.BreakerConfig{}.WithDefaults()
	require.NotNil(t, got.Failure)
	for status, failed := range map[int]bool{200: false, 404: false, 429: false, 499: false, 500: true, 503: true} {
		require.Equal(t, failed, got.Failure(&http.Response{StatusCode: status}), "status %d", status)
	}
	got.Failure = nil
	require.Equal(t, hedgerow.BreakerConfig{
		ErrorRateThreshold: 0.5, MinSamples: 20, Window: 30 * time.Second, Cooldown: 30 * time.Second, HalfOpenTrials: 5,
	}, got)

	set := hedgerow.BreakerConfig{
		Disabled: true, ErrorRateThreshold: 1, MinSamples: 1, Window: 1, Cooldown: 1, HalfOpenTrials: 1, FailFast: true,
		Failure: func(*http.Response) bool { return true },
	}
	got = set.WithDefaults()
	require.True(t, got.Failure(&http.Response{StatusCode: http.StatusOK}))
	set.Failure, got.Failure = nil, nil
	require.Equal(t, set, got, "fields that are set stay")
}

func TestBreakerConfigValidate(t *testing.T) {
	t.Parallel()
	type config = hedgerow.BreakerConfig
	tests := []struct {
		name string
		cfg  config
		want []string
	}{
		{"zero", config{}, nil},
		{"smallest", config{ErrorRateThreshold: math.SmallestNonzeroFloat64, MinSamples: 1, Window: 1, Cooldown: 1, HalfOpenTrials: 1}, nil},
		{"largest", config{ErrorRateThreshold: 1, MinSamples: math.MaxInt, Window: math.MaxInt64, Cooldown: math.MaxInt64, HalfOpenTrials: math.MaxInt}, nil},
		{"threshold above 1", config{ErrorRateThreshold: 1.5}, []string{"ErrorRateThreshold: 1.5 is not in (0, 1]"}},
		{"threshold below 0", config{ErrorRateThreshold: -0.5}, []string{"ErrorRateThreshold: -0.5 is not in (0, 1]"}},
		{"threshold not a number", config{ErrorRateThreshold: math.NaN()}, []string{"ErrorRateThreshold: NaN is not in (0, 1]"}},
		{"threshold infinite", config{ErrorRateThreshold: math.Inf(1)}, []string{"ErrorRateThreshold: +Inf is not in (0, 1]"}},
		{"every fault at once, also when disabled", config{
			Disabled: true, ErrorRateThreshold: 2, MinSamples: -1, Window: -time.Second, Cooldown: -2 * time.Second, HalfOpenTrials: -3,
		}, []string{
			"ErrorRateThreshold: 2 is not in (0, 1]", "MinSamples: -1: must not be negative", "Window: -1s: must not be negative",
			"Cooldown: -2s: must not be negative", "HalfOpenTrials: -3: must not be negative",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var want []error
			for _, text := range tt.want {
				want = append(want, errors.New("hedgerow: Config.Breaker."+text))
			}
			got := tt.cfg.Validate("Config.Breaker")
			require.Len(t, got, len(want))
			for i := range want {
				require.EqualError(t, got[i], want[i].Error())
			}
		})
	}
}

func TestCircuitEnumerations(t *testing.T) {
	t.Parallel()
	type enumeration interface {
		fmt.Stringer
		encoding.TextMarshaler
	}
	for value, want := range map[enumeration]string{
		hedgerow.CircuitHost:      "host",
		hedgerow.CircuitEndpoint:  "endpoint",
		hedgerow.CircuitScope(2):  "CircuitScope(2)",
		hedgerow.CircuitClosed:    "closed",
		hedgerow.CircuitOpen:      "open",
		hedgerow.CircuitHalfOpen:  "half_open",
		hedgerow.CircuitState(7):  "CircuitState(7)",
		hedgerow.CircuitState(-1): "CircuitState(-1)",
	} {
		require.Equal(t, want, value.String())
		text, err := value.MarshalText()
		require.NoError(t, err)
		require.Equal(t, want, string(text))
	}
}

// A scope that has no say has a nil circuit.
func TestCircuitNil(t *testing.T) {
	t.Parallel()
	var none hedgerow.CircuitCore
	require.Nil(t, none.Record(coreEpoch, true))
	ticket, ok, moves := none.Admit(coreEpoch)
	require.True(t, ok)
	require.Zero(t, ticket)
	require.Nil(t, moves)
	none.Release(ticket)
	require.True(t, none.Peek(coreEpoch))
	require.Equal(t, hedgerow.CircuitClosed, none.State(coreEpoch))
	require.Zero(t, none.Until(coreEpoch))
}

func BenchmarkCircuit(b *testing.B) {
	closed := hedgerow.NewCircuitCore(hedgerow.BreakerConfig{}.WithDefaults())
	now := coreEpoch
	b.Run("record", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			now = now.Add(time.Microsecond)
			closed.Record(now, false)
		}
	})
	b.Run("peek", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			closed.Peek(now)
		}
	})
	b.Run("admit", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			closed.Admit(now)
		}
	})
	half := openCircuit(5)
	late := coreEpoch.Add(time.Minute)
	b.Run("admit and release half-open", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			ticket, _, _ := half.Admit(late)
			half.Release(ticket)
		}
	})
	b.Run("both", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			hedgerow.AdmitBoth(now, closed, closed)
		}
	})
	b.Run("record in parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				closed.Record(coreEpoch, false)
			}
		})
	})
}
