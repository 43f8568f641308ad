package task_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/arch"
)

func readTexts[T any](t *testing.T, name string) (texts []T) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(golden.Open(t, name).Dir, "texts.json"))
	if err == nil {
		err = json.Unmarshal(data, &texts)
	}
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// Cross-encoders score as CrossEncoder of sentence-transformers does, with the activation of their
// configuration, for any number of texts in a request.
func TestCrossEncoders(t *testing.T) {
	for _, name := range []string{"rerank-sigmoid", "rerank-identity"} {
		c := golden.Open(t, name)
		r := start(t, nil, nil, entry(t, "ce", c.Dir, "cross_encoder", "tasks: {score: {}}"))
		want, _ := c.Float32("scores")
		for i, pair := range readTexts[[2]string](t, name) {
			texts := slices.Repeat([]string{pair[1]}, 300)
			res, err := r.Score(t.Context(), &ScoreRequest{Model: "ce", Query: pair[0], Texts: texts})
			if err != nil {
				t.Fatal(err)
			}
			for _, got := range res.Scores {
				if math.Abs(got-float64(want[i])) > 2e-6 {
					t.Fatalf("%s: pair %d scores %v, CrossEncoder %v", name, i, got, want[i])
				}
			}
			if res.ContentTokens != res.Tokens-300*3 {
				t.Errorf("%d tokens, %d of content", res.Tokens, res.ContentTokens)
			}
		}
	}
}

// SPLADE gives the weights of SparseEncoder, columns ascending, even if the first run had too
// little room.
func TestSparse(t *testing.T) {
	c := golden.Open(t, "splade-bert")
	r := start(t, nil, nil, entry(t, "sp", c.Dir, "splade_flash", "tasks: {encode: {sparse: {dim: 101}}}"))
	texts := readTexts[string](t, "splade-bert")
	want, shape := c.Float32("splade")
	for _, again := range []bool{false, true} {
		if again {
			v, err := r.Copy("sp").Variant(arch.Want{Give: arch.Give(arch.OutSparse)})
			if err != nil {
				t.Fatal(err)
			}
			v.Room.Store(1)
		}
		res, err := r.Encode(t.Context(),
			&Request{Model: "sp", Texts: texts, OutputTypes: []string{"sparse"}})
		if err != nil {
			t.Fatal(err)
		}
		for i, row := range res.Sparse {
			dense := make([]float32, shape[1])
			columns := ints(row.Columns)
			if !slices.IsSorted(columns) {
				t.Errorf("text %d: columns %v do not ascend", i, columns)
			}
			for j, v := range floats(row.Values) {
				dense[columns[j]] = v
				if v <= 0 {
					t.Errorf("text %d: weight %v", i, v)
				}
			}
			if d := golden.Compare(dense, want[i*shape[1]:(i+1)*shape[1]]); d.MaxAbs > 1e-5 {
				t.Errorf("again %v, text %d: %v", again, i, d)
			}
		}
		if res.SparseDims != 101 || res.Tokens == 0 {
			t.Errorf("%d dims, %d tokens", res.SparseDims, res.Tokens)
		}
	}
}

// A model with a table of token weights answers queries without a forward pass.
func TestSparseQueriesByTable(t *testing.T) {
	dir := withTokenizer(t, "splade-bert", "splade-bert", nil)
	if err := os.WriteFile(filepath.Join(dir, "idf.json"),
		[]byte(`{"b": 0.5, "c": 3.25, "[CLS]": 0.125, "nosuchtoken": 9, "a": 0}`), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, nil, nil, entry(t, "idf", dir, "splade_flash", "tasks: {encode: {sparse: {dim: 101}}}"))
	yes := true
	res, err := r.Encode(t.Context(), &Request{
		Model:       "idf",
		Texts:       []string{"b c b a"},
		OutputTypes: []string{"sparse"},
		IsQuery:     &yes,
		OutputDType: "float16",
	})
	if err != nil {
		t.Fatal(err)
	}
	var id = func(token string) (n int32) {
		n, _ = r.Copy("idf").Tokenizer().TokenToID(token)
		return n
	}
	want := map[int32]uint16{id("[CLS]"): 0x3000, id("c"): 0x4280, id("b"): 0x3800}
	ids := []int32{id("[CLS]"), id("b"), id("c"), id("b"), id("[SEP]")} // the same query as token ids
	byIDs, err := r.Encode(t.Context(), &Request{
		Model:       "idf",
		Tokens:      [][]int32{ids},
		OutputTypes: []string{"sparse"},
		IsQuery:     &yes,
		OutputDType: "float16",
	})
	if err != nil || !slices.Equal(ints(byIDs.Sparse[0].Columns), ints(res.Sparse[0].Columns)) ||
		byIDs.Tokens != len(ids) {
		t.Errorf("token ids: %+v, %v", byIDs, err)
	}
	// the model's vocabulary is larger than the tokenizer's, as padded ones are
	last := int32(r.Copy("idf").Weights().Vocab) - 1
	if n := r.Copy("idf").Tokenizer().VocabSize(); int(last) < n {
		t.Fatalf("a vocabulary of %d and a tokenizer of %d", last+1, n)
	}
	beyond, err := r.Encode(t.Context(), &Request{Model: "idf", Tokens: [][]int32{{last, id("c")}},
		OutputTypes: []string{"sparse"}, IsQuery: &yes})
	if err != nil || !slices.Equal(ints(beyond.Sparse[0].Columns), []int32{id("c")}) {
		t.Errorf("an id that only the model has: %+v, %v", beyond, err)
	}
	columns := ints(res.Sparse[0].Columns)
	if len(columns) != len(want) || !slices.IsSorted(columns) {
		t.Fatalf("columns %v, want those of %v", columns, want)
	}
	for i, c := range columns {
		if got := uint16(res.Sparse[0].Values[2*i]) | uint16(res.Sparse[0].Values[2*i+1])<<8; got != want[c] {
			t.Errorf("column %d: %#x, want %#x", c, got, want[c])
		}
	}
}

// One pass gives BGE-M3's three outputs, and its scores are made of them.
func TestMultiFunction(t *testing.T) {
	c := golden.Open(t, "bge-m3")
	dir := withTokenizer(t, "bge-m3", "st-xlmr-mean-torch", map[string]any{})
	shrink(t, dir, 111)
	r := start(t, nil, nil, entry(t, "m3", dir, "bge_m3_flash",
		"tasks: {encode: {dense: {dim: 64}, sparse: {dim: 111}, multivector: {dim: 64}}, score: {}}"))
	ids, cu := c.Int32("ids"), c.Int32("cu_seqlens")
	var tokens [][]int32
	for i := range len(cu) - 1 {
		tokens = append(tokens, ids[cu[i]:cu[i+1]])
	}
	res, err := r.Encode(t.Context(),
		&Request{Model: "m3", Tokens: tokens, OutputTypes: []string{"dense", "sparse", "multivector"}})
	if err != nil {
		t.Fatal(err)
	}
	dense, shape := c.Float32("dense")
	weights, _ := c.Float32("token_weights")
	vectors, wide := c.Float32("vectors")
	for i, list := range tokens {
		if len(list) > 48 {
			t.Fatalf("golden text %d has %d tokens", i, len(list))
		}
		if d := golden.Compare(floats(res.Rows[i]), unit(dense[i*shape[1]:(i+1)*shape[1]])); d.MaxAbs > 1e-5 {
			t.Errorf("dense row %d: %v", i, d)
		}
		var want []float32
		for j := int(cu[i]) + 1; j < int(cu[i+1]); j++ {
			want = append(want, unit(vectors[j*wide[1]:(j+1)*wide[1]])...)
		}
		if d := golden.Compare(floats(res.Multi[i].Data), want); res.Multi[i].Rows != len(list)-1 ||
			d.MaxAbs > 1e-5 {
			t.Errorf("token rows of text %d: %d, %v", i, res.Multi[i].Rows, d)
		}
		best := map[int32]float32{}
		for j, id := range list {
			if w := weights[int(cu[i])+j]; id > 3 && w > best[id] {
				best[id] = w
			}
		}
		columns := ints(res.Sparse[i].Columns)
		for j, w := range floats(res.Sparse[i].Values) {
			if math.Abs(float64(w-best[columns[j]])) > 1e-5 {
				t.Errorf("text %d, column %d: %v, want %v", i, columns[j], w, best[columns[j]])
			}
		}
		if len(columns) != len(best) {
			t.Errorf("text %d: %d columns, want %d", i, len(columns), len(best))
		}
	}
	m3Scores(t, r)
}

func unit(v []float32) []float32 {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = float32(float64(x) / math.Sqrt(sum))
	}
	return out
}

// m3Scores compares each score mode with the scores made of the encodings of query and text.
func m3Scores(t *testing.T, r *rig) {
	query, texts := "the cat sat", []string{"a cat on the mat", "zebra", "the the the", "the cat sat"}
	all := &Request{
		Model:       "m3",
		Texts:       append([]string{query}, texts...),
		OutputTypes: []string{"dense", "sparse", "multivector"},
	}
	enc, err := r.Encode(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	parts := func(i int) map[string]float64 {
		out := map[string]float64{}
		for j, x := range floats(enc.Rows[i]) {
			out["dense"] += float64(x) * float64(floats(enc.Rows[0])[j])
		}
		q := sparseMap(enc.Sparse[0])
		for c, w := range sparseMap(enc.Sparse[i]) {
			out["sparse"] += float64(w) * float64(q[c])
		}
		out["colbert"] = maxsim(enc.Multi[0], enc.Multi[i]) / float64(enc.Multi[0].Rows)
		return out
	}
	if parts(4)["sparse"] == 0 {
		t.Error("no token of the query has a weight: the test proves too little")
	}
	for mode, weights := range map[string]map[string]float64{
		"":         {"dense": 1},
		"dense":    {"dense": 1},
		"sparse":   {"sparse": 1},
		"colbert":  {"colbert": 1},
		"hybrid":   {"dense": 0.4, "sparse": 0.2, "colbert": 0.4},
		"weighted": {"dense": 0.5, "sparse": 0.2, "colbert": 3},
	} {
		req := &ScoreRequest{Model: "m3", Query: query, Texts: texts, Options: map[string]any{}}
		switch mode {
		case "":
		case "weighted":
			req.Options = map[string]any{
				"score_mode": "hybrid", "score_weights": map[string]any{"dense": 0.5, "colbert": 3.0},
			}
		default:
			req.Options["score_mode"] = mode
		}
		res, err := r.Score(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for i, got := range res.Scores {
			want := 0.0
			for part, w := range weights {
				want += w * parts(i + 1)[part]
			}
			if math.Abs(got-want) > 1e-5 {
				t.Errorf("mode %q, text %d: %v, want %v", mode, i, got, want)
			}
		}
	}
}

// maxsim returns ColBERT's score of two lists of unit vectors.
func maxsim(q, d Matrix) (sum float64) {
	a, b := floats(q.Data), floats(d.Data)
	c := len(a) / q.Rows
	for i := range q.Rows {
		best := math.Inf(-1)
		for j := range d.Rows {
			dot := 0.0
			for k := range c {
				dot += float64(a[i*c+k]) * float64(b[j*c+k])
			}
			best = max(best, dot)
		}
		sum += best
	}
	return sum
}
