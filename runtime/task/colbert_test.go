package task_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/task"
)

const colbertTasks = "tasks: {encode: {multivector: {dim: 24}}, score: {}}"

// lateModel returns a ColBERT model with these load-time options.
func lateModel(t *testing.T, id, options string) *catalog.Model {
	t.Helper()
	dir := withTokenizer(t, "colbert-linear", "st-mean", nil)
	return loadtime(t, id, dir, "colbert", colbertTasks, options)
}

// Queries are filled up, documents lose their punctuation, and a score is the MaxSim of the vectors
// that Encode gives.
func TestColBERT(t *testing.T) {
	r := start(t, nil, nil, lateModel(t, "hidden", "{query_max_length: 12, skip_special_tokens: false}"),
		lateModel(t, "attended",
			"{query_max_length: 12, skip_special_tokens: false, attend_to_expansion_tokens: true}"),
		lateModel(t, "plain", "{query_max_length: 12, skip_special_tokens: false, query_expansion: false}"))
	yes := true
	query, texts := "the cat sat", []string{
		"a cat, on the mat!", "zebra quiz", "what is the tallest mountain",
	}
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
	res, err := r.Score(t.Context(),
		&ScoreRequest{Model: "hidden", Query: query, Texts: slices.Repeat(texts, 200)})
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

// A marker that is a token goes behind [CLS]; any other marker is text before the text.
func TestMarkers(t *testing.T) {
	r := start(t, nil, nil,
		lateModel(t, "token", `{query_expansion: false, query_prefix: "[MASK] ", doc_prefix: "[UNK]"}`),
		lateModel(t, "text", `{query_expansion: false, query_prefix: "ask ", doc_prefix: "say "}`),
		lateModel(t, "none", "{query_expansion: false}"))
	yes := true
	rows := func(model, text string, query *bool) (n int, data string) {
		res, err := r.Encode(t.Context(), &Request{
			Model: model, Texts: []string{text}, OutputTypes: []string{"multivector"}, IsQuery: query,
		})
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
	res, err := r.Score(t.Context(),
		&ScoreRequest{Model: "text", Query: "the cat", Texts: []string{"the cat"}})
	want, err2 := r.Score(t.Context(),
		&ScoreRequest{Model: "none", Query: "ask the cat", Texts: []string{"say the cat"}})
	if err != nil || err2 != nil || res.Scores[0] != want.Scores[0] {
		t.Errorf("scores %v and %v, %v, %v", res, want, err, err2)
	}
}

// A model that folds gives dense rows by MUVERA and sparse rows by SMVE. Queries and documents are
// folded differently. A text's row does not depend on the other texts of the request.
func TestFolding(t *testing.T) {
	r := start(t, nil, nil, lateModel(t, "fold", `{query_expansion: false, smve_config: {width: 256, k: 4}, `+
		`muvera_config: {num_repetitions: 8, num_simhash_projections: 3, projection_dim: 8, final_projection_dim: null}}`))
	yes := true
	req := &Request{
		Model:       "fold",
		Texts:       words(9),
		OutputTypes: []string{"dense", "sparse", "multivector"},
		Options:     map[string]any{"muvera": map[string]any{}, "smve": map[string]any{}},
	}
	docs, err := r.Encode(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	info, err := r.Model("fold")
	// the backbone's width is not one of the model's outputs
	if err != nil || info.Dims != (api.ModelDims{Multivector: 24}) {
		t.Errorf("listed with %+v, %v", info.Dims, err)
	}
	for _, m := range r.Status().Models {
		if len(m.Config.Dims) != 1 || m.Config.Dims["multivector"] != 24 {
			t.Errorf("the status says %v", m.Config.Dims)
		}
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
	if string(one.Rows[0]) != string(queries.Rows[4]) ||
		string(one.Sparse[0].Columns) != string(queries.Sparse[4].Columns) {
		t.Error("what is folded depends on the company")
	}
	for i, row := range docs.Sparse {
		if n := len(row.Columns) / 4; n == 0 || n > 4*docs.Multi[i].Rows ||
			len(row.Values) != len(row.Columns) {
			t.Errorf("text %d: %d columns of %d rows", i, n, docs.Multi[i].Rows)
		}
	}
	for _, bad := range []struct {
		output  string
		options map[string]any
		want    string
	}{{"dense", map[string]any{"muvera": nil}, "does not support output types"},
		{"multivector", map[string]any{"dimensions": int64(8)},
			"dimensions cuts dense vectors and the request asks for none"}} {
		_, err := r.Encode(t.Context(),
			&Request{Model: "fold", Texts: words(1), OutputTypes: []string{bad.output}, Options: bad.options})
		if e := errs.As(err); e == nil || e.Status != 400 || !strings.Contains(e.Message, bad.want) {
			t.Errorf("%v: %v", bad.options, err)
		}
	}
	// A request cannot change settings of a fold that are fixed when the model is loaded.
	for _, bad := range []map[string]any{{"muvera": map[string]any{"num_repetitions": int64(9)}},
		{"smve": map[string]any{"zzz": 1}}, {"muvera": 5}} {
		_, err := r.Encode(t.Context(),
			&Request{Model: "fold", Texts: words(1), OutputTypes: []string{"multivector"}, Options: bad})
		if e := errs.As(err); e == nil || e.Status != 400 || !strings.HasPrefix(e.Param, "options.") {
			t.Errorf("%v: %v", bad, err)
		}
	}
	same := map[string]any{
		"muvera": map[string]any{"num_repetitions": int64(8)}, "smve": map[string]any{"k": int64(4)},
	}
	if res, err := r.Encode(t.Context(), &Request{
		Model: "fold", Texts: words(9), OutputTypes: []string{"dense"}, Options: same,
	}); err != nil || !slices.Equal(res.Rows[0], docs.Rows[0]) {
		t.Errorf("what the model folds with, by the request: %v", err)
	}
}

// The markers of a profile are made once, however often the catalog is read.
func TestMarkersOutliveReloads(t *testing.T) {
	r := start(t, nil, nil, lateModel(t, "late", `{query_prefix: "[MASK] "}`),
		lateModel(t, "other", `{query_prefix: "[PAD] "}`))
	for _, id := range []string{"late", "other"} {
		if err := r.Preload(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	m := r.Copy("late")
	first := task.MarkersOf(m, r.Entry("late"))
	for range 5 {
		e := *r.Entry("late")
		read := *e.Loadtime
		e.Loadtime = &read
		if task.MarkersOf(m, &e) != first {
			t.Error("another set of markers for the same profile")
		}
	}
	if task.MarkersOf(m, r.Entry("other")) == first {
		t.Error("another profile has the same markers")
	}
}
