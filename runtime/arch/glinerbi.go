package arch

import (
	"cmp"
	"encoding/json"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sie-engine/sie/internal/files"
	"github.com/sie-engine/sie/runtime/engine"
)

// labelsFolder is where the package saves the tokenizer of labels.
const labelsFolder = "labels_tokenizer"

// A GLiNER bi-encoder has two encoders: one reads the words of a text, the other one, its label
// tower, reads a label alone. So a label's row depends on nothing but the label. A program of its
// own gives it (OutLabelRow), as the scores' operations take it, and it may be kept: a batch brings
// the rows of its labels (batch.Query), and nothing of a label is computed for a text.

// OutLabelRow is a label's row [B, K], float32: what OutSpans of a GLiNER bi-encoder takes of a
// label. It is M [4·D] and m of a span model (glinerSpan), l¹ [D] and V [4·D] of a token model
// (glinerToken).
const OutLabelRow Output = "label_row"

// MaxGivenLabels is the most labels of all texts of a batch together, those that texts share
// counted once.
const MaxGivenLabels = 2048

// glinerTower are the keys of gliner_config.json that only bi-encoders have.
type glinerTower struct {
	LabelsEncoder       *string         `json:"labels_encoder"`
	LabelsEncoderConfig json.RawMessage `json:"labels_encoder_config"` // null: that of labels_encoder
}

// isBi reports whether the model has a label tower.
func (c *glinerTower) isBi() bool { return c.LabelsEncoder != nil && *c.LabelsEncoder != "" }

// bertSizes are the columns, blocks, heads and columns inside an MLP of a BERT.
type bertSizes struct{ hidden, layers, heads, inner int64 }

// glinerTowers holds what their own config.json says of the encoders of labels that models name
// without a labels_encoder_config.
var glinerTowers = map[string]bertSizes{
	"BAAI/bge-small-en-v1.5":                  {384, 12, 12, 1536},
	"BAAI/bge-base-en-v1.5":                   {768, 12, 12, 3072},
	"sentence-transformers/all-MiniLM-L6-v2":  {384, 6, 12, 1536},
	"sentence-transformers/all-MiniLM-L12-v2": {384, 12, 12, 1536},
}

// config returns what config.json of the encoder says, without the vocabulary.
func (s bertSizes) config() map[string]any {
	return map[string]any{
		"model_type": bertType, "hidden_size": s.hidden, "num_hidden_layers": s.layers,
		"num_attention_heads": s.heads, "intermediate_size": s.inner, "hidden_act": "gelu",
		"max_position_embeddings": 512, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "pad_token_id": 0,
	}
}

// nested returns the configuration of the label tower.
func (c *glinerTower) nested() (nested, error) {
	n := nested{resized: true, file: glinerFile, key: "labels_encoder_config",
		prefix: "token_rep_layer.labels_encoder.model."}
	raw := c.LabelsEncoderConfig
	if raw == nil || string(raw) == "null" {
		sizes, ok := glinerTowers[*c.LabelsEncoder]
		if !ok {
			return n, refuse(glinerFile, "labels_encoder",
				"is %.100q and there is no labels_encoder_config; without one these encoders are known: %s",
				*c.LabelsEncoder, strings.Join(slices.Sorted(maps.Keys(glinerTowers)), ", "))
		}
		var err error
		n.config, err = json.Marshal(sizes.config())
		return n, err
	}
	var kind struct {
		ModelType string `json:"model_type"`
	}
	if json.Unmarshal(raw, &kind) != nil {
		return n, refuse(glinerFile, n.key, "is no object with a model_type")
	}
	var err error
	n.config, err = innerConfig(glinerFile, n.key, raw,
		map[string]any{"model_type": cmp.Or(kind.ModelType, debertaType)})
	return n, err
}

// LabelTower says how a model reads a label alone.
type LabelTower struct {
	MaxLen int // tokens of a label, special ones included; it is cut to them
	Vocab  int // ids of its tokens
	Row    int // columns of OutLabelRow
}

// tower is a packed label tower.
type tower struct {
	encoder encoder
	project layer // [D, E] where the encoder is of another width; in float32, behind the pool
}

// loadTower packs the label tower of a bi-encoder.
func loadTower(l *loading, c *glinerConfig) (*tower, error) {
	n, err := c.glinerTower.nested()
	if err != nil {
		return nil, err
	}
	p := l.p.head("", l.p.compute)
	p.nested, p.asked = n, l.p.asked
	if err := p.nested.readVocab(p.from); err != nil {
		return nil, err
	}
	view := p.nested.view(files.Dir(l.folder()))
	_, load, err := readArchitecture(view, "", autoEncoder)
	if err != nil {
		return nil, n.renamed(err)
	}
	t := &tower{}
	if t.encoder, err = load(view, p); err == nil {
		err = refuseTwoParts(view, t.encoder)
	}
	l.p.join(p) // what was packed before an error is freed with the model
	if err != nil {
		return nil, n.renamed(err)
	}
	if width := t.encoder.shape().columns; width != c.Hidden {
		q := l.p.head("", engine.ComputeF32)
		t.project = q.layer(c.Hidden, width, "token_rep_layer.labels_projection", engine.NoAct)
		l.p.join(q)
	}
	return t, nil
}

// givesLabels makes the row of a label an output.
func (g *gliner) givesLabels(l *loading) {
	shape := g.tower.encoder.shape()
	l.m.GLiNER.Tower = &LabelTower{MaxLen: int(shape.positions), Vocab: int(shape.vocab),
		Row: int(g.labelColumns())}
	l.gives(OutLabelRow, given{rows: engine.PoolMean, tower: g.tower.encoder, record: g.recordLabel})
}

// labelVector records a label's vector [B, D]. The package projects a label's tokens and then takes
// their mean; the mean comes first here, and is in float32.
func (g *gliner) labelVector(r *recording) engine.Value {
	x := r.Pool(r.x, engine.PoolMean)
	if g.tower.project.weight != nil {
		x = g.tower.project.apply(r.Recorder, x)
	}
	return x
}

// recordLabel records the tower's head and its output.
func (g *gliner) recordLabel(r *recording) {
	rows, terms := g.ofLabels(r, g.labelVector(r))
	r.OutputRows(r.Join(rows, terms))
}

// labelColumns returns the columns of both values of ofLabels together.
func (g *gliner) labelColumns() int64 {
	if g.config.SpanMode == tokenLevel {
		return 5 * g.config.Hidden
	}
	return 4*g.config.Hidden + 1
}

// givenLabels records what ofLabels does of labels whose rows the batch brings.
func (g *gliner) givenLabels(r *recording) (rows, terms engine.Value) {
	width := 4 * g.config.Hidden
	if g.config.SpanMode == tokenLevel {
		width = g.config.Hidden
	}
	given := r.GivenRows(g.labelColumns())
	return r.Columns(given, 0, width), r.Columns(given, width, g.labelColumns()-width)
}

// labelPacker returns the packer of what is made of a label's vector: behind a tower's pool all is
// float32.
func (c *glinerConfig) labelPacker(p *packer) *packer {
	if c.isBi() {
		return p.head(p.prefix, engine.ComputeF32)
	}
	return p.head(p.prefix, p.compute)
}

// LabelTokenizer returns the encoder of labels that a model's files name, "" for a model without a
// label tower, and the folder of its tokenizer if that is among them, else "".
func LabelTokenizer(dir string) (encoder, folder string, err error) {
	var c glinerTower
	tree := files.Dir(dir)
	if found, err := optional(readJSON(tree, glinerFile, &c)); err != nil || !found || !c.isBi() {
		return "", "", err
	}
	if _, err := fs.Stat(tree, labelsFolder+"/"+tokenizerFile); err == nil {
		folder = filepath.Join(dir, labelsFolder)
	}
	return *c.LabelsEncoder, folder, nil
}
