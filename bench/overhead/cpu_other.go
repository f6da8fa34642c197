//go:build !unix

package main

import "time"

// cpuTime returns zero: the processor time that this process has used is not known.
func cpuTime() time.Duration { return 0 }
