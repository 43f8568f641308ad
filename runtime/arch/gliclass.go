package arch

import (
	"io/fs"

	"github.com/sie-engine/sie/runtime/engine"
)

// OutLabelLogits is values [N, 1] for each text: the logits of the labels that the text brings as
// words (batch.Inputs.Words), in their order, times the model's logit_scale where it has one.
const OutLabelLogits Output = "label_logits"

// GLiClass is the task of zero-shot classifiers of the gliclass package. A text stands in one
// sequence with its labels; each label has a marker. The state of a label is that of its marker,
// and the text's is pooled. Both pass a projector of two layers, and a scorer makes a logit of each
// pair.
var GLiClass = Task{&head{
	name:    "gliclass",
	outputs: []Output{OutLabelLogits},
	made:    func(s *saved) bool { return s.class == "GLiClassModel" },
	read: func(dir fs.FS) (chain, loader, error) {
		config, err := readGLiClassConfig(dir)
		c := encoderAlone("")
		c.nested = nested{config: config.inner, prefix: "model.encoder_model."}
		if config.Segments {
			c.nested.segments = "model.segment_embeddings.weight"
		}
		return c, func(l *loading) error { return loadGLiClass(l, config) }, err
	},
}}

// LabelLayout says how a GLiClass model's sequences are made and which of their rows it reads.
type LabelLayout struct {
	PromptFirst bool // labels, task and text; else text, labels and task. Examples come last
	Label       int32
	Sep         int32 // the first of a sequence begins the text where TextRows is set
	Example     int32
	After       bool // a label's row is the one behind its marker
	Average     bool // a label's row is the mean of all up to the next marker
	TextRows    bool // the text's rows are markers (batch.Inputs.Markers)
	ToText      bool // they begin at the separator, and the last label's mean ends there; else all rows are
	Filled      bool // rows of zeros follow them, as many as there are rows before the separator
	Segments    bool // rows have segments (batch.Inputs.TypeIDs)
}

// gliclassHead holds the packed layers behind the encoder. C = columns of a hidden state.
type gliclassHead struct {
	config        gliclassConfig
	text, classes [2]layer
	unit          *engine.Weight // [C] of 1/√C where features are normalised; else nil
	scale         float32        // of the logits
	squeeze       *gliclassSqueeze
	lstm          gliclassLSTM

	textProject, labelProject [2]layer // weighted-dot
	cross                     gliclassCross
	hopfield                  gliclassHopfield
	last                      []layer // the scorer's MLP; its end has one row
	scaled                    layer   // 1 × 1: the logit's scale
}

// gliclassLSTM is an LSTM of two directions over the text's rows; H = C/2.
type gliclassLSTM struct {
	gates       layer // [8H, C], both biases
	ahead, back *engine.Weight
}

// loadGLiClass packs the layers behind the encoder, in float32.
func loadGLiClass(l *loading, config gliclassConfig) error {
	if l.p.nested.segments != "" { // no encoder took the table
		return refuse(configFile, "use_segment_embeddings",
			"is true, and %s has no place for segments, or token types of its own", l.m.Arch)
	}
	if err := config.checkCard(l.p.dev); err != nil {
		return err
	}
	p := l.p.head("model.", engine.ComputeF32)
	h := &gliclassHead{config: config, scale: 1}
	c, inner, act := config.columns, config.Hidden, activations[config.ProjectorAct]
	for _, x := range []struct {
		to   *[2]layer
		name string
	}{{&h.text, "text_projector"}, {&h.classes, "classes_projector"}} {
		x.to[0] = p.layer(inner, c, x.name+".linear_1", act)
		x.to[1] = p.layer(c, inner, x.name+".linear_2", engine.NoAct)
	}
	if config.Normalize {
		h.loadNorm(p, c)
	}
	if config.LSTM {
		h.loadLSTM(p, c)
	}
	if config.Squeeze {
		h.loadSqueeze(p)
	}
	gliclassScorers[config.Scorer](h, p)
	l.p.join(p)
	l.m.Labelled = &LabelLayout{
		PromptFirst: config.PromptFirst, Label: config.ClassToken, Sep: config.TextToken,
		Example: config.ExampleToken, After: !config.EmbedClass, Average: config.ClassPooling == "average",
		ToText: config.ExtractText, TextRows: config.textRows(), Filled: config.filled(),
		Segments: config.Segments,
	}
	l.gives(OutLabelLogits, given{
		rows: engine.PoolMean, lists: true, precise: true, states: config.Squeeze || config.LayerID >= 0,
		record: h.record,
	})
	return l.p.err
}

// loadNorm packs what makes rows of length 1, and reads the scale of their products.
func (h *gliclassHead) loadNorm(p *packer, c int64) {
	scale := p.hostTensor("logit_scale")
	if len(scale) == 1 {
		h.scale = scale[0]
	}
	ones := make([]float32, c)
	for i := range ones {
		ones[i] = 1 / sqrt32(c)
	}
	h.unit = p.values(engine.VectorWeight, 1, ones)
	h.scaled = layer{weight: p.values(engine.LinearWeight, 1, []float32{h.scale})}
}

func (h *gliclassHead) loadLSTM(p *packer, c int64) {
	const name = "lstm.lstm."
	four := 2 * c // 4·H
	h.lstm.gates.weight = p.linear(four, c, name+"weight_ih_l0", name+"weight_ih_l0_reverse")
	var bias []float32
	for _, direction := range []string{"", "_reverse"} {
		a, b := p.hostTensor(name+"bias_ih_l0"+direction, four), p.hostTensor(name+"bias_hh_l0"+direction,
			four)
		if p.err != nil {
			return
		}
		for i := range a {
			bias = append(bias, a[i]+b[i])
		}
	}
	h.lstm.gates.bias = p.values(engine.VectorWeight, 1, bias)
	h.lstm.ahead = p.linear(four, c/2, name+"weight_hh_l0")
	h.lstm.back = p.linear(four, c/2, name+"weight_hh_l0_reverse")
}

// record records the pooling, the projectors and the scorer.
func (h *gliclassHead) record(r *recording) {
	var text, classes engine.Value
	if h.squeeze != nil {
		text, classes = h.squeeze.record(h, r)
	} else {
		x := r.x
		if h.config.LayerID >= 0 {
			x = r.states[h.config.LayerID]
		}
		text, classes = h.poolText(r, h.textRows(r, x)), h.classesOf(r, x)
	}
	text = h.unitRows(r, applyAll(r.Recorder, text, h.text[:]))
	classes = h.unitRows(r, applyAll(r.Recorder, classes, h.classes[:]))
	z := h.score(r, text, classes)
	if h.scaled.weight != nil {
		z = h.scaled.apply(r.Recorder, z)
	}
	r.OutputValues(z)
}

// textRows records the rows of x that are the text's.
func (h *gliclassHead) textRows(r *recording, x engine.Value) engine.Value {
	if h.config.textRows() {
		return r.TakeFirst(x, engine.RowsMarkers)
	}
	return x
}

// poolText records what the text is made of: one pooled row of each sequence, or all rows for pass.
func (h *gliclassHead) poolText(r *recording, x engine.Value) engine.Value {
	if h.config.LSTM {
		x = r.LSTM(h.lstm.gates.apply(r.Recorder, x), h.lstm.ahead, h.lstm.back)
	}
	if h.config.Pooling == passPooler {
		return x
	}
	return r.Pool(x, gliclassPoolers[h.config.Pooling])
}

// classesOf records the labels' rows.
func (h *gliclassHead) classesOf(r *recording, x engine.Value) engine.Value {
	if h.config.ClassPooling == "average" {
		return r.TakeMean(x, engine.RowsWords)
	}
	return r.TakeFirst(x, engine.RowsWords)
}

// unitRows divides each row by its norm where features are normalised. A row of zeros stays one.
func (h *gliclassHead) unitRows(r *recording, x engine.Value) engine.Value {
	if h.unit == nil {
		return x
	}
	return r.RMSNorm(x, h.unit, 1e-20, 0)
}
