package hedgerow_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// TestRaceFitsItsSizeClass keeps what every call that may be hedged allocates within 704 bytes, of which the allocator needs
// 8 for itself. The next size is 768.
func TestRaceFitsItsSizeClass(t *testing.T) {
	t.Parallel()
	if strconv.IntSize == 64 {
		require.LessOrEqual(t, hedgerow.RaceSize(), uintptr(704-8))
	}
}
