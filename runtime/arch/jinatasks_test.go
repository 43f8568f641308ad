package arch

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

const taskCase = "tasks-jxlmr"

// One batch has every text without a task and with each. The states agree with those of
// transformers' model, to whose weights the task's adapters were added.
func TestTasksOfOneBatch(t *testing.T) { onEach(t, checkTasks) }

func checkTasks(t *testing.T, dev *engine.Device, compute engine.Compute) {
	c := golden.Open(t, taskCase)
	m, r := load(t, dev, c.Dir, Options{Task: Embed, Compute: compute})
	b, names := goldenBatch(c), m.Tasks()
	if len(names) != 5 || names[0] != "retrieval.query" {
		t.Fatalf("tasks %q", names)
	}
	adapters := taskAdapters(t, m)
	maxAbs, cosine := hiddenBounds(compute)
	switch compute {
	case engine.ComputeF32:
		maxAbs = 2e-5
	case engine.ComputeINT8, engine.ComputeFP8, engine.ComputeBF16:
		maxAbs, cosine = 1, 0.995
	}
	run, n := taskBatch(t, m, r, b, adapters), len(b.ids)*m.HiddenSize()*4
	for i := range m.Layers + 1 {
		for task := -1; task < len(names); task++ {
			name := "base"
			if task >= 0 {
				name = names[task]
			}
			want, _ := c.Float32(fmt.Sprintf("%s.hidden_%d", name, i))
			got := floats(run.Out[i][(task+1)*n : (task+2)*n])
			if d := golden.Compare(got, want); d.MaxAbs > maxAbs || d.Cosine < cosine {
				t.Errorf("state %d, %s: %v", i, name, d)
			}
		}
	}
	// The bits are those of each task without the others, and of a model without any.
	for task, a := range adapters {
		alone := taskBatch(t, m, r, b, []*Adapter{a})
		if !bytes.Equal(alone.Out[1][n:], run.Out[1][(task+1)*n:(task+2)*n]) ||
			!bytes.Equal(alone.Out[1][:n], run.Out[1][:n]) {
			t.Errorf("%s: the states depend on the other tasks of the batch", names[task])
		}
	}
	if plain := taskBatch(t, m, r, b, nil); !bytes.Equal(plain.Out[1], run.Out[1][:n]) {
		t.Error("texts without a task have other states beside texts with one")
	}
}

func taskAdapters(t *testing.T, m *Model) (all []*Adapter) {
	t.Helper()
	for _, name := range m.Tasks() {
		a, _, err := m.TaskAdapter(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	return all
}

// taskBatch runs b without an adapter, then with each, in one batch, and returns its states.
func taskBatch(t *testing.T, m *Model, r *engine.Runner, b packed, adapters []*Adapter) engine.Batch {
	t.Helper()
	program, err := m.RecordHiddenStates(0, adapters...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(program.Close)
	run := engine.Batch{Program: program, CuSeqlens: []int32{0}}
	for a := -1; a < len(adapters); a++ {
		start := int32(len(run.IDs))
		run.IDs, run.TypeIDs = append(run.IDs, b.ids...), append(run.TypeIDs, b.types...)
		for _, end := range b.cu[1:] {
			run.CuSeqlens = append(run.CuSeqlens, start+end)
			if len(adapters) > 0 {
				run.Adapter = append(run.Adapter, int32(a))
			}
		}
	}
	for i := range program.Outputs() {
		run.OutBytes[i] = int64(4 * len(run.IDs) * m.HiddenSize())
	}
	if err := r.Run(t.Context(), &run); err != nil {
		t.Fatal(err)
	}
	return run
}

// Keys about tasks that cannot be, and tensors that are missing, are refused by name.
func TestBadTasksAreRefused(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	from := golden.Open(t, taskCase).Dir
	for _, c := range []struct {
		key   string
		value any
		parts []string
	}{
		{"lora_adaptations", nil, []string{"lora_adaptations", "lists 0 tasks"}},
		{"lora_adaptations", []string{"a", "a"}, []string{"lora_adaptations", `task 1 is "a"`}},
		{"lora_adaptations", []string{"a"}, []string{"parametrizations", "lora_A", "[5 3 32]", "[1 3 32]"}},
		{"lora_rank", 0, []string{"lora_rank", "is 0"}},
		{"lora_rank", 1000000000, []string{"lora_rank", "64"}},
		{"lora_rank", 4, []string{"lora_A", "[5 3 32]", "[5 4 32]"}},
		{"lora_alpha", -1, []string{"lora_alpha", "-1"}},
		{"load_trained_adapters", false, []string{"load_trained_adapters"}},
		{"position_embedding_type", "absolute", []string{"position_embedding_type", "rotary"}},
	} {
		refused(t, dev, edit(t, from, configFile, map[string]any{c.key: c.value}), c.key, c.parts...)
	}
	m, _ := load(t, dev, from, Options{Task: Embed})
	if _, _, err := m.TaskAdapter("sorting"); err == nil {
		t.Error("a task that the model does not have")
	}
	if _, instruction, err := m.TaskAdapter("retrieval.query"); err != nil || instruction != "query: " {
		t.Errorf("instruction %q, %v", instruction, err)
	}
	plain, _ := load(t, dev, golden.Open(t, "jxlmr-absolute-h1-d64").Dir, Options{Task: Embed})
	if plain.Tasks() != nil {
		t.Errorf("tasks %q", plain.Tasks())
	}
}

// Looking at the files finds every tensor of the adapters.
func TestTasksLeaveNothingOver(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	r, err := Check(golden.Open(t, taskCase).Dir, dev, Options{Task: Embed})
	if err != nil || len(r.Problems) > 0 || len(r.LeftOver) > 0 {
		t.Errorf("%v: %+v", err, r)
	}
}
