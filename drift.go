package hedgerow

import "time"

const (
	// driftAge and driftFirst are how long a check lasts, and how many latencies it has, before it may find anything. A
	// second, because a service that stands still for a moment is no other service.
	driftAge   = time.Second
	driftFirst = 64

	// driftLast is after how many latencies a check ends that has found nothing: enough to tell that none is longer than
	// a mark that a tenth should be longer than.
	driftLast = 320

	// driftLimit is how many standard deviations are no chance: with a look a second one check in weeks is that far off,
	// two in a row the same way are none.
	driftLimit = 5
)

// A drift finds out whether latencies are still those that a delay was learned from. It compares the share of the latest
// ones that are longer than a mark with what the sketch said of it: two proportions, of samples of their own. A sketch
// that covers a minute would otherwise need most of it to notice that a service has become four times slower; until
// then nearly every call would ask for a hedge, and the budget refuse them at random.
//
// It takes two checks in a row that say the same: a service that is slow for a moment every few seconds is best known by
// all of them.
//
// It has no lock. The zero value has no check running.
type drift struct {
	began   time.Time // of the check that is running; zero: none is
	share   float64   // of the samples that are longer than the mark, by the sketch
	of      float64   // samples in the sketch when it said so
	seen    float64   // samples since the check began
	over    uint64    // how many had been longer than the mark by then
	leaning int       // what the check before has said: 1, too many were, -1, too few; 0: nothing, or there was none
}

// start begins to check: of so many samples that share is longer than the mark, as over were so far.
func (d *drift) start(now time.Time, share float64, of, over uint64) {
	*d = drift{began: now, share: share, of: float64(of), over: over}
}

// running reports whether a check is running.
func (d *drift) running() bool { return !d.began.IsZero() }

// found adds the samples that were seen to the check, of which over in all were longer than the mark, with live ones in the
// sketch. It reports whether this is the second check in a row to contradict the sketch in the same way, which ends it. So
// do enough samples that show nothing.
func (d *drift) found(now time.Time, seen, over, live uint64) bool {
	d.seen += float64(seen)
	age := now.Sub(d.began)
	if !d.running() || age >= 0 && (age < driftAge || d.seen < driftFirst) {
		return false
	}
	off := float64(over-d.over) - d.seen*d.share
	variance := d.seen * d.share * (1 - d.share) * (1 + d.seen/d.of)
	before := d.leaning
	switch {
	case age < 0 || float64(live) < 2*d.seen: // the clock was set back, or the latest ones outvote the others anyway
		*d = drift{}
	// One more, so that a share of nearly nothing is not contradicted by a handful.
	case off*off > driftLimit*driftLimit*(variance+1):
		*d = drift{began: now, share: d.share, of: d.of, over: over, leaning: 1}
		if off < 0 {
			d.leaning = -1
		}
		if d.leaning == before {
			*d = drift{}
			return true
		}
	case d.seen >= driftLast:
		*d = drift{}
	}
	return false
}
