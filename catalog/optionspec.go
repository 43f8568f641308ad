package catalog

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// runtimeSpecs and loadtimeSpecs are the option schema: each known key with the function that
// checks its value and stores it. Keys without a field of their own (extraction thresholds,
// decoding limits, switches for engines that this server lacks) are checked for type only and stay
// in Raw.

const (
	maxOptionText   = maxTemplateBytes
	maxOptionTokens = 1 << 24
	maxOptionList   = 1000
)

type runtimeSetter func(o *RuntimeOptions, v any) error

var runtimeSpecs map[string]runtimeSetter

// The table is filled in init because its setters' errors use keyHint, which reads the table.
func init() {
	runtimeSpecs = map[string]runtimeSetter{
		"pooling": func(o *RuntimeOptions, v any) (err error) { o.Pooling, err = asPooling(v); return err },
		"normalize": func(o *RuntimeOptions, v any) error {
			b, err := asBool(v)
			o.Normalize = &b
			return err
		},
		"query_template": func(o *RuntimeOptions, v any) (err error) {
			o.QueryTemplate, err = asTemplate(v)
			return err
		},
		"doc_template": func(o *RuntimeOptions, v any) (err error) {
			o.DocTemplate, err = asTemplate(v)
			return err
		},
		"default_instruction": func(o *RuntimeOptions, v any) (err error) {
			o.DefaultInstruction, err = asTextPtr(v)
			return err
		},
		"instruction": func(o *RuntimeOptions, v any) (err error) {
			o.Instruction, err = asTextPtr(v)
			return err
		},
		"output_types": func(o *RuntimeOptions, v any) (err error) {
			o.OutputTypes, err = asOutputTypes(v)
			return err
		},
		"output_dtype": func(o *RuntimeOptions, v any) (err error) {
			o.OutputDType, err = asEnum(v, outputDTypes)
			return err
		},
		"is_query": func(o *RuntimeOptions, v any) (err error) { o.IsQuery, err = asTruth(v); return err },
		"muvera": func(o *RuntimeOptions, v any) (err error) {
			o.MUVERA, err = asFold(v, (&MUVERAConfig{}).fields())
			return err
		},
		"smve": func(o *RuntimeOptions, v any) (err error) {
			o.SMVE, err = asFold(v, (&SMVEConfig{}).fields())
			return err
		},
		"max_seq_length": func(o *RuntimeOptions, v any) (err error) {
			o.MaxSeqLength, err = asInt(v, 1, maxOptionTokens)
			return err
		},
		"query_max_length": func(o *RuntimeOptions, v any) (err error) {
			o.QueryMaxLength, err = asInt(v, 1, maxOptionTokens)
			return err
		},
		"dimensions": func(o *RuntimeOptions, v any) (err error) {
			o.Dimensions, err = asInt(v, 1, maxDim)
			return err
		},
		"lora_id": func(o *RuntimeOptions, v any) (err error) { o.LoRAID, err = asText(v); return err },
		"overflow_policy": func(o *RuntimeOptions, v any) (err error) {
			o.OverflowPolicy, err = asEnum(v, []string{"default", "truncate_text", "error"})
			return err
		},
		"score_mode": func(o *RuntimeOptions, v any) (err error) {
			o.ScoreMode, err = asEnum(v, scoreModes)
			return err
		},
		"score_weights": func(o *RuntimeOptions, v any) (err error) {
			o.ScoreWeights, err = asWeights(v)
			return err
		},
	}
	checked := map[string]func(any) error{
		"profile": isText, "lora": isText, "output_similarity": isSimilarity, "task": isText,
		"prompt_name": isText, "classification_task": isText, "ocr": isBool,
		"cuda_graphs":   isAny, // YAML reads an unquoted off as false
		"box_threshold": isNumber, "text_threshold": isNumber, "score_threshold": isNumber,
		"prune_threshold": isNumber, "highlight_threshold": isNumber, "span_entry_bias": isNumber,
		"max_new_tokens": isCount, "num_beams": isCount, "batch_size": isCount, "relation_labels": isAny,
		"label_groups": isAny, "examples": isAny, "entity_descriptions": isAny,
	}
	maps.Copy(checked, extractSpecs)
	for key, check := range checked {
		runtimeSpecs[key] = func(_ *RuntimeOptions, v any) error { return check(v) }
	}
}

func asBool(v any) (bool, error) {
	if b, ok := v.(bool); ok {
		return b, nil
	}
	return false, fmt.Errorf("expected true or false, got %s", describe(v))
}

// asTruth also accepts numbers, which older clients send for flags.
func asTruth(v any) (bool, error) {
	if f, ok := toFloat(v); ok {
		return f != 0, nil
	}
	return asBool(v)
}

func asText(v any) (string, error) {
	s, ok := v.(string)
	if !ok {
		hint := ""
		if _, isBool := v.(bool); isBool {
			hint = "; put it in quotes"
		}
		return "", fmt.Errorf("expected a string, got %s%s", describe(v), hint)
	}
	if len(s) > maxOptionText {
		return "", fmt.Errorf("has %d bytes; the limit is %d", len(s), maxOptionText)
	}
	return s, nil
}

func asTextPtr(v any) (*string, error) {
	s, err := asText(v)
	return &s, err
}

func asTemplate(v any) (*Template, error) {
	s, err := asText(v)
	if err != nil {
		return nil, err
	}
	return ParseTemplate(s)
}

func asEnum(v any, values []string) (string, error) {
	s, err := asText(v)
	if err != nil {
		return "", err
	}
	if !contains(values, s) {
		return "", fmt.Errorf("must be %s; got %q", orList(values), clip(s))
	}
	return s, nil
}

func asPooling(v any) (Pooling, error) {
	if v == string(poolingSPLADE) {
		return poolingSPLADE, nil // checkPooling decides for which models
	}
	s, err := asEnum(v, []string{"cls", "mean", "last", "last_token"})
	if s == "last_token" {
		s = "last"
	}
	return Pooling(s), err
}

func asOutputTypes(v any) ([]OutputType, error) {
	list, err := asTextList(v)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errors.New("must not be empty; use dense, sparse or multivector")
	}
	out := make([]OutputType, 0, 3)
	for _, s := range list {
		t := OutputType(s)
		if t != OutputDense && t != OutputSparse && t != OutputMultivector {
			return nil, fmt.Errorf("must hold only dense, sparse or multivector; got %q", clip(s))
		}
		if !contains(outputNames(out), s) {
			out = append(out, t)
		}
	}
	return out, nil
}

func outputNames(types []OutputType) []string {
	out := make([]string, len(types))
	for i, t := range types {
		out[i] = string(t)
	}
	return out
}

func asTextList(v any) ([]string, error) {
	if list, ok := v.([]string); ok {
		return list, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("expected a list of strings, got %s", describe(v))
	}
	if len(list) > maxOptionList {
		return nil, fmt.Errorf("has %d entries; the limit is %d", len(list), maxOptionList)
	}
	out := make([]string, len(list))
	for i, e := range list {
		s, ok := e.(string)
		if !ok {
			return nil, fmt.Errorf("expected a list of strings, got %s in it", describe(e))
		}
		out[i] = s
	}
	return out, nil
}

// toFloat accepts every number type a YAML, JSON or msgpack decoder produces.
func toFloat(v any) (float64, bool) {
	switch x := v.(type) {
	case int:
		return float64(x), true
	case int8:
		return float64(x), true
	case int16:
		return float64(x), true
	case int32:
		return float64(x), true
	case int64:
		return float64(x), true
	case uint:
		return float64(x), true
	case uint8:
		return float64(x), true
	case uint16:
		return float64(x), true
	case uint32:
		return float64(x), true
	case uint64:
		return float64(x), true
	case float32:
		return float64(x), true
	case float64:
		return x, true
	}
	return 0, false
}

// asInt accepts whole numbers in [lo, hi], also when a JSON decoder delivers them as floats.
func asInt(v any, lo, hi int64) (int, error) {
	f, ok := toFloat(v)
	if !ok || f != math.Trunc(f) {
		return 0, fmt.Errorf("expected a whole number, got %s", describe(v))
	}
	if f < float64(lo) || f > float64(hi) {
		return 0, fmt.Errorf("must be between %d and %d; got %v", lo, hi, v)
	}
	return int(f), nil
}

var scoreModes = []string{"dense", "sparse", "colbert", "hybrid"}

func asWeights(v any) (map[string]float64, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("expected a map of dense, sparse and colbert to weights, got %s", describe(v))
	}
	out := make(map[string]float64, len(m))
	sum := 0.0
	for _, k := range sortedKeys(m) {
		w, isNum := toFloat(m[k])
		switch {
		case !contains(scoreModes[:3], k):
			return nil, fmt.Errorf("unknown weight %q; use dense, sparse and colbert", clip(k))
		case !isNum || math.IsNaN(w) || math.IsInf(w, 0) || w < 0:
			return nil, fmt.Errorf("weight %s must be a finite number of at least 0, got %s",
				k, describe(m[k]))
		}
		out[k] = w
		sum += w
	}
	if sum == 0 && len(out) == len(scoreModes)-1 { // a missing weight keeps its default
		return nil, errors.New("at least one weight must be above 0")
	}
	return out, nil
}

func isText(v any) error { _, err := asText(v); return err }
func isBool(v any) error { _, err := asBool(v); return err }
func isAny(any) error    { return nil }

func isCount(v any) error { _, err := asInt(v, 0, maxOptionTokens); return err }

// isSimilarity checks the name of a similarity, or a map of output types to similarities. This
// server computes none.
func isSimilarity(v any) error {
	m, ok := v.(map[string]any)
	if !ok {
		return isText(v)
	}
	for _, k := range sortedKeys(m) {
		if err := isText(m[k]); err != nil {
			return fmt.Errorf("%s: %w", clip(k), err)
		}
	}
	return nil
}

func isNumber(v any) error {
	if f, ok := toFloat(v); !ok || math.IsNaN(f) || math.IsInf(f, 0) {
		return fmt.Errorf("expected a finite number, got %s", describe(v))
	}
	return nil
}

func isMap(v any) error {
	if _, ok := v.(map[string]any); !ok {
		return fmt.Errorf("expected a map, got %s", describe(v))
	}
	return nil
}

// nearOption returns the known option that key most likely misspells, or "". Only very close names
// count, because an option of an unknown adapter must not be refused for resembling a known one.
func nearOption(key string, known []string) string {
	const (
		minLength = 6
		cutoff    = 0.85 // one wrong letter of seven, or one extra or missing letter of six
	)
	if len(key) < minLength {
		return ""
	}
	long := slices.DeleteFunc(slices.Clone(known), func(k string) bool { return len(k) < minLength })
	if near := closeMatches(strings.ToLower(key), long, 1, cutoff); len(near) > 0 {
		return near[0]
	}
	return ""
}
