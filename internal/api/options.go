package api

import (
	"maps"
	"slices"
	"strings"

	"github.com/sie-engine/sie/internal/errs"
)

// Options are the free-form options of a request or the runtime map of a model profile: nil, bool, int64, float64,
// string, []byte, []any and map[string]any (from YAML also int and uint64). Unknown keys are kept for those who
// know them and otherwise ignored.
type Options map[string]any

// Over returns base overridden, key by key, by o. Nested maps are replaced whole. Neither operand changes.
func (o Options) Over(base map[string]any) Options {
	out := make(Options, len(base)+len(o))
	maps.Copy(out, base)
	maps.Copy(out, o)
	return out
}

// Profile returns the profile that o selects, "" for none. The error is for a name that is not a string or empty.
func (o Options) Profile() (string, error) {
	s, err := o.settings()
	if err != nil {
		return "", toAPI(at(err, ".options"))
	}
	return s.Profile, nil
}

// Settings are Options with types. Optional ones are nil, zero or empty when absent or null.
type Settings struct {
	Profile            string
	IsQuery            bool
	Instruction        *string // "" differs from none: it silences a default
	DefaultInstruction *string
	LoRA               string
	OutputTypes        []string // subset of dense, sparse, multivector; no repetition
	OutputDType        string
	Muvera             bool
	SMVE               bool
	Normalize          *bool
	Pooling            string
	QueryTemplate      *string
	DocTemplate        *string
	MaxSeqLength       int    // tokens; 0: the model's own
	Dimensions         int    // 0: all; fewer: truncate and normalise again
	OverflowPolicy     string // default, truncate_text or error
	Extra              Options

	hasOutputTypes bool // the key is present, even if null
}

// The output types and dtypes that exist.
var (
	outputTypes      = []string{"dense", "multivector", "sparse"}
	outputDTypes     = []string{"float32", "float16", "int8", "uint8", "binary", "ubinary"}
	overflowPolicies = []string{"default", "error", "truncate_text"}
)

// settings checks the types of the known options. An error's place is relative to the options.
func (o Options) settings() (Settings, error) {
	var s Settings
	var err error
	for _, k := range slices.Sorted(maps.Keys(o)) { // sorted: which of several errors is told must not vary
		v := o[k]
		switch k {
		case "profile":
			if p, ok := v.(string); v != nil && (!ok || strings.TrimSpace(p) == "") {
				err = placed("", "'options.profile' must be a non-empty string or null")
			} else {
				s.Profile = p
			}
		case "is_query":
			var b *bool
			if b, err = boolOption(v); b != nil {
				s.IsQuery = *b
			}
		case "instruction":
			s.Instruction, err = stringOption(v)
		case "default_instruction":
			s.DefaultInstruction, err = stringOption(v)
		case "lora_id":
			s.LoRA, err = plainString(v)
		case "output_dtype":
			s.OutputDType, err = plainString(v)
		case "output_types":
			s.hasOutputTypes = true
			s.OutputTypes, err = stringsOption(v)
		case "muvera":
			s.Muvera = v != nil
		case "smve":
			s.SMVE = v != nil
		case "normalize":
			s.Normalize, err = boolOption(v)
		case "pooling":
			s.Pooling, err = plainString(v)
		case "query_template":
			s.QueryTemplate, err = stringOption(v)
		case "doc_template":
			s.DocTemplate, err = stringOption(v)
		case "max_seq_length":
			s.MaxSeqLength, err = countOption(v)
		case "dimensions":
			s.Dimensions, err = countOption(v)
		case "overflow_policy":
			p, ok := v.(string)
			if v != nil && !(ok && slices.Contains(overflowPolicies, p)) {
				err = placed("", "Invalid overflow_policy: "+optionText(v)+
					". Must be one of ['default', 'error', 'truncate_text'].")
			}
			s.OverflowPolicy = p
		default:
			if s.Extra == nil {
				s.Extra = Options{}
			}
			s.Extra[k] = v
		}
		if err != nil {
			return s, at(err, "."+k)
		}
	}
	return s, nil
}

// CheckOptions reports the first option of a profile's runtime map that has the wrong type or an impossible value,
// as an *errs.Error.
func CheckOptions(o map[string]any) error {
	s, err := Options(o).settings()
	if err != nil {
		return toAPI(at(err, ".options"))
	}
	return s.check()
}

// check applies the rules on values that hold for every model.
func (s *Settings) check() error {
	if s.hasOutputTypes && len(s.OutputTypes) == 0 {
		return errs.Invalid("output_types", "'output_types' must be a non-empty array")
	}
	for _, t := range s.OutputTypes {
		if !slices.Contains(outputTypes, t) {
			return errs.Invalid("output_types", "'output_types' entries must be one of ['dense', 'multivector', 'sparse']")
		}
	}
	if s.OutputDType != "" && !slices.Contains(outputDTypes, s.OutputDType) {
		return errs.UnknownOutputDType(s.OutputDType)
	}
	return nil
}

// Resolve lays the request over the runtime options of the profile it selects and returns what to do: request
// options override the profile's; params.instruction and params.output_dtype override both; params.output_types
// counts only when no option names output types; is_query comes from the options, then params, then the profile.
// Output types default to dense, the dtype to float32. Errors are *errs.Error, 400.
func (r *EncodeRequest) Resolve(profile map[string]any) (Settings, error) {
	merged := r.Options.Over(profile)
	if _, given := r.Options["is_query"]; !given && r.IsQuery != nil {
		merged["is_query"] = *r.IsQuery
	}
	s, err := merged.settings()
	if err != nil {
		return s, toAPI(at(err, ".params.options"))
	}
	if !s.hasOutputTypes {
		s.OutputTypes = r.OutputTypes
	}
	if r.Instruction != nil {
		s.Instruction = r.Instruction
	}
	if r.OutputDType != "" {
		s.OutputDType = r.OutputDType
	}
	if err := s.check(); err != nil {
		return s, err
	}
	if len(s.OutputTypes) == 0 {
		s.OutputTypes = []string{"dense"}
	}
	if s.OutputDType == "" {
		s.OutputDType = "float32"
	}
	s.OutputTypes = unique(s.OutputTypes)
	return s, nil
}

func unique(in []string) []string {
	out := make([]string, 0, len(outputTypes))
	for _, x := range in {
		if !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	return out
}

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "bool"
	case int, int64, uint64:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case []byte:
		return "bytes"
	case []any, []string:
		return "array"
	}
	return "object"
}

func optionText(v any) string {
	if s, ok := v.(string); ok {
		return errs.Quote(s[:min(len(s), 100)])
	}
	return "`" + kindOf(v) + "`"
}

func stringOption(v any) (*string, error) {
	switch s := v.(type) {
	case nil:
		return nil, nil
	case string:
		return &s, nil
	}
	return nil, mismatch(wantStrOrNull, kindOf(v))
}

func plainString(v any) (string, error) {
	p, err := stringOption(v)
	if p == nil {
		return "", err
	}
	return *p, nil
}

func boolOption(v any) (*bool, error) {
	var b bool
	switch x := v.(type) {
	case nil:
		return nil, nil
	case bool:
		b = x
	case int64:
		b = x != 0
	case int:
		b = x != 0
	case uint64:
		b = x != 0
	default:
		return nil, mismatch(wantFlagOrNull, kindOf(v))
	}
	return &b, nil
}

// countOption reads a positive number of tokens or dimensions; 0 stands for null.
func countOption(v any) (int, error) {
	var n int64
	switch x := v.(type) {
	case nil:
		return 0, nil
	case int64:
		n = x
	case int:
		n = int64(x)
	case uint64:
		n = int64(min(x, 1<<62))
	default:
		return 0, mismatch(wantIntOrNull, kindOf(v))
	}
	if n < 1 {
		return 0, located("Expected `int` >= 1")
	}
	return int(min(n, 1<<31-1)), nil
}

func stringsOption(v any) ([]string, error) {
	switch x := v.(type) {
	case nil:
		return nil, nil
	case []string:
		return x, nil
	case []any:
		out := make([]string, 0, len(x))
		for i, e := range x {
			s, ok := e.(string)
			if !ok {
				return nil, atIndex(mismatch(wantStr, kindOf(e)), i)
			}
			out = append(out, s)
		}
		return out, nil
	}
	return nil, mismatch(wantArrayOrNull, kindOf(v))
}
