package hedgerow_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

func TestDrift(t *testing.T) {
	t.Parallel()
	// A look at the latencies seen since the one before.
	type look struct {
		at         time.Duration // since the start
		seen, over uint64
		found      bool
		running    bool // afterwards
	}
	const s = time.Second
	for _, tt := range []struct {
		name  string
		share float64 // of the samples that the delay was learned from
		of    uint64
		gone  bool // they have left the window
		looks []look
	}{
		{"as expected", 0.1, 15_000, false, []look{{s, 500, 50, false, false}}},
		{"by chance", 0.1, 15_000, false, []look{{s, 500, 83, false, false}}},
		{"slower", 0.1, 15_000, false, []look{{s, 500, 86, false, true}, {2 * s, 500, 86, true, false}}},
		{"faster", 0.1, 15_000, false, []look{{s, 500, 15, false, true}, {2 * s, 500, 15, true, false}}},
		{"not yet faster", 0.1, 15_000, false, []look{{s, 500, 17, false, false}}},
		{"slower once", 0.1, 15_000, false, []look{{s, 500, 86, false, true}, {2 * s, 500, 50, false, false}}},
		{"slower and faster", 0.1, 15_000, false, []look{{s, 500, 86, false, true}, {2 * s, 500, 15, false, true}, {3 * s, 500, 15, true, false}}},
		{"all", 0.1, 15_000, false, []look{{s, 100, 100, false, true}, {2 * s, 100, 100, true, false}}},
		{"none", 0.1, 15_000, false, []look{{s, 500, 0, false, true}, {2 * s, 500, 0, true, false}}},
		{"none of too few", 0.1, 15_000, false, []look{{s, 200, 0, false, true}, {2 * s, 119, 0, false, true}, {3 * s, 1, 0, false, true}, {4 * s, 320, 0, true, false}}},
		{"enough", 0.1, 15_000, false, []look{{s, 319, 40, false, true}, {s, 1, 0, false, false}}},
		{"too soon", 0.1, 15_000, false, []look{{s - 1, 500, 500, false, true}, {s, 0, 0, false, true}, {2*s - 1, 500, 500, false, true}, {2 * s, 0, 0, true, false}}},
		{"too few", 0.1, 15_000, false, []look{{time.Hour, 63, 63, false, true}, {time.Hour, 1, 1, false, true}}},
		{"learned from few", 0.1, 200, false, []look{{s, 150, 39, false, true}, {2 * s, 1, 1, false, true}}},
		{"learned from many", 0.1, 20_000, false, []look{{s, 150, 39, false, true}, {2 * s, 150, 39, true, false}}},
		{"the others are fewer", 0.1, 400, false, []look{{s, 500, 500, false, false}}},
		{"the others have gone", 0.1, 15_000, true, []look{{s, 500, 500, false, false}}},
		{"a handful where there was none", 0, 15_000, false, []look{{s, 500, 5, false, false}}},
		{"more than a handful", 0, 15_000, false, []look{{s, 500, 6, false, true}, {2 * s, 500, 6, true, false}}},
		{"always longer", 1, 15_000, false, []look{{s, 500, 500, false, false}}},
		{"the clock was set back", 0.1, 15_000, false, []look{{-time.Hour, 500, 500, false, false}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var d hedgerow.DriftCore
			require.False(t, d.Found(coreEpoch, 500, 500, 15_500), "no check is running")
			const before = 7
			seen, over := uint64(0), uint64(before)
			d.Start(coreEpoch, tt.share, tt.of, before)
			for k, l := range tt.looks {
				seen += l.seen
				over += l.over
				live := seen
				if !tt.gone {
					live += tt.of
				}
				require.Equal(t, l.found, d.Found(coreEpoch.Add(l.at), l.seen, over, live), k)
				require.Equal(t, l.running, d.Running(), k)
			}
		})
	}
}
