package arch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

var loraCases = []string{"lora-bert", "lora-xlm-roberta", "lora-electra", "lora-albert",
	"lora-modernbert", "lora-qwen3", "lora-gemma", "lora-jina-bert", "lora-jina-code",
	"lora-gte", "lora-nomic",
	"lora-jxlmr", "lora-mpnet", "lora-deberta", "lora-deberta-own", "lora-t5"}

// oddLoRAs have attention without a GPU kernel.
var oddLoRAs = []string{"lora-qwen2"}

// One batch has every sequence without an adapter and with each of a case. The results agree with
// those of PEFT, which computes one adapter at a time.
func TestAdaptersOfOneBatch(t *testing.T) {
	for _, o := range append(isas, engine.Options{Kind: engine.Ref}) {
		for _, name := range slices.Concat(loraCases, oddLoRAs) {
			dev := open(t, o)
			for _, compute := range computesFor(t, dev, name) {
				if o.Kind == engine.Ref && compute != engine.ComputeF32 {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%s/%s", o.Kind, o.ISA, name, compute), func(t *testing.T) {
					checkAdapters(t, dev, golden.Open(t, name), compute)
				})
			}
		}
	}
}

// adapterNames returns the names of a case's adapters, in order.
func adapterNames(t *testing.T, c *golden.Case) []string {
	data, _ := json.Marshal(c.Notes["adapters"])
	var notes map[string]any
	if err := json.Unmarshal(data, &notes); err != nil || len(notes) < 2 {
		t.Fatalf("%v: %d adapters", err, len(notes))
	}
	return slices.Sorted(maps.Keys(notes))
}

func checkAdapters(t *testing.T, dev *engine.Device, c *golden.Case, compute engine.Compute) {
	m, r := load(t, dev, c.Dir, Options{Task: Embed, Compute: compute})
	names := adapterNames(t, c)
	var adapters []*Adapter
	for _, name := range names {
		a, err := m.LoadAdapter(filepath.Join(c.Dir, "adapters", name))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		t.Cleanup(a.Close)
		adapters = append(adapters, a)
	}
	one := goldenBatch(c)
	n, seqs := len(one.ids), len(one.cu)-1
	all := packed{cu: []int32{0}}
	var which []int32
	for a := -1; a < len(adapters); a++ {
		all.ids = append(all.ids, one.ids...)
		if one.types != nil {
			all.types = append(all.types, one.types...)
		}
		for _, end := range one.cu[1:] {
			all.cu = append(all.cu, int32((a+1)*n)+end)
			which = append(which, int32(a))
		}
	}
	program, err := m.RecordHiddenStates(0, adapters...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(program.Close)
	run := engine.Batch{Program: program, IDs: all.ids, TypeIDs: all.types, CuSeqlens: all.cu, Adapter: which}
	for i := range program.Outputs() {
		run.OutBytes[i] = int64(4 * len(all.ids) * m.HiddenSize())
	}
	if err := r.Run(t.Context(), &run); err != nil {
		t.Fatal(err)
	}
	maxAbs, cosine := hiddenBounds(compute)
	if compute == engine.ComputeF32 {
		// the states of rank13 are up to 9 times a plain model's; PEFT's own float32 is off by half
		// of this
		maxAbs = 2e-5
	}
	// State 2 of lora-bert with "patterns": its linears' inputs have wider outliers.
	switch compute {
	case engine.ComputeINT8:
		cosine = 0.9996 // 0.99977; state 2 of lora-modernbert with "attention", 0.99966
	case engine.ComputeF16:
		cosine = 0.999998 // 0.99999898
	case engine.ComputeFP8:
		cosine = 0.9955 // 0.99599
	}
	for i := range program.Outputs() {
		for a := -1; a < len(adapters); a++ {
			name := "base"
			if a >= 0 {
				name = names[a]
			}
			want, _ := c.Float32(fmt.Sprintf("%s.hidden_%d", name, i))
			rows := 4 * n * m.HiddenSize()
			got := run.Out[i][(a+1)*rows : (a+2)*rows]
			if d := golden.Compare(floats(got), want); d.MaxAbs > maxAbs || d.Cosine < cosine {
				t.Errorf("state %d with %s: %v", i, name, d)
			}
		}
	}
	alone(t, m, r, adapters, &run, seqs, one.cu)
}

// alone runs the sequences without an adapter in a program without adapters, and one adapter's
// without the others. The bits must be the same.
func alone(
	t *testing.T, m *Model, r *engine.Runner, adapters []*Adapter, all *engine.Batch, seqs int, cu []int32,
) {
	n := int(cu[seqs])
	for _, part := range []int{-1, 1} { // the adapter
		var set []*Adapter
		if part >= 0 {
			set = adapters[part : part+1]
		}
		program, err := m.RecordHiddenStates(0, set...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(program.Close)
		run := engine.Batch{
			Program:   program,
			IDs:       all.IDs[:n],
			TypeIDs:   all.TypeIDs[:min(n, len(all.TypeIDs))],
			CuSeqlens: cu,
		}
		if set != nil {
			run.Adapter = make([]int32, seqs)
		}
		last := len(program.Outputs()) - 1
		for i := range last + 1 {
			run.OutBytes[i] = int64(4 * n * m.HiddenSize())
		}
		if err := r.Run(t.Context(), &run); err != nil {
			t.Fatal(err)
		}
		from := (part + 1) * 4 * n * m.HiddenSize()
		if !bytes.Equal(run.Out[last], all.Out[last][from:from+len(run.Out[last])]) {
			t.Errorf("the results of adapter %d depend on what else is in the batch", part)
		}
	}
}

// Filling a query up with tokens that no token attends to changes no bit of its words' vectors.
func TestFillingIsNotAttendedTo(t *testing.T) {
	for _, o := range append(isas, engine.Options{Kind: engine.Ref}) {
		dev := open(t, o)
		m, r := load(t, dev, golden.Open(t, "colbert-linear").Dir, Options{Task: ColBERT})
		words := []int32{2, 7, 11, 5, 9, 3}
		filled := append(slices.Clone(words), 4, 4, 4, 4, 4)
		keep := []uint8{1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0}
		vectors := func(want Want, ids []int32, keep []uint8) []byte {
			p, err := m.Record(want)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Close)
			b := engine.Batch{Program: p, IDs: ids, CuSeqlens: []int32{0, int32(len(ids))}, Keep: keep}
			b.Items[0] = []engine.OutItem{{DType: engine.F32, Dims: m.TokenDim, Normalize: true}}
			b.OutBytes[0] = int64(4 * m.TokenDim * len(ids))
			if err := r.Run(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
			return b.Out[0]
		}
		plain := vectors(Want{Give: Give(OutMulti)}, words, nil)
		masked := vectors(Want{Give: Give(OutMulti), AttendKept: true}, filled, keep)
		attended := vectors(Want{Give: Give(OutMulti)}, filled, nil)
		if !bytes.Equal(masked[:len(plain)], plain) {
			t.Errorf("%s %s: the filling changes the words", o.Kind, o.ISA)
		}
		if bytes.Equal(attended[:len(plain)], plain) ||
			bytes.Equal(masked[len(plain):], attended[len(plain):]) {
			t.Errorf("%s %s: hiding the filling changes nothing", o.Kind, o.ISA)
		}
		for i, x := range floats(masked[len(plain):]) {
			if x != x {
				t.Fatalf("%s %s: number %d of the filling is NaN", o.Kind, o.ISA, i)
			}
		}
	}
}

// Adapters are rounded to a GPU's types: to nearest, ties to even.
func TestEncodedAdapters(t *testing.T) {
	values := []float32{1, 1 + 1.0/256, 1 + 3.0/256, -1 - 1.5/256, 0.1}
	for dtype, want := range map[engine.DType][]byte{
		engine.BF16: {0x80, 0x3f, 0x80, 0x3f, 0x82, 0x3f, 0x81, 0xbf, 0xcd, 0x3d},
		engine.F16:  {0x00, 0x3c, 0x04, 0x3c, 0x0c, 0x3c, 0x06, 0xbc, 0x66, 0x2e},
		engine.F32: {0, 0, 0x80, 0x3f, 0, 0x80, 0x80, 0x3f, 0, 0x80, 0x81, 0x3f, 0, 0xc0, 0x80, 0xbf, 0xcd,
			0xcc, 0xcc, 0x3d},
	} {
		if got := encoded(values, dtype); !bytes.Equal(got, want) {
			t.Errorf("%v: % x, want % x", dtype, got, want)
		}
	}
}
