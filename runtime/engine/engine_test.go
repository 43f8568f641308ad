package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/lockorder"
)

// openTest opens a device, or skips the test and prints the command that builds the engine.
func openTest(t testing.TB, o Options) *Device {
	t.Helper()
	if !Built {
		t.Skip("no native engine: run `make test-go`")
	}
	d, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// rowsBatch is a batch whose output 0 takes items.
func rowsBatch(ids, types, cu []int32, items []OutItem) *Batch {
	return &Batch{IDs: ids, TypeIDs: types, CuSeqlens: cu, Items: [MaxOutputs][]OutItem{items}}
}

func bytesOf(values ...float32) []byte {
	var out []byte
	for _, v := range values {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out
}

func floatsOf(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

// A tiny program over two columns, small enough to check by hand:
//
//	x = LN(word[id]) · gamma (1, 2) + beta (0.5, 0); LN gives (-1, 1) or (1, -1)
//	y = relu(x·Wᵀ + bias) + x, W = [[1, 1], [0, -1]], bias (0, 1)
//	out = mean over the sequence's tokens
type tiny struct {
	program *Program
	weights []*Weight
}

func newTiny(t testing.TB, d *Device, caps Caps) *tiny {
	t.Helper()
	m := &tiny{}
	weight := func(kind WeightKind, k int64, values ...float32) *Weight {
		w, err := d.NewWeight(WeightSpec{Kind: kind, Compute: ComputeF32, DType: F32, K: k,
			Parts: []Part{{Data: bytesOf(values...), Rows: int64(len(values)) / k}}})
		if err != nil {
			t.Fatal(err)
		}
		m.weights = append(m.weights, w)
		return w
	}
	word := weight(TableWeight, 2, 0, 2, 6, 2, -1, 1)
	gamma, beta := weight(VectorWeight, 1, 1, 2), weight(VectorWeight, 1, 0.5, 0)
	w, bias := weight(LinearWeight, 2, 1, 1, 0, -1), weight(VectorWeight, 1, 0, 1)
	r := d.Record(caps)
	x := r.EmbedLayerNorm(Embedding{Word: word, Gamma: gamma, Beta: beta})
	y := r.Linear(x, w, bias, ReLU, x)
	r.OutputRows(r.Pool(y, PoolMean))
	r.OutputValues(y)
	var err error
	if m.program, err = r.End(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.close)
	return m
}

func (m *tiny) close() {
	m.program.Close()
	for _, w := range m.weights {
		w.Close()
	}
}

// tinyToken returns the program's row for one token.
func tinyToken(id int32) [2]float32 {
	x := [2]float32{-1 + 0.5, 2} // ids 0 and 2 rise
	if id == 1 {
		x = [2]float32{1 + 0.5, -2}
	}
	return [2]float32{max(0, x[0]+x[1]) + x[0], max(0, -x[1]+1) + x[1]}
}

// tinyWant returns the mean of each sequence of a batch.
func tinyWant(ids, cu []int32) []float32 {
	var out []float32
	for i := range len(cu) - 1 {
		var sum [2]float32
		for _, id := range ids[cu[i]:cu[i+1]] {
			y := tinyToken(id)
			sum[0], sum[1] = sum[0]+y[0], sum[1]+y[1]
		}
		n := float32(cu[i+1] - cu[i])
		out = append(out, sum[0]/n, sum[1]/n)
	}
	return out
}

func near(got, want []float32) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d values, expected %d", len(got), len(want))
	}
	for i := range want {
		if !(math.Abs(float64(got[i]-want[i])) <= 1e-5) {
			return fmt.Errorf("value %d is %v, expected %v; all: %v, expected %v",
				i, got[i], want[i], got, want)
		}
	}
	return nil
}

func TestProgramByHand(t *testing.T) {
	for _, kind := range []Kind{CPU, Ref} {
		t.Run(kind.String(), func(t *testing.T) {
			d := openTest(t, Options{Kind: kind})
			m := newTiny(t, d, Caps{MaxTokens: 32, MaxSeqs: 8, MaxLen: 16})
			a, err := d.NewArena(m.program.Workspace())
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			s, err := d.NewSlot(SlotCaps{MaxTokens: 32, MaxSeqs: 8, OutputBytes: []int64{256, 256}})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			ids, cu := []int32{0, 1, 2, 2, 1}, []int32{0, 1, 4, 5}
			items := []OutItem{{DType: F32, Offset: 8}, {DType: F32, Offset: 0},
				{DType: F32, Dims: 1, Normalize: true, Offset: 16}}
			if err := s.Load(m.program, rowsBatch(ids, nil, cu, items)); err != nil {
				t.Fatal(err)
			}
			if err := m.program.Submit(a, s); err != nil {
				t.Fatal(err)
			}
			if err := s.Wait(); err != nil {
				t.Fatal(err)
			}
			want := tinyWant(ids, cu)
			sign := float32(1)
			if want[4] < 0 {
				sign = -1
			}
			if err := near(floatsOf(s.UnsafeOutput(0)[:20]),
				[]float32{want[2], want[3], want[0], want[1], sign}); err != nil {
				t.Error(err)
			}
			var tokens []float32
			for _, id := range ids {
				y := tinyToken(id)
				tokens = append(tokens, y[0], y[1])
			}
			if err := near(floatsOf(s.UnsafeOutput(1)[:40]), tokens); err != nil {
				t.Errorf("token rows: %v", err)
			}
			if text := m.program.Describe(); strings.Count(text, "\n") < 4 {
				t.Errorf("the listing is short: %q", text)
			}
		})
	}
}

func TestInfo(t *testing.T) {
	d := openTest(t, Options{Threads: 1})
	before, err := d.Info()
	if err != nil {
		t.Fatal(err)
	}
	if before.Kind != CPU || before.Threads != 1 || before.Name == "" || before.Why == "" ||
		before.MemoryTotal <= 0 || !before.Supports(ComputeF32) {
		t.Errorf("%+v", before)
	}
	w, err := d.NewWeight(WeightSpec{
		Kind:    LinearWeight,
		Compute: ComputeF32,
		DType:   F32,
		K:       64,
		Parts:   []Part{{Data: make([]byte, 64*64*4), Rows: 64}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	after, err := d.Info()
	if err != nil || after.MemoryWeights-before.MemoryWeights != w.Bytes() || w.Bytes() < 64*64*4 ||
		w.Rows() != 64 {
		t.Errorf("weights hold %d bytes more, the weight says %d (%v)",
			after.MemoryWeights-before.MemoryWeights, w.Bytes(), err)
	}
	if sum := LibSum(); len(sum) != 64 {
		t.Errorf("LibSum is %q", sum)
	}
}

func TestWithoutNativeEngine(t *testing.T) {
	if Built {
		t.Skip("the native engine is in this binary; `go test ./runtime/engine` covers the other")
	}
	if _, err := Open(Options{}); !errors.Is(err, ErrNotBuilt) {
		t.Errorf("Open gives %v", err)
	}
}

func TestErrorSentinels(t *testing.T) {
	for status, sentinel := range map[Status]error{
		StatusInvalid:     ErrInvalid,
		StatusUnsupported: ErrUnsupported,
		StatusCorrupt:     ErrCorrupt,
		StatusNoMemory:    ErrNoMemory,
		StatusDeviceLost:  ErrDeviceLost,
		StatusInternal:    ErrInternal,
		99:                ErrInternal,
		-1:                ErrInternal,
	} {
		err := fmt.Errorf("load: %w", &Error{Op: "weight", Status: status})
		if !errors.Is(err, sentinel) {
			t.Errorf("status %d does not match %v", status, sentinel)
		}
		for _, other := range sentinels[1:] {
			if other != sentinel && errors.Is(err, other) {
				t.Errorf("status %d also matches %v", status, other)
			}
		}
	}
}

func TestWeightChecks(t *testing.T) {
	d := openTest(t, Options{Threads: 1})
	nan := float32(math.NaN())
	for name, c := range map[string]struct {
		spec WeightSpec
		want error
	}{
		"no parts":   {WeightSpec{Kind: VectorWeight, DType: F32, K: 1}, ErrInvalid},
		"nine parts": {WeightSpec{Kind: VectorWeight, DType: F32, K: 1, Parts: make([]Part, 9)}, ErrInvalid},
		"short data": {WeightSpec{Kind: LinearWeight, Compute: ComputeF32, DType: F32, K: 2, Parts: []Part{
			{Data: make([]byte, 15), Rows: 2},
		}}, ErrInvalid},
		"long data": {WeightSpec{Kind: LinearWeight, Compute: ComputeF32, DType: F32, K: 2, Parts: []Part{
			{Data: make([]byte, 17), Rows: 2},
		}}, ErrInvalid},
		"no rows": {WeightSpec{
			Kind: LinearWeight, Compute: ComputeF32, DType: F32, K: 2, Parts: []Part{{Rows: 0}},
		}, ErrInvalid},
		"huge rows": {WeightSpec{
			Kind: LinearWeight, Compute: ComputeF32, DType: F32, K: 1 << 30, Parts: []Part{{Rows: 1 << 31}},
		}, ErrInvalid},
		"zero K": {WeightSpec{Kind: LinearWeight, Compute: ComputeF32, DType: F32, Parts: []Part{{Rows: 1}}},
			ErrInvalid},
		"bad dtype": {WeightSpec{
			Kind: LinearWeight, Compute: ComputeF32, DType: 77, K: 1, Parts: []Part{{Rows: 1}},
		}, ErrInvalid},
		"int source": {WeightSpec{Kind: LinearWeight, Compute: ComputeF32, DType: I32, K: 1, Parts: []Part{
			{Data: make([]byte, 4), Rows: 1},
		}}, ErrUnsupported},
		"NaN": {WeightSpec{
			Kind: VectorWeight, DType: F32, K: 1, Parts: []Part{{Data: bytesOf(1, nan), Rows: 2}},
		}, ErrCorrupt},
		"bad kind": {WeightSpec{
			Kind: 9, Compute: ComputeF32, DType: F32, K: 1, Parts: []Part{{Data: bytesOf(1), Rows: 1}},
		}, ErrInvalid},
		"vector of K2": {WeightSpec{
			Kind: VectorWeight, DType: F32, K: 2, Parts: []Part{{Data: bytesOf(1, 2), Rows: 1}},
		}, ErrInvalid},
	} {
		w, err := d.NewWeight(c.spec)
		if !errors.Is(err, c.want) || w != nil {
			t.Errorf("%s: %v, expected %v", name, err, c.want)
		}
	}
}

// End returns the first error of a recording, whatever follows it, and nothing is left open.
func TestRecorderErrorSticks(t *testing.T) {
	d := openTest(t, Options{Threads: 1})
	m := newTiny(t, d, Caps{MaxTokens: 8, MaxSeqs: 2, MaxLen: 8})
	word, gamma, w := m.weights[0], m.weights[1], m.weights[3]
	r := d.Record(Caps{MaxTokens: 8, MaxSeqs: 2, MaxLen: 8})
	x := r.EmbedLayerNorm(Embedding{Word: word, Gamma: gamma})
	bad := r.Linear(x, word, nil, NoAct, NoValue) // a table, not a matrix
	r.Linear(bad, w, nil, NoAct, NoValue)
	r.OutputRows(r.Pool(bad, PoolMean))
	p, err := r.End()
	if p != nil || !errors.Is(err, ErrInvalid) || r.Err() != err {
		t.Errorf("End gave %v, %v; expected the error of a table passed as a matrix", p, err)
	}
	var e *Error
	if !errors.As(err, &e) || !strings.Contains(e.Msg, "entry 4, linear: w is a table") {
		t.Errorf("the error does not name its operation: %+v", e)
	}
	if _, again := r.End(); again != err {
		t.Errorf("ending twice: %v, expected %v", again, err)
	}
	first := errors.New("first")
	r = d.Record(Caps{MaxTokens: 8, MaxSeqs: 2, MaxLen: 8})
	r.Fail(first)
	r.Fail(errors.New("later"))
	if y := r.EmbedLayerNorm(Embedding{Word: word, Gamma: gamma}); y != NoValue {
		t.Errorf("an operation after the error gave value %d", y)
	}
	if p, err := r.End(); p != nil || err != first {
		t.Errorf("End gave %v, %v; expected the first error %v", p, err, first)
	}
	if _, err := d.Record(Caps{}).End(); !errors.Is(err, ErrInvalid) {
		t.Errorf("caps of zero: %v", err)
	}
	if d.open["program"] != 1 || word.uses != 1 {
		t.Errorf("%d programs are open and %d hold the table, expected 1 and 1", d.open["program"], word.uses)
	}
}

func mustPanic(t *testing.T, what, with string, f func()) {
	t.Helper()
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, with) {
			t.Errorf("%s: panic %q, expected one with %q", what, got, with)
		}
	}()
	f()
}

func TestUseAfterClose(t *testing.T) {
	d := openTest(t, Options{Threads: 1})
	m := newTiny(t, d, Caps{MaxTokens: 8, MaxSeqs: 2, MaxLen: 8})
	a, err := d.NewArena(m.program.Workspace())
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.NewSlot(SlotCaps{MaxTokens: 8, MaxSeqs: 2, OutputBytes: []int64{64, 64}})
	if err != nil {
		t.Fatal(err)
	}
	mustPanic(t, "device with open handles", "Device closed while", d.Close)
	mustPanic(t, "weight of a program", "Weight closed while 1 programs", m.weights[0].Close)
	ids, cu, items := []int32{0}, []int32{0, 1}, []OutItem{{DType: F32}}
	if err := s.Load(m.program, rowsBatch(ids, nil, cu, items)); err != nil {
		t.Fatal(err)
	}
	if err := m.program.Submit(a, s); err != nil {
		t.Fatal(err)
	}
	mustPanic(t, "slot in flight", "in flight", s.Close)
	mustPanic(t, "program in flight", "in flight", m.program.Close)
	if err := s.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(); !errors.Is(err, ErrInvalid) {
		t.Errorf("waiting twice: %v", err)
	}
	mustPanic(t, "output 2 of 2", "output 2", func() { s.UnsafeOutput(2) })
	for range 2 { // closing twice is allowed
		s.Close()
		a.Close()
		m.close()
	}
	mustPanic(t, "closed slot", "closed Slot",
		func() { _ = s.Load(m.program, rowsBatch(ids, nil, cu, items)) })
	mustPanic(t, "closed program", "closed Program", func() { m.program.Describe() })
	r := d.Record(Caps{MaxTokens: 8, MaxSeqs: 2, MaxLen: 8})
	mustPanic(t, "closed weight", "closed Weight", func() { r.EmbedLayerNorm(Embedding{Word: m.weights[0]}) })
	if _, err := r.End(); err == nil {
		t.Error("an empty program ended well")
	}
	d.Close()
	d.Close()
	mustPanic(t, "closed device", "closed Device", func() { _, _ = d.Info() })
}

// Every refused batch leaves the slot free for the next.
func TestSlotLoadChecks(t *testing.T) {
	d := openTest(t, Options{Threads: 1})
	m := newTiny(t, d, Caps{MaxTokens: 8, MaxSeqs: 3, MaxLen: 4})
	a, err := d.NewArena(m.program.Workspace())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	s, err := d.NewSlot(SlotCaps{MaxTokens: 8, MaxSeqs: 3, OutputBytes: []int64{64, 64}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	one := []OutItem{{DType: F32}}
	two := []OutItem{{DType: F32}, {DType: F32, Offset: 8}}
	for name, c := range map[string]struct {
		ids, types, cu []int32
		items          []OutItem
	}{
		"no cu_seqlens":      {[]int32{0}, nil, nil, one},
		"no ids":             {nil, nil, []int32{0, 0}, one},
		"cu beyond ids":      {[]int32{0}, nil, []int32{0, 2}, one},
		"cu before the end":  {[]int32{0, 1}, nil, []int32{0, 1}, one},
		"cu negative":        {[]int32{0}, nil, []int32{-1, 1}, one},
		"cu falls":           {[]int32{0, 1}, nil, []int32{0, 3, 2}, two},
		"id negative":        {[]int32{-1}, nil, []int32{0, 1}, one},
		"id too large":       {[]int32{3}, nil, []int32{0, 1}, one},
		"type ids short":     {[]int32{0, 1}, []int32{0}, []int32{0, 2}, one},
		"sequence too long":  {[]int32{0, 1, 0, 1, 0}, nil, []int32{0, 5}, one},
		"too many sequences": {[]int32{0, 1, 0, 1}, nil, []int32{0, 1, 2, 3, 4}, append(two, two...)},
		"too many tokens":    {make([]int32, 9), nil, []int32{0, 3, 6, 9}, append(two, one...)},
		"items missing":      {[]int32{0}, nil, []int32{0, 1}, nil},
		"items short":        {[]int32{0, 1}, nil, []int32{0, 1, 2}, one},
		"output too small":   {[]int32{0}, nil, []int32{0, 1}, []OutItem{{DType: F32, Offset: 60}}},
		"offset negative":    {[]int32{0}, nil, []int32{0, 1}, []OutItem{{DType: F32, Offset: -4}}},
		"offset misaligned":  {[]int32{0}, nil, []int32{0, 1}, []OutItem{{DType: F32, Offset: 2}}},
		"dims too large":     {[]int32{0}, nil, []int32{0, 1}, []OutItem{{DType: F32, Dims: 3}}},
		"dims negative":      {[]int32{0}, nil, []int32{0, 1}, []OutItem{{DType: F32, Dims: -1}}},
		"dtype unknown":      {[]int32{0}, nil, []int32{0, 1}, []OutItem{{DType: 40}}},
	} {
		if err := s.Load(m.program, rowsBatch(c.ids, c.types, c.cu, c.items)); !errors.Is(err, ErrInvalid) &&
			!errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := s.Load(m.program, rowsBatch([]int32{1}, nil, []int32{0, 1}, one)); err != nil {
			t.Fatalf("after %s, a good batch: %v", name, err)
		}
		if err := m.program.Submit(a, s); err != nil {
			t.Fatal(err)
		}
		if err := s.Wait(); err != nil {
			t.Fatal(err)
		}
		if err := near(floatsOf(s.UnsafeOutput(0)[:8]), tinyWant([]int32{1}, []int32{0, 1})); err != nil {
			t.Fatalf("after %s: %v", name, err)
		}
	}
}

func TestLoadSubmitWaitAllocateNothing(t *testing.T) {
	if lockorder.Checked {
		t.Skip("locks that are checked allocate")
	}
	d := openTest(t, Options{Threads: 1})
	m := newTiny(t, d, Caps{MaxTokens: 8, MaxSeqs: 2, MaxLen: 8})
	a, err := d.NewArena(m.program.Workspace())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	s, err := d.NewSlot(SlotCaps{MaxTokens: 8, MaxSeqs: 2, OutputBytes: []int64{64, 64}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b := rowsBatch([]int32{0, 1, 2}, nil, []int32{0, 2, 3}, []OutItem{{DType: F32}, {DType: F32, Offset: 8}})
	allocations := testing.AllocsPerRun(100, func() {
		if s.Load(m.program, b) != nil || m.program.Submit(a, s) != nil || s.Wait() != nil ||
			len(s.UnsafeOutput(0)) == 0 {
			t.Error("the batch failed")
		}
	})
	if allocations != 0 {
		t.Errorf("load, submit, wait and output allocate %v times", allocations)
	}
}

func TestLeakedHandleIsReported(t *testing.T) {
	if !Built {
		t.Skip("no native engine: run `make test-go`")
	}
	leaked := make(chan string, 10)
	report := func(kind string) { leaked <- kind }
	leakReport.Store(&report)
	defer leakReport.Store(nil)
	d, err := Open(Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	func() {
		closed, err := d.NewArena(Workspace{Lane: 64})
		if err != nil {
			t.Fatal(err)
		}
		closed.Close()
		if _, err := d.NewSlot(SlotCaps{MaxTokens: 8, MaxSeqs: 2, OutputBytes: []int64{64}}); err != nil {
			t.Fatal(err)
		}
	}()
	for range 100 {
		runtime.GC()
		select {
		case kind := <-leaked:
			if kind != "slot" {
				t.Errorf("a %s is reported, the slot was leaked", kind)
			}
			mustPanic(t, "device of a leaked slot", "1 of its handles of kind slot", d.Close)
			return
		default:
			runtime.Gosched()
		}
	}
	t.Error("the leaked slot was not reported")
}
