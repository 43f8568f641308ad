package catalog

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// Every option that a file may state has a home operation, and optionUses has no other options.
func TestEveryOptionIsUsedSomewhere(t *testing.T) {
	for key := range runtimeSpecs {
		if use := optionUses[key]; use.home == 0 || use.home&use.also != 0 {
			t.Errorf("option %s: at home in %b, also in %b", key, use.home, use.also)
		}
	}
	for key := range optionUses {
		if runtimeSpecs[key] == nil {
			t.Errorf("option %s is not checked", key)
		}
	}
}

// A client may send one dictionary with all its calls. Options of other operations are ignored and
// named. Options of the operation itself that have no effect on the model are refused, and so are
// unknown options.
func TestOptionsOfOtherOperations(t *testing.T) {
	model := func(f Family) *Resolved {
		m := &Resolved{
			ID: "m", Family: f, Runtime: &RuntimeOptions{}, Loadtime: &LoadtimeOptions{}, Model: &Model{},
		}
		if m.Usable() != nil {
			t.Fatalf("family %v is not served", f)
		}
		return m
	}
	for _, c := range []struct {
		op      Operation
		family  Family
		key     string
		value   any
		ignored bool
		refused string
	}{
		{OpEncode, FamilyDense, "normalize", true, false, ""},
		{OpEncode, FamilyDense, "threshold", 0.5, true, ""},
		{OpEncode, FamilyDense, "threshold", "not even a number", true, ""},
		{OpEncode, FamilyDense, "score_mode", "hybrid", true, ""},
		{OpEncode, FamilyMultiFunction, "score_weights", map[string]any{"dense": 1.0}, true, ""},
		{OpEncode, FamilyDense, "flat_ner", true, true, ""},
		{OpEncode, FamilyDense, "threshold", nil, false, ""},
		{OpEncode, FamilyDense, "query_max_length", 5, false, "has no use for it"},
		{OpEncode, FamilySparse, "normalize", true, false, "has no use for it"},
		{OpEncode, FamilyDense, "lora", "x", false, "has no use for it"},
		{OpEncode, FamilyDense, "treshold", 0.5, false, "there is no such option"},

		{OpScore, FamilyCrossEncoder, "normalize", true, true, ""},
		{OpScore, FamilyCrossEncoder, "dimensions", 5, true, ""},
		{OpScore, FamilyCrossEncoder, "pooling", "cls", true, ""},
		{OpScore, FamilyCrossEncoder, "query_template", "q: {text}", true, ""},
		{OpScore, FamilyCrossEncoder, "muvera", map[string]any{"zzz": 1}, true, ""},
		{OpScore, FamilyCrossEncoder, "instruction", "find it", false, ""},
		{OpScore, FamilyCrossEncoder, "score_mode", "dense", false, "has no use for it"},
		{OpScore, FamilyMultiFunction, "score_mode", "dense", false, ""},
		{OpScore, FamilyMultiFunction, "score_mode", "best", false,
			"must be dense, sparse, colbert or hybrid"},
		{OpScore, FamilyMultiFunction, "pooling", "cls", false, ""},
		{OpScore, FamilyMultiFunction, "output_dtype", "int8", true, ""},
		{OpScore, FamilyColBERT, "query_max_length", 5, false, ""},
		{OpScore, FamilyColBERT, "top_k", 5, true, ""},
		{OpScore, FamilyColBERT, "nomalize", true, false, "did you mean 'normalize'"},

		{OpExtract, FamilyZeroShot, "threshold", 0.5, false, ""},
		{OpExtract, FamilyZeroShot, "normalize", true, true, ""},
		{OpExtract, FamilyZeroShot, "instruction", "x", true, ""},
		{OpExtract, FamilyZeroShot, "score_mode", "x", true, ""},
		{OpExtract, FamilyTagger, "hypothesis_template", "{}", false, "has no use for it"},
		{OpExtract, FamilyTagger, "flat_ner", true, false, "has no use for it"},
		{OpExtract, FamilyTagger, "is_query", true, false, ""},
	} {
		request := map[string]any{c.key: c.value}
		out, ignored, err := model(c.family).Options(c.op, request)
		if slices.Contains(ignored, c.key) != c.ignored || (err == nil) != (c.refused == "") {
			t.Errorf("%d %v %s: ignored %v, %v", c.op, c.family, c.key, ignored, err)
			continue
		}
		var bad *OptionError
		if err != nil &&
			(!errors.As(err, &bad) || bad.Key != c.key || !strings.Contains(bad.Msg, c.refused)) {
			t.Errorf("%d %v %s: %v, want %s", c.op, c.family, c.key, err, c.refused)
		}
		if c.ignored && out.Raw[c.key] != nil {
			t.Errorf("%d %v %s is ignored and has an effect", c.op, c.family, c.key)
		}
		if len(request) != 1 {
			t.Error("the request was changed")
		}
	}
	m := model(FamilyCrossEncoder)
	out, ignored, err := m.Options(OpScore,
		map[string]any{"top_k": 3, "normalize": true, "max_seq_length": 9, "dimensions": 4})
	if err != nil || !slices.Equal(ignored, []string{"dimensions", "normalize", "top_k"}) ||
		out.MaxSeqLength != 9 || out.Dimensions != 0 {
		t.Errorf("%+v, %v, %v", out, ignored, err)
	}
	if out, ignored, err = m.Options(OpScore, map[string]any{"dimensions": 4}); out != m.Runtime ||
		len(ignored) != 1 || err != nil {
		t.Errorf("nothing is left, and the profile's options are copied: %v, %v", ignored, err)
	}
}

// Maps in muvera and smve may repeat the model's configuration and nothing else.
func TestContentsOfFolds(t *testing.T) {
	m := &Resolved{
		ID:       "m",
		Family:   FamilyColBERT,
		Runtime:  &RuntimeOptions{},
		Model:    &Model{},
		Loadtime: &LoadtimeOptions{},
	}
	if err := m.Loadtime.foldByDefault(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		key  string
		v    any
		on   bool
		want string
	}{
		{"muvera", map[string]any{}, true, ""},
		{"muvera", true, true, ""},
		{"muvera", false, false, ""},
		{"muvera", nil, false, ""},
		{"muvera", map[string]any{
			"num_repetitions":      40.0,
			"seed":                 int64(42),
			"normalize":            false,
			"projection_dim":       nil,
			"final_projection_dim": 10240,
		}, true, ""},
		{"smve", map[string]any{"width": 65536, "k": uint8(32), "max_nonzeros": nil}, true, ""},
		{"muvera", 5, false, "Field 'options.muvera': expected true, false or a map, got the number 5"},
		{"smve", "x", false, "Field 'options.smve': expected true, false or a map, got the string \"x\""},
		{"muvera", map[string]any{"zzz": 1}, false, "Field 'options.muvera': unknown key \"zzz\""},
		{"muvera", map[string]any{"num_repetition": 1}, false,
			"Field 'options.muvera': unknown key \"num_repetition\"; did you mean \"num_repetitions\"?"},
		{"muvera", map[string]any{"num_repetitions": -1}, false,
			"Field 'options.muvera': num_repetitions: must be between 1 and 4096; got -1"},
		{"muvera", map[string]any{"seed": "a"}, false,
			"Field 'options.muvera': seed: expected a whole number"},
		{"muvera", map[string]any{"normalize": 1}, false,
			"Field 'options.muvera': normalize: expected true or false"},
		{"smve", map[string]any{"k": 0}, false, "Field 'options.smve': k: must be between 1"},
		{"muvera", map[string]any{"num_repetitions": 20}, false,
			"Field 'options.muvera': num_repetitions: the model folds with 40, which is settled when it is loaded; remove the key, or set it in muvera_config of the model's file"},
		{"muvera", map[string]any{"seed": 42, "projection_dim": 8}, false,
			"Field 'options.muvera': projection_dim: the model folds with null, which"},
		{"muvera", map[string]any{"normalize": true}, false,
			"Field 'options.muvera': normalize: the model folds with false, which"},
		{"smve", map[string]any{"seed": 7}, false,
			"Field 'options.smve': seed: the model folds with 42, which is settled when it is loaded; remove the key, or set it in smve_config"},
	} {
		out, _, err := m.Options(OpEncode, map[string]any{c.key: c.v, "is_query": true})
		var bad *OptionError
		switch {
		case c.want != "":
			if !errors.As(err, &bad) || bad.Key != c.key || !strings.HasPrefix(bad.Msg, c.want) {
				t.Errorf("%s %v: %v, want %s", c.key, c.v, err, c.want)
			}
		case err != nil:
			t.Errorf("%s %v: %v", c.key, c.v, err)
		case out.MUVERA != (c.on && c.key == "muvera") || out.SMVE != (c.on && c.key == "smve"):
			t.Errorf("%s %v: muvera %v, smve %v", c.key, c.v, out.MUVERA, out.SMVE)
		}
	}
	_, _, err := m.Options(OpEncode,
		map[string]any{"muvera": map[string]any{"seed": 42}, "smve": map[string]any{"seed": 43}})
	if err == nil || !strings.Contains(err.Error(), "options.smve") {
		t.Errorf("the second of two: %v", err)
	}
	if *m.Loadtime.MUVERA != (MUVERAConfig{
		Repetitions: 40, SimHashProjections: 6, FinalProjectionDim: 10240, Seed: 42,
	}) {
		t.Errorf("a request changed the model's folding: %+v", m.Loadtime.MUVERA)
	}
}
