package task

import (
	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/arch"
)

// families has every family of models that is served. To add one, write its file and enter it here;
// the catalog says which adapters it has and which options it takes.
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

// family is what models of a family do. A nil function is an operation that they do not have.
type family struct {
	task arch.Task // what is read of the model's files

	encode  *vectors
	score   func(*run) error
	pairs   bool // score reads the query and a text together, so that Classify gives its logits
	extract *extractor
}

// vectors is how a family gives vectors where it differs from a pooled row of each text. Nil
// functions differ in nothing.
type vectors struct {
	// begin settles how texts are read, before any is.
	begin func(*encoding)
	// want changes what the program shall give.
	want func(*encoding, *arch.Want)
	// table, if it returns true, answers the request without a forward pass.
	table func(*encoding) bool
}

// extractor is how a family finds what is in texts.
type extractor struct {
	check   func(*Request) error // what is wrong with a request, whatever is loaded
	classes func(*run) int       // how many classes an item's result may have
	run     func(*run) error
}

// Tasks is what each family reads of a model's files.
func Tasks() map[catalog.Family]arch.Task {
	out := make(map[catalog.Family]arch.Task, len(families))
	for name, f := range families {
		out[name] = f.task
	}
	return out
}

// ScoresPairs says whether a model scores by reading the query and a text together: Classify then
// gives its logits.
func ScoresPairs(m *catalog.Resolved) bool {
	f := families[m.Family]
	return f != nil && f.pairs
}

// familyOf is the family of a usable entry.
func familyOf(m *catalog.Resolved) (*family, error) {
	f := families[m.Family]
	if f == nil {
		return nil, errs.Invalidf("model", "Model '%s': this build does not serve models of the family %q", m.ID, m.Family)
	}
	return f, nil
}
