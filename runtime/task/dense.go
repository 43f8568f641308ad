package task

import (
	"slices"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/tokenizer"
)

// The family of models that give one pooled vector per text.
func init() {
	families[catalog.FamilyDense] = &family{task: arch.Embed, encode: &vectors{begin: leavePromptOut}}
}

// leavePromptOut keeps the rows of a prompt's tokens out of pooling, where the model's files ask
// for it. Texts that come as token ids have no prompt: no prompt is counted for them.
func leavePromptOut(e *encoding) {
	m := e.use.Weights()
	if !m.SkipsPrompt {
		return
	}
	p := &prompted{poolings: m.Poolings}
	if pooling := poolings[e.options.Pooling]; pooling != 0 {
		p.poolings = []engine.Pooling{pooling}
	}
	e.reader.prompted = p
	e.lay = func(ids []int32) ([]int32, []uint8, int) { return ids, p.keep(len(ids)), len(ids) }
}

// prompted says how many tokens of each text are its prompt's, which pooling leaves out.
type prompted struct {
	poolings []engine.Pooling
	counted  bool
	tokens   int // 0 without a prompt
}

// count counts the tokens of a text that are its prompt's, as sentence-transformers does: those of
// the prompt alone, without a special token at its end. Where the prompt and a text join in one
// token, that is the number all the same.
func (p *prompted) count(r *reader, first int) error {
	if p.counted {
		return nil
	}
	prompt := r.prompt()
	if p.counted = true; prompt == "" {
		return nil
	}
	var b tokenizer.Batch
	if err := r.model.Tokenizer().EncodeParallel(r.ctx, &b, []string{prompt}, r.cuts()); err != nil {
		return r.textError(err, first)
	}
	p.tokens = len(b.IDs)
	if n := len(b.IDs); n > 0 && r.model.Tokenizer().IsSpecial(b.IDs[n-1]) {
		p.tokens--
	}
	return nil
}

// check counts the prompt's tokens. It refuses texts that have no others where no token has no
// pooled value: the largest would be −∞. The mean of no token is 0, and so is the last one.
func (p *prompted) check(r *reader, b *tokenizer.Batch, first int) error {
	if err := p.count(r, first); err != nil {
		return err
	}
	valued := !slices.Contains(p.poolings, engine.PoolMax) &&
		(len(p.poolings) == 1 || !slices.Contains(p.poolings, engine.PoolCLS))
	for i := range b.Len() {
		if valued || p.tokens == 0 || len(b.Text(i)) > p.tokens {
			continue
		}
		place := r.location(first + i)
		if err := r.refuse(first+i, errs.Invalidf(r.field,
			"Field '%s' has no token besides those of its prompt, which model '%s' leaves out; give it some text",
			place, r.entry.ID)); err != nil {
			return err
		}
	}
	return nil
}

// keep marks the tokens behind the prompt; nil: all. Of a text that is nothing but its prompt, cls
// is the first token all the same.
func (p *prompted) keep(n int) []uint8 {
	alone := len(p.poolings) == 1 && p.poolings[0] == engine.PoolCLS
	if p.tokens == 0 || n <= p.tokens && alone {
		return nil
	}
	keep := make([]uint8, n)
	for i := p.tokens; i < n; i++ {
		keep[i] = 1
	}
	return keep
}
