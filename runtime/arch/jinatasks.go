package arch

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/weights"
)

// jina-embeddings-v3 is Jina's XLM-R with an adapter for each task inside its checkpoint, on every
// linear and on the tables of words and types. A text that names no task is encoded by the weights
// alone.
//
// A table's adapter adds a product of two matrices to it, A [vocab, rank] and B [rank, C]. Its rows
// are made from the ids: the A of all tasks, side by side, are a table of their own, whose rows
// pass a matrix of zeros. That matrix is what each task's adapter changes: it takes the task's
// columns, and multiplies them by B. So tasks are mixed in a batch like other adapters.

// jinaTasks is the encoder and its tasks' adapters. T is their number, r their rank.
type jinaTasks struct {
	*bert
	names           []string
	instructions    map[string]string // by task
	adapters        []*Adapter
	words, wordType *engine.Weight // [vocab, 2·T·r], [types, 2·T·r]: A of the words, then of the types
	nothing         *engine.Weight // [C, 2·T·r], zeros
}

// jinaTaskKeys are the keys of config.json about tasks.
type jinaTaskKeys struct {
	Tasks        []string          `json:"lora_adaptations"`
	Rank         int64             `json:"lora_rank"`
	Alpha        float64           `json:"lora_alpha"`
	Instructions map[string]string `json:"task_instructions"`
	Trained      *bool             `json:"load_trained_adapters"`
	Positions    string            `json:"position_embedding_type"`
}

// maxTasks and maxTaskRank bound the adapters of a checkpoint.
const (
	maxTasks    = 16
	maxTaskRank = 64
)

func readJinaTaskKeys(dir fs.FS) (jinaTaskKeys, error) {
	c := jinaTaskKeys{Rank: 4, Alpha: 1}
	if err := needJSON(dir, configFile, &c); err != nil {
		return c, err
	}
	if len(c.Tasks) < 1 || len(c.Tasks) > maxTasks {
		return c, refuse(configFile, "lora_adaptations", "lists %d tasks; 1 to %d are possible",
			len(c.Tasks), maxTasks)
	}
	for i, task := range c.Tasks {
		if task == "" || len(task) > 100 || slices.Contains(c.Tasks[:i], task) {
			return c, refuse(configFile, "lora_adaptations",
				"task %d is %.60q, which is empty, too long or a second one", i, task)
		}
		if len(c.Instructions[task]) > maxPromptBytes {
			return c, refuse(configFile, "task_instructions", "%.60q has more than %d bytes",
				task, maxPromptBytes)
		}
	}
	if c.Rank < 1 || c.Rank > maxTaskRank {
		return c, refuse(configFile, "lora_rank", "is %d; 1 to %d is possible", c.Rank, maxTaskRank)
	}
	if !(c.Alpha > 0 && c.Alpha <= 1e6) {
		return c, refuse(configFile, "lora_alpha", "is %g; it must be above 0 and at most 1000000", c.Alpha)
	}
	if c.Trained == nil || !*c.Trained {
		return c, refuse(configFile, "load_trained_adapters",
			"is not true: the checkpoint would have no adapters, and the tasks none")
	}
	if c.Positions != "rotary" {
		return c, refuse(configFile, "position_embedding_type",
			"is %.60q; with adapters for tasks, rotary is supported", c.Positions)
	}
	return c, nil
}

// parametrized is a checkpoint whose weights torch has parametrized: beside an adapter, a weight
// has a longer name.
type parametrized struct{ Checkpoint }

const (
	parametrization = ".parametrizations.weight."
	originalWeight  = parametrization + "original"
)

// Tensor returns the tensor of that name, for a weight that has an adapter the weight alone.
func (c parametrized) Tensor(name string) (weights.Tensor, bool) {
	if t, ok := c.Checkpoint.Tensor(name); ok {
		return t, true
	}
	layer, isWeight := strings.CutSuffix(name, ".weight")
	if !isWeight {
		return weights.Tensor{}, false
	}
	return c.Checkpoint.Tensor(layer + originalWeight)
}

// loadJinaTasks packs an encoder and its tasks' adapters. It leaves p.prefix at the prefix of the
// encoder's tensors.
func loadJinaTasks(dir fs.FS, p *packer) (encoder, error) {
	keys, err := readJinaTaskKeys(dir)
	if err != nil {
		return nil, err
	}
	p.from = parametrized{p.from}
	e, err := loadJinaXLMR(dir, p)
	if err != nil {
		return nil, err
	}
	m := &jinaTasks{bert: e.(*bert), names: keys.Tasks, instructions: keys.Instructions}
	dtype, err := adapterType(p.dev, p.compute)
	if err != nil {
		return nil, err
	}
	for range m.names {
		m.adapters = append(m.adapters,
			&Adapter{pairs: map[*engine.Weight]engine.LoRA{}, owner: &packer{dev: p.dev}})
	}
	scale, r := float32(keys.Alpha/float64(keys.Rank)), keys.Rank
	for _, l := range m.bert.linears() {
		at, t := l.names[0]+parametrization+"0.", int64(len(m.names))
		a, b := p.hostTensor(at+"lora_A", t, r, l.k), p.hostTensor(at+"lora_B", t, l.n, r)
		if p.err != nil {
			return nil, p.err
		}
		for i, adapter := range m.adapters {
			adapter.pairs[l.weight] = p.pair(dtype, scale, l.k, r, slot(a, i, r*l.k), slot(b, i, l.n*r))
		}
	}
	m.loadTables(p, dtype, scale, r)
	return m, p.err
}

// pair packs A [rank, k] and scale·B [n, rank].
func (p *packer) pair(dtype engine.DType, scale float32, k, rank int64, a, b []float32) engine.LoRA {
	scaled := make([]float32, len(b))
	for i, v := range b {
		scaled[i] = scale * v
	}
	return engine.LoRA{A: p.data(k, dtype, encoded(a, dtype)),
		B: p.data(rank, dtype, encoded(scaled, dtype))}
}

// slot returns part i of values, parts of size values each.
func slot(values []float32, i int, size int64) []float32 {
	return values[int64(i)*size : int64(i+1)*size]
}

// loadTables packs the adapters of the tables of words and types.
func (m *jinaTasks) loadTables(p *packer, dtype engine.DType, scale float32, r int64) {
	t, c := int64(len(m.names)), m.config.HiddenSize
	columns := 2 * t * r
	words, wordB := m.tableAdapters(p, wordTable, m.config.VocabSize, r)
	types, typeB := m.tableAdapters(p, typeTable, m.config.TypeVocabSize, r)
	if p.err != nil {
		return
	}
	m.words = p.values(engine.TableWeight, columns, beside(words, t, m.config.VocabSize, r, 0))
	m.wordType = p.values(engine.TableWeight, columns, beside(types, t, m.config.TypeVocabSize, r, t*r))
	m.nothing = p.values(engine.LinearWeight, columns, make([]float32, c*columns))
	for i, adapter := range m.adapters {
		choice, b := make([]float32, 2*r*columns), make([]float32, 0, 2*r*c)
		for j := range r {
			choice[j*columns+int64(i)*r+j] = 1
			choice[(r+j)*columns+t*r+int64(i)*r+j] = 1
		}
		for column := range c {
			for _, from := range [][]float32{wordB, typeB} {
				for j := range r {
					b = append(b, from[(int64(i)*r+j)*c+column])
				}
			}
		}
		adapter.pairs[m.nothing] = p.pair(dtype, scale, columns, 2*r, choice, b)
		adapter.Rank = int(2 * r)
	}
}

// tableAdapters reads A [T, rows, r] and B [T, r, C] of a table.
func (m *jinaTasks) tableAdapters(p *packer, table string, rows, r int64) (a, b []float32) {
	at, t := strings.TrimSuffix(table, ".weight")+parametrization+"0.", int64(len(m.names))
	return p.hostTensor(at+"lora_A", t, rows, r), p.hostTensor(at+"lora_B", t, r, m.config.HiddenSize)
}

// beside lays the A of t tasks side by side, [rows, 2·t·r], from column first on. The other columns
// are 0.
func beside(a []float32, t, rows, r, first int64) []float32 {
	out := make([]float32, rows*2*t*r)
	for task := range t {
		for row := range rows {
			copy(out[row*2*t*r+first+task*r:], a[(task*rows+row)*r:(task*rows+row+1)*r])
		}
	}
	return out
}

func (m *jinaTasks) forward(r *engine.Recorder, p pass) engine.Value {
	x := m.embed(r, p)
	p.see(0, x)
	for i, l := range m.blocks {
		x = m.block(r, p, x, l, i == len(m.blocks)-1)
		p.see(i+1, x)
	}
	return x
}

// embed records the operations before the blocks. The norm stands alone even where no task is
// asked for, so that a text without one has the same numbers beside texts with one.
func (m *jinaTasks) embed(r *engine.Recorder, p pass) engine.Value {
	x := r.EmbedLayerNorm(engine.Embedding{Word: m.word, Type: m.types, Norm: engine.NoNorm})
	if p.pairs(m.nothing) != nil {
		rows := r.EmbedLayerNorm(engine.Embedding{Word: m.words, Type: m.wordType, Norm: engine.NoNorm})
		x = p.linear(r, rows, m.nothing, nil, engine.NoAct, x)
	}
	return r.LayerNorm(x, m.gamma, m.beta, float32(m.config.LayerNormEps))
}

// Tasks returns the tasks that the checkpoint has adapters for, in order; nil for most models.
func (m *Model) Tasks() []string {
	if j, ok := m.encoder.(*jinaTasks); ok {
		return j.names
	}
	return nil
}

// TaskAdapter returns the adapter of a task, which is freed with the model, and the instruction
// that stands before texts of the task.
func (m *Model) TaskAdapter(task string) (a *Adapter, instruction string, err error) {
	j, ok := m.encoder.(*jinaTasks)
	if ok {
		if i := slices.Index(j.names, task); i >= 0 {
			return j.adapters[i], j.instructions[task], nil
		}
	}
	return nil, "", fmt.Errorf("the model has no task %.60q; it has %q", task, m.Tasks())
}
