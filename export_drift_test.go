package hedgerow

import "time"

// DriftCore lets tests check latencies for a drift.
type DriftCore struct{ d drift }

func (c *DriftCore) Start(now time.Time, share float64, of, over uint64) {
	c.d.start(now, share, of, over)
}

func (c *DriftCore) Running() bool { return c.d.running() }

func (c *DriftCore) Found(now time.Time, seen, over, live uint64) bool {
	return c.d.found(now, seen, over, live)
}
