package task_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/task"
)

// Every kind of request asks for at least as much room as its results take, before they are made.
// It fails with the error of its Hold, whether the first call or a later one refuses.
func TestHold(t *testing.T) {
	r := start(t, nil, []string{mean}, entry(t, "sp", golden.Open(t, "splade-bert").Dir, "splade_flash",
		"tasks: {encode: {sparse: {dim: 101}}}"),
		entry(t, "m3", m3Model(t, golden.Open(t, "m3-text")), "bge_m3_flash",
			"tasks: {encode: {dense: {dim: 64}, sparse: {dim: 430}, multivector: {dim: 64}}, score: {}}"),
		entry(t, "ce", golden.Open(t, "rerank-sigmoid").Dir, "cross_encoder", "tasks: {score: {}}"), entry(t,
			"nli", golden.Open(t, "pipeline-zero-shot").Dir, "nli_classification", "tasks: {extract: {}}"),
		entry(t, "tags", golden.Open(t, "pipeline-tags").Dir, "token_classification", "tasks: {extract: {}}"),
		entry(t, "moods", withTokenizer(t, "classify-bert", "st-mean", nil), "sequence_classification",
			"tasks: {extract: {}}"), lateModel(t, "late", "{query_max_length: 12}"))
	// three chunks
	texts := slices.Repeat([]string{"the cat sat on the mat", "Wolfgang lives in Berlin"}, 150)
	encode := func(hold task.Hold, model string, outputs ...string) (size int, err error) {
		res, err := r.With(hold).Encode(t.Context(),
			&Request{Model: model, Texts: texts, OutputTypes: outputs})
		if err != nil {
			return 0, err
		}
		for i := range texts {
			if res.Rows != nil {
				size += len(res.Rows[i])
			}
			if res.Sparse != nil {
				size += len(res.Sparse[i].Columns) + len(res.Sparse[i].Values)
			}
			if res.Multi != nil {
				size += len(res.Multi[i].Data)
			}
		}
		return size, nil
	}
	extract := func(hold task.Hold, model string, labels ...string) (size int, err error) {
		res, err := r.With(hold).Extract(t.Context(),
			&ExtractRequest{Model: model, Texts: texts, Labels: labels})
		if err != nil {
			return 0, err
		}
		for _, it := range res.Found {
			size += 80*len(it.Entities) + 24*len(it.Classes)
		}
		return size, nil
	}
	refused, began := errors.New("no room"), time.Now()
	for name, c := range map[string]struct {
		calls int // at least
		ask   func(task.Hold) (int, error)
	}{
		"dense":  {1, func(hold task.Hold) (int, error) { return encode(hold, mean, "dense") }},
		"sparse": {4, func(hold task.Hold) (int, error) { return encode(hold, "sp", "sparse") }},
		"all": {4, func(hold task.Hold) (int, error) {
			return encode(hold, "m3", "dense", "sparse", "multivector")
		}},
		"multi": {4, func(hold task.Hold) (int, error) { return encode(hold, "late", "multivector") }},
		"score": {1, func(hold task.Hold) (int, error) {
			res, err := r.With(hold).Score(t.Context(), &ScoreRequest{Model: "ce", Query: "q", Texts: texts})
			if err != nil {
				return 0, err
			}
			return 8 * len(res.Scores), nil
		}},
		"classes": {1, func(hold task.Hold) (int, error) { return extract(hold, "moods") }},
		"labels":  {1, func(hold task.Hold) (int, error) { return extract(hold, "nli", "a", "b", "c") }},
		"tags":    {len(texts), func(hold task.Hold) (int, error) { return extract(hold, "tags") }},
		"classify": {1, func(hold task.Hold) (int, error) {
			res, err := r.With(hold).Classify(t.Context(), &ClassifyRequest{Model: "moods", Texts: texts})
			if err != nil {
				return 0, err
			}
			return 24 * len(res.Labels) * len(res.Classes), nil
		}},
		"tokens": {len(texts), func(hold task.Hold) (size int, err error) {
			res, err := r.With(hold).Tokenize(t.Context(), mean, texts, true)
			for _, list := range res {
				size += 80 * len(list)
			}
			return size, err
		}},
		"texts": {3, func(hold task.Hold) (int, error) {
			res, err := r.With(hold).Detokenize(t.Context(), mean, [][]int32{{5, 6, 7}, {8}}, true)
			return len(strings.Join(res, "")), err
		}},
	} {
		var held, last int64
		calls := 0
		size, err := c.ask(func(bytes int64, items int) error {
			if bytes < 0 || items < 0 || items > len(texts) || held == 0 && items == 0 {
				t.Errorf("%s: %d bytes for %d items", name, bytes, items)
			}
			calls++
			held, last = held+bytes, bytes
			return nil
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if calls < c.calls || int64(size) > held || size == 0 && name != "tags" ||
			last == 0 && name != "tags" {
			t.Errorf("%s: %d bytes in %d calls for results of %d", name, held, calls, size)
		}
		for _, at := range []int{1, calls} {
			n := 0
			_, err := c.ask(func(int64, int) error {
				if n++; n == at {
					return refused
				}
				return nil
			})
			if err == nil || !errors.Is(err, refused) {
				t.Errorf("%s: refused at call %d: %v", name, at, err)
			}
		}
	}
	// The queued texts of a refused request leave the queue once the running batch has ended.
	waiting := func() (texts int) {
		for _, m := range r.Status().Models {
			texts += m.QueueDepth
		}
		return texts
	}
	for waiting() > 0 {
		if time.Sleep(time.Millisecond); time.Since(began) > 5*time.Minute {
			t.Fatalf("%d texts wait for ever after their requests have ended", waiting())
		}
	}
}

// The logits of all tokens of the chunks that are in memory have room before their batches run.
func TestLogitsOfTokensAreHeld(t *testing.T) {
	r := start(t, nil, nil, entry(t, "tags", golden.Open(t, "pipeline-tags").Dir, "token_classification",
		"tasks: {extract: {}}"))
	texts := slices.Repeat([]string{"Wolfgang lives in Berlin"}, 900) // more than four chunks
	ask := func(hold task.Hold) (tokens int, err error) {
		res, err := r.With(hold).Extract(t.Context(), &ExtractRequest{Model: "tags", Texts: texts})
		if err != nil {
			return 0, err
		}
		return res.Tokens, nil
	}
	var asked []int64
	tokens, err := ask(func(bytes int64, _ int) error { asked = append(asked, bytes); return nil })
	if err != nil {
		t.Fatal(err)
	}
	labels := len(r.Copy("tags").Weights().Labels)
	chunk, chunks := int64(4*labels*(tokens/len(texts))*128), 0
	for _, bytes := range asked {
		if bytes == chunk {
			chunks++
		}
	}
	if chunks != 4 {
		t.Errorf("%d labels, %d tokens: room was asked for %d chunks, want 4", labels, tokens, chunks)
	}
	n, refused := 0, errors.New("no room")
	if _, err := ask(func(int64, int) error {
		if n++; n == 2 {
			return refused
		}
		return nil
	}); !errors.Is(err, refused) {
		t.Errorf("without room for them: %v", err)
	}
}
