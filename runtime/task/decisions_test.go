package task_test

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/spans"
)

// A decision says whether one label holds for one span, word or text: its logit is above the
// threshold's, or is not. Class bf16 may decide otherwise than f32 only close to the threshold.
//
// The golden models have random weights. Two thresholds are set by a model's own logits in f32. The
// median is the hardest: nowhere do more logits lie. The other has one decision in 100 above it, as
// trained models say yes to few of a text's spans. Scores are those behind a head whose bias is
// moved by the median, where the same error of a logit changes a score most.

// decisionForm is a form of models: a golden model, how its items are made, and the bounds.
type decisionForm struct {
	model, what string
	task        arch.Task
	make        func(rng *rand.Rand, m *arch.Model) decisionItem

	// At most: the percentage of decisions that differ at the median, and the difference that 99 of
	// 100 scores keep. Both are what gliner 0.2.29, gliclass 0.1.21 and transformers themselves
	// differ by in torch.bfloat16 on such items, rounded: random weights amplify each rounding.
	// tools/golden/decisions.py measures them.
	median, usual float64
}

var decisionForms = []decisionForm{
	{"gliner-bert-span", "spans", arch.Spans, randomWords, 0.78, 0.028},
	{"gliner-deberta-span", "spans", arch.Spans, randomWords, 0.82, 0.036},
	{"gliner-modernbert-span", "spans", arch.Spans, randomWords, 0.81, 0.033},
	{"gliner-bert-token", "words", arch.Spans, randomWords, 0.41, 0.011},
	{"gliner-modernbert-token", "words", arch.Spans, randomWords, 0.8, 0.043},
	{"gliclass-deberta", "classes", arch.GLiClass, randomLabelled, 1.05, 0.057},
	{"gliclass-dot", "classes", arch.GLiClass, randomLabelled, 0.62, 0.013},
	{"gliclass-mlp", "classes", arch.GLiClass, randomLabelled, 1.06, 0.0075},
	{"classify-deberta", "NLI", arch.Classify, randomPairs, 0.85, 0.007},
	{"classify-bert", "NLI", arch.Classify, randomPairs, 1, 0.0039},
}

const (
	decisionShare = 0.005 // of all decisions, that may differ where one in 100 is yes
	decisionScore = 0.02  // that scores of entities keep from the threshold, and two from each other
	fewDecisions  = 2     // that may differ besides, because 60 texts have few
	largestScore  = 5     // times the difference that 99 of 100 scores keep
	itemsAtOnce   = 20
)

// decisionItem is what a batch brings for one random item.
type decisionItem struct {
	batchOf engine.Batch // of this item alone
	labels  int
	words   int
}

// tokensOf returns n random tokens of a vocabulary whose first five and last three are special.
func tokensOf(rng *rand.Rand, m *arch.Model, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = 5 + rng.Int32N(int32(m.Vocab)-5-3)
	}
	return ids
}

// randomWords makes an item of 1 to 8 labels and 1 to 30 words, each of 1 to 3 tokens. Short items
// are the most: their entities keep a margin more often.
func randomWords(rng *rand.Rand, m *arch.Model) (it decisionItem) {
	it.labels, it.words = 1+rng.IntN(1+rng.IntN(8)), 1+rng.IntN(1+rng.IntN(30))
	b := &it.batchOf
	marker, sep := int32(m.Vocab)-2, int32(m.Vocab)-1
	b.IDs = []int32{2}
	for range it.labels {
		row := len(b.IDs)
		if !m.GLiNER.EmbedEnt {
			row++
		}
		b.Markers.First = append(b.Markers.First, int32(row))
		b.IDs = append(append(b.IDs, marker), tokensOf(rng, m, 1+rng.IntN(2))...)
	}
	b.IDs = append(b.IDs, sep)
	for range it.words {
		b.Words.First = append(b.Words.First, int32(len(b.IDs)))
		b.IDs = append(b.IDs, tokensOf(rng, m, 1+rng.IntN(3))...)
		b.Words.Last = append(b.Words.Last, int32(len(b.IDs))-1)
	}
	b.IDs = append(b.IDs, 3)
	return it
}

// randomLabelled makes an item of 1 to 8 labels and a text of 1 to 40 tokens.
func randomLabelled(rng *rand.Rand, m *arch.Model) (it decisionItem) {
	it.labels = 1 + rng.IntN(8)
	l := m.Labelled
	text := tokensOf(rng, m, 1+rng.IntN(40))
	ids := []int32{2}
	if !l.PromptFirst {
		ids = append(ids, text...)
	}
	for range it.labels {
		ids = append(append(ids, l.Label), tokensOf(rng, m, 1+rng.IntN(2))...)
	}
	ids = append(ids, l.Sep)
	if l.PromptFirst {
		ids = append(ids, text...)
	}
	ids = append(ids, 3)
	rows := l.Rows(ids)
	b := &it.batchOf
	b.IDs, b.TypeIDs = ids, rows.Segments
	b.Words.First, b.Words.Last, b.Markers.First = rows.First, rows.Last, rows.Text
	return it
}

// randomPairs makes an item of a text of 1 to 40 tokens and a hypothesis of 1 to 6.
func randomPairs(rng *rand.Rand, m *arch.Model) (it decisionItem) {
	it.labels = 1
	b := &it.batchOf
	b.IDs = append([]int32{2}, tokensOf(rng, m, 1+rng.IntN(40))...)
	b.IDs = append(b.IDs, 3)
	first := len(b.IDs)
	b.IDs = append(append(b.IDs, tokensOf(rng, m, 1+rng.IntN(6))...), 3)
	b.TypeIDs = make([]int32, len(b.IDs))
	for i := first; i < len(b.IDs) && m.TypeVocab > 1; i++ {
		b.TypeIDs[i] = 1
	}
	return it
}

// decided is what a class says of one item.
type decided struct {
	logits     []float32         // of each decision
	candidates []spans.Candidate // of a span model
	pairs      []spans.Pair      // of a token model
}

// entities decodes an item as a request with this threshold.
func (d decided) entities(t *testing.T, words int, threshold float64) []spans.Span {
	t.Helper()
	how := spans.Decoding{Threshold: threshold, FlatNER: true}
	if d.pairs == nil {
		return spans.DecodeSpans(d.candidates, words, how)
	}
	found, err := spans.DecodePairs(d.pairs, words, how)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// decider is a loaded model in one class.
type decider struct {
	form   decisionForm
	model  *arch.Model
	runner *engine.Runner
}

func newDecider(t *testing.T, form decisionForm, dev *engine.Device, compute engine.Compute) *decider {
	t.Helper()
	m, err := arch.Load(golden.Open(t, form.model).Dir, dev, arch.Options{Task: form.task, Compute: compute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	if m.Compute != compute {
		t.Fatalf("%s: class %v in place of %v", form.model, m.Compute, compute)
	}
	r := engine.NewRunner(dev)
	t.Cleanup(r.Close)
	return &decider{form, m, r}
}

// decide runs items as one batch and returns every logit of each.
func (d *decider) decide(t *testing.T, items []decisionItem) []decided {
	t.Helper()
	run := packItems(items)
	run.Program = d.model.Program()
	o := &run.Program.Outputs()[0]
	var rooms []int
	for _, it := range items {
		room := it.labels
		switch d.form.task {
		case arch.Spans:
			room = it.words * it.labels * d.model.GLiNER.MaxWidth
			run.Items[0] = append(run.Items[0], engine.OutItem{DType: engine.F32, Dims: room,
				Threshold: float32(math.Inf(-1)), Offset: run.OutBytes[0]})
			run.OutBytes[0] += engine.FoundBytes(o, room)
		case arch.Classify:
			room = len(d.model.Labels)
			fallthrough
		default:
			run.OutBytes[0] += int64(4 * room)
		}
		rooms = append(rooms, room)
	}
	if err := d.runner.Run(t.Context(), &run); err != nil {
		t.Fatal(err)
	}
	all := make([]decided, len(items))
	if d.form.task != arch.Spans {
		logits := floats(run.Out[0])
		for i, room := range rooms {
			of := logits[:room]
			if d.form.task == arch.Classify { // the last class is taken for entailment here
				of = []float32{of[room-1] - of[0]}
			}
			all[i].logits, logits = of, logits[room:]
		}
		return all
	}
	for i, room := range rooms {
		item := run.Out[0][run.Items[0][i].Offset:]
		if d.model.GLiNER.TokenLevel {
			count, list := engine.Pairs(o, item, room)
			if count != items[i].words*items[i].labels {
				t.Fatalf("%s: %d pairs of %d words and %d labels", d.form.model, count, items[i].words,
					items[i].labels)
			}
			for _, p := range list {
				all[i].pairs = append(all[i].pairs, spans.Pair{Word: p.Word, Label: p.Label,
					Start: p.Logits[0], End: p.Logits[1], Inside: p.Logits[2]})
				all[i].logits = append(all[i].logits, p.Logits[:]...)
			}
			continue
		}
		_, list := engine.Spans(item, room)
		for _, s := range list {
			all[i].candidates = append(all[i].candidates,
				spans.Candidate{Start: s.First, Width: s.Last - s.First, Label: s.Label, Logit: s.Logit})
			all[i].logits = append(all[i].logits, s.Logit)
		}
	}
	return all
}

// packItems joins items to one batch.
func packItems(items []decisionItem) (b engine.Batch) {
	b.CuSeqlens, b.Words.Cu, b.Markers.Cu = []int32{0}, []int32{0}, []int32{0}
	for _, it := range items {
		of := it.batchOf
		b.IDs, b.TypeIDs = append(b.IDs, of.IDs...), append(b.TypeIDs, of.TypeIDs...)
		b.CuSeqlens = append(b.CuSeqlens, int32(len(b.IDs)))
		b.Words.First = append(b.Words.First, of.Words.First...)
		b.Words.Last = append(b.Words.Last, of.Words.Last...)
		b.Words.Cu = append(b.Words.Cu, int32(len(b.Words.First)))
		b.Markers.First = append(b.Markers.First, of.Markers.First...)
		b.Markers.Cu = append(b.Markers.Cu, int32(len(b.Markers.First)))
	}
	if len(b.Words.First) == 0 {
		b.Words.Cu = nil
	}
	if len(b.Markers.First) == 0 {
		b.Markers.Cu = nil
	}
	return b
}

// withMargin returns a threshold for entities that no score is within `margin` of, such that no two
// different scores above it are within twice the margin of each other: the lowest of those. ok is
// false where there is none.
func withMargin(logits []float32, margin float64) (threshold float64, ok bool) {
	s := make([]float64, len(logits))
	for i, z := range logits {
		s[i] = float64(spans.Score(z))
	}
	slices.Sort(s)
	s = slices.Compact(s)
	for i := len(s) - 1; i > 0 && s[i]-s[i-1] > 2*margin; i-- {
		threshold, ok = (s[i]+s[i-1])/2, true
	}
	return threshold, ok
}

// compareEntities compares what two classes find in an item where its scores keep a margin of 0.02,
// or of their own largest difference where that is more. It returns how many entities there are, or
// -1 where they keep none.
func compareEntities(t *testing.T, form decisionForm, words int, want, got decided) int {
	t.Helper()
	margin := decisionScore
	for i, z := range want.logits {
		margin = max(margin, math.Abs(float64(spans.Score(z)-spans.Score(got.logits[i]))))
	}
	threshold, ok := withMargin(want.logits, margin)
	if !ok {
		return -1
	}
	a, b := want.entities(t, words, threshold), got.entities(t, words, threshold)
	if !slices.EqualFunc(a, b, func(a, b spans.Span) bool {
		return a.Start == b.Start && a.End == b.End && a.Label == b.Label &&
			math.Abs(float64(a.Score-b.Score)) <= margin
	}) {
		t.Errorf("%s: threshold %v:\n f32 %v\nbf16 %v", form.model, threshold, a, b)
	}
	return len(a)
}

// decisionItems returns how many random items a model is asked about: 60, or what SIE_DECISIONS
// says.
func decisionItems(t *testing.T) int {
	t.Helper()
	text := os.Getenv("SIE_DECISIONS")
	if text == "" {
		return 60
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("SIE_DECISIONS is %q; a number of items from 1 on is wanted", text)
	}
	return n
}

// checkDecisions compares class bf16 of a device with f32 on the CPU, and logs a row of a table for
// each form of models; with a number in SIE_TEST_TURN for every second one.
func checkDecisions(t *testing.T, dev *engine.Device) {
	cpu := openDevice(t, engine.Options{})
	t.Log("| model | decisions of | items | decisions | differ at the median | where 1 in 100 is yes" +
		" | scores differ by, 99 % | at most | items with entities compared | entities |")
	mine := testrig.Part(t, 2)
	for i, form := range decisionForms {
		if mine(i) {
			t.Run(form.model, func(t *testing.T) { checkForm(t, form, uint64(i), cpu, dev) })
		}
	}
}

// checkForm compares one form of models on random items of a seed.
func checkForm(t *testing.T, form decisionForm, seed uint64, cpu, dev *engine.Device) {
	t.Helper()
	exact := newDecider(t, form, cpu, engine.ComputeF32)
	rough := newDecider(t, form, dev, engine.ComputeBF16)
	rng := rand.New(rand.NewPCG(22, seed))
	var want, got []float32
	n, compared, entities := decisionItems(t), 0, 0
	for left := n; left > 0; left -= itemsAtOnce {
		items := make([]decisionItem, min(left, itemsAtOnce))
		for k := range items {
			items[k] = form.make(rng, exact.model)
		}
		a, b := exact.decide(t, items), rough.decide(t, items)
		for k, it := range items {
			want, got = append(want, a[k].logits...), append(got, b[k].logits...)
			if len(got) != len(want) {
				t.Fatalf("%s: %d decisions, %d in f32", form.model, len(b[k].logits), len(a[k].logits))
			}
			if form.task != arch.Spans {
				continue
			}
			if found := compareEntities(t, form, it.words, a[k], b[k]); found >= 0 {
				compared, entities = compared+1, entities+found
			}
		}
	}
	d := compareDecisions(want, got)
	t.Logf("| %s | %s | %d | %d | %d, %.3f %% | %d, %.3f %% | %.4f | %.4f | %d | %d |", form.model,
		form.what, n, d.all, d.median, d.percent(d.median), d.rare, d.percent(d.rare), d.usual,
		d.largest, compared, entities)
	if median := form.median / 100 * float64(d.all); float64(d.median) > median+fewDecisions ||
		float64(d.rare) > decisionShare*float64(d.all)+fewDecisions {
		t.Errorf("%s: more than %v %% of decisions differ at the median, or than %v %% where few are yes",
			form.model, form.median, 100*decisionShare)
	}
	if d.usual > form.usual || d.largest > largestScore*form.usual {
		t.Errorf("%s: 99 %% of scores differ by %.4f, the last by %.4f; bounds %v and %v times as much",
			form.model, d.usual, d.largest, form.usual, largestScore)
	}
	if form.task == arch.Spans && compared == 0 {
		t.Errorf("%s: entities of none of %d items are compared", form.model, n)
	}
}

// compared is what two classes say of the same decisions.
type compared struct {
	all, median, rare int     // decisions; those that differ at the median, and where one in 100 is yes
	usual, largest    float64 // differences of scores: that 99 of 100 keep, and the largest
}

func (c compared) percent(n int) float64 { return 100 * float64(n) / float64(c.all) }

func compareDecisions(want, got []float32) (c compared) {
	c.all = len(want)
	sorted := slices.Sorted(slices.Values(want))
	median, rare := sorted[c.all/2], sorted[c.all*99/100]
	scores := make([]float64, c.all)
	for i, w := range want {
		g := got[i]
		if (w >= median) != (g >= median) {
			c.median++
		}
		if (w >= rare) != (g >= rare) {
			c.rare++
		}
		scores[i] = math.Abs(float64(spans.Score(w-median) - spans.Score(g-median)))
	}
	slices.Sort(scores)
	c.usual, c.largest = scores[c.all*99/100], scores[c.all-1]
	return c
}

func openDevice(t *testing.T, o engine.Options) *engine.Device {
	t.Helper()
	dev, err := engine.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dev.Close)
	return dev
}

// On each instruction set of this machine that has bf16. Where none has, TestGPUDecisions alone
// shows what it costs.
func TestDecisionsInBF16(t *testing.T) {
	for _, isa := range engine.ISAs() {
		dev := openDevice(t, engine.Options{Kind: engine.CPU, ISA: isa})
		info, err := dev.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.ISA == isa && info.Supports(engine.ComputeBF16) {
			t.Run(isa.String(), func(t *testing.T) { checkDecisions(t, dev) })
		}
	}
}
