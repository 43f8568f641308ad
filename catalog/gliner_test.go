package catalog

import (
	"slices"
	"testing"
)

// withLabels are the families of models whose labels a request names.
var withLabels = []Family{FamilySpanExtractor, FamilyUnion, FamilyClassifier, FamilyZeroShot}

// The bundle gliner serves every model that a request gives its labels, and no other. The default
// bundle serves them too, and is preferred.
func TestGLiNERBundle(t *testing.T) {
	c, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	bs, err := BuiltinBundles()
	if err != nil {
		t.Fatal(err)
	}
	b, err := bs.ByName("gliner")
	if err != nil {
		t.Fatal(err)
	}
	if bs[0].Name != "default" || b.Default || b.Engine != "" {
		t.Errorf("%s is preferred to %+v", bs[0].Name, b)
	}
	got := c.InBundle(b)
	for _, r := range c.List() {
		if _, err := got.Resolve(r.ID); (err == nil) != slices.Contains(r.Outputs, outJSON) {
			t.Errorf("gliner and %s: %v", r.ID, err)
		}
	}
	if got.Len() < 40 {
		t.Errorf("gliner serves %d ids", got.Len())
	}
	for _, f := range families {
		for _, name := range f.adapters {
			a := AdapterPath{Module: "sie_server.adapters." + name}
			if want := slices.Contains(withLabels, f.name); f.reason == "" && b.Carries(a) != want {
				t.Errorf("gliner carries %s: %v", name, !want)
			}
		}
	}
}

// Each family of extraction takes the options that have an effect on its models, and refuses the
// others by name.
func TestOptionsOfExtraction(t *testing.T) {
	c, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	every := []string{"is_query", "lora_id", "max_seq_length", "overflow_policy", "profile"}
	for id, own := range map[string][]string{
		"urchade/gliner_small-v2.1": {"flat_ner", "merge_adjacent_entities", "multi_label",
			"precompute_labels", "relation_labels", "relation_threshold", "threshold"},
		"knowledgator/gliclass-base-v3.0": {"classification_type", "cuda_graphs", "examples",
			"group_encoding", "label_groups", "threshold"},
		"MoritzLaurer/deberta-v3-base-zeroshot-v2.0": {"hypothesis_template", "multi_label", "threshold",
			"top_k"},
	} {
		r, err := c.Resolve(id)
		if err != nil {
			t.Error(err)
			continue
		}
		var got []string
		for key := range optionUses {
			if r.applies(OpExtract, key) {
				got = append(got, key)
			} else if err := r.checkUse(OpExtract, map[string]any{key: "x"}); err == nil {
				t.Errorf("%s takes %s, which has no effect", id, key)
			}
		}
		slices.Sort(got)
		if want := slices.Sorted(slices.Values(slices.Concat(own, every))); !slices.Equal(got, want) {
			t.Errorf("%s takes %v, want %v", id, got, want)
		}
	}
}

// The hash of the bundle is what Python computes of the same documents, with what profiles inherit.
func TestGLiNERBundleHash(t *testing.T) {
	const names = `sie_id: acme/names
hf_id: acme/names
hf_revision: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
tasks: {extract: {}}
profiles:
  default:
    adapter_path: sie_server.adapters.gliner:GLiNERAdapter
    max_batch_tokens: 16384
    adapter_options: {runtime: {merge_adjacent_entities: true, threshold: 0.75}}
`
	const classes = `sie_id: acme/classes
hf_id: acme/classes
tasks: {extract: {}}
max_sequence_length: 1024
profiles:
  default:
    adapter_path: sie_server.adapters.gliclass:GLiClassAdapter
    max_batch_tokens: 16384
    adapter_options:
      loadtime: {classification_type: single-label, cuda_graphs: bucketed}
      runtime: {threshold: 0.0}
  multi-label:
    extends: default
    adapter_options:
      runtime: {classification_type: multi-label, threshold: 0.0}
`
	const vectors = `sie_id: acme/vectors
hf_id: acme/vectors
tasks: {encode: {dense: {dim: 8}}}
max_sequence_length: 8
profiles:
  default: {adapter_path: "sie_server.adapters.bert_flash:X", max_batch_tokens: 8}
`
	bs, err := BuiltinBundles()
	if err != nil {
		t.Fatal(err)
	}
	b, err := bs.ByName("gliner")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := load(t, names, classes, vectors).BundleConfigHash(b), readPython(t).Bundle; got != want {
		t.Errorf("the hash is %s; Python's %s", got, want)
	}
}
