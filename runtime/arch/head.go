package arch

import (
	"cmp"
	"io/fs"
	"path"
	"path/filepath"
	"slices"

	"github.com/sie-engine/sie/runtime/engine"
)

// heads holds every head that this build loads. To add one, write its file and enter it here.
// Detect asks them in this order.
var heads = []Task{Spans, BGEM3, Judge, GLiClass, Classify, Tag, Splade, ColBERT, Embed}

// likely is the task of a model that no head claims.
var likely = Embed

// Task is the use of a model in the catalog. It says which head is read in addition to the encoder.
// Tasks are comparable. The zero Task is none: Load refuses it.
type Task struct{ *head }

// String returns the task's name.
func (t Task) String() string {
	if t.head == nil {
		return "none"
	}
	return t.name
}

// auto returns the class of transformers that loads models of the task.
func (t Task) auto() string { return cmp.Or(t.loadedBy, autoEncoder) }

// Gives reports whether one pass of a model loaded for the task gives the output.
func (t Task) Gives(o Output) bool { return t.head != nil && slices.Contains(t.outputs, o) }

// head describes the layers behind an encoder: how they are found and packed, what programs give
// with them, and which of their linears adapters change. A head is one file.
type head struct {
	name string
	// outputs are what one pass gives. The first is the output of Model.Program.
	outputs []Output
	// loadedBy is the class of transformers that loads such models; "" = autoEncoder.
	loadedBy string
	// files are names that only models with this head have, all of them; nil: none.
	files []string
	// made reports whether a model was saved for this head; nil: its files never say so.
	made func(*saved) bool
	// labels reads the labels of a model that made or files chose; nil: the head has none that
	// Detect returns.
	labels func(*saved) ([]string, error)
	// added returns the tokens of Task.AddedTokens; nil: the head has none.
	added func(dir fs.FS) ([]string, error)
	// read reads the modules in dir, and returns what packs the head.
	read func(dir fs.FS) (chain, loader, error)
	// linears names the head's linears in the checkpoints of a family of encoders. Adapters for
	// them have no effect on models with another head; nil: none.
	linears func(headNames) []string
}

// loader packs a head and says what it gives.
type loader func(*loading) error

// loading is a head on its way to the device: where its weights are, and the model that it becomes
// a part of.
type loading struct {
	m          *Model
	dir        string // of the model
	encoderDir string // of the encoder, inside dir; "" = dir itself
	names      headNames
	shape      encoderShape
	onGPU      bool // the device is a GPU
	// of the encoder's module, and of Options
	transformer transformerConfig
	answers     []int32
	p           *packer
}

// folder returns the folder of the encoder's files.
func (l *loading) folder() string { return filepath.Join(l.dir, filepath.FromSlash(l.encoderDir)) }

// needs refuses a head that the family of encoders has no layer for: name is empty.
func (l *loading) needs(name string) error {
	if name != "" {
		return nil
	}
	return refuse(path.Join(l.encoderDir, configFile), "architectures",
		"the task %s needs a head, and this server knows of none behind %s", l.m.Task, l.m.Arch)
}

// gives makes the output one that programs of the model can have.
func (l *loading) gives(o Output, g given) { l.m.given[o] = g }

// adapts makes the linear n × k of that name one that adapters can change.
func (l *loading) adapts(w *engine.Weight, name string, n, k int64) {
	l.m.adapts = append(l.m.adapts, linear{weight: w, names: []string{name}, n: n, k: k})
}

// fixes refuses adapters for a linear that outputs depend on.
func (l *loading) fixes(name, why string) { l.m.fixed[name] = why }

// given is one output that a loaded head gives.
type given struct {
	// rows is the one row of each sequence that is read of the last hidden state, PoolMean where
	// more are read, 0 where the request's pooling decides.
	rows engine.Pooling
	// queries is set where a batch brings queries, lists where it lists words and markers, spans
	// where it lists spans.
	queries, lists, spans bool
	// labelled is set where a batch brings the rows of labels.
	labelled bool
	// tower is another encoder than the model's that is read; nil: the model's.
	tower encoder
	// precise is set where the last state is read in float32, states where those behind all blocks
	// are.
	precise, states bool
	// record records the layers of the output, and the output.
	record func(*recording)
}
