package arch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// judgeModels are decoders with and without biases and norms of heads, with texts of up to 1,024
// tokens.
var judgeModels = []string{"judge-qwen3", "judge-mxbai"}

// prefixedBatch is a batch of texts behind prefixes, -1 for none, and its prefixes. Each prefix has
// an adapter, -1 for none, which is also that of its texts.
type prefixedBatch struct {
	prefixes, texts [][]int32
	adapters, of    []int32
}

// randomIDs returns n ids of a vocabulary.
func randomIDs(rng *rand.Rand, n, vocab int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = rng.Int32N(int32(vocab))
	}
	return ids
}

// straddling returns texts of ragged lengths behind prefixes of ragged lengths; together they have
// 511, 512, 513 tokens and more, and as many as the model takes.
func straddling(rng *rand.Rand, vocab int, adapters int32) (b prefixedBatch) {
	for i, n := range []int{1, 2, 60, 256, 200, 500} {
		b.prefixes = append(b.prefixes, randomIDs(rng, n, vocab))
		b.adapters = append(b.adapters, int32(i)%(adapters+1)-1)
	}
	add := func(of int, lengths ...int) {
		for _, n := range lengths {
			b.texts = append(b.texts, randomIDs(rng, n, vocab))
			b.of = append(b.of, int32(of))
		}
	}
	add(-1, 1, 128, 600)
	add(0, 1, 510, 511, 512)
	add(1, 3, 127)
	add(2, 1, 2, 127, 128, 129, 964)
	add(3, 1, 128, 255, 256, 257, 300)
	add(4, 1, 128, 311, 312, 313)
	add(5, 1, 11, 12, 13, 14, 524)
	return b
}

// adapter returns the adapter of text i.
func (b *prefixedBatch) adapter(i int) int32 {
	if b.of[i] < 0 {
		return -1
	}
	return b.adapters[b.of[i]]
}

// whole returns the batch of the texts with their prefixes as their own tokens.
func (b *prefixedBatch) whole(p *engine.Program) *engine.Batch {
	run := &engine.Batch{Program: p, CuSeqlens: []int32{0}}
	for i, text := range b.texts {
		if of := b.of[i]; of >= 0 {
			run.IDs = append(run.IDs, b.prefixes[of]...)
		}
		run.IDs = append(run.IDs, text...)
		run.CuSeqlens = append(run.CuSeqlens, int32(len(run.IDs)))
		run.Adapter = append(run.Adapter, b.adapter(i))
	}
	return run
}

// shared returns the batch of the texts behind their prefixes, which p computes.
func (b *prefixedBatch) shared(program, p *engine.Program) *engine.Batch {
	run := &engine.Batch{Program: program, CuSeqlens: []int32{0},
		Prefix: &engine.Batch{Program: p, CuSeqlens: []int32{0}, Adapter: b.adapters}}
	for _, ids := range b.prefixes {
		run.Prefix.IDs = append(run.Prefix.IDs, ids...)
		run.Prefix.CuSeqlens = append(run.Prefix.CuSeqlens, int32(len(run.Prefix.IDs)))
	}
	for i, text := range b.texts {
		first, rows := int32(0), int32(0)
		if of := b.of[i]; of >= 0 {
			first, rows = run.Prefix.CuSeqlens[of], int32(len(b.prefixes[of]))
		}
		run.PrefixFirst, run.PrefixRows = append(run.PrefixFirst, first), append(run.PrefixRows, rows)
		run.IDs = append(run.IDs, text...)
		run.CuSeqlens = append(run.CuSeqlens, int32(len(run.IDs)))
		run.Adapter = append(run.Adapter, b.adapter(i))
	}
	return run
}

// answers runs a batch of a judge and returns its logits.
func answers(t testing.TB, m *Model, r *engine.Runner, run *engine.Batch) []float32 {
	t.Helper()
	run.OutBytes[0] = int64(4 * len(m.Answers) * (len(run.CuSeqlens) - 1))
	if err := r.Run(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(floats(run.Out[0]))
}

// randomAdapter returns an adapter that changes every linear of the model.
func randomAdapter(t testing.TB, m *Model, rng *rand.Rand) *Adapter {
	t.Helper()
	const rank = 4
	dtype, err := adapterType(m.device, m.Compute)
	if err != nil {
		t.Fatal(err)
	}
	a := &Adapter{Rank: rank, pairs: map[*engine.Weight]engine.LoRA{}, owner: &packer{dev: m.device}}
	random := func(n int64) []byte {
		values := make([]float32, n)
		for i := range values {
			values[i] = 0.3 * (2*rng.Float32() - 1)
		}
		return encoded(values, dtype)
	}
	for _, l := range m.encoder.linears() {
		n := l.n
		for _, rows := range l.rows {
			n += rows
		}
		if l.gated != nil {
			n *= 2
		}
		a.pairs[l.weight] = engine.LoRA{A: a.owner.data(l.k, dtype, random(rank*l.k)),
			B: a.owner.data(rank, dtype, random(n*rank))}
	}
	if a.owner.err != nil {
		t.Fatal(a.owner.err)
	}
	t.Cleanup(a.Close)
	return a
}

func judgeOf(t testing.TB, dev *engine.Device, name string, o Options) (*Model, *engine.Runner) {
	t.Helper()
	o.Task, o.Answers = Judge, []int32{5, 9}
	return load(t, dev, golden.Open(t, name).Dir, o)
}

// Texts behind prefixes that a batch computes once have the bits that they have with the prefixes
// as their own tokens, and those of a model that shares nothing: in one batch, alone, in any order,
// and with adapters.
func TestSharedPrefixes(t *testing.T) {
	for _, o := range isas { // the reference kernels, which are slow, have a test in csrc
		dev := open(t, o)
		for _, compute := range computes(t, dev) {
			t.Run(fmt.Sprintf("isa=%s/%s", o.ISA, compute),
				func(t *testing.T) { checkSharedPrefixes(t, dev, compute) })
		}
	}
}

func checkSharedPrefixes(t *testing.T, dev *engine.Device, compute engine.Compute) {
	for _, name := range judgeModels {
		rng := rand.New(rand.NewPCG(1, 2))
		m, r := judgeOf(t, dev, name, Options{Compute: compute})
		alone, r2 := judgeOf(t, dev, name, Options{Compute: compute, NoPrefixes: true})
		if !m.SharesPrefixes(m.Own()) || alone.SharesPrefixes(alone.Own()) {
			t.Fatalf("%s: prefixes are shared: %v, and without them %v", name, m.SharesPrefixes(m.Own()),
				alone.SharesPrefixes(alone.Own()))
		}
		adapters := []*Adapter{randomAdapter(t, m, rng), randomAdapter(t, m, rng)}
		for _, with := range [][]*Adapter{nil, adapters} {
			program, err := m.RecordAdapted(m.Own(), with)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(program.Close)
			prefixes, err := m.RecordPrefixes(with)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(prefixes.Close)
			b := straddling(rng, m.Vocab, int32(len(with)))
			want := answers(t, m, r, b.whole(program))
			if with == nil && !sameFloats(want, answers(t, alone, r2, b.whole(alone.Program()))) {
				t.Errorf("%s: the program of a model that shares nothing gives other bits", name)
			}
			if with != nil && sameFloats(want, answers(t, m, r, b.whole(m.Program()))) {
				t.Errorf("%s: the adapters change nothing", name)
			}
			if !sameFloats(want, answers(t, m, r, b.shared(program, prefixes))) {
				t.Errorf("%s, %d adapters: shared prefixes change bits", name, len(with))
			}
			checkOneByOne(t, m, r, b, want, program, prefixes)
		}
	}
}

// checkOneByOne runs some texts alone and all in a random order with the prefixes in another one.
func checkOneByOne(
	t *testing.T, m *Model, r *engine.Runner, b prefixedBatch, want []float32,
	program, prefixes *engine.Program,
) {
	t.Helper()
	n := len(m.Answers)
	for i := 3; i < len(b.texts); i += 7 {
		one := prefixedBatch{prefixes: [][]int32{b.prefixes[b.of[i]]}, texts: [][]int32{b.texts[i]},
			adapters: []int32{b.adapter(i)}, of: []int32{0}}
		if !sameFloats(want[i*n:(i+1)*n], answers(t, m, r, one.shared(program, prefixes))) {
			t.Errorf("text %d alone has other bits", i)
		}
	}
	rng := rand.New(rand.NewPCG(3, 4))
	order, places := rng.Perm(len(b.texts)), rng.Perm(len(b.prefixes))
	mixed := prefixedBatch{
		prefixes: make([][]int32, len(b.prefixes)), adapters: make([]int32, len(b.prefixes)),
	}
	for i, to := range places {
		mixed.prefixes[to], mixed.adapters[to] = b.prefixes[i], b.adapters[i]
	}
	for _, i := range order {
		of := b.of[i]
		if of >= 0 {
			of = int32(places[of])
		}
		mixed.texts, mixed.of = append(mixed.texts, b.texts[i]), append(mixed.of, of)
	}
	got := answers(t, m, r, mixed.shared(program, prefixes))
	for to, i := range order {
		if !sameFloats(want[i*n:(i+1)*n], got[to*n:(to+1)*n]) {
			t.Errorf("text %d has other bits in another order", i)
		}
	}
}

func sameFloats(a, b []float32) bool { return sameBits(a, b) == nil }

// countLines counts the operations of a program's listing by their names.
func countLines(listing string) map[string]int {
	counts := make(map[string]int)
	for line := range strings.Lines(listing) {
		if f := strings.Fields(line); len(f) > 1 {
			counts[f[1]]++
		}
	}
	return counts
}

// The program of prefixes computes no attention and no MLP in the last block, and models without a
// causal mask share nothing.
func TestPrefixProgram(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	m, _ := judgeOf(t, dev, "judge-qwen3", Options{Compute: engine.ComputeF32})
	p, err := m.RecordPrefixes(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	whole, prefix := countLines(m.Program().Describe()), countLines(p.Describe())
	for op, want := range map[string]int{"attention": m.Layers - 1, "state_rows": m.Layers,
		"linear": 4*m.Layers - 3, "qk_norm_rope": m.Layers} {
		if prefix[op] != want {
			t.Errorf("the program of prefixes has %d operations %s, want %d\n%s",
				prefix[op], op, want, p.Describe())
		}
	}
	if whole["attention"] != m.Layers || whole["state_rows"] != 0 {
		t.Errorf("the program of texts:\n%s", m.Program().Describe())
	}
	if p.StateBytes() == 0 || p.StateBytes() != m.Program().StateBytes() {
		t.Errorf("states of %d and %d bytes", p.StateBytes(), m.Program().StateBytes())
	}
	embedder, _ := load(t, dev, golden.Open(t, "qwen3-both-ways").Dir,
		Options{Task: Embed, Compute: engine.ComputeF32})
	for _, want := range []Want{embedder.Own(), {Give: Give(OutAnswers)}} {
		if embedder.SharesPrefixes(want) {
			t.Errorf("a model with a full mask shares prefixes for %v", want)
		}
	}
}
