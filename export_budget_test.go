package hedgerow

import "time"

// BudgetToken is one hedge in the units of BudgetCore.Cap and BudgetCore.Share.
const BudgetToken = wholeToken

// BudgetCore lets tests reach the budget.
type BudgetCore struct{ b *budget }

func NewBudgetCore(percent, estimatedRPS float64, rateWindow time.Duration) BudgetCore {
	return BudgetCore{newBudget(percent, estimatedRPS, rateWindow)}
}

func (b BudgetCore) Deposit(now time.Time)      { b.b.deposit(now) }
func (b BudgetCore) Take(now time.Time) bool    { return b.b.take(now) }
func (b BudgetCore) Refund(now time.Time)       { b.b.refund(now) }
func (b BudgetCore) Rate(now time.Time) float64 { return b.b.rate(now) }
func (b BudgetCore) Share() int64               { return b.b.share }

// Cap returns the cap in force of a bucket filled by calls.
func (b BudgetCore) Cap(now time.Time) int64 {
	b.b.mu.Lock()
	defer b.b.mu.Unlock()
	return b.b.capLocked(now)
}
