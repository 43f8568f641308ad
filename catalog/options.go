package catalog

import (
	"fmt"
	"sort"
	"strings"
)

// Pooling turns token vectors into one vector.
type Pooling string

// The pooling names of the YAML; last_token is read as PoolingLast.
const (
	PoolingCLS  Pooling = "cls"
	PoolingMean Pooling = "mean"
	PoolingLast Pooling = "last"
	// poolingSPLADE is how model files of the reference say that a model gives sparse vectors. It
	// changes nothing.
	poolingSPLADE Pooling = "splade"
)

// OutputType is one form of an encode result.
type OutputType string

// The output types a request may ask for.
const (
	OutputDense       OutputType = "dense"
	OutputSparse      OutputType = "sparse"
	OutputMultivector OutputType = "multivector"
)

// The element types a request may ask for.
var outputDTypes = []string{"float32", "float16", "int8", "uint8", "binary", "ubinary"}

// RuntimeOptions is the typed view of a profile's runtime map, or of that map with a request's
// options laid over it. The zero value states nothing. Immutable after parsing.
type RuntimeOptions struct {
	Pooling            Pooling      // "" = the model's own module chain decides
	Normalize          *bool        // nil = the model's own module chain decides, else L2 normalisation
	QueryTemplate      *Template    // nil = none
	DocTemplate        *Template    // nil = none
	DefaultInstruction *string      // queries only, when neither request nor profile gives an instruction
	Instruction        *string      // nil = none; "" is explicit and keeps DefaultInstruction out
	OutputTypes        []OutputType // nil = the request's params decide; non-nil wins over them
	OutputDType        string       // "" = float32
	IsQuery            bool
	MUVERA             bool   // fold the multivector into one dense vector (LoadtimeOptions.MUVERA says how)
	SMVE               bool   // fold the multivector into one sparse vector
	MaxSeqLength       int    // tokens; 0 = the model's ceiling; only ever lowers it
	QueryMaxLength     int    // tokens, ColBERT queries; 0 = the load-time value
	Dimensions         int    // keep the first components of a dense vector and normalise again; 0 = all
	LoRAID             string // "" = the base weights
	OverflowPolicy     string // default, truncate_text or error; "" = default
	ScoreMode          string // dense, sparse, colbert or hybrid (multi-function scorers); "" = dense
	ScoreWeights       map[string]float64

	// Raw holds every option, typed or not, by name. Read-only.
	Raw map[string]any

	profileTypes []OutputType // OutputTypes as the profile states them, before a request's overlay
}

// OptionError says which option cannot be used and why. Its text is meant for the client: it names
// the field, what is expected and what came.
type OptionError struct {
	Key string
	Msg string
}

func (e *OptionError) Error() string { return e.Msg }

// FormatText applies the templates and instructions to one text. instruction is the request's own
// (params.instruction): nil when absent. An instruction, even an empty one, wins over the
// profile's, and that one over DefaultInstruction, which serves queries only. Without a template a
// non-empty instruction is put in front of the text with a space.
func (o *RuntimeOptions) FormatText(text string, query bool, instruction *string) string {
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
	ins := ""
	if instruction != nil {
		ins = *instruction
	}
	switch {
	case tmpl != nil:
		return tmpl.Format(text, ins)
	case ins != "":
		return ins + " " + text
	}
	return text
}

// parseRuntime reads a whole runtime map, from a file or after a request's overlay. A bad length
// limit in a request is ignored, as the reference does, since it could only have lowered the
// model's own.
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

// requestText is the client's text for a bad option. The reference's wording for output_dtype and
// overflow_policy is kept because clients may match on it.
func requestText(key string, v any, err error) string {
	s, isText := v.(string)
	switch {
	case key == "output_dtype" && isText:
		return fmt.Sprintf("Unsupported output_dtype: %s. Use one of %s", clip(s), strings.Join(outputDTypes, ", "))
	case key == "overflow_policy" && isText:
		return fmt.Sprintf("Invalid overflow_policy: '%s'. Must be one of ['default', 'error', 'truncate_text'].", clip(s))
	}
	return fmt.Sprintf("Field 'options.%s': %v", key, err)
}

// overlay returns base with every key of request except "profile" set over it; null in request
// unsets.
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

// pythonList prints names as the reference's messages do: ['a', 'b'].
func pythonList(names []string) string {
	if len(names) == 0 {
		return "[]"
	}
	return "['" + strings.Join(names, "', '") + "']"
}
