package hedgerow_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

func TestDrift(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name             string
		share            float64 // of the samples that the delay was learned from
		of               uint64
		after            time.Duration
		seen, over, live uint64
		found, ended     bool
	}{
		{"as expected", 0.1, 15_000, time.Second, 500, 50, 15_500, false, true},
		{"by chance", 0.1, 15_000, time.Second, 500, 83, 15_500, false, true},
		{"slower", 0.1, 15_000, time.Second, 500, 86, 15_500, true, true},
		{"faster", 0.1, 15_000, time.Second, 500, 15, 15_500, true, true},
		{"not yet faster", 0.1, 15_000, time.Second, 500, 17, 15_500, false, true},
		{"not enough", 0.1, 15_000, time.Second, 319, 40, 15_319, false, false},
		{"enough", 0.1, 15_000, time.Second, 320, 40, 15_320, false, true},
		{"none of too few", 0.1, 15_000, time.Second, 200, 0, 15_200, false, false},
		{"none of the last", 0.1, 15_000, time.Second, 320, 0, 15_320, true, true},
		{"all", 0.1, 15_000, time.Second, 100, 100, 15_100, true, true},
		{"none", 0.1, 15_000, time.Second, 500, 0, 15_500, true, true},
		{"too soon", 0.1, 15_000, time.Second - 1, 500, 500, 15_500, false, false},
		{"too few", 0.1, 15_000, time.Hour, 63, 63, 15_063, false, false},
		{"just enough", 0.1, 15_000, time.Hour, 64, 64, 15_063, true, true},
		{"learned from few", 0.1, 200, time.Second, 150, 39, 350, false, false},
		{"learned from many", 0.1, 20_000, time.Second, 150, 39, 20_150, true, true},
		{"the others are fewer", 0.1, 400, time.Second, 500, 500, 900, false, true},
		{"the others have gone", 0.1, 15_000, time.Hour, 500, 500, 500, false, true},
		{"a handful where there was none", 0, 15_000, time.Second, 500, 5, 15_500, false, true},
		{"more than a handful", 0, 15_000, time.Second, 500, 6, 15_500, true, true},
		{"always longer", 1, 15_000, time.Second, 500, 500, 15_500, false, true},
		{"the clock was set back", 0.1, 15_000, -time.Hour, 500, 500, 15_500, true, true},
		{"and nothing came since", 0.1, 15_000, -time.Hour, 0, 0, 15_000, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var d hedgerow.DriftCore
			require.False(t, d.Found(coreEpoch, tt.seen, tt.over, tt.live), "no check is running")
			d = hedgerow.DriftCore{}
			d.Start(coreEpoch, tt.share, tt.of)
			require.Equal(t, tt.found, d.Found(coreEpoch.Add(tt.after), tt.seen, tt.over, tt.live))
			require.Equal(t, !tt.ended, d.Running())
		})
	}
}
