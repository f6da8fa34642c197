package hedgerow

// SetJitter replaces the source of jitter, of numbers in [0, 1). It must come before the first call.
func (p *Pool) SetJitter(source func() float64) { p.jitter = source }
