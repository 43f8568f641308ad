package task

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/tokenizer"
)

// The family of models that find entities with a token classification head.
func init() {
	families[catalog.FamilyTagger] = &family{task: arch.Tag, extract: &extractor{run: tag}}
}

// tag finds entities with a token classification head. Each token takes its best label.
// Neighbouring tokens are joined into entities by the B- and I- prefixes of their labels. An
// entity's score is the mean of its tokens' scores, as in the aggregation "simple" of transformers.
func tag(r *run) error {
	m := r.use.Weights()
	var names []string
	for _, l := range m.Labels {
		if name := entityName(l); name != "O" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if err := r.checkLabels(names); err != nil {
		return err
	}
	spans := make([][]tokenizer.TokenSpan, len(r.req.Inputs))
	return r.logits(arch.OutTokenLogits, len(r.req.Inputs),
		func(first, end int, results *sizes) ([]batch.Item, error) {
			placed, err := r.reader.readSpans(r.texts(first, end), first)
			if err != nil {
				return nil, err
			}
			items := make([]batch.Item, end-first)
			for i := range items {
				ids := placed[i].IDs()
				spans[first+i] = placed[i].Tokens
				items[i] = batch.Item{
					Inputs: batch.Inputs{IDs: ids}, Specs: results.of(len(ids), 0), Index: i,
				}
			}
			return items, nil
		}, func(i int, z []float64) error {
			tags := bestTags(z, m.Labels, spans[i])
			threshold, _ := number(r.options.Raw["threshold"])
			for _, e := range join(tags, r.req.Inputs[i].Text) {
				if e.Score >= threshold && r.wants(e.Label) {
					r.result.Found[i].Entities = append(r.result.Found[i].Entities, e)
				}
			}
			spans[i] = nil
			return r.hold(int64(len(r.result.Found[i].Entities))*entryBytes, i+1)
		})
}

// tagged is a token of the text with its best label. Special tokens are left out.
type tagged struct {
	label      string
	score      float64
	start, end int // bytes of the text
}

// bestTags picks each token's best label from the logits of a text.
func bestTags(z []float64, labels []string, spans []tokenizer.TokenSpan) []tagged {
	var out []tagged
	n := len(labels)
	for t := range len(z) / n {
		if spans[t].Special() {
			continue
		}
		p := softmax(z[t*n : t*n+n])
		best := 0
		for j := range p {
			if p[j] > p[best] {
				best = j
			}
		}
		out = append(out, tagged{labels[best], p[best], int(spans[t].Start), int(spans[t].End)})
	}
	return out
}

// split separates a label's prefix from what joins tokens. B-PER begins a PER; a label without
// either prefix is inside one, as I-PER is.
func split(label string) (begins bool, tag string) {
	if rest, ok := strings.CutPrefix(label, "B-"); ok {
		return true, rest
	}
	rest, _ := strings.CutPrefix(label, "I-")
	return false, rest
}

// entityName returns what an entity of a label is called: the label without a prefix of one letter,
// as E-PER and S-PER have it in other schemes than B- and I-.
func entityName(label string) string {
	if len(label) >= 2 && label[1] == '-' {
		return label[2:]
	}
	return label
}

// join makes entities of neighbouring tokens with the same tag; a B- begins a new entity. O is no
// entity. Places are counted in code points, as clients count them.
func join(tags []tagged, text string) []api.Entity {
	var out []api.Entity
	at := codePoints{text: text}
	for i := 0; i < len(tags); {
		_, tag := split(tags[i].label)
		j, sum := i+1, tags[i].score
		for ; j < len(tags); j++ {
			begins, next := split(tags[j].label)
			if begins || next != tag {
				break
			}
			sum += tags[j].score
		}
		if name := entityName(tags[i].label); name != "O" {
			start, end := tags[i].start, tags[j-1].end
			out = append(out, api.Entity{
				Text:  text[start:end],
				Label: name,
				Score: sum / float64(j-i),
				Start: at.points(start),
				End:   at.points(end),
			})
		}
		i = j
	}
	return out
}

// codePoints is a position in a text. It moves to each position that points is asked about.
type codePoints struct {
	text         string
	bytes, runes int // of the text before the position
}

// points returns how many code points precede byte at of the text. Calls come nearly in order.
// Tokens that share a character (the bytes of an emoji, the letters of a ligature) step back to its
// start.
func (p *codePoints) points(at int) int {
	if at >= p.bytes {
		p.runes += utf8.RuneCountInString(p.text[p.bytes:at])
	} else {
		p.runes -= utf8.RuneCountInString(p.text[at:p.bytes])
	}
	p.bytes = at
	return p.runes
}
