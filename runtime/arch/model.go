package arch

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"

	"github.com/sie-engine/sie/internal/files"
	"github.com/sie-engine/sie/internal/lockorder"
	"github.com/sie-engine/sie/runtime/chat"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/weights"
)

// encoder is an architecture with its weights packed.
type encoder interface {
	// forward records the encoder.
	forward(r *engine.Recorder, p pass) engine.Value
	// linears returns its matrices, by the names that adapters use.
	linears() []linear
	shape() encoderShape
	heads() headNames
}

type encoderShape struct {
	columns   int64 // of a hidden state
	words     int64 // of the table of words
	blocks    int
	positions int64 // longest sequence
	usual     int64 // longest sequence unless the files or the options say more; 0: positions
	vocab     int64
	types     int64
	biased    bool // attention has a bias by distance, so that its keys need places
	cost      Cost
}

// longest returns the longest sequence where the files state a length, or 0.
func (s *encoderShape) longest(stated int64) int64 {
	return min(s.positions, cmp.Or(stated, s.usual, s.positions))
}

// Cost holds an encoder's floating-point operations. A sequence of n tokens has n² pairs; those at
// most Window apart are near.
type Cost struct {
	PerToken float64 // of a token, in the linears
	PerPair  float64 // of a pair, in attention to the whole sequence
	PerNear  float64 // of a near pair, in attention to a window
	Window   int
}

// loadEncoder packs the encoder whose configuration is in dir.
type loadEncoder func(dir fs.FS, p *packer) (encoder, error)

// debertaType is the model_type of DeBERTa v2 and v3, which GLiNER's encoders have unless its file
// names another.
const debertaType = "deberta-v2"

// bertType is the model_type of BERT, which label towers are that only their name describes.
const bertType = "bert"

// architectures maps the model_type of config.json to the loader, and names that knownClasses gives
// to what code in repositories computes.
var architectures = map[string]loadEncoder{
	bertType:      bertNames.load,
	"roberta":     robertaNames.load,
	"xlm-roberta": robertaNames.load,
	"camembert":   robertaNames.load,
	"distilbert":  distilbertNames.load,
	"electra":     electraNames.load,
	"albert":      loadAlbert,
	"modernbert":  loadModernbert,
	"mpnet":       loadMPNet,
	debertaType:   loadDeberta,
	"new":         gteAlibaba.load,
	"gte":         gteTransformers.load,
	"nomic_bert":  loadNomic,
	"eurobert":    loadEurobert,
	"gemma3_text": loadGemma,
	"t5":          t5Plain.load,
	"mt5":         mt5.load,
	"umt5":        umt5.load,
	"qwen2":       qwen2.load,
	"qwen3":       qwen3.load,
	// not a model_type: the code of some repositories makes these of bert, xlm-roberta and qwen2
	"jina-bert":              jinaBertPlain.load,
	"jina-bert-qk-norm":      jinaBertCode.load,
	"jina-xlm-roberta":       loadJinaXLMR,
	"jina-xlm-roberta-tasks": loadJinaTasks,
	"qwen2-bidirectional":    qwen2BothWays.load,
}

// The default caps of a program: the token budget of a batch, and the number of sequences that it
// holds at four tokens each.
const (
	DefaultMaxTokens = 16384
	DefaultMaxSeqs   = 4096
)

// DefaultShortLen is the longest text of a model's ordinary programs. Longer texts have programs of
// their own, so that the memory of a model does not follow a length that few texts have.
const DefaultShortLen = 8192

// Options configures Load. The zero value follows the model's files.
type Options struct {
	Task      Task           // which heads are read
	Compute   engine.Compute // 0 = fp16 on a GPU for a checkpoint in it, else the device's default
	Pooling   engine.Pooling // 0 = as the module chain says, mean without one
	Normalize *bool          // nil = as the module chain says, true without one
	// 0 = as the files say; never beyond the model's positions. GLiNER reads windows of words, the
	// length of which its own file says.
	MaxSeqLen int
	ShortLen  int     // tokens of a text up to which it is short; 0 = DefaultShortLen
	MaxTokens int     // of a batch; 0 = DefaultMaxTokens. Raised to the longest short text.
	MaxSeqs   int     // of a batch; 0 = DefaultMaxSeqs
	Answers   []int32 // of a judge: the tokens whose logits are read; nil = as the module chain says
	Placement engine.Placement
	Dense     string // folder of the one Dense module of an embedder; "" = as the module chain says
	NoPruning bool   // compute the whole last block even where only one row of it is read; for tests
	// NoPrefixes computes what texts have in common once for each text, as if they had nothing in
	// common; for tests and benchmarks
	NoPrefixes bool
}

// Validate returns all errors in the options joined, or nil. Whether the device has the precision
// is checked by Load.
func (o *Options) Validate() error {
	var all []error
	if o.Task == (Task{}) {
		all = append(all, refuse(configFile, "", "the model is loaded for no task"))
	}
	for _, x := range []struct {
		name  string
		value int
	}{{"MaxSeqLen", o.MaxSeqLen}, {"ShortLen", o.ShortLen}, {"MaxTokens", o.MaxTokens},
		{"MaxSeqs", o.MaxSeqs}} {
		if x.value < 0 {
			all = append(all, fmt.Errorf("%s must not be negative; got %d", x.name, x.value))
		}
	}
	return errors.Join(all...)
}

// Model is a loaded model: packed weights and the program of its task. The exported fields are
// read-only. Safe for concurrent use.
type Model struct {
	Arch string // its name in architectures, which is model_type unless the model's own code computes another
	Task Task
	// columns of a dense vector that a request gets: at most truncate_dim, where the files set that
	Dim       int
	Layers    int
	MaxSeqLen int // tokens, special ones included
	ShortLen  int // the longest text of ordinary programs; with MaxSeqLen there are no others
	Vocab     int
	TypeVocab int
	Compute   engine.Compute
	Placement engine.Placement // of the weights
	Pooling   engine.Pooling   // 0: several
	Normalize bool             // whether vectors are normalised unless a request says otherwise
	LowerCase bool             // whether text is lower-cased before the tokenizer
	// the poolings whose rows a dense vector joins, in this order; nil without a module chain
	Poolings []engine.Pooling
	// whether pooling leaves out a prompt's tokens (include_prompt: false): a batch keeps the rows
	// of the others, and all of a text without a prompt
	SkipsPrompt bool

	TokenDim   int        // columns of a token's vector; 0: the model gives none
	Labels     []string   // of a classification head, in the order of the logits; nil without one
	Activation Activation // of a score
	MultiLabel bool       // the labels do not exclude each other
	Regression bool       // the logits are what the model measures, and no chances of labels

	Answers []int32    // of a judge: the tokens whose logits make the score; nil for other models
	Chat    *chat.Pair // of a judge whose files have its prompt; else nil

	// SPLADE: the weight of each token id in a query, which then needs no encoder; nil: queries run
	// like documents
	QueryWeights []float32

	Late Late // how a late-interaction model reads texts, where its files say so

	Labelled *LabelLayout // how a model reads labels that stand beside the text; nil for other models
	GLiNER   *GLiNER      // how a model reads labels and words that finds entities; nil for other models

	Prompts       map[string]string // by name; nil without any
	DefaultPrompt string            // name of the prompt for inputs that choose none; "" = none

	device  *engine.Device
	encoder encoder
	gliner  *gliner
	dense   []layer
	given   map[Output]given
	adapts  []linear // of the head, that adapters can change
	// other linears of the head that outputs depend on: why adapters cannot change them
	fixed  map[string]string
	pad    *int32 // see Read; nil: every token is read
	packer *packer
	caps   engine.Caps // of short texts
	long   engine.Caps // of longer ones
	// Options.NoPrefixes
	noPrefixes bool
	program    *engine.Program
	folds      folds
}

// parts holds what the model's files say about loading it.
type parts struct {
	chain    chain
	load     loader
	limits   textLimits
	truncate *int64 // columns of a dense vector that are kept; nil: all
	info     engine.Info
	module   transformerConfig
	answers  []int32
}

// Load packs the model in dir for dev and records its program. It reads the checkpoint once, the
// parts of one weight at a time. Other users of dev wait for at most one weight at a time. Errors:
// *ModelError and weights' *FormatError for files that cannot be served, weights.ErrChanged for a
// file that is written to meanwhile, weights.ErrNoWeights, fs.ErrNotExist, and those of the engine.
func Load(dir string, dev *engine.Device, o Options) (*Model, error) {
	lockorder.AssertNoneHeld("packing a model")
	m, parts, err := describe(dir, dev, o)
	if err != nil {
		return nil, err
	}
	if err = m.pack(dir, parts, &packer{placement: o.Placement, group: dev.NewWeightGroup()}); err == nil {
		err = m.recordFirst(parts.limits, o)
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	m.Placement = o.Placement
	if n := parts.truncate; n != nil {
		m.Dim = int(min(int64(m.Dim), *n))
	}
	return m, nil
}

// describe reads the model's files except its weights.
func describe(dir string, dev *engine.Device, o Options) (*Model, parts, error) {
	if err := o.Validate(); err != nil {
		return nil, parts{}, err
	}
	tree := files.Dir(dir)
	chain, load, err := o.Task.read(tree)
	if err != nil {
		return nil, parts{}, err
	}
	if o.Dense != "" {
		if chain.dense, err = readNamedDense(tree, o); err != nil {
			return nil, parts{}, err
		}
	}
	prompts, err := readPrompts(tree)
	if err != nil {
		return nil, parts{}, err
	}
	module, err := readTransformer(tree, chain.encoderDir)
	if err != nil {
		return nil, parts{}, err
	}
	if err := module.expect(chain.task, o.Task); err != nil {
		return nil, parts{}, err
	}
	limits, err := readTextLimits(tree, chain.encoderDir, module)
	if err != nil {
		return nil, parts{}, err
	}
	info, err := dev.Info()
	if err != nil {
		return nil, parts{}, err
	}
	if o.Compute != 0 && !info.Supports(o.Compute) {
		return nil, parts{}, &engine.Error{Op: "load", Status: engine.StatusUnsupported, Msg: fmt.Sprintf(
			"precision %s is not available on this device; it has %v", o.Compute, info.Compute)}
	}
	m := &Model{
		Task:       o.Task,
		device:     dev,
		noPrefixes: o.NoPrefixes,
		Compute:    o.Compute,
		Poolings:   chain.pooling.modes,
		Normalize:  chain.normalize,
		LowerCase:  limits.lowerCase,
		Prompts:    prompts.Prompts,
		Late:       prompts.Late,
	}
	if o.Pooling != 0 {
		m.Poolings = []engine.Pooling{o.Pooling}
	}
	if len(m.Poolings) == 1 {
		m.Pooling = m.Poolings[0]
	}
	m.SkipsPrompt = chain.pooling.skipsPrompt
	if limits.maxSeqLen > 0 { // PyLate cuts texts by the lengths of their roles, and by these alone
		limits.maxSeqLen = max(limits.maxSeqLen, prompts.Late.QueryLength, prompts.Late.DocumentLength)
	}
	if o.Normalize != nil {
		m.Normalize = *o.Normalize
	}
	if prompts.Default != nil {
		m.DefaultPrompt = *prompts.Default
	}
	return m, parts{chain, load, limits, prompts.TruncateDim, info, module, o.Answers}, nil
}

// pack packs the weights with p, or only counts them if p.sizing is set.
func (m *Model) pack(dir string, of parts, p *packer) error {
	chain := of.chain
	encoderDir := filepath.Join(dir, filepath.FromSlash(chain.encoderDir))
	checkpoint, err := weights.Open(encoderDir)
	if err != nil {
		return err
	}
	defer checkpoint.Close()
	if err := chain.nested.readVocab(checkpoint); err != nil {
		return err
	}
	name, load, err := readArchitecture(chain.nested.view(files.Dir(dir)), chain.encoderDir, m.Task.auto())
	if err != nil {
		return chain.nested.renamed(err)
	}
	if p.sizing == nil {
		_ = checkpoint.Prefetch() // advice: reading works without it
	}
	m.Arch = name
	p.asked = m.Compute != 0
	if !p.asked {
		m.Compute = defaultCompute(of.info, checkpoint)
	}
	buffer := new(weights.Buffer)
	defer buffer.Close()
	m.packer = p
	p.dev, p.from, p.file, p.compute, p.buffer = m.device, checkpoint, checkpoint.Name(), m.Compute, buffer
	p.nested = chain.nested
	view := chain.nested.view(files.Dir(encoderDir))
	if m.encoder, err = load(view, m.packer); err == nil {
		err = cmp.Or(refuseTwoParts(view, m.encoder), refuseCausal(view, m.encoder))
	}
	if err == nil {
		m.Compute = p.compute
		m.given, m.fixed = make(map[Output]given), make(map[string]string)
		if f, ok := m.encoder.(interface{ fixed() map[string]string }); ok {
			maps.Copy(m.fixed, f.fixed())
		}
		err = cmp.Or(of.load(&loading{
			m:          m,
			dir:        dir,
			encoderDir: chain.encoderDir,
			names:      m.encoder.heads(),
			shape:      m.encoder.shape(),
			onGPU:      of.info.Kind == engine.CUDA,
			p:          m.packer,

			transformer: of.module,
			answers:     of.answers,
		}), m.packer.err)
	}
	if err := checkpoint.ReadError(chain.nested.renamed(err)); err != nil {
		return err
	}
	shape := m.encoder.shape()
	m.Layers, m.Vocab, m.TypeVocab, m.Dim = shape.blocks, int(shape.vocab), int(shape.types),
		int(shape.columns)*max(1, len(m.Poolings))
	for _, c := range chain.dense {
		if c.in != int64(m.Dim) {
			return refuse(path.Join(c.module, configFile), "in_features", "is %d; the module before gives %d",
				c.in, m.Dim)
		}
		d, err := loadDense(dir, c, m.packer)
		if err != nil {
			return err
		}
		m.dense = append(m.dense, d)
		m.Dim = int(c.out)
	}
	p.from, p.buffer = nil, nil // closed on return
	return nil
}

// longest returns the longest sequence where the files state a length, or 0, and the options
// perhaps another. A model that reads windows of words takes as many tokens as its encoder can.
func (m *Model) longest(stated int64, o Options) int64 {
	shape := m.encoder.shape()
	if m.GLiNER != nil {
		shape.usual = 0
	} else if o.MaxSeqLen > 0 {
		return min(shape.positions, int64(o.MaxSeqLen))
	}
	return shape.longest(stated)
}

// recordFirst records the program of the model's own outputs.
func (m *Model) recordFirst(limits textLimits, o Options) (err error) {
	longest := m.longest(limits.maxSeqLen, o)
	short := min(longest, int64(cmp.Or(o.ShortLen, DefaultShortLen)))
	m.MaxSeqLen, m.ShortLen = int(longest), int(short)
	m.caps = engine.Caps{MaxTokens: max(short, int64(cmp.Or(o.MaxTokens, DefaultMaxTokens))),
		MaxSeqs: int64(cmp.Or(o.MaxSeqs, DefaultMaxSeqs)), MaxLen: short}
	if m.GLiNER != nil { // each word and each label has a token at least
		m.caps.MaxWords = m.caps.MaxTokens
		if m.GLiNER.Tower == nil {
			m.caps.MaxMarkers = m.caps.MaxTokens
		}
	}
	m.long = engine.Caps{MaxTokens: longest, MaxSeqs: max(1, longest/(short+1)), MaxLen: longest,
		MinLen: short + 1, MaxWords: min(longest, m.caps.MaxWords),
		MaxMarkers: min(longest, m.caps.MaxMarkers)}
	m.program, err = m.record(m.Own(), o.NoPruning, nil)
	return err
}

// RecordHiddenStates records a second program over the same weights, whose outputs are hidden
// states. They are the states first, first+1, … as float32 [T, hidden_size]: state 0 is after the
// embeddings, state i after block i. The program has as many outputs as states are left, at most
// engine.MaxOutputs. Batches name the adapters by their index. The caller closes the program before
// the model.
func (m *Model) RecordHiddenStates(first int, adapters ...*Adapter) (*engine.Program, error) {
	if first < 0 || first > m.Layers {
		return nil, fmt.Errorf("hidden state %d: the model has 0 to %d", first, m.Layers)
	}
	r := m.device.Record(m.caps)
	m.encoder.forward(r,
		pass{keep: engine.PoolMean, adapters: adapters, observe: func(i int, x engine.Value) {
			if i >= first && i < first+engine.MaxOutputs {
				r.OutputValues(x)
			}
		}})
	return r.End()
}

// HiddenSize returns the number of columns of a hidden state.
func (m *Model) HiddenSize() int { return int(m.encoder.shape().columns) }

// Cost returns the encoder's cost. Heads are left out: they are small in comparison, or cost the
// same for every token.
func (m *Model) Cost() Cost { return m.encoder.shape().cost }

// Program returns the recorded forward pass. It is closed with the model.
func (m *Model) Program() *engine.Program { return m.program }

// Caps returns the bounds of a batch of short texts, or of long ones (Want.Long).
func (m *Model) Caps(long bool) engine.Caps {
	if long {
		return m.long
	}
	return m.caps
}

// Bytes returns the size on the device of the packed weights and of the programs' folding tables.
// It takes no lock.
func (m *Model) Bytes() int64 { return m.packer.bytes + m.folds.bytes.Load() }

// Denormals returns how many values of the checkpoint became 0, because they were too small for a
// normal float32.
func (m *Model) Denormals() int64 { return m.packer.denormals }

// Close frees the program and the weights. No batch of the model may be in flight.
func (m *Model) Close() {
	if m.program != nil {
		m.program.Close()
		m.program = nil
	}
	if m.packer != nil {
		m.packer.close()
	}
	m.folds.close()
}
