package catalog

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// load builds a catalog from file contents, with invented file names.
func load(t *testing.T, files ...string) *Catalog {
	t.Helper()
	fsys := fstest.MapFS{}
	for i, f := range files {
		fsys[fmt.Sprintf("m%d.yaml", i)] = &fstest.MapFile{Data: []byte(f)}
	}
	c, err := Load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func resolve(t *testing.T, c *Catalog, id string) *Resolved {
	t.Helper()
	r, err := c.Resolve(id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func ids(c *Catalog) []string {
	var out []string
	for _, r := range c.List() {
		out = append(out, r.ID)
	}
	return out
}

const family = `sie_id: acme/family
hf_id: acme/weights
hf_revision: v2
tasks: {encode: {multivector: {dim: 64}}, score: {}}
max_sequence_length: 512
profiles:
  default:
    adapter_path: sie_server.adapters.colbert:ColBERTAdapter
    max_batch_tokens: 8192
    compute_precision: float16
    adapter_options:
      loadtime: {token_dim: 64, muvera_config: {projection_dim: 8, final_projection_dim: null}}
      runtime: {query_max_length: 32, normalize: true}
    adaptive_batching: {target_p50_ms: 40, gain: 0.2}
  scalars: {extends: default, max_batch_tokens: 100, compute_precision: float32, adapter_path: "sie_server.adapters.bge_m3:B"}
  runtime: {extends: default, adapter_options: {runtime: {max_seq_length: 300}}}
  loadtime: {extends: default, adapter_options: {loadtime: {max_seq_length: 256}, runtime: {}}}
  adaptive: {extends: default, adaptive_batching: {enabled: false, gain: 0.5}}
  muvera: {extends: default, adapter_options: {runtime: {muvera: {}, output_types: [dense]}}}
  alone:
    adapter_path: sie_server.adapters.colbert:ColBERTAdapter
    max_batch_tokens: 1
`

func TestInheritance(t *testing.T) {
	c := load(t, family)
	base := resolve(t, c, "acme/family")
	for _, id := range []string{"scalars", "runtime", "loadtime", "adaptive", "muvera", "alone"} {
		r := resolve(t, c, "acme/family:"+id)
		if r.BaseID != "acme/family" || r.Profile != id || r.WeightsKey != "hf:acme/weights@v2" ||
			r.WeightsKey != base.WeightsKey {
			t.Errorf("%s: base %s, profile %s, weights %s", id, r.BaseID, r.Profile, r.WeightsKey)
		}
		if id == "alone" {
			if len(r.Runtime.Raw)+len(r.Loadtime.Raw) != 0 || r.MaxBatchTokens != 1 || r.Precision != "" ||
				r.AdaptiveBatching != (AdaptiveBatching{}) {
				t.Errorf("alone inherited something: %+v", r)
			}
			continue
		}
		wantRun, wantLoad := base.Runtime.Raw, base.Loadtime.Raw
		switch id {
		case "runtime":
			wantRun = map[string]any{"max_seq_length": int64(300)}
		case "muvera":
			wantRun = map[string]any{"muvera": map[string]any{}, "output_types": []any{"dense"}}
		case "loadtime":
			wantLoad = map[string]any{"max_seq_length": int64(256)}
		}
		if !reflect.DeepEqual(r.Runtime.Raw, wantRun) || !reflect.DeepEqual(r.Loadtime.Raw, wantLoad) {
			t.Errorf("%s: runtime %v, loadtime %v", id, r.Runtime.Raw, r.Loadtime.Raw)
		}
		if *r.AdaptiveBatching.TargetP50MS != 40 {
			t.Errorf("%s: target %v", id, *r.AdaptiveBatching.TargetP50MS)
		}
	}
	s := resolve(t, c, "acme/family:scalars")
	if s.MaxBatchTokens != 100 || s.Precision != "float32" || s.Family != FamilyMultiFunction ||
		s.Adapter.Class != "B" {
		t.Errorf("scalars: %+v", s)
	}
	a := resolve(t, c, "acme/family:adaptive").AdaptiveBatching
	if *a.Enabled || *a.Gain != 0.5 || base.AdaptiveBatching.Enabled != nil ||
		*base.AdaptiveBatching.Gain != 0.2 {
		t.Error("adaptive_batching does not merge field by field")
	}
	if l := resolve(t, c, "acme/family:loadtime"); l.MaxSequenceLength != 256 ||
		base.MaxSequenceLength != 512 {
		t.Errorf("lengths %d and %d", l.MaxSequenceLength, base.MaxSequenceLength)
	}
	m := resolve(t, c, "acme/family:muvera")
	if !slices.Equal(m.Outputs, []string{"dense", "multivector", "score"}) || m.Dims["dense"] != 20480 ||
		m.Dims["multivector"] != 64 {
		t.Errorf("muvera: outputs %v, dims %v", m.Outputs, m.Dims)
	}
	if got := m.AllowedOutputTypes(m.Runtime); !slices.Equal(got, []OutputType{OutputDense}) {
		t.Errorf("muvera allows %v", got)
	}
	if o, _, err := m.Options(OpEncode, map[string]any{"muvera": nil}); err != nil ||
		len(m.AllowedOutputTypes(o)) != 0 {
		t.Errorf("muvera without its folding allows dense: %v, %v", m.AllowedOutputTypes(o), err)
	}
	if got := base.AllowedOutputTypes(base.Runtime); !slices.Equal(got, []OutputType{OutputMultivector}) {
		t.Errorf("base allows %v", got)
	}
}

func TestProfileLists(t *testing.T) {
	c := load(t, family, strings.ReplaceAll(strings.Replace(good, "  fast:\n    extends: default\n", "", 1),
		"  default:", "  candle:"), strings.NewReplacer("acme/mini\nhf", "acme/two\nhf", "  default:",
		"  one:", "extends: default", "extends: one").Replace(good))
	want := []string{
		"acme/family", "acme/family:adaptive", "acme/family:alone", "acme/family:loadtime",
		"acme/family:muvera", "acme/family:runtime", "acme/family:scalars", "acme/mini", "acme/mini:candle",
		"acme/two:fast", "acme/two:one",
	}
	if got := ids(c); !slices.Equal(got, want) {
		t.Fatalf("ids %v", got)
	}
	base := resolve(t, c, "acme/family")
	if len(base.Profiles) != 7 || base.Profiles[0] != (ProfileInfo{"default", true}) ||
		base.Profiles[1] != (ProfileInfo{"scalars", false}) {
		t.Errorf("profiles %v", base.Profiles)
	}
	if v := resolve(t, c, "acme/family:muvera"); !slices.Equal(v.Profiles, []ProfileInfo{{"default", true}}) {
		t.Errorf("variant's profiles %v", v.Profiles)
	}
	if v := resolve(t, c, "acme/mini"); v.Profile != "candle" ||
		!slices.Equal(v.Profiles, []ProfileInfo{{"candle", true}}) {
		t.Errorf("candle-only model: %+v", v)
	}
}

func TestOptions(t *testing.T) {
	c := load(t, family)
	base := resolve(t, c, "acme/family")
	get := func(r *Resolved, o map[string]any) *RuntimeOptions {
		t.Helper()
		out, _, err := r.Options(OpEncode, o)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if get(base, nil) != base.Runtime || get(base, map[string]any{"profile": "default"}) != base.Runtime {
		t.Error("no options must cost nothing")
	}
	if o := get(base, map[string]any{"profile": "runtime"}); o.MaxSeqLength != 300 || o.QueryMaxLength != 0 {
		t.Errorf("named profile: %+v", o)
	}
	if o := get(base, map[string]any{"profile": "muvera"}); !slices.Equal(base.AllowedOutputTypes(o),
		[]OutputType{OutputDense}) {
		t.Error("the muvera profile does not make dense legal")
	}
	for _, c := range []struct {
		opts map[string]any
		want []OutputType
	}{
		{map[string]any{"output_types": []any{"sparse"}}, []OutputType{OutputMultivector}},
		{map[string]any{"muvera": map[string]any{}}, []OutputType{OutputDense, OutputMultivector}},
		{map[string]any{"profile": "muvera", "output_types": []any{"multivector"}},
			[]OutputType{OutputDense}},
	} {
		if o := get(base, c.opts); o.Raw["profile"] != nil {
			t.Error("the option profile stays in Raw")
		}
		if got := base.AllowedOutputTypes(get(base, c.opts)); !slices.Equal(got, c.want) {
			t.Errorf("%v allows %v, want %v", c.opts, got, c.want)
		}
	}
	o := get(base,
		map[string]any{"query_max_length": 16.0, "normalize": nil, "is_query": 1, "unheard_of": nil})
	if o.QueryMaxLength != 16 || o.Normalize != nil || !o.IsQuery {
		t.Errorf("overlay: %+v", o)
	}
	for _, c := range []struct {
		key   string
		value any
		want  string
	}{
		{"unheard_of", 1,
			"Field 'options.unheard_of': there is no such option; model 'acme/family' takes default_instruction"},
		{"normalise", true, "Field 'options.normalise': there is no such option; did you mean 'normalize'?"},
		{"pooling", "cls", "Field 'options.pooling': model 'acme/family' has no use for it; remove it"},
		{"output_similarity", "dot",
			"Field 'options.output_similarity': model 'acme/family' has no use for it; remove it"},
	} {
		_, _, err := base.Options(OpEncode, map[string]any{c.key: c.value})
		var bad *OptionError
		if !errors.As(err, &bad) || bad.Key != c.key || !strings.HasPrefix(bad.Msg, c.want) {
			t.Errorf("option %s: %v, want %s", c.key, err, c.want)
		}
	}
	sparse := &Resolved{ID: "s", Family: FamilySparse}
	for key, value := range map[string]any{"normalize": true, "pooling": "cls", "dimensions": 3} {
		var bad *OptionError
		if err := sparse.checkUse(OpEncode, map[string]any{key: value}); !errors.As(err, &bad) ||
			bad.Key != key {
			t.Errorf("a sparse model takes %s: %v", key, err)
		}
	}
	if base.Runtime.QueryMaxLength != 32 || base.Runtime.Normalize == nil {
		t.Error("the overlay changed the profile")
	}
	if o := get(base, map[string]any{"dimensions": int64(64)}); o.Dimensions != 64 ||
		base.Runtime.Dimensions != 0 {
		t.Errorf("dimensions: %+v", o)
	}
	if n := testing.AllocsPerRun(100, func() { _, _, _ = base.Options(OpEncode, nil) }); n != 0 {
		t.Errorf("a request without options allocates %v times", n)
	}
	if o := get(base, map[string]any{"max_seq_length": "many"}); o.MaxSeqLength != 0 {
		t.Error("a garbage length must be ignored")
	}
	if get(resolve(t, c, "acme/family:runtime"), map[string]any{"profile": "default"}).MaxSeqLength != 300 {
		t.Error("a variant's default profile is its own")
	}
	for want, opts := range map[string]map[string]any{
		"Profile 'x' not found. Available: ['adaptive', 'alone', 'default', 'loadtime', 'muvera', 'runtime', 'scalars']": {
			"profile": "x",
		},
		"Field 'options.profile': expected a string, got the number 1": {"profile": 1},
		"Unsupported output_dtype: bfloat16. Use one of float32, float16, int8, uint8, binary, ubinary": {
			"output_dtype": "bfloat16",
		},
		"Invalid overflow_policy: 'x'. Must be one of ['default', 'error', 'truncate_text'].": {
			"overflow_policy": "x",
		},
		"Field 'options.normalize': expected true or false, got the string \"yes\"": {"normalize": "yes"},
		"Field 'options.query_template': the template has a single '{'; write '{{' for a brace": {
			"query_template": "{",
		},
		"Field 'options.output_types': must not be empty; use dense, sparse or multivector": {
			"output_types": []any{},
		},
		"Field 'options.output_types': expected a list of strings, got the string \"dense\"": {
			"output_types": "dense",
		},
		"Field 'options.output_types': expected a list of strings, got the number 1 in it": {
			"output_types": []any{"dense", int64(1)},
		},
		"Field 'options.is_query': expected true or false, got a list": {"is_query": []any{}},
		"Field 'options.instruction': expected a string, got the number 5": {
			"instruction": int64(5),
		},
		"Field 'options.lora_id': expected a string, got a map":          {"lora_id": map[string]any{}},
		"Field 'options.pooling': expected a string, got the number 1.5": {"pooling": 1.5},
		"Field 'options.pooling': must be cls, mean, last or last_token; got \"max\"": {
			"pooling": "max",
		},
		"Field 'options.output_dtype': expected a string, got the number 8": {
			"output_dtype": int64(8),
		},
		"Field 'options.overflow_policy': expected a string, got the number 7": {
			"overflow_policy": int64(7),
		},
		"Field 'options.dimensions': expected a whole number, got the string \"64\"": {"dimensions": "64"},
		"Field 'options.dimensions': expected a whole number, got the number 2.5":    {"dimensions": 2.5},
		"Field 'options.dimensions': must be between 1 and 1048576; got 0": {
			"dimensions": int64(0),
		},
		"Field 'options.dimensions': must be between 1 and 1048576; got -1": {"dimensions": int64(-1)},
	} {
		_, _, err := base.Options(OpEncode, opts)
		var oe *OptionError
		if !errors.As(err, &oe) || err.Error() != want {
			t.Errorf("%v: got %v, want %s", opts, err, want)
		}
	}
	if _, _, err := resolve(t, c, "acme/family:runtime").Options(OpEncode, map[string]any{
		"profile": "muvera",
	}); err == nil || err.Error() != "Profile 'muvera' not found. Available: ['default']" {
		t.Errorf("a variant offers a sibling: %v", err)
	}
}

func TestFormatText(t *testing.T) {
	parse := func(s string) *Template {
		tm, err := ParseTemplate(s)
		if err != nil {
			t.Fatal(err)
		}
		return tm
	}
	p := func(s string) *string { return &s }
	ins := parse("Instruct: {instruction}\nQuery: {text}")
	for _, c := range []struct {
		name    string
		o       RuntimeOptions
		query   bool
		request *string
		want    string
	}{
		{"nothing", RuntimeOptions{}, true, nil, "t"},
		{"query template", RuntimeOptions{QueryTemplate: parse("q: {text}"), DocTemplate: parse("p: {text}")},
			true, nil, "q: t"},
		{"document template",
			RuntimeOptions{QueryTemplate: parse("q: {text}"), DocTemplate: parse("p: {text}")}, false,
			nil, "p: t"},
		{"only queries have one", RuntimeOptions{QueryTemplate: parse("q: {text}")}, false, nil, "t"},
		{"instruction without template", RuntimeOptions{}, false, p("do"), "do t"},
		{"empty instruction without template", RuntimeOptions{}, true, p(""), "t"},
		{"default for queries", RuntimeOptions{QueryTemplate: ins, DefaultInstruction: p("D")}, true, nil,
			"Instruct: D\nQuery: t"},
		{"request wins", RuntimeOptions{QueryTemplate: ins, DefaultInstruction: p("D"), Instruction: p("I")},
			true, p("R"), "Instruct: R\nQuery: t"},
		{"profile instruction wins over default",
			RuntimeOptions{QueryTemplate: ins, DefaultInstruction: p("D"), Instruction: p("I")}, true, nil,
			"Instruct: I\nQuery: t"},
		{"explicit empty wins", RuntimeOptions{QueryTemplate: ins, DefaultInstruction: p("D")}, true, p(""),
			"Instruct: \nQuery: t"},
		{"explicit empty option wins", RuntimeOptions{DefaultInstruction: p("D"), Instruction: p("")},
			true, nil, "t"},
		{"default without template", RuntimeOptions{DefaultInstruction: p("D")}, true, nil, "D t"},
		{"documents never get the default",
			RuntimeOptions{DocTemplate: parse("{instruction}|{text}"), DefaultInstruction: p("D")},
			false, nil, "|t"},
		{"documents never, no template", RuntimeOptions{DefaultInstruction: p("D")}, false, nil, "t"},
	} {
		if got := c.o.FormatText("t", c.query, c.request); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestAdapters(t *testing.T) {
	model := func(adapter, tasks string) string {
		return strings.NewReplacer("sie_server.adapters.bert_flash:BertFlashAdapter", adapter,
			"  encode:\n    dense: {dim: 384}\n", tasks).Replace(good)
	}
	const dense, sparse, multi, score = "  encode: {dense: {dim: 8}}\n", "  encode: {sparse: {}}\n",
		"  encode: {multivector: {dim: 8}}\n", "  score: {}\n"
	const all = "  encode: {dense: {dim: 8}, sparse: {dim: 9}, multivector: {dim: 8}}\n"
	for _, c := range []struct {
		adapter, tasks string
		family         Family
		usable         string // "" = yes
	}{
		{"sie_server.adapters.bert_flash:BertFlashAdapter", dense, FamilyDense, ""},
		{"sie_server.adapters.bert_flash.adapter:Renamed", dense, FamilyDense, ""},
		{"sie_server.adapters.sentence_transformer:X", dense, FamilyDense, ""},
		{"sie_server.adapters.pytorch_embedding:X", dense, FamilyDense, ""},
		{"sie_server.adapters.sglang:X", dense, FamilyDense, ""},
		{"sie_server.adapters.sglang.embedding:X", dense, FamilyDense, ""},
		{"sie_server_rust.adapters.candle:CandleEmbeddingAdapter", dense, FamilyDense, ""},
		{"sie_server_rust.adapters.candle:CandleEmbeddingAdapter", sparse, FamilySparse, ""},
		{"sie_server_rust.adapters.candle:CandleEmbeddingAdapter", multi, FamilyColBERT, ""},
		{"sie_server_rust.adapters.candle:CandleEmbeddingAdapter", all, FamilyMultiFunction, ""},
		{"sie_server.adapters.sentence_transformer:X", score, FamilyCrossEncoder, ""},
		{"sie_server.adapters.splade_flash:X", sparse, FamilySparse, ""},
		{"sie_server.adapters.splade_flash.adapter:X", sparse, FamilySparse, ""},
		{"sie_server.adapters.sglang.generation:X", score, FamilyGeneration,
			"model 'acme/mini' cannot be served: text generation is out of scope for this server"},
		{"sie_server.adapters.bert_flash:BertFlashAdapter", sparse, FamilyDense,
			"model 'acme/mini' declares the output sparse, which its adapter 'sie_server.adapters.bert_flash:BertFlashAdapter' does not give"},
		{"sie_server.adapters.bert_flsh:X", dense, FamilyNone,
			"model 'acme/mini' uses the adapter 'sie_server.adapters.bert_flsh:X', which this server does not know; did you mean 'sie_server.adapters.bert_flash'?"},
		{"my.own.thing:X", dense, FamilyNone,
			"model 'acme/mini' uses the adapter 'my.own.thing:X', which this server does not know"},
		{"my_adapter.py:X", dense, FamilyNone,
			"model 'acme/mini' uses the custom adapter file 'my_adapter.py:X': this server has no Python and runs no user code; use one of the built-in adapter modules"},
		{"adapters/bert_flash.py:X", dense, FamilyNone,
			"model 'acme/mini' uses the custom adapter file 'adapters/bert_flash.py:X': this server has no Python and runs no user code; use one of the built-in adapter modules"},
	} {
		r := resolve(t, load(t, model(c.adapter, c.tasks)), "acme/mini")
		got := ""
		if err := r.Usable(); err != nil {
			got = err.Error()
		}
		if r.Family != c.family || got != c.usable {
			t.Errorf("%s with %s: family %q, %q; want %q, %q",
				c.adapter, c.tasks, r.Family, got, c.family, c.usable)
		}
	}
	remote := strings.Replace(model("sie_server.adapters.remote.openai:X", dense), "hf_id: acme/mini",
		"remote_backed: true", 1)
	if err := resolve(t, load(t, remote), "acme/mini").Usable(); err == nil ||
		!strings.Contains(err.Error(), "does not forward") {
		t.Errorf("remote: %v", err)
	}
}

var servedFamilies = []Family{FamilyDense, FamilySparse, FamilyColBERT, FamilyMultiFunction,
	FamilyCrossEncoder, FamilyCausalReranker, FamilyZeroShot, FamilyClassifier, FamilySequenceClassifier,
	FamilyTagger, FamilySpanExtractor, FamilyUnion}

// Every adapter maps to a family of the table. Every family that is not served has a reason.
func TestFamilyTable(t *testing.T) {
	known := make(map[string]bool)
	for _, name := range adapterNames() {
		if known[name] {
			t.Errorf("the adapter %s has two families", name)
		}
		known[name] = true
		if _, err := ParseAdapterPath("sie_server.adapters." + name + ":X"); err != nil {
			t.Errorf("adapter %s: %v", name, err)
		}
	}
	for _, f := range Families() {
		ok, reason := f.Served()
		if ok != slices.Contains(servedFamilies, f) || ok != (reason == "") ||
			strings.HasSuffix(reason, ".") {
			t.Errorf("family %s: served %v, %q", f, ok, reason)
		}
	}
	if ok, reason := Family("x").Served(); ok || reason == "" {
		t.Error("an unknown family is served")
	}
}

// A row of the table is all that configuration needs of a family: its adapters, its outputs, its
// options, and how it is served without a model file.
func TestAFamilyMore(t *testing.T) {
	families = append(families, familyInfo{
		name:     "throwaway",
		outputs:  []string{outSparse, outJSON},
		adapters: []string{"throwaway.old", "throwaway"},
		adHoc:    "throwaway:Adapter",
		loadtime: map[string]any{"skip_special_tokens": true},
		options:  []string{"threshold"},
	})
	t.Cleanup(func() { families = families[:len(families)-1] })
	m, err := AdHoc("more", AdHocInfo{HFID: "a/b", Family: "throwaway"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := load(t).With(m)
	if err != nil {
		t.Fatal(err)
	}
	r := resolve(t, c, "more")
	if r.Family != "throwaway" || r.Usable() != nil || !slices.Equal(r.Outputs, []string{"sparse", "json"}) ||
		!*r.Loadtime.SkipSpecialTokens || r.Loadtime.SMVE != nil {
		t.Errorf("%+v, %v", r, r.Usable())
	}
	if familyOf(AdapterPath{
		Module: "sie_server.adapters.throwaway.old.adapter", Class: "X",
	}, Tasks{}) != "throwaway" || !slices.Contains(Families(), "throwaway") {
		t.Error("its adapters or its name are not known")
	}
	for key, fine := range map[string]bool{
		"threshold": true, "lora_id": true, "top_k": false, "flat_ner": false,
	} {
		value := any(1)
		switch key {
		case "lora_id":
			value = "a/b"
		case "flat_ner":
			value = true
		}
		if _, _, err := r.Options(OpExtract, map[string]any{key: value}); (err == nil) != fine {
			t.Errorf("option %s: %v", key, err)
		}
	}
	if _, err := AdHoc("none", AdHocInfo{HFID: "a/b", Family: FamilyOCR}); err == nil ||
		!strings.Contains(err.Error(), `the family "ocr" is not served`) {
		t.Errorf("a family that is not served: %v", err)
	}
}

// The outputs that a model declares decide the family of an adapter of a whole library. No two rows
// of the table claim one model.
func TestFamiliesOfLibraryAdapters(t *testing.T) {
	for set := range 1 << 4 {
		d, s, m, score := set&1 != 0, set&2 != 0, set&4 != 0, set&8 != 0
		want := FamilyNone
		switch {
		case m && (d || s):
			want = FamilyMultiFunction
		case m:
			want = FamilyColBERT
		case s:
			want = FamilySparse
		case d:
			want = FamilyDense
		case score:
			want = FamilyCrossEncoder
		}
		var got []Family
		for i := range families {
			if f := families[i]; f.means != nil && f.means(d, s, m, score) {
				got = append(got, f.name)
			}
		}
		if len(got) > 1 || len(got) == 1 && got[0] != want || len(got) == 0 && want != FamilyNone {
			t.Errorf("dense %v, sparse %v, multivector %v, score %v: %v, want %q", d, s, m, score, got, want)
		}
	}
}

func TestMUVERAOutputDim(t *testing.T) {
	for _, c := range []struct {
		c    MUVERAConfig
		dim  int
		want int
	}{
		{MUVERAConfig{Repetitions: 40, SimHashProjections: 6, ProjectionDim: 8}, 128, 20480},
		{MUVERAConfig{Repetitions: 96, SimHashProjections: 6, ProjectionDim: 8}, 128, 49152},
		{MUVERAConfig{Repetitions: 40, SimHashProjections: 6, FinalProjectionDim: 10240}, 128, 10240},
		{MUVERAConfig{Repetitions: 20, SimHashProjections: 6, ProjectionDim: 8, FinalProjectionDim: 10240},
			96, 10240},
		{MUVERAConfig{Repetitions: 1, SimHashProjections: 1, ProjectionDim: 2, FinalProjectionDim: 10240}, 96,
			4},
	} {
		if got := c.c.OutputDim(c.dim); got != c.want {
			t.Errorf("%+v of %d: got %d, want %d", c.c, c.dim, got, c.want)
		}
	}
	def, err := asMUVERA(map[string]any{})
	if err != nil ||
		*def != (MUVERAConfig{Repetitions: 40, SimHashProjections: 6, FinalProjectionDim: 10240, Seed: 42}) {
		t.Errorf("defaults %+v, %v", def, err)
	}
	off, err := asMUVERA(map[string]any{"final_projection_dim": nil, "seed": nil, "center_tokens": true})
	if err != nil || off.FinalProjectionDim != 0 || off.Seed != 42 || !off.CenterTokens {
		t.Errorf("nulls %+v, %v", off, err)
	}
}

func TestLoRAPaths(t *testing.T) {
	for _, c := range []struct {
		in   any
		want []LoRA
	}{
		{[]any{"a/b", "c/d"}, []LoRA{{"a/b", "a/b", ""}, {"c/d", "c/d", ""}}},
		{map[string]any{"z": "c/d", "y": map[string]any{"id": "a/b", "revision": "v1"}},
			[]LoRA{{"y", "a/b", "v1"}, {"z", "c/d", ""}}},
		{"a/b", nil},
		{[]any{""}, nil},
		{map[string]any{"y": map[string]any{"id": "a/b", "rev": "v1"}}, nil},
	} {
		got, err := asLoRAs(c.in)
		if (err != nil) != (c.want == nil) || err == nil && !slices.Equal(got, c.want) {
			t.Errorf("%v: got %v, %v", c.in, got, err)
		}
	}
}

func TestDimensionsOfAProfile(t *testing.T) {
	short := good + "    adapter_options: {runtime: {dimensions: 64}}\n"
	c := load(t, short)
	if r := resolve(t, c, "acme/mini:fast"); r.Runtime.Dimensions != 64 || r.Dims["dense"] != 64 ||
		resolve(t, c, "acme/mini").Dims["dense"] != 384 {
		t.Errorf("runtime %+v, dims %v", r.Runtime, r.Dims)
	}
	_, err := Load(fstest.MapFS{"m.yaml": {Data: []byte(strings.Replace(short, "64", "385", 1))}})
	if err == nil || !strings.Contains(err.Error(), "dimensions must be at most 384") ||
		!strings.Contains(err.Error(), "m.yaml") {
		t.Errorf("dimensions over the model's width: %v", err)
	}
	_, err = Load(fstest.MapFS{"m.yaml": {Data: []byte(strings.Replace(short, "64", "0", 1))}})
	if err == nil ||
		!strings.Contains(err.Error(), "m.yaml:17: profiles.fast.adapter_options.runtime.dimensions") {
		t.Errorf("dimensions 0: %v", err)
	}
}

// The newer forms of the reference's model files (0.10) are read: similarities by output type, the
// skip list, SPLADE as a pooling, and late interaction without a configuration, which folds by the
// defaults.
func TestPublishedForms(t *testing.T) {
	file := func(tasks, adapter, loadtime, runtime string) (*Catalog, error) {
		m, warn, err := ParseModel("x.yaml", fmt.Appendf(nil,
			"sie_id: x\nhf_id: a/x\ntasks: {encode: {%s}}\nprofiles:\n  default:\n    adapter_path: %s:A\n"+
				"    max_batch_tokens: 512\n    adapter_options: {loadtime: {%s}, runtime: {%s}}\n", tasks,
			adapter, loadtime, runtime))
		if len(warn) > 0 {
			t.Error(warn)
		}
		if err != nil {
			return nil, err
		}
		return new(Catalog).With(m)
	}
	c, err := file("multivector: {dim: 96}", "sie_server.adapters.colbert",
		"doc_punctuation_skiplist: false, skip_special_tokens: false",
		"muvera: {}, smve: {}, output_types: [dense, sparse], output_similarity: {dense: dot, sparse: dot}")
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Resolve("x")
	if err != nil {
		t.Fatal(err)
	}
	l := r.Loadtime
	if l.SkipPunctuation == nil || *l.SkipPunctuation || l.SkipSpecialTokens == nil || *l.SkipSpecialTokens ||
		r.Dims["dense"] != 10240 || r.Dims["sparse"] != 65536 {
		t.Errorf("%+v, dims %v", l, r.Dims)
	}
	if _, err := file("sparse: {dim: 30522}", "sie_server_rust.adapters.candle", "",
		"pooling: splade"); err != nil {
		t.Error(err)
	}
	if _, err := file("dense: {dim: 8}", "sie_server_rust.adapters.candle", "",
		"pooling: splade"); err == nil || !strings.Contains(err.Error(), "sparse vectors") {
		t.Errorf("splade as the pooling of dense vectors: %v", err)
	}
	if _, err := file("dense: {dim: 8}", "sie_server.adapters.bert_flash", "",
		"output_similarity: {dense: 3}"); err == nil ||
		!strings.Contains(err.Error(), "dense: expected a string") {
		t.Errorf("a number as a similarity: %v", err)
	}
	if c, err = file("dense: {dim: 8}", "sie_server.adapters.bert_flash", "", ""); err != nil {
		t.Fatal(err)
	}
	if r, err = c.Resolve("x"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Options(OpEncode, map[string]any{"pooling": "splade"}); err == nil ||
		!strings.Contains(err.Error(), "options.pooling") {
		t.Errorf("a request for splade pooling: %v", err)
	}
	if r.Loadtime.MUVERA != nil {
		t.Error("an encoder of dense vectors folds")
	}
}
