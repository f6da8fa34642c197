package hedgerow

import (
	"io"
	"sync"
	"time"
)

// pauseTime is how long reads wait for a GetBody, and a GetBody for a Read from memory. A GetBody that takes longer, or
// itself waits for the upload, most likely makes copies.
const pauseTime = 100 * time.Millisecond

// A pause keeps copies from being read. A Read in progress is waited for if it is from memory. Another one may block; if it
// comes back during the pause, it waits for the end of it with what it has read.
type pause struct {
	all    bool // of the copies are held
	timer  *time.Timer
	over   chan struct{}
	resume func() // lets them be read again, once
}

func pauseReads(copies []*requestBody) *pause {
	p := &pause{all: true, over: make(chan struct{})}
	var held []*requestBody
	for _, c := range copies {
		if c.hold() {
			held = append(held, c)
		} else {
			p.all = false
			c.doubt.Store(p)
		}
	}
	var once sync.Once
	p.resume = func() {
		once.Do(func() {
			close(p.over)
			for _, c := range held {
				<-c.turn
			}
		})
	}
	p.timer = time.AfterFunc(pauseTime, p.resume)
	return p
}

// held reports whether no copy was read since the pause began, which then goes on until resume is called.
func (p *pause) held() bool { return p.timer.Stop() && p.all }

// wait returns at the end of the pause. p may be nil.
func (p *pause) wait() {
	if p != nil {
		<-p.over
	}
}

// hold takes the turn, and reports whether it did.
func (b *requestBody) hold() bool {
	if b.memory {
		return takeTurn(b.turn)
	}
	return tryTurn(b.turn)
}

// tryTurn takes the turn if nobody has it.
func tryTurn(turn chan struct{}) bool {
	select {
	case turn <- struct{}{}:
		return true
	default:
		return false
	}
}

// takeTurn waits for its turn, and reports whether it came within the time that a pause lasts.
func takeTurn(turn chan struct{}) bool {
	if tryTurn(turn) {
		return true
	}
	timer := time.NewTimer(pauseTime)
	defer timer.Stop()
	select {
	case turn <- struct{}{}:
		return true
	case <-timer.C:
		return false
	}
}

// getQuietly calls get when the copies, one of which it has rewound in the middle of a Read, are not read any more.
func getQuietly(copies []*requestBody, get getBody) (io.ReadCloser, error) {
	timer := time.NewTimer(pauseTime)
	defer timer.Stop()
	for _, c := range copies {
		select {
		case c.turn <- struct{}{}:
			<-c.turn
		case <-timer.C:
			return nil, errBodyShared
		}
	}
	return get()
}
