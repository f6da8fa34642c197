package scripted

import (
	"net/http"
	"slices"
	"testing"
	"time"
)

// Record is what is known of one attempt.
type Record struct {
	// Request is what was handed over, for comparing and for its context. Its header may have changed since.
	Request *http.Request
	// Method, URL and Header are copies from when the attempt began.
	Method, URL string
	Header      http.Header
	// Body is what was read of the request's body.
	Body []byte
	// Start is when the attempt began, End when RoundTrip returned; zero while it runs.
	Start, End time.Time
	// Cause is that of the context at End; nil if the attempt was not cancelled by then.
	Cause error
}

// Records returns the attempts so far, in the order in which they began.
func (s *Transport) Records() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	records := make([]Record, len(s.records))
	for i, rec := range s.records {
		records[i] = *rec
	}
	return records
}

// Bodies returns the tracked bodies so far, in the order in which they were handed out.
func (s *Transport) Bodies() []*Body {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.bodies)
}

// Check reports as errors of tb: attempts beyond the script, attempts that have not ended, response bodies not closed
// exactly once, and bodies of [Transport.NewRequest] that are not closed. Inside a bubble, let synctest.Wait come before.
func (s *Transport) Check(tb testing.TB) {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unknown > 0 {
		tb.Errorf("scripted: %d attempts beyond the script", s.unknown)
	}
	for i, rec := range s.records {
		if rec.End.IsZero() {
			tb.Errorf("scripted: attempt %d, %s %s, has not ended", i, rec.Method, rec.URL)
		}
	}
	for i, b := range s.bodies {
		closes := b.Closes()
		if closes == 0 || (b.Kind == "response" && closes != 1) {
			tb.Errorf("scripted: body %d, of a %s, closed %d times", i, b.Kind, closes)
		}
	}
}
