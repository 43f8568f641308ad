package arch

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/sie-engine/sie/internal/files"
	"github.com/sie-engine/sie/runtime/engine"
)

// OutLogits is values [B, labels]: the logits of a text's classes, before any activation.
const OutLogits Output = "logits"

// Classify is the task of models with a sequence classification head: scores and labels.
var Classify = Task{&head{
	name:     "classify",
	loadedBy: "AutoModelForSequenceClassification",
	outputs:  []Output{OutLogits},
	made: func(s *saved) bool {
		return s.modelType == "CrossEncoder" || s.task == taskClassify ||
			strings.HasSuffix(s.class, "ForSequenceClassification")
	},
	labels: func(s *saved) ([]string, error) {
		l, err := readLabels(s.tree, s.encoderDir)
		return l.labels, err
	},
	read: readClassified(loadClassifier),
	linears: func(n headNames) []string {
		return []string{
			n.pooler.dense, n.logits, "pooler.dense", "classifier.dense", "classifier.out_proj", "classifier",
		}
	},
}}

// readClassified reads the modules of a model whose checkpoint holds a classification head, as
// …ForSequenceClassification and …ForTokenClassification of transformers save it.
func readClassified(load loader) func(fs.FS) (chain, loader, error) {
	return func(dir fs.FS) (chain, loader, error) {
		c := encoderAlone(taskClassify)
		modules, err := readModules(dir)
		if err == nil {
			c.encoderDir, err = readBareChain(modules)
		}
		return c, load, err
	}
}

// loadClassifier packs the layers behind a text's pooled state. They are in float32, like
// everything behind pooling.
func loadClassifier(l *loading) error {
	if err := l.needs(l.names.logits); err != nil {
		return err
	}
	if err := l.readLabels(); err != nil {
		return err
	}
	h, columns, labels := l.names, l.shape.columns, int64(len(l.m.Labels))
	pooling := cmp.Or(h.pooling, engine.PoolCLS)
	inside, outside := l.p.head(l.p.prefix, engine.ComputeF32), l.p.head("", engine.ComputeF32)
	pooler := outside
	if h.pooler.inEncoder {
		pooler = inside
	}
	if h.late { // it is no part of what follows pooling
		pooler = l.p.head("", l.p.compute)
	}
	first := pooler.transform(h.pooler, columns, columns)
	if h.late {
		l.p.join(pooler)
	}
	logits := layer{weight: outside.linear(labels, columns, h.logits+".weight")}
	if !h.plainLogits {
		logits.bias = outside.vector(labels, h.logits+".bias")
	}
	l.p.join(inside)
	l.p.join(outside)
	before := h.pooler.dense != ""
	if l.onGPU {
		const why = "the head is computed in float32, which adapters on a GPU are not; train one for the encoder's linears"
		if before {
			l.fixes(h.pooler.dense, why)
		}
		l.fixes(h.logits, why)
	} else {
		if before {
			l.adapts(first.weight, h.pooler.dense, columns, columns)
		}
		l.adapts(logits.weight, h.logits, labels, columns)
	}
	if h.skipsPad {
		if err := l.readPad(); err != nil {
			return err
		}
	}
	l.gives(OutLogits, given{rows: pooling, record: func(r *recording) {
		var z engine.Value
		if h.late {
			z = r.Pool(first.record(r.Recorder, r.pass, r.x), pooling)
		} else {
			z = first.record(r.Recorder, r.pass, r.Pool(r.x, pooling))
		}
		r.OutputValues(r.layer(z, logits))
	}})
	return l.p.err
}

// readPad reads the token that is not read at the end of a text.
func (l *loading) readPad() error {
	var c struct {
		Pad *int32 `json:"pad_token_id"`
	}
	err := needJSON(files.Dir(l.folder()), configFile, &c)
	l.m.pad = c.Pad
	return err
}

// Read returns the ids of a text as far as the model reads them. A decoder classifies a text by the
// last token that is not the padding token of config.json. The tokens behind it, which are padding,
// change nothing of its state, and are left out; of nothing but padding the first token stays.
func (m *Model) Read(ids []int32) []int32 {
	for m.pad != nil && len(ids) > 1 && ids[len(ids)-1] == *m.pad {
		ids = ids[:len(ids)-1]
	}
	return ids
}

// readLabels reads what the files say about the model's labels and scores.
func (l *loading) readLabels() error {
	c, err := readLabels(files.Dir(l.dir), l.encoderDir)
	l.m.Labels, l.m.Activation = c.labels, c.activation
	l.m.MultiLabel, l.m.Regression = c.multiLabel, c.regression
	return err
}

// maxLabels bounds the logits of a head.
const maxLabels = 1 << 16

// headNames holds the names of the layers behind an encoder. A head that the family lacks is empty.
type headNames struct {
	// A sequence is classified by one row of it: the layer, then the logits.
	pooler  transformNames
	pooling engine.Pooling // the row, or the mean of all; 0: the first
	late    bool           // the layer is computed for every token, and the mean of that is read
	logits  string
	// of decoders: the logits have no bias, and padding tokens at the end of a text are not read
	plainLogits, skipsPad bool

	tagger transformNames // before the logits of each token; empty in most families
	tag    string

	masked maskedNames

	// the logits of the vocabulary: a matrix, or the encoder's table of words where tied is set and
	// the checkpoint has no matrix
	words, table string
	tied         bool
}

// labelConfig holds what the files say about labels and scores.
type labelConfig struct {
	labels     []string
	activation Activation
	multiLabel bool
	regression bool
}

// readLabels reads the labels of the encoder in folder, in the order of the logits, and the
// activation that turns a logit into a score. sentence-transformers writes the activation beside
// its modules (from 5.4 on) or into the encoder's configuration. Without one a single logit goes
// through a sigmoid.
func readLabels(dir fs.FS, folder string) (labelConfig, error) {
	var c struct {
		IDToLabel   map[int]*string `json:"id2label"`
		LabelToID   map[string]*int `json:"label2id"`
		NumLabels   *int            `json:"num_labels"`
		ProblemType string          `json:"problem_type"`
	}
	var l labelConfig
	name := path.Join(folder, configFile)
	if err := needJSON(dir, name, &c); err != nil {
		return l, err
	}
	key, names := "id2label", make(map[int]string, len(c.IDToLabel))
	for id, label := range c.IDToLabel {
		if label == nil {
			return l, refuse(name, key, "is null for logit %d; it must be a text", id)
		}
		names[id] = *label
	}
	if len(names) == 0 {
		key = "label2id"
		for _, label := range slices.Sorted(maps.Keys(c.LabelToID)) {
			id := c.LabelToID[label]
			if id == nil {
				return l, refuse(name, key, "is null for the label %.80q; it must be the number of its logit", label)
			}
			if other, twice := names[*id]; twice {
				return l, refuse(name, key, "gives logit %d to the labels %.80q and %.80q", *id, other, label)
			}
			names[*id] = label
		}
	}
	if len(names) == 0 {
		n := 2 // transformers' default
		if c.NumLabels != nil {
			n = *c.NumLabels
		}
		if n < 1 || n > maxLabels {
			return l, refuse(name, "num_labels", "is %d; 1 to %d are possible", n, maxLabels)
		}
		for i := range n {
			names[i] = fmt.Sprintf("LABEL_%d", i)
		}
	}
	if len(names) > maxLabels {
		return l, refuse(name, key, "has %d labels; at most %d are possible", len(names), maxLabels)
	}
	for i := range len(names) {
		label, ok := names[i]
		if !ok {
			return l, refuse(name, key,
				"has %d labels, but none for logit %d; they must be numbered from 0 without a gap",
				len(names), i)
		}
		l.labels = append(l.labels, label)
	}
	l.multiLabel = c.ProblemType == "multi_label_classification"
	l.regression = c.ProblemType == "regression"
	declared, err := declaredActivation(dir, name)
	if err != nil {
		return l, err
	}
	if declared != nil {
		l.activation = *declared
		return l, nil
	}
	if len(l.labels) == 1 {
		l.activation = Sigmoid
	}
	return l, nil
}

// declaredActivation returns the activation of a score that the files name, or nil. config is the
// encoder's configuration.
func declaredActivation(dir fs.FS, config string) (*Activation, error) {
	var c struct {
		Sentence struct {
			Activation string `json:"activation_fn"`
		} `json:"sentence_transformers"`
		Old string `json:"sbert_ce_default_activation_function"`
	}
	var beside struct {
		Activation string `json:"activation_fn"`
	}
	if err := needJSON(dir, config, &c); err != nil {
		return nil, err
	}
	if _, err := optional(readJSON(dir, promptsFile, &beside)); err != nil {
		return nil, err
	}
	for _, declared := range []struct{ file, activation string }{
		{promptsFile, beside.Activation}, {config, c.Sentence.Activation}, {config, c.Old},
	} {
		switch class := declared.activation[strings.LastIndexByte(declared.activation, '.')+1:]; {
		case class == "Sigmoid" || class == "Identity":
			a := Identity
			if class == "Sigmoid" {
				a = Sigmoid
			}
			return &a, nil
		case class != "":
			return nil, refuse(declared.file, "activation_fn",
				"%.80q is not supported; Sigmoid and Identity of torch.nn are", declared.activation)
		}
	}
	return nil, nil
}
