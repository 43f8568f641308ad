package task

import (
	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/arch"
)

// families holds every family of models that this build serves. To add a family, write its file and
// enter it here. The catalog maps adapter classes to families and checks a family's options.
var families = map[catalog.Family]*family{
	catalog.FamilyDense:              &dense,
	catalog.FamilySparse:             &sparse,
	catalog.FamilyColBERT:            &colbert,
	catalog.FamilyMultiFunction:      &multiFunction,
	catalog.FamilyCrossEncoder:       &crossEncoder,
	catalog.FamilyZeroShot:           &zeroShot,
	catalog.FamilySequenceClassifier: &classifier,
	catalog.FamilyTagger:             &tagger,
}

// family says what models of one family do. A nil function is an operation that they do not have.
type family struct {
	task arch.Task // what is loaded from the model's files

	encode  *vectors
	score   func(*run) error
	pairs   bool // score reads the query and a text together, so that Classify gives its logits
	extract *extractor
}

// vectors says how a family's vectors differ from one pooled row per text. A nil function means
// that there is no difference.
type vectors struct {
	// begin sets how texts are read. It runs before any text is read.
	begin func(*encoding)
	// want changes the outputs that the program shall give.
	want func(*encoding, *arch.Want)
	// table answers the request without a forward pass if it returns true.
	table func(*encoding) bool
}

// extractor says how a family finds classes or entities in texts.
type extractor struct {
	check   func(*Request) error // refuses a bad request without a loaded model; nil: no check
	classes func(*run) int       // bounds the classes in an item's result; nil: none
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

// ScoresPairs reports whether a model scores by reading the query and a text together. Classify
// then gives its logits.
func ScoresPairs(m *catalog.Resolved) bool {
	f := families[m.Family]
	return f != nil && f.pairs
}

// familyOf returns the family of a usable entry, or an error if this build does not serve it.
func familyOf(m *catalog.Resolved) (*family, error) {
	f := families[m.Family]
	if f == nil {
		return nil, errs.Invalidf("model", "Model '%s': this build does not serve models of the family %q", m.ID, m.Family)
	}
	return f, nil
}
