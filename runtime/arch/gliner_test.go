package arch

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

var glinerCases = []string{"gliner-bert-span", "gliner-bert-token", "gliner-bert-torch",
	"gliner-modernbert-span", "gliner-modernbert-token", "gliner-deberta-span",
	"gliner-deberta-marker", "gliner-bert-fused"}

// glinerText is one text of a golden case: what a batch brings for it, and where its rows are.
type glinerText struct {
	ids                      []int32
	words, markers           engine.Places
	firstToken, firstWord    int
	firstMarker, firstLogits int
}

// glinerTexts returns the texts of a case. width is that of spans, 0 for a token model.
func glinerTexts(c *golden.Case, width int) (texts []glinerText) {
	ids, first, last, markers := c.Int32("ids"), c.Int32("first"), c.Int32("last"), c.Int32("markers")
	cu, cuWords, cuMarkers := c.Int32("cu"), c.Int32("cu_words"), c.Int32("cu_markers")
	logits := 0
	for i := range len(cu) - 1 {
		w, wEnd, m, mEnd := cuWords[i], cuWords[i+1], cuMarkers[i], cuMarkers[i+1]
		texts = append(texts, glinerText{
			ids:     ids[cu[i]:cu[i+1]],
			words:   engine.Places{First: first[w:wEnd], Last: last[w:wEnd]},
			markers: engine.Places{First: markers[m:mEnd]},

			firstToken: int(cu[i]), firstWord: int(w), firstMarker: int(m), firstLogits: logits,
		})
		per := width
		if width == 0 {
			per = 3
		}
		logits += int(wEnd-w) * per * int(mEnd-m)
	}
	return texts
}

// glinerBatch packs texts.
func glinerBatch(texts ...glinerText) engine.Batch {
	b := engine.Batch{CuSeqlens: []int32{0}, Words: engine.Places{Cu: []int32{0}},
		Markers: engine.Places{Cu: []int32{0}}}
	for _, t := range texts {
		b.IDs = append(b.IDs, t.ids...)
		b.CuSeqlens = append(b.CuSeqlens, int32(len(b.IDs)))
		b.Words.First = append(b.Words.First, t.words.First...)
		b.Words.Last = append(b.Words.Last, t.words.Last...)
		b.Words.Cu = append(b.Words.Cu, int32(len(b.Words.First)))
		b.Markers.First = append(b.Markers.First, t.markers.First...)
		b.Markers.Cu = append(b.Markers.Cu, int32(len(b.Markers.First)))
	}
	return b
}

// TestGLiNERStates compares the states of tokens, words and labels with the package's.
func TestGLiNERStates(t *testing.T) {
	onEach(t, func(t *testing.T, dev *engine.Device, compute engine.Compute) {
		for _, name := range glinerCases {
			t.Run(name, func(t *testing.T) { checkGLiNERStates(t, dev, golden.Open(t, name), compute) })
		}
	})
}

func checkGLiNERStates(t *testing.T, dev *engine.Device, c *golden.Case, compute engine.Compute) {
	m, runner := load(t, dev, c.Dir, Options{Task: Spans, Compute: compute})
	texts := glinerTexts(c, 1)
	r := &recording{Recorder: dev.Record(m.caps), model: m, pass: pass{keep: engine.PoolMean}}
	if m.gliner.fuser != nil {
		r.pass.observe = func(_ int, x engine.Value) { r.states = append(r.states, r.precise(x)) }
	}
	r.x = m.encoder.forward(r.Recorder, r.pass)
	g := m.gliner
	words, labels := g.rows(r)
	for _, x := range []engine.Value{r.x, words, g.context(r, words), labels} {
		r.OutputValues(x)
	}
	program, err := r.End()
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	run := glinerBatch(texts...)
	run.Program = program
	outputs := []string{"states", "words", "context", "labels"}
	for i, name := range outputs {
		want, _ := c.Float32(name)
		run.OutBytes[i] = int64(4 * len(want))
	}
	if err := runner.Run(t.Context(), &run); err != nil {
		t.Fatal(err)
	}
	for i, name := range outputs {
		want, _ := c.Float32(name)
		compareValues(t, name, compute, floats(run.Out[i]), want)
	}
}

// compareValues compares states relative to the largest of the reference's.
func compareValues(t *testing.T, what string, compute engine.Compute, got, want []float32) {
	t.Helper()
	largest := 0.0
	for _, v := range want {
		largest = max(largest, math.Abs(float64(v)))
	}
	bound, cosine := 1e-5, 0.9999999
	if compute != engine.ComputeF32 {
		bound, cosine = 0.1, 0.998
	}
	if compute == engine.ComputeINT8 {
		cosine = 0.99 // gliner-bert-span: heads of 16 columns, 0.99774 on AVX2
	}
	if compute == engine.ComputeFP8 {
		bound, cosine = 0.4, 0.94 // the worst, relations of relex-gcn: 0.334 and 0.9517
	}
	if d := golden.Compare(got, want); d.MaxAbs > bound*largest || d.Cosine < cosine {
		t.Errorf("%s: %v of values to %.3g; bounds %.3g of it and %v", what, d, largest, bound, cosine)
	}
}

// found runs texts as one batch and returns all spans and pairs of each that are above the logit.
func found(
	t *testing.T, m *Model, r *engine.Runner, above float32, texts ...glinerText,
) (spans [][]engine.Span, pairs [][]engine.Pair) {
	t.Helper()
	run := glinerBatch(texts...)
	run.Program = m.Program()
	o := &run.Program.Outputs()[0]
	var rooms []int
	for _, text := range texts {
		room := len(text.words.First) * len(text.markers.First) * m.GLiNER.MaxWidth
		rooms = append(rooms, room)
		run.Items[0] = append(run.Items[0], engine.OutItem{DType: engine.F32, Dims: room, Threshold: above,
			Offset: run.OutBytes[0]})
		run.OutBytes[0] += engine.FoundBytes(o, room)
	}
	if err := r.Run(t.Context(), &run); err != nil {
		t.Fatal(err)
	}
	for i, room := range rooms {
		item := run.Out[0][run.Items[0][i].Offset:]
		if m.GLiNER.TokenLevel {
			_, of := engine.Pairs(o, item, room)
			pairs = append(pairs, of)
		} else {
			_, of := engine.Spans(item, room)
			spans = append(spans, of)
		}
	}
	return spans, pairs
}

// TestGLiNERLogits compares every logit of every span, or word and label, with the package's.
func TestGLiNERLogits(t *testing.T) {
	onEach(t, func(t *testing.T, dev *engine.Device, compute engine.Compute) {
		for _, name := range glinerCases {
			t.Run(name, func(t *testing.T) { checkGLiNERLogits(t, dev, golden.Open(t, name), compute) })
		}
	})
}

func checkGLiNERLogits(t *testing.T, dev *engine.Device, c *golden.Case, compute engine.Compute) {
	m, r := load(t, dev, c.Dir, Options{Task: Spans, Compute: compute})
	want, _ := c.Float32("logits")
	compareValues(t, "logits", compute, allLogits(t, m, r, c), want)
}

// allLogits returns the logits in the order of the golden data. Spans that end behind the last word
// have none in a batch; they get the golden ones.
func allLogits(t *testing.T, m *Model, r *engine.Runner, c *golden.Case) []float32 {
	t.Helper()
	width := m.GLiNER.MaxWidth
	if m.GLiNER.TokenLevel {
		width = 0
	}
	texts := glinerTexts(c, width)
	want, _ := c.Float32("logits")
	got := slices.Clone(want)
	spans, pairs := found(t, m, r, float32(math.Inf(-1)), texts...)
	for i, text := range texts {
		words, labels := len(text.words.First), len(text.markers.First)
		if m.GLiNER.TokenLevel {
			if len(pairs[i]) != words*labels {
				t.Fatalf("text %d: %d pairs of %d words and %d labels", i, len(pairs[i]), words, labels)
			}
			for _, p := range pairs[i] {
				copy(got[text.firstLogits+3*(int(p.Word)*labels+int(p.Label)):], p.Logits[:])
			}
			continue
		}
		all := 0
		for w := range words {
			all += min(width, words-w) * labels
		}
		if len(spans[i]) != all {
			t.Fatalf("text %d: %d spans; %d words and %d labels have %d",
				i, len(spans[i]), words, labels, all)
		}
		for _, s := range spans[i] {
			at := (int(s.First)*width+int(s.Last-s.First))*labels + int(s.Label)
			got[text.firstLogits+at] = s.Logit
		}
	}
	return got
}

// TestGLiNERAlone checks that a text's spans are the same bit for bit alone and in company.
func TestGLiNERAlone(t *testing.T) {
	onEach(t, func(t *testing.T, dev *engine.Device, compute engine.Compute) {
		for _, name := range glinerCases {
			checkGLiNERAlone(t, dev, golden.Open(t, name), compute)
		}
	})
}

func checkGLiNERAlone(t *testing.T, dev *engine.Device, c *golden.Case, compute engine.Compute) {
	t.Helper()
	m, r := load(t, dev, c.Dir, Options{Task: Spans, Compute: compute})
	texts := glinerTexts(c, m.GLiNER.MaxWidth)
	slices.Reverse(texts)
	spans, pairs := found(t, m, r, -0.25, texts...)
	for i, text := range texts {
		alone, alonePairs := found(t, m, r, -0.25, text)
		if m.GLiNER.TokenLevel && fmt.Sprint(alonePairs[0]) != fmt.Sprint(pairs[i]) ||
			!m.GLiNER.TokenLevel && fmt.Sprint(alone[0]) != fmt.Sprint(spans[i]) {
			t.Errorf("%s: text %d is found otherwise alone", c.Dir, i)
		}
	}
}
