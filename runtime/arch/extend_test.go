package arch

import (
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// bag is an architecture of this test alone: a text's hidden state is that of its embeddings.
type bag struct{ *bert }

func (b bag) forward(r *engine.Recorder, p pass) engine.Value {
	x := b.embed(r, p)
	p.see(0, x)
	return x
}

func (b bag) linears() []linear { return nil }

func (b bag) shape() encoderShape {
	s := b.bert.shape()
	s.blocks, s.cost = 0, Cost{}
	return s
}

// outEnds is rows [B, hidden_size]: each text's last row.
const outEnds Output = "ends"

// ends is a head of this test alone.
var ends = Task{&head{
	name:    "ends",
	outputs: []Output{outEnds},
	made:    func(s *saved) bool { return s.class == "BagOfEnds" },
	read:    func(fs.FS) (chain, loader, error) { return encoderAlone(taskFeatures), loadEnds, nil },
	linears: func(headNames) []string { return []string{"ends.dense"} },
}}

func loadEnds(l *loading) error {
	l.gives(outEnds, given{
		rows: engine.PoolLast, record: func(r *recording) { r.OutputRows(r.Pool(r.x, engine.PoolLast)) },
	})
	return nil
}

// An architecture and a head are each one file and one line of their table. Everything from the
// files of a model to its vectors follows: what was saved is told, packed, counted and recorded,
// and what another head lacks is known.
func TestAnArchitectureAndAHeadMore(t *testing.T) {
	architectures["bag"] = func(dir fs.FS, p *packer) (encoder, error) {
		e, err := bertNames.load(dir, p)
		if err != nil {
			return nil, err
		}
		return bag{e.(*bert)}, nil
	}
	heads = append([]Task{ends}, heads...)
	t.Cleanup(func() {
		delete(architectures, "bag")
		heads = heads[1:]
	})
	dev := open(t, engine.Options{})
	from := golden.Open(t, "bert-erf-h128")
	dir := edit(t, from.Dir, configFile,
		map[string]any{"model_type": "bag", "architectures": []string{"BagOfEnds"}})
	task, labels, err := Detect(dir)
	if task != ends || labels != nil || err != nil || task.String() != "ends" || !task.Gives(outEnds) ||
		task.Gives(OutDense) {
		t.Fatalf("the directory was made for %v, %v, %v", task, labels, err)
	}
	o := Options{Task: task, Compute: engine.ComputeF32}
	m, r := load(t, dev, dir, o)
	if m.Arch != "bag" || m.Layers != 0 || m.Own() != (Want{Give: Give(outEnds)}) || m.All() != m.Own() ||
		!m.Gives(outEnds) || m.Gives(OutDense) {
		t.Errorf("architecture %s with %d blocks gives %+v", m.Arch, m.Layers, m.Own())
	}
	if says := []engine.Output{
		{Name: "ends", Form: engine.FormRows, Columns: m.Dim},
	}; !slices.Equal(m.Program().Outputs(), says) {
		t.Errorf("the program says %+v, want %+v", m.Program().Outputs(), says)
	}
	if size, err := SizeOf(dir, dev, o); err != nil || size.Packed < m.Bytes()*9/10 ||
		size.Packed > m.Bytes()*11/10 {
		t.Errorf("estimate of %+v, %v: %d bytes were packed", size, err, m.Bytes())
	}
	b := goldenBatch(from)
	states, shape := from.Float32("hidden_0")
	var want []float32
	for _, end := range b.cu[1:] {
		want = append(want, states[(int(end)-1)*shape[1]:int(end)*shape[1]]...)
	}
	if d := golden.Compare(embed(t, m, r, b, false), want); d.MaxAbs > 1e-5 {
		t.Errorf("the last rows of the embeddings: %v", d)
	}
	if other, _ := load(t, dev, from.Dir, Options{Task: Embed}); !slices.Contains(other.unused(),
		"ends.dense") || slices.Contains(m.unused(), "ends.dense") {
		t.Errorf("unused linears are %v, and of the head itself %v", other.unused(), m.unused())
	}
	if err := os.Remove(dir + "/config.json"); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir, dev, o); err == nil || !strings.Contains(err.Error(), configFile) {
		t.Errorf("without a configuration: %v", err)
	}
}
