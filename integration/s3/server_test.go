package s3_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

const region = "us-east-1"

// secrets are the access keys that the store knows.
func secrets() map[string]string {
	return map[string]string{"AKIAONE": "secret one", "AKIATWO": "secret two"}
}

// A store answers as S3 does for one bucket. It checks the signature and the checksum of every request.
type store struct {
	t *testing.T

	primary chan struct{} // closed when a primary was seen

	mu      sync.Mutex // guards the fields below
	objects map[string][]byte
	seen    []attempt
}

// An attempt is what the store has seen of a request whose signature was good.
type attempt struct {
	hedge         bool
	method, path  string
	authorization string
	date          string
	payloadHash   string
	invocation    string // SDK: the same for all tries of one call
	try           string // SDK: which of them
	bodyHash      string
}

// accessKey returns the one that has signed.
func (a attempt) accessKey() string {
	_, rest, _ := strings.Cut(a.authorization, "Credential=")
	key, _, _ := strings.Cut(rest, "/")
	return key
}

func newStore(t *testing.T) *store {
	t.Helper()
	return &store{t: t, primary: make(chan struct{}), objects: map[string][]byte{}}
}

// inOrder returns next with every hedge held until the primary was seen, however slow its connection is.
func (s *store) inOrder(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if bed.IsHedge(r) {
			<-s.primary
		}
		next.ServeHTTP(w, r)
	})
}

func (s *store) put(path string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[path] = data
}

func (s *store) get(path string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[path]
}

func (s *store) attempts() []attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// checked returns next behind the check of the signature, as a handler. The body that next reads is the object's.
func (s *store) checked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has gone
		}
		data, err := check(r, raw)
		if err != nil {
			fail(w, http.StatusForbidden, "SignatureDoesNotMatch", err.Error())
			return
		}
		sum := sha256.Sum256(raw)
		s.mu.Lock()
		if len(s.seen) == 0 {
			close(s.primary)
		}
		s.seen = append(s.seen, attempt{
			hedge: bed.IsHedge(r), method: r.Method, path: r.URL.Path,
			authorization: r.Header.Get("Authorization"), date: r.Header.Get("X-Amz-Date"),
			payloadHash: r.Header.Get("X-Amz-Content-Sha256"), bodyHash: hex.EncodeToString(sum[:]),
			invocation: r.Header.Get("Amz-Sdk-Invocation-Id"), try: r.Header.Get("Amz-Sdk-Request"),
		})
		s.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(data))
		next.ServeHTTP(w, r)
	})
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch data := s.get(r.URL.Path); {
	case r.Method == http.MethodPut:
		body := bed.ReadBody(s.t, r)
		s.put(r.URL.Path, body)
		w.Header().Set("ETag", etag(body))
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	case r.URL.Query().Get("list-type") == "2":
		s.list(w, r)
	case data == nil:
		fail(w, http.StatusNotFound, "NoSuchKey", "The specified key does not exist.")
	default:
		h := w.Header()
		h.Set("ETag", etag(data))
		h.Set("X-Amz-Checksum-Crc32", checksum(data))
		h.Set("Content-Length", strconv.Itoa(len(data)))
		_, _ = w.Write(data)
	}
}

// list answers with pages of two keys each.
func (s *store) list(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	var keys []string
	for path := range s.objects {
		keys = append(keys, strings.TrimPrefix(path, "/bucket/"))
	}
	s.mu.Unlock()
	slices.Sort(keys)
	from, _ := strconv.Atoi(r.URL.Query().Get("continuation-token"))
	to := min(from+2, len(keys))
	_, _ = fmt.Fprint(w, `<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>bucket</Name>`)
	for _, key := range keys[from:to] {
		_, _ = fmt.Fprintf(w, `<Contents><Key>%s</Key></Contents>`, key)
	}
	_, _ = fmt.Fprintf(w, `<IsTruncated>%t</IsTruncated>`, to < len(keys))
	if to < len(keys) {
		_, _ = fmt.Fprintf(w, `<NextContinuationToken>%d</NextContinuationToken>`, to)
	}
	_, _ = fmt.Fprint(w, `</ListBucketResult>`)
}

// fail answers with one of S3's errors.
func fail(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>%s</Message></Error>`, code, message)
}

// slowDown is what S3 says of too many requests.
func slowDown(w http.ResponseWriter) {
	fail(w, http.StatusServiceUnavailable, "SlowDown", "Please reduce your request rate.")
}

func etag(data []byte) string {
	sum := sha256.Sum256(data)
	return `"` + hex.EncodeToString(sum[:8]) + `"`
}

func checksum(data []byte) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(data)))
}

// check signs the request anew, as it was received, and compares. It returns the object in the body, whose hash or checksum
// it checks too.
func check(r *http.Request, raw []byte) ([]byte, error) {
	auth := r.Header.Get("Authorization")
	_, scope, _ := strings.Cut(auth, "Credential=")
	key, _, _ := strings.Cut(scope, "/")
	secret, ok := secrets()[key]
	if !ok {
		return nil, fmt.Errorf("unknown access key %q", key)
	}
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil {
		return nil, err
	}
	_, list, _ := strings.Cut(auth, "SignedHeaders=")
	list, _, _ = strings.Cut(list, ",")
	again := &http.Request{
		Method: r.Method, Host: r.Host, Header: http.Header{},
		URL: &url.URL{Scheme: "https", Host: r.Host, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery},
	}
	for name := range strings.SplitSeq(list, ";") {
		switch name {
		case "host":
		case "content-length":
			again.ContentLength = int64(len(raw))
		default:
			again.Header[http.CanonicalHeaderKey(name)] = r.Header.Values(name)
		}
	}
	hash := r.Header.Get("X-Amz-Content-Sha256")
	if err := sign(r.Context(), again, key, secret, hash, at); err != nil {
		return nil, err
	}
	if got := again.Header.Get("Authorization"); got != auth {
		return nil, fmt.Errorf("signature %s is not %s", auth, got)
	}
	switch sum := sha256.Sum256(raw); hash {
	case "STREAMING-UNSIGNED-PAYLOAD-TRAILER":
		return unchunk(r, raw)
	case "UNSIGNED-PAYLOAD", hex.EncodeToString(sum[:]):
		return raw, nil
	}
	return nil, errors.New("the body is not the one that was signed")
}

// sign is what S3 clients do.
func sign(ctx context.Context, req *http.Request, key, secret, payloadHash string, at time.Time) error {
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	creds := aws.Credentials{AccessKeyID: key, SecretAccessKey: secret}
	return signer.SignHTTP(ctx, creds, req, payloadHash, "s3", region, at)
}

// unchunk decodes aws-chunked, and compares with the checksum in the trailer.
func unchunk(r *http.Request, raw []byte) ([]byte, error) {
	in := bufio.NewReader(bytes.NewReader(raw))
	var data []byte
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, fmt.Errorf("chunk: %w", err)
		}
		n, err := strconv.ParseInt(strings.TrimSpace(line), 16, 64)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		chunk := make([]byte, n+2)
		if _, err := io.ReadFull(in, chunk); err != nil {
			return nil, fmt.Errorf("chunk: %w", err)
		}
		data = append(data, chunk[:n]...)
	}
	line, err := in.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("trailer: %w", err)
	}
	name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
	if want := r.Header.Get("X-Amz-Trailer"); name != want || name != "x-amz-checksum-crc32" {
		return nil, fmt.Errorf("trailer %q, announced %q", name, want)
	}
	if value != checksum(data) {
		return nil, fmt.Errorf("checksum %s of %d bytes", value, len(data))
	}
	if want := r.Header.Get("X-Amz-Decoded-Content-Length"); want != strconv.Itoa(len(data)) {
		return nil, fmt.Errorf("length %d, announced %s", len(data), want)
	}
	return data, nil
}
