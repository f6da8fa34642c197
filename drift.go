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

	// driftLimit is how many standard deviations are no chance. With one look a second, chance alone makes an endpoint
	// learn anew once in weeks.
	driftLimit = 5
)

// A drift finds out whether latencies are still those that a delay was learned from. It compares the share of the latest
// ones that are longer than a mark with what the sketch said of it: two proportions, of samples of their own. A sketch
// that covers a minute would otherwise need most of it to notice that a service has become four times slower; until
// then nearly every call would ask for a hedge, and the budget refuse them at random.
//
// It has no lock. The zero value has no check running.
type drift struct {
	began time.Time // of the check that is running; zero: none is
	share float64   // of the samples that are longer than the mark, by the sketch
	of    float64   // samples in the sketch when it said so
	seen  float64   // samples since
}

// start begins a check: of so many samples that share is longer than the mark.
func (d *drift) start(now time.Time, share float64, of uint64) {
	*d = drift{began: now, share: share, of: float64(of)}
}

// running reports whether a check is.
func (d *drift) running() bool { return !d.began.IsZero() }

// found reports whether the latest samples, of which over are longer than the mark, contradict the rest of the live ones,
// which ends the check. So does having looked at enough of them.
func (d *drift) found(now time.Time, over, live uint64) bool {
	age := now.Sub(d.began)
	if !d.running() || age >= 0 && (age < driftAge || d.seen < driftFirst) {
		return false
	}
	off := float64(over) - d.seen*d.share
	variance := d.seen * d.share * (1 - d.share) * (1 + d.seen/d.of)
	// One more, so that a share of nearly nothing is not contradicted by a handful.
	contradicted := off*off > driftLimit*driftLimit*(variance+1)
	outvoted := float64(live) < 2*d.seen // the others are, by the latest ones
	if contradicted || outvoted || age < 0 || d.seen >= driftLast {
		*d = drift{}
	}
	return contradicted && !outvoted
}
