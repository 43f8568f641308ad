package task

import (
	"context"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/model"
)

// families holds every family of models that this build serves. Each is entered by its own file. To
// add one, write its file, and complete its row in the catalog's table of families.
var families = make(map[catalog.Family]*family)

// family says what models of one family do. A nil function is an operation that they do not have.
type family struct {
	task arch.Task // what is loaded from the model's files
	// suits reports whether a model without a model file is of this family, by the labels of its
	// head, where families share the task; nil: if it is of no other.
	suits func(labels []string) bool

	encode  *vectors
	score   func(*run) error
	extract *extractor
	// unite answers an extract request with other models, in place of extract.run; nil: the family
	// has a model of its own.
	unite func(ctx context.Context, p *Prepared, h *model.Host, hold Hold) (*Result, error)
}

// vectors says how a family's vectors differ from one pooled row per text. A nil function means
// that there is no difference.
type vectors struct {
	// begin sets how texts are read. It runs before any text is read.
	begin func(*encoding)
	// sparse is the output that sparse rows are made of; "": they are arch.OutSparse.
	sparse arch.Output
	// table answers the request without a forward pass if it returns true.
	table func(*encoding) bool
}

// extractor says how a family finds classes or entities in texts. A family that unites others has
// no functions.
type extractor struct {
	instructed bool                 // reads an instruction; else one is refused
	check      func(*Request) error // refuses a bad request without a loaded model; nil: no check
	// ready refuses bad options, of the request and of its profile, without a loaded model; nil: no
	// check
	ready   func(*Prepared) error
	classes func(*run) int // bounds the classes in an item's result; nil: none
	run     func(*run) error
}

// Tasks returns, for each family, what is loaded from a model's files.
func Tasks() map[catalog.Family]arch.Task {
	out := make(map[catalog.Family]arch.Task, len(families))
	for name, f := range families {
		out[name] = f.task
	}
	return out
}

// familyOf returns the family of a usable entry, or an error if this build does not serve it.
func familyOf(m *catalog.Resolved) (*family, error) {
	f := families[m.Family]
	if f == nil {
		return nil, errs.Invalidf("model", "Model '%s': this build does not serve models of the family %q",
			m.ID, m.Family)
	}
	return f, nil
}

// Detect returns the family of a model directory without a model file, by what its own files say it
// was made for. A directory that says nothing gives dense vectors. Errors are those of arch.Detect.
func Detect(dir string) (catalog.Family, error) {
	task, labels, err := arch.Detect(dir)
	if err != nil {
		return catalog.FamilyNone, err
	}
	other := catalog.FamilyNone
	for name, f := range families {
		switch {
		case f.task != task:
		case f.suits == nil:
			other = name
		case f.suits(labels):
			return name, nil
		}
	}
	return other, nil
}
