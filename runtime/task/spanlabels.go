package task

import (
	"fmt"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/tokenizer"
	"github.com/sie-engine/sie/runtime/words"
)

// Models with a label tower (GLiNER's bi-encoders) read each label alone, and a text without a
// prompt. A window's batch item brings the rows of the labels as its query.

// biClass is the class of the adapter of such models in the catalog.
const biClass = "GLiNERBiAdapter"

// aloneLabelLimits bound labels that share no prompt with others.
var aloneLabelLimits = words.LabelLimits{MaxLabels: words.MaxLabels, MaxLabelChars: words.MaxLabelChars,
	MaxPromptTokens: words.MaxLabels * words.MaxLabelChars}

// cacheOfLabels is the key of a model's labelCache.
type cacheOfLabels struct{}

// readTower gets the rows of the labels, and makes the prompt that is left: the first token.
func (f *finding) readTower() error {
	f.bounds = aloneLabelLimits
	if err := f.check(f.req.Labels, nil); err != nil {
		return err
	}
	f.labels = f.req.Labels
	f.readWords(f.use.Tokenizer())
	special := f.use.Tokenizer().Special()
	f.prompt, f.sep = []int32{special.CLS}, special.SEP
	variant, err := f.variantFor(arch.Want{Give: arch.Give(arch.OutLabelRow)})
	if err != nil {
		return err
	}
	encode := func(labels []string) ([][]float32, error) { return f.encodeLabels(variant.Queue, labels) }
	if kept, ok := f.option("precompute_labels").(bool); ok && !kept {
		f.given, err = newLabelCache(0, nil).query(f.ctx, f.labels, encode)
		return err
	}
	loaded := f.use.Model
	cache := loaded.Keep(cacheOfLabels{}, func() any {
		return newLabelCache(f.host.LabelCacheBytes(), loaded)
	})
	f.given, err = cache.(*labelCache).query(f.ctx, f.labels, encode)
	return err
}

// encodeLabels computes the rows of labels on q, the queue of the label tower.
func (f *finding) encodeLabels(q *batch.Queue, labels []string) ([][]float32, error) {
	tower := f.how.Tower
	var tokens tokenizer.Batch
	err := f.use.LabelTokenizer().EncodeParallel(f.ctx, &tokens, labels,
		tokenizer.Options{MaxTokens: tower.MaxLen})
	if err != nil {
		return nil, err
	}
	rows := make([][]float32, len(labels))
	j := job{
		ctx: f.ctx, queue: q, n: len(labels), timings: &f.result.Timings,
		make: func(first, end int) ([]batch.Item, error) {
			items := make([]batch.Item, end-first)
			for i := range items {
				items[i] = batch.Item{Inputs: batch.Inputs{IDs: tokens.Text(first + i)}, Index: i,
					Specs: []batch.Spec{{DType: int32(engine.F32), Bytes: 4 * tower.Row}}}
			}
			return items, nil
		},
		bad: func(i int) error {
			return errs.NonFiniteItem(f.model.ID,
				fmt.Sprintf("the label %.100q of %s", labels[i], labelsField))
		},
		put: func(first int, results []batch.Result) error {
			for i := range results {
				rows[first+i] = floats(results[i][0])
			}
			return nil
		},
	}
	return rows, j.run()
}
