// Package integration shows that the HTTP clients people already use work on top of hedgerow, over loopback servers that
// answer as the real services do, with hedging and a pool on, over HTTP/1.1 and HTTP/2 where it speaks both. Each client has a directory of its
// own, whose tests are also the shortest working set-up for it. It is a module of its own, because of what it depends on.
//
//	go test ./...
//
// It holds tests only.
package integration
