package hedgerow

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// marked is what the context of an attempt carries under attemptKey: an attempt of a Transport, or a try of a Pool.
type marked interface {
	context.Context
	id() Attempt
	mayRepeat() bool // the call may be sent more than once, whatever its method
	identity() identity
	race() (a *attempt, pools int) // the Transport's attempt, nil if there is none, and how many pools there are from there
}

// markFrom returns what the context of an attempt carries, nil if ctx is of none.
func markFrom(ctx context.Context) marked {
	m, _ := ctx.Value(attemptKey{}).(marked)
	return m
}

// inherited returns what req has from the call that its context is of: the attempt above, nil if there is none, and what the caller
// has set, nil if nothing. A layer may send a request of its own with that context, say for a token. That is another call: it is no
// part of the race, and was not declared to be idempotent.
func inherited(req *http.Request) (above marked, opts *Call) {
	ctx := req.Context()
	above, opts = markFrom(ctx), callFrom(ctx)
	if above == nil || req.URL != nil && above.identity().is(identify(req)) {
		return above, opts
	}
	if opts == callFrom(above) { //nolint:contextcheck // it is one that ctx is a child of
		opts = nil // else it was set for req
	}
	return nil, opts
}

// An identity is what the request of an attempt is known by. It is taken when the attempt is made: later the request is its base's,
// or its caller's, to change.
type identity struct {
	method uint8
	path   string
}

func identify(req *http.Request) identity {
	id := identity{methodCode(req.Method), req.URL.Path}
	if req.URL.Opaque != "" {
		id.path = req.URL.Opaque
	}
	return id
}

// is reports whether the requests are, as far as can be told, those of one call. A layer may send it elsewhere, or to another path,
// as long as method and last segment stay.
func (id identity) is(other identity) bool {
	return id.method == other.method && lastSegment(id.path) == lastSegment(other.path)
}

func lastSegment(path string) string {
	path = strings.TrimSuffix(path, "/")
	return path[strings.LastIndexByte(path, '/')+1:]
}

// methodCode tells the methods of RFC 9110 and RFC 5789 apart, and others by a hash.
func methodCode(method string) uint8 {
	switch method {
	case "", http.MethodGet:
		return 1
	case http.MethodHead:
		return 2
	case http.MethodPost:
		return 3
	case http.MethodPut:
		return 4
	case http.MethodPatch:
		return 5
	case http.MethodDelete:
		return 6
	case http.MethodConnect:
		return 7
	case http.MethodOptions:
		return 8
	case http.MethodTrace:
		return 9
	}
	return uint8(hashString(method)>>56) | 0x80
}

// A carrier is a call of a Transport, as the pool beneath sees it.
type carrier interface {
	identity() identity
	flight() *flight // the same at each call
	// sending is told that the pool is about to send an attempt on a resource. It returns how the send is to be known, and
	// whether it may be.
	sending(a *attempt, now time.Time, pool, resource string) (Attempt, bool)
	passes(a *attempt) // the pool sends an attempt on without acting
}

// A flight is what the attempts of one call have in common with the outermost pool beneath: made when the first of them
// reaches it.
type flight struct {
	clock time.Duration // from the start of the call; hedge n is due n delays after it; guarded by the mutex of the race

	mu    sync.Mutex // guards the fields below and in the notes
	notes []*note
	room  [2]note  // for the first of them
	refs  [2]*note // for notes
	next  int32    // number of the latest send that was given one
	sends int
}

// A note is what a pool says of an attempt of a Transport. The pool writes it while the attempt runs.
type note struct {
	using    [2]*member    // carry the attempt now, in the outermost pool and in the one beneath that
	sent     Attempt       // the latest send
	sentAt   time.Time     // of it; zero: none yet
	done     *AttemptEvent // how that ended, if the pool went on from there; nil: it is in flight, or was the attempt's
	unplaced bool          // it is a hedge of which nothing was sent
	refused  int           // status of a response whose verdict sends calls elsewhere; zero: none
	policy   bool          // a policy function has panicked
}

// enter says that the attempt has reached a pool, which speaks for it from now on.
func (a *attempt) enter() {
	f := a.carrier.flight()
	f.mu.Lock()
	defer f.mu.Unlock()
	if a.note == nil {
		if f.notes == nil {
			f.notes = f.refs[:0]
		}
		if n := len(f.notes); n < len(f.room) {
			a.note = &f.room[n]
		} else {
			a.note = new(note)
		}
		f.notes = append(f.notes, a.note)
	}
}

// send notes that an attempt is sent on a resource, and returns how the send is to be known, whether it is the first of
// its attempt, and else how the one before has ended. numbered says that the attempt has its number already.
func (f *flight) send(
	a *attempt, numbered bool, now time.Time, pool, resource string,
) (id Attempt, first bool, before *AttemptEvent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := a.note
	first, before = n.sentAt.IsZero(), n.done
	id = a.id()
	if !first {
		id.Kind = AttemptRetry
	}
	if !first || !numbered {
		f.next++
		id.Number = int(f.next)
	}
	id.Pool, id.Resource = pool, resource
	f.sends++
	n.sent, n.sentAt, n.done = id, now, nil
	n.refused, n.unplaced = 0, false
	return id, first, before
}

// tell changes what the pool says of the attempt.
func (a *attempt) tell(change func(*note)) {
	f := a.carrier.flight()
	f.mu.Lock()
	defer f.mu.Unlock()
	change(a.note)
}

// others returns the members that other attempts of the call use.
func (a *attempt) others() []*member {
	f := a.carrier.flight()
	f.mu.Lock()
	defer f.mu.Unlock()
	var used []*member
	for _, n := range f.notes {
		for _, m := range n.using {
			if n != a.note && m != nil && !slices.Contains(used, m) {
				used = append(used, m)
			}
		}
	}
	return used
}

// of returns what the pool has said of the attempt; the zero note if the attempt has not reached it. f may be nil.
func (f *flight) of(a *attempt) (n note, entered bool) {
	if f == nil {
		return note{}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if a.note == nil {
		return note{}, false
	}
	return *a.note, true
}

// upcoming returns the number of the next send, as far as that can be told now.
func (f *flight) upcoming() int32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.next + 1
}

// skip returns the number of an attempt that is not sent by the pool.
func (f *flight) skip() int32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next++
	return f.next
}

// answered counts an attempt that reached the pool, and was answered by something between.
func (f *flight) answered() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sends++
}

// count returns how many sends there were. f may be nil.
func (f *flight) count() int {
	if f == nil {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sends
}
