package hedgerow_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// Events are delivered in the order of their numbers, without gaps, whoever makes them at the same time.
func TestP75EventsComeInOrder(t *testing.T) {
	t.Parallel()
	const makers, each = 8, 100
	var mu sync.Mutex
	var seen []uint64
	p, err := hedgerow.NewPool(hedgerow.PoolConfig{
		Resources: []hedgerow.Resource{{ID: "a"}, {ID: "b"}},
		ResourceChange: func(e hedgerow.ResourceEvent) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, e.Seq)
		},
	})
	require.NoError(t, err)
	faults := make(chan error, makers*each)
	var wg sync.WaitGroup
	for k := range makers {
		wg.Go(func() {
			for range each { // a cooldown is an event each time
				faults <- p.Report([]string{"a", "b"}[k%2], "", hedgerow.Verdict{Action: hedgerow.ActionCooldown})
			}
		})
	}
	wg.Wait()
	close(faults)
	for err := range faults {
		require.NoError(t, err)
	}
	require.Len(t, seen, makers*each)
	for i, seq := range seen {
		require.EqualValues(t, i+1, seq)
	}
}
