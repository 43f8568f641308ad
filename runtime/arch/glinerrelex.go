package arch

import (
	"strings"

	"github.com/sie-engine/sie/runtime/engine"
)

// GLiNER-relex finds relations between entities of a text. The relations' names stand in the prompt
// behind the labels. A second program reads the same tokens with the found spans, and scores each
// ordered pair of them with each relation (docs/adr/0040).
//
// A span's state is S = out([s ; e]) of its first and its last word, as in the span layer. That of
// a pair of head h and tail t is W₃·relu(W₁·[S_h ; S_t] + b₁) + b₃, and a relation's logit is its
// product with the state r of the relation's marker. With W₁ = [W_h W_t] that is the form of
// engine.OutputSpans:
//
//	relu(A_h + B_t)·M_r + m_r,  A = S·W_hᵀ + b₁,  B = S·W_tᵀ,  M = r·W₃,  m = r·b₃

// The outputs of the program that scores pairs of candidates, for items that list them as spans and
// the relations' markers as markers.
const (
	// OutRelations has the pairs whose head is not behind the tail in the item's list: engine.Spans
	// with the head's place as First and the tail's as Last. A candidate's pair with itself is
	// among them.
	OutRelations Output = "relations"
	// OutInverse has the pairs whose tail is not behind the head: First is the tail, Last the head.
	OutInverse Output = "inverse_relations"
	// OutNodes is values [candidates, K], of which Adjacency says which pairs are adjacent.
	OutNodes Output = "nodes"
)

const (
	// MaxCandidates bounds the spans of an item of a program that gives OutRelations.
	MaxCandidates = 100
	// batchCandidates bounds the spans of all items of a batch.
	batchCandidates = 8 * MaxCandidates
)

// GLiNERRelations says how a model reads names of relations.
type GLiNERRelations struct {
	Token     string           // the marker before each name
	Class     int32            // its id that the configuration says; -1: none
	EmbedRel  bool             // a relation's row is its marker; else the token behind it
	Adjacency *GLiNERAdjacency // which pairs are adjacent; nil: all are
}

// Gives lists the outputs of the program that scores relations.
func (r *GLiNERRelations) Gives() Outputs {
	if r.Adjacency == nil {
		return Give(OutRelations, OutInverse)
	}
	return Give(OutRelations, OutInverse, OutNodes)
}

// glinerRelexConfig holds the keys of models that find relations.
type glinerRelexConfig struct {
	Relations *string `json:"relations_layer"` // null: the model finds none
	Triples   *string `json:"triples_layer"`
	EmbedRel  bool    `json:"embed_rel_token"`
	RelClass  int64   `json:"rel_token_index"` // -1: the tokenizer's
	RelToken  string  `json:"rel_token"`
}

// glinerSpanLayer is the prefix of the layers that make spans of words.
const glinerSpanLayer = "span_rep_layer.span_rep_layer."

// allPairs is the relations_layer of models whose entities are all adjacent.
const allPairs = "none"

// checkRelex refuses what is not computed here of models that find relations.
func (c *glinerConfig) checkRelex() error {
	if c.Relations == nil {
		return nil
	}
	switch {
	case *c.Relations != allPairs && c.adjacency() == nil:
		return refuse(glinerFile, "relations_layer", "is %.60q; supported are %s and %s", *c.Relations,
			listed(glinerAdjacencies), allPairs)
	case c.isBi():
		return refuse(glinerFile, "relations_layer",
			"is %.60q beside a labels_encoder; relations are found by models of one encoder", *c.Relations)
	case c.SpanMode == spanMarker:
		return refuse(glinerFile, "span_mode", "is %q beside a relations_layer; supported are markerV0 and %s",
			c.SpanMode, tokenLevel)
	case c.Triples != nil:
		return refuse(glinerFile, "triples_layer",
			"is %.60q; relations are scored by pair_rep_layer alone, which models without triples_layer have",
			*c.Triples)
	case c.RelClass < -1 || c.RelClass > 1<<22:
		return refuse(glinerFile, "rel_token_index", "is %d; %d to %d is possible", c.RelClass, -1, 1<<22)
	case c.RelToken == "" || len(c.RelToken) > 64:
		return refuse(glinerFile, "rel_token", "has %d bytes; 1 to 64 are possible", len(c.RelToken))
	}
	return nil
}

// adjacency returns what packs the model's adjacency, or nil.
func (c *glinerRelexConfig) adjacency() func(*packer, int64) *GLiNERAdjacency {
	if c.Relations == nil {
		return nil
	}
	return glinerAdjacencies[strings.ToLower(*c.Relations)]
}

// glinerRelex is the packed part of the head that scores relations. D = hidden_size.
type glinerRelex struct {
	start, end           []layer // words → s, e [D]
	span                 []layer // [s ; e] → S [D]
	head, tail           layer   // S → A, B [4·D]
	labelRows, labelBias layer   // r → M [4·D], m [1]
}

// loadRelex packs what finds relations, if the model does, behind what finds entities.
func (g *gliner) loadRelex(l *loading, p *packer) {
	c := g.config
	if c.Relations == nil {
		return
	}
	d, x := c.Hidden, &glinerRelex{}
	if c.SpanMode == tokenLevel { // spans are not scored, but relations read their states
		g.token.prompt = p.twoLayers(d, d, "prompt_rep_layer", engine.NoAct)
		x.start = p.twoLayers(d, d, glinerSpanLayer+"project_start", engine.ReLU)
		x.end = p.twoLayers(d, d, glinerSpanLayer+"project_end", engine.ReLU)
	} else {
		x.start, x.end = g.span.start[:2], g.span.end[:2]
	}
	x.span = p.twoLayers(d, 2*d, glinerSpanLayer+"out_project", engine.NoAct)
	first, second := p.affineOf(4*d, 2*d, "pair_rep_layer.0"), p.affineOf(d, 4*d, "pair_rep_layer.3")
	if p.err != nil {
		return
	}
	heads := first.columns(0, d)
	heads.bias = first.bias
	x.head, x.tail = heads.pack(p, engine.NoAct), first.columns(d, d).pack(p, engine.NoAct)
	x.labelRows = second.transposed().pack(p, engine.NoAct)
	x.labelBias = affine{in: d, out: 1, weight: second.bias}.pack(p, engine.NoAct)
	g.relex = x
	gives := func(o Output, record func(*recording)) {
		l.gives(o, given{rows: engine.PoolMean, spans: true, states: c.FuseLayers, precise: c.FuseLayers,
			record: record})
	}
	gives(OutRelations, func(r *recording) { g.recordPairs(r, x.head, x.tail) })
	gives(OutInverse, func(r *recording) { g.recordPairs(r, x.tail, x.head) })
	how := &GLiNERRelations{Token: c.RelToken, Class: int32(c.RelClass), EmbedRel: c.EmbedRel}
	if c.resized() {
		how.Class = -1
	}
	l.m.GLiNER.Relations = how
	if load := c.adjacency(); load != nil {
		a := load(p, d)
		how.Adjacency = a
		gives(OutNodes, func(r *recording) { r.OutputValues(a.nodes(r.Recorder, g.candidates(r))) })
	}
}

// relexValue is the key of a value that several outputs of a program read.
type relexValue struct {
	name string
	of   *engine.Weight
}

// relexRows records the states of words, behind the LSTM, and of relations.
func (g *gliner) relexRows(r *recording) (words, relations engine.Value) {
	words = r.once(relexValue{"words", nil}, func() engine.Value {
		before, relations := g.rows(r)
		r.once(relexValue{"relations", nil}, func() engine.Value { return relations })
		return g.context(r, before)
	})
	return words, r.made[relexValue{"relations", nil}]
}

// candidates records the states S of the spans that items list.
func (g *gliner) candidates(r *recording) engine.Value {
	words, _ := g.relexRows(r)
	return r.once(relexValue{"candidates", nil}, func() engine.Value {
		start := applyAll(r.Recorder, r.TakeFirst(words, engine.RowsSpans), g.relex.start)
		end := applyAll(r.Recorder, r.TakeLast(words, engine.RowsSpans), g.relex.end)
		return applyAll(r.Recorder, r.Join(start, end), g.relex.span)
	})
}

// recordPairs records the pairs of a candidate in the part of first and the same or a later one in
// the part of last.
func (g *gliner) recordPairs(r *recording, first, last layer) {
	_, relations := g.relexRows(r)
	spans := g.candidates(r)
	apply := func(l layer, x engine.Value) engine.Value {
		return r.once(relexValue{"layer", l.weight}, func() engine.Value { return l.apply(r.Recorder, x) })
	}
	r.OutputSpans(engine.SpanScores{
		Starts: apply(first, spans), Ends: apply(last, spans), Labels: apply(g.relex.labelRows, relations),
		Bias: apply(g.relex.labelBias, relations), Widest: MaxCandidates,
	})
}
