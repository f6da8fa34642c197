package reverseproxy_test

import (
	"testing"

	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

func TestMain(m *testing.M) { bed.VerifyMain(m) }

// large is a body that does not fit into one read or one frame.
var large = string(bed.Pattern(bed.Large))
