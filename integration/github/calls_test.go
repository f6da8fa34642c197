package github_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/google/go-github/v88/github"
	"github.com/stretchr/testify/require"

	"github.com/hedgerow-go/hedgerow"
	"github.com/hedgerow-go/hedgerow/integration/internal/bed"
)

func TestSlowReadIsHedged(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		description := string(bed.Pattern(96 << 10))
		srv := bed.Serve(t, proto, bed.HoldPrimary(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/repos/o/r" {
				t.Errorf("path %s", r.URL.Path)
			}
			answer(t, w, map[string]any{"id": 7, "description": description})
		})))
		tokens := newTokens(t, srv, rateLimits)
		tr := bed.New(t, hedgerow.Config{Base: tokens.Wrap(bed.Mark(srv.Base)), Hedge: bed.Soon()})

		got, resp, err := newClient(t, tr).Repositories.Get(t.Context(), "o", "r")
		require.NoError(t, err)
		require.EqualValues(t, 7, got.GetID())
		require.Equal(t, description, got.GetDescription())
		require.Equal(t, 4999, resp.Rate.Remaining)

		base := srv.URL + "/"
		bare, err := github.NewClient(github.WithTransport(srv.Base), github.WithURLs(&base, &base))
		require.NoError(t, err)
		want, _, err := bare.Repositories.Get(t.Context(), "o", "r")
		require.NoError(t, err)
		require.Equal(t, want, got)

		bed.Settle(t, tr, tokens)
		require.EqualValues(t, 1, tr.Stats().Total.HedgeWins)
	})
}

func TestSlowWriteIsSentOnce(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		text, slow := string(bed.Pattern(128<<10)), bed.NewGate()
		srv := bed.Serve(t, proto, bed.WithClock(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var issue github.IssueRequest
			if err := json.Unmarshal(bed.ReadBody(t, r), &issue); err != nil {
				t.Errorf("request: %v", err)
			}
			slow.Pass(r)
			w.WriteHeader(http.StatusCreated)
			answer(t, w, map[string]any{"number": 1, "body": issue.GetBody()})
		})))
		tokens := newTokens(t, srv, rateLimits)
		tr := bed.New(t, hedgerow.Config{Base: tokens.Wrap(bed.Mark(srv.Base)), Hedge: bed.Soon()})
		client := newClient(t, tr)

		bed.Slowly(t, tr, apiURL, slow, func() error {
			issue, _, err := client.Issues.Create(t.Context(), "o", "r", &github.IssueRequest{Body: &text})
			if err == nil && issue.GetBody() != text {
				err = errors.New("another body came back")
			}
			return err
		})
		bed.Settle(t, tr, tokens)
		require.Equal(t, 1, slow.Count())
		require.EqualValues(t, 1, tr.Stats().Total.Skipped[hedgerow.SkipMethod])
	})
}

// Each page is a call of its own. The token that is limited in the middle is left, and every item comes once.
func TestPagination(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		const pages, perPage = 5, 50
		text := string(bed.Pattern(2 << 10)) // 100 KiB a page
		srv := bed.Serve(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			page, _ := strconv.Atoi(r.URL.Query().Get("page"))
			page = max(page, 1)
			if page > 2 && bed.Key(r) == "one" {
				primary403().write(w)
				return
			}
			var items []map[string]any
			for i := range perPage {
				items = append(items, map[string]any{"number": (page-1)*perPage + i, "body": text})
			}
			if page < pages {
				next := url.Values{"page": {strconv.Itoa(page + 1)}}
				w.Header().Set("Link", fmt.Sprintf(`<%s%s?%s>; rel="next"`, apiURL, r.URL.Path, next.Encode()))
			}
			answer(t, w, items)
		}))
		tokens := newTokens(t, srv, rateLimits)
		tr := bed.New(t, hedgerow.Config{Base: tokens.Wrap(srv.Base), Hedge: bed.Off()})

		n := 0
		for issue, err := range newClient(t, tr).Issues.ListByRepoIter(t.Context(), "o", "r", nil) {
			require.NoError(t, err)
			require.Equal(t, n, issue.GetNumber())
			require.Equal(t, text, issue.GetBody())
			n++
		}
		require.Equal(t, pages*perPage, n)
		bed.Settle(t, tr, tokens)
		require.EqualValues(t, pages, tr.Stats().Total.Requests)
		require.EqualValues(t, pages+1, tokens.Stats().Attempts)
	})
}

// GitHub redirects downloads to another host. The token stays behind, and the whole asset comes.
func TestDownloadFollowsWithoutToken(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		want := bed.Pattern(1 << 20)
		storage := bed.Serve(t, proto, bed.HoldPrimary(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if auth := r.Header.Get("Authorization"); auth != "" {
				t.Errorf("a token went to another host")
			}
			_, _ = w.Write(want)
		})))
		srv := bed.Serve(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if bed.Key(r) == "" {
				t.Errorf("no token")
			}
			http.Redirect(w, r, storage.URL+"/asset", http.StatusFound)
		}))
		tokens := newTokens(t, srv, rateLimits)
		tr := bed.New(t, hedgerow.Config{Base: tokens.Wrap(bed.Mark(srv.Base)), Hedge: bed.Soon()})

		body, _, err := newClient(t, tr).Repositories.DownloadReleaseAsset(
			t.Context(), "o", "r", 1, &http.Client{Transport: tr})
		require.NoError(t, err)
		got, err := io.ReadAll(body)
		require.NoError(t, err)
		require.NoError(t, body.Close())
		require.True(t, bytes.Equal(want, got))
		bed.Settle(t, tr, tokens)
		require.GreaterOrEqual(t, tokens.Stats().PassedThrough, uint64(2), "the primary and its hedge")
	})
}

// An upload streams from a reader that go-github hides, so it cannot be sent again: the limit of one token is passed on.
func TestUploadCannotBeRepeated(t *testing.T) {
	t.Parallel()
	bed.Each(t, func(t *testing.T, proto string) {
		want := bed.Pattern(256 << 10)
		var arrived atomic.Int64
		srv := bed.Serve(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body := bed.ReadBody(t, r)
			arrived.Add(1)
			if bed.Key(r) == "one" {
				primary403().write(w)
				return
			}
			if !bytes.Equal(want, body) {
				t.Errorf("another body came")
			}
			w.WriteHeader(http.StatusCreated)
			answer(t, w, map[string]any{"id": 9})
		}))
		tokens := newTokens(t, srv, rateLimits)
		tr := bed.New(t, hedgerow.Config{Base: tokens.Wrap(srv.Base), Hedge: bed.Soon()})
		client := newClient(t, tr)
		upload := func() (*github.ReleaseAsset, error) {
			req, err := client.NewUploadRequest(t.Context(), "repos/o/r/releases/1/assets?name=x",
				bytes.NewReader(want), int64(len(want)), "application/octet-stream")
			if err != nil {
				return nil, err
			}
			var asset github.ReleaseAsset
			_, err = client.Do(req, &asset)
			return &asset, err
		}

		_, err := upload()
		_, ok := errors.AsType[*github.RateLimitError](err)
		require.True(t, ok, "%v", err)
		asset, err := upload() // by the caller, and by then the first token rests
		require.NoError(t, err)
		require.EqualValues(t, 9, asset.GetID())
		bed.Settle(t, tr, tokens)
		require.EqualValues(t, 2, arrived.Load())
		require.Zero(t, tr.Stats().Total.Hedges)
	})
}
