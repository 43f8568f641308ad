package task

import (
	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/fold"
)

// folding says how the token vectors of a text become one vector: a dense one by MUVERA, a sparse
// one by SMVE.
type folding struct {
	muvera *catalog.MUVERAConfig // nil: no dense row is folded
	smve   *catalog.SMVEConfig   // nil: no sparse row is folded
}

// planFolding decides which of the wanted outputs are folded from token vectors. It refuses an
// option to fold that the model has no use for.
func (p *Prepared) planFolding(id string) error {
	o, load := p.options, p.model.Loadtime
	multi, tasks := p.model.Has(string(catalog.OutputMultivector)), p.model.Model.Tasks
	for _, f := range []struct {
		on, configured, own bool
		key, output         string
	}{{o.MUVERA, load.MUVERA != nil, tasks.Dense != nil, "muvera", "dense"},
		{o.SMVE, load.SMVE != nil, tasks.Sparse != nil, "smve", "sparse"}} {
		switch {
		case f.on && !multi:
			return errs.Invalidf("options."+f.key,
				"Model '%s' has no multivectors to fold; remove the option '%s'", id, f.key)
		case f.on && f.own:
			return errs.Invalidf("options."+f.key,
				"Model '%s' has %s vectors of its own and folds none; remove the option '%s'",
				id, f.output, f.key)
		case f.on && !f.configured:
			return errs.Invalidf("options."+f.key, "Model '%s' has no %s_config; remove the option '%s'",
				id, f.key, f.key)
		}
	}
	var f folding
	if p.outputs.dense && o.MUVERA {
		f.muvera = load.MUVERA
	}
	if p.outputs.sparse && o.SMVE {
		f.smve = load.SMVE
	}
	if f != (folding{}) {
		p.fold = &f
	}
	return nil
}

// ask adds the folded outputs to those that a program shall give.
func (f *folding) ask(want *arch.Want, query bool) {
	want.FoldQuery = query && *f != folding{}
	if c := f.muvera; c != nil {
		want.Muvera = fold.Muvera{
			Repetitions:  c.Repetitions,
			Bits:         c.SimHashProjections,
			Projected:    c.ProjectionDim,
			Final:        c.FinalProjectionDim,
			Seed:         c.Seed,
			Normalize:    c.Normalize,
			CenterTokens: c.CenterTokens,
			FillEmpty:    c.FillEmpty,
		}
	}
	if c := f.smve; c != nil {
		want.SMVE = fold.SMVE{
			Repetitions: c.Repetitions, Width: c.Width, Top: c.K, MaxNonzeros: c.MaxNonzeros, Seed: c.Seed,
		}
	}
}

// settle sets the widths of the folded rows, and whether the dense row is normalised.
func (f *folding) settle(to *forms) {
	if f.muvera != nil {
		to.dims, to.normalize = f.muvera.OutputDim(to.tokenDims), f.muvera.Normalize
	}
	if f.smve != nil {
		to.vocab = f.smve.Width * f.smve.Repetitions
	}
}
