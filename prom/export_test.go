package prom

// SkipReasons, CircuitStates and ResourceStates are what the collector has series for.
var (
	SkipReasons   = skipReasons
	CircuitStates = circuitStates

	ResourceStates = resourceStates
)
