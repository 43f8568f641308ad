package task_test

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/fold"
	"github.com/sie-engine/sie/runtime/task"
)

// rowsOf returns a text's token vectors.
func rowsOf(m Matrix) [][]float32 {
	all := floats(m.Data)
	return slices.Collect(slices.Chunk(all, len(all)/max(1, m.Rows)))
}

func dot(a, b []float32) (sum float64) {
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

// MUVERA folds exactly the tokens that Encode gives. Without a projection, the parts of a
// repetition add up to the sum of a query's tokens; for a document, to the sum over the parts of
// the mean of the tokens in each. SMVE's columns are the tokens' products with its anchors.
func TestFoldedAreTheTokens(t *testing.T) {
	const dim, repetitions, bits = 24, 3, 2
	r := start(t, nil, nil, lateModel(t, "fold", `{query_expansion: false, smve_config: {width: 64, k: 3}, `+
		`muvera_config: {num_repetitions: 3, num_simhash_projections: 2, projection_dim: null, final_projection_dim: null}}`),
		lateModel(t, "unit", `{query_expansion: false, smve_config: {width: 64, k: 3, max_nonzeros: 2}, `+
			`muvera_config: {num_repetitions: 3, num_simhash_projections: 2, projection_dim: null, final_projection_dim: null, normalize: true}}`))
	planes, err := fold.Muvera{Repetitions: repetitions, Bits: bits, Seed: 42}.Tables(dim)
	if err != nil {
		t.Fatal(err)
	}
	anchors, err := fold.SMVE{Repetitions: 1, Width: 64, Top: 3, Seed: 42}.Tables(dim)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(model string, query bool) *Result {
		t.Helper()
		res, err := r.Encode(t.Context(), &Request{
			Model:       model,
			Texts:       words(7),
			OutputTypes: []string{"dense", "sparse", "multivector"},
			IsQuery:     &query,
			Options:     map[string]any{"muvera": map[string]any{}, "smve": map[string]any{}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	for _, query := range []bool{true, false} {
		plain, unitary := ask("fold", query), ask("unit", query)
		for i, m := range plain.Multi {
			tokens, row := rowsOf(m), floats(plain.Rows[i])
			for rep := range repetitions {
				parts := map[int][][]float32{}
				for _, x := range tokens {
					part := 0
					for b := range bits {
						sum := 0.0
						for c := range dim {
							sum += float64(x[c]) * float64(planes.Simhash[(rep*dim+c)*bits+b])
						}
						if sum > 0 {
							part |= 1 << b
						}
					}
					parts[part] = append(parts[part], x)
				}
				want, got := make([]float32, dim), make([]float32, dim)
				for _, part := range parts {
					for _, x := range part {
						for c := range dim {
							if query {
								want[c] += x[c]
							} else {
								want[c] += x[c] / float32(len(part))
							}
						}
					}
				}
				for p := range 1 << bits {
					for c := range dim {
						got[c] += row[(rep<<bits+p)*dim+c]
					}
				}
				if d := golden.Compare(got, want); d.MaxAbs > 1e-5 {
					t.Errorf("query %v, text %d, repetition %d: %v", query, i, rep, d)
				}
			}
			if d := golden.Compare(floats(unitary.Rows[i]), unit(row)); d.MaxAbs > 1e-5 {
				t.Errorf("query %v, text %d, normalised: %v", query, i, d)
			}
			checkSMVE(t, plain.Sparse[i], unitary.Sparse[i], tokens, anchors.Anchors, query)
		}
	}
}

// checkSMVE compares a sparse row, and the same row cut to two columns, with the tokens' products
// with the anchors.
func checkSMVE(t *testing.T, row, two Sparse, tokens [][]float32, anchors []float32, query bool) {
	t.Helper()
	dim := len(tokens[0])
	sums, counts := map[int32]float64{}, map[int32]float64{}
	for _, x := range tokens {
		order := make([]int32, len(anchors)/dim)
		product := func(a int32) float64 { return dot(x, anchors[int(a)*dim:int(a+1)*dim]) }
		for i := range order {
			order[i] = int32(i)
		}
		slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(product(b), product(a)) })
		for _, a := range order[:3] {
			sums[a] += product(a)
			counts[a]++
		}
	}
	columns, values := ints(row.Columns), floats(row.Values)
	if len(columns) != len(sums) || !slices.IsSorted(columns) {
		t.Errorf("query %v: columns %v, want those of %v", query, columns, sums)
	}
	for i, c := range columns {
		want := sums[c]
		if !query {
			want /= counts[c]
		}
		if math.Abs(float64(values[i])-want) > 1e-5 {
			t.Errorf("query %v, column %d: %v, want %v", query, c, values[i], want)
		}
	}
	largest := slices.Clone(values)
	slices.SortFunc(largest, func(a, b float32) int { return cmp.Compare(b, a) })
	if got := floats(two.Values); len(got) != min(2, len(values)) || slices.Max(got) != largest[0] ||
		slices.Min(got) != largest[len(got)-1] {
		t.Errorf("query %v: of %v the two largest are %v", query, values, got)
	}
}

// A model with its own dense or sparse vectors gives those. An option to fold them is refused, not
// ignored.
func TestOwnVectorsAreNotFolded(t *testing.T) {
	dir := withTokenizer(t, "bge-m3", "st-xlmr-mean-torch", map[string]any{})
	shrink(t, dir, 111)
	r := start(t, nil, nil, loadtime(t, "m3", dir, "bge_m3_flash",
		"tasks: {encode: {dense: {dim: 64}, sparse: {dim: 111}, multivector: {dim: 64}}}",
		"{muvera_config: {num_repetitions: 3}, smve_config: {width: 64, k: 3}}"))
	for key, own := range map[string]string{"muvera": "dense", "smve": "sparse"} {
		e := r.Refused(t.Context(), &Request{
			Model:       "m3",
			Texts:       words(2),
			OutputTypes: []string{"dense", "sparse"},
			Options:     map[string]any{key: true},
		}, errs.InvalidInput, 400)
		if e.Param != "options."+key || !strings.Contains(e.Message, "has "+own+" vectors of its own") {
			t.Errorf("%s: %v", key, e)
		}
	}
}

// A request may ask for token vectors that are not normalised. A sparse row keeps the larger weight
// of a token that occurs twice.
func TestFormsOfOutputs(t *testing.T) {
	r := start(t, nil, nil, lateModel(t, "late", "{query_expansion: false}"))
	for _, normalize := range []bool{true, false} {
		res, err := r.Encode(t.Context(), &Request{
			Model:       "late",
			Texts:       words(3),
			OutputTypes: []string{"multivector"},
			Options:     map[string]any{"normalize": normalize},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range rowsOf(res.Multi[0]) {
			if isUnit := math.Abs(dot(x, x)-1) < 1e-5; isUnit != normalize {
				t.Errorf("normalize %v: a token vector of norm² %v", normalize, dot(x, x))
			}
		}
	}
	columns, weights, s := task.SparseRow([]int32{7, 3, 7, 3, 5}, []float32{1, 4, 2, 3, 9}, "float16")
	if !slices.Equal(columns, []int32{3, 5, 7}) || !slices.Equal(weights, []float32{4, 9, 2}) {
		t.Errorf("%v, %v", columns, weights)
	}
	if len(s.Values) != 6 || binary.LittleEndian.Uint16(s.Values) != 0x4400 {
		t.Errorf("in float16: %x", s.Values)
	}
}

// ColBERT documents and queries have their own length limits, markers included. A request may
// shorten its queries.
func TestLengthsOfColBERT(t *testing.T) {
	r := start(t, nil, nil, lateModel(t, "short",
		`{skip_special_tokens: false, query_max_length: 12, doc_max_length: 6}`), lateModel(t, "marked",
		`{skip_special_tokens: false, query_max_length: 12, doc_max_length: 6, query_prefix: "[MASK] ", doc_prefix: "[UNK]"}`))
	long := []string{"the cat sat on the mat and what is the tallest mountain in the world"}
	rows := func(model string, query bool, options map[string]any) int {
		t.Helper()
		res, err := r.Encode(t.Context(), &Request{
			Model: model, Texts: long, OutputTypes: []string{"multivector"}, IsQuery: &query,
			Options: options,
		})
		if err != nil {
			t.Fatal(err)
		}
		return res.Multi[0].Rows
	}
	for _, model := range []string{"short", "marked"} {
		doc, query, asked := rows(model, false, nil), rows(model, true, nil),
			rows(model, true, map[string]any{"query_max_length": 8})
		if doc != 6 || query != 12 || asked != 8 {
			t.Errorf("%s: a document of %d rows, queries of %d and %d; want 6, 12, 8",
				model, doc, query, asked)
		}
		if more := rows(model, true, map[string]any{"query_max_length": 40}); more != 12 {
			t.Errorf("%s: a request makes its query longer, %d rows", model, more)
		}
		least := 2 // [CLS] and [SEP]
		if model == "marked" {
			least++
		}
		for _, n := range []int{1, 2} {
			query, doc := rows(model, true, map[string]any{"query_max_length": n}),
				rows(model, false, map[string]any{"max_seq_length": n})
			if query != least || doc != least {
				t.Errorf("%s, limited to %d: a query of %d rows and a document of %d, want %d",
					model, n, query, doc, least)
			}
		}
	}
}
