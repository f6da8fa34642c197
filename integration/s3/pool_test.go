package s3_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

// A 503 SlowDown without a hint sends a read to the other path, and the SDK hears nothing of it. An upload cannot be sent
// again by the pool: it is for the SDK, which signs anew, or for its caller.
func TestSlowDown(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		newPair := func(t *testing.T) (*store, *store, *hedgerow.Pool, *hedgerow.Transport) {
			t.Helper()
			busy, free := newStore(t), newStore(t)
			free.put("/bucket/key", bed.Pattern(64<<10))
			paths := newPaths(t,
				bed.Serve(t, proto, busy.checked(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { slowDown(w) }))),
				bed.Serve(t, proto, free.checked(free)))
			return busy, free, paths, bed.New(t, hedgerow.Config{
				Base: paths.Wrap(nil), Hedge: bed.Off(),
			})
		}

		t.Run("get", func(t *testing.T) {
			t.Parallel()
			busy, free, paths, tr := newPair(t)
			got, _, err := download(t.Context(), newClient(tr, oneTry), "key")
			require.NoError(t, err)
			require.True(t, bytes.Equal(bed.Pattern(64<<10), got))
			bed.Settle(t, tr, paths)
			require.Len(t, busy.attempts(), 1)
			require.Equal(t, busy.attempts(), free.attempts(), "another request was sent as the retry")
		})

		t.Run("put, one try", func(t *testing.T) {
			t.Parallel()
			busy, free, paths, tr := newPair(t)
			err := upload(t.Context(), newClient(tr, oneTry), "new", bytes.NewReader(bed.Pattern(64<<10)))
			require.Equal(t, "SlowDown", errorCode(err))
			bed.Settle(t, tr, paths)
			require.Len(t, busy.attempts(), 1)
			require.Empty(t, free.attempts())
		})

		t.Run("put, default", func(t *testing.T) {
			t.Parallel()
			busy, free, paths, tr := newPair(t)
			require.NoError(t, upload(t.Context(), newClient(tr, noBackoff), "new", bytes.NewReader(bed.Pattern(64<<10))))
			require.True(t, bytes.Equal(bed.Pattern(64<<10), free.get("/bucket/new")))
			bed.Settle(t, tr, paths)
			require.Len(t, busy.attempts(), 1)
			require.Len(t, free.attempts(), 1)
			require.Equal(t, busy.attempts()[0].invocation, free.attempts()[0].invocation)
			require.Equal(t, "attempt=2; max=3", free.attempts()[0].try)
		})

		t.Run("put of a stream", func(t *testing.T) { // which the SDK cannot send again either
			t.Parallel()
			busy, free, paths, tr := newPair(t)
			err := upload(t.Context(), newClient(tr, noBackoff), "new", io.LimitReader(bytes.NewReader(bed.Pattern(64<<10)), 64<<10),
				func(in *s3.PutObjectInput) { in.ContentLength = aws.Int64(64 << 10) })
			require.ErrorContains(t, err, "not seekable")
			bed.Settle(t, tr, paths)
			require.Len(t, busy.attempts(), 1)
			require.Empty(t, free.attempts())
		})
	})
}

// With both at work the tries of the SDK and the attempts of the pool multiply.
func TestRetriesMultiply(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		for name, c := range map[string]struct {
			opt  func(*s3.Options)
			want int
		}{
			"one try": {oneTry, 2},
			"default": {noBackoff, 3 * 2},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				st := newStore(t)
				srv := bed.Serve(t, proto, st.checked(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					slowDown(w)
				})))
				paths := bed.NewPool(t, hedgerow.PoolConfig{
					Resources: []hedgerow.Resource{
						{ID: "path-1", Base: bed.Mark(srv.Base)}, {ID: "path-2", Base: bed.Mark(srv.Base)},
					},
					MaxAttempts: 2, // else the same path once more, after RetryDelay
				})
				tr := bed.New(t, hedgerow.Config{Base: paths.Wrap(nil), Hedge: bed.Off()})

				_, _, err := download(t.Context(), newClient(tr, c.opt), "key")
				require.Equal(t, "SlowDown", errorCode(err))
				bed.Settle(t, tr, paths)
				require.Len(t, st.attempts(), c.want)
			})
		}
	})
}

// With the signature made by the pool, each attempt has one of its own, by another key.
func TestKeysBelowTheSDK(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		t.Run("hedge", func(t *testing.T) {
			t.Parallel()
			want, st := bed.Pattern(1<<20), newStore(t)
			st.put("/bucket/key", want)
			srv := bed.Serve(t, proto, st.inOrder(st.checked(bed.HoldPrimary(st))))
			keys := newKeys(t)
			tr := bed.New(t, hedgerow.Config{Base: keys.Wrap(bed.Mark(srv.Base)), Hedge: bed.Soon()})

			got, _, err := download(t.Context(), newClient(tr, anonymous), "key")
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, got))
			bed.Settle(t, tr, keys)
			seen := st.attempts()
			require.Len(t, seen, 2)
			require.Equal(t, "AKIAONE", seen[0].accessKey())
			require.Equal(t, "AKIATWO", seen[1].accessKey())
		})

		t.Run("rotation", func(t *testing.T) {
			t.Parallel()
			want, st := bed.Pattern(256<<10), newStore(t)
			srv := bed.Serve(t, proto, st.checked(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if seen := st.attempts(); seen[len(seen)-1].accessKey() == "AKIAONE" {
					w.Header().Set("Retry-After", "3600")
					slowDown(w)
					return
				}
				st.ServeHTTP(w, r)
			})))
			keys := newKeys(t)
			tr := bed.New(t, hedgerow.Config{Base: keys.Wrap(srv.Base), Hedge: bed.Off()})
			client := newClient(tr, anonymous, noBackoff)

			require.NoError(t, upload(t.Context(), client, "key", bytes.NewReader(want))) // in two tries of the SDK
			got, _, err := download(t.Context(), client, "key")
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, got))
			bed.Settle(t, tr, keys)
			require.Equal(t, hedgerow.ResourceCooling, bed.Status(t, keys, "key-1").State)
			require.Len(t, st.attempts(), 3)
		})
	})
}

// The host is signed. A pool that changes it below the SDK makes the signature a bad one.
func TestUpstreamsBreakTheSignature(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		st := newStore(t)
		st.put("/bucket/key", bed.Pattern(10))
		srv := bed.Serve(t, proto, st.checked(st))
		nodes := bed.NewPool(t, hedgerow.PoolConfig{
			Hosts:     []string{"example.com"},
			Resources: []hedgerow.Resource{{ID: "node-1", Upstream: srv.URL}, {ID: "node-2", Upstream: srv.URL}},
		})
		tr := bed.New(t, hedgerow.Config{Base: nodes.Wrap(srv.Base)})

		_, _, err := download(t.Context(), newClient(tr), "key")
		require.Equal(t, "SignatureDoesNotMatch", errorCode(err))
		bed.Settle(t, tr, nodes)
		require.Empty(t, st.attempts())
	})
}
