package hedgerow

import "time"

func (c BreakerConfig) WithDefaults() BreakerConfig  { return c.withDefaults() }
func (c BreakerConfig) Validate(path string) []error { return c.validate(path) }

// CircuitTicket is a place in a half-open phase, CircuitMove a change of state.
type (
	CircuitTicket = ticket
	CircuitMove   struct{ From, To CircuitState }
)

// CircuitCore lets tests reach the circuit.
type CircuitCore struct{ c *circuit }

func NewCircuitCore(cfg BreakerConfig) CircuitCore { return CircuitCore{newCircuit(cfg)} }

func (c CircuitCore) Peek(now time.Time) bool          { return c.c.peek(now) }
func (c CircuitCore) Release(t CircuitTicket)          { c.c.release(t) }
func (c CircuitCore) State(now time.Time) CircuitState { return c.c.state(now) }
func (c CircuitCore) Until(now time.Time) time.Time    { return c.c.until(now) }

func (c CircuitCore) Admit(now time.Time) (CircuitTicket, bool, []CircuitMove) {
	t, ok, moves := c.c.admit(now)
	return t, ok, exportMoves(moves)
}

func (c CircuitCore) Record(now time.Time, failed bool) []CircuitMove {
	moves := c.c.record(now, failed)
	return exportMoves(moves)
}

// CircuitAdmission is the exported form of admission.
type CircuitAdmission struct {
	Host, Endpoint           CircuitTicket
	HostMoves, EndpointMoves []CircuitMove
	RefusedBy                CircuitScope
}

func AdmitBoth(now time.Time, host, endpoint CircuitCore) (CircuitAdmission, bool) {
	a, ok := admitBoth(now, host.c, endpoint.c)
	return CircuitAdmission{
		Host: a.host, Endpoint: a.endpoint,
		HostMoves: exportMoves(a.hostMoves), EndpointMoves: exportMoves(a.endpointMoves),
		RefusedBy: a.refusedBy,
	}, ok
}

// exportMoves returns nil for no moves, without allocating, so that allocation tests can go through the seam.
func exportMoves(moves transitions) []CircuitMove {
	if len(moves) == 0 {
		return nil
	}
	out := make([]CircuitMove, 0, len(moves))
	for _, m := range moves {
		out = append(out, CircuitMove{m.from, m.to})
	}
	return out
}
