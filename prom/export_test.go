package prom

// SkipReasons and CircuitStates are what the collector has series for.
var (
	SkipReasons   = skipReasons
	CircuitStates = circuitStates
)
