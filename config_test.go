package hedgerow_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/internal/scripted"
)

func TestNewReportsEveryFault(t *testing.T) {
	t.Parallel()
	tr, err := hedgerow.New(hedgerow.Config{
		Hedge: hedgerow.HedgeConfig{
			Quantile: 1.5, BudgetPercent: 101, EstimatedRPS: math.Inf(1), RateWindow: -1, MinDelay: -2, MaxDelay: -3,
			WarmupRequests: -4, WarmupDelay: -5, Window: -6, MaxHedges: -7, MaxBodyBytes: -8, Signal: 9,
		},
		Breaker: hedgerow.BreakerConfig{
			ErrorRateThreshold: math.NaN(), MinSamples: -1, Window: -2, Cooldown: -3, HalfOpenTrials: -4,
		},
		MaxEndpoints: -1,
	})
	require.Nil(t, tr)
	require.EqualError(t, err, strings.Join([]string{
		"hedgerow: Config.Hedge.Quantile: 1.5 is not in (0, 1)",
		"hedgerow: Config.Hedge.BudgetPercent: 101 is not in (0, 100]",
		"hedgerow: Config.Hedge.EstimatedRPS: +Inf is not in [0, +Inf)",
		"hedgerow: Config.Hedge.RateWindow: -1ns: must not be negative",
		"hedgerow: Config.Hedge.MinDelay: -2ns: must not be negative",
		"hedgerow: Config.Hedge.MaxDelay: -3ns: must not be negative",
		"hedgerow: Config.Hedge.WarmupRequests: -4: must not be negative",
		"hedgerow: Config.Hedge.WarmupDelay: -5ns: must not be negative",
		"hedgerow: Config.Hedge.Window: -6ns: must not be negative",
		"hedgerow: Config.Hedge.MaxHedges: -7: must not be negative",
		"hedgerow: Config.Hedge.MaxBodyBytes: -8: must not be negative",
		"hedgerow: Config.Hedge.Signal: Signal(9) is not a signal",
		"hedgerow: Config.Breaker.ErrorRateThreshold: NaN is not in (0, 1]",
		"hedgerow: Config.Breaker.MinSamples: -1: must not be negative",
		"hedgerow: Config.Breaker.Window: -2ns: must not be negative",
		"hedgerow: Config.Breaker.Cooldown: -3ns: must not be negative",
		"hedgerow: Config.Breaker.HalfOpenTrials: -4: must not be negative",
		"hedgerow: Config.MaxEndpoints: -1: must not be negative",
	}, "\n"))
}

func TestConfigBounds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		cfg  hedgerow.HedgeConfig
		want string // "": accepted
	}{
		{"zero", hedgerow.HedgeConfig{}, ""},
		{"quantile near 1", hedgerow.HedgeConfig{Quantile: 0.999}, ""},
		{"quantile 1", hedgerow.HedgeConfig{Quantile: 1}, "Quantile: 1 is not in (0, 1)"},
		{"quantile below 0", hedgerow.HedgeConfig{Quantile: -0.1}, "Quantile: -0.1 is not in (0, 1)"},
		{"quantile NaN", hedgerow.HedgeConfig{Quantile: math.NaN()}, "Quantile: NaN is not in (0, 1)"},
		{"budget 100", hedgerow.HedgeConfig{BudgetPercent: 100}, ""},
		{"budget NaN", hedgerow.HedgeConfig{BudgetPercent: math.NaN()}, "BudgetPercent: NaN is not in (0, 100]"},
		{"rate NaN", hedgerow.HedgeConfig{EstimatedRPS: math.NaN()}, "EstimatedRPS: NaN is not in [0, +Inf)"},
		{"negative delay", hedgerow.HedgeConfig{Delay: -1}, ""},
		{
			"bounds crossed",
			hedgerow.HedgeConfig{MinDelay: 2 * time.Second, MaxDelay: time.Second},
			"MaxDelay: 1s: must not be below MinDelay, 2s",
		},
		{
			"max below the default min",
			hedgerow.HedgeConfig{MaxDelay: time.Microsecond},
			"MaxDelay: 1µs: must not be below MinDelay, 1ms",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := hedgerow.New(hedgerow.Config{Hedge: tc.cfg})
			tr, other := hedgerow.New(hedgerow.Config{})
			require.NoError(t, other)
			registered := tr.Register("/", hedgerow.EndpointConfig{Hedge: &tc.cfg})
			if tc.want == "" {
				require.NoError(t, err)
				require.NoError(t, registered)
				return
			}
			require.EqualError(t, err, "hedgerow: Config.Hedge."+tc.want)
			require.EqualError(t, registered, `hedgerow: pattern "/": EndpointConfig.Hedge.`+tc.want)
		})
	}
}

func TestEndpointBoundsAreCheckedAfterInheritance(t *testing.T) {
	t.Parallel()
	tr, err := hedgerow.New(hedgerow.Config{Hedge: hedgerow.HedgeConfig{MaxDelay: time.Second}})
	require.NoError(t, err)
	err = tr.Register("/", hedgerow.EndpointConfig{Hedge: &hedgerow.HedgeConfig{MinDelay: 2 * time.Second}})
	require.EqualError(t, err, `hedgerow: pattern "/": EndpointConfig.Hedge.MaxDelay: 1s: must not be below MinDelay, 2s`)
	err = tr.Register("/", hedgerow.EndpointConfig{
		Hedge:   &hedgerow.HedgeConfig{Quantile: 2},
		Breaker: &hedgerow.BreakerConfig{MinSamples: -1},
	})
	require.EqualError(t, err, `hedgerow: pattern "/": EndpointConfig.Hedge.Quantile: 2 is not in (0, 1)`+"\n"+
		`hedgerow: pattern "/": EndpointConfig.Breaker.MinSamples: -1: must not be negative`)
}

func FuzzConfigNew(f *testing.F) {
	f.Add(0.0, 0.0, 0.0, int64(0), int64(0), int64(0), 0)
	f.Add(0.95, 5.0, 100.0, int64(time.Second), int64(time.Millisecond), int64(time.Second), 3)
	f.Add(math.NaN(), math.Inf(1), math.Inf(-1), int64(math.MinInt64), int64(math.MaxInt64), int64(-1), math.MinInt)
	f.Fuzz(func(t *testing.T, q, percent, rps float64, delay, minDelay, window int64, n int) {
		base := scripted.Func(func(int, *http.Request) scripted.Step { return scripted.Step{} })
		cfg := hedgerow.HedgeConfig{
			Quantile: q, BudgetPercent: percent, EstimatedRPS: rps, RateWindow: time.Duration(window),
			Delay: time.Duration(delay), MinDelay: time.Duration(minDelay), MaxDelay: time.Duration(window),
			WarmupRequests: n, WarmupDelay: time.Duration(delay), Window: time.Duration(window), MaxHedges: n,
			MaxBodyBytes: int64(n), Signal: hedgerow.Signal(n),
		}
		breaker := hedgerow.BreakerConfig{
			ErrorRateThreshold: q, MinSamples: n, Window: time.Duration(window), Cooldown: time.Duration(delay),
			HalfOpenTrials: n,
		}
		tr, err := hedgerow.New(hedgerow.Config{Base: base, Hedge: cfg, Breaker: breaker, MaxEndpoints: n})
		if err != nil {
			require.Nil(t, tr)
			return
		}
		require.NoError(t, tr.Register("/{x}", hedgerow.EndpointConfig{Hedge: &cfg, Breaker: &breaker}))
		for range 3 { // what New accepts works
			resp, err := tr.RoundTrip(base.NewRequest(t, http.MethodGet, "http://api.test/x", ""))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		}
		_ = tr.Stats()
	})
}

// Every field of a configuration says what zero means.
func TestConfigFieldsSayTheirDefault(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, file := range []string{"transport.go", "hedge.go", "endpoint.go", "breaker.go", "call.go", "hooks.go", "keypool.go", "verdict.go"} {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || !configTypes[spec.Name.Name] {
				return true
			}
			fields, ok := spec.Type.(*ast.StructType)
			require.True(t, ok, spec.Name.Name)
			for _, field := range fields.Fields.List {
				for _, name := range field.Names {
					doc := strings.ToLower(field.Doc.Text())
					require.True(t, strings.Contains(doc, "zero") || strings.Contains(doc, "default") || strings.Contains(doc, "nil:") || strings.Contains(doc, "required"),
						"%s.%s does not say its zero value or default: %q", spec.Name.Name, name.Name, doc)
					checked++
				}
			}
			return true
		})
	}
	require.Greater(t, checked, 70)
}

var configTypes = map[string]bool{
	"Config": true, "HedgeConfig": true, "EndpointConfig": true, "BreakerConfig": true, "Call": true, "Hooks": true,
	"PoolConfig": true, "Resource": true, "Verdict": true,
}
