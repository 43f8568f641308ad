package catalog

import (
	"slices"
	"strings"
	"testing"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

const memberList = "[{model: acme/two, revision: " + commit + ", options: {merge_adjacent_entities: true}}]"

const unionFile = `sie_id: acme/union
hf_id: acme/one
hf_revision: ` + commit + `
hf_tokenizer_dependencies: {acme/base: ` + commit + `}
tasks: {extract: {}}
max_sequence_length: 384
profiles:
  default:
    adapter_path: sie_server.adapters.gliner_union.adapter:GLiNERUnionAdapter
    max_batch_tokens: 100
    adapter_options:
      loadtime: {members: ` + memberList + `}
      runtime:
        {score_floor: 0.6, window_words: 300, window_overlap: 50, propagate_label: person,
         name_min_letters: 3, default_labels: [a, b]}
`

const memberFile = `sie_id: acme/own
hf_id: acme/two
hf_revision: ` + commit + `
weights_path: /somewhere
hf_tokenizer_dependencies: {acme/other: ` + commit + `}
tasks: {extract: {}}
profiles:
  default: {adapter_path: "sie_server.adapters.gliner:GLiNERAdapter", max_batch_tokens: 7, compute_precision: float32}
`

// A union has an entry for each of its models, its own weights' first, with the options that it
// sets.
func TestMembersOfAUnion(t *testing.T) {
	c := load(t, unionFile, memberFile)
	u, own := resolve(t, c, "acme/union"), resolve(t, c, "acme/own")
	if err := u.Usable(); err != nil || u.Family != FamilyUnion || len(u.Members) != 2 || own.Members != nil {
		t.Fatalf("%v: %+v", err, u)
	}
	one, two := u.Members[0], u.Members[1]
	for _, m := range u.Members {
		if m.Usable() != nil || m.Family != own.Family || m.Revision != commit || m.MaxBatchTokens != 100 ||
			m.Model.HFTokenizerDependencies["acme/base"] == "" {
			t.Errorf("%+v: %v", m, m.Usable())
		}
	}
	if one.HFID != "acme/one" || one.ID != "acme/one" || len(one.Loadtime.Raw) != 0 ||
		two.HFID != "acme/two" || two.Loadtime.Raw["merge_adjacent_entities"] != true ||
		two.WeightsKey != "hf:acme/two@"+commit {
		t.Errorf("%+v\n%+v", one, two)
	}
	if own.Offers(one) || !own.Offers(two) || u.Offers(one) {
		t.Error("whose weights a member takes")
	}
	got := two.With(own)
	if got.WeightsKey != own.WeightsKey || got.Model != own.Model || got.ID != "acme/own" ||
		got.Precision != "float32" || got.Loadtime != two.Loadtime || own.Loadtime == two.Loadtime {
		t.Errorf("%+v", got)
	}
	for name, change := range map[string][2]string{
		"another revision": {"hf_revision: 0", "hf_revision: 1"},
		"another adapter":  {"adapters.gliner:GLiNERAdapter", "adapters.gliclass:GLiClassAdapter"},
	} {
		other := resolve(t, load(t, strings.Replace(memberFile, change[0], change[1], 1)), "acme/own")
		if other.Offers(two) {
			t.Errorf("%s offers its weights", name)
		}
	}
	if _, err := AdHoc("x", AdHocInfo{HFID: "a/b", Family: FamilyUnion}); err == nil ||
		!strings.Contains(err.Error(), "needs a model file") {
		t.Errorf("a union without a model file: %v", err)
	}
	if bundles, err := BuiltinBundles(); err != nil || !slices.ContainsFunc(bundles, func(b *Bundle) bool {
		return b.Carries(u.Adapter)
	}) {
		t.Errorf("no bundle carries %s: %v", u.Adapter, err)
	}
}

// A member that cannot be is refused with the file's line, the key and what is wanted.
func TestMembersAreChecked(t *testing.T) {
	const pinned = "[{model: a/b, revision: " + commit
	for written, want := range map[string]string{
		"[]":                                      "a union has 1 to 15 besides its own",
		"acme/two":                                "expected a list of models",
		"[acme/two]":                              "model 0: expected a map of model, revision and options",
		"[{revision: " + commit + "}]":            "required key model is missing",
		"[{model: acme/two}]":                     "required key revision is missing",
		"[{model: a/b, revision: main}]":          "expected a commit of 40 hexadecimal digits",
		"[{model: a/b/c, revision: main}]":        "model: ",
		pinned + ", name: x}]":                    "unknown key; valid keys",
		pinned + ", options: 5}]":                 "options: expected a map",
		pinned + ", options: {top_k: 1}}]":        "cannot set \"top_k\"",
		pinned + ", options: {threshold: high}}]": "threshold: expected a number from 0 to 1",
	} {
		_, _, err := ParseModel("m.yaml", []byte(strings.Replace(unionFile, memberList, written, 1)))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "members") {
			t.Errorf("%s: %v; want %q", written, err, want)
		}
	}
	without := strings.Replace(unionFile, "loadtime: {members: "+memberList+"}", "loadtime: {}", 1)
	m, _, err := ParseModel("m.yaml", []byte(without))
	if err == nil {
		_, err = Of(m)
	}
	if err == nil || !strings.Contains(err.Error(), "in the load-time option members") {
		t.Errorf("no members: %v", err)
	}
	many := "[" + strings.Repeat("{model: a/b, revision: "+commit+"}, ", 16) + "]"
	_, _, err = ParseModel("m.yaml", []byte(strings.Replace(unionFile, memberList, many, 1)))
	if err == nil || !strings.Contains(err.Error(), "has 16 models") {
		t.Errorf("16 members: %v", err)
	}
}
