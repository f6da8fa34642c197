// Package s3_test shows the S3 client of aws-sdk-go-v2 over hedgerow.
package s3_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

// endpoint stands for S3. The transport of each test server dials its own server for it.
const endpoint = "https://example.com"

// newClient is the shortest set-up. The SDK signs above hedgerow, and retries as ever.
func newClient(rt http.RoundTripper, opts ...func(*s3.Options)) *s3.Client {
	return s3.New(s3.Options{
		Region:       region,
		Credentials:  credentials.NewStaticCredentialsProvider("AKIAONE", secrets()["AKIAONE"], ""),
		BaseEndpoint: aws.String(endpoint),
		UsePathStyle: true,
		HTTPClient:   &http.Client{Transport: rt},

		// Checksums as config.LoadDefaultConfig has them.
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenSupported,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenSupported,
	}, opts...)
}

// newPaths returns a pool of two ways to the same endpoint: what is signed, the host above all, is the same for both. Proxies
// are such resources as well.
func newPaths(t *testing.T, a, b *bed.Server) *hedgerow.Pool {
	t.Helper()
	return bed.NewPool(t, hedgerow.PoolConfig{
		Resources: []hedgerow.Resource{
			{ID: "path-1", Base: bed.Mark(a.Base)},
			{ID: "path-2", Base: bed.Mark(b.Base)},
		},
	})
}

// oneTry turns the retries of the SDK off.
func oneTry(o *s3.Options) { o.RetryMaxAttempts = 1 }

// noBackoff has the SDK's own retries as by default, without their pauses.
func noBackoff(o *s3.Options) {
	o.Retryer = retry.NewStandard(func(o *retry.StandardOptions) {
		o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
	})
}

// newKeys returns a pool of access keys. It signs below the SDK, which has none then.
func newKeys(t *testing.T) *hedgerow.Pool {
	t.Helper()
	signedBy := func(key string) hedgerow.Credential {
		return hedgerow.CredentialFunc(func(req *http.Request) error {
			hash := req.Header.Get("X-Amz-Content-Sha256")
			if hash == "" {
				hash = "UNSIGNED-PAYLOAD"
				req.Header.Set("X-Amz-Content-Sha256", hash)
			}
			return sign(req.Context(), req, key, secrets()[key], hash, time.Now())
		})
	}
	return bed.NewPool(t, hedgerow.PoolConfig{
		Hosts: []string{"example.com"},
		Resources: []hedgerow.Resource{
			{ID: "key-1", Credential: signedBy("AKIAONE")},
			{ID: "key-2", Credential: signedBy("AKIATWO")},
		},
	})
}

func anonymous(o *s3.Options) { o.Credentials = aws.AnonymousCredentials{} }
