package worker

import (
	"errors"
	"slices"
	"strings"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
)

// Request asks for the vectors of some texts, or of token ids. Exactly one of Texts and Tokens is set.
type Request struct {
	Model  string
	Texts  []string  // valid UTF-8
	Tokens [][]int32 // taken as they are, special tokens included
	Field  string    // what the client calls them, for errors; "": items

	Options      map[string]any // the request's own, laid over the profile's
	OutputTypes  []string       // params.output_types
	OutputDType  string         // params.output_dtype
	Instruction  *string
	IsQuery      *bool // params.is_query; options.is_query wins
	Dimensions   int   // keep the first components and normalise again; 0: as the option of that name says
	TruncateLeft bool  // keep the end of what is too long, not its start
	// ForceFloat32 ignores every wish for another dtype (the OpenAI endpoint).
	ForceFloat32 bool
}

// Result holds what was asked for of each text, in order; the other slices are nil.
type Result struct {
	Model *catalog.Resolved

	Rows [][]byte    // dense rows, little-endian
	Type api.NumType // of a row's elements
	Dims int         // components of a row, before bits are packed

	Sparse     []Sparse
	SparseType api.NumType // of the values
	SparseDims int         // columns there could be

	Multi     []Matrix
	MultiType api.NumType // of the elements
	TokenDims int         // components of a token's row, before bits are packed

	Tokens  int // read by the model, special tokens included
	Timings Timings
	Ignored []string // options of the request that are for other operations
}

// Timings are the durations of one request.
type Timings = api.Timings

// plan is a request after every check that needs no loaded model.
type plan struct {
	model       *catalog.Resolved
	options     *catalog.RuntimeOptions
	query       bool
	instruction *string // the request's own
	outputs     outputs
	form        outputForm
	dimensions  int
	fold        *folding // nil: nothing is folded
	lora        *loraKey // nil: the base weights
	left        bool     // texts that are too long lose their start
	ignored     []string // options of other operations
}

// option is an option without a field of its own: the request's, else its profile's, else what the model is loaded with.
func (p *plan) option(key string) any {
	if v := p.options.Raw[key]; v != nil {
		return v
	}
	return p.model.Loadtime.Raw[key]
}

// planAny checks what all operations share, in the order that clients know: model, then profile and options.
func (w *Worker) planAny(op catalog.Operation, id string, options map[string]any, instruction *string) (*plan, error) {
	m, err := w.view.Load().catalog.Resolve(id)
	if err != nil {
		return nil, errs.UnknownModel(err.Error())
	}
	if err := m.Usable(); err != nil {
		return nil, errs.Invalid("model", err.Error())
	}
	opt, ignored, err := m.Options(op, options)
	if err != nil {
		return nil, optionError(err)
	}
	p := &plan{model: m, options: opt, query: opt.IsQuery, instruction: instruction, dimensions: opt.Dimensions, ignored: ignored}
	if key, ok, err := loraOf(m, opt, options); err != nil {
		return nil, err
	} else if ok {
		p.lora = &key
	}
	return p, nil
}

// instructionText is the instruction that holds for the request: its own, else the profile's.
func (p *plan) instructionText() string {
	switch {
	case p.instruction != nil:
		return *p.instruction
	case p.options.Instruction != nil:
		return *p.options.Instruction
	}
	return ""
}

// plan checks a request for vectors against the catalog.
func (w *Worker) plan(r *Request) (*plan, error) {
	p, err := w.planAny(catalog.OpEncode, r.Model, r.Options, r.Instruction)
	if err != nil {
		return nil, err
	}
	if r.Dimensions > 0 {
		p.dimensions = r.Dimensions
	}
	p.left = r.TruncateLeft
	if _, given := r.Options["is_query"]; !given && r.IsQuery != nil {
		p.query = *r.IsQuery
	}
	if err := w.checkOutputs(p, r); err != nil {
		return nil, err
	}
	dtype := r.OutputDType
	if dtype == "" {
		dtype = p.options.OutputDType
	}
	if dtype == "" || r.ForceFloat32 {
		dtype = "float32"
	}
	form, ok := outputForms[dtype]
	if !ok {
		return nil, errs.UnknownOutputDType(dtype)
	}
	p.form = form
	return p, nil
}

// planScore checks a request for scores.
func (w *Worker) planScore(r *ScoreRequest) (*plan, error) {
	m, err := w.view.Load().catalog.Resolve(r.Model)
	if err != nil {
		return nil, errs.UnknownModel(err.Error())
	}
	if !m.Has("score") {
		return nil, errs.NoScoring(r.Model)
	}
	p, err := w.planAny(catalog.OpScore, r.Model, r.Options, r.Instruction)
	if err != nil {
		return nil, err
	}
	p.form, p.left = outputForms["float32"], r.TruncateLeft
	return p, nil
}

// optionError is the 400 for an option that the catalog refused.
func optionError(err error) error {
	var o *catalog.OptionError
	if errors.As(err, &o) {
		return errs.Invalid("options."+o.Key, o.Msg)
	}
	return errs.Internal(err)
}

func (w *Worker) checkOutputs(p *plan, r *Request) error {
	var wanted []string
	for _, t := range p.options.OutputTypes {
		wanted = append(wanted, string(t))
	}
	if wanted == nil {
		wanted = r.OutputTypes
	}
	var allowed, unsupported []string
	for _, t := range p.model.AllowedOutputTypes(p.options) {
		allowed = append(allowed, string(t))
	}
	if len(wanted) == 0 {
		wanted = []string{"dense"}
	}
	for _, t := range wanted {
		if !slices.Contains(allowed, t) && !slices.Contains(unsupported, t) {
			unsupported = append(unsupported, t)
		}
	}
	if len(unsupported) > 0 {
		slices.Sort(unsupported)
		return errs.UnsupportedOutputs(r.Model, unsupported, allowed)
	}
	for _, t := range wanted {
		switch catalog.OutputType(t) {
		case catalog.OutputDense:
			p.outputs.dense = true
		case catalog.OutputSparse:
			p.outputs.sparse = true
		case catalog.OutputMultivector:
			p.outputs.multi = true
		}
	}
	if p.dimensions > 0 && !p.outputs.dense {
		return errs.UnsupportedField("dimensions", "dimensions cuts dense vectors and the request asks for none: remove it, or add 'dense' to the output types")
	}
	return p.planFolding(r.Model)
}

// planExtract checks a request for extraction.
func (w *Worker) planExtract(r *ExtractRequest) (*plan, error) {
	m, err := w.view.Load().catalog.Resolve(r.Model)
	if err != nil {
		return nil, errs.UnknownModel(err.Error())
	}
	if !m.Has("json") {
		return nil, errs.NoExtraction(r.Model)
	}
	p, err := w.planAny(catalog.OpExtract, r.Model, r.Options, nil)
	if err != nil {
		return nil, err
	}
	if p.model.Family == catalog.FamilyZeroShot && len(r.Labels) == 0 {
		return nil, errs.Invalidf("params.labels", "%s requires labels: give the classes to choose from in params.labels", p.model.Adapter.Class)
	}
	for i, l := range r.Labels {
		if strings.TrimSpace(l) == "" {
			return nil, errs.Invalidf("params.labels", "label %d of params.labels is empty", i)
		}
	}
	return p, nil
}
