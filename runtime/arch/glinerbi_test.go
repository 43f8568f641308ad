package arch

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

var glinerBiCases = []string{"gliner-bi-modernbert-span", "gliner-bi-deberta-token"}

// biText is one text of a golden case: its tokens and words, and its labels among all of the case.
type biText struct {
	glinerText
	firstLabel, labels int
}

func biTexts(c *golden.Case, width int) (texts []biText) {
	ids, first, last := c.Int32("ids"), c.Int32("first"), c.Int32("last")
	cu, cuWords, cuLabels := c.Int32("cu"), c.Int32("cu_words"), c.Int32("cu_labels")
	logits := 0
	for i := range len(cu) - 1 {
		w, wEnd := cuWords[i], cuWords[i+1]
		n := int(cuLabels[i+1] - cuLabels[i])
		texts = append(texts, biText{
			glinerText: glinerText{ids: ids[cu[i]:cu[i+1]],
				words: engine.Places{First: first[w:wEnd], Last: last[w:wEnd]}, firstLogits: logits},
			firstLabel: int(cuLabels[i]), labels: n,
		})
		per := width
		if width == 0 {
			per = 3
		}
		logits += int(wEnd-w) * per * n
	}
	return texts
}

// labelBatch packs labels of a case, by their numbers.
func labelBatch(c *golden.Case, labels []int) engine.Batch {
	ids, cu := c.Int32("label_ids"), c.Int32("cu_label_ids")
	b := engine.Batch{CuSeqlens: []int32{0}}
	for _, n := range labels {
		b.IDs = append(b.IDs, ids[cu[n]:cu[n+1]]...)
		b.CuSeqlens = append(b.CuSeqlens, int32(len(b.IDs)))
	}
	return b
}

// upTo returns 0 to n-1.
func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// labelRows runs labels through the label tower as one batch, and returns the row of each.
func labelRows(t *testing.T, m *Model, r *engine.Runner, c *golden.Case, labels []int) [][]float32 {
	t.Helper()
	program, err := m.Record(Want{Give: Give(OutLabelRow)})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	run := labelBatch(c, labels)
	run.Program = program
	row := m.GLiNER.Tower.Row
	for range labels {
		run.Items[0] = append(run.Items[0], engine.OutItem{DType: engine.F32, Offset: run.OutBytes[0]})
		run.OutBytes[0] += int64(4*row+15) &^ 15
	}
	if err := r.Run(t.Context(), &run); err != nil {
		t.Fatal(err)
	}
	rows := make([][]float32, len(labels))
	for i := range rows {
		rows[i] = floats(run.Out[0][run.Items[0][i].Offset:][:4*row])
	}
	return rows
}

// foundWith runs texts as one batch. rows has the rows of all labels of the case; a text's labels
// are turned round if reversed, and texts that have the same ones share them.
func foundWith(
	t *testing.T, m *Model, r *engine.Runner, rows [][]float32, above float32, reversed bool, texts ...biText,
) (spans [][]engine.Span, pairs [][]engine.Pair) {
	t.Helper()
	var plain []glinerText
	for _, text := range texts {
		plain = append(plain, text.glinerText)
	}
	run := glinerBatch(plain...)
	run.Program, run.Markers, run.CuQueries = m.Program(), engine.Places{}, []int32{0}
	o := &run.Program.Outputs()[0]
	of := map[int]int32{}
	var rooms []int
	for _, text := range texts {
		at, known := of[text.firstLabel]
		if !known {
			at = int32(len(run.CuQueries) - 1)
			of[text.firstLabel] = at
			list := slices.Clone(rows[text.firstLabel:][:text.labels])
			if reversed {
				slices.Reverse(list)
			}
			run.Queries = append(run.Queries, slices.Concat(list...)...)
			run.CuQueries = append(run.CuQueries, run.CuQueries[at]+int32(text.labels))
		}
		run.Partner = append(run.Partner, at)
		room := max(1, len(text.words.First)*text.labels*m.GLiNER.MaxWidth)
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

// TestGLiNERBiStates compares the states of both encoders, the words and the labels' vectors with
// the package's.
func TestGLiNERBiStates(t *testing.T) {
	onEach(t, func(t *testing.T, dev *engine.Device, compute engine.Compute) {
		for _, name := range glinerBiCases {
			t.Run(name, func(t *testing.T) { checkGLiNERBiStates(t, dev, golden.Open(t, name), compute) })
		}
	})
}

func checkGLiNERBiStates(t *testing.T, dev *engine.Device, c *golden.Case, compute engine.Compute) {
	m, runner := load(t, dev, c.Dir, Options{Task: Spans, Compute: compute})
	g := m.gliner
	record := func(e encoder, values func(r *recording) []engine.Value) *engine.Program {
		r := &recording{Recorder: dev.Record(m.caps), model: m, pass: pass{keep: engine.PoolMean}}
		r.x = e.forward(r.Recorder, r.pass)
		for _, x := range values(r) {
			r.OutputValues(x)
		}
		program, err := r.End()
		if err != nil {
			t.Fatal(err)
		}
		return program
	}
	compare := func(run engine.Batch, outputs ...string) {
		t.Helper()
		defer run.Program.Close()
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
	var plain []glinerText
	for _, text := range biTexts(c, 1) {
		plain = append(plain, text.glinerText)
	}
	texts := glinerBatch(plain...)
	texts.Markers = engine.Places{}
	texts.Program = record(m.encoder, func(r *recording) []engine.Value {
		return []engine.Value{r.x, g.words(r, g.tokens(r))}
	})
	compare(texts, "states", "words")
	labels := labelBatch(c, upTo(len(c.Int32("cu_label_ids"))-1))
	labels.Program = record(g.tower.encoder, func(r *recording) []engine.Value {
		return []engine.Value{r.x, g.labelVector(r)}
	})
	compare(labels, "label_states", "labels")
}

// TestGLiNERBiLogits compares every logit with the package's.
func TestGLiNERBiLogits(t *testing.T) {
	onEach(t, func(t *testing.T, dev *engine.Device, compute engine.Compute) {
		for _, name := range glinerBiCases {
			t.Run(name, func(t *testing.T) {
				c := golden.Open(t, name)
				m, r := load(t, dev, c.Dir, Options{Task: Spans, Compute: compute})
				want, _ := c.Float32("logits")
				compareValues(t, "logits", compute, biLogits(t, m, r, c), want)
			})
		}
	})
}

// biLogits returns the logits in the order of the golden data. Spans that end behind the last word
// have none in a batch; they get the golden ones.
func biLogits(t *testing.T, m *Model, r *engine.Runner, c *golden.Case) []float32 {
	t.Helper()
	width := m.GLiNER.MaxWidth
	if m.GLiNER.TokenLevel {
		width = 0
	}
	texts := biTexts(c, width)
	rows := labelRows(t, m, r, c, upTo(len(c.Int32("cu_label_ids"))-1))
	want, _ := c.Float32("logits")
	got := slices.Clone(want)
	spans, pairs := foundWith(t, m, r, rows, float32(math.Inf(-1)), false, texts...)
	for i, text := range texts {
		words, all := len(text.words.First), 0
		if m.GLiNER.TokenLevel {
			for _, p := range pairs[i] {
				copy(got[text.firstLogits+3*(int(p.Word)*text.labels+int(p.Label)):], p.Logits[:])
			}
			if len(pairs[i]) != words*text.labels {
				t.Fatalf("text %d: %d pairs of %d words and %d labels", i, len(pairs[i]), words, text.labels)
			}
			continue
		}
		for w := range words {
			all += min(width, words-w) * text.labels
		}
		if len(spans[i]) != all {
			t.Fatalf("text %d: %d spans; %d words and %d labels have %d",
				i, len(spans[i]), words, text.labels, all)
		}
		for _, s := range spans[i] {
			at := (int(s.First)*width+int(s.Last-s.First))*text.labels + int(s.Label)
			got[text.firstLogits+at] = s.Logit
		}
	}
	return got
}

// TestGLiNERBiAlone checks that a label's row is the same bit for bit alone and with others, and
// what is found in a text alone, in company, and with its labels in another order.
func TestGLiNERBiAlone(t *testing.T) {
	onEach(t, func(t *testing.T, dev *engine.Device, compute engine.Compute) {
		for _, name := range glinerBiCases {
			checkGLiNERBiAlone(t, dev, golden.Open(t, name), compute)
		}
	})
}

func checkGLiNERBiAlone(t *testing.T, dev *engine.Device, c *golden.Case, compute engine.Compute) {
	t.Helper()
	m, r := load(t, dev, c.Dir, Options{Task: Spans, Compute: compute})
	n := len(c.Int32("cu_label_ids")) - 1
	rows := labelRows(t, m, r, c, upTo(n))
	for i, row := range labelRows(t, m, r, c, []int{n - 1, 2, 0}) {
		if at := []int{n - 1, 2, 0}[i]; !slices.Equal(row, rows[at]) {
			t.Errorf("%s: label %d has another row with others", c.Dir, at)
		}
	}
	if !slices.Equal(labelRows(t, m, r, c, []int{1})[0], rows[1]) {
		t.Errorf("%s: label 1 has another row alone", c.Dir)
	}
	texts := biTexts(c, m.GLiNER.MaxWidth)
	company := append(slices.Clone(texts), texts[1], texts[0])
	spans, pairs := foundWith(t, m, r, rows, -0.25, false, company...)
	back, backPairs := foundWith(t, m, r, rows, -0.25, true, company...)
	count := 0
	for i, text := range texts {
		alone, alonePairs := foundWith(t, m, r, rows, -0.25, false, text)
		if m.GLiNER.TokenLevel {
			alone, spans = spansOf(alonePairs), spansOf(pairs)
			back = spansOf(backPairs)
		}
		if fmt.Sprint(alone[0]) != fmt.Sprint(spans[i]) {
			t.Errorf("%s: text %d is found otherwise alone", c.Dir, i)
		}
		for j := range back[i] {
			back[i][j].Label = int32(text.labels) - 1 - back[i][j].Label
		}
		slices.SortFunc(back[i], bySpan)
		slices.SortFunc(alone[0], bySpan)
		if fmt.Sprint(alone[0]) != fmt.Sprint(back[i]) {
			t.Errorf("%s: text %d is found otherwise with its labels in another order", c.Dir, i)
		}
		count += len(alone[0])
	}
	if count == 0 {
		t.Errorf("%s: nothing is found", c.Dir)
	}
}

// spansOf makes spans of pairs, one of each logit.
func spansOf(pairs [][]engine.Pair) [][]engine.Span {
	out := make([][]engine.Span, len(pairs))
	for i := range pairs {
		for _, p := range pairs[i] {
			for k, logit := range p.Logits {
				out[i] = append(out[i],
					engine.Span{First: p.Word, Last: int32(k), Label: p.Label, Logit: logit})
			}
		}
	}
	return out
}

func bySpan(a, b engine.Span) int {
	return slices.Compare([]int32{a.First, a.Last, a.Label}, []int32{b.First, b.Last, b.Label})
}

// copyBi copies a case's model to a folder that may be changed.
func copyBi(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(golden.Open(t, name).Dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The checkpoint has weights of an LSTM, which the package does not run: with others, no bit
// changes.
func TestGLiNERBiRunsNoLSTM(t *testing.T) {
	const name = "gliner-bi-modernbert-span"
	c, dir := golden.Open(t, name), copyBi(t, name)
	file := filepath.Join(dir, "model.safetensors")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	n := binary.LittleEndian.Uint64(data)
	var header map[string]struct {
		Offsets [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(data[8:8+n], &header); err != nil {
		t.Fatal(err)
	}
	changed := 0
	for tensor, at := range header {
		if strings.HasPrefix(tensor, "rnn.") {
			for i := 8 + int(n) + at.Offsets[0]; i < 8+int(n)+at.Offsets[1]; i += 4 {
				binary.LittleEndian.PutUint32(data[i:], math.Float32bits(float32(i%7)))
				changed++
			}
		}
	}
	if changed == 0 {
		t.Fatal("the checkpoint has no LSTM")
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	dev := open(t, engine.Options{})
	m, r := load(t, dev, c.Dir, Options{Task: Spans, Compute: engine.ComputeF32})
	other, otherRunner := load(t, dev, dir, Options{Task: Spans, Compute: engine.ComputeF32})
	if !slices.Equal(biLogits(t, m, r, c), biLogits(t, other, otherRunner, c)) {
		t.Error("other weights of the LSTM change the logits")
	}
}

// What a bi-encoder's configuration may not say is refused by file and key.
func TestGLiNERBiRefuses(t *testing.T) {
	const tower = "labels_encoder_config"
	type object = map[string]any
	noSizes := object{"model_type": bertType}
	ofNoType := object{"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 1,
		"intermediate_size": 24, "vocab_size": 260, "max_position_embeddings": 64}
	larger := object{"model_type": bertType, "hidden_size": 24, "num_hidden_layers": 3,
		"num_attention_heads": 1, "intermediate_size": 24, "vocab_size": 260, "max_position_embeddings": 64}
	for what, c := range map[string]struct {
		change object
		want   string
	}{
		"a fuser of words and labels": {object{"post_fusion_schema": "l2l-l2t"}, "post_fusion_schema"},
		"an unknown tower":            {object{tower: nil}, "labels_encoder: is \"sie/labels\""},
		"a tower of another kind":     {object{tower: 7}, tower},
		"a tower of no known type":    {object{tower: object{"model_type": "gpt2"}}, tower + ".model_type"},
		"a tower without sizes":       {object{tower: noSizes}, tower + ".hidden_size"},
		"a tower of no type":          {object{tower: ofNoType}, tower + ".relative_attention"},
		"a tower that is larger":      {object{tower: larger}, "token_rep_layer.labels_encoder"},
		"spans of the mode marker":    {object{"span_mode": spanMarker}, "span_mode: is marker"},
		"a decoder beside it":         {object{"labels_decoder": "x"}, "labels_decoder"},
		"a published tower's own size": {object{tower: nil, "labels_encoder": "BAAI/bge-small-en-v1.5"},
			"token_rep_layer.labels_encoder"},
	} {
		dir := copyBi(t, "gliner-bi-modernbert-span")
		file := filepath.Join(dir, glinerFile)
		config := map[string]any{}
		data, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(data, &config)
		}
		for k, v := range c.change {
			config[k] = v
		}
		if err == nil {
			data, err = json.Marshal(config)
		}
		if err == nil {
			err = os.Remove(file)
		}
		if err == nil {
			err = os.WriteFile(file, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		m, err := Load(dir, open(t, engine.Options{}), Options{Task: Spans})
		if err == nil {
			m.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", what, err, c.want)
		}
	}
}

// The tokenizer of labels is the one among the model's files, or nowhere.
func TestLabelTokenizer(t *testing.T) {
	dir := copyBi(t, "gliner-bi-deberta-token")
	encoder, folder, err := LabelTokenizer(dir)
	if err != nil || encoder != "sie/labels" || folder != filepath.Join(dir, labelsFolder) {
		t.Errorf("%q in %q, %v", encoder, folder, err)
	}
	if err := os.RemoveAll(filepath.Join(dir, labelsFolder)); err != nil {
		t.Fatal(err)
	}
	if encoder, folder, err = LabelTokenizer(dir); err != nil || encoder != "sie/labels" || folder != "" {
		t.Errorf("without it: %q in %q, %v", encoder, folder, err)
	}
	if encoder, _, err = LabelTokenizer(golden.Open(t, "gliner-bert-span").Dir); err != nil || encoder != "" {
		t.Errorf("a uni-encoder: %q, %v", encoder, err)
	}
}
