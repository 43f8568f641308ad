package task

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/files"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/model"
	"github.com/sie-engine/sie/runtime/words"
)

// Prepared is a request that passed every check that needs no loaded model, with its options
// resolved. An entrance may pass in inputs that are already token ids. A Prepared never changes.
type Prepared struct {
	req    *Request
	start  time.Time
	model  *catalog.Resolved
	family *family
	plan
}

// plan is the outcome of the request's and its profile's options.
type plan struct {
	options     *catalog.RuntimeOptions
	query       bool
	instruction *string // the request's own
	outputs     outputs
	form        outputForm
	dimensions  int
	fold        *folding       // nil: nothing is folded
	lora        *model.LoRAKey // nil: the base weights
	task        string         // whose adapter lora is; "": none
	taskBy      string         // the option that names the task
	left        bool           // texts that are too long lose their start
	ignored     []string       // options that belong to other operations
}

const (
	// maxNames and maxNamed bound a client's names in an error: their number, and each in bytes.
	maxNames, maxNamed = 10, 80
	// maxInstruction bounds a request's instruction in bytes, as the catalog bounds the option of
	// that name, because it is put before every text.
	maxInstruction = 16 << 10
)

// named adds a client's name to those of an error, unless it is there or there are enough.
func named(names []string, name string) []string {
	if name = files.Clip(name, maxNamed); len(names) < maxNames && !slices.Contains(names, name) {
		names = append(names, name)
	}
	return names
}

// operations maps each Op to the catalog's operation.
var operations = map[Op]catalog.Operation{
	Encode: catalog.OpEncode, Score: catalog.OpScore, Extract: catalog.OpExtract, Classify: catalog.OpExtract,
}

// Prepare checks a request and loads nothing. The order is the one that clients know: what the
// model can do, the inputs, the options, then what the operation adds. Errors are *errs.Error.
func Prepare(r *Request) (*Prepared, error) {
	start, m := time.Now(), r.Model
	switch { // before the options, which are checked for the operation
	case r.Op == Score && !m.Has("score"):
		return nil, errs.NoScoring(r.name())
	case r.Op == Extract && !m.Has("json"):
		return nil, errs.NoExtraction(r.name())
	}
	if err := r.checkInputs(); err != nil {
		return nil, err
	}
	p, err := prepareAny(r, operations[r.Op])
	if err != nil {
		return nil, err
	}
	p.start, p.left = start, r.TruncateLeft
	switch r.Op {
	case Encode:
		err = p.checkEncode()
	case Score:
		p.form = outputForms["float32"]
		if p.family.score == nil {
			err = errs.NoScoring(m.ID)
		}
	case Extract:
		err = p.checkExtract()
	case Classify:
		if !p.family.task.Gives(arch.OutLogits) {
			err = errs.NoExtraction(r.name())
		}
	default:
		err = errs.Internal(errors.New("task: a request without an operation"))
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// checkInputs refuses inputs that the operation does not read. No family reads anything but text
// yet. Token ids are for Encode only, second texts for Classify only.
func (r *Request) checkInputs() error {
	if r.Op == Score {
		if err := api.CheckQuery(r.Query, r.Model.Adapter.Class); err != nil {
			return err
		}
	}
	return api.CheckItems(r.Inputs, r.Field, r.Model.Adapter.Class,
		api.Reads{Tokens: r.Op == Encode, Second: r.Op == Classify})
}

// prepareAny checks what all operations share: the model, then its profile and options.
func prepareAny(r *Request, op catalog.Operation) (*Prepared, error) {
	m := r.Model
	if err := m.Usable(); err != nil {
		return nil, errs.Invalid("model", err.Error())
	}
	f, err := familyOf(m)
	if err != nil {
		return nil, err
	}
	if r.Instruction != nil && len(*r.Instruction) > maxInstruction {
		field := "instruction"
		if r.Op == Encode || r.Op == Extract {
			field = "params.instruction"
		}
		return nil, errs.Invalidf(field, "Field '%s' has %d bytes; the limit is %d",
			field, len(*r.Instruction), maxInstruction)
	}
	opt, ignored, err := m.Options(op, r.Options)
	if err != nil {
		return nil, optionError(err)
	}
	p := &Prepared{req: r, model: m, family: f, plan: plan{
		options:     opt,
		query:       opt.IsQuery,
		instruction: r.Instruction,
		dimensions:  opt.Dimensions,
		ignored:     ignored,
	}}
	if key, ok, err := model.LoRAOf(m, opt, r.Options); err != nil {
		return nil, err
	} else if ok {
		p.lora = &key
	}
	return p, p.chooseTask()
}

// chooseTask makes the adapter of a task, which is in the model's own checkpoint, that of the
// request. options.task names it, or options.prompt_name, for a task's prompt has its name.
func (p *Prepared) chooseTask() error {
	by := "task"
	task, _ := p.option(by).(string)
	prompt, _ := p.option("prompt_name").(string)
	switch {
	case p.req.Op != Encode || task == "" && prompt == "":
		return nil
	case task == "":
		task, by = prompt, "prompt_name"
	case prompt != "" && prompt != task:
		return errs.Invalidf("options.prompt_name",
			"Field 'options.prompt_name' is %.80q, and 'options.task' is %.80q: give one of them", prompt, task)
	}
	if p.lora != nil {
		return errs.Invalidf("options."+by,
			"Field 'options.%s' chooses an adapter, and so does 'options.lora_id': give one of them", by)
	}
	key := model.TaskKey(task)
	p.lora, p.task, p.taskBy = &key, task, by
	return nil
}

// adapterName returns what the request calls its adapter: its id, or the option that names its
// task.
func (p *Prepared) adapterName() string { return cmp.Or(p.taskBy, p.options.LoRAID) }

// optionError is the 400 for an option that the catalog refused.
func optionError(err error) error {
	var o *catalog.OptionError
	if errors.As(err, &o) {
		return errs.Invalid("options."+o.Key, o.Msg)
	}
	return errs.Internal(err)
}

// option returns an option that has no field in the resolved options. The request's value takes
// precedence over the profile's, and both over the model's load-time value.
func (p *Prepared) option(key string) any {
	if v := p.options.Raw[key]; v != nil {
		return v
	}
	return p.model.Loadtime.Raw[key]
}

// instructionText returns the instruction that applies: the request's, else the profile's.
func (p *Prepared) instructionText() string {
	switch {
	case p.instruction != nil:
		return *p.instruction
	case p.options.Instruction != nil:
		return *p.options.Instruction
	}
	return ""
}

// checkEncode settles which vectors a request gets and in which form.
func (p *Prepared) checkEncode() error {
	r := p.req
	if r.Dimensions > 0 {
		p.dimensions = r.Dimensions
	}
	if _, given := r.Options["is_query"]; !given && r.IsQuery != nil {
		p.query = *r.IsQuery
	}
	if err := p.checkOutputs(); err != nil {
		return err
	}
	dtype := r.OutputDType
	if dtype == "" {
		dtype = p.options.OutputDType
	}
	if dtype == "" {
		dtype = "float32"
	}
	form, ok := outputForms[dtype]
	if !ok {
		return errs.UnknownOutputDType(files.Clip(dtype, maxNamed))
	}
	p.form = form
	return nil
}

func (p *Prepared) checkOutputs() error {
	var wanted []string
	for _, t := range p.options.OutputTypes {
		wanted = append(wanted, string(t))
	}
	if wanted == nil {
		wanted = p.req.OutputTypes
	}
	var allowed, unsupported []string
	for _, t := range p.model.AllowedOutputTypes(p.options) {
		allowed = append(allowed, string(t))
	}
	if len(wanted) == 0 {
		wanted = []string{"dense"}
	}
	for _, t := range wanted {
		if !slices.Contains(allowed, t) {
			unsupported = named(unsupported, t)
		}
	}
	if len(unsupported) == 0 && p.family.encode == nil {
		for _, t := range wanted {
			unsupported = named(unsupported, t)
		}
	}
	if len(unsupported) > 0 {
		slices.Sort(unsupported)
		return errs.UnsupportedOutputs(p.req.name(), unsupported, allowed)
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
		return errs.UnsupportedField("dimensions",
			"dimensions cuts dense vectors and the request asks for none: remove it, or add 'dense' to the output types")
	}
	return p.planFolding(p.req.name())
}

func (p *Prepared) checkExtract() error {
	x := p.family.extract
	if x == nil {
		return errs.NoExtraction(p.model.ID)
	}
	if r := p.req; r.Instruction != nil && *r.Instruction != "" && !x.instructed {
		return api.Unused("params.instruction", r.name())
	}
	if x.check != nil {
		if err := x.check(p.req); err != nil {
			return err
		}
	}
	if x.ready != nil {
		if err := x.ready(p); err != nil {
			return err
		}
	}
	if n := len(p.req.Labels); n > words.MaxLabels {
		return errs.Invalidf(labelsField,
			"Field '%s' has %d labels; a request may have at most %d: ask for the others in another one",
			labelsField, n, words.MaxLabels)
	}
	for i, l := range p.req.Labels {
		if strings.TrimSpace(l) == "" {
			return errs.Invalidf(labelsField, "%s[%d] is blank; name what is to be found", labelsField, i)
		}
	}
	return nil
}
