package sketch

import (
	"math"

	"github.com/DataDog/sketches-go/ddsketch/mapping"
)

const (
	// maxSpread is the ratio of the longest to the shortest duration told apart.
	maxSpread = 100_000

	// The arrays grow in steps of growStep buckets and leave at least growMargin free, so that a range that widens
	// bucket by bucket is not copied at each of them.
	growStep   = 32
	growMargin = 16
)

// kind says which counts of a generation a sample belongs to.
type kind int

const (
	completed kind = iota
	censored
	observed
	kinds
)

// buckets holds the counts of two generations. All arrays cover the same bucket indexes, from base to base+size-1, so
// that merging is adding element by element; an array that was never written to is nil and reads as zeros.
type buckets struct {
	limit int // most buckets an array may have
	base  int // index of the first bucket
	size  int // length of every array that is not nil

	current, previous generation
}

// generation holds the counts of one width of time.
type generation struct {
	counts [kinds][]uint32
	total  [kinds]uint64 // sums of counts, so a sample that a full bucket refused is in neither
	lo, hi int           // lowest and highest index in use; meaningless while empty
}

// bucketLimit returns how many buckets of m cover maxSpread.
func bucketLimit(m *mapping.LogarithmicMapping) int {
	return m.Index(maxSpread) - m.Index(1) + 1
}

func (g *generation) empty() bool {
	return g.total[completed]+g.total[censored]+g.total[observed] == 0
}

// reset drops the samples and keeps the memory.
func (g *generation) reset() {
	for k := range g.counts {
		clear(g.counts[k])
		g.total[k] = 0
	}
}

// rotate makes the current generation the previous one and drops what that was.
func (b *buckets) rotate() {
	b.previous.reset()
	b.current, b.previous = b.previous, b.current
}

// reset drops the samples of both generations.
func (b *buckets) reset() {
	b.current.reset()
	b.previous.reset()
}

// forget drops the samples of kind k from both generations. The range in use stays as it is.
func (b *buckets) forget(k kind) {
	for _, g := range []*generation{&b.current, &b.previous} {
		clear(g.counts[k])
		g.total[k] = 0
	}
}

// total returns the number of samples of kind k.
func (b *buckets) total(k kind) uint64 {
	return b.current.total[k] + b.previous.total[k]
}

// at returns the count of kind k in the bucket at offset pos, 0 <= pos < size.
func (b *buckets) at(k kind, pos int) uint64 {
	return peek(b.current.counts[k], pos) + peek(b.previous.counts[k], pos)
}

func peek(counts []uint32, pos int) uint64 {
	if pos >= len(counts) {
		return 0
	}
	return uint64(counts[pos])
}

// span returns the lowest and highest index in use; ok is false when there is no sample.
func (b *buckets) span() (lo, hi int, ok bool) {
	c, p := &b.current, &b.previous
	switch {
	case p.empty():
		return c.lo, c.hi, !c.empty()
	case c.empty():
		return p.lo, p.hi, true
	default:
		return min(c.lo, p.lo), max(c.hi, p.hi), true
	}
}

// add counts one sample of kind k in bucket i of the current generation.
func (b *buckets) add(i int, k kind) {
	if i < b.base || i >= b.base+b.size {
		i = b.makeRoom(i)
	}
	g := &b.current
	if g.counts[k] == nil {
		g.counts[k] = make([]uint32, b.size)
	}
	count := &g.counts[k][i-b.base]
	if *count == math.MaxUint32 {
		return
	}
	*count++
	if g.empty() {
		g.lo, g.hi = i, i
	} else {
		g.lo, g.hi = min(g.lo, i), max(g.hi, i)
	}
	g.total[k]++
}

// makeRoom moves and grows the arrays until they cover bucket i, and returns the bucket that its samples go to: i,
// or the lowest one left when i and the buckets in use lie too far apart for the limit.
func (b *buckets) makeRoom(i int) int {
	lo, hi, ok := b.span()
	if !ok {
		lo, hi = i, i
	}
	hi = max(hi, i)
	lo = max(min(lo, i), hi-b.limit+1)

	need := hi - lo + 1
	size := b.size
	if need > size {
		size = min(b.limit, (need+growMargin+growStep-1)/growStep*growStep)
	}
	// The spare buckets are shared between both ends. After a fold there are none, so base is the folded bucket.
	base := lo - (size-need)/2
	if base != b.base || size != b.size {
		b.current.move(base-b.base, size, lo)
		b.previous.move(base-b.base, size, lo)
		b.base, b.size = base, size
	}
	return max(i, lo)
}

// move makes the arrays start shift buckets higher and have size elements. Samples below the index lo are folded into
// it, which must then be the new first bucket.
func (g *generation) move(shift, size, lo int) {
	if !g.empty() {
		g.lo, g.hi = max(g.lo, lo), max(g.hi, lo)
	}
	for k, counts := range g.counts {
		if counts == nil {
			continue
		}
		below := min(max(shift, 0), len(counts))
		var folded uint64
		for _, n := range counts[:below] {
			folded += uint64(n)
		}
		moved := counts
		if size != len(counts) {
			moved = make([]uint32, size)
		}
		gap := min(max(-shift, 0), size)
		n := copy(moved[gap:], counts[below:])
		clear(moved[:gap])
		clear(moved[gap+n:])

		sum := folded + uint64(moved[0])
		kept := min(sum, math.MaxUint32)
		moved[0] = uint32(kept)
		g.total[k] -= sum - kept
		g.counts[k] = moved
	}
}

// cursor walks over the observed samples in ascending order.
type cursor struct {
	b      *buckets
	lo     int    // index of the lowest bucket in use
	i      int    // index of the bucket reached
	before uint64 // observed samples in the buckets below i
}

// cursor returns a cursor at the lowest bucket. There must be a sample.
func (b *buckets) cursor() cursor {
	lo, _, _ := b.span()
	return cursor{b: b, lo: lo, i: lo}
}

// seek returns the index of the bucket that holds the observed sample of that rank, which must exist. Asking for a
// lower rank than before starts over.
func (c *cursor) seek(rank uint64) int {
	if rank < c.before {
		c.i, c.before = c.lo, 0
	}
	for {
		n := c.b.at(observed, c.i-c.b.base)
		if rank < c.before+n {
			return c.i
		}
		c.before += n
		c.i++
	}
}
