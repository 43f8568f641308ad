package worker

import (
	"slices"
	"strings"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/tokenizer"
)

// tag finds entities with a token classification head: each token's best label, neighbours of one entity joined as their
// B- and I- prefixes say, its score the mean of theirs (the aggregation "simple" of transformers).
func (x *extraction) tag() error {
	m := x.model.weights
	spans := make([]tokenizer.Offsets, len(x.req.Texts))
	return x.logits(arch.Want{TokenLogits: true}, len(x.req.Texts), func(first, end int) ([]batch.Item, error) {
		b, offsets, err := x.reader.readOffsets(x.req.Texts[first:end], first)
		if err != nil {
			return nil, err
		}
		items := make([]batch.Item, end-first)
		for i := range items {
			ids := b.Text(i)
			spans[first+i] = offsets[i]
			items[i] = batch.Item{IDs: ids, Specs: []batch.Spec{values(len(ids) * len(m.Labels))}, Index: i}
		}
		return items, nil
	}, func(i int, z []float32) error {
		tags := bestTags(z, m.Labels, spans[i])
		threshold, _ := number(x.plan.options.Raw["threshold"])
		for _, e := range join(tags, []rune(x.req.Texts[i])) {
			if e.Score >= threshold && (len(x.req.Labels) == 0 || containsFold(x.req.Labels, e.Label)) {
				x.result.Items[i].Entities = append(x.result.Items[i].Entities, e)
			}
		}
		return nil
	})
}

func containsFold(list []string, s string) bool {
	return slices.ContainsFunc(list, func(l string) bool { return strings.EqualFold(l, s) })
}

// tagged is a token of the text with its best label. Special tokens are none.
type tagged struct {
	label      string
	score      float64
	start, end int // code points
}

// bestTags reads the logits of a text's tokens.
func bestTags(z []float32, labels []string, spans tokenizer.Offsets) []tagged {
	var out []tagged
	n := len(labels)
	for t := range len(z) / n {
		start, end, special := spans.At(t)
		if special {
			continue
		}
		row := make([]float64, n)
		for j := range row {
			row[j] = float64(z[t*n+j])
		}
		p := softmax(row)
		best := 0
		for j := range p {
			if p[j] > p[best] {
				best = j
			}
		}
		out = append(out, tagged{labels[best], p[best], start, end})
	}
	return out
}

// split takes a label apart: B-PER is the beginning of PER, a label without prefix is inside.
func split(label string) (begins bool, name string) {
	if rest, ok := strings.CutPrefix(label, "B-"); ok {
		return true, rest
	}
	rest, _ := strings.CutPrefix(label, "I-")
	return false, rest
}

// join makes entities of neighbouring tokens with the same name; a B- begins a new one. O is no entity.
func join(tags []tagged, text []rune) []api.Entity {
	var out []api.Entity
	for i := 0; i < len(tags); {
		_, name := split(tags[i].label)
		j, sum := i+1, tags[i].score
		for ; j < len(tags); j++ {
			begins, next := split(tags[j].label)
			if begins || next != name {
				break
			}
			sum += tags[j].score
		}
		if name != "O" {
			start, end := tags[i].start, tags[j-1].end
			out = append(out, api.Entity{Text: string(text[start:end]), Label: name, Score: sum / float64(j-i), Start: start, End: end})
		}
		i = j
	}
	return out
}
