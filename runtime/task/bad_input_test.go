package task_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
)

// embedders are golden models that embed, one of each architecture that has a tokenizer beside it.
var embedders = map[string]string{
	"bert": "st-mean", "xlm-roberta": "st-xlmr-mean-torch", "albert": "st-albert-mean",
	"electra": "st-electra-cls", "modernbert": "text-modernbert-embed", "qwen2": "st-qwen2-dense",
	"qwen3": "st-qwen3-last", "gemma": "st-gemma", "gte": "text-gte-embed", "jina-bert": "text-jina-embed",
	"nomic": "text-nomic", "mpnet": "text-mpnet-embed", "jina-xlm-roberta": "tasks-jxlmr",
}

// Every architecture answers an empty text, refuses one that is too long where a request forbids
// cutting, and keeps ten thousand texts in their order.
func TestBadInputsOfEveryArchitecture(t *testing.T) {
	var all []*catalog.Model
	for name, of := range embedders {
		all = append(all, adHoc(t, "test/"+name, golden.Open(t, of).Dir))
	}
	r := start(t, nil, nil, all...)
	long := strings.Repeat("the cat sat on the mat. ", 2000)
	texts := make([]string, 10_000)
	for i := range texts {
		texts[i] = []string{"a", "the cat", "", "mat sat"}[i%4]
	}
	for name := range embedders {
		t.Run(name, func(t *testing.T) {
			id := "test/" + name
			res, err := r.Encode(t.Context(), &Request{Model: id, Texts: []string{"", "the cat"}})
			if err != nil {
				t.Fatal(err)
			}
			for i, row := range res.Rows {
				sum := 0.0
				for _, x := range floats(row) {
					sum += float64(x) * float64(x)
				}
				if !(sum > 0) || math.IsInf(sum, 0) {
					t.Errorf("text %d: the squares of its vector add up to %v", i, sum)
				}
			}
			_, err = r.Encode(t.Context(), &Request{Model: id, Texts: []string{"a", long},
				Options: map[string]any{"overflow_policy": "error"}})
			if e := errs.As(err); e == nil || e.Code != errs.InputTooLong || e.Param != "items[1]" ||
				!strings.Contains(e.Message, "tokens, the limit of model '"+id+"'") {
				t.Errorf("too long: %v", err)
			}
			many, err := r.Encode(t.Context(), &Request{Model: id, Texts: texts})
			if err != nil || len(many.Rows) != len(texts) {
				t.Fatalf("%d rows of %d: %v", len(many.Rows), len(texts), err)
			}
			for i, row := range many.Rows {
				if !slices.Equal(row, many.Rows[i%4]) {
					t.Fatalf("row %d is not that of its text", i)
				}
			}
			if !slices.Equal(many.Rows[2], res.Rows[0]) || !slices.Equal(many.Rows[1], res.Rows[1]) {
				t.Error("a text in company has another vector")
			}
		})
	}
}

// Rerankers score an empty query and an empty document, and ten thousand documents in their order.
func TestBadInputsOfRerankers(t *testing.T) {
	r := start(t, nil, nil,
		entry(t, "test/bert", golden.Open(t, "rerank-sigmoid").Dir, "cross_encoder", "tasks: {score: {}}"),
		entry(t, "test/modernbert", golden.Open(t, "text-modernbert-rerank").Dir,
			"modernbert_flash_cross_encoder", "tasks: {score: {}}"),
		judge(t, "test/qwen3", golden.Open(t, "judge-qwen3").Dir, judgedBy, qwen3Load))
	documents := make([]string, 10_000)
	for i := range documents {
		documents[i] = []string{"a", "the cat", "mat sat"}[i%3]
	}
	for _, id := range []string{"test/bert", "test/modernbert", "test/qwen3"} {
		empty, err := r.Score(t.Context(), &ScoreRequest{Model: id, Query: "", Texts: []string{"a", ""}})
		if err != nil || math.IsNaN(empty.Scores[0]) || math.IsNaN(empty.Scores[1]) {
			t.Errorf("%s: an empty query: %+v, %v", id, empty, err)
		}
		n := len(documents)
		if id == "test/qwen3" { // its prompt is 80 tokens longer than a document
			n = 1000
		}
		res, err := r.Score(t.Context(), &ScoreRequest{Model: id, Query: "cat", Texts: documents[:n]})
		if err != nil || len(res.Scores) != n {
			t.Fatalf("%s: %d scores of %d: %v", id, len(res.Scores), n, err)
		}
		for i, s := range res.Scores {
			if s != res.Scores[i%3] {
				t.Fatalf("%s: score %d is not that of its document", id, i)
			}
		}
		if res.Scores[0] == res.Scores[1] {
			t.Errorf("%s: two documents have one score", id)
		}
	}
}

// A checkpoint with a value that is no number is refused by the name of its tensor, or of the one
// that is packed with it.
func TestWeightsThatAreNoNumbers(t *testing.T) {
	for name, of := range embedders {
		if name == "xlm-roberta" { // a torch file
			continue
		}
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(golden.Open(t, of).Dir)); err != nil {
			t.Fatal(err)
		}
		layer := spoil(t, filepath.Join(dir, "model.safetensors"))
		r := start(t, nil, nil, adHoc(t, "test/"+name, dir))
		_, err := r.Encode(t.Context(), &Request{Model: "test/" + name, Texts: []string{"a"}})
		if e := errs.As(err); e == nil || e.Status != 502 ||
			!strings.Contains(e.Message, "model.safetensors") || !strings.Contains(e.Message, layer) {
			t.Errorf("%s: %v; want a name in %s", name, err, layer)
		}
	}
}

var inBlock = regexp.MustCompile(`\.\d+\.`)

// spoil puts a NaN at the end of the largest matrix of a block, and returns the name of its layer.
func spoil(t *testing.T, path string) (layer string) {
	t.Helper()
	data, err := os.ReadFile(path)
	var header map[string]struct {
		DType   string   `json:"dtype"`
		Shape   []int    `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	n := int64(binary.LittleEndian.Uint64(data)) + 8
	if err = errors.Join(err, json.Unmarshal(data[8:n], &header)); err != nil {
		t.Fatal(err)
	}
	tensor, end, size := "", int64(0), int64(0)
	for name, x := range header {
		if inBlock.MatchString(name) && len(x.Shape) == 2 && x.Offsets[1]-x.Offsets[0] > size {
			tensor, end, size = name, n+x.Offsets[1], x.Offsets[1]-x.Offsets[0]
		}
	}
	if tensor == "" {
		t.Fatalf("no matrix in %s", path)
	}
	switch header[tensor].DType {
	case "F32":
		binary.LittleEndian.PutUint32(data[end-4:], math.Float32bits(float32(math.NaN())))
	case "BF16":
		binary.LittleEndian.PutUint16(data[end-2:], 0x7fc0)
	default:
		binary.LittleEndian.PutUint16(data[end-2:], 0x7e00)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	tensor = strings.Replace(tensor, ".parametrizations.weight.original", ".weight", 1) // jina-embeddings-v3
	parts := strings.Split(tensor, ".")
	return strings.Join(parts[:len(parts)-2], ".")
}
