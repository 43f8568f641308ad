package task_test

import (
	"bytes"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/task"
	"github.com/sie-engine/sie/runtime/testmodels"
)

// Models whose weights have a row that gives no finite sums.
var (
	poisonedIn = testmodels.Poisoned
	poison     = testmodels.Poison
)

// poisoned is poisonedIn for the embedding of a token.
func poisoned(t *testing.T, model string, token int) string {
	return poisonedIn(t, model, "word", token)
}

// The output types that a client may ask for (params.output_dtype).
var dtypes = []string{"float32", "float16", "int8", "uint8", "binary", "ubinary"}

// The poisoned token, of vocabularies of 101 tokens, and the poisoned position.
const spoilt, spoiltPosition = 60, 26

// spoiltLists returns the token ids of n texts. Only text bad holds the poisoned token, and only it
// reaches the poisoned position; bad < 0: no text does.
func spoiltLists(n, bad int) [][]int32 {
	lists := make([][]int32, n)
	for i := range lists {
		tokens := 3 + 4*i%20
		if i == bad {
			tokens = 30
		}
		for j := range tokens {
			lists[i] = append(lists[i], int32(2+(7*i+j)%40))
		}
	}
	if bad >= 0 {
		lists[bad][13] = spoilt
	}
	return lists
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// isNonFinite reports whether err is the error of one item with non-finite results. The error has
// the number of the item at place; a query is none.
func isNonFinite(err error, model, place string) bool {
	e, item := errs.As(err), -1
	if _, number, ok := strings.Cut(place, "["); ok {
		item, _ = strconv.Atoi(strings.TrimSuffix(number, "]"))
	}
	return e != nil && (e.Item == nil) == (item < 0) && (item < 0 || *e.Item == item) &&
		e.Code == errs.InferenceError && e.Status == 500 && e.Param == place &&
		e.Message == "Model '"+model+"' produced non-finite values (NaN or infinity) for '"+place+"'"
}

// A text with a non-finite result fails its request in every precision, output and element type:
// bytes, bits and sparse rows would otherwise look like valid ones. Other requests in its batch are
// answered as usual.
func TestNonFiniteVectors(t *testing.T) {
	late := withTokenizer(t, "colbert-linear", "st-mean", nil)
	poison(t, late, "word", spoilt)
	for _, precision := range []string{"fp32", "int8"} {
		r := start(t, func(o *Options) { o.Precision = precision }, nil,
			adHoc(t, "mean", poisoned(t, "st-mean", spoilt)),
			adHoc(t, "cls", poisoned(t, "st-cls-normalize", spoilt)),
			adHoc(t, "dense", poisoned(t, "st-mean-dense-tanh-normalize-prompts", spoilt)),
			entry(t, "sparse", poisonedIn(t, "splade-bert", "position", spoiltPosition), "splade_flash",
				"tasks: {encode: {sparse: {dim: 101}}}"), loadtime(t, "late", late, "colbert", colbertTasks,
				"{query_expansion: false, smve_config: {width: 64, k: 3}, "+
					"muvera_config: {num_repetitions: 3, num_simhash_projections: 2}}"))
		fold := map[string]any{"muvera": map[string]any{}, "smve": map[string]any{}}
		for _, c := range []struct {
			model   string
			outputs []string
			options map[string]any
		}{
			{"mean", []string{"dense"}, nil}, {"cls", []string{"dense"}, nil},
			{"dense", []string{"dense"}, nil},
			{"sparse", []string{"sparse"}, nil}, {"late", []string{"multivector"}, nil},
			{"late", []string{"dense"}, fold}, {"late", []string{"sparse"}, fold},
			{"late", []string{"dense", "sparse", "multivector"}, fold},
		} {
			for _, dtype := range dtypes {
				ask := func(lists ...[]int32) (*Result, error) {
					return r.Encode(t.Context(), &Request{
						Model:       c.model,
						Tokens:      lists,
						OutputTypes: c.outputs,
						OutputDType: dtype,
						Options:     c.options,
					})
				}
				good, err := ask(spoiltLists(6, -1)...)
				if err != nil {
					t.Fatalf("%s %s %v %s: %v", precision, c.model, c.outputs, dtype, err)
				}
				if _, err := ask(spoiltLists(6, 4)...); !isNonFinite(err, c.model, "items[4]") {
					t.Errorf("%s %s %v %s: %v", precision, c.model, c.outputs, dtype, err)
				}
				again, err := ask(spoiltLists(6, -1)...)
				if err != nil || !reflect.DeepEqual(good.Rows, again.Rows) ||
					!reflect.DeepEqual(good.Multi, again.Multi) ||
					!reflect.DeepEqual(good.Sparse, again.Sparse) {
					t.Errorf("%s %s %v %s: afterwards %v", precision, c.model, c.outputs, dtype, err)
				}
			}
		}
		for _, model := range []string{"mean", "cls", "dense", "sparse", "late"} {
			if n := r.OfModel("sie_nonfinite_items_total", model); n < float64(len(dtypes)) {
				t.Errorf("%s %s: %v items counted", precision, model, n)
			}
		}
	}
}

// Requests that share batches with non-finite texts get the same bits as alone. A request with such
// texts gets the place of its first one, however chunks and halves of batches divide them.
func TestVectorsBesideNonFiniteOnes(t *testing.T) {
	r := start(t, func(o *Options) { o.Precision = "int8" }, nil,
		adHoc(t, "mean", poisoned(t, "st-mean", spoilt)))
	alone := r.Rows(&Request{Model: "mean", Tokens: spoiltLists(6, -1)})
	var requests []*Request
	for i := range 24 {
		requests = append(requests, &Request{
			Model: "mean", Tokens: spoiltLists(6, i%3-1), OutputDType: []string{"float32", "uint8"}[i%2],
		})
	}
	rows, failures := r.All(requests...)
	for i, q := range requests {
		switch bad := i%3 - 1; {
		case bad >= 0:
			if failures[i] == nil ||
				!isNonFinite(failures[i], "mean", []string{"items[0]", "items[1]"}[bad]) {
				t.Errorf("request %d: %v", i, failures[i])
			}
		case failures[i] != nil:
			t.Errorf("request %d: %v", i, failures[i])
		case q.OutputDType == "float32":
			for j := range rows[i] {
				if !bytes.Equal(rows[i][j], alone[j]) {
					t.Errorf("request %d: text %d differs from alone", i, j)
				}
			}
		}
	}
	many := make([][]int32, 3*task.ChunkTexts)
	for i := range many {
		many[i] = spoiltLists(1, -1)[0]
	}
	many[2*task.ChunkTexts+5] = []int32{2, spoilt, 3}
	if _, err := r.Encode(t.Context(),
		&Request{Model: "mean", Tokens: many, Field: "input"}); !isNonFinite(err, "mean", "input[261]") {
		t.Errorf("in the third chunk: %v", err)
	}
}

// A sparse row that runs again with more room keeps its place in the error.
func TestNonFiniteSparseRowOnRetry(t *testing.T) {
	r := start(t, nil, nil, entry(t, "sparse", poisonedIn(t, "splade-bert", "position", spoiltPosition),
		"splade_flash", "tasks: {encode: {sparse: {dim: 101}}}"))
	ask := func(bad int) error {
		v, err := r.Copy("sparse").Variant(arch.Want{Give: arch.Give(arch.OutSparse)})
		must(t, err)
		v.Room.Store(1)
		_, err = r.Encode(t.Context(),
			&Request{Model: "sparse", Tokens: spoiltLists(6, bad), OutputTypes: []string{"sparse"}})
		return err
	}
	if _, err := r.Encode(t.Context(),
		&Request{Model: "sparse", Tokens: spoiltLists(1, -1), OutputTypes: []string{"sparse"}}); err != nil {
		t.Fatal(err) // not loaded
	}
	must(t, ask(-1))
	if err := ask(3); !isNonFinite(err, "sparse", "items[3]") {
		t.Errorf("%v", err)
	}
}

// MaxSim ignores NaN, but a query or a text with non-finite vectors still fails the request.
func TestNonFiniteLateInteractionScores(t *testing.T) {
	dir := withTokenizer(t, "colbert-linear", "st-mean", nil)
	poison(t, dir, "word", testmodels.TokenID(t, dir, "z"))
	for _, precision := range []string{"fp32", "int8"} {
		r := start(t, func(o *Options) { o.Precision = precision }, nil,
			loadtime(t, "late", dir, "colbert", colbertTasks, "{query_expansion: false}"))
		for query, place := range map[string]string{"the mat": "documents[1]", "z": "query"} {
			_, err := r.Score(t.Context(), &ScoreRequest{
				Model: "late", Query: query, Texts: []string{"on the mat", "a z", "a"}, Field: "documents",
			})
			if !isNonFinite(err, "late", place) {
				t.Errorf("%s, %s: %v", precision, query, err)
			}
		}
		if _, err := r.Score(t.Context(),
			&ScoreRequest{Model: "late", Query: "the mat", Texts: []string{"on the mat", "a"}}); err != nil {
			t.Errorf("%s: without: %v", precision, err)
		}
	}
}

// An item with non-finite logits fails alone.
func TestItemWithoutNumbers(t *testing.T) {
	for _, precision := range []string{"fp32", "int8"} {
		r := start(t, func(o *Options) { o.Precision = precision }, nil, entry(t, "nli",
			poisoned(t, "pipeline-zero-shot", 4), "nli_classification_flash", "tasks: {extract: {}}"),
			entry(t, "tags", poisoned(t, "pipeline-tags", 4), "token_classification", "tasks: {extract: {}}"))
		texts := []string{"in Berlin", "in <mask>", "the cat"}
		for model, labels := range map[string][]string{"nli": {"sea", "cats"}, "tags": nil} {
			ask := func(texts ...string) []task.Extracted {
				res, err := r.Extract(t.Context(),
					&ExtractRequest{Model: model, Texts: texts, Labels: labels})
				if err != nil {
					t.Fatalf("%s %s: %v", precision, model, err)
				}
				return res.Found
			}
			items, alone := ask(texts...), ask(texts[0], texts[2])
			if e := items[1].Err; e == nil || !isNonFinite(e, model, "items[1]") || items[1].Classes != nil ||
				items[1].Entities != nil {
				t.Errorf("%s %s: %+v", precision, model, items[1])
			}
			if !reflect.DeepEqual(append(items[:1:1], items[2]), alone) {
				t.Errorf("%s %s: %+v, alone %+v", precision, model, items, alone)
			}
		}
	}
}
