// Package bench compares hedgerow with other Go libraries that hedge HTTP calls, in turns and over the same base, so
// that what counts is ratios and not the machine. It is a module of its own, because of what it depends on.
//
//	go test ./...                                   # checks the ratios
//	go test -v -run 'TestOverhead|TestPassThrough'  # and prints them
//	go test -bench . -benchmem                      # the same as benchmarks, in one process
//
// It holds tests only.
package bench
