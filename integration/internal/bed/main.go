package bed

import (
	"testing"

	"go.uber.org/goleak"
)

// VerifyMain is [goleak.VerifyTestMain], but for a server that has answered before it has read all: that waits half a second before it
// closes, longer than goleak does.
func VerifyMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}
