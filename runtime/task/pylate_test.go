package task_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/fold"
	"github.com/sie-engine/sie/runtime/service/servicetest"
)

// pylateCases are models that PyLate saved. Lengths, markers and skip lists are in their files.
var pylateCases = []string{"pylate-attended", "pylate-expanded", "pylate-plain"}

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
		checkScores(t, r, c, texts)
	}
}

// checkScores compares MaxSim of every text with every text with PyLate's.
func checkScores(t *testing.T, r *servicetest.Rig, c *golden.Case, texts []string) {
	t.Helper()
	want, _ := c.Float32("scores")
	for i, query := range texts {
		if query == "" {
			continue // a query must not be empty
		}
		res, err := r.Score(t.Context(), &ScoreRequest{Model: "late", Query: query, Texts: texts})
		if err != nil {
			t.Errorf("%s, scores %d: %v", c.Dir, i, err)
			continue
		}
		for j, got := range res.Scores {
			if w := float64(want[i*len(texts)+j]); math.Abs(got-w) > 1e-4 {
				t.Errorf("%s, scores %d, %d: %g, PyLate's is %g", c.Dir, i, j, got, w)
			}
		}
	}
}

// What is folded of a filled query are PyLate's token vectors, those that see no key among them.
// Without a projection, MUVERA's parts add up to their sum. SMVE, where each vector keeps every
// column, has the sum's products with the anchors.
func TestPyLateFolds(t *testing.T) {
	const dim, width = 24, 64
	c := golden.Open(t, "pylate-expanded")
	m, warn, err := catalog.ParseModel("late.yaml", fmt.Appendf(nil,
		"sie_id: late\nweights_path: %s\nmax_sequence_length: 80\n%s\nprofiles:\n  default: {adapter_path: "+
			"\"sie_server.adapters.colbert_modernbert_flash:Adapter\", max_batch_tokens: 4096, "+
			"adapter_options: {loadtime: {skip_special_tokens: false, smve_config: {width: 64, k: 64}, "+
			"muvera_config: {num_repetitions: 1, num_simhash_projections: 2, projection_dim: null, "+
			"final_projection_dim: null}}}}\n", c.Dir, colbertTasks))
	if err != nil || len(warn) > 0 {
		t.Fatal(err, warn)
	}
	tables, err := fold.SMVE{Repetitions: 1, Width: width, Top: width, Seed: 42}.Tables(dim)
	if err != nil {
		t.Fatal(err)
	}
	r, yes := start(t, nil, nil, m), true
	texts := readTexts[string](t, "pylate-expanded")
	res, err := r.Encode(t.Context(), &Request{Model: "late", Texts: texts, IsQuery: &yes,
		OutputTypes: []string{"dense", "sparse"},
		Options:     map[string]any{"muvera": map[string]any{}, "smve": map[string]any{}}})
	if err != nil {
		t.Fatal(err)
	}
	tokens, _ := c.Float32("query")
	rows := c.Int32("query.rows")
	for i := range texts {
		want, got := make([]float32, dim), make([]float32, dim)
		for j, x := range tokens[int(rows[i])*dim : int(rows[i+1])*dim] {
			want[j%dim] += x
		}
		for j, x := range floats(res.Rows[i]) {
			got[j%dim] += x
		}
		if d := golden.Compare(got, want); d.MaxAbs > 1e-4 {
			t.Errorf("text %d, MUVERA: %v", i, d)
		}
		columns, values := ints(res.Sparse[i].Columns), floats(res.Sparse[i].Values)
		if len(columns) != width {
			t.Errorf("text %d, SMVE: %d columns", i, len(columns))
		}
		for j, column := range columns {
			product := dot(want, tables.Anchors[int(column)*dim:int(column+1)*dim])
			if math.Abs(product-float64(values[j])) > 1e-4 {
				t.Errorf("text %d, SMVE's column %d: %g, want %g", i, column, values[j], product)
			}
		}
	}
}
