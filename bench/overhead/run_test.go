package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRun runs the command, for what it writes and not for the numbers.
func TestRun(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "out.json")
	var text, progress strings.Builder
	args := []string{
		"-short", "-rounds", "1", "-filter", "one process$|HTTP/2, 1 g", "-contenders", "^hedgerow|^hedgedhttp", "-json", file,
	}
	require.NoError(t, run(t.Context(), args, &text, &progress))

	var r report
	written, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(written, &r))
	require.Len(t, r.Results, 2)
	require.Len(t, r.Targets, 6)
	for _, one := range r.Results {
		require.Contains(t, text.String(), one.Setting.Name)
		require.NotEmpty(t, one.Contenders)
		for _, e := range one.Contenders {
			require.Len(t, e.Samples, one.Setting.Rounds, e.Name)
			require.Positive(t, e.Summary.Nanoseconds, e.Name)
			for _, m := range e.Samples {
				require.GreaterOrEqual(t, m.Requests, int64(one.Setting.Calls), e.Name)
			}
		}
	}
	for _, line := range r.Targets {
		require.Contains(t, text.String(), line.String())
	}

	var markdown strings.Builder
	require.NoError(t, r.writeMarkdown(&markdown))
	rows := strings.Split(strings.TrimSpace(markdown.String()), "\n")
	require.Len(t, rows, len(contenders())+4)
	for _, row := range rows[:len(rows)-2] {
		require.Equal(t, strings.Count(rows[0], "|"), strings.Count(row, "|"), row)
	}
}

// TestRunFaults holds what the command says of arguments that it cannot use.
func TestRunFaults(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"-filter", "-contenders"} {
		var out strings.Builder
		require.ErrorContains(t, run(t.Context(), []string{flag, "("}, &out, &out), flag)
	}
	require.Error(t, play(`{}`, strings.NewReader(`{"verb":"warm","contender":"nobody"}`), &strings.Builder{}))
}

// TestTurns holds that everyone has a turn in every round, and everyone the first one.
func TestTurns(t *testing.T) {
	t.Parallel()
	require.Equal(t, []int{0, 1, 2}, turns(0, 3))
	require.Equal(t, []int{0, 2, 1}, turns(1, 3))
	require.Equal(t, []int{2, 0, 1}, turns(2, 3))
}
