package hedgerow

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// wholeToken is one hedge in the units the bucket counts in. Integers, because ten deposits of a tenth
	// must buy a hedge and a float that was added to a billion times would not say so.
	wholeToken = 1_000_000_000

	// maxBudgetCap bounds the bucket well inside an int64, whatever rate was observed or configured.
	maxBudgetCap = 1_000_000_000 * wholeToken

	// budgetCapSeconds is how many seconds of hedges a bucket may save up.
	budgetCapSeconds = 2

	// minRateSpan is the least time that a young estimate divides by: one call, or one burst within a
	// millisecond, says nothing about the calls of the next second.
	minRateSpan = time.Second
)

// budget limits the hedges of one endpoint to a share of its calls. It is a token bucket in one of two forms:
//
//   - Filled by calls (no estimated rate): each call deposits its share of a token and a hedge takes a whole one. The
//     bucket holds at most the cap, two seconds of hedges at the observed rate and at least one token, and starts
//     with one. Since tokens come from calls alone and never exceed the cap, over any span
//     hedges <= share x calls + largest cap in the span: at any rate, in bursts, and whatever the clock does. The price
//     is paid where calls are rare and the share does not divide one: a deposit that overshoots a cap of one token
//     loses the rest, and 33 % at a call per second comes to one hedge in four calls.
//   - Filled by time (an estimated rate): golang.org/x/time/rate, which starts full. Deposits only feed the observed
//     rate. Over any span hedges <= share x estimate x seconds + burst + 1, the last one because a refund counts until
//     the refill has covered the whole of it.
//
// Hedges are takes less refunds. A budget is safe for concurrent use.
type budget struct {
	share   int64         // what one call deposits, in units of 1/wholeToken
	limiter *rate.Limiter // nil when calls fill the bucket

	mu     sync.Mutex // guards the fields below; held for arithmetic only
	calls  callRate
	floor  int64     // the least that the cap is
	tokens int64     // filled by calls: what the bucket holds, in units of 1/wholeToken
	bound  int64     // filled by calls: the tokens at which deposit looks at the cap
	credit int       // filled by time: refunds not used yet
	latest time.Time // filled by time: the latest instant the limiter was shown
}

// newBudget returns a budget of percent hedges per hundred calls that observes the rate of calls over rateWindow. With
// an estimatedRPS above 0 the bucket is filled by time at that rate instead. The arguments are valid: percent in
// (0, 100], estimatedRPS finite and not negative, rateWindow above 0.
func newBudget(percent, estimatedRPS float64, rateWindow time.Duration) *budget {
	b := &budget{
		// To the nearest unit: truncating would turn the 0.7 that a float cannot hold into one unit less.
		share:  int64(math.Round(percent / 100 * wholeToken)),
		calls:  callRate{window: rateWindow},
		floor:  wholeToken,
		tokens: wholeToken,
	}
	if estimatedRPS > 0 {
		perSecond := estimatedRPS * percent / 100
		burst := min(max(budgetCapSeconds*perSecond, 1), math.MaxInt32)
		b.limiter = rate.NewLimiter(rate.Limit(perSecond), int(burst))
	}
	return b
}

// least makes the cap at least n tokens, with which the budget starts.
func (b *budget) least(n int64) {
	b.floor = n * wholeToken
	b.tokens = b.floor
}

// empty takes out what the bucket starts with.
func (b *budget) empty(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = 0
	if b.limiter != nil {
		b.limiter.AllowN(now, b.limiter.Burst())
	}
}

// deposit counts one call.
func (b *budget) deposit(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls.count(now)
	if b.limiter != nil {
		return
	}
	// The cap takes some arithmetic, so a full bucket looks at it once in a while only. In the meantime it may hold a
	// little more than the cap, which take cuts off.
	if b.tokens += b.share; b.tokens > b.bound {
		limit := b.capLocked(now)
		b.tokens = min(b.tokens, limit)
		b.bound = b.tokens + limit/64
	}
}

// take reports whether one more hedge fits the budget, and if so charges it.
func (b *budget) take(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.limiter != nil {
		now = b.boundCreditLocked(now)
		if b.credit > 0 {
			b.credit--
			return true
		}
		return b.limiter.AllowN(now, 1)
	}
	// The cap may have fallen since the last deposit: tokens saved in busier times are not for a quiet one.
	b.tokens = min(b.tokens, b.capLocked(now))
	if b.tokens < wholeToken {
		return false
	}
	b.tokens -= wholeToken
	return true
}

// refund gives back what take charged for a hedge that was not sent after all.
func (b *budget) refund(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.limiter == nil {
		b.tokens = min(b.tokens+wholeToken, b.capLocked(now))
		return
	}
	// A credit of our own, because rate.Reservation.CancelAt restores nothing once the reservation's time has come, and
	// that of a granted hedge has come at once.
	b.credit++
	b.boundCreditLocked(now)
}

// rate returns the observed calls per second.
func (b *budget) rate(now time.Time) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls.perSecond(now)
}

// level returns how full the bucket is, from 0 to 1.
func (b *budget) level(now time.Time) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.limiter != nil {
		now = b.boundCreditLocked(now)
		tokens := b.limiter.TokensAt(now) + float64(b.credit)
		return min(max(tokens/float64(b.limiter.Burst()), 0), 1)
	}
	return min(float64(b.tokens)/float64(b.capLocked(now)), 1)
}

// capLocked returns the most that a bucket filled by calls may hold, in units of 1/wholeToken. mu must be held.
func (b *budget) capLocked(now time.Time) int64 {
	saved := budgetCapSeconds * b.calls.perSecond(now) * float64(b.share)
	return int64(min(max(saved, float64(b.floor)), maxBudgetCap))
}

// boundCreditLocked drops the credits that the refill has made up for, so that they never add to a full bucket, and
// returns now, or the latest instant seen if that is later: the limiter takes a step back of the clock at its word
// and would refill for the same time twice. mu must be held.
func (b *budget) boundCreditLocked(now time.Time) time.Time {
	if now.Before(b.latest) {
		now = b.latest
	}
	b.latest = now
	if b.credit > 0 {
		missing := float64(b.limiter.Burst()) - b.limiter.TokensAt(now)
		b.credit = min(b.credit, int(math.Ceil(missing)))
	}
	return now
}

// callRate estimates calls per second from two windows: the current one, and the previous one weighted by how much of
// it still lies within one window of now. Windows rotate on use. While there is no previous window, after the start
// and after an idle gap that emptied both, the calls are divided by the time that has really passed, else the rate
// would read ten times too low one second into a window of ten. An instant before the current window counts as its
// start. callRate has no lock; the budget's guards it. The zero value with a window above 0 is ready for use.
type callRate struct {
	window            time.Duration
	start             time.Time // of the current window; zero: no calls
	current, previous int       // calls; previous is 0 only while there is no previous window
}

// count adds one call.
func (r *callRate) count(now time.Time) {
	r.rotate(now)
	if r.start.IsZero() {
		r.start = now
	}
	r.current++
}

// perSecond returns the estimate at now.
func (r *callRate) perSecond(now time.Time) float64 {
	r.rotate(now)
	if r.start.IsZero() {
		return 0
	}
	elapsed := max(now.Sub(r.start), 0)
	if r.previous == 0 {
		span := max(elapsed, min(minRateSpan, r.window))
		return float64(r.current) / span.Seconds()
	}
	left := 1 - float64(elapsed)/float64(r.window)
	return (float64(r.previous)*left + float64(r.current)) / r.window.Seconds()
}

func (r *callRate) rotate(now time.Time) {
	passed := windowsPassed(r.start, now, r.window)
	switch {
	case passed == 0:
	case passed == 1 && r.current > 0:
		r.start = r.start.Add(r.window)
		r.previous, r.current = r.current, 0
	default:
		*r = callRate{window: r.window}
	}
}

// windowsPassed returns how many windows have ended since start, where 2 stands for two or more and for a start that is
// not set. It is 0 when now is before start.
func windowsPassed(start, now time.Time, window time.Duration) int {
	elapsed := now.Sub(start)
	switch {
	case start.IsZero():
		return 2
	case elapsed < window:
		return 0
	case elapsed-window < window: // less than two; their sum could overflow
		return 1
	default:
		return 2
	}
}
