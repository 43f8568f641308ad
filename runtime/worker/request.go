package worker

import (
	"errors"
	"slices"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
)

// Request asks for the vectors of some texts, or of token ids. Exactly one of Texts and Tokens is set.
type Request struct {
	Model  string
	Texts  []string  // valid UTF-8
	Tokens [][]int32 // taken as they are, special tokens included

	Options     map[string]any // the request's own, laid over the profile's
	OutputTypes []string       // params.output_types
	OutputDType string         // params.output_dtype
	Instruction *string
	IsQuery     *bool // params.is_query; options.is_query wins
	Dimensions  int   // keep the first components and normalise again; 0: as the option of that name says
	// ForceFloat32 ignores every wish for another dtype (the OpenAI endpoint).
	ForceFloat32 bool
}

// Result holds one row per text, in order.
type Result struct {
	Model   *catalog.Resolved
	Rows    [][]byte    // little-endian
	Type    api.NumType // of a row's elements
	Dims    int         // components of a row, before bits are packed
	Tokens  int         // read by the model, special tokens included
	Timings Timings
}

// Timings of one request. The phases of a request that spans batches overlap, so they need not add up.
type Timings struct {
	Preprocess time.Duration // validation, templates, waiting for a load
	Tokenize   time.Duration
	BatchWait  time.Duration // in the queue, first item
	Inference  time.Duration // first batch starts to last batch ends
	Total      time.Duration
}

// plan is a request after every check that needs no loaded model.
type plan struct {
	model      *catalog.Resolved
	options    *catalog.RuntimeOptions
	query      bool
	form       outputForm
	dimensions int
}

// plan checks the request against the catalog, in the order that clients know: model, profile and options, output types.
func (w *Worker) plan(r *Request) (*plan, error) {
	m, err := w.view.Load().catalog.Resolve(r.Model)
	if err != nil {
		return nil, errs.UnknownModel(err.Error())
	}
	if err := m.Usable(); err != nil {
		return nil, errs.Invalid("model", err.Error())
	}
	opt, err := m.Options(r.Options)
	if err != nil {
		return nil, optionError(err)
	}
	p := &plan{model: m, options: opt, query: opt.IsQuery, dimensions: opt.Dimensions}
	if r.Dimensions > 0 {
		p.dimensions = r.Dimensions
	}
	if _, given := r.Options["is_query"]; !given && r.IsQuery != nil {
		p.query = *r.IsQuery
	}
	if err := w.checkOutputs(p, r); err != nil {
		return nil, err
	}
	dtype := r.OutputDType
	if dtype == "" {
		dtype = opt.OutputDType
	}
	if dtype == "" || r.ForceFloat32 {
		dtype = "float32"
	}
	form, ok := outputForms[dtype]
	if !ok {
		return nil, errs.UnknownOutputDType(dtype)
	}
	p.form = form
	if opt.LoRAID != "" {
		return nil, errs.NoLoRA(opt.LoRAID, r.Model)
	}
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
	if o := p.options; (o.MUVERA || o.SMVE) && !p.model.Has(string(catalog.OutputMultivector)) {
		key := "muvera"
		if !o.MUVERA {
			key = "smve"
		}
		return errs.Invalidf("options."+key, "Model '%s' has no multivectors to fold; remove the option '%s'", r.Model, key)
	}
	return nil
}
