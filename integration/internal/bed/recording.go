package bed

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A Recording is a response of a real service, from testdata/responses.json of the root module.
type Recording struct {
	Name, Provider, Preset, Body string

	Status int
	Header http.Header
	Want   struct {
		WaitMs    *int64 `json:"wait_ms"`
		WaitMinMs *int64 `json:"wait_min_ms"`
		WaitMaxMs *int64 `json:"wait_max_ms"`
	}
}

// ServeHTTP answers as the service has.
func (rec Recording) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	maps.Copy(w.Header(), rec.Header) // Date too: instants are measured against it
	w.WriteHeader(rec.Status)
	_, _ = io.WriteString(w, rec.Body)
}

// Recordings returns those of the providers whose names begin with prefix. It is for the directories of this module.
func Recordings(t *testing.T, prefix string) []Recording {
	t.Helper()
	data, err := os.ReadFile("../../testdata/responses.json")
	require.NoError(t, err)
	var all, some []Recording
	require.NoError(t, json.Unmarshal(data, &all))
	for _, rec := range all {
		if strings.HasPrefix(rec.Provider, prefix) {
			some = append(some, rec)
		}
	}
	return some
}
