package task_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/weights"
	"github.com/sie-engine/sie/weights/weightstest"
)

// Models saved by sentence-transformers 5.3 to 6.2 give its answers for texts, with their own
// tokenizers, limits, prompts and activations.
func TestSavedModels(t *testing.T) {
	for kind, info := range map[string]catalog.AdHocInfo{
		"embedder": {},
		"sparse":   {Family: catalog.FamilySparse},
		"router":   {Family: catalog.FamilySparse},
		"reranker": {Family: catalog.FamilyCrossEncoder},
	} {
		for _, release := range []string{"5.3.0", "5.4.1", "6.2.0"} {
			t.Run(kind+"/"+release, func(t *testing.T) {
				c := golden.Open(t, "saved-"+kind+"/"+release)
				info.WeightsPath = c.Dir
				m, err := catalog.AdHoc("saved", info)
				if err != nil {
					t.Fatal(err)
				}
				checkSaved(t, c, start(t, nil, nil, m))
			})
		}
	}
}

func checkSaved(t *testing.T, c *golden.Case, r *rig) {
	if c.Has("scores") {
		want, _ := c.Float32("scores")
		for i, pair := range readTextsOf[[2]string](t, c) {
			res, err := r.Score(t.Context(), &ScoreRequest{Model: "saved", Query: pair[0], Texts: pair[1:]})
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(res.Scores[0]-float64(want[i])) > 2e-6 {
				t.Errorf("pair %d scores %v, CrossEncoder %v", i, res.Scores[0], want[i])
			}
		}
		return
	}
	texts := readTextsOf[string](t, c)
	if c.Has("vectors") {
		want, shape := c.Float32("vectors")
		yes := true // the default prompt is the one for queries
		res, err := r.Encode(t.Context(),
			&Request{Model: "saved", Texts: texts, OutputTypes: []string{"dense"}, IsQuery: &yes})
		if err != nil {
			t.Fatal(err)
		}
		for i, row := range res.Rows {
			if d := golden.Compare(floats(row), want[i*shape[1]:(i+1)*shape[1]]); d.MaxAbs > 1e-5 {
				t.Errorf("text %d: %v", i, d)
			}
		}
		return
	}
	for key, isQuery := range map[string]bool{"splade": false, "queries": true} {
		want, shape := c.Float32(key)
		res, err := r.Encode(t.Context(),
			&Request{Model: "saved", Texts: texts, OutputTypes: []string{"sparse"}, IsQuery: &isQuery})
		if err != nil {
			t.Fatal(err)
		}
		for i, row := range res.Sparse {
			dense := make([]float32, shape[1])
			columns := ints(row.Columns)
			for j, v := range floats(row.Values) {
				dense[columns[j]] = v
			}
			if d := golden.Compare(dense, want[i*shape[1]:(i+1)*shape[1]]); d.MaxAbs > 1e-5 {
				t.Errorf("%s, text %d: %v", key, i, d)
			}
		}
	}
}

func readTextsOf[T any](t *testing.T, c *golden.Case) (texts []T) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(c.Dir, "texts.json"))
	if err == nil {
		err = json.Unmarshal(data, &texts)
	}
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// A cross-encoder's default prompt goes before the query; an instruction replaces it.
func TestPromptOfACrossEncoder(t *testing.T) {
	scores := func(config, query string, instruction *string) float64 {
		t.Helper()
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(golden.Open(t, "saved-reranker/6.2.0").Dir)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "config_sentence_transformers.json"), []byte(config),
			0o600); err != nil {
			t.Fatal(err)
		}
		r := start(t, nil, nil, entry(t, "ce", dir, "cross_encoder", "tasks: {score: {}}"))
		res, err := r.Score(t.Context(), &ScoreRequest{
			Model: "ce", Query: query, Texts: []string{"8849 metres"}, Instruction: instruction,
		})
		if err != nil {
			t.Fatal(err)
		}
		return res.Scores[0]
	}
	const plain, prompted = `{"activation_fn":"torch.nn.Sigmoid"}`,
		`{"activation_fn":"torch.nn.Sigmoid","prompts":{"ask":"ask: "},"default_prompt_name":"ask"}`
	other := "find"
	if got, want := scores(prompted, "how tall", nil), scores(plain, "ask: how tall", nil); got != want ||
		got == scores(plain, "how tall", nil) {
		t.Errorf("with its prompt %v, of the prompted text %v", got, want)
	}
	if got, want := scores(prompted, "how tall", &other), scores(plain, "find how tall", nil); got != want {
		t.Errorf("with an instruction %v, of the instructed text %v", got, want)
	}
}

// Where tokenizer_config.json does not list the types of tokens among a model's inputs, both texts
// of a pair have type 0, as in transformers.
func TestPairsWithoutTypes(t *testing.T) {
	const file = "model.safetensors"
	score := func(change func(dir string)) float64 {
		t.Helper()
		dir := copyModel(t, "saved-reranker/6.2.0")
		change(dir)
		r := start(t, nil, nil, entry(t, "ce", dir, "cross_encoder", "tasks: {score: {}}"))
		res, err := r.Score(t.Context(),
			&ScoreRequest{Model: "ce", Query: "how tall", Texts: []string{"8849 metres"}})
		if err != nil {
			t.Fatal(err)
		}
		return res.Scores[0]
	}
	plain := score(func(string) {})
	listed := score(func(dir string) {
		edit(t, filepath.Join(dir, "tokenizer_config.json"),
			map[string]any{"model_input_names": []string{"input_ids", "attention_mask"}})
	})
	same := score(func(dir string) { // the two types are one
		from, err := weights.OpenFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		defer from.Close()
		var all []weightstest.Tensor
		for _, name := range from.Names() {
			x, _ := from.Tensor(name)
			data := weightstest.Bytes(x)
			if strings.HasSuffix(name, "token_type_embeddings.weight") {
				copy(data[len(data)/2:], data)
			}
			all = append(all, weightstest.Tensor{Name: name, DType: x.DType, Shape: x.Shape, Data: data})
		}
		weightstest.WriteFile(t, dir, file, weightstest.Encode(nil, all...))
	})
	if listed != same || listed == plain {
		t.Errorf("without types %v, with one for both texts %v, with both %v", listed, same, plain)
	}
}

// If the table for queries is shorter than the vocabulary, the load fails with an error that names
// it.
func TestShortQueryTableIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(golden.Open(t, "saved-router/6.2.0").Dir)); err != nil {
		t.Fatal(err)
	}
	table := filepath.Join(dir, "query_0_SparseStaticEmbedding", "model.safetensors")
	if err := os.WriteFile(table, weightstest.Encode(nil,
		weightstest.Float32("weight", []int64{84}, make([]float32, 84)...)), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, nil, nil, entry(t, "sp", dir, "splade_flash", "tasks: {encode: {sparse: {dim: 85}}}"))
	_, err := r.Encode(t.Context(),
		&Request{Model: "sp", Texts: []string{"a"}, OutputTypes: []string{"sparse"}})
	if err == nil || !strings.Contains(err.Error(), "the queries' table has 84 weights") {
		t.Errorf("%v", err)
	}
}
