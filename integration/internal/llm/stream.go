package llm

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

// start begins a stream, and sends the first piece of it.
func (s *Service) start(w http.ResponseWriter, piece string) {
	s.Open(w)
	Send(w, s.API.Opening+s.API.Piece(piece))
}

// Each piece of a stream is there when the service has sent it: here it sends the next one only then.
func (api API) testStream(t *testing.T, proto string) {
	t.Helper()
	const pieces = 32
	piece := strings.Repeat("slowly ", 600)
	read := make(chan struct{})
	svc := NewService(t, api)
	svc.Respond = func(w http.ResponseWriter, r *http.Request, _ Arrival) {
		svc.Open(w)
		Send(w, api.Opening)
		for range pieces {
			Send(w, api.Piece(piece))
			bed.Await(r, read)
		}
		Send(w, api.Ending)
	}
	rig := svc.Start(t, proto, Setting{})
	stream := rig.Client.Stream(t.Context(), "hello")
	defer func() { _ = stream.Close() }()
	for range pieces {
		got, ok := stream.Next()
		require.True(t, ok, "%v", stream.Err())
		bed.RequireSame(t, piece, got)
		require.Equal(t, 1, rig.Pool.Stats().InFlight, "the stream holds its key's slot")
		read <- struct{}{}
	}
	_, ok := stream.Next()
	require.False(t, ok)
	require.NoError(t, stream.Err())
	require.Zero(t, rig.Pool.Stats().InFlight, "the SDK reads to the end, which frees the slot")
	require.Len(t, rig.Arrivals(), 1)
	rig.Settled(t)
}

// The race is for the first token: a primary that sends its headers and then nothing loses it.
func (api API) testStreamFirstByte(t *testing.T, proto string) {
	t.Helper()
	flushed := make(chan struct{})
	svc := NewService(t, api)
	svc.Respond = func(w http.ResponseWriter, r *http.Request, a Arrival) {
		svc.Open(w)
		if bed.IsPrimary(r) {
			close(flushed)
			bed.Hold(r)
		}
		bed.Await(r, flushed)
		half := len(a.Prompt) / 2
		Send(w, api.Opening+api.Piece(a.Prompt[:half]))
		Send(w, api.Piece(a.Prompt[half:])+api.Ending)
	}
	rig := svc.Start(t, proto, Setting{
		Config: hedgerow.Config{Hedge: bed.Soon()},
		Endpoint: &hedgerow.EndpointConfig{
			Idempotent: true, // a second answer is paid for
			Hedge:      &hedgerow.HedgeConfig{Signal: hedgerow.SignalFirstByte, MaxHedges: 1},
		},
	})
	prompt := LongPrompt()
	stream := rig.Client.Stream(t.Context(), prompt)
	defer func() { _ = stream.Close() }()
	bed.RequireSame(t, prompt, Text(stream))
	require.NoError(t, stream.Err())
	require.ElementsMatch(t, []string{"key-a", "key-b"}, rig.Keys())
	rig.Settled(t)
	require.EqualValues(t, 1, rig.Transport.Stats().Total.HedgeWins)
}

// unhedged is a Setting without hedges, in which the first key is used as long as it can be, for calls that may be repeated.
func unhedged() Setting {
	return Setting{
		Pool:     hedgerow.PoolConfig{Strategy: hedgerow.PrimaryBackup},
		Config:   hedgerow.Config{Hedge: bed.Off()},
		Endpoint: &hedgerow.EndpointConfig{Idempotent: true},
	}
}

// When a key cools, a stream that was handed out goes on.
func (api API) testStreamOutlivesCooldown(t *testing.T, proto string) {
	t.Helper()
	limited, more := bed.NewGate(), make(chan struct{})
	svc := NewService(t, api)
	svc.Respond = func(w http.ResponseWriter, r *http.Request, a Arrival) {
		switch {
		case a.Prompt == "stream":
			svc.start(w, "first, ")
			bed.Await(r, more)
			Send(w, api.Piece(LongPrompt())+api.Ending)
		case a.Key == "key-a":
			limited.Pass(r)
			svc.Fail(w, http.StatusTooManyRequests, "Retry-After", "60")
		default:
			svc.Complete(w, a)
		}
	}
	rig := svc.Start(t, proto, unhedged())

	// The call that will be refused is the older one, so that the stream is what a cooldown may cancel.
	done := make(chan error, 1)
	go func() {
		_, _, err := rig.Client.Ask(t.Context(), "limited")
		done <- err
	}()
	<-limited.Arrived
	stream := rig.Client.Stream(t.Context(), "stream")
	defer func() { _ = stream.Close() }()
	first, _ := stream.Next()
	require.Equal(t, "first, ", first, "%v", stream.Err())
	limited.Open()
	require.NoError(t, <-done, "the other key has answered")
	a := rig.Pool.Snapshot()[0]
	require.Equal(t, hedgerow.ResourceCooling, a.State)
	require.Equal(t, 1, a.InFlight)

	close(more)
	bed.RequireSame(t, LongPrompt(), Text(stream))
	require.NoError(t, stream.Err())
	require.Equal(t, []string{"key-a", "key-a", "key-b"}, rig.Keys())
	require.Zero(t, rig.Pool.Stats().SiblingCancels)
	rig.Settled(t)
}

// When a key cools, a younger call on it that still waits for its headers, and may be sent twice, moves to another key.
func (api API) testWaitingCallMovesOn(t *testing.T, proto string) {
	t.Helper()
	held := bed.NewGate()
	svc := NewService(t, api)
	svc.Respond = func(w http.ResponseWriter, r *http.Request, a Arrival) {
		switch {
		case a.Key == "key-b":
			svc.Complete(w, a)
		case a.Prompt == "limited":
			held.Pass(r)
			svc.Fail(w, http.StatusTooManyRequests, "Retry-After", "60")
		default:
			held.Arrived <- struct{}{}
			bed.Hold(r)
		}
	}
	rig := svc.Start(t, proto, unhedged())
	done := make(chan error, 2)
	for _, prompt := range []string{"limited", "held"} {
		go func() {
			_, _, err := rig.Client.Ask(t.Context(), prompt)
			done <- err
		}()
		<-held.Arrived
	}
	held.Open()
	require.NoError(t, <-done)
	require.NoError(t, <-done)
	require.EqualValues(t, 1, rig.Pool.Stats().SiblingCancels)
	require.Equal(t, []string{"key-a", "key-a", "key-b", "key-b"}, rig.Keys())
	rig.Settled(t)
}

// Close in the middle of a stream tells the service and frees the slot for the next call.
func (api API) testStreamClose(t *testing.T, proto string) {
	t.Helper()
	left := make(chan struct{})
	svc := NewService(t, api)
	svc.Respond = func(w http.ResponseWriter, r *http.Request, a Arrival) {
		if a.Prompt != "stream" {
			svc.Complete(w, a)
			return
		}
		svc.start(w, "first")
		defer close(left)
		bed.Hold(r)
	}
	rig := svc.Start(t, proto, Setting{Pool: hedgerow.PoolConfig{
		Resources: []hedgerow.Resource{{ID: "a", Credential: api.Key("key-a"), MaxInFlight: 1}},
	}})
	stream := rig.Client.Stream(t.Context(), "stream")
	_, ok := stream.Next()
	require.True(t, ok, "%v", stream.Err())
	_, _, err := rig.Client.Ask(t.Context(), "hello")
	var exhausted *hedgerow.ExhaustedError
	require.ErrorAs(t, err, &exhausted, "the only slot is taken")

	require.NoError(t, stream.Close())
	require.Zero(t, rig.Pool.Snapshot()[0].InFlight)
	<-left
	_, _, err = rig.Client.Ask(t.Context(), "hello")
	require.NoError(t, err)
	rig.Settled(t)
}
