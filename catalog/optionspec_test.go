package catalog

import (
	"maps"
	"slices"
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
