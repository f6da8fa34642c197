package llm

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

// A Service answers as the API does, and remembers what has arrived.
type Service struct {
	API API

	// Early, if it is set, may answer before the request body was read.
	Early func(w http.ResponseWriter, r *http.Request) bool
	// Respond is told of the request what was read of it; nil: Complete.
	Respond func(w http.ResponseWriter, r *http.Request, a Arrival)

	t    *testing.T
	mu   sync.Mutex // guards seen
	seen []Arrival
}

// NewService returns a Service that completes prompts with themselves.
func NewService(t *testing.T, api API) *Service {
	t.Helper()
	return &Service{t: t, API: api}
}

// An Arrival is one request.
type Arrival struct {
	Key, Prompt, Body string

	Header http.Header
	At     time.Time
}

func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := Arrival{Key: bed.Key(r), Header: r.Header.Clone(), At: time.Now()}
	if strings.Contains(fmt.Sprint(r.Header), Placeholder) {
		s.t.Errorf("the SDK's own key has reached the service: %v", r.Header)
	}
	if s.API.Never != "" && r.Header.Get(s.API.Never) != "" {
		s.t.Errorf("the service does not take %s: %v", s.API.Never, r.Header)
	}
	if s.Early != nil && s.Early(w, r) {
		s.note(a)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	a.Body, a.Prompt = string(body), s.API.Prompt(body)
	s.note(a)
	if s.Respond == nil {
		s.Complete(w, a)
		return
	}
	s.Respond(w, r, a)
}

func (s *Service) note(a Arrival) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, a)
}

// Arrivals returns the requests so far, in their order.
func (s *Service) Arrivals() []Arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// Keys returns the key of each request so far.
func (s *Service) Keys() []string {
	var keys []string
	for _, a := range s.Arrivals() {
		keys = append(keys, a.Key)
	}
	return keys
}

// Complete answers with the prompt itself.
func (s *Service) Complete(w http.ResponseWriter, a Arrival) { sendJSON(w, s.API.Answer(a.Prompt)) }

// Fail answers with an error in the form of the API, and header fields in pairs.
func (s *Service) Fail(w http.ResponseWriter, status int, header ...string) {
	w.Header().Set("Content-Type", "application/json")
	for pair := range slices.Chunk(header, 2) {
		w.Header().Set(pair[0], pair[1])
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, s.API.Error(fmt.Sprintf("answered with %d", status)))
}

func sendJSON(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, body)
}

// Open sends the headers of a stream.
func (*Service) Open(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	Send(w, "")
}

// Send sends some of a stream, at once. It fails when the client has gone, which the handlers learn from the context.
func Send(w http.ResponseWriter, events string) {
	_, _ = io.WriteString(w, events)
	_ = http.NewResponseController(w).Flush()
}

// A Setting says how a Rig differs from the simplest one.
type Setting struct {
	Pool    hedgerow.PoolConfig // Hosts and Resources are set if they are not
	Config  hedgerow.Config     // Base is set
	Retries bool                // the SDK's own
	// Endpoint is how the one of the prompts is declared; nil: it is not.
	Endpoint *hedgerow.EndpointConfig
	// Clock has what [bed.Slowly] needs.
	Clock bool
}

// A Rig is a service, and a client of it over hedgerow with a pool of two keys.
type Rig struct {
	*Service

	Server    *bed.Server
	Pool      *hedgerow.Pool
	Transport *hedgerow.Transport
	Client    Client
}

// Start returns a Rig. Attempts are marked if they are hedged soon.
func (s *Service) Start(t *testing.T, proto string, set Setting) *Rig {
	t.Helper()
	var handler http.Handler = s
	if set.Clock {
		handler = bed.WithClock(s)
	}
	rig := &Rig{Service: s, Server: bed.Serve(t, proto, handler)}
	if set.Pool.Hosts == nil {
		set.Pool.Hosts = []string{rig.Server.Host()}
	}
	if set.Pool.Resources == nil {
		set.Pool.Resources = s.API.TwoKeys()
	}
	rig.Pool = bed.NewPool(t, set.Pool)
	var base http.RoundTripper = rig.Server.Base
	if set.Config.Hedge.Delay > 0 {
		base = bed.Mark(base)
	}
	set.Config.Base = rig.Pool.Wrap(base)
	rig.Transport = bed.New(t, set.Config)
	if set.Endpoint != nil {
		require.NoError(t, rig.Transport.Register("POST "+s.API.Path, *set.Endpoint))
	}
	rig.Client = s.API.New(rig.Transport, rig.Server.URL, set.Retries)
	return rig
}

// Settled checks what holds at the end of every test: no slot is taken, and the counters add up.
func (rig *Rig) Settled(t *testing.T) {
	t.Helper()
	bed.Settle(t, rig.Transport, rig.Pool)
	total := rig.Transport.Stats().Total
	require.Equal(t, total.Hedged, total.HedgeWins+total.PrimaryWins)
	require.Zero(t, rig.Pool.Stats().PassedThrough)
}

// LongPrompt is more than 64 KiB, and different everywhere.
func LongPrompt() string {
	var b strings.Builder
	for i := 0; b.Len() < 96<<10; i++ {
		_, _ = fmt.Fprintf(&b, "line %d, \"quoted\" <and> escaped & more\n", i)
	}
	return b.String()
}
