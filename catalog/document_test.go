package catalog

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// What is read from a model's source again is the same model, for every built-in one, and for one
// without a file.
func TestSourcesReadBack(t *testing.T) {
	c, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	models := slices.Clone(c.Models())
	no := false
	for _, info := range []AdHocInfo{
		{HFID: "org/x"}, {WeightsPath: "/a b/ü", Family: FamilyColBERT, Dim: 3, MaxSequenceLength: 7},
		{HFID: "org/x", Revision: "main", Family: FamilyCrossEncoder, Precision: "float16",
			MaxBatchTokens: 9},
		{HFID: "x", Family: FamilyTagger},
		{HFID: "x", Family: FamilyMultiFunction, Normalize: &no, Pooling: "cls"},
	} {
		m, err := AdHoc("test/adhoc", info)
		if err != nil {
			t.Fatal(err)
		}
		moved, err := m.WithWeights("/other")
		if err != nil {
			t.Fatal(err)
		}
		models = append(models, m, moved)
	}
	for _, m := range models {
		for _, src := range [][]byte{m.Source(), Text(m.Document())} {
			got, _, err := ParseModel(m.File, src)
			if err != nil {
				t.Errorf("%s: %v\n%s", m.ID, err, src)
				continue
			}
			want := *m
			got.source, want.source = nil, nil
			byName := func(a, b Profile) int { return strings.Compare(a.Name, b.Name) }
			want.Profiles = slices.Clone(want.Profiles)
			slices.SortFunc(want.Profiles, byName)
			slices.SortFunc(got.Profiles, byName)
			for i := range want.Profiles { // an absent map is an empty one
				for _, p := range []*Profile{&want.Profiles[i], &got.Profiles[i]} {
					if len(p.Runtime) == 0 {
						p.Runtime = nil
					}
					if len(p.Loadtime) == 0 {
						p.Loadtime = nil
					}
				}
			}
			if !reflect.DeepEqual(*got, want) {
				t.Errorf("%s:\n got %+v\nwant %+v\n%s", m.ID, *got, want, src)
			}
		}
	}
}

const baked = `sie_id: org/a
hf_id: org/a
tasks: {encode: {dense: {dim: 4}}}
profiles:
  default: {adapter_path: "sie_server.adapters.bert_flash:A", max_batch_tokens: 8,
    adapter_options: {runtime: {query_template: "q {text}"}}}
`

// A document adds profiles to a built-in model and keeps its own ones, in the model's hash too
// (weak point 19).
func TestMergeKeepsWhatIsThere(t *testing.T) {
	c := load(t, baked)
	b := &Bundle{Name: "b", Adapters: []string{"sie_server.adapters.bert_flash"}}
	before := c.Models()[0].ConfigHash(b)
	const fast = "profiles: {fast: {extends: default, max_batch_tokens: 9}}"
	got, err := Merge(c, Document{"api", []byte("sie_id: org/a\npool: p\n" + fast)},
		Document{"api", []byte("sie_id: org/a\n" + fast)},
		Document{"new", []byte(strings.ReplaceAll(baked, "org/a", "org/b"))})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, r := range got.List() {
		ids = append(ids, r.ID)
	}
	if want := []string{"org/a", "org/a:fast", "org/b"}; !slices.Equal(ids, want) {
		t.Errorf("ids %v, want %v", ids, want)
	}
	m := got.Models()[0]
	if m.Pool != "p" || m.Profile("default").MaxBatchTokens != 8 || m.HFID != "org/a" {
		t.Errorf("%+v", m)
	}
	if r, err := got.Resolve("org/a:fast"); err != nil || r.MaxBatchTokens != 9 ||
		r.Runtime.Raw["query_template"] != "q {text}" {
		t.Errorf("%+v %v", r, err)
	}
	if len(c.Models()) != 1 || c.Models()[0].ConfigHash(b) != before || m.ConfigHash(b) == before {
		t.Error("the catalog of before changed, or the model's hash did not")
	}
	again, err := Merge(c, Document{"whole", m.Source()})
	if err != nil || again.Models()[0].ConfigHash(b) != m.ConfigHash(b) {
		t.Errorf("the merged source gives another model: %v", err)
	}
}

// What contradicts the catalog is refused by name, and so is what is no model.
func TestMergeRefusesWhatContradicts(t *testing.T) {
	c := load(t, baked)
	const of = "sie_server.adapters.bert_flash:A"
	for _, x := range []struct{ src, want string }{
		{"sie_id: org/a\nhf_id: org/x\npool: p\nprofiles: {}", "fields hf_id"},
		{"sie_id: org/a\nprofiles: {default: {adapter_path: '" + of + "', max_batch_tokens: 9}}",
			"profiles default"},
		{"sie_id: org/a\nmax_sequence_length: 4\ntasks: {score: {}}\nprofiles: {default: {}}",
			"fields tasks; profiles default"},
		{"sie_id: org/a\nprofiles: {x: {extends: nope}}", "nope"},
		{"sie_id: org/a\nnonsense: 1", "nonsense"},
		{"sie_id: org/b\nprofiles: {}", "tasks"},
		{"- a", "map"},
		{"sie_id: [", "not valid YAML"},
		{"", "api:1"},
		{"sie_id: org/a\nprofiles: 3", "fields profiles"},
	} {
		got, err := Merge(c, Document{"api", []byte(x.src)})
		if err == nil || !strings.Contains(err.Error(), x.want) || got != nil {
			t.Errorf("%q: %v, want %s", x.src, err, x.want)
		}
		var conflict *ConflictError
		named := strings.Contains(x.want, "fields ") || strings.Contains(x.want, "profiles ")
		if errors.As(err, &conflict) != named {
			t.Errorf("%q: %T", x.src, err)
		}
	}
}
