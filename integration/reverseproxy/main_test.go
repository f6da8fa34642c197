package reverseproxy_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// large is a body that does not fit into one read or one frame.
var large = string(bed.Pattern(bed.Large))
