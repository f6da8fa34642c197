package hedgerow_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
)

// openCircuit returns a circuit that opened at coreEpoch and is ready for trials 30 s later.
func openCircuit(trials int) hedgerow.CircuitCore {
	c := hedgerow.NewCircuitCore(hedgerow.BreakerConfig{HalfOpenTrials: trials}.WithDefaults())
	for range 20 {
		c.Record(coreEpoch, true)
	}
	return c
}

func TestAdmitBoth(t *testing.T) {
	t.Parallel()
	ready, early := coreEpoch.Add(30*time.Second), coreEpoch.Add(29*time.Second)
	toHalfOpen := []hedgerow.CircuitMove{{From: hedgerow.CircuitOpen, To: hedgerow.CircuitHalfOpen}}
	closed := func() hedgerow.CircuitCore { return hedgerow.NewCircuitCore(hedgerow.BreakerConfig{}.WithDefaults()) }
	// openLate opened at 20 s, so it is open when openCircuit is ready.
	openLate := func() hedgerow.CircuitCore {
		c := closed()
		for range 20 {
			c.Record(coreEpoch.Add(20*time.Second), true)
		}
		return c
	}

	t.Run("both closed", func(t *testing.T) {
		t.Parallel()
		got, ok := hedgerow.AdmitBoth(coreEpoch, closed(), closed())
		require.True(t, ok)
		require.Zero(t, got.Host)
		require.Zero(t, got.Endpoint)
		require.Empty(t, got.HostMoves)
		require.Empty(t, got.EndpointMoves)
	})
	t.Run("a nil circuit has no say", func(t *testing.T) {
		t.Parallel()
		var none hedgerow.CircuitCore
		got, ok := hedgerow.AdmitBoth(ready, none, openCircuit(1))
		require.True(t, ok)
		require.Zero(t, got.Host)
		require.NotZero(t, got.Endpoint)
		got, ok = hedgerow.AdmitBoth(early, none, openCircuit(1))
		require.False(t, ok)
		require.Equal(t, hedgerow.CircuitEndpoint, got.RefusedBy)
		got, ok = hedgerow.AdmitBoth(early, openCircuit(1), none)
		require.False(t, ok)
		require.Equal(t, hedgerow.CircuitHost, got.RefusedBy)
	})
	t.Run("both ready for trials", func(t *testing.T) {
		t.Parallel()
		host, endpoint := openCircuit(1), openCircuit(1)
		got, ok := hedgerow.AdmitBoth(ready, host, endpoint)
		require.True(t, ok)
		require.Equal(t, toHalfOpen, got.HostMoves)
		require.Equal(t, toHalfOpen, got.EndpointMoves)
		host.Release(got.Host)
		endpoint.Release(got.Endpoint)
		_, ok = hedgerow.AdmitBoth(ready, host, endpoint)
		require.True(t, ok, "the tickets are those of the places")
	})
	t.Run("the host is named when both are open", func(t *testing.T) {
		t.Parallel()
		got, ok := hedgerow.AdmitBoth(early, openCircuit(1), openCircuit(1))
		require.False(t, ok)
		require.Equal(t, hedgerow.CircuitAdmission{RefusedBy: hedgerow.CircuitHost}, got)
	})
	t.Run("an open endpoint leaves the host alone", func(t *testing.T) {
		t.Parallel()
		host := openCircuit(1)
		got, ok := hedgerow.AdmitBoth(ready, host, openLate())
		require.False(t, ok)
		require.Equal(t, hedgerow.CircuitAdmission{RefusedBy: hedgerow.CircuitEndpoint}, got)
		_, ok, moves := host.Admit(ready)
		require.True(t, ok)
		require.Equal(t, toHalfOpen, moves, "it had not been turned half-open")
	})
	t.Run("an open host leaves the endpoint alone", func(t *testing.T) {
		t.Parallel()
		endpoint := openCircuit(1)
		got, ok := hedgerow.AdmitBoth(ready, openLate(), endpoint)
		require.False(t, ok)
		require.Equal(t, hedgerow.CircuitAdmission{RefusedBy: hedgerow.CircuitHost}, got)
		_, ok, moves := endpoint.Admit(ready)
		require.True(t, ok)
		require.Equal(t, toHalfOpen, moves)
	})
	// One circuit in both roles is the race in slow motion: it says yes twice when looked at and has one place to give.
	t.Run("a place the host gave in vain is freed", func(t *testing.T) {
		t.Parallel()
		c := openCircuit(1)
		got, ok := hedgerow.AdmitBoth(ready, c, c)
		require.False(t, ok)
		require.Equal(t, hedgerow.CircuitAdmission{RefusedBy: hedgerow.CircuitEndpoint, HostMoves: toHalfOpen}, got)
		_, ok, _ = c.Admit(ready)
		require.True(t, ok)
	})
}

// circuitModel is the circuit as slow and plain as can be: it keeps every outcome and counts them anew each time.
type circuitModel struct {
	cfg    hedgerow.BreakerConfig
	state  hedgerow.CircuitState
	opened time.Time
	phase  int
	places map[int]int // held tickets: number to phase
	trials []bool

	anchor   time.Time // where window 0 starts
	window   int       // number of the current window
	recorded []struct {
		window int
		failed bool
	}
}

func (m *circuitModel) ready(now time.Time) bool {
	return m.state == hedgerow.CircuitOpen && now.Sub(m.opened) >= m.cfg.Cooldown
}

func (m *circuitModel) taken() int {
	n := 0
	for _, phase := range m.places {
		if phase == m.phase {
			n++
		}
	}
	return n
}

func (m *circuitModel) move(to hedgerow.CircuitState) hedgerow.CircuitMove {
	from := m.state
	m.state = to
	return hedgerow.CircuitMove{From: from, To: to}
}

func (m *circuitModel) turn(now time.Time) []hedgerow.CircuitMove {
	if !m.ready(now) {
		return nil
	}
	m.phase++
	m.trials = nil
	return []hedgerow.CircuitMove{m.move(hedgerow.CircuitHalfOpen)}
}

func (m *circuitModel) admit(now time.Time, number int) (bool, []hedgerow.CircuitMove) {
	moves := m.turn(now)
	switch {
	case m.state == hedgerow.CircuitOpen, m.state == hedgerow.CircuitHalfOpen && m.taken() == m.cfg.HalfOpenTrials:
		return false, moves
	case m.state == hedgerow.CircuitHalfOpen:
		m.places[number] = m.phase
	}
	return true, moves
}

func (m *circuitModel) record(now time.Time, failed bool) []hedgerow.CircuitMove {
	moves := m.turn(now)
	switch m.state {
	case hedgerow.CircuitClosed:
		number := int(math.Floor(float64(now.Sub(m.anchor)) / float64(m.cfg.Window)))
		if len(m.recorded) == 0 || number > m.window+1 {
			m.anchor, number, m.window, m.recorded = now, 0, 0, nil
		}
		m.window = max(m.window, number)
		m.recorded = append(m.recorded, struct {
			window int
			failed bool
		}{m.window, failed})
		total, failures := 0, 0
		for _, r := range m.recorded {
			if r.window >= m.window-1 {
				total++
				if r.failed {
					failures++
				}
			}
		}
		if total >= m.cfg.MinSamples && float64(failures)/float64(total) >= m.cfg.ErrorRateThreshold {
			m.opened = now
			moves = append(moves, m.move(hedgerow.CircuitOpen))
		}
	case hedgerow.CircuitOpen: // does not count
	case hedgerow.CircuitHalfOpen:
		m.trials = append(m.trials, failed)
		if len(m.trials) < m.cfg.HalfOpenTrials {
			break
		}
		failures := 0
		for _, failed := range m.trials {
			if failed {
				failures++
			}
		}
		if float64(failures)/float64(len(m.trials)) >= m.cfg.ErrorRateThreshold {
			m.opened = now
			moves = append(moves, m.move(hedgerow.CircuitOpen))
		} else {
			m.recorded = nil
			moves = append(moves, m.move(hedgerow.CircuitClosed))
		}
	}
	return moves
}

// Random lives, with a clock that mostly goes forward, agree with the model in every answer.
func TestCircuitAgainstModel(t *testing.T) {
	t.Parallel()
	seen := map[hedgerow.CircuitMove]int{}
	stragglers, refused := 0, 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		cfg := hedgerow.BreakerConfig{
			ErrorRateThreshold: oneOf(r, 0.1, 0.5, 0.9, 1),
			MinSamples:         1 + r.IntN(8),
			Window:             time.Second,
			Cooldown:           time.Duration(1+r.IntN(3)) * time.Second,
			HalfOpenTrials:     1 + r.IntN(4),
		}.WithDefaults()
		c := hedgerow.NewCircuitCore(cfg)
		m := &circuitModel{cfg: cfg, places: map[int]int{}}
		type trial struct {
			number int
			ticket hedgerow.CircuitTicket
		}
		var held []trial
		drop := func() trial {
			i := r.IntN(len(held))
			dropped := held[i]
			held = slices.Delete(held, i, i+1)
			return dropped
		}
		now, unhealthy := coreEpoch, 0.5
		for i := range 400 {
			now = now.Add(time.Duration((r.NormFloat64() + 0.5) * float64(oneOf(r, 0, time.Millisecond, 300*time.Millisecond, time.Second))))
			if r.IntN(40) == 0 {
				unhealthy = oneOf(r, 0, 0.3, 0.6, 1)
			}
			at := fmt.Sprintf("seed %d, operation %d", seed, i)
			var moves, want []hedgerow.CircuitMove
			switch failed := r.Float64() < unhealthy; r.IntN(5) {
			case 0, 1:
				wantOK, wantMoves := m.admit(now, i)
				peeked := c.Peek(now)
				ticket, ok, got := c.Admit(now)
				require.Equal(t, wantOK, ok, at)
				require.Equal(t, ok, peeked, at)
				if ok {
					held = append(held, trial{i, ticket})
				} else {
					refused++
				}
				moves, want = got, wantMoves
			case 2:
				if len(held) == 0 {
					continue
				}
				gone := drop()
				c.Release(gone.ticket)
				if m.places[gone.number] < m.phase {
					stragglers++
				}
				delete(m.places, gone.number)
			case 3:
				if len(held) == 0 {
					continue
				}
				drop() // a completed trial keeps its place
				want = m.record(now, failed)
				moves = c.Record(now, failed)
			default:
				want = m.record(now, failed)
				moves = c.Record(now, failed)
			}
			require.Equal(t, want, moves, at)
			for _, move := range moves {
				seen[move]++
			}

			state, until := m.state, time.Time{}
			if m.ready(now) {
				state = hedgerow.CircuitHalfOpen
			}
			if state == hedgerow.CircuitOpen {
				until = m.opened.Add(cfg.Cooldown)
			}
			require.Equal(t, state, c.State(now), at)
			require.Equal(t, until, c.Until(now), at)
		}
	}
	// The walk has been everywhere, and often.
	require.Len(t, seen, 4, "%v", seen)
	for move, n := range seen {
		require.Greater(t, n, 100, "%v", move)
	}
	require.Greater(t, stragglers, 100)
	require.Greater(t, refused, 100)
}

// Many goroutines at once: each transition is reported once, and a half-open phase has no more than its places.
func TestCircuitConcurrent(t *testing.T) {
	t.Parallel()
	const workers, trials, phases = 8, 5, 50
	c := openCircuit(trials)
	now := coreEpoch
	for range phases {
		now = now.Add(time.Minute)
		var admitted, toHalfOpen, toOpen atomic.Int64
		count := func(moves []hedgerow.CircuitMove) {
			for _, m := range moves {
				switch m.To {
				case hedgerow.CircuitHalfOpen:
					toHalfOpen.Add(1)
				case hedgerow.CircuitOpen:
					toOpen.Add(1)
				default:
					// Closed: no trial succeeds here.
				}
			}
		}
		tickets := make(chan hedgerow.CircuitTicket, workers*trials)
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				for i := range trials {
					c.Peek(now)
					ticket, ok, moves := c.Admit(now)
					count(moves)
					c.State(now)
					c.Until(now)
					switch {
					case !ok:
					case i == 0: // cancelled, its place goes to someone
						c.Release(ticket)
					default:
						admitted.Add(1)
						tickets <- ticket
					}
				}
			})
		}
		wg.Wait()
		require.LessOrEqual(t, admitted.Load(), int64(trials))
		close(tickets)
		for range tickets {
			wg.Go(func() { count(c.Record(now, true)) })
		}
		for range trials - int(admitted.Load()) {
			wg.Go(func() { count(c.Record(now, true)) })
		}
		wg.Wait()
		require.EqualValues(t, 1, toHalfOpen.Load())
		require.EqualValues(t, 1, toOpen.Load())
	}
}

// Two circuits and many who want both: the host keeps exactly the places of those who got the endpoint's too.
func TestAdmitBothConcurrent(t *testing.T) {
	t.Parallel()
	const workers, hostTrials, endpointTrials = 8, 4, 2
	now := coreEpoch.Add(time.Minute)
	for range 200 {
		host, endpoint := openCircuit(hostTrials), openCircuit(endpointTrials)
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				if _, ok := hedgerow.AdmitBoth(now, host, endpoint); ok {
					admitted.Add(1)
				}
			})
		}
		wg.Wait()
		free := 0
		for _, ok, _ := host.Admit(now); ok; _, ok, _ = host.Admit(now) {
			free++
		}
		require.Equal(t, hostTrials, int(admitted.Load())+free)
		require.LessOrEqual(t, admitted.Load(), int64(endpointTrials))
	}
}
