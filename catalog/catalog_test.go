package catalog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// TestBuiltinCatalog compares every shipped id with testdata/catalog.golden. The table states the
// models' published facts and is not generated from the YAML.
func TestBuiltinCatalog(t *testing.T) {
	c, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Warnings()) > 0 {
		t.Errorf("warnings: %v", c.Warnings())
	}
	raw, err := os.ReadFile("testdata/catalog.golden")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		if line = strings.TrimRight(line, "\n"); line != "" && !strings.HasPrefix(line, "#") {
			id, rest, _ := strings.Cut(line, " | ")
			want[id] = rest
		}
	}
	for _, r := range c.List() {
		w, ok := want[r.ID]
		if !ok {
			t.Errorf("%s is not in the golden table", r.ID)
			continue
		}
		delete(want, r.ID)
		if got := summary(r); got != w {
			t.Errorf("%s\n got %s\nwant %s", r.ID, got, w)
		}
	}
	for id := range want {
		t.Errorf("%s is not in the catalog", id)
	}
}

// summary returns a line of the golden table without the id.
func summary(r *Resolved) string {
	var outs []string
	for _, o := range r.Outputs {
		if d, ok := r.Dims[o]; ok {
			o = fmt.Sprintf("%s %d", o, d)
		}
		outs = append(outs, o)
	}
	cols := []string{string(r.Family), strings.Join(outs, "+"), fmt.Sprintf("len %d", r.MaxSequenceLength),
		fmt.Sprintf("batch %d", r.MaxBatchTokens)}
	if r.Precision != "" {
		cols = append(cols, string(r.Precision))
	}
	if r.Runtime.Pooling != "" {
		cols = append(cols, string(r.Runtime.Pooling))
	}
	if r.Runtime.Normalize != nil {
		cols = append(cols, map[bool]string{true: "norm", false: "no-norm"}[*r.Runtime.Normalize])
	}
	for name, tm := range map[string]*Template{"Q": r.Runtime.QueryTemplate, "D": r.Runtime.DocTemplate} {
		if tm != nil {
			cols = append(cols, name+"="+strings.ReplaceAll(tm.String(), "\n", "⏎"))
		}
	}
	slices.Sort(cols[4:])
	for _, e := range []struct {
		name string
		n    int
	}{{"q", r.Runtime.QueryMaxLength}, {"n", r.Runtime.MaxSeqLength}, {"qL", r.Loadtime.QueryMaxLength},
		{"dL", r.Loadtime.DocMaxLength}} {
		if e.n > 0 {
			cols = append(cols, fmt.Sprintf("%s=%d", e.name, e.n))
		}
	}
	if r.Loadtime.QueryPrefix != "" {
		cols = append(cols, "QP="+r.Loadtime.QueryPrefix, "DP="+r.Loadtime.DocPrefix)
	}
	for name, b := range map[string]*bool{"expand": r.Loadtime.QueryExpansion} {
		if b != nil {
			cols = append(cols, fmt.Sprintf("%s=%v", name, *b))
		}
	}
	if a := r.Loadtime.AttendToExpansion; a != nil {
		cols = append(cols, fmt.Sprintf("attend=%v", *a))
	}
	if m := r.Loadtime.MUVERA; m != nil {
		cols = append(cols, fmt.Sprintf("R%d/p%d", m.Repetitions, m.ProjectionDim))
		if m.CenterTokens {
			cols = append(cols, "centre")
		}
	}
	if i := r.Runtime.DefaultInstruction; i != nil {
		cols = append(cols, "I="+*i)
	}
	if i := r.Runtime.Instruction; i != nil {
		cols = append(cols, "i="+*i)
	}
	for _, m := range r.Members {
		cols = append(cols, fmt.Sprintf("member %s at %s", m.HFID, m.Revision[:7]))
	}
	if r.Runtime.LoRAID != "" {
		cols = append(cols, "lora="+r.Runtime.LoRAID)
	}
	if len(r.Runtime.OutputTypes) > 0 {
		cols = append(cols, fmt.Sprint("out=", r.Runtime.OutputTypes))
	}
	if e := r.AdaptiveBatching.Enabled; e != nil {
		cols = append(cols, fmt.Sprintf("adaptive=%v", *e))
	}
	if slices.Contains(r.Outputs, outJSON) && r.Family != FamilyZeroShot {
		for _, key := range sortedKeys(r.Runtime.Raw) {
			cols = append(cols, fmt.Sprintf("%s=%v", key, r.Runtime.Raw[key]))
		}
	}
	if j := r.Judging(); r.Family == FamilyCausalReranker {
		cols = append(cols,
			fmt.Sprintf("asks %s, %s/%s, probability=%v", j.Format, j.Yes, j.No, j.Probability))
		if i := r.Loadtime.DefaultInstruction; i != nil {
			cols = append(cols, "I="+*i)
		}
	}
	if r.Revision != "" {
		cols = append(cols, "at "+r.Revision[:7])
	}
	return strings.Join(cols, " | ")
}

// notPinned are the models for which release 0.10.1 of the reference pins no commit. Nobody here
// knows one that was checked, so they are served from the default branch of their repositories.
var notPinned = []string{
	"BAAI/bge-base-en-v1.5", "BAAI/bge-large-en-v1.5", "BAAI/bge-small-zh-v1.5", "WhereIsAI/UAE-Large-V1",
	"answerdotai/ModernBERT-base", "answerdotai/ModernBERT-large", "jinaai/jina-embeddings-v2-base-code",
	"jinaai/jina-embeddings-v2-base-de", "jinaai/jina-embeddings-v2-base-en",
	"jinaai/jina-embeddings-v2-base-es", "jinaai/jina-embeddings-v2-base-zh",
	"jinaai/jina-embeddings-v2-small-en", "nomic-ai/nomic-embed-text-v1.5",
	"thenlper/gte-base", "thenlper/gte-large", "thenlper/gte-small",
}

// TestBuiltinFiles checks the rules that every shipped file must follow, whatever the golden table
// says.
func TestBuiltinFiles(t *testing.T) {
	c, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range c.Models() {
		if want := "catalog/models/" + strings.ReplaceAll(m.ID, "/", "__") + ".yaml"; m.File != want {
			t.Errorf("%s is in %s, want %s", m.ID, m.File, want)
		}
		union := m.ID == "superlinked/pii-redact" // which is one of others' models
		if pinned := isCommit(m.HFRevision); pinned == slices.Contains(notPinned, m.ID) {
			t.Errorf("%s: revision %q", m.ID, m.HFRevision)
		}
		if m.HFID != m.ID && !union {
			t.Errorf("%s takes its weights from %s", m.ID, m.HFID)
		}
	}
	for _, r := range c.List() {
		ok, _ := r.Family.Served()
		if err := r.Usable(); (err == nil) != ok {
			t.Errorf("%s: family %s served %v, usable %v", r.ID, r.Family, ok, err)
		}
		// GLiNER's own file says how many words it reads at once
		if r.MaxSequenceLength == 0 && r.Family != FamilySpanExtractor || len(r.Inputs) != 1 {
			t.Errorf("%s: length %d, inputs %v", r.ID, r.MaxSequenceLength, r.Inputs)
		}
	}
}

func TestBuiltinBundles(t *testing.T) {
	c, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	bs, err := BuiltinBundles()
	if err != nil {
		t.Fatal(err)
	}
	def, err := bs.ByName("default")
	if err != nil || !def.Default || def.Priority != 10 || bs[0] != def {
		t.Fatalf("default bundle %+v, %v", def, err)
	}
	if got := c.InBundle(def); got.Len() != c.Len() {
		t.Errorf("the default bundle serves %d of %d ids", got.Len(), c.Len())
	}
	for _, f := range families { // else a model of the family would have no lane in a cluster
		for _, name := range f.adapters {
			a := AdapterPath{Module: "sie_server.adapters." + name}
			if f.reason == "" && !def.Carries(a) {
				t.Errorf("the default bundle lacks %s", a.Module)
			}
		}
	}
	candle, err := bs.ByName("candle")
	if err != nil {
		t.Fatal(err)
	}
	got := c.InBundle(candle)
	if got.Len() != 49 || candle.Engine != "candle" { // 16 candle-only models twice, 17 others as a variant
		t.Errorf("candle serves %v", ids(got))
	}
	for _, r := range got.List() {
		if r.Adapter.Class != "CandleEmbeddingAdapter" {
			t.Errorf("candle serves %s", r.ID)
		}
	}
	if c.BundleConfigHash(def) == "" || c.BundleConfigHash(def) == c.BundleConfigHash(candle) ||
		bs.Hash() == "" {
		t.Error("hashes do not tell bundles apart")
	}
	if _, err := bs.ByName("nope"); err == nil ||
		err.Error() != "bundle 'nope' not found. Available: ['candle', 'default', 'gliner']" {
		t.Errorf("got %v", err)
	}
}

func TestConfigHashFollowsInheritance(t *testing.T) {
	bundle := &Bundle{Adapters: []string{"sie_server.adapters.colbert"}}
	hash := func(src string) string { return load(t, src).BundleConfigHash(bundle) }
	base := hash(family)
	for name, c := range map[string]struct {
		from, to string
		same     bool
	}{
		"parent's options reach children": {"query_max_length: 32", "query_max_length: 33", false},
		"revision":                        {"hf_revision: v2", "hf_revision: v3", false},
		"spelled-out inheritance": {"  adaptive: {extends: default, ",
			"  adaptive: {extends: default, max_batch_tokens: 8192, ", true},
		"profile outside the bundle": {"max_batch_tokens: 100,", "max_batch_tokens: 101,", true},
		"not hashed":                 {"target_p50_ms: 40", "target_p50_ms: 41", true},
	} {
		if strings.Count(family, c.from) != 1 {
			t.Fatalf("%s: ambiguous", name)
		}
		if got := hash(strings.Replace(family, c.from, c.to, 1)); (got == base) != c.same {
			t.Errorf("%s: same %v, want %v", name, got == base, c.same)
		}
	}
}

func TestResolveErrors(t *testing.T) {
	c, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{
		"BAAI/bge-base-en-v1":                     "Model 'BAAI/bge-base-en-v1' not found Did you mean 'BAAI/bge-base-en-v1.5', 'BAAI/bge-large-en-v1.5', 'BAAI/bge-small-en-v1.5'?",
		"all-MiniLM-L6-v2":                        "Model 'all-MiniLM-L6-v2' not found Did you mean 'sentence-transformers/all-MiniLM-L6-v2', 'cross-encoder/ms-marco-MiniLM-L-6-v2', 'cross-encoder/ms-marco-MiniLM-L-12-v2'?",
		"sentence-transformers/all-minilm-l6-v2":  "Model 'sentence-transformers/all-minilm-l6-v2' not found Did you mean 'sentence-transformers/all-MiniLM-L6-v2'?",
		"sentence-transformers__all-MiniLM-L6-v2": "Model 'sentence-transformers__all-MiniLM-L6-v2' not found Did you mean 'sentence-transformers/all-MiniLM-L6-v2'?",
		"colbert-ir/colbertv2.0:muvra":            "Model 'colbert-ir/colbertv2.0:muvra' not found Did you mean 'colbert-ir/colbertv2.0:muvera', 'colbert-ir/colbertv2.0', 'jinaai/jina-colbert-v2:muvera'?",
		"":                                        "Model '' not found",
		"zzzzzz":                                  "Model 'zzzzzz' not found",
		strings.Repeat("x", 300):                  "Model '" + strings.Repeat("x", 80) + "…' not found",
	} {
		_, err := c.Resolve(id)
		var nf *NotFoundError
		if !errors.As(err, &nf) || err.Error() != want {
			t.Errorf("%.40q: got %v, want %s", id, err, want)
		}
	}
	for in, want := range map[string]string{
		"sentence-transformers__all-MiniLM-L6-v2":        "sentence-transformers/all-MiniLM-L6-v2",
		"sentence-transformers__all-MiniLM-L6-v2:candle": "sentence-transformers/all-MiniLM-L6-v2:candle",
		"sentence-transformers/all-MiniLM-L6-v2":         "sentence-transformers/all-MiniLM-L6-v2",
		"prithivida__Splade_PP_en_v2":                    "prithivida/Splade_PP_en_v2",
	} {
		if r, err := c.ResolveOpenAI(in); err != nil || r.ID != want {
			t.Errorf("%s: got %v, %v", in, r, err)
		}
	}
	for in, want := range map[string]string{
		"a__b__c": "a/b__c", "a/b__c": "a/b__c", "__b": "__b", "a__": "a__", "a_b": "a_b",
	} {
		if got := DecodeID(in); got != want {
			t.Errorf("DecodeID(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestSelect(t *testing.T) {
	c := load(t, family, good)
	for _, s := range []struct {
		list    string
		want    []string
		missing []string
	}{
		{"acme/mini", []string{"acme/mini", "acme/mini:fast"}, nil},
		{" acme/mini:fast, acme/family:muvera ,,acme/mini:fast",
			[]string{"acme/family:muvera", "acme/mini:fast"}, nil},
		{"acme/mini:fast,acme/mini", []string{"acme/mini", "acme/mini:fast"}, nil},
		{"acme/mini:slow,./dir,acme/Mini", nil, []string{"acme/mini:slow", "./dir", "acme/Mini"}},
		{"", nil, nil},
	} {
		got, missing := c.Select(ParseModelList(s.list))
		if !slices.Equal(ids(got), s.want) || !slices.Equal(missing, s.missing) {
			t.Errorf("%q: got %v, missing %v", s.list, ids(got), missing)
		}
		if len(s.want) > 0 {
			if _, err := got.Resolve(s.want[0]); err != nil {
				t.Error(err)
			}
		}
		if _, err := got.Resolve("acme/family"); err == nil {
			t.Errorf("%q: an unselected id resolves", s.list)
		}
	}
}

func TestWith(t *testing.T) {
	c := load(t, family, good)
	small, _ := c.Select([]string{"acme/mini:fast"})
	m, err := AdHoc("acme/new", AdHocInfo{HFID: "acme/new", Dim: 7})
	if err != nil {
		t.Fatal(err)
	}
	more, err := small.With(m)
	if err != nil || !slices.Equal(ids(more), []string{"acme/mini:fast", "acme/new"}) || small.Len() != 1 {
		t.Errorf("got %v, %v; before %v", ids(more), err, ids(small))
	}
	again, err := AdHoc("acme/new", AdHocInfo{HFID: "acme/new", Dim: 8})
	if err != nil {
		t.Fatal(err)
	}
	replaced, err := more.With(again)
	if err != nil || replaced.Len() != 2 || len(replaced.Models()) != 2 ||
		resolve(t, replaced, "acme/new").Dims["dense"] != 8 {
		t.Errorf("got %v, %v", ids(replaced), err)
	}
	if resolve(t, more, "acme/new").Dims["dense"] != 7 {
		t.Error("the earlier catalog changed")
	}
	if _, err := c.With(m, again); err == nil {
		t.Error("one id given twice was accepted")
	}
}

func TestAdHoc(t *testing.T) {
	yes := true
	tm, err := ParseTemplate("q: {text}")
	if err != nil {
		t.Fatal(err)
	}
	m, err := AdHoc("local", AdHocInfo{
		WeightsPath:        "/models/x",
		MaxSequenceLength:  128,
		Pooling:            PoolingCLS,
		Normalize:          &yes,
		QueryTemplate:      tm,
		DefaultInstruction: "do",
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := load(t).With(m)
	if err != nil {
		t.Fatal(err)
	}
	r := resolve(t, c, "local")
	if r.Usable() != nil || r.WeightsKey != "path:/models/x" || r.MaxBatchTokens != 16384 ||
		r.Runtime.Pooling != PoolingCLS || !*r.Runtime.Normalize ||
		r.Runtime.QueryTemplate.String() != "q: {text}" || *r.Runtime.DefaultInstruction != "do" ||
		r.Runtime.DocTemplate != nil {
		t.Errorf("got %+v", r)
	}
	if _, known := r.Dims["dense"]; known || !slices.Equal(r.Outputs, []string{"dense"}) {
		t.Errorf("dims %v, outputs %v", r.Dims, r.Outputs)
	}
	for name, c := range map[string]struct {
		id   string
		info AdHocInfo
		want string
	}{
		"id":      {"a b", AdHocInfo{HFID: "a/b"}, `model id: must not contain ' '; got "a b"`},
		"nowhere": {"a", AdHocInfo{}, "give either a hub repository or a directory with the weights"},
		"both": {"a", AdHocInfo{HFID: "a", WeightsPath: "b"},
			"give either a hub repository or a directory with the weights"},
		"hub id": {"a", AdHocInfo{HFID: "../a"}, `expected a hub repository such as "org/name", got "../a"`},
		"revision": {"a", AdHocInfo{HFID: "a", Revision: "a b"},
			`revision: expected a branch, tag or commit, got "a b"`},
		"dim": {"a", AdHocInfo{HFID: "a", Dim: -1}, "dimension must be between 0 and 1048576; got -1"},
	} {
		if _, err := AdHoc(c.id, c.info); err == nil || err.Error() != c.want {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
	for in, want := range map[string]string{
		"/m/my model/": "my-model",
		"./x_1.2":      "x_1.2",
		"/":            "model",
		"..":           "model",
		`C:\m\n`:       "n",
		"/m/é:x":       "--x",
	} {
		if got := AdHocID(in); got != want {
			t.Errorf("AdHocID(%q) = %q, want %q", in, got, want)
		}
	}
	for in, want := range map[string]bool{
		"/m":        true,
		"./m":       true,
		"../m":      true,
		"~/m":       true,
		".":         true,
		"m":         false,
		"org/m":     false,
		".hidden/m": false,
	} {
		if IsPath(in) != want {
			t.Errorf("IsPath(%q) is %v", in, !want)
		}
	}
}

func TestLoadDir(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := LoadDir(dir); err != nil || c.Len() != 0 {
		t.Errorf("empty directory: %v, %v", c, err)
	}
	write("good.yaml", good)
	write("notes.txt", "not: [yaml")
	write(".hidden.yaml", "not: [yaml")
	write("other.yml", "not: [yaml")
	if err := os.Mkdir(filepath.Join(dir, "sub.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	if c, err := LoadDir(dir); err != nil || !slices.Equal(ids(c), []string{"acme/mini", "acme/mini:fast"}) {
		t.Errorf("got %v, %v", c, err)
	}
	write("bad1.yaml", strings.Replace(good, "dim: 384", "dim: x", 1))
	write("bad2.yaml", "- x\n")
	_, err := LoadDir(dir)
	slash := filepath.ToSlash(dir)
	want := slash + `/bad1.yaml:6: tasks.encode.dense.dim: expected a whole number, got the string "x"` +
		"\n" + slash + "/bad2.yaml:1: expected a map, got a list"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	write("bad1.yaml", good)
	write("bad2.yaml", family)
	if _, err = LoadDir(dir); err == nil || err.Error() != slash+
		`/good.yaml:1: sie_id: model "acme/mini" is already defined by `+slash+"/bad1.yaml" {
		t.Errorf("repeated id: %v", err)
	}
	if _, err := LoadDir(filepath.Join(dir, "nope")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing directory: %v", err)
	}
	if _, err := LoadDir(filepath.Join(dir, "good.yaml")); err == nil ||
		!strings.HasSuffix(err.Error(), "is not a directory") {
		t.Errorf("file for a directory: %v", err)
	}
}

func TestLoadSeveral(t *testing.T) {
	one := fstest.MapFS{"a.yaml": {Data: []byte(good)}}
	two := fstest.MapFS{"b.yaml": {Data: []byte(family)}}
	c, err := Load(one, two)
	if err != nil || len(c.Models()) != 2 {
		t.Errorf("got %v, %v", c, err)
	}
	if _, err := Load(one, one); err == nil ||
		err.Error() != `a.yaml:1: sie_id: model "acme/mini" is already defined by a.yaml` {
		t.Errorf("got %v", err)
	}
}

// A directory with hundreds of problems lists a bounded number of them.
func TestLoadBoundsProblems(t *testing.T) {
	fsys := fstest.MapFS{}
	var bad strings.Builder
	for i := range 40 {
		fmt.Fprintf(&bad, "wrong%d: 1\n", i)
	}
	for i := range 20 {
		fsys[fmt.Sprintf("%02d.yaml", i)] = &fstest.MapFile{Data: []byte(bad.String())}
	}
	_, err := Load(fsys)
	var p *Problems
	if !errors.As(err, &p) || len(p.List) != maxProblems || len(p.List)+p.More != 20*44 {
		t.Fatalf("got %d problems and %d more", len(p.List), p.More)
	}
}

func TestBundleFiles(t *testing.T) {
	const ok = "name: x\npriority: 7\nadapters: [a.b]\ndeps: {torch: \">=2\", y: {version: \"1\", marker: m}}\n"
	b, err := ParseBundle("b.yaml", []byte(ok))
	if err != nil || b.Name != "x" || b.Priority != 7 || b.Default ||
		!b.Carries(AdapterPath{Module: "a.b"}) || b.Carries(AdapterPath{Module: "a"}) {
		t.Errorf("got %+v, %v", b, err)
	}
	if b, err := ParseBundle("b.yaml", []byte("name: x\nadapters: []\n")); err != nil || b.Priority != 50 {
		t.Errorf("got %+v, %v", b, err)
	}
	for src, want := range map[string]string{
		"name: x\nadapter: [a]\n":                  "b.yaml:1: adapters: required key is missing\nb.yaml:2: adapter: unknown key; did you mean \"adapters\"?",
		"adapters: [a]\n":                          "b.yaml:1: name: required key is missing",
		"name: x\nadapters: a\n":                   "b.yaml:2: adapters: expected a list of strings, got the string \"a\"",
		"name: x\nadapters:\n- a\n- 1\n":           "b.yaml:4: adapters[1]: expected a non-empty string, got the number 1",
		"name: x\npriority: 1.5\nadapters: []\n":   "b.yaml:2: priority: expected a whole number, got the number 1.5",
		"name: x\nengine: pytroch\nadapters: []\n": "b.yaml:2: engine: must be pytorch or candle; got \"pytroch\"",
		"name: a b\nadapters: []\n":                "b.yaml:1: name: a bundle name has letters, digits, '.', '_' and '-'; got \"a b\"",
		"":                                         "b.yaml:1: the file holds no YAML document",
	} {
		if _, err := ParseBundle("b.yaml", []byte(src)); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", src, err, want)
		}
	}
	// The reference's own hash of this bundle. The engine is part of the hash, and a bundle without
	// an engine has pytorch.
	const vector, one = "d8311b2d7c297335c0b93792a9e27cfde08843b17eeef4db9a8dff1da64df7b9",
		"name: default\npriority: 10\nadapters: [mod.a]\n"
	for src, same := range map[string]bool{
		one: true, one + "engine: pytorch\n": true, one + "engine: candle\n": false,
	} {
		if b, err := ParseBundle("b.yaml", []byte(src)); err != nil || (Bundles{b}.Hash() == vector) != same {
			t.Errorf("%q: %v, %+v", src, err, b)
		}
	}
	bs, err := LoadBundles(fstest.MapFS{
		"1.yaml": {Data: []byte("name: z\npriority: 1\nadapters: []\n")},
		"2.yaml": {Data: []byte("name: b\nadapters: []\n")},
		"3.yaml": {Data: []byte("name: a\nadapters: []\n")},
	})
	if err != nil || bs[0].Name != "z" || bs[1].Name != "a" || bs[2].Name != "b" {
		t.Errorf("got %v, %v", bs, err)
	}
	if _, err := LoadBundles(fstest.MapFS{
		"1.yaml": {Data: []byte(ok)}, "2.yaml": {Data: []byte(ok)},
	}); err == nil || err.Error() != `2.yaml:1: name: bundle "x" is already defined by 1.yaml` {
		t.Errorf("got %v", err)
	}
}
