package arch

import (
	"encoding/json"
	"io/fs"
	"maps"
	"math"
	"path"
	"slices"
)

// transformerFiles are the names under which releases of sentence-transformers keep a Transformer
// module's configuration. The first one that is there counts.
var transformerFiles = []string{limitsFile, "sentence_roberta_config.json", "sentence_distilbert_config.json",
	"sentence_camembert_config.json", "sentence_albert_config.json", "sentence_xlm-roberta_config.json", "sentence_xlnet_config.json"}

// What a Transformer module computes: transformer_task, which releases from 5.4 on write. Older
// ones have a module for each.
const (
	taskFeatures = "feature-extraction"
	taskMasked   = "fill-mask"
	taskClassify = "sequence-classification"
)

// transformerOutputs are what a module of each task takes from its model, and hands on.
var transformerOutputs = map[string]struct{ field, feature string }{
	taskFeatures: {"last_hidden_state", "token_embeddings"},
	taskMasked:   {"logits", "token_embeddings"},
	taskClassify: {"logits", "scores"},
}

// transformerConfig is what the configuration of a Transformer module says.
type transformerConfig struct {
	file      string // that it is from; "" without one
	task      string // "" in files that do not say
	maxSeqLen int64  // tokens; 0 = not stated
	lowerCase bool
}

// readTransformer reads the configuration of the Transformer module in folder, where there is one.
// What it asks for beyond text, a length and lower case is refused by name.
func readTransformer(dir fs.FS, folder string) (transformerConfig, error) {
	var c struct {
		Task       string `json:"transformer_task"`
		Modalities map[string]struct {
			Method string `json:"method"`
			Output any    `json:"method_output_name"`
		} `json:"modality_config"`
		Feature    string                    `json:"module_output_name"`
		Processing map[string]map[string]any `json:"processing_kwargs"` // of each call of the tokenizer

		MaxSeqLength *int64 `json:"max_seq_length"`
		DoLowerCase  bool   `json:"do_lower_case"`
		Processor    struct {
			MaxLength *int64 `json:"model_max_length"`
		} `json:"processor_kwargs"` // of the tokenizer
		Tokenizer struct {
			MaxLength *int64 `json:"model_max_length"`
		} `json:"tokenizer_args"` // as releases before 5.4 call them
	}
	name := ""
	for _, file := range transformerFiles {
		found, err := optional(readJSON(dir, path.Join(folder, file), &c))
		if err != nil {
			return transformerConfig{}, err
		}
		if found {
			name = path.Join(folder, file)
			break
		}
	}
	t := transformerConfig{file: name, task: c.Task, lowerCase: c.DoLowerCase}
	task := c.Task
	if task == "" {
		task = taskFeatures
	}
	want, ok := transformerOutputs[task]
	if !ok {
		return t, refuse(name, "transformer_task", "%.60q is not supported; %s are", task, listed(transformerOutputs))
	}
	if c.Modalities != nil && c.Task != "" {
		text, ok := c.Modalities["text"]
		switch _, chat := c.Modalities["message"]; {
		case chat:
			return t, refuse(name, "modality_config", "texts as chat messages are not supported")
		case !ok:
			return t, refuse(name, "modality_config", "names no text, and only text is supported")
		case text.Method != "forward" || !isField(text.Output, want.field):
			return t, refuse(name, "modality_config", "takes %.60v of %.60q; only %s of forward is supported for %s", text.Output, text.Method, want.field, task)
		case c.Feature != "" && c.Feature != want.feature:
			return t, refuse(name, "module_output_name", "is %.60q; %s gives %s", c.Feature, task, want.feature)
		}
	}
	calls, err := readCalls(name, c.Processing)
	if err != nil {
		return t, err
	}
	for _, limit := range []struct {
		key   string
		value *int64
	}{{"processing_kwargs", calls}, {"processor_kwargs", c.Processor.MaxLength}, {"tokenizer_args", c.Tokenizer.MaxLength}, {"max_seq_length", c.MaxSeqLength}} {
		if limit.value == nil {
			continue
		}
		if *limit.value < 1 {
			return t, refuse(name, limit.key, "gives a length of %d; it must be at least 1", *limit.value)
		}
		t.maxSeqLen = *limit.value
		break
	}
	return t, nil
}

// isField says whether a method_output_name is that field: its name, or a list of it alone.
func isField(output any, field string) bool {
	if list, ok := output.([]any); ok && len(list) == 1 {
		output = list[0]
	}
	return output == field
}

// readCalls reads processing_kwargs and returns the length that it sets; nil without one. The kinds
// of input that are never given, and how a batch is padded, do not matter.
func readCalls(file string, kinds map[string]map[string]any) (*int64, error) {
	var length *int64
	for _, kind := range []string{"common", "text"} {
		for _, key := range slices.Sorted(maps.Keys(kinds[kind])) {
			value := kinds[kind][key]
			switch n, isNumber := value.(float64); {
			case key == "padding" || key == "pad_to_multiple_of" || key == "return_tensors":
			case key == "truncation" && (value == true || value == "longest_first"):
			case key == "max_length" && isNumber && n == math.Trunc(n) && math.Abs(n) <= math.MaxInt32:
				limit := int64(n)
				length = &limit
			default:
				return nil, refuse(file, "processing_kwargs", "%s.%.60s is %.60v, which is not supported; max_length is", kind, key, value)
			}
		}
	}
	return length, nil
}

// expect refuses a module that computes something else than task, where its file says what it
// computes.
func (t transformerConfig) expect(task string, model Task) error {
	if t.task == "" || t.task == task {
		return nil
	}
	return refuse(t.file, "transformer_task", "is %q; a model for the task %s needs %q", t.task, model, task)
}

// listed are the keys of a table, for messages.
func listed[V any](table map[string]V) string {
	out := ""
	for i, key := range slices.Sorted(maps.Keys(table)) {
		switch {
		case i > 0 && i == len(table)-1:
			out += " and "
		case i > 0:
			out += ", "
		}
		out += key
	}
	return out
}

// textLimits are what the files say about inputs. maxSeqLen is 0 when they say nothing.
type textLimits struct {
	maxSeqLen int64
	lowerCase bool
}

// readTextLimits takes the limits of a Transformer module, and the tokenizer's model_max_length
// where it is silent, as sentence-transformers does.
func readTextLimits(dir fs.FS, encoderDir string, module transformerConfig) (textLimits, error) {
	t := textLimits{maxSeqLen: module.maxSeqLen, lowerCase: module.lowerCase}
	if t.maxSeqLen != 0 {
		return t, nil
	}
	var tokenizer struct {
		// A float on disk where there is no limit: 1e30.
		ModelMaxLength json.RawMessage `json:"model_max_length"`
	}
	if _, err := optional(readJSON(dir, path.Join(encoderDir, tokenizerFile), &tokenizer)); err != nil {
		return t, err
	}
	var length float64
	if json.Unmarshal(tokenizer.ModelMaxLength, &length) == nil && length >= 1 && length <= math.MaxInt32 {
		t.maxSeqLen = int64(length)
	}
	return t, nil
}
