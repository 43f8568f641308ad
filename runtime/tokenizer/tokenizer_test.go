package tokenizer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestBatchIsPackedAndReused(t *testing.T) {
	tok := load(t, "minilm")
	var b Batch
	must(tok.EncodePairs(&b, []string{"a"}, []string{"b"}, Options{}))
	must(tok.Encode(&b, []string{"hello world", "", "hello"}, Options{MaxTokens: 3}))
	if !slices.Equal(b.IDs, []int32{101, 7592, 102, 101, 102, 101, 7592, 102}) ||
		!slices.Equal(b.Ends, []int32{3, 5, 8}) || !slices.Equal(b.Truncated, []bool{true, false, false}) ||
		len(b.TypeIDs) != 0 || b.Len() != 3 {
		t.Errorf("got %+v", b)
	}
	must(tok.Encode(&b, nil, Options{}))
	if b.Len() != 0 || len(b.IDs) != 0 {
		t.Errorf("no texts give %+v", b)
	}
	many := slices.Repeat([]string{"some words of a short query"}, 2000)
	must(tok.Encode(&b, many, Options{}))
	if n := testing.AllocsPerRun(20,
		func() { must(tok.Encode(&b, many, Options{})) }); n > float64(len(many))/20 {
		// The call allocates a few times. The race detector makes pools drop values and so adds
		// some.
		t.Errorf("%v allocations for %d texts, want none per text", n, len(many))
	}
}

func TestParallelEqualsSerial(t *testing.T) {
	for _, kind := range []string{"minilm", "roberta"} {
		tok := load(t, kind)
		many := slices.Repeat(texts()[:41], 30)
		many = append(many, texts()[50:]...)
		var s, p Batch
		must(tok.Encode(&s, many, Options{MaxTokens: 64}))
		must(tok.EncodeParallel(t.Context(), &p, many, Options{MaxTokens: 64}))
		if !slices.Equal(s.IDs, p.IDs) || !slices.Equal(s.Ends, p.Ends) ||
			!slices.Equal(s.Truncated, p.Truncated) {
			t.Errorf("%s: another result in parallel", kind)
		}
		must(tok.EncodePairs(&s, many, many, Options{MaxTokens: 33}))
		must(tok.EncodePairsParallel(t.Context(), &p, many, many, Options{MaxTokens: 33}))
		if !slices.Equal(s.IDs, p.IDs) || !slices.Equal(s.Ends, p.Ends) ||
			!slices.Equal(s.TypeIDs, p.TypeIDs) || len(p.TypeIDs) != len(p.IDs) {
			t.Errorf("%s: another result in parallel for pairs", kind)
		}
	}
}

// Texts with very different numbers of tokens per byte make the first guess of the room wrong in
// both directions.
func TestOutputGrows(t *testing.T) {
	tok := load(t, "minilm")
	var list []string
	for i := range 300 {
		list = append(list, strings.Repeat([]string{"!", "word ", "中", "x"}[i%4], i*i%700))
	}
	var one, all, pairs Batch
	must(tok.Encode(&all, list, Options{}))
	must(tok.EncodePairs(&pairs, list, list, Options{}))
	for i := range list {
		one = Batch{}
		must(tok.Encode(&one, list[i:i+1], Options{}))
		if !slices.Equal(one.IDs, all.Text(i)) {
			t.Fatalf("text %d differs inside a call of many", i)
		}
		if len(pairs.Text(i)) != 2*len(one.IDs)-1 {
			t.Fatalf("pair %d has %d ids, its text %d", i, len(pairs.Text(i)), len(one.IDs))
		}
	}
	if len(pairs.TypeIDs) != len(pairs.IDs) || pairs.TypeIDs[len(pairs.TypeIDs)-1] != 1 ||
		pairs.TypeIDs[0] != 0 {
		t.Errorf("%d type ids for %d ids", len(pairs.TypeIDs), len(pairs.IDs))
	}
}

func TestFailuresNameTheText(t *testing.T) {
	tok := load(t, "minilm")
	var b Batch
	var te *TextError
	err := tok.Encode(&b, []string{"hello", "world"}, Options{MaxTokens: 1})
	if !errors.Is(err, ErrNoRoom) || !errors.As(err, &te) || te.Index != 0 || b.Len() != 0 {
		t.Errorf("below the special tokens: %v, %+v", err, b)
	}
	must(tok.Encode(&b, []string{"hello"}, Options{MaxTokens: 1, NoSpecial: true}))
	must(tok.Encode(&b, []string{"hello"}, Options{MaxTokens: 2}))
	if !slices.Equal(b.IDs, []int32{101, 102}) || !b.Truncated[0] {
		t.Errorf("room for special tokens alone gives %+v", b)
	}

	whole := load(t, "sentencepiece")
	list := slices.Repeat([]string{strings.Repeat("a", chunkBytes/4)}, 40)
	list[29] = strings.Repeat("a b", MaxWholeBytes/2)
	for _, encode := range []func() error{
		func() error { return whole.Encode(&b, list, Options{MaxTokens: 8}) },
		func() error { return whole.EncodeParallel(t.Context(), &b, list, Options{MaxTokens: 8}) },
	} {
		if err := encode(); !errors.Is(err, ErrTooLong) || !errors.As(err, &te) || te.Index != 29 ||
			b.Len() != 0 {
			t.Errorf("a long text: %v, %d texts kept", err, b.Len())
		}
	}
}

func TestInvalidUTF8CountsAsReplacement(t *testing.T) {
	for _, kind := range []string{"minilm", "roberta", "xlmr"} {
		tok := load(t, kind)
		for bad, good := range map[string]string{
			"a\xffb": "a\ufffdb", "\xe4\xb8": "\ufffd", "x\xe4\xb8 y": "x\ufffd y", "\xf0\x9f\x98": "\ufffd",
			"\xed\xa0\x80": "\ufffd\ufffd\ufffd", "\xc0\xaf": "\ufffd\ufffd", "中\xe4": "中\ufffd",
		} {
			var a, b Batch
			must(tok.Encode(&a, []string{bad}, Options{}))
			must(tok.Encode(&b, []string{good}, Options{}))
			if !slices.Equal(a.IDs, b.IDs) {
				t.Errorf("%s: %q gives %v, %q gives %v", kind, bad, a.IDs, good, b.IDs)
			}
		}
	}
}

func TestIDsAreChecked(t *testing.T) {
	tok := load(t, "minilm")
	for _, ids := range [][]int32{{-1}, {5, 30522}, {1 << 30}} {
		err := tok.CheckIDs(ids)
		if _, derr := tok.Decode(ids); err == nil || derr == nil || err.Error() != derr.Error() ||
			!strings.Contains(err.Error(), fmt.Sprint(ids[len(ids)-1])) {
			t.Errorf("%v: %v, %v", ids, err, derr)
		}
	}
	if err := tok.CheckIDs([]int32{0, 30521}); err != nil {
		t.Error(err)
	}
	if s, err := tok.Decode(nil); s != "" || err != nil {
		t.Errorf("no ids decode to %q, %v", s, err)
	}
}

func TestCancelledContext(t *testing.T) {
	tok := load(t, "roberta")
	many := slices.Repeat([]string{strings.Repeat("some words ", 3000)}, 200)
	ctx, cancel := context.WithCancel(t.Context())
	var b Batch
	done := make(chan error)
	go func() { done <- tok.EncodeParallel(ctx, &b, many, Options{}) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || b.Len() != 0 {
		t.Errorf("got %v and %d texts", err, b.Len())
	}
	if err := tok.EncodeParallel(ctx, &b, []string{"a"}, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a context done before the call: %v", err)
	}
	if len(slots) != 0 {
		t.Errorf("%d slots still taken", len(slots))
	}
}

func TestCloseWhileInUse(t *testing.T) {
	tok := load(t, "minilm")
	var want Batch
	must(tok.Encode(&want, texts()[:41], Options{}))
	var wg sync.WaitGroup
	started := make(chan struct{}, 8)
	for range 8 {
		wg.Go(func() {
			var b Batch
			for i := 0; ; i++ {
				err := tok.Encode(&b, texts()[:41], Options{})
				if errors.Is(err, ErrClosed) {
					return
				}
				if err != nil || !slices.Equal(b.IDs, want.IDs) {
					t.Errorf("a wrong result beside Close: %v", err)
					return
				}
				if i == 3 {
					started <- struct{}{}
				}
			}
		})
	}
	for range 8 {
		<-started
	}
	must(tok.Close())
	wg.Wait()
	must(tok.Close())
	if _, err := tok.Decode([]int32{1}); !errors.Is(err, ErrClosed) {
		t.Errorf("Decode after Close: %v", err)
	}
	if _, ok := tok.TokenToID("hello"); ok {
		t.Error("TokenToID works after Close")
	}
	if tok.VocabSize() != 30522 {
		t.Error("metadata is gone after Close")
	}
}

func BenchmarkEncode(b *testing.B) {
	passages := make([]string, 512)
	for i := range passages {
		passages[i] = fmt.Sprintf("Passage %d. ", i) + strings.Repeat(
			"The committee's report, published in spring, describes how rivers were monitored and which measures improved water quality. ",
			6)
	}
	queries := slices.Repeat([]string{"how do rivers get monitored in spring", "water quality measures"},
		1024)
	chinese := slices.Repeat([]string{strings.Repeat("北京市是中华人民共和国的首都。", 16)}, 256)
	for _, c := range []struct {
		name string
		kind string
		list []string
		opt  Options
		all  bool
	}{
		{"passages/one core", "minilm", passages, Options{MaxTokens: 256}, false},
		{"passages/all cores", "minilm", passages, Options{MaxTokens: 256}, true},
		{"passages/general pipeline", "minilm", passages, Options{MaxTokens: 256, general: true}, false},
		{"queries/one core", "minilm", queries, Options{}, false},
		{"queries/all cores", "minilm", queries, Options{}, true},
		{"one query", "minilm", queries[:1], Options{}, false},
		{"chinese/one core", "minilm", chinese, Options{}, false},
		{"byte-level/one core", "roberta", passages, Options{MaxTokens: 256}, false},
		{"unigram/one core", "xlmr", passages, Options{MaxTokens: 256}, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			tok := load(b, c.kind)
			var batch Batch
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				if c.all {
					must(tok.EncodeParallel(b.Context(), &batch, c.list, c.opt))
				} else {
					must(tok.Encode(&batch, c.list, c.opt))
				}
				n += len(batch.IDs)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}
