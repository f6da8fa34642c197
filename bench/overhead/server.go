package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Which calls the server is slow for, where hedges fire, and how slow. It is 20 times the hedge delay.
const (
	slowOneIn = 20
	slowness  = 20 * dueSoon
)

// A server answers with a small document of JSON. It counts the requests by the first segment of their path; a second
// one is the number of a call, by which it decides whether to be slow.
type server struct {
	content []byte
	counts  sync.Map // of *atomic.Int64, by lane
	seen    sync.Map // calls the first request of which was slow
}

// ServeHTTP implements [http.Handler].
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, id, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	s.count(name).Add(1)
	if id != "" && slow(id) {
		if _, again := s.seen.LoadOrStore(r.URL.Path, true); !again && !pause(r.Context(), slowness) {
			return
		}
	}
	w.Header()["Content-Type"] = []string{"application/json"}
	w.Header()["Content-Length"] = []string{strconv.Itoa(len(s.content))}
	_, _ = w.Write(s.content) // the client may have gone
}

func (s *server) count(name string) *atomic.Int64 {
	if n, found := s.counts.Load(name); found {
		return n.(*atomic.Int64) //nolint:forcetypeassert,errcheck // nothing else is stored
	}
	n, _ := s.counts.LoadOrStore(name, new(atomic.Int64))
	return n.(*atomic.Int64) //nolint:forcetypeassert,errcheck // nothing else is stored
}

// slow reports whether the server is slow for the first request of a call.
func slow(id string) bool {
	h := fnv.New64a()
	_, _ = io.WriteString(h, id) // never fails
	return h.Sum64()%slowOneIn == 0
}

// pause waits, and reports whether the request is still wanted.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// document returns about a KiB of JSON.
func document() []byte {
	type user struct {
		ID    int    `json:"id"`
		Name  string `json:"name"`
		Email string `json:"email"`
	}
	var users []user
	for k := range 16 {
		users = append(users, user{ID: k, Name: fmt.Sprintf("user %04d", k), Email: fmt.Sprintf("user%04d@bench.test", k)})
	}
	text, err := json.Marshal(users)
	if err != nil {
		panic(err) // of integers and strings
	}
	return text
}

// serve is a process that is the server: it tells its address, and then answers each order with the count of a lane.
func serve(orders *json.Decoder, answers *json.Encoder) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := &server{content: document()}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	srv := &http.Server{
		Handler: s, Protocols: &protocols, ReadHeaderTimeout: time.Minute,
		// So that one connection is enough for 256 goroutines and their hedges.
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 1024},
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(listener) }()

	err = answers.Encode(reply{Address: listener.Addr().String()})
	for err == nil {
		var o order
		if err = orders.Decode(&o); err == nil {
			err = answers.Encode(reply{Count: s.count(o.Lane).Load()})
		}
	}
	_ = srv.Close()
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		return served
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
