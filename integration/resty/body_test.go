package resty_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

// receive returns the file of an upload.
func receive(t *testing.T, r *http.Request) []byte {
	t.Helper()
	f, _, err := r.FormFile("file")
	if err != nil {
		t.Errorf("upload: %v", err)
		return nil
	}
	defer func() { _ = f.Close() }()
	got, err := io.ReadAll(f)
	if err != nil {
		t.Errorf("upload: %v", err)
	}
	return got
}

func newFile(t *testing.T, data []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "data.bin")
	require.NoError(t, os.WriteFile(name, data, 0o600))
	return name
}

func TestSlowUploadIsSentOnce(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, proto string, version int) {
		t.Helper()
		want, slow := bed.Pattern(512<<10), bed.NewGate()
		srv := bed.Serve(t, proto, bed.WithClock(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if got := receive(t, r); !bytes.Equal(want, got) {
				t.Errorf("another file came: %d bytes", len(got))
			}
			slow.Pass(r)
		})))
		keys := newKeys(t, srv)
		tr := bed.New(t, hedgerow.Config{Base: keys.Wrap(bed.Mark(srv.Base)), Hedge: bed.Soon()})
		c, file := newClient(t, version, tr), newFile(t, want)

		bed.Slowly(t, tr, srv.URL, slow, func() error {
			code, err := c.upload(t.Context(), srv.URL+"/files", file)
			if err == nil && code != http.StatusOK {
				err = fmt.Errorf("status %d", code)
			}
			return err
		})
		bed.Settle(t, tr, keys)
		require.Equal(t, 1, slow.Count())
	})
}

// Version 2 has the whole form in memory, so that the pool can send it again on another key. Version 3 streams it through a
// pipe, and the refusal of the first key is the caller's.
func TestRefusedUpload(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, proto string, version int) {
		t.Helper()
		want := bed.Pattern(512 << 10)
		var arrived atomic.Int64
		srv := bed.Serve(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if got := receive(t, r); !bytes.Equal(want, got) {
				t.Errorf("another file came: %d bytes", len(got))
			}
			arrived.Add(1)
			if bed.Key(r) == "one" {
				w.WriteHeader(http.StatusTooManyRequests)
			}
		}))
		keys := newKeys(t, srv)
		tr := bed.New(t, hedgerow.Config{Base: keys.Wrap(srv.Base)})
		c, file := newClient(t, version, tr), newFile(t, want)

		code, err := c.upload(t.Context(), srv.URL, file)
		require.NoError(t, err)
		if version == 2 {
			require.Equal(t, http.StatusOK, code)
			require.EqualValues(t, 2, arrived.Load())
		} else {
			require.Equal(t, http.StatusTooManyRequests, code)
			require.EqualValues(t, 1, arrived.Load())
			code, err = c.upload(t.Context(), srv.URL, file) // by the caller, and by then the first key rests
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, code)
		}
		bed.Settle(t, tr, keys)
		require.Equal(t, hedgerow.ResourceCooling, bed.Status(t, keys, "key-1").State)
	})
}

func TestOutputIsWhole(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, proto string, version int) {
		t.Helper()
		want := bed.Pattern(2 << 20)
		srv := bed.Serve(t, proto, bed.HoldPrimary(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(want)
		})))
		keys := newKeys(t, srv)
		tr := bed.New(t, hedgerow.Config{Base: keys.Wrap(bed.Mark(srv.Base)), Hedge: bed.Soon()})

		file := filepath.Join(t.TempDir(), "out.bin")
		code, err := newClient(t, version, tr).save(t.Context(), srv.URL, file)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, code)
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got))
		bed.Settle(t, tr, keys)
		require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
	})
}

// A stream keeps its key's place until it has ended, at the latest when it is closed.
func TestStream(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, proto string, version int) {
		t.Helper()
		half := bed.Pattern(128 << 10)
		more := make(chan struct{})
		srv := bed.Serve(t, proto, bed.HoldPrimary(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write(half)
			_ = http.NewResponseController(w).Flush() // the client may be gone by now: it has what it wanted
			if r.URL.Path == "/endless" {
				bed.Hold(r)
			}
			<-more
			_, _ = w.Write(half)
		})))
		keys := newKeys(t, srv)
		tr := bed.New(t, hedgerow.Config{Base: keys.Wrap(bed.Mark(srv.Base)), Hedge: bed.Soon()})
		c := newClient(t, version, tr)

		body, err := c.stream(t.Context(), srv.URL)
		require.NoError(t, err)
		first := make([]byte, len(half))
		_, err = io.ReadFull(body, first)
		require.NoError(t, err)
		require.True(t, bytes.Equal(half, first))
		require.Equal(t, 1, bed.Status(t, keys, "key-2").InFlight) // the hedge's
		close(more)
		rest, err := io.ReadAll(body)
		require.NoError(t, err)
		require.True(t, bytes.Equal(half, rest))
		require.NoError(t, body.Close())
		bed.Settle(t, tr, keys)

		body, err = c.stream(t.Context(), srv.URL+"/endless")
		require.NoError(t, err)
		_, err = io.ReadFull(body, first)
		require.NoError(t, err)
		require.NoError(t, body.Close())
		bed.Settle(t, tr, keys)
		require.EqualValues(t, 2, tr.Stats().Total.HedgeWins)
	})
}

// Version 3 takes the buffers of its bodies back when a call has ended. The attempts that have lost do not read them any more
// by then, though their server has not taken them yet.
func TestBodiesAreFreeWhenTheCallHasEnded(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, proto string, version int) {
		t.Helper()
		release := make(chan struct{})
		srv := bed.Serve(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if bed.IsPrimary(r) {
				<-release // its body is left unread
				return
			}
			_, _ = w.Write(bed.ReadBody(t, r))
		}))
		t.Cleanup(func() { close(release) })
		keys := newKeys(t, srv)
		tr := bed.New(t, hedgerow.Config{Base: keys.Wrap(bed.Mark(srv.Base)), Hedge: bed.Soon()})
		require.NoError(t, tr.Register("POST /search", hedgerow.EndpointConfig{Idempotent: true}))
		c := newClient(t, version, tr)

		for i := range 5 {
			want := bytes.Repeat([]byte{byte('a' + i)}, 900<<10) // more than what the sockets hold
			code, got, err := c.post(t.Context(), srv.URL+"/search", want)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, code)
			require.True(t, bytes.Equal(want, got))
		}
		bed.Settle(t, tr, keys)
		require.EqualValues(t, 5, tr.Stats().Total.HedgeWins)
	})
}
