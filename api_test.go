package hedgerow_test

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// update rewrites the goldens of this package's tests instead of comparing with them.
var update = flag.Bool("update", false, "rewrite the goldens in testdata")

// TestAPI compares the documentation of every public package with its golden, so that each change of the API, and of
// what is said about it, shows in the change's diff.
func TestAPI(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("testdata", "api")
	if *update {
		require.NoError(t, os.MkdirAll(dir, 0o755))
	}
	var want []string
	for _, pkg := range publicPackages(t) {
		golden := filepath.Join(dir, path.Base(pkg)+".golden")
		want = append(want, golden)
		t.Run(path.Base(pkg), func(t *testing.T) {
			t.Parallel()
			got := goCommand(t, "doc", "-all", pkg)
			if *update {
				require.NoError(t, os.WriteFile(golden, got, 0o644))
				return
			}
			expected, err := os.ReadFile(golden)
			require.NoError(t, err, "a new public package? rewrite with -update")
			require.Equal(t, string(expected), string(got), "the API or its documentation changed: review, then rewrite with -update")
		})
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.golden"))
	require.NoError(t, err)
	if !*update {
		require.ElementsMatch(t, want, found, "a golden for each public package and no others")
	}
}

// publicPackages returns the import paths of what users of the module can import.
func publicPackages(t *testing.T) []string {
	t.Helper()
	var public []string
	for pkg := range strings.Lines(string(goCommand(t, "list", "./..."))) {
		pkg = strings.TrimSpace(pkg)
		if !strings.Contains(pkg+"/", "/internal/") && !strings.Contains(pkg+"/", "/examples/") {
			public = append(public, pkg)
		}
	}
	require.NotEmpty(t, public)
	return public
}

// goCommand returns what the go command printed.
func goCommand(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "go %s: %s", strings.Join(args, " "), &stderr)
	return out
}
