package arch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/runtime/engine"
)

// overlapped is o with what SIE_CUDA_PDL says, as for the server.
func overlapped(o engine.Options) engine.Options {
	o.Overlap = map[string]engine.Overlap{
		"launches": engine.OverlapLaunches, "off": engine.OverlapNever,
	}[os.Getenv("SIE_CUDA_PDL")]
	return o
}

// open opens a device for a test, or skips the test and prints the command to run.
func open(t testing.TB, o engine.Options) *engine.Device {
	t.Helper()
	dev, err := engine.Open(overlapped(o))
	if errors.Is(err, engine.ErrNotBuilt) {
		t.Skip("no native engine: run `make test-go`")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dev.Close)
	return dev
}

// load loads a model and a runner for it; both end with the test.
func load(t testing.TB, dev *engine.Device, dir string, o Options) (*Model, *engine.Runner) {
	t.Helper()
	m, err := Load(dir, dev, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	r := engine.NewRunner(dev)
	t.Cleanup(r.Close)
	return m, r
}

// packed is a batch of token ids, with the sequences end to end.
type packed struct{ ids, types, cu []int32 }

// pick packs some sequences of b, in the given order.
func (b packed) pick(order ...int) packed {
	p := packed{cu: []int32{0}}
	for _, i := range order {
		from, to := b.cu[i], b.cu[i+1]
		p.ids = append(p.ids, b.ids[from:to]...)
		if b.types != nil {
			p.types = append(p.types, b.types[from:to]...)
		}
		p.cu = append(p.cu, int32(len(p.ids)))
	}
	return p
}

func (b packed) seqs() int { return len(b.cu) - 1 }

// embed runs b as one batch and returns float32 vectors, [seqs·dim].
func embed(t testing.TB, m *Model, r *engine.Runner, b packed, normalize bool) []float32 {
	t.Helper()
	run := engine.Batch{Program: m.Program(), IDs: b.ids, TypeIDs: b.types, CuSeqlens: b.cu}
	for i := range b.seqs() {
		run.Items[0] = append(run.Items[0], engine.OutItem{
			DType: engine.F32, Dims: m.Dim, Normalize: normalize, Offset: int64(i * m.Dim * 4),
		})
	}
	run.OutBytes[0] = int64(b.seqs() * m.Dim * 4)
	if err := r.Run(context.Background(), &run); err != nil {
		t.Fatal(err)
	}
	return floats(run.Out[0])
}

// embedAll runs b in batches of at most tokens tokens.
func embedAll(t testing.TB, m *Model, r *engine.Runner, b packed, normalize bool, tokens int) []float32 {
	t.Helper()
	var out []float32
	for i := 0; i < b.seqs(); {
		var order []int
		for n := 0; i < b.seqs() && (n == 0 || n+int(b.cu[i+1]-b.cu[i]) <= tokens); i++ {
			n += int(b.cu[i+1] - b.cu[i])
			order = append(order, i)
		}
		out = append(out, embed(t, m, r, b.pick(order...), normalize)...)
	}
	return out
}

func floats(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

// sameBits reports the first element whose bits differ.
func sameBits(got, want []float32) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d values, expected %d", len(got), len(want))
	}
	for i := range got {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			return fmt.Errorf("value %d is %v (%08x), expected %v (%08x)",
				i, got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
	return nil
}

// computes returns the classes of dev that the BERT goldens cover.
func computes(t testing.TB, dev *engine.Device) []engine.Compute {
	t.Helper()
	info, err := dev.Info()
	if err != nil {
		t.Fatal(err)
	}
	var out []engine.Compute
	for _, c := range []engine.Compute{
		engine.ComputeF32, engine.ComputeBF16, engine.ComputeINT8, engine.ComputeF16, engine.ComputeFP8,
	} {
		if info.Supports(c) {
			out = append(out, c)
		}
	}
	return out
}

// computesFor returns the classes of dev that a golden model is served in.
func computesFor(t testing.TB, dev *engine.Device, name string) []engine.Compute {
	t.Helper()
	return slices.DeleteFunc(computes(t, dev), func(c engine.Compute) bool {
		return c == engine.ComputeF16 && (strings.Contains(name, "gemma") || strings.Contains(name, "t5"))
	})
}

// minilmDir returns the directory of the real all-MiniLM-L6-v2, which is not committed.
func minilmDir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("SIE_TEST_MINILM")
	if dir == "" {
		dir = "../../build/models/all-MiniLM-L6-v2"
	}
	if _, err := os.Stat(dir + "/config.json"); err != nil {
		const how = "the all-MiniLM-L6-v2 weights are missing: run `make minilm`, or set SIE_TEST_MINILM to their directory"
		if os.Getenv("SIE_REQUIRE_MINILM") == "1" {
			t.Fatal(how)
		}
		t.Skip(how)
	}
	return dir
}
