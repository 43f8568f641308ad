package confighash

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// golden is the content of testdata/python.json, which testdata/golden.py writes.
type golden struct {
	Values []struct {
		Value json.RawMessage
		UTF8  string
		ASCII string
	}
	Configs map[string]string
}

func readGolden(t *testing.T) golden {
	t.Helper()
	raw, err := os.ReadFile("testdata/python.json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(raw, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Values) < 30 || len(g.Configs) != 3 {
		t.Fatalf("golden file has %d values and %d configs", len(g.Values), len(g.Configs))
	}
	return g
}

// value decodes JSON as the YAML reader does: whole numbers to int64, others to float64.
func value(t *testing.T, raw []byte) any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return numbers(t, v)
}

func numbers(t *testing.T, v any) any {
	switch x := v.(type) {
	case json.Number:
		if strings.ContainsAny(x.String(), ".eE") {
			f, err := x.Float64()
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		n, err := x.Int64()
		if err != nil {
			t.Fatal(err)
		}
		return n
	case []any:
		for i := range x {
			x[i] = numbers(t, x[i])
		}
	case map[string]any:
		for k := range x {
			x[k] = numbers(t, x[k])
		}
	}
	return v
}

func TestCanonicalEqualsPython(t *testing.T) {
	for _, c := range readGolden(t).Values {
		v := value(t, c.Value)
		if got := string(Canonical(v, UTF8)); got != c.UTF8 {
			t.Errorf("UTF8 %s: got %q, want %q", c.Value, got, c.UTF8)
		}
		if got := string(Canonical(v, ASCII)); got != c.ASCII {
			t.Errorf("ASCII %s: got %q, want %q", c.Value, got, c.ASCII)
		}
	}
}

func TestCanonicalGoTypes(t *testing.T) {
	got := string(Canonical(
		[]any{1, int32(2), uint32(3), uint64(1 << 63), float32(0.5), []string{"b", "a"}, "a\xffb"}, UTF8))
	if want := `[1,2,3,9223372036854775808,0.5,["b","a"],"a` + "\ufffd" + `b"]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	defer func() {
		if recover() == nil {
			t.Error("an unknown type was encoded")
		}
	}()
	Canonical(struct{}{}, UTF8)
}

// The vectors of the hash's earlier generation: the same canonical form over fewer fields.
func TestOlderVectors(t *testing.T) {
	older := func(path string, tokens int) map[string]any {
		return map[string]any{
			"adapter_path": path, "max_batch_tokens": tokens, "compute_precision": nil,
			"adapter_options": nil,
		}
	}
	two := []any{map[string]any{"sie_id": "org/base", "profiles": []any{
		map[string]any{"name": "default", "config": older("mod.a:A", 1)},
		map[string]any{"name": "fast", "config": older("mod.a:A", 2)},
	}}}
	one := []any{map[string]any{"sie_id": "test/model", "profiles": []any{
		map[string]any{
			"name": "default", "config": older("sie_server.adapters.bert_flash:BertAdapter", 8192),
		},
	}}}
	for _, c := range []struct {
		v    any
		want string
	}{
		{two, "0b7d29ce8fe2ab0a7c7ab3b6c39f56951eb60e71a2414745510607cc0355f16f"},
		{one, "c5d236ee93add8a0a6cbb6fa3a29069879e82b9ffbb6c987f3387982c9572748"},
	} {
		if got := sum(Canonical(c.v, UTF8)); got != c.want {
			t.Errorf("%s: got %s, want %s", Canonical(c.v, UTF8), got, c.want)
		}
	}
}

func TestBundles(t *testing.T) {
	one := []Bundle{{Name: "default", Priority: 10, Adapters: []string{"mod.a"}}}
	const want = "d8311b2d7c297335c0b93792a9e27cfde08843b17eeef4db9a8dff1da64df7b9"
	if got := Bundles(one); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	one[0].Engine = DefaultEngine
	if got := Bundles(one); got != want {
		t.Errorf("the default engine by its name hashes to %s, want %s", got, want)
	}
	one[0].Engine = "candle"
	if got := Bundles(one); got == want {
		t.Error("the engine does not reach the hash")
	}
	if got := Bundles(nil); got != "" {
		t.Errorf("no bundles hash to %q", got)
	}
	a := []Bundle{{"b", 2, []string{"y", "x"}, "candle"}, {"a", 1, nil, ""}}
	b := []Bundle{{"a", 1, nil, ""}, {"b", 2, []string{"x", "y"}, "candle"}}
	if Bundles(a) != Bundles(b) {
		t.Error("the order of bundles or adapters changes the hash")
	}
	if a[0].Name != "b" || a[0].Adapters[0] != "y" {
		t.Error("the input was reordered")
	}
}

// The reference's hash for a model with a revision and two profiles.
func TestBundleConfigVector(t *testing.T) {
	toy := Model{ID: "org/base", Revision: strings.Repeat("a", 40), Profiles: []Profile{
		{Name: "default", AdapterPath: "mod.a:A", MaxBatchTokens: 1},
		{Name: "fast", AdapterPath: "mod.a:A", MaxBatchTokens: 2}}}
	const want = "e14321b4f63d963296c9cc3fba6b25f71f5c99642dc8d22dbc48751f170df860"
	if got := BundleConfig([]Model{toy}, []string{"mod.a"}); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func models() []Model {
	return []Model{
		{ID: "org/b", Profiles: []Profile{{Name: "only", AdapterPath: "mod.b:B", MaxBatchTokens: 2}}},
		{ID: "org/a", Profiles: []Profile{
			{Name: "fast", AdapterPath: "mod.b:B", MaxBatchTokens: 1, ComputePrecision: "float16",
				Loadtime: map[string]any{"token_dim": int64(128), "ratio": 1.0},
				Runtime:  map[string]any{"doc_template": "<p> & {text}\u2028é"}},
			{Name: "default", AdapterPath: "mod.a:A", MaxBatchTokens: 8192, Loadtime: map[string]any{},
				Runtime: map[string]any{"pooling": "mean", "threshold": 0.5, "normalize": true}},
		}},
	}
}

func TestBundleConfigEqualsPython(t *testing.T) {
	want := readGolden(t).Configs
	rev := "0123456789abcdef0123456789abcdef01234567"
	plain := Profile{Name: "default", AdapterPath: "mod.a:A", MaxBatchTokens: 16384}
	precise := plain
	precise.ComputePrecision = "bfloat16"
	for name, got := range map[string]string{
		"plain": BundleConfig([]Model{{ID: "org/a", Profiles: []Profile{plain}}}, []string{"mod.a"}),
		"revision": BundleConfig([]Model{{ID: "org/a", Revision: rev, Profiles: []Profile{precise}}},
			[]string{"mod.a"}),
		"options": BundleConfig(models(), []string{"mod.b", "mod.a"}),
	} {
		if got != want[name] {
			t.Errorf("%s: got %s, want %s", name, got, want[name])
		}
	}
}

func TestBundleConfigScope(t *testing.T) {
	all := BundleConfig(models(), []string{"mod.a", "mod.b"})
	for name, c := range map[string]struct {
		models   []Model
		adapters []string
		same     bool
	}{
		"other bundle's adapters do not matter": {models(), []string{"mod.c", "mod.b", "mod.a"}, true},
		"one profile outside the bundle":        {models(), []string{"mod.b"}, false},
		"one model outside the bundle":          {models()[1:], []string{"mod.a", "mod.b"}, false},
		"module is compared whole":              {models(), []string{"mod.a", "mod.b", "mod"}, true},
	} {
		got := BundleConfig(c.models, c.adapters)
		if (got == all) != c.same || got == "" {
			t.Errorf("%s: %s against %s", name, got, all)
		}
	}
	for _, adapters := range [][]string{nil, {"mod"}, {"mod.a:A"}} {
		if got := BundleConfig(models(), adapters); got != "" {
			t.Errorf("adapters %v hash to %q, want none", adapters, got)
		}
	}
}

// Every field of a profile must reach the hash.
func TestBundleConfigFields(t *testing.T) {
	adapters := []string{"mod.a", "mod.b"}
	seen := map[string]string{BundleConfig(models(), adapters): "unchanged"}
	for name, change := range map[string]func(m *Model){
		"id":         func(m *Model) { m.ID += "x" },
		"revision":   func(m *Model) { m.Revision = "main" },
		"name":       func(m *Model) { m.Profiles[0].Name = "z" },
		"class":      func(m *Model) { m.Profiles[0].AdapterPath += "x" },
		"tokens":     func(m *Model) { m.Profiles[0].MaxBatchTokens++ },
		"precision":  func(m *Model) { m.Profiles[0].ComputePrecision = "float32" },
		"loadtime":   func(m *Model) { m.Profiles[0].Loadtime = map[string]any{"a": int64(1)} },
		"runtime":    func(m *Model) { m.Profiles[0].Runtime = map[string]any{"a": int64(1)} },
		"float type": func(m *Model) { m.Profiles[0].Runtime = map[string]any{"a": 1.0} },
	} {
		ms := models()
		change(&ms[0])
		h := BundleConfig(ms, adapters)
		if other, dup := seen[h]; dup {
			t.Errorf("%s hashes like %s", name, other)
		}
		seen[h] = name
	}
}

// The hash of the whole configuration is Python's json.dumps of it, in ASCII.
func TestBundleConfigsEqualsPython(t *testing.T) {
	const want = "50f75b8dec8fc49f9f2927106d9cdcd25b0307a0ef55ee5d9e9f8d53a4b3edb4"
	states := []BundleState{
		{Name: "b", Hash: "h2",
			Pools: slices.Values([][]byte{PoolPart("org/a", "default"), PoolPart("org/é", "team")})},
		{Name: "a"},
	}
	if got := BundleConfigs(states); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := BundleConfigs(nil); got != "" {
		t.Errorf("no bundles hash to %q", got)
	}
}

// What a document says is its hash, not how; one model whose document is not known makes that of
// all unknown.
func TestDocuments(t *testing.T) {
	text := Canonical(map[string]any{"sie_id": "org/é", "hf_id": "org/w"}, UTF8)
	const want = "d318794664fd7f4ae21d46e701bc4d5d2988b2a4cb7d8e20dad806c39f72c1cc" // sha256sum of the text
	if got := Document(text); got != want {
		t.Errorf("%s hashes to %s", text, got)
	}
	of := func(kv ...string) string {
		all := map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			all[kv[i]] = kv[i+1]
		}
		return Documents(all)
	}
	seen := map[string]bool{"": true}
	for _, h := range []string{
		of("a", "1"), of("a", "2"), of("b", "1"), of("a", "1", "b", "2"), of("a", "2", "b", "1"),
		of("a1", "1"),
	} {
		if seen[h] {
			t.Errorf("%q is twice", h)
		}
		seen[h] = true
	}
	if of("a", "1", "b", "2") != of("b", "2", "a", "1") || of() != "" || of("a", "1", "b", "") != "" {
		t.Error("the order matters, or what is not known has a hash")
	}
}
