package s3_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

// errorCode returns S3's code for an error.
func errorCode(err error) string {
	if api, ok := errors.AsType[interface {
		error
		ErrorCode() string
	}](err); ok {
		return api.ErrorCode()
	}
	return ""
}

// download returns a whole object.
func download(ctx context.Context, client *s3.Client, key string) ([]byte, *s3.GetObjectOutput, error) {
	out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String("bucket"), Key: aws.String(key)})
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = out.Body.Close() }()
	data, err := io.ReadAll(out.Body) // the SDK compares it with the checksum
	return data, out, err
}

func upload(ctx context.Context, client *s3.Client, key string, body io.Reader, opts ...func(*s3.PutObjectInput)) error {
	in := &s3.PutObjectInput{Bucket: aws.String("bucket"), Key: aws.String(key), Body: body}
	for _, opt := range opts {
		opt(in)
	}
	_, err := client.PutObject(ctx, in)
	return err
}

// The hedge of a large download carries the same signature as the primary, which is good for it as well.
func TestSlowGetObjectIsHedged(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		want, st := bed.Pattern(6<<20), newStore(t)
		st.put("/bucket/a key/ü+%.bin", want)
		srv := bed.Serve(t, proto, st.inOrder(st.checked(bed.HoldPrimary(st))))
		paths := newPaths(t, srv, srv)
		tr := bed.New(t, hedgerow.Config{Base: paths.Wrap(nil), Hedge: bed.Soon()})

		got, out, err := download(t.Context(), newClient(tr), "a key/ü+%.bin")
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got))

		seen := st.attempts()
		require.Len(t, seen, 2)
		require.False(t, seen[0].hedge)
		require.True(t, seen[1].hedge)
		seen[1].hedge = false
		require.Equal(t, seen[0], seen[1], "another request was sent as the hedge")
		require.Equal(t, "attempt=1; max=3", seen[0].try)

		bare, bareOut, err := download(t.Context(), newClient(srv.Base), "a key/ü+%.bin")
		require.NoError(t, err)
		require.True(t, bytes.Equal(bare, got))
		require.Equal(t, bareOut.ETag, out.ETag)
		require.Equal(t, bareOut.ContentLength, out.ContentLength)
		require.Equal(t, bareOut.ChecksumCRC32, out.ChecksumCRC32)

		bed.Settle(t, tr, paths)
		require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
	})
}

// Each page of a listing is a call of its own, and so is a HEAD.
func TestSlowListingIsHedged(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		st := newStore(t)
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			st.put("/bucket/"+key, bed.Pattern(10))
		}
		srv := bed.Serve(t, proto, st.checked(bed.HoldPrimary(st)))
		paths := newPaths(t, srv, srv)
		tr := bed.New(t, hedgerow.Config{Base: paths.Wrap(nil), Hedge: bed.Soon()})
		client := newClient(tr)

		var keys []string
		pages := s3.NewListObjectsV2Paginator(client, &s3.ListObjectsV2Input{Bucket: aws.String("bucket")})
		for pages.HasMorePages() {
			page, err := pages.NextPage(t.Context())
			require.NoError(t, err)
			for _, o := range page.Contents {
				keys = append(keys, aws.ToString(o.Key))
			}
		}
		require.Equal(t, []string{"a", "b", "c", "d", "e"}, keys)
		head, err := client.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: aws.String("bucket"), Key: aws.String("a")})
		require.NoError(t, err)
		require.EqualValues(t, 10, aws.ToInt64(head.ContentLength))
		bed.Settle(t, tr, paths)
		require.EqualValues(t, 4, tr.Stats().Total.HedgeWins)
	})
}

// An upload goes out once, however slow it is, with its checksum in the trailer of aws-chunked. So does a DELETE.
func TestSlowWritesAreSentOnce(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		for _, method := range []string{http.MethodPut, http.MethodDelete} {
			t.Run(method, func(t *testing.T) {
				t.Parallel()
				want, st, slow := bed.Pattern(1<<20), newStore(t), bed.NewGate()
				srv := bed.Serve(t, proto, bed.WithClock(st.checked(slow.Handler(st))))
				paths := newPaths(t, srv, srv)
				tr := bed.New(t, hedgerow.Config{Base: paths.Wrap(nil), Hedge: bed.Soon()})
				client := newClient(tr)

				bed.Slowly(t, tr, endpoint, slow, func() error {
					if method == http.MethodPut {
						return upload(t.Context(), client, "key", bytes.NewReader(want))
					}
					_, err := client.DeleteObject(t.Context(),
						&s3.DeleteObjectInput{Bucket: aws.String("bucket"), Key: aws.String("key")})
					return err
				})
				bed.Settle(t, tr, paths)
				require.Equal(t, 1, slow.Count())
				require.EqualValues(t, 1, tr.Stats().Total.Skipped[hedgerow.SkipMethod])
				if method == http.MethodPut {
					require.True(t, bytes.Equal(want, st.get("/bucket/key")))
					require.Equal(t, "STREAMING-UNSIGNED-PAYLOAD-TRAILER", st.attempts()[0].payloadHash)
				}
			})
		}
	})
}

// The SDK's requests have no GetBody: an upload is not hedged even when it is declared idempotent.
func TestDeclaredUploadIsStillSentOnce(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		want, st, slow := bed.Pattern(256<<10), newStore(t), bed.NewGate()
		srv := bed.Serve(t, proto, bed.WithClock(st.checked(slow.Handler(st))))
		paths := newPaths(t, srv, srv)
		tr := bed.New(t, hedgerow.Config{Base: paths.Wrap(nil), Hedge: bed.Soon()})
		require.NoError(t, tr.Register("PUT /bucket/{key...}", hedgerow.EndpointConfig{Idempotent: true}))
		client := newClient(tr)

		bed.Slowly(t, tr, endpoint, slow, func() error {
			return upload(t.Context(), client, "key", bytes.NewReader(want))
		})
		bed.Settle(t, tr, paths)
		require.Equal(t, 1, slow.Count())
		require.EqualValues(t, 1, tr.Stats().Total.Skipped[hedgerow.SkipBody])
	})
}

// Bodies of every kind come whole: seekable, unseekable, and large ones that wait for a 100 Continue.
func TestUploadsAreWhole(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		st := newStore(t)
		srv := bed.Serve(t, proto, st.checked(st))
		paths := newPaths(t, srv, srv)
		tr := bed.New(t, hedgerow.Config{Base: paths.Wrap(nil), Hedge: bed.Soon()})
		client := newClient(tr)

		for _, n := range []int{0, 1, 64 << 10, 6 << 20} {
			require.NoError(t, upload(t.Context(), client, "seekable", bytes.NewReader(bed.Pattern(n))))
			require.True(t, bytes.Equal(bed.Pattern(n), st.get("/bucket/seekable")), n)
		}
		for _, n := range []int{1, 64 << 10, 6 << 20} {
			// Without its length S3 would not take it.
			require.NoError(t, upload(t.Context(), client, "stream", io.LimitReader(bytes.NewReader(bed.Pattern(n)), int64(n)),
				func(in *s3.PutObjectInput) { in.ContentLength = aws.Int64(int64(n)) }))
			require.True(t, bytes.Equal(bed.Pattern(n), st.get("/bucket/stream")), n)
		}
		bed.Settle(t, tr, paths)
		require.Len(t, st.attempts(), 7)
		require.Zero(t, tr.Stats().Total.Hedges)
	})
}

// A download that is closed early gives its place back.
func TestEarlyClose(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		want, st := bed.Pattern(8<<20), newStore(t)
		st.put("/bucket/key", want)
		srv := bed.Serve(t, proto, st.checked(bed.HoldPrimary(st)))
		paths := newPaths(t, srv, srv)
		tr := bed.New(t, hedgerow.Config{Base: paths.Wrap(nil), Hedge: bed.Soon()})

		out, err := newClient(tr).GetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String("bucket"), Key: aws.String("key")})
		require.NoError(t, err)
		got := make([]byte, 64<<10)
		_, err = io.ReadFull(out.Body, got)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want[:len(got)], got))
		require.Equal(t, 1, bed.Status(t, paths, "path-2").InFlight)
		require.NoError(t, out.Body.Close())
		bed.Settle(t, tr, paths)
		require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
	})
}
