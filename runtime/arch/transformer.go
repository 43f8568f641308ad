package arch

import (
	"encoding/json"
	"io/fs"
	"maps"
	"math"
	"path"
	"slices"
)

// transformerFiles lists the names of a Transformer module's configuration, by release of
// sentence-transformers. The first that exists is read.
var transformerFiles = []string{
	limitsFile, "sentence_roberta_config.json", "sentence_distilbert_config.json",
	"sentence_camembert_config.json", "sentence_albert_config.json", "sentence_xlm-roberta_config.json",
	"sentence_xlnet_config.json",
}

// The values of transformer_task, which says what a Transformer module computes. Releases from 5.4
// on write it. Older ones have a separate module class for each.
const (
	taskFeatures = "feature-extraction"
	taskMasked   = "fill-mask"
	taskClassify = "sequence-classification"
)

// transformerOutputs says, for each task, which field of its model a module reads and under which
// name it passes it on.
var transformerOutputs = map[string]struct{ field, feature string }{
	taskFeatures: {"last_hidden_state", "token_embeddings"},
	taskMasked:   {"logits", "token_embeddings"},
	taskClassify: {"logits", "scores"},
	taskGenerate: {"logits", "causal_logits"},
}

// transformerConfig holds the configuration of a Transformer module.
type transformerConfig struct {
	file      string // the file it was read from; "" without one
	task      string // "" in files that do not say
	maxSeqLen int64  // tokens; 0 = not stated
	lowerCase bool

	// of models that generate: chat templates also begin the answer, and get contents as lists
	generationPrompt, structured bool
}

// readTransformer reads the configuration of the Transformer module in folder, if there is one. It
// supports text, a length and lower case, and refuses any other setting by name.
func readTransformer(dir fs.FS, folder string) (transformerConfig, error) {
	var c struct {
		Task       string `json:"transformer_task"`
		Modalities map[string]struct {
			Method string `json:"method"`
			Output any    `json:"method_output_name"`
			Format string `json:"format"`
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
		} `json:"tokenizer_args"` // the name in releases before 5.4
	}
	name := ""
	for _, file := range transformerFiles {
		found, err := optional(readJSON(dir, path.Join(folder, file), &c))
		if err != nil {
			return transformerConfig{}, err
		}
		if found {
			name = path.Join(folder, file)
			if err := checkArguments(dir, name); err != nil {
				return transformerConfig{}, err
			}
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
		return t, refuse(name, "transformer_task", "%.60q is not supported; %s are",
			task, listed(transformerOutputs))
	}
	if c.Modalities != nil {
		text, ok := c.Modalities["text"]
		switch _, chat := c.Modalities["message"]; {
		case chat && task != taskGenerate:
			return t, refuse(name, "modality_config", "texts as chat messages are not supported")
		case !ok:
			return t, refuse(name, "modality_config", "names no text, and only text is supported")
		case text.Method != "forward" || !isField(text.Output, want.field):
			return t, refuse(name, "modality_config",
				"takes %.60v of %.60q; only %s of forward is supported for %s",
				text.Output, text.Method, want.field, task)
		case c.Feature != "" && c.Feature != want.feature:
			return t, refuse(name, "module_output_name", "is %.60q; %s gives %s",
				c.Feature, task, want.feature)
		}
	}
	calls, err := readCalls(name, c.Processing)
	if err != nil {
		return t, err
	}
	if task == taskGenerate {
		if t.generationPrompt, err = readChatCall(name, c.Processing["chat_template"]); err != nil {
			return t, err
		}
		t.structured = c.Modalities["message"].Format == "structured"
	}
	for _, limit := range []struct {
		key   string
		value *int64
	}{{"processing_kwargs", calls}, {"processor_kwargs", c.Processor.MaxLength},
		{"tokenizer_args", c.Tokenizer.MaxLength}, {"max_seq_length", c.MaxSeqLength}} {
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

// isField reports whether a method_output_name is that field. It may be the name or a list with
// only the name.
func isField(output any, field string) bool {
	if list, ok := output.([]any); ok && len(list) == 1 {
		output = list[0]
	}
	return output == field
}

// readCalls reads processing_kwargs and returns the length that it sets, or nil. Keys for kinds of
// input that this server never gets, and keys about padding a batch, are ignored.
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
				return nil, refuse(file, "processing_kwargs",
					"%s.%.60s is %.60v, which is not supported; max_length is", kind, key, value)
			}
		}
	}
	return length, nil
}

// readChatCall reads how a module calls chat templates, and returns whether they begin the answer.
func readChatCall(file string, keys map[string]any) (begins bool, _ error) {
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		value, isFlag := keys[key].(bool)
		switch {
		case key == "add_generation_prompt" && isFlag:
			begins = value
		case key == "restore_suffix" && value:
		default:
			return false, refuse(file, "processing_kwargs",
				"chat_template.%.60s is %.60v, which is not supported; add_generation_prompt is", key, keys[key])
		}
	}
	return begins, nil
}

// expect refuses a module whose file names another task.
func (t transformerConfig) expect(task string, model Task) error {
	if t.task == "" || t.task == task {
		return nil
	}
	return refuse(t.file, "transformer_task", "is %q; a model for the task %s needs %q", t.task, model, task)
}

// listed joins the keys of a table for a message.
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

// textLimits holds what the files say about inputs. maxSeqLen is 0 when they say nothing.
type textLimits struct {
	maxSeqLen int64
	lowerCase bool
}

// readTextLimits returns the limits of a Transformer module. If it sets no length, the tokenizer's
// model_max_length counts, as in sentence-transformers.
func readTextLimits(dir fs.FS, encoderDir string, module transformerConfig) (textLimits, error) {
	t := textLimits{maxSeqLen: module.maxSeqLen, lowerCase: module.lowerCase}
	if t.maxSeqLen != 0 {
		return t, nil
	}
	var tokenizer struct {
		// A float where there is no limit: 1e30.
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
