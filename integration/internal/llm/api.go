// Package llm has the tests that the SDKs of language models share: their services differ in their forms, and hardly in what
// they do. A directory of an SDK has its set-up, the forms of its service, and what is particular to it.
package llm

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/hedgerow-go/hedgerow"
)

// Placeholder is the SDK's own key. The pool puts a real one in its place, so the service must never see it.
const Placeholder = "the-pool-has-the-keys"

// An API is a service of a language model, and the SDK for it.
type API struct {
	// New is the shortest set-up, with the SDK's own retries as by default, or without.
	New func(rt http.RoundTripper, url string, retries bool) Client
	// Failure returns what an error of the SDK says of a response; false: it says nothing of one.
	Failure func(err error) (Failure, bool)
	// Key puts a secret where the service expects it.
	Key func(secret string) hedgerow.Credential

	// Path is where prompts are posted to.
	Path string
	// Never is a header that must not reach the service; "": none.
	Never string

	// Prompt returns the text of the only message of a request.
	Prompt func(body []byte) string
	// Answer is a response with a text.
	Answer func(text string) string
	// Error is a response with an error of a message.
	Error func(message string) string
	// Model and File are the responses about "comet-large" and "file-1".
	Model, File string
	// Opening, Piece and Ending are what a stream consists of.
	Opening string
	Piece   func(text string) string
	Ending  string
}

// A Client is what the SDKs can do, in the words of these tests.
type Client interface {
	// Ask sends a prompt, with header fields in pairs, and returns the text of the answer and the answer itself.
	Ask(ctx context.Context, prompt string, header ...string) (text, raw string, err error)
	Stream(ctx context.Context, prompt string) Stream
	Model(ctx context.Context, name string) (id string, err error)
	Upload(ctx context.Context, data string) (id string, err error)
	Post(ctx context.Context, body any) error
}

// A Stream is an answer that comes in pieces.
type Stream interface {
	// Next returns the next piece of the text; false: there is none.
	Next() (string, bool)
	Err() error
	Close() error
}

// A Failure is a response that an SDK has made an error of.
type Failure struct {
	Status        int
	Header        http.Header
	Type, Message string
	Body          string
}

// Quote returns s as JSON.
func Quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings always marshal
	}
	return string(b)
}

// Text reads the rest of a stream.
func Text(s Stream) string {
	var all []byte
	for {
		piece, ok := s.Next()
		if !ok {
			return string(all)
		}
		all = append(all, piece...)
	}
}

// TwoKeys are the resources of most tests.
func (api API) TwoKeys() []hedgerow.Resource {
	return []hedgerow.Resource{{ID: "a", Credential: api.Key("key-a")}, {ID: "b", Credential: api.Key("key-b")}}
}
