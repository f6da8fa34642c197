package tail_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// update is set by -update.
var update = flag.Bool("update", false, "run everything, and rewrite docs and the figures of the README")

// show is set by -show.
var show = flag.Bool("show", false, "rewrite what shows the committed results, without running anything")

// docs is where the results are.
const docs = "../../docs"

// seeds are those of the committed results.
func seeds() []uint64 { return []uint64{1, 2, 3, 4, 5} }

// committed returns the committed results.
func committed(t *testing.T) (results []result) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(docs, "tail/results.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &results))
	return results
}

// TestSimulation runs some of the simulations again: what is committed is what the program finds. With -update it runs
// all of them, and commits to what it finds.
func TestSimulation(t *testing.T) {
	t.Parallel()
	if *update {
		rewrite(t)
		return
	}
	want := committed(t)
	for _, w := range workloads() {
		if w.fanOut > 0 {
			continue // ten times the work of the others
		}
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range w.contenders() {
				if c.kind == foresight || simRaced && c.name != "hedgerow" {
					continue
				}
				for _, got := range w.compete(t, c, seeds()[:1]) {
					k := slices.IndexFunc(want, func(r result) bool {
						return r.row() == got.row() && r.Contender == got.Contender
					})
					require.GreaterOrEqual(t, k, 0, "%s: %s", got.row(), got.Contender)
					require.Equal(t, want[k].Seeds[0], got.Seeds[0], got.Contender)
				}
			}
		})
	}
}

func rewrite(t *testing.T) {
	t.Helper()
	all := make([][]result, len(workloads()))
	t.Run("all", func(t *testing.T) { // returns when its parallel subtests have
		for k, w := range workloads() {
			t.Run(w.name, func(t *testing.T) {
				t.Parallel()
				all[k] = w.measure(t, seeds())
			})
		}
	})
	for k, w := range workloads() {
		require.NotEmpty(t, all[k], "%s was left out: what is committed has all of them", w.name)
	}
	results := slices.Concat(all...)
	data, err := encode(results)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(docs, "tail"), 0o750))
	write(t, filepath.Join(docs, "tail/results.json"), data)
	for name, content := range render(t, results) {
		write(t, name, content)
	}
	t.Log("\n" + page(results))
}

func write(t *testing.T, name string, content []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(name, content, 0o644))
}

// render returns the files that show the results.
func render(t *testing.T, results []result) map[string][]byte {
	t.Helper()
	files := map[string][]byte{filepath.Join(docs, "tail.md"): []byte(page(results))}
	var err error
	files[filepath.Join(docs, "tail/overview.svg")], err = overview("p99 of the workloads, with the extra load of the table", results)
	require.NoError(t, err)
	for _, row := range rows(results) {
		name := filepath.Join(docs, "tail", fileOf(row[0].row())+".svg")
		files[name], err = curves(row[0].row(), row)
		require.NoError(t, err)
	}
	const readme = "../../README.md"
	text, err := os.ReadFile(readme)
	require.NoError(t, err)
	files[readme] = []byte(fill(t, string(text), summary(results)))
	return files
}

const (
	begin = "<!-- from bench/tail; `make tail` rewrites it -->\n"
	end   = "<!-- end -->\n"
)

// fill puts the table between its marks.
func fill(t *testing.T, text, table string) string {
	t.Helper()
	head, rest, found := strings.Cut(text, begin)
	require.True(t, found, "the README has no mark for the table")
	_, tail, found := strings.Cut(rest, end)
	require.True(t, found, "the README has no mark for the end of the table")
	return head + begin + table + end + tail
}

// TestRendered shows that the README, the page and the pictures say what the results say.
func TestRendered(t *testing.T) {
	t.Parallel()
	if *update {
		return
	}
	for name, want := range render(t, committed(t)) {
		if *show {
			write(t, name, want)
		}
		got, err := os.ReadFile(name)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got), "%s is not what the results say: make tail", name)
	}
}
