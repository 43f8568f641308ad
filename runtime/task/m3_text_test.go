package task_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/task"
	"github.com/sie-engine/sie/runtime/tokenizer"
)

// m3Model writes the model of testdata/golden/m3-text: its heads over the encoder and tokenizer of
// another golden case.
func m3Model(t *testing.T, c *golden.Case) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(golden.Open(t, "st-xlmr-mean-torch").Dir)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"colbert_linear.pt", "sparse_linear.pt"} {
		data, err := os.ReadFile(filepath.Join(c.Dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	writeJSON(t, filepath.Join(dir, "1_Pooling", "config.json"),
		map[string]any{"word_embedding_dimension": 64, "pooling_mode_cls_token": true})
	writeJSON(t, filepath.Join(dir, "config_sentence_transformers.json"),
		map[string]any{"prompts": map[string]string{}})
	return dir
}

// BGE-M3's outputs and scores are those of sie-server's adapter: special tokens, normalisation,
// score modes, partly given weights, and an instruction before query and texts.
func TestMultiFunctionEqualsTheReference(t *testing.T) {
	c := golden.Open(t, "m3-text")
	r := start(t, nil, nil, entry(t, "m3", m3Model(t, c), "bge_m3_flash",
		"tasks: {encode: {dense: {dim: 64}, sparse: {dim: 430}, multivector: {dim: 64}}, score: {}}"))
	texts := readTexts[string](t, "m3-text")
	counts, columns, cu := c.Int32("counts"), c.Int32("columns"), c.Int32("cu")
	weights, _ := c.Float32("weights")
	for prefix, options := range map[string]map[string]any{"": nil, "raw_": {"normalize": false}} {
		res, err := r.Encode(t.Context(), &Request{
			Model:       "m3",
			Texts:       texts,
			OutputTypes: []string{"dense", "sparse", "multivector"},
			Options:     options,
		})
		if err != nil {
			t.Fatal(err)
		}
		dense, _ := c.Float32(prefix + "dense")
		vectors, _ := c.Float32(prefix + "vectors")
		at := 0
		for i := range texts {
			if d := golden.Compare(floats(res.Rows[i]), dense[64*i:64*(i+1)]); d.MaxAbs > 1e-5 {
				t.Errorf("%sdense, text %d: %v", prefix, i, d)
			}
			if d := golden.Compare(floats(res.Multi[i].Data), vectors[64*cu[i]:64*cu[i+1]]); d.MaxAbs > 1e-5 {
				t.Errorf("%svectors, text %d: %d rows, want %d: %v",
					prefix, i, res.Multi[i].Rows, cu[i+1]-cu[i], d)
			}
			end := at + int(counts[i])
			if got := ints(res.Sparse[i].Columns); !slices.Equal(got, columns[at:end]) {
				t.Errorf("text %d: columns %v, want %v", i, got, columns[at:end])
			} else if d := golden.Compare(floats(res.Sparse[i].Values), weights[at:end]); d.MaxAbs > 1e-5 {
				t.Errorf("weights, text %d: %v", i, d)
			}
			at = end
		}
	}
	var scores []struct {
		Options     map[string]any
		Instruction *string
	}
	raw, err := json.Marshal(c.Notes["scores"])
	if err == nil {
		err = json.Unmarshal(raw, &scores)
	}
	if err != nil || len(scores) < 8 {
		t.Fatal(len(scores), err)
	}
	for n, s := range scores {
		res, err := r.Score(t.Context(), &ScoreRequest{
			Model: "m3", Query: texts[0], Texts: texts, Instruction: s.Instruction, Options: s.Options,
		})
		if err != nil {
			t.Fatal(err)
		}
		want, _ := c.Float32(fmt.Sprintf("scores.%d", n))
		for i, got := range res.Scores {
			if math.Abs(got-float64(want[i])) > 2e-5 {
				t.Errorf("%v, text %d: %v, want %v", s, i, got, want[i])
			}
		}
	}
}

// Special tokens have no weight, and a repeated token keeps its largest weight.
func TestLexicalRows(t *testing.T) {
	tok, err := tokenizer.Load(golden.Open(t, "splade-bert").Dir)
	if err != nil {
		t.Skip(err)
	}
	defer tok.Close()
	special := tok.Special()
	id, _ := tok.TokenToID("b")
	columns, weights := task.Lexical(tok, []int32{special.CLS, id, special.UNK, id, special.SEP, special.PAD},
		[]float32{9, 1, 9, 2, 9, 9})
	if !slices.Equal(columns, []int32{id}) || !slices.Equal(weights, []float32{2}) {
		t.Errorf("of [CLS] b [UNK] b [SEP] [PAD] stays %v, %v, want b alone with its larger weight",
			columns, weights)
	}
}
