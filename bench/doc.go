// Package bench compares hedgerow with other Go libraries that hedge HTTP calls, in turns and on the same work, so that
// what counts is ratios and not the machine. It is a module of its own, because of what it depends on.
//
//	go run ./overhead   # what a call costs over no network and over loopback, and what a hedge costs
//	go test ./...       # checks the ratios in a short mode, and a part of the simulations
//
// Command overhead measures what hedging costs, the tests of tail what it is good for. Each says more in its own
// documentation.
package bench
