package task_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/golden"
)

// pylateCases are models that PyLate saved. Lengths, markers and skip lists are in their files.
var pylateCases = []string{"pylate-attended", "pylate-plain"}

// A ModernBERT with late interaction gives PyLate's token vectors. The entry says nothing of
// markers, lengths and skip lists: they come from the model's own file.
func TestPyLateModels(t *testing.T) {
	for _, name := range pylateCases {
		c := golden.Open(t, name)
		data, err := os.ReadFile(filepath.Join(c.Dir, "texts.json"))
		var texts []string
		if err == nil {
			err = json.Unmarshal(data, &texts)
		}
		if err != nil {
			t.Fatal(err)
		}
		m, warn, err := catalog.ParseModel("late.yaml", fmt.Appendf(nil,
			"sie_id: late\nweights_path: %s\nmax_sequence_length: 80\n%s\nprofiles:\n  default: {adapter_path: "+
				"\"sie_server.adapters.colbert_modernbert_flash:Adapter\", max_batch_tokens: 4096}\n",
			c.Dir, colbertTasks))
		if err != nil || len(warn) > 0 {
			t.Fatal(err, warn)
		}
		r := start(t, nil, nil, m)
		for role, query := range map[string]bool{"query": true, "document": false} {
			res, err := r.Encode(t.Context(), &Request{
				Model: "late", Texts: texts, OutputTypes: []string{"multivector"}, IsQuery: &query})
			if err != nil {
				t.Errorf("%s, %s: %v", name, role, err)
				continue
			}
			want, shape := c.Float32(role)
			rows := c.Int32(role + ".rows")
			for i, got := range res.Multi {
				from, to := int(rows[i]), int(rows[i+1])
				if got.Rows != to-from {
					t.Errorf("%s, %s %d: %d vectors, PyLate's are %d", name, role, i, got.Rows, to-from)
					continue
				}
				d := golden.Compare(floats(got.Data), want[from*shape[1]:to*shape[1]])
				if d.MaxAbs > 1e-5 {
					t.Errorf("%s, %s %d: %v", name, role, i, d)
				}
			}
		}
	}
}

// A query that would be filled beyond the window of its first token is refused by name; a shorter
// one is answered.
func TestFilledQueriesFitTheWindow(t *testing.T) {
	c := golden.Open(t, "pylate-plain") // windows of 4 tokens each way
	m, warn, err := catalog.ParseModel("late.yaml", fmt.Appendf(nil,
		"sie_id: late\nweights_path: %s\nmax_sequence_length: 80\n%s\nprofiles:\n  default: {adapter_path: "+
			"\"sie_server.adapters.colbert_modernbert_flash:Adapter\", max_batch_tokens: 4096, "+
			"adapter_options: {loadtime: {query_expansion: true, query_max_length: 16}}}\n", c.Dir, colbertTasks))
	if err != nil || len(warn) > 0 {
		t.Fatal(err, warn)
	}
	r, yes := start(t, nil, nil, m), true
	wanted := map[int]string{0: "up to 16 tokens, and 5 is", 6: "up to 6 tokens, and 5 is", 5: ""}
	for length, want := range wanted {
		req := &Request{Model: "late", Texts: []string{"a"}, OutputTypes: []string{"multivector"},
			IsQuery: &yes}
		if length > 0 {
			req.Options = map[string]any{"query_max_length": length}
		}
		res, err := r.Encode(t.Context(), req)
		if want == "" && (err != nil || res.Multi[0].Rows != length) {
			t.Errorf("%d tokens: %v", length, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d tokens: %v, not %q", length, err, want)
		}
	}
}
