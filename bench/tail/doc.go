// Package tail simulates services with tails, in virtual time, and compares what hedging policies make of them.
//
//	go test ./tail                                # one seed of each workload but the largest, compared with the results
//	go test -run TestSimulation ./tail -update    # all of it: rewrites docs/tail and the table of the README
//	go test -run TestRendered ./tail -show        # rewrites what shows the results, without running anything
//
// The calls of a run are an open loop: they arrive whether or not earlier ones have ended, as they do at a service that
// gets slow. They go through the real RoundTrippers, of hedgerow and of its peers, inside a [testing/synctest] bubble,
// whose clock jumps from event to event, so that a run of a hundred seconds takes less than one and comes out the same
// every time. Every contender faces the same random numbers: the k-th attempt of the n-th call of a seed takes the same
// time under each of them, unless the workload makes it depend on when it is sent.
//
// The oracle is the limit to compare with: the best single delay for a workload, found by search with all service times
// known, under the same budget as hedgerow's default.
//
// What is simulated is latency, not load: an attempt does not slow down others. So the columns "extra" and "worst 10 s",
// which tell how many attempts a policy adds, are half of each result.
//
// It holds tests only.
package tail
