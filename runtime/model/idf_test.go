package model

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/tokenizer"
)

// The two forms of the table of token weights: the first is used if both exist. Invalid files are
// refused.
func TestTokenWeightTables(t *testing.T) {
	tok, err := tokenizer.Load(golden.Open(t, "splade-bert").Dir)
	if err != nil {
		t.Skip(err)
	}
	defer tok.Close()
	id, _ := tok.TokenToID("b")
	const table, object = "query_token_weights.txt", "idf.json"
	for _, c := range []struct {
		files map[string]string
		want  float32 // of "b"
		err   string
	}{
		{map[string]string{table: "b\t1.5\n\nnowhere\t3\n"}, 1.5, ""},
		{map[string]string{object: `{"zzzz zzzz": 1, "nowhere": 1, "b": 2.5}`}, 2.5, ""},
		{map[string]string{object: `{"b": 2.5}`}, 2.5, ""},
		{map[string]string{table: "b\t1.5", object: `{"b": 2.5}`}, 1.5, ""},
		{map[string]string{table: "b 1.5"}, 0, "line 1 is not a token, a tab and a number"},
		{map[string]string{table: "a\t1\nb\tmuch"}, 0, "line 2 is not a token, a tab and a number"},
		{map[string]string{table: "b\tnan"}, 0, `token "b" has the weight NaN; it must be finite`},
		{map[string]string{table: "b\tinf"}, 0, "it must be finite"},
		{map[string]string{object: `{"b": 1e39}`}, 0, "it must be finite"},
		{map[string]string{object: `["b"]`}, 0, "is no JSON object of numbers"},
		// what would weigh nothing in every query
		{map[string]string{object: `{"a": 1, "b": null}`}, 0,
			`token "b" has the weight null; it must be a number`},
		{map[string]string{object: `null`}, 0, "has a weight for no token"},
		{map[string]string{object: `{"nowhere": 1}`}, 0, "has a weight for no token"},
		{map[string]string{table: "\n"}, 0, "has a weight for no token"},
		// the file is extended beyond the limit below
		{map[string]string{object: ""}, 0, "is larger than 64 MB"},
	} {
		dir := t.TempDir()
		for name, content := range c.files {
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			if content == "" {
				if err := os.Truncate(path, maxIDFBytes+1); err != nil {
					t.Fatal(err)
				}
			}
		}
		var told testrig.Log
		weights, err := readIDF(dir, tok, slog.New(slog.NewTextHandler(&told, nil)))
		strange := strings.Count(c.files[table]+c.files[object], "nowhere") +
			strings.Count(c.files[object], "zzzz zzzz")
		says := fmt.Sprintf(`unknown=%d known=1 one_of_them="\"nowhere\""`, strange)
		if c.err == "" && strings.Contains(told.String(), says) != (strange > 0) {
			t.Errorf("%v: the log is told %q, want %s", c.files, told.String(), says)
		}
		var refused *arch.ModelError
		switch {
		case c.err == "" && (err != nil || len(weights) != tok.VocabSize() || weights[id] != c.want):
			t.Errorf("%v: %v, %v", c.files, weights, err)
		case c.err != "" && (!errors.As(err, &refused) || !strings.Contains(err.Error(), c.err) ||
			c.files[refused.File] == "" && refused.File != object):
			t.Errorf("%v: %v, want %q", c.files, err, c.err)
		}
	}
	if weights, err := readIDF(t.TempDir(), tok, slog.Default()); weights != nil || err != nil {
		t.Errorf("without a table: %v, %v", weights, err)
	}
}
