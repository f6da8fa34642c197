package oauth2_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

func TestMain(m *testing.M) { bed.VerifyMain(m) }

// large is a body that does not fit into one read or one frame.
var large = string(bed.Pattern(bed.Large))

// A service has an endpoint for tokens, and an API behind them.
type service struct {
	lifetime int                        // of a token, in seconds
	spent    map[string]int             // by client: the status that its tokens get
	hold     map[string]<-chan struct{} // by client: its tokens are given when it is closed

	grants  atomic.Int64        // requests for a token
	asked   chan string         // of the clients that ask for a token
	order   bed.Order           // of the attempts at /held
	refused map[string]struct{} // clients that get no token
	mu      sync.Mutex          // guards the field below
	seen    map[string][]string // tokens by the kind of the attempt
}

func newService() *service {
	return &service{
		lifetime: 3600, seen: make(map[string][]string), asked: make(chan string, 16), order: bed.NewOrder(),
	}
}

// handler answers POST /token, and everything else behind a token: GET with a large body, POST with what it was sent. The
// primary of what begins with /held is held.
func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token", s.token)
	api := s.behindToken(http.HandlerFunc(bed.Echo))
	mux.Handle("/api", api)
	mux.Handle("/held", s.noting(s.order.Handler(bed.HoldPrimary(api))))
	mux.Handle("/open", bed.HoldPrimary(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	return mux
}

// token grants "client-n" for the n-th request of all.
func (s *service) token(w http.ResponseWriter, r *http.Request) {
	client, _, _ := r.BasicAuth()
	n := s.grants.Add(1)
	s.asked <- client
	if hold, ok := s.hold[client]; ok {
		<-hold
	}
	w.Header().Set("Content-Type", "application/json")
	if _, ok := s.refused[client]; ok {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":"invalid_client"}`)
		return
	}
	_, _ = fmt.Fprintf(w, `{"access_token":"%s-%d","token_type":"bearer","expires_in":%d}`, client, n, s.lifetime)
}

func (s *service) behindToken(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client, _, ok := strings.Cut(bed.Key(r), "-")
		switch {
		case !ok:
			http.Error(w, "no token", http.StatusUnauthorized)
		case s.spent[client] != 0:
			http.Error(w, "no more", s.spent[client])
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func (s *service) noting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind := r.Header.Get(bed.MarkHeader)
		s.mu.Lock()
		s.seen[kind] = append(s.seen[kind], bed.Key(r))
		s.mu.Unlock()
		next.ServeHTTP(w, r)
	})
}

// tokens returns the tokens that came, by the kind of the attempt.
func (s *service) tokens() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	tokens := make(map[string][]string)
	for kind, all := range s.seen {
		tokens[kind] = append([]string(nil), all...)
	}
	return tokens
}
