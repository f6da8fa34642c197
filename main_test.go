package hedgerow_test

import (
	"testing"

	"go.uber.org/goleak"
)

// A server that has answered before it has read all waits half a second before it closes, longer than goleak does.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}
