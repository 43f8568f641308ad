package catalog

import (
	"fmt"
	"sort"
	"strings"
)

// Pooling names a way to turn token vectors into one vector.
type Pooling string

// The pooling names of the YAML; last_token means PoolingLast.
const (
	PoolingCLS  Pooling = "cls"
	PoolingMean Pooling = "mean"
	PoolingLast Pooling = "last"
	// poolingSPLADE marks models with sparse vectors in the reference's model files. It has no
	// effect.
	poolingSPLADE Pooling = "splade"
)

// OutputType is one kind of encode result.
type OutputType string

// The output types a request may ask for.
const (
	OutputDense       OutputType = "dense"
	OutputSparse      OutputType = "sparse"
	OutputMultivector OutputType = "multivector"
)

// The element types a request may ask for.
var outputDTypes = []string{"float32", "float16", "int8", "uint8", "binary", "ubinary"}

// RuntimeOptions holds the options of a profile's runtime map, or of that map with a request's
// options applied. A zero field means that the option is not set. It is immutable after parsing.
type RuntimeOptions struct {
	Pooling            Pooling      // "" = the model's own module chain decides
	Normalize          *bool        // nil = the model's own module chain decides, else L2 normalisation
	QueryTemplate      *Template    // nil = none
	DocTemplate        *Template    // nil = none
	DefaultInstruction *string      // queries only, when neither request nor profile gives an instruction
	Instruction        *string      // nil = none; "" is explicit and disables DefaultInstruction
	OutputTypes        []OutputType // nil = the request's params decide; otherwise it wins over them
	OutputDType        string       // "" = float32
	IsQuery            bool
	// fold the multivector into one dense vector, as LoadtimeOptions.MUVERA configures
	MUVERA         bool
	SMVE           bool   // fold the multivector into one sparse vector
	MaxSeqLength   int    // tokens; 0 = the model's limit; can only lower it
	QueryMaxLength int    // tokens, ColBERT queries; can only lower the load-time value; 0 = that value
	Dimensions     int    // keep the first components of a dense vector and normalise again; 0 = all
	LoRAID         string // "" = the base weights
	OverflowPolicy string // default, truncate_text or error; "" = default
	ScoreMode      string // dense, sparse, colbert or hybrid (multi-function scorers); "" = dense
	ScoreWeights   map[string]float64

	// Raw holds every option, typed or not, by name. Read-only.
	Raw map[string]any

	profileTypes []OutputType // OutputTypes of the profile, without the request's options
}

// OptionError reports an option that cannot be used, and why. Its text is meant for the client: it
// names the field, the expected value and the value received.
type OptionError struct {
	Key string
	Msg string
}

func (e *OptionError) Error() string { return e.Msg }

// FormatText applies the templates and instructions to one text. instruction is the request's own
// (params.instruction), or nil when absent. An instruction, even an empty one, wins over the
// profile's. The profile's wins over DefaultInstruction, which applies to queries only. Without a
// template, a non-empty instruction and a space are put before the text.
func (o *RuntimeOptions) FormatText(text string, query bool, instruction *string) string {
	tmpl, ins := o.template(query, instruction)
	switch {
	case tmpl != nil:
		return tmpl.Format(text, ins)
	case ins != "":
		return ins + " " + text
	}
	return text
}

// Prompt returns what FormatText puts before a text.
func (o *RuntimeOptions) Prompt(query bool, instruction *string) string {
	tmpl, ins := o.template(query, instruction)
	switch {
	case tmpl != nil:
		return tmpl.before(ins)
	case ins != "":
		return ins + " "
	}
	return ""
}

// template returns the template of a text, nil without one, and the instruction, "" for none.
func (o *RuntimeOptions) template(query bool, instruction *string) (*Template, string) {
	tmpl := o.DocTemplate
	if query {
		tmpl = o.QueryTemplate
	}
	if instruction == nil {
		instruction = o.Instruction
	}
	if instruction == nil && query {
		instruction = o.DefaultInstruction
	}
	if instruction == nil {
		return tmpl, ""
	}
	return tmpl, *instruction
}

// parseRuntime reads a whole runtime map, of a file or with a request's options applied. A bad
// length limit in a request is ignored, as the reference does, because it could only have lowered
// the model's limit.
func parseRuntime(raw map[string]any, fromRequest bool) (*RuntimeOptions, error) {
	o := &RuntimeOptions{Raw: raw}
	for _, key := range sortedKeys(raw) {
		spec, known := runtimeSpecs[key]
		if !known || raw[key] == nil {
			continue
		}
		err := spec(o, raw[key])
		if err != nil && !(fromRequest && (key == "max_seq_length" || key == "query_max_length")) {
			return nil, &OptionError{Key: key, Msg: requestText(key, raw[key], err)}
		}
	}
	o.profileTypes = o.OutputTypes
	return o, nil
}

// requestText returns the client's message for a bad option. For output_dtype and overflow_policy
// it has the reference's wording, because clients may match on it.
func requestText(key string, v any, err error) string {
	s, isText := v.(string)
	switch {
	case key == "output_dtype" && isText:
		return fmt.Sprintf("Unsupported output_dtype: %s. Use one of %s",
			clip(s), strings.Join(outputDTypes, ", "))
	case key == "overflow_policy" && isText:
		return fmt.Sprintf(
			"Invalid overflow_policy: '%s'. Must be one of ['default', 'error', 'truncate_text'].", clip(s))
	}
	return fmt.Sprintf("Field 'options.%s': %v", key, err)
}

// overlay returns base with the keys of request, except "profile", replacing those of base. null in
// request unsets a key.
func overlay(base, request map[string]any) map[string]any {
	out := make(map[string]any, len(base)+len(request))
	for k, v := range base {
		out[k] = v
	}
	for k, v := range request {
		if k != "profile" {
			out[k] = v
		}
	}
	return out
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// pythonList formats names as the reference's messages do: ['a', 'b'].
func pythonList(names []string) string {
	if len(names) == 0 {
		return "[]"
	}
	return "['" + strings.Join(names, "', '") + "']"
}
