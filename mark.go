package hedgerow

import (
	"context"
	"slices"
	"sync"
	"time"
)

// marked is what the context of an attempt carries under attemptKey: an attempt of a Transport, or a try of a Pool.
type marked interface {
	id() Attempt
	mayRepeat() bool // the call may be sent more than once, whatever its method
}

// markFrom returns what the context of an attempt carries, nil if ctx is of none.
func markFrom(ctx context.Context) marked {
	m, _ := ctx.Value(attemptKey{}).(marked)
	return m
}

// A carrier is a call of a Transport, as the pool beneath sees it.
type carrier interface {
	flight() *flight                     // the same at each call
	sendBegun(a *attempt, now time.Time) // the pool sends an attempt for the first time
	sendEnded(e AttemptEvent)            // a send has ended, and another one of its attempt follows
}

// A flight is what the attempts of one call have in common with the outermost pool beneath: made when the first of them
// reaches it.
type flight struct {
	mu    sync.Mutex // guards the fields below and in the notes
	notes []*note
	next  int32 // number of the latest send that was given one
	sends int
}

// A note is what a pool says of an attempt of a Transport. The pool writes it while the attempt runs.
type note struct {
	using    *member   // carries the attempt now
	sent     Attempt   // the latest send
	sentAt   time.Time // of it; zero: none yet
	unplaced bool      // it is a hedge for which there was no resource
	refused  bool      // the verdict on its response sends calls elsewhere
	policy   bool      // a policy function has panicked
}

// enter says that the attempt has reached a pool, which speaks for it from now on.
func (a *attempt) enter() {
	f := a.carrier.flight()
	f.mu.Lock()
	defer f.mu.Unlock()
	if a.note == nil {
		a.note = new(note)
		f.notes = append(f.notes, a.note)
	}
}

// send says that the pool sends the attempt on a resource, and returns how the send is to be known.
func (a *attempt) send(now time.Time, pool, resource string) Attempt {
	f := a.carrier.flight()
	f.mu.Lock()
	n := a.note
	first := n.sentAt.IsZero()
	id := a.id()
	if !first {
		f.next++
		id.Number, id.Kind = int(f.next), AttemptRetry
	}
	id.Pool, id.Resource = pool, resource
	f.sends++
	n.sent, n.sentAt = id, now
	f.mu.Unlock()
	if first {
		a.carrier.sendBegun(a, now)
	}
	return id
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
		if n != a.note && n.using != nil && !slices.Contains(used, n.using) {
			used = append(used, n.using)
		}
	}
	return used
}

// of returns what the pool has said of the attempt; the zero note if the attempt has not reached it.
func (f *flight) of(a *attempt) (n note, entered bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a.note == nil {
		return note{}, false
	}
	return *a.note, true
}

// number returns the number of the next attempt.
func (f *flight) number() int32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next++
	return f.next
}

// count returns how many sends there were.
func (f *flight) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sends
}
