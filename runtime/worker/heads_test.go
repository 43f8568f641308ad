package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
)

// withTokenizer copies a golden model into a directory of its own with the tokenizer of another, and edits its config.json.
func withTokenizer(t *testing.T, model, tokenizer string, config map[string]any) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(golden.Open(t, model).Dir)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		data, err := os.ReadFile(filepath.Join(golden.Open(t, tokenizer).Dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if config != nil {
		path := filepath.Join(dir, "config.json")
		data, err := os.ReadFile(path)
		var all map[string]any
		if err == nil {
			err = json.Unmarshal(data, &all)
		}
		for k, v := range config {
			all[k] = v
		}
		if err == nil {
			data, err = json.Marshal(all)
		}
		if err == nil {
			err = os.WriteFile(path, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// entry is a model file over dir; rest is what follows the weights.
func entry(t *testing.T, id, dir, adapter, rest string) *catalog.Model {
	t.Helper()
	m, warn, err := catalog.ParseModel("test.yaml", fmt.Appendf(nil, `sie_id: %s
weights_path: %s
max_sequence_length: 60
%s
profiles:
  default:
    adapter_path: "sie_server.adapters.%s:X"
    max_batch_tokens: 4096
`, id, dir, rest, adapter))
	if err != nil || len(warn) > 0 {
		t.Fatal(err, warn)
	}
	return m
}

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

// Cross-encoders score as sentence-transformers' CrossEncoder does, with the activation of their configuration, any number of
// texts in one request.
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

// SPLADE gives SparseEncoder's weights, columns ascending, also where the first try had too little room.
func TestSparse(t *testing.T) {
	c := golden.Open(t, "splade-bert")
	r := start(t, nil, nil, entry(t, "sp", c.Dir, "splade_flash", "tasks: {encode: {sparse: {dim: 101}}}"))
	texts := readTexts[string](t, "splade-bert")
	want, shape := c.Float32("splade")
	for _, room := range []int32{firstRoom, 1} {
		if room == 1 {
			r.models.Each(func(_ string, m *model) {
				for _, v := range m.variants {
					v.room.Store(1)
				}
			})
		}
		res, err := r.Encode(t.Context(), &Request{Model: "sp", Texts: texts, OutputTypes: []string{"sparse"}})
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
				t.Errorf("room %d, text %d: %v", room, i, d)
			}
		}
		if res.SparseDims != 101 || res.Tokens == 0 {
			t.Errorf("%d dims, %d tokens", res.SparseDims, res.Tokens)
		}
	}
}

// Queries of a model with a table of token weights need no forward pass.
func TestSparseQueriesByTable(t *testing.T) {
	dir := withTokenizer(t, "splade-bert", "splade-bert", nil)
	if err := os.WriteFile(filepath.Join(dir, "idf.json"), []byte(`{"b": 0.5, "c": 3.25, "[CLS]": 0.125, "nosuchtoken": 9, "a": 0}`), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, nil, nil, entry(t, "idf", dir, "splade_flash", "tasks: {encode: {sparse: {dim: 101}}}"))
	yes := true
	res, err := r.Encode(t.Context(), &Request{Model: "idf", Texts: []string{"b c b a"}, OutputTypes: []string{"sparse"}, IsQuery: &yes, OutputDType: "float16"})
	if err != nil {
		t.Fatal(err)
	}
	var id = func(token string) (n int32) {
		r.models.Each(func(_ string, m *model) { n, _ = m.tokenizer.TokenToID(token) })
		return n
	}
	want := map[int32]uint16{id("[CLS]"): 0x3000, id("c"): 0x4280, id("b"): 0x3800}
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

// BGE-M3's three outputs come from one pass, and its scores are made of them.
func TestMultiFunction(t *testing.T) {
	c := golden.Open(t, "bge-m3")
	dir := withTokenizer(t, "bge-m3", "st-xlmr-mean-torch", map[string]any{})
	shrink(t, dir, 111)
	r := start(t, nil, nil, entry(t, "m3", dir, "bge_m3_flash", "tasks: {encode: {dense: {dim: 64}, sparse: {dim: 111}, multivector: {dim: 64}}, score: {}}"))
	ids, cu := c.Int32("ids"), c.Int32("cu_seqlens")
	var tokens [][]int32
	for i := range len(cu) - 1 {
		tokens = append(tokens, ids[cu[i]:cu[i+1]])
	}
	res, err := r.Encode(t.Context(), &Request{Model: "m3", Tokens: tokens, OutputTypes: []string{"dense", "sparse", "multivector"}})
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
		if d := golden.Compare(floats(res.Multi[i].Data), want); res.Multi[i].Rows != len(list)-1 || d.MaxAbs > 1e-5 {
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

// shrink cuts the vocabulary of a unigram tokenizer to n entries.
func shrink(t *testing.T, dir string, n int) {
	t.Helper()
	path := filepath.Join(dir, "tokenizer.json")
	data, err := os.ReadFile(path)
	var all map[string]any
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	model := all["model"].(map[string]any)
	model["vocab"] = model["vocab"].([]any)[:n-1]
	all["added_tokens"] = slices.DeleteFunc(all["added_tokens"].([]any), func(a any) bool { return a.(map[string]any)["id"].(float64) >= float64(n-1) })
	if data, err = json.Marshal(all); err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
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

// m3Scores compares each score mode with what the encodings of query and text give.
func m3Scores(t *testing.T, r *rig) {
	query, texts := "the cat sat", []string{"a cat on the mat", "zebra", "the the the"}
	all := &Request{Model: "m3", Texts: append([]string{query}, texts...), OutputTypes: []string{"dense", "sparse", "multivector"}}
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
	for mode, weights := range map[string]map[string]float64{"": {"dense": 1}, "dense": {"dense": 1}, "sparse": {"sparse": 1}, "colbert": {"colbert": 1},
		"hybrid": {"dense": 0.4, "sparse": 0.2, "colbert": 0.4}} {
		req := &ScoreRequest{Model: "m3", Query: query, Texts: texts, Options: map[string]any{}}
		if mode != "" {
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

// maxsim is ColBERT's score of two lists of unit vectors.
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

const colbertTasks = "tasks: {encode: {multivector: {dim: 24}}, score: {}}"

// lateModel is a ColBERT model with those load-time options.
func lateModel(t *testing.T, id, options string) *catalog.Model {
	t.Helper()
	dir := withTokenizer(t, "colbert-linear", "st-mean", nil)
	return loadtime(t, id, dir, "colbert", colbertTasks, options)
}

// loadtime is entry with load-time options, in YAML's short form.
func loadtime(t *testing.T, id, dir, adapter, tasks, options string) *catalog.Model {
	t.Helper()
	m, warn, err := catalog.ParseModel("test.yaml", fmt.Appendf(nil, `sie_id: %s
weights_path: %s
max_sequence_length: 60
%s
profiles:
  default: {adapter_path: "sie_server.adapters.%s:X", max_batch_tokens: 4096, adapter_options: {loadtime: %s}}
`, id, dir, tasks, adapter, options))
	if err != nil || len(warn) > 0 {
		t.Fatal(err, warn)
	}
	return m
}

// Queries are filled up, documents lose their punctuation, and a score is the MaxSim of what encode gives.
func TestColBERT(t *testing.T) {
	r := start(t, nil, nil, lateModel(t, "hidden", "{query_max_length: 12}"),
		lateModel(t, "attended", "{query_max_length: 12, attend_to_expansion_tokens: true}"), lateModel(t, "plain", "{query_max_length: 12, query_expansion: false}"))
	yes := true
	query, texts := "the cat sat", []string{"a cat, on the mat!", "zebra quiz", "what is the tallest mountain"}
	vectors := func(model string, query bool, texts ...string) []Matrix {
		req := &Request{Model: model, Texts: texts, OutputTypes: []string{"multivector"}}
		if query {
			req.IsQuery = &yes
		}
		res, err := r.Encode(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return res.Multi
	}
	plain := vectors("plain", true, query)[0]
	for _, model := range []string{"hidden", "attended"} {
		q := vectors(model, true, query)[0]
		if q.Rows != 12 || plain.Rows >= 12 {
			t.Errorf("%s: a query of %d rows, plain %d", model, q.Rows, plain.Rows)
		}
		same := string(q.Data[:len(plain.Data)]) == string(plain.Data)
		if same != (model == "hidden") {
			t.Errorf("%s: its words have the vectors of a query without filling: %v", model, same)
		}
	}
	docs := vectors("hidden", false, texts...)
	whole := vectors("hidden", false, "a cat on the mat")[0]
	if docs[0].Rows != whole.Rows {
		t.Errorf("a text with punctuation has %d rows, without it %d", docs[0].Rows, whole.Rows)
	}
	res, err := r.Score(t.Context(), &ScoreRequest{Model: "hidden", Query: query, Texts: slices.Repeat(texts, 200)})
	if err != nil {
		t.Fatal(err)
	}
	q := vectors("hidden", true, query)[0]
	for i, got := range res.Scores {
		if want := maxsim(q, docs[i%3]); math.Abs(got-want) > 1e-4 {
			t.Fatalf("text %d: %v, want %v", i, got, want)
		}
	}
}

// A marker that is a token goes behind [CLS]; one that is none is text before the text.
func TestMarkers(t *testing.T) {
	r := start(t, nil, nil, lateModel(t, "token", `{query_expansion: false, query_prefix: "[MASK] ", doc_prefix: "[UNK]"}`),
		lateModel(t, "text", `{query_expansion: false, query_prefix: "ask ", doc_prefix: "say "}`), lateModel(t, "none", "{query_expansion: false}"))
	yes := true
	rows := func(model, text string, query *bool) (n int, data string) {
		res, err := r.Encode(t.Context(), &Request{Model: model, Texts: []string{text}, OutputTypes: []string{"multivector"}, IsQuery: query})
		if err != nil {
			t.Fatal(err)
		}
		return res.Multi[0].Rows, string(res.Multi[0].Data)
	}
	plain, _ := rows("none", "the cat", nil)
	if n, _ := rows("token", "the cat", nil); n != plain+1 {
		t.Errorf("a marker that is a token: %d rows, without it %d", n, plain)
	}
	_, asked := rows("text", "the cat", &yes)
	_, said := rows("text", "the cat", nil)
	_, ask := rows("none", "ask the cat", &yes)
	_, say := rows("none", "say the cat", nil)
	if asked != ask || said != say || ask == say {
		t.Error("a marker that is no token does not stand before the text")
	}
	res, err := r.Score(t.Context(), &ScoreRequest{Model: "text", Query: "the cat", Texts: []string{"the cat"}})
	want, err2 := r.Score(t.Context(), &ScoreRequest{Model: "none", Query: "ask the cat", Texts: []string{"say the cat"}})
	if err != nil || err2 != nil || res.Scores[0] != want.Scores[0] {
		t.Errorf("scores %v and %v, %v, %v", res, want, err, err2)
	}
}

// A model that folds gives dense rows by MUVERA and sparse ones by SMVE, for queries and documents apart, alone and in company
// alike; the dot product of a MUVERA pair stands for their MaxSim.
func TestFolding(t *testing.T) {
	r := start(t, nil, nil, lateModel(t, "fold", `{query_expansion: false, smve_config: {width: 256, k: 4}, `+
		`muvera_config: {num_repetitions: 8, num_simhash_projections: 3, projection_dim: 8, final_projection_dim: null}}`))
	yes := true
	req := &Request{Model: "fold", Texts: words(9), OutputTypes: []string{"dense", "sparse", "multivector"}, Options: map[string]any{"muvera": map[string]any{}, "smve": map[string]any{}}}
	docs, err := r.Encode(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if docs.Dims != 8*8*8 || docs.SparseDims != 256 || docs.TokenDims != 24 {
		t.Errorf("%d, %d and %d dims", docs.Dims, docs.SparseDims, docs.TokenDims)
	}
	req.IsQuery = &yes
	queries, err := r.Encode(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	req.Texts = req.Texts[4:5]
	one, err := r.Encode(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if string(one.Rows[0]) != string(queries.Rows[4]) || string(one.Sparse[0].Columns) != string(queries.Sparse[4].Columns) {
		t.Error("what is folded depends on the company")
	}
	for i, row := range docs.Sparse {
		if n := len(row.Columns) / 4; n == 0 || n > 4*docs.Multi[i].Rows || len(row.Values) != len(row.Columns) {
			t.Errorf("text %d: %d columns of %d rows", i, n, docs.Multi[i].Rows)
		}
	}
	for _, bad := range []struct {
		options map[string]any
		want    string
	}{{map[string]any{"muvera": nil}, "does not support output types"}} {
		_, err := r.Encode(t.Context(), &Request{Model: "fold", Texts: words(1), OutputTypes: []string{"dense"}, Options: bad.options})
		if e := errs.As(err); e == nil || e.Status != 400 || !strings.Contains(e.Message, bad.want) {
			t.Errorf("%v: %v", bad.options, err)
		}
	}
}

// Zero-shot labels compete by their entailment logits, or stand alone; a model without such a label says so.
func TestZeroShot(t *testing.T) {
	labels := map[string]any{"id2label": map[string]string{"0": "contradiction", "1": "neutral", "2": "ENTAILMENT"}, "label2id": map[string]int{"contradiction": 0, "neutral": 1, "ENTAILMENT": 2}}
	dir := withTokenizer(t, "classify-bert", "st-mean", labels)
	r := start(t, nil, nil, entry(t, "nli", dir, "nli_classification_flash", "tasks: {extract: {}}"),
		entry(t, "moods", withTokenizer(t, "classify-bert", "st-mean", nil), "nli_classification", "tasks: {extract: {}}"))
	texts, names := []string{"the cat sat", "zebra quiz 42"}, []string{"animals", "maths", "sea"}
	var pairs [][2]string
	for _, text := range texts {
		for _, l := range names {
			pairs = append(pairs, [2]string{text, "I say " + l + "!"})
		}
	}
	raw, err := r.Classify(t.Context(), &ClassifyRequest{Model: "nli", Pairs: pairs, RawScores: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, multi := range []bool{false, true} {
		res, err := r.Extract(t.Context(), &ExtractRequest{Model: "nli", Texts: texts, Labels: names,
			Options: map[string]any{"hypothesis_template": "I say {}!", "multi_label": multi}})
		if err != nil {
			t.Fatal(err)
		}
		for i, item := range res.Items {
			z := []float64{raw.Scores[3*i][2], raw.Scores[3*i+1][2], raw.Scores[3*i+2][2]}
			want := softmax(z)
			if multi {
				want = sigmoids(z)
			}
			for j, c := range item.Classes {
				if j > 0 && c.Score > item.Classes[j-1].Score {
					t.Error("the labels are not in order")
				}
				if math.Abs(c.Score-want[slices.Index(names, c.Label)]) > 1e-12 {
					t.Errorf("multi %v, text %d, %s: %v, want %v", multi, i, c.Label, c.Score, want)
				}
			}
			if len(item.Classes) != 3 {
				t.Errorf("%d classes", len(item.Classes))
			}
		}
	}
	for model, c := range map[string]struct {
		labels  []string
		options map[string]any
		want    string
	}{"moods": {names, nil, "has no label of entailment among joy, anger, fear"}, "nli": {nil, nil, "requires labels"},
		"nli ": {names, map[string]any{"hypothesis_template": "no place"}, "must have {} once"}} {
		_, err := r.Extract(t.Context(), &ExtractRequest{Model: strings.TrimSpace(model), Texts: texts, Labels: c.labels, Options: c.options})
		if e := errs.As(err); e == nil || e.Status != 400 || !strings.Contains(e.Message, c.want) {
			t.Errorf("%s: %v, want %q", model, err, c.want)
		}
	}
}

// Heads with labels of their own: classes of texts, and entities by code points.
func TestOwnLabels(t *testing.T) {
	r := start(t, nil, nil, entry(t, "moods", withTokenizer(t, "classify-bert", "st-mean", nil), "sequence_classification", "tasks: {extract: {}}"),
		entry(t, "names", withTokenizer(t, "tag-bert", "st-mean", nil), "token_classification", "tasks: {extract: {}}"))
	texts := []string{"éàü the cat sat on the mat", "zebra quiz 42", ""}
	res, err := r.Extract(t.Context(), &ExtractRequest{Model: "moods", Texts: texts})
	if err != nil {
		t.Fatal(err)
	}
	for i, item := range res.Items {
		sum := 0.0
		for _, c := range item.Classes {
			sum += c.Score
		}
		if len(item.Classes) != 3 || math.Abs(sum-1) > 1e-9 {
			t.Errorf("text %d: %v", i, item.Classes)
		}
	}
	if res, err = r.Extract(t.Context(), &ExtractRequest{Model: "names", Texts: texts}); err != nil {
		t.Fatal(err)
	}
	found := 0
	for i, item := range res.Items {
		for _, e := range item.Entities {
			found++
			if text := string([]rune(texts[i])[e.Start:e.End]); text != e.Text || e.Label == "O" || strings.Contains(e.Label, "-") || e.Score <= 0 || e.Score > 1 {
				t.Errorf("text %d: %+v, where the text has %q", i, e, text)
			}
		}
	}
	if found == 0 {
		t.Error("no entity in any text: the test proves nothing")
	}
}

// An adapter is loaded in the background and told to come later; then each request has its own, in one batch, as alone.
func TestLoRA(t *testing.T) {
	dir := withTokenizer(t, "lora-bert", "st-mean", nil)
	adapters := filepath.Join(golden.Open(t, "lora-bert").Dir, "adapters")
	m := loadtime(t, "lo", dir, "bert_flash", "tasks: {encode: {dense: {dim: 64}}}", fmt.Sprintf("{lora_paths: {four: %s/rank4, other: %s/rslora, third: %s/patterns}}", adapters, adapters, adapters))
	r := start(t, func(o *Options) { o.MaxLoRAs = 2 }, nil, m)
	with := func(lora string) *Request {
		req := &Request{Model: "lo", Texts: []string{"the cat sat on the mat"}, Options: map[string]any{}}
		if lora != "" {
			req.Options["lora_id"] = lora
		}
		return req
	}
	row := func(lora string) string {
		t.Helper()
		deadline := time.Now().Add(20 * time.Second)
		for {
			res, err := r.Encode(t.Context(), with(lora))
			if err == nil {
				return string(res.Rows[0])
			}
			if e := errs.As(err); e.Code != errs.LoRALoading || e.Status != 503 || e.RetryAfter != time.Second || time.Now().After(deadline) {
				t.Fatalf("%q: %v (retry after %v)", lora, err, e.RetryAfter)
			}
			time.Sleep(2 * time.Millisecond)
		}
	}
	plain := row("")
	e := r.refused(t.Context(), with("third"), errs.LoRALoading, 503) // four and other are there: one must go first
	if !strings.Contains(e.Message, "third") {
		t.Error(e.Message)
	}
	seen := map[string]string{"": plain}
	for _, lora := range []string{"four", "other", "third", "four", "other"} { // three adapters, room for two
		got := row(lora)
		if was, ok := seen[lora]; ok && was != got {
			t.Errorf("%s gives another row than before it was unloaded", lora)
		}
		seen[lora] = got
	}
	if len(seen) != 4 || seen["four"] == plain || seen["other"] == seen["four"] || seen["third"] == plain {
		t.Error("adapters change nothing")
	}
	var all sync.WaitGroup
	for i := range 60 {
		lora := []string{"", "four", "other"}[i%3]
		all.Go(func() {
			if res, err := r.Encode(t.Context(), with(lora)); err == nil && string(res.Rows[0]) != seen[lora] {
				t.Errorf("%q: in company another row", lora)
			}
		})
	}
	all.Wait()
	for lora, want := range map[string]string{"/etc": "must name a hub repository", "../x": "must name a hub repository"} {
		if e := r.refused(t.Context(), with(lora), errs.InvalidInput, 400); !strings.Contains(e.Message, want) {
			t.Errorf("%s: %s", lora, e.Message)
		}
	}
	refusedAdapter(t, r, with("acme/nowhere"))
}

// refusedAdapter asks for an adapter that cannot be had: first it is being loaded, then the failure is told once.
func refusedAdapter(t *testing.T, r *rig, req *Request) {
	for {
		_, err := r.Encode(context.Background(), req)
		e := errs.As(err)
		if e.Code == errs.LoRALoading {
			time.Sleep(time.Millisecond)
			continue
		}
		if e.Status != 500 || !strings.Contains(e.Message, "Failed to load LoRA 'acme/nowhere'") {
			t.Errorf("%v", err)
		}
		return
	}
}
