package task_test

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/golden"
)

func TestOneThousandTextsKeepTheirOrder(t *testing.T) {
	r := start(t, nil, []string{mean})
	texts := words(1000)
	res, err := r.Encode(t.Context(), &Request{Model: mean, Texts: texts})
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Rows) != len(texts) || res.Dims != 32 || res.Type != api.Float32 || res.Model.ID != mean {
		t.Fatalf("%d rows of %d %v from %s", len(res.Rows), res.Dims, res.Type, res.Model.ID)
	}
	slices.Reverse(texts)
	back := r.Rows(&Request{Model: mean, Texts: texts})
	seen := map[string]bool{}
	for i, row := range res.Rows {
		if !bytes.Equal(row, back[len(back)-1-i]) {
			t.Fatalf("text %d has another vector in the reverse order", i)
		}
		seen[string(row)] = true
	}
	if len(seen) < 990 {
		t.Errorf("only %d different vectors: the comparison proves nothing", len(seen))
	}
	ti := res.Timings
	if ti.Total <= 0 || ti.Tokenize <= 0 || ti.Inference <= 0 || ti.Inference > ti.Total ||
		ti.BatchWait > ti.Total {
		t.Errorf("timings %+v", ti)
	}
	tokens := 0
	for _, s := range []string{"a", "the cat sat on the mat"} {
		res, err := r.Encode(t.Context(), &Request{Model: mean, Texts: []string{s}})
		if err != nil {
			t.Fatal(err)
		}
		tokens += res.Tokens
	}
	if both, err := r.Encode(t.Context(), &Request{
		Model: mean, Texts: []string{"a", "the cat sat on the mat"},
	}); err != nil || both.Tokens != tokens {
		t.Errorf("%d tokens together, %d alone, %v", both.Tokens, tokens, err)
	}
	if none, err := r.Encode(t.Context(), &Request{Model: mean}); err != nil || len(none.Rows) != 0 {
		t.Errorf("no texts: %+v, %v", none, err)
	}
}

// A text's vector does not depend on the other texts of its batch, bit for bit.
func TestVectorsDoNotDependOnCompany(t *testing.T) {
	r := start(t, nil, []string{mean})
	texts := words(300)
	together := r.Rows(&Request{Model: mean, Texts: texts})
	for i := 0; i < len(texts); i += 29 {
		if alone := r.Rows(&Request{Model: mean, Texts: texts[i : i+1]}); !bytes.Equal(alone[0],
			together[i]) {
			t.Errorf("text %d alone differs from text %d in company", i, i)
		}
	}
	var all sync.WaitGroup
	for n := range 12 {
		all.Go(func() {
			from := n * 20
			res, err := r.Encode(t.Context(), &Request{Model: mean, Texts: texts[from : from+20]})
			if err != nil {
				t.Error(err)
				return
			}
			for i, row := range res.Rows {
				if !bytes.Equal(row, together[from+i]) {
					t.Errorf("request %d: text %d differs among concurrent requests", n, i)
				}
			}
		})
	}
	all.Wait()
}

func TestGoldenVectorsAndPrompts(t *testing.T) {
	passages := "  passage: {extends: default, adapter_options: {runtime: {doc_template: \"passage: {text}\"}}}\n" +
		"  plain: {extends: default, adapter_options: {runtime: {doc_template: \"{text}\"}}}\n" +
		"  instructed: {extends: default, adapter_options: {runtime: {default_instruction: do}}}\n"
	c := golden.Open(t, dirs[prompts])
	m := family(t, "test/family", c.Dir, passages)
	m.Tasks.Dense.Dim, m.MaxSequenceLength = 0, 0 // taken from the model's files
	r := start(t, nil, []string{mean, cls, prompts}, m)
	for _, id := range []string{mean, cls} {
		c := golden.Open(t, dirs[id])
		for i, x := range goldenTexts(t, c) {
			compare(t, id, i, r.Vectors(id, x.Text)[0], row(c, i))
		}
	}
	query := true
	for i, x := range goldenTexts(t, c) {
		// the default prompt is the one for queries
		q := &Request{Model: prompts, Texts: []string{x.Text}, IsQuery: &query}
		if x.Prompt != nil && *x.Prompt == "passage" {
			q = &Request{Model: "test/family:passage", Texts: []string{x.Text}}
		}
		compare(t, q.Model, i, float32s(r.Rows(q))[0], row(c, i))
	}
	asOption := r.Rows(
		&Request{Model: prompts, Texts: []string{"zebra quiz 42"}, Options: map[string]any{"is_query": true}})
	asParam := r.Rows(&Request{Model: prompts, Texts: []string{"zebra quiz 42"}, IsQuery: &query})
	document := r.Rows(&Request{Model: prompts, Texts: []string{"zebra quiz 42"}})
	plain := r.Rows(&Request{Model: "test/family:plain", Texts: []string{"zebra quiz 42"}})
	if !bytes.Equal(asOption[0], asParam[0]) || bytes.Equal(document[0], asParam[0]) ||
		!bytes.Equal(document[0], plain[0]) {
		t.Error(
			"is_query as an option must equal is_query as a parameter, and a document must not get the prompt of queries")
	}
	no := r.Rows(&Request{
		Model:   prompts,
		Texts:   []string{"zebra quiz 42"},
		IsQuery: &query,
		Options: map[string]any{"is_query": false},
	})
	if !bytes.Equal(no[0], document[0]) {
		t.Error("the option is_query must win over the parameter")
	}
	do := "do"
	given := r.Rows(
		&Request{Model: prompts, Texts: []string{"zebra quiz 42"}, IsQuery: &query, Instruction: &do})
	byDefault := r.Rows(
		&Request{Model: "test/family:instructed", Texts: []string{"zebra quiz 42"}, IsQuery: &query})
	literal := r.Rows(&Request{Model: "test/family:plain", Texts: []string{"do zebra quiz 42"}})
	if !bytes.Equal(given[0], literal[0]) || !bytes.Equal(byDefault[0], literal[0]) {
		t.Error("an instruction replaces the model's prompts")
	}
}

func TestLowerCasing(t *testing.T) {
	lower, cased := copyModel(t, "st-mean"), copyModel(t, "st-mean")
	for _, dir := range []string{lower, cased} {
		replace(t, dir, "tokenizer.json", `"lowercase": true`, `"lowercase": false`)
		replace(t, dir, "tokenizer_config.json", `"do_lower_case": true`, `"do_lower_case": false`)
	}
	if err := os.WriteFile(filepath.Join(lower, "sentence_bert_config.json"),
		[]byte(`{"max_seq_length": 40, "do_lower_case": true}`), 0o644); err != nil {
		t.Fatal(err)
	}
	r := start(t, nil, nil, adHoc(t, "test/lower", lower), adHoc(t, "test/cased", cased))
	for id, same := range map[string]bool{"test/lower": true, "test/cased": false} {
		v := r.Rows(&Request{Model: id, Texts: []string{"THE CAT", "the cat"}})
		if bytes.Equal(v[0], v[1]) != same {
			t.Errorf("%s: THE CAT and the cat are the same: %v, want %v", id, !same, same)
		}
	}
}

func TestOutputDTypes(t *testing.T) {
	r := start(t, nil, []string{mean})
	texts := words(9)
	full := r.Vectors(mean, texts...)
	for dtype, want := range map[string]struct {
		kind  api.NumType
		check func(x []float32, row []byte) bool
	}{
		"float16": {api.Float16, func(x []float32, row []byte) bool {
			return len(row) == 64 &&
				!slices.ContainsFunc(halves(row, x), func(d float64) bool { return d > 1.0/2048 })
		}},
		"int8":    {api.Int8, func(x []float32, row []byte) bool { return bytes.Equal(row, toInt8(x)) }},
		"uint8":   {api.Uint8, func(x []float32, row []byte) bool { return bytes.Equal(row, toUint8(x)) }},
		"binary":  {api.Uint8, func(x []float32, row []byte) bool { return bytes.Equal(row, bits(x)) }},
		"ubinary": {api.Uint8, func(x []float32, row []byte) bool { return bytes.Equal(row, bits(x)) }},
	} {
		for _, q := range []*Request{
			{Model: mean, Texts: texts, OutputDType: dtype},
			{Model: mean, Texts: texts, Options: map[string]any{"output_dtype": dtype}},
			// params win over options
			{Model: mean, Texts: texts, OutputDType: dtype,
				Options: map[string]any{"output_dtype": "float32"}},
		} {
			res, err := r.Encode(t.Context(), q)
			if err != nil || res.Type != want.kind || res.Dims != 32 {
				t.Fatalf("%s: %+v, %v", dtype, res, err)
			}
			for i, row := range res.Rows {
				if !want.check(full[i], row) {
					t.Errorf("%s of text %d: got %v of %v", dtype, i, row, full[i])
				}
			}
		}
		res, err := r.Encode(t.Context(), &Request{
			Model: mean, Texts: texts, OutputDType: "float32", Options: map[string]any{"output_dtype": dtype},
		})
		if err != nil || res.Type != api.Float32 {
			t.Errorf("float32 over %s: %v, %v", dtype, res, err)
		}
	}
}

func TestDimensionsAndNormalize(t *testing.T) {
	m := family(t, "test/family", golden.Open(t, "st-mean").Dir,
		"  short: {extends: default, adapter_options: {runtime: {dimensions: 8}}}\n")
	r := start(t, nil, []string{cls}, m)
	const text = "the cat sat on the mat"
	full := r.Vectors("test/family", text)[0]
	short := func(q *Request) []float32 {
		t.Helper()
		q.Texts = []string{text}
		return float32s(r.Rows(q))[0]
	}
	want := slices.Clone(full[:8])
	for i := range want {
		want[i] = float32(float64(want[i]) / norm(full[:8]))
	}
	for name, got := range map[string][]float32{
		"the field":   short(&Request{Model: "test/family", Dimensions: 8}),
		"the option":  short(&Request{Model: "test/family", Options: map[string]any{"dimensions": int64(8)}}),
		"the profile": short(&Request{Model: "test/family:short"}),
		"the profile by name": short(
			&Request{Model: "test/family", Options: map[string]any{"profile": "short"}}),
		"the field over another": short(
			&Request{Model: "test/family", Dimensions: 8, Options: map[string]any{"dimensions": int64(4)}}),
		"not normalised": short(
			&Request{Model: "test/family", Dimensions: 8, Options: map[string]any{"normalize": false}}),
	} {
		if len(got) != 8 || golden.Compare(got, want).MaxAbs > 1e-6 {
			t.Errorf("dimensions by %s: %v, want %v", name, got, want)
		}
	}
	if got := short(&Request{
		Model: "test/family:short", Options: map[string]any{"dimensions": nil},
	}); len(got) != 32 {
		t.Errorf("null keeps %d components", len(got))
	}
	if n := norm(full); math.Abs(n-1) < 1e-3 {
		t.Fatalf("the model normalises by itself: %v", n)
	}
	if n := norm(short(&Request{
		Model: "test/family", Options: map[string]any{"normalize": true},
	})); math.Abs(n-1) > 1e-6 {
		t.Errorf("normalize true gives a norm of %v", n)
	}
	unit, raw := short(&Request{Model: cls}), short(&Request{
		Model: cls, Options: map[string]any{"normalize": false},
	})
	if math.Abs(norm(unit)-1) > 1e-6 || math.Abs(norm(raw)-1) < 1e-3 {
		t.Errorf("norms %v and %v of a model that normalises, with and without", norm(unit), norm(raw))
	}
}

// Another pooling is another program over the same weights, whichever model id loads them.
func TestPoolingVariants(t *testing.T) {
	const text = "what is the tallest mountain"
	asCLS := copyModel(t, "st-mean")
	replace(t, asCLS, "1_Pooling/config.json", `"pooling_mode": "mean"`, `"pooling_mode": "cls"`)
	profiles := "  cls: {extends: default, adapter_options: {runtime: {pooling: cls}}}\n" +
		"  short: {extends: default, adapter_options: {loadtime: {max_seq_length: 4}}}\n"
	dir := golden.Open(t, "st-mean").Dir
	for _, first := range []string{"test/family", "test/family:cls", "test/family:short"} {
		t.Run("first "+first, func(t *testing.T) {
			r := start(t, nil, []string{mean}, family(t, "test/family", dir, profiles),
				adHoc(t, "test/as-cls", asCLS))
			r.Vectors(first, text)
			bytesBefore := size(r, "test/family")
			own, byProfile := r.Vectors("test/family", text)[0], r.Vectors("test/family:cls", text)[0]
			byOption := float32s(r.Rows(&Request{
				Model: "test/family", Texts: []string{text}, Options: map[string]any{"pooling": "cls"},
			}))[0]
			if !slices.Equal(own, r.Vectors(mean, text)[0]) {
				t.Error("the model's own pooling is not that of its files")
			}
			ref := r.Vectors("test/as-cls", text)[0]
			if !slices.Equal(byProfile, ref) || !slices.Equal(byOption, ref) || slices.Equal(own, ref) {
				t.Errorf("cls pooling by profile %v, by option %v, by the files %v",
					byProfile[:3], byOption[:3], ref[:3])
			}
			if short := r.Vectors("test/family:short", text)[0]; slices.Equal(short, own) {
				t.Error("the profile's max_seq_length of 4 tokens cuts nothing")
			}
			if n := r.Loads("test/family"); n != 1 {
				t.Errorf("%d loads of one set of weights", n)
			}
			if now := size(r, "test/family"); now != bytesBefore || now == 0 {
				t.Errorf("%d bytes with one program, %d with two", bytesBefore, now)
			}
		})
	}
}

// Models that share weights keep their own pooling and length limit, even though only one of them
// gives the loaded weights their name.
func TestSharedWeightsKeepEachModelsOptions(t *testing.T) {
	m := family(t, "test/a", golden.Open(t, "st-mean").Dir, "")
	m.Profiles[0].Runtime, m.MaxSequenceLength = map[string]any{"pooling": "cls"}, 4
	r := start(t, nil, []string{mean}, m)
	const text = "what is the tallest mountain"
	other, own := r.Vectors("test/a", text)[0], r.Vectors(mean, text)[0]
	alone := start(t, nil, []string{mean}).Vectors(mean, text)[0]
	if !slices.Equal(own, alone) || slices.Equal(own, other) {
		t.Errorf("beside a model over the same weights %v, alone %v", own[:3], alone[:3])
	}
	if r.Loads("test/a") != 1 || r.Loads(mean) != 0 {
		t.Error("the weights were loaded twice")
	}
}

// size returns the bytes of the packed weights of a loaded model.
func size(r *rig, id string) int64 { return r.Copy(id).Bytes() }

// goldenText is an input of a golden case.
type goldenText struct {
	Text   string  `json:"text"`
	Prompt *string `json:"prompt_name"`
}

func goldenTexts(t *testing.T, c *golden.Case) []goldenText {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(c.Dir, "texts.json"))
	if err != nil {
		t.Fatal(err)
	}
	var out []goldenText
	if err := json.Unmarshal(b, &out); err != nil || len(out) == 0 {
		t.Fatal(err)
	}
	return out
}

func row(c *golden.Case, i int) []float32 {
	v, shape := c.Float32("vectors")
	return v[i*shape[1] : (i+1)*shape[1]]
}

func compare(t *testing.T, id string, i int, got, want []float32) {
	t.Helper()
	if d := golden.Compare(got, want); d.MaxAbs > 1e-5 {
		t.Errorf("%s, text %d: %v", id, i, d)
	}
}

// halves returns how far each float16 of row is from x, relative to x.
func halves(row []byte, x []float32) []float64 {
	out := make([]float64, len(x))
	for i := range x {
		h := uint16(row[2*i]) | uint16(row[2*i+1])<<8
		exp, frac := int(h>>10&31), float64(h&1023)
		v := math.Ldexp(1+frac/1024, exp-15)
		if exp == 0 {
			v = math.Ldexp(frac/1024, -14)
		}
		if h>>15 == 1 {
			v = -v
		}
		out[i] = math.Abs(v-float64(x[i])) / max(math.Abs(float64(x[i])), 1e-4)
	}
	return out
}

func toInt8(x []float32) []byte {
	var top float32
	for _, v := range x {
		top = max(top, float32(math.Abs(float64(v))))
	}
	out := make([]byte, len(x))
	for i, v := range x {
		out[i] = byte(int8(math.RoundToEven(float64(v / top * 127))))
	}
	return out
}

func toUint8(x []float32) []byte {
	lo, hi := slices.Min(x), slices.Max(x)
	out := make([]byte, len(x))
	for i, v := range x {
		out[i] = byte(math.RoundToEven(float64((v - lo) / (hi - lo) * 255)))
	}
	return out
}

func bits(x []float32) []byte {
	out := make([]byte, (len(x)+7)/8)
	for i, v := range x {
		if v > 0 {
			out[i/8] |= 1 << (7 - i%8)
		}
	}
	return out
}
