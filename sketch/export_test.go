package sketch

import (
	"time"
	"unsafe"
)

// Footprint returns the heap bytes that w holds.
func (w *Window) Footprint() int {
	bytes := int(unsafe.Sizeof(*w) + unsafe.Sizeof(*w.mapping))
	for _, g := range []*generation{&w.counts.current, &w.counts.previous} {
		for _, counts := range g.counts {
			bytes += cap(counts) * int(unsafe.Sizeof(uint32(0)))
		}
	}
	return bytes
}

// Arrays returns how many arrays of counts are allocated, the length they share and the most it may be.
func (w *Window) Arrays() (n, size, limit int) {
	for _, g := range []*generation{&w.counts.current, &w.counts.previous} {
		for _, counts := range g.counts {
			if counts != nil {
				n++
			}
		}
	}
	return n, w.counts.size, w.counts.limit
}

// AddMany records n completed samples of the same duration, of which at least one must fit.
func (w *Window) AddMany(now time.Time, d time.Duration, n uint32) {
	w.Add(now, d)
	g := &w.counts.current
	for _, k := range []kind{completed, observed} {
		g.counts[k][bucketOf(w.mapping, d)-w.counts.base] += n - 1
		g.total[k] += uint64(n - 1)
	}
}

// Buckets returns how many buckets the estimate spans.
func (s *Survival) Buckets() int { return len(s.share) }

// Room returns how many buckets the estimate can span without allocating.
func (s *Survival) Room() int { return cap(s.share) }
