//go:build !race

package hedgerow_test

// simRaced says that the race detector is on, under which simulations take several times as long.
const simRaced = false
