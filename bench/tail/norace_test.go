//go:build !race

package tail_test

// simRaced is whether the race detector is on, with which the simulations take ten times as long.
const simRaced = false
