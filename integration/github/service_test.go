package github_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// limits sets the headers that every response of GitHub has.
func limits(w http.ResponseWriter, remaining int, resource string) {
	h := w.Header()
	h.Set("X-Ratelimit-Limit", "5000")
	h.Set("X-Ratelimit-Remaining", strconv.Itoa(remaining))
	h.Set("X-Ratelimit-Reset", strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10))
	h.Set("X-Ratelimit-Resource", resource)
	h.Set("Content-Type", "application/json; charset=utf-8")
}

func answer(t *testing.T, w http.ResponseWriter, v any) {
	t.Helper()
	limits(w, 4999, "core")
	text, err := json.Marshal(v)
	if err != nil {
		t.Errorf("answer: %v", err)
	}
	_, _ = w.Write(text) // a client that has all of the value may leave before the end
}

// A refusal is one of the ways in which GitHub says no.
type refusal struct {
	name   string
	status int
	remain int
	header map[string]string
	body   string
}

func (f refusal) write(w http.ResponseWriter) {
	limits(w, f.remain, "core")
	for k, v := range f.header {
		w.Header().Set(k, v)
	}
	w.WriteHeader(f.status)
	_, _ = io.WriteString(w, f.body)
}

const (
	docs      = "https://docs.github.com/rest/"
	secondary = `{"message":"You have exceeded a secondary rate limit.","documentation_url":"` + docs +
		`using-the-rest-api/rate-limits-for-the-rest-api?apiVersion=2022-11-28#about-secondary-rate-limits"}`
	primary = `{"message":"API rate limit exceeded for user ID 1.","documentation_url":"` + docs + `rate-limits"}`
)

func primary403() refusal { return refusal{name: "primary 403", status: 403, body: primary} }

func refusals() []refusal {
	retry := map[string]string{"Retry-After": "60"}
	marker := strings.Replace(secondary, "#about-secondary-rate-limits", "#secondary-rate-limits", 1)
	return []refusal{
		primary403(),
		{name: "primary 429", status: 429, body: primary},
		{name: "secondary 403 with a hint", status: 403, remain: 4990, header: retry, body: secondary},
		{name: "secondary 403 without", status: 403, remain: 4990, body: marker},
		{name: "secondary 429", status: 429, remain: 4990, header: retry, body: secondary},
		{name: "bad token", status: 401, remain: 59, body: `{"message":"Bad credentials"}`},
	}
}
