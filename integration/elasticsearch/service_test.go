package elasticsearch_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/elastic/go-elasticsearch/v9"
	"github.com/elastic/go-elasticsearch/v9/esapi"
	"github.com/elastic/go-elasticsearch/v9/esutil"
	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

// product marks every response of next as Elasticsearch's own.
func product(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Elastic-Product", "Elasticsearch")
		w.Header().Set("Content-Type", "application/json")
		next.ServeHTTP(w, r)
	})
}

// rejected answers as a node whose queue is full.
func rejected(w http.ResponseWriter) {
	w.WriteHeader(http.StatusTooManyRequests)
	_, _ = io.WriteString(w, `{"error":{"root_cause":[],"type":"es_rejected_execution_exception",`+
		`"reason":"rejected execution of coordinating operation"},"status":429}`)
}

// digest returns the body of a request, or what a client has compressed it from, as its hash.
func digest(t *testing.T, r *http.Request) string {
	t.Helper()
	body := bed.ReadBody(t, r)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(bytes.NewReader(body))
		if err == nil {
			body, err = io.ReadAll(z)
		}
		if err != nil {
			t.Errorf("gzip: %v", err)
		}
	}
	return hash(body)
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// found answers a search with one large hit, and the hash of the query.
func found(t *testing.T, w http.ResponseWriter, r *http.Request) {
	t.Helper()
	_, _ = fmt.Fprintf(w, `{"took":1,"timed_out":false,"hits":{"hits":[{"_index":"books","_id":"1","_source":{"query":%q,"text":%q}}]}}`,
		digest(t, r), bed.Pattern(96<<10))
}

// result returns what found has answered.
func result(resp *esapi.Response, err error) (query, text string, _ error) {
	if err != nil {
		return "", "", err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.IsError() {
		return "", "", errors.New(resp.String())
	}
	var v struct {
		Hits struct {
			Hits []struct {
				Source struct{ Query, Text string } `json:"_source"`
			}
		}
	}
	err = json.NewDecoder(resp.Body).Decode(&v)
	if err != nil {
		return "", "", err
	}
	if len(v.Hits.Hits) != 1 {
		return "", "", fmt.Errorf("%d hits", len(v.Hits.Hits))
	}
	return v.Hits.Hits[0].Source.Query, v.Hits.Hits[0].Source.Text, nil
}

// unhedged is the context of a call whose attempts are counted: on a busy machine it could be hedged.
func unhedged(t *testing.T) context.Context {
	t.Helper()
	return hedgerow.WithCall(t.Context(), hedgerow.Call{NoHedge: true})
}

func search(ctx context.Context, client *elasticsearch.Client, query io.Reader) (*esapi.Response, error) {
	return client.Search(client.Search.WithContext(ctx), client.Search.WithIndex("books"), client.Search.WithBody(query))
}

// requireFound makes a search, and requires what found answers.
func requireFound(t *testing.T, client *elasticsearch.Client, query []byte) {
	t.Helper()
	got, _, err := result(search(t.Context(), client, bytes.NewReader(query)))
	require.NoError(t, err)
	require.Equal(t, hash(query), got)
}

// query returns a search of n bytes that do not compress.
func query(n int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 0))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// An index is what nodes have indexed: how often each document.
type index struct {
	mu   sync.Mutex // guards docs
	docs map[string]int
}

// add takes the documents of a bulk request and returns the answer to it.
func (x *index) add(body []byte) []byte {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.docs == nil {
		x.docs = map[string]int{}
	}
	var items []any
	for line := range bytes.Lines(body) {
		var action struct {
			Index *struct {
				ID string `json:"_id"`
			}
		}
		if json.Unmarshal(line, &action) == nil && action.Index != nil {
			x.docs[action.Index.ID]++
			items = append(items, map[string]any{"index": map[string]any{"_id": action.Index.ID, "status": 201}})
		}
	}
	out, _ := json.Marshal(map[string]any{"took": 1, "errors": false, "items": items}) //nolint:errchkjson // plain values
	return out
}

// node answers searches, and adds the documents of bulk requests.
func (x *index) node(t *testing.T) http.Handler {
	t.Helper()
	return product(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/_search") {
			found(t, w, r)
			return
		}
		_, _ = w.Write(x.add(bed.ReadBody(t, r)))
	}))
}

// once returns an error unless all the documents are there, each once.
func (x *index) once() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, times := range x.docs {
		if times != 1 {
			return fmt.Errorf("document %s: %d times", id, times)
		}
	}
	if len(x.docs) != bulkDocs {
		return fmt.Errorf("%d documents, not %d", len(x.docs), bulkDocs)
	}
	return nil
}

const bulkDocs = 64 // of 2 KiB each

func bulkBody() []byte {
	var b bytes.Buffer
	for i := range bulkDocs {
		fmt.Fprintf(&b, "{\"index\":{\"_id\":\"%d\"}}\n{\"text\":%q}\n", i, bed.Pattern(2<<10))
	}
	return b.Bytes()
}

// bulk indexes the documents by the plain call.
func bulk(ctx context.Context, client *elasticsearch.Client) error {
	resp, err := client.Bulk(bytes.NewReader(bulkBody()), client.Bulk.WithContext(ctx), client.Bulk.WithIndex("books"))
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.IsError() {
		return errors.New(resp.String())
	}
	return nil
}

// bulkIndexer indexes them by a BulkIndexer, which has its own buffers.
func bulkIndexer(ctx context.Context, client *elasticsearch.Client) error {
	var mu sync.Mutex
	var failed error
	indexer, err := esutil.NewBulkIndexer(esutil.BulkIndexerConfig{
		Client: client, Index: "books", NumWorkers: 1,
		OnError: func(_ context.Context, err error) {
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
		},
	})
	if err != nil {
		return err
	}
	for i := range bulkDocs {
		item := esutil.BulkIndexerItem{
			Action: "index", DocumentID: strconv.Itoa(i),
			Body: strings.NewReader(fmt.Sprintf(`{"text":%q}`, bed.Pattern(2<<10))),
		}
		if err := indexer.Add(ctx, item); err != nil {
			return err
		}
	}
	err = indexer.Close(ctx)
	mu.Lock()
	defer mu.Unlock()
	if s := indexer.Stats(); failed == nil && s.NumIndexed != bulkDocs {
		failed = fmt.Errorf("%+v", s)
	}
	return errors.Join(err, failed)
}

// A bulkFunc indexes the documents.
type bulkFunc func(context.Context, *elasticsearch.Client) error

// eachBulk runs f with each of the two ways to index them, over HTTP/1.1 and over HTTP/2.
func eachBulk(t *testing.T, f func(t *testing.T, proto string, run bulkFunc)) {
	t.Helper()
	bed.Each(t, func(t *testing.T, proto string) {
		for name, run := range map[string]bulkFunc{"Bulk": bulk, "BulkIndexer": bulkIndexer} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f(t, proto, run)
			})
		}
	})
}
