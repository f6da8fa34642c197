package main

import (
	"os"
	"testing"
)

// TestMain plays a role where the program would.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		exit(play(role, os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}
