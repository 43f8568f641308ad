package catalog

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
)

// A misspelt option is refused, because it would have no effect. The option of another adapter is
// accepted.
func TestMisspeltOptionsAreTold(t *testing.T) {
	known := slices.Collect(maps.Keys(runtimeSpecs))
	for key, want := range map[string]string{
		"poling": "pooling", "poolimg": "pooling", "poooling": "pooling", "normalise": "normalize",
		"Normalize": "normalize", "normalized": "normalize", "querry_template": "query_template",
		"query_tempalte": "query_template", "doc_templates": "doc_template",
		"max_seq_lenght": "max_seq_length", "max_seq_len": "max_seq_length", "treshold": "threshold",
		"otput_dtype": "output_dtype", "dimension": "dimensions",

		"pool": "", "task_": "", "smvee": "", "iou_threshold": "", "nms_threshold": "", "token_threshold": "",
		"doc_max_length": "", "use_normalize": "", "image_size": "", "temperature": "", "prompt_template": "",
		"max_tokens": "", "labels": "", "": "",
	} {
		if got := nearOption(key, known); got != want {
			t.Errorf("%q is near %q, want %q", key, got, want)
		}
	}
}

// The options of extraction have one range, whether a request, a profile or the load-time map names
// them.
func TestExtractOptionsHaveRanges(t *testing.T) {
	for key, values := range map[string]struct{ good, bad []any }{
		"threshold": {[]any{0, 1, 0.5, float32(0.25), int64(1)},
			[]any{-0.1, 1.01, math.NaN(), math.Inf(1), "0.5", true}},
		"relation_threshold": {[]any{0.7}, []any{2, -1}},
		"score_floor":        {[]any{0.6, 1}, []any{1.5, "x"}},
		"flat_ner":           {[]any{true, false}, []any{1, "true"}},
		"multi_label":        {[]any{true}, []any{0}},

		"merge_adjacent_entities": {[]any{false}, []any{"no"}},
		"precompute_labels":       {[]any{true}, []any{[]any{}}},
		"hypothesis_template":     {[]any{"about {}"}, []any{3}},
		"top_k":                   {[]any{0, 5, 7.0}, []any{-1, 1.5}},
		"window_words":            {[]any{2, 300}, []any{1, 0, 2.5}},
		"window_overlap":          {[]any{0, 50}, []any{-1, 0.5}},
		"propagate_label":         {[]any{"person", ""}, []any{1}},
		"name_min_letters":        {[]any{1, 3}, []any{0, 1.5}},
		"default_labels":          {[]any{[]any{"a"}, []any{}}, []any{"a", []any{1}}},
		"classification_type":     {[]any{"single-label", "multi-label"}, []any{"both", "", 1, "multilabel"}},
		"group_encoding":          {[]any{"separate", "joint"}, []any{"Joint", nil}},
	} {
		if extractSpecs[key] == nil {
			t.Errorf("%s is not known", key)
			continue
		}
		for _, v := range values.good {
			if err := extractSpecs[key](v); err != nil {
				t.Errorf("%s: %v: %v", key, v, err)
			}
		}
		for _, v := range values.bad {
			if extractSpecs[key](v) == nil {
				t.Errorf("%s: %v is taken", key, v)
			}
			if v == nil {
				continue // means that the option is not set
			}
			raw := map[string]any{key: v}
			if _, err := parseRuntime(raw, true); err == nil || !strings.Contains(err.Error(), key) {
				t.Errorf("a request's %s %v: %v", key, v, err)
			}
			if _, err := parseLoadtime(raw); err == nil || !strings.Contains(err.Error(), key) {
				t.Errorf("a load-time %s %v: %v", key, v, err)
			}
		}
	}
	for key := range extractSpecs {
		if use, known := optionUses[key]; !known || use.home&OpExtract == 0 {
			t.Errorf("a request cannot name %s", key)
		}
	}
}
