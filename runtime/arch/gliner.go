package arch

import (
	"fmt"
	"io/fs"

	"github.com/sie-engine/sie/runtime/engine"
)

// GLiNER (Zaratiana 2023, arXiv:2311.08526) finds entities of any kind. The encoder reads the
// labels, a marker before each, and then the words. The states of a text's words pass an LSTM in
// most models. Span models score each span of at most max_width words with each label; token models
// score each word as the first, the last and an inner one of an entity of each label.

// OutSpans is what is found above an item's logit: engine.Spans of a span model, {word, width,
// label, logit}; engine.Pairs of a token model, {word, label, start, end, inside}, of which one
// logit is above.
const OutSpans Output = "spans"

// Spans is the task of models that find entities of a request's labels among a text's words.
var Spans = Task{&head{
	name:     "spans",
	loadedBy: "GLiNER",
	files:    []string{glinerFile},
	outputs:  []Output{OutSpans},
	added:    glinerTokens,
	read:     readGLiNER,
}}

// GLiNER says how a model reads labels and words.
type GLiNER struct {
	TokenLevel bool
	MaxWidth   int // words of the widest span
	MaxLen     int // words that are read at once
	EntToken   string
	SepToken   string
	ClassToken int32 // the id of EntToken that the configuration says; -1: none
	EmbedEnt   bool  // a label's row is its marker; else the token behind it
	Subtokens  engine.Pooling
	Tower      *LabelTower      // nil: labels stand before the text
	Relations  *GLiNERRelations // nil: the model finds no relations
}

// readGLiNER reads the configuration.
func readGLiNER(dir fs.FS) (chain, loader, error) {
	c, err := readGLiNERConfig(dir)
	if err != nil {
		return chain{}, nil, err
	}
	all := encoderAlone("")
	if all.nested, err = c.nested(); err != nil {
		return chain{}, nil, err
	}
	return all, func(l *loading) error { return loadGLiNER(l, &c) }, nil
}

// gliner is the packed head. D = hidden_size, H = D/2.
type gliner struct {
	config  *glinerConfig
	fuser   *glinerFuser // nil: the last state is read
	project layer        // [D, C] where the encoder is of another width
	lstms   []glinerLSTM
	span    glinerSpan
	token   glinerToken
	tower   *tower       // of a bi-encoder; else nil
	relex   *glinerRelex // nil: the model finds no relations
}

// glinerLSTM is one layer of the LSTM: the gates of both directions [8·H, D], and W_hh [4·H, H].
type glinerLSTM struct {
	gates            layer
	forward, reverse *engine.Weight
}

// glinerSpan is a span layer as engine.OutputSpans takes it: out_project's first matrix is split by
// its columns, its second one is folded into the labels. For spanMarker see there.
type glinerSpan struct {
	start, end           []layer // words → A [4·D], B [4·D]
	label                []layer // labels → p [D]
	labelRows, labelBias layer   // p → M [4·D], m [1]
}

// glinerToken is the scorer of token models as engine.OutputPairs takes it.
type glinerToken struct {
	prompt            []layer // labels → labels, in models that find relations
	word, wordTerms   layer   // words → t¹ [D], U [4·D]
	label, labelTerms layer   // labels → l¹ [D], V [4·D]
	inner             *engine.Weight
	head, bias        *engine.Weight
}

// loadGLiNER packs what stands behind the encoder.
func loadGLiNER(l *loading, c *glinerConfig) error {
	switch l.m.encoder.(type) {
	case *bert, *deberta, *modernbert:
	default:
		return refuse(glinerFile, "encoder_config.model_type",
			"is that of %s; GLiNER is supported over encoders of the BERT family, ModernBERT and DeBERTa", l.m.Arch)
	}
	g := &gliner{config: c}
	compute := l.p.compute
	if c.FuseLayers {
		compute = engine.ComputeF32 // as are rows that were multiplied by a text's weights
	}
	p := l.p.head("", compute)
	if c.FuseLayers {
		if l.shape.blocks < 2 {
			return refuse(glinerFile, "fuse_layers", "is true and the encoder has one block; 2 are needed")
		}
		q := p.head("token_rep_layer.bert_layer.layers_fuser.", compute)
		g.fuser = loadFuser(q, l.shape.columns, int64(l.shape.blocks))
		p.join(q)
	}
	if l.shape.columns != c.Hidden {
		g.project = p.layer(c.Hidden, l.shape.columns, "token_rep_layer.projection", engine.NoAct)
	}
	for i := range c.RNNLayers {
		g.lstms = append(g.lstms, p.lstm(c.Hidden, fmt.Sprintf("rnn.lstm.%%s_l%d", i)))
	}
	labels := c.labelPacker(p)
	switch c.SpanMode {
	case tokenLevel:
		g.token = loadTokenScorer(p, labels, c.Hidden)
	case spanMarker:
		g.span = loadMarkerLayer(p, c.Hidden)
	default:
		g.span = loadSpanLayer(p, labels, c.Hidden)
	}
	p.join(labels)
	l.m.gliner = g
	l.m.GLiNER = &GLiNER{TokenLevel: c.SpanMode == tokenLevel, MaxWidth: int(c.MaxWidth),
		MaxLen: int(c.MaxLen), EntToken: c.EntToken, SepToken: c.SepToken, ClassToken: int32(c.ClassToken),
		EmbedEnt: c.EmbedEnt, Subtokens: glinerSubtokens[c.Subtokens]}
	if c.resized() { // the package takes the id of the token that it added
		l.m.GLiNER.ClassToken = -1
	}
	l.gives(OutSpans, given{rows: engine.PoolMean, states: c.FuseLayers, precise: c.FuseLayers,
		labelled: c.isBi(), record: g.record})
	g.loadRelex(l, p)
	l.p.join(p)
	if c.isBi() && l.p.err == nil {
		var err error
		if g.tower, err = loadTower(l, c); err != nil {
			return err
		}
		g.givesLabels(l)
	}
	return l.p.err
}

// lstm packs a layer of an LSTM of two directions over d columns. name has %s where PyTorch has
// weight_ih and the like.
func (p *packer) lstm(d int64, name string) (l glinerLSTM) {
	h := d / 2
	of := func(what, direction string) string { return fmt.Sprintf(name, what) + direction }
	l.gates.weight = p.linear(4*h, d, of("weight_ih", ""), of("weight_ih", "_reverse"))
	var bias []float32
	for _, direction := range []string{"", "_reverse"} {
		in, state := p.hostTensor(of("bias_ih", direction), 4*h), p.hostTensor(of("bias_hh", direction), 4*h)
		for i := range min(len(in), len(state)) {
			bias = append(bias, in[i]+state[i])
		}
	}
	l.gates.bias = p.values(engine.VectorWeight, 1, bias)
	states := p.head(p.prefix, engine.ComputeF32) // the state of an LSTM stays in float32
	l.forward = states.linear(4*h, h, of("weight_hh", ""))
	l.reverse = states.linear(4*h, h, of("weight_hh", "_reverse"))
	p.join(states)
	return l
}

// affineOf reads a linear layer [n, k] into host memory.
func (p *packer) affineOf(n, k int64, name string) affine {
	return affine{in: k, out: n, weight: p.hostTensor(name+".weight", n, k),
		bias: p.hostTensor(name+".bias", n)}
}

// columns returns the matrix of a's columns from first to first + n, without the bias.
func (a affine) columns(first, n int64) affine {
	part := affine{in: n, out: a.out}
	if a.weight == nil {
		return part
	}
	part.weight = make([]float32, 0, n*a.out)
	for o := range a.out {
		part.weight = append(part.weight, a.weight[o*a.in+first:][:n]...)
	}
	return part
}

// rows returns a's rows from first to first + n.
func (a affine) rows(first, n int64) affine {
	part := affine{in: a.in, out: n}
	if a.weight != nil {
		part.weight, part.bias = a.weight[first*a.in:][:n*a.in], a.bias[first:][:n]
	}
	return part
}

// transposed returns y = x·W, without a bias.
func (a affine) transposed() affine {
	t := affine{in: a.out, out: a.in, weight: make([]float32, len(a.weight))}
	for o := range a.out {
		for i := range a.in {
			if a.weight != nil {
				t.weight[i*a.out+o] = a.weight[o*a.in+i]
			}
		}
	}
	return t
}

// twoLayers packs the package's projection: a linear to four times n columns, ReLU, a linear to n.
func (p *packer) twoLayers(n, k int64, name string, act engine.Act) []layer {
	return []layer{p.layer(4*n, k, name+".0", engine.ReLU), p.layer(n, 4*n, name+".3", act)}
}

// loadSpanLayer packs the span layer; labels packs what is made of labels.
func loadSpanLayer(p, labels *packer, d int64) (s glinerSpan) {
	const at = glinerSpanLayer
	s.start = p.twoLayers(d, d, at+"project_start", engine.ReLU)
	s.end = p.twoLayers(d, d, at+"project_end", engine.ReLU)
	s.label = labels.twoLayers(d, d, "prompt_rep_layer", engine.NoAct)
	first, second := p.affineOf(4*d, 2*d, at+"out_project.0"), p.affineOf(d, 4*d, at+"out_project.3")
	if p.err != nil {
		return s
	}
	starts := first.columns(0, d)
	starts.bias = first.bias
	s.start = append(s.start, starts.pack(p, engine.NoAct))
	s.end = append(s.end, first.columns(d, d).pack(p, engine.NoAct))
	s.labelRows = second.transposed().pack(labels, engine.NoAct)
	s.labelBias = affine{in: d, out: 1, weight: second.bias}.pack(labels, engine.NoAct)
	return s
}

// loadTokenScorer packs the scorer; labels packs what is made of labels.
func loadTokenScorer(p, labels *packer, d int64) (s glinerToken) {
	word, label := p.affineOf(2*d, d, "scorer.proj_token"), p.affineOf(2*d, d, "scorer.proj_label")
	first := p.affineOf(4*d, 3*d, "scorer.out_mlp.0")
	head, bias := p.hostTensor("scorer.out_mlp.3.weight", 3, 4*d), p.vector(3, "scorer.out_mlp.3.bias")
	if p.err != nil {
		return s
	}
	ofWords := first.columns(0, d)
	ofWords.bias = first.bias
	s.word = word.rows(d, d).pack(p, engine.NoAct)
	s.wordTerms = p.joined(word.rows(0, d), ofWords).pack(p, engine.NoAct)
	s.label = label.rows(d, d).pack(labels, engine.NoAct)
	s.labelTerms = p.joined(label.rows(0, d), first.columns(d, d)).pack(labels, engine.NoAct)
	scores := p.head(p.prefix, p.compute)
	if p.compute == engine.ComputeINT8 || p.compute == engine.ComputeFP8 {
		scores.compute = engine.ComputeF32 // scores have no quantised classes
	}
	s.inner = scores.values(engine.LinearWeight, d, first.columns(2*d, d).weight)
	p.join(scores)
	s.head, s.bias = p.values(engine.DataWeight, 4*d, head), bias
	return s
}

// tokens records the encoder's states in the head's width. They are narrowed before rows are taken,
// so that a word without tokens has zeros, as in the package.
func (g *gliner) tokens(r *recording) engine.Value {
	if g.project.weight == nil {
		return r.x
	}
	return g.project.apply(r.Recorder, r.x)
}

// words records the states of a text's words, before the LSTM.
func (g *gliner) words(r *recording, tokens engine.Value) engine.Value {
	switch glinerSubtokens[g.config.Subtokens] {
	case engine.PoolLast:
		return r.TakeLast(tokens, engine.RowsWords)
	case engine.PoolMean:
		return r.TakeMean(tokens, engine.RowsWords)
	}
	return r.TakeFirst(tokens, engine.RowsWords)
}

// context records the LSTM over the words.
func (g *gliner) context(r *recording, x engine.Value) engine.Value {
	for _, l := range g.lstms {
		x = r.LSTM(l.gates.apply(r.Recorder, x), l.forward, l.reverse)
	}
	return x
}

// rows records the states of words, before the LSTM, and of labels, which a bi-encoder has not.
func (g *gliner) rows(r *recording) (words, labels engine.Value) {
	ofWords := func(tokens engine.Value) engine.Value { return g.words(r, tokens) }
	ofLabels := func(tokens engine.Value) engine.Value { return r.TakeFirst(tokens, engine.RowsMarkers) }
	if f := g.fuser; f != nil {
		weights := f.weights(r)
		words = f.rows(r, weights, engine.RowsWords, ofWords)
		labels = f.rows(r, weights, engine.RowsMarkers, ofLabels)
		if g.project.weight != nil {
			words, labels = g.project.apply(r.Recorder, words), g.project.apply(r.Recorder, labels)
		}
		return words, labels
	}
	tokens := g.tokens(r)
	if g.tower != nil {
		return ofWords(tokens), engine.NoValue
	}
	return ofWords(tokens), ofLabels(tokens)
}

// ofLabels records what the scores take of the labels' rows: M and m of a span model, l¹ and V of a
// token model.
func (g *gliner) ofLabels(r *recording, labels engine.Value) (rows, terms engine.Value) {
	if s := &g.token; g.config.SpanMode == tokenLevel {
		labels = applyAll(r.Recorder, labels, s.prompt)
		return s.label.apply(r.Recorder, labels), s.labelTerms.apply(r.Recorder, labels)
	}
	p := applyAll(r.Recorder, labels, g.span.label)
	return g.span.labelRows.apply(r.Recorder, p), g.span.labelBias.apply(r.Recorder, p)
}

// record records the head and its output.
func (g *gliner) record(r *recording) {
	words, labels := g.rows(r)
	words = g.context(r, words)
	given := g.tower != nil
	var terms engine.Value
	if given {
		labels, terms = g.givenLabels(r)
	} else {
		labels, terms = g.ofLabels(r, labels)
	}
	if s := &g.token; g.config.SpanMode == tokenLevel {
		r.OutputPairs(engine.PairScores{
			Words: s.word.apply(r.Recorder, words), WordTerms: s.wordTerms.apply(r.Recorder, words),
			Labels: labels, LabelTerms: terms, Given: given, Weight: s.inner, Head: s.head, Bias: s.bias,
		})
		return
	}
	s := &g.span
	r.OutputSpans(engine.SpanScores{
		Starts: applyAll(r.Recorder, words, s.start), Ends: applyAll(r.Recorder, words, s.end),
		Labels: labels, Bias: terms, Given: given, Widest: int(g.config.MaxWidth),
	})
}
