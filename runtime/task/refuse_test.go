package task_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/task"
	"github.com/sie-engine/sie/runtime/tokenizer"
)

func TestRefusedRequests(t *testing.T) {
	r := start(t, nil, []string{mean})
	text := []string{"the cat"}
	wide := strings.Repeat("cat ", 100)
	for _, c := range []struct {
		name        string
		q           Request
		code        errs.Code
		status      int
		param, text string
	}{
		{"model", Request{Model: "test/maen", Texts: text}, errs.ModelNotFound, 404, "model",
			"Model 'test/maen' not found Did you mean 'test/mean'?"},
		{"profile", Request{Model: mean, Texts: text, Options: map[string]any{"profile": "x"}},
			errs.InvalidInput, 400, "options.profile", "Profile 'x' not found. Available: ['default']"},
		{"option type", Request{Model: mean, Texts: text, Options: map[string]any{"normalize": "yes"}},
			errs.InvalidInput, 400, "options.normalize",
			`Field 'options.normalize': expected true or false, got the string "yes"`},
		{"option pooling", Request{Model: mean, Texts: text, Options: map[string]any{"pooling": "max"}},
			errs.InvalidInput, 400, "options.pooling", `must be cls, mean, last or last_token; got "max"`},
		{"option dimensions",
			Request{Model: mean, Texts: text, Options: map[string]any{"dimensions": int64(0)}},
			errs.InvalidInput, 400, "options.dimensions", "must be between 1 and"},
		{"too many dimensions", Request{Model: mean, Texts: text, Dimensions: 33}, errs.InvalidInput, 400,
			"dimensions", "dimensions must be at most 32, the width of model 'test/mean'; got 33"},
		{"too many dimensions by option",
			Request{Model: mean, Texts: text, Options: map[string]any{"dimensions": int64(33)}},
			errs.InvalidInput, 400, "dimensions", "at most 32"},
		{
			"output types",
			Request{Model: mean, Texts: text, OutputTypes: []string{"sparse", "dense", "multivector"}},
			errs.InvalidInput, 400, "output_types",
			"Model 'test/mean' does not support output types: {'multivector', 'sparse'}. Supported: {'dense'}",
		},
		{"output types by option", Request{
			Model:       mean,
			Texts:       text,
			OutputTypes: []string{"dense"},
			Options:     map[string]any{"output_types": []any{"sparse"}},
		}, errs.InvalidInput, 400, "output_types", "{'sparse'}"},
		{"dtype", Request{Model: mean, Texts: text, OutputDType: "float8"}, errs.InvalidInput, 400,
			"output_dtype", "Unsupported output_dtype: float8. Use one of float32"},
		{"dtype by option",
			Request{Model: mean, Texts: text, Options: map[string]any{"output_dtype": "float8"}},
			errs.InvalidInput, 400, "options.output_dtype",
			"Unsupported output_dtype: float8. Use one of float32"},
		{"muvera", Request{Model: mean, Texts: text, Options: map[string]any{"muvera": map[string]any{}}},
			errs.InvalidInput, 400, "options.muvera",
			"Model 'test/mean' has no multivectors to fold; remove the option 'muvera'"},
		{"smve", Request{Model: mean, Texts: text, Options: map[string]any{"smve": true}}, errs.InvalidInput,
			400, "options.smve", "has no multivectors"},
		{"lora", Request{Model: mean, Texts: text, Options: map[string]any{"lora_id": "/etc/x"}},
			errs.InvalidInput, 400, "options.lora_id", "must name a hub repository"},
		{"overflow", Request{
			Model: mean, Texts: []string{"a", wide}, Options: map[string]any{"overflow_policy": "error"},
		}, errs.InputTooLong, 400, "items[1]",
			"Field 'items[1]' has more than 40 tokens, the limit of model 'test/mean', and the request forbids cutting it"},
		{"overflow of a lower limit", Request{
			Model:   mean,
			Texts:   []string{"the cat sat on the mat"},
			Options: map[string]any{"overflow_policy": "error", "max_seq_length": int64(4)},
		}, errs.InputTooLong, 400, "items[0]", "more than 4 tokens"},
		{"overflow policy",
			Request{Model: mean, Texts: text, Options: map[string]any{"overflow_policy": "x"}},
			errs.InvalidInput, 400, "options.overflow_policy", "Invalid overflow_policy: 'x'"},
		{"negative token id", Request{Model: mean, Tokens: [][]int32{{2, 3}, {2, -1, 3}}, Field: "input"},
			errs.InvalidInput, 400, "input",
			"Field 'input[1]': token id -1 is outside the model's vocabulary of 101"},
		{"token id", Request{Model: mean, Tokens: [][]int32{{2, 101, 3}}}, errs.InvalidInput, 400, "items",
			"Field 'items[0]': token id 101"},
		{"no token ids", Request{Model: mean, Tokens: [][]int32{{2, 3}, {}}}, errs.InvalidInput, 400, "items",
			"Field 'items[1]' has no token ids"},
		{"overflow of token ids", Request{
			Model:   mean,
			Tokens:  [][]int32{{2, 3}, make([]int32, 41)},
			Field:   "input",
			Options: map[string]any{"overflow_policy": "error"},
		}, errs.InputTooLong, 400, "input[1]", "Field 'input[1]' has more than 40 tokens"},
		{"a long instruction",
			Request{Model: mean, Texts: text, Instruction: new(strings.Repeat("x", 16385))},
			errs.InvalidInput, 400, "params.instruction",
			"Field 'params.instruction' has 16385 bytes; the limit is 16384"},
		{"a text many times", Request{
			Model: mean, Texts: text, Options: map[string]any{"doc_template": strings.Repeat("{text}", 5)},
		}, errs.InvalidInput, 400, "options.doc_template", "the template uses {text} more than 4 times"},
		{"an option without use",
			Request{Model: mean, Texts: text, Options: map[string]any{"query_max_length": int64(9)}},
			errs.InvalidInput, 400, "options.query_max_length", "has no use for it"},
		{"an option that nobody knows",
			Request{Model: mean, Texts: text, Options: map[string]any{"treshold": 0.5}}, errs.InvalidInput,
			400, "options.treshold", "there is no such option"},
	} {
		e := r.Refused(t.Context(), &c.q, c.code, c.status)
		if e.Param != c.param || !strings.Contains(e.Message, c.text) {
			t.Errorf("%s: param %q, %q; want %q, %q", c.name, e.Param, e.Message, c.param, c.text)
		}
	}
	// The same texts fit when truncation is allowed. An invalid length limit counts as none.
	for _, o := range []map[string]any{
		nil, {"overflow_policy": "truncate_text"}, {"max_seq_length": "many"},
	} {
		if res, err := r.Encode(t.Context(),
			&Request{Model: mean, Texts: []string{wide}, Options: o}); err != nil || res.Tokens != 40 {
			t.Errorf("%v: %v tokens, %v", o, res.Tokens, err)
		}
	}
}

// The error for a token id outside the vocabulary gives the id and its place.
func TestRefusedTokenIDs(t *testing.T) {
	r := start(t, nil, []string{mean})
	if _, err := r.Detokenize(t.Context(), mean, [][]int32{{2, 3}, {2, 85}}, true); err == nil ||
		errs.As(err).Status != 400 ||
		errs.As(err).Message != "Field 'ids[1]': id 85 at position 1 is outside the vocabulary (0 to 84)" {
		t.Errorf("%v", err)
	}
	if texts, err := r.Detokenize(t.Context(), mean, [][]int32{{2, 3}}, false); err != nil ||
		len(texts) != 1 || texts[0] == "" {
		t.Errorf("%q, %v", texts, err)
	}
}

// counted returns a count of the sequences that are passed to devices, and the options that count.
func counted(change func(*Options)) (n *atomic.Int64, counting func(*Options)) {
	n = new(atomic.Int64)
	return n, func(o *Options) {
		change(o)
		o.Intercept = func(b *engine.Batch) error {
			n.Add(int64(len(b.CuSeqlens) - 1))
			return nil
		}
	}
}

// When a later text is refused, the texts before it are not run any more.
func TestRefusedRequestLeavesNoWork(t *testing.T) {
	ran, counting := counted(held(task.ChunkTexts + 3))
	r := start(t, counting, []string{mean})
	ids := make([][]int32, task.ChunkTexts+1)
	for i := range ids {
		ids[i] = []int32{2, 10, 3}
	}
	ids[task.ChunkTexts][1] = 5000
	r.Refused(t.Context(), &Request{Model: mean, Tokens: ids}, errs.InvalidInput, 400)
	r.Rows(&Request{Model: mean, Texts: words(3)})
	if n := ran.Load(); n != 3 {
		t.Errorf("%d sequences ran, want 3", n)
	}
}

// Token ids give the vector of the text that they stand for, and are truncated as texts are. No
// special tokens are added to them.
func TestTokenIDs(t *testing.T) {
	r := start(t, nil, []string{mean})
	const text = "the cat sat on the mat"
	tok, err := tokenizer.Load(golden.Open(t, dirs[mean]).Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tok.Close()
	var b tokenizer.Batch
	if err := tok.EncodeParallel(t.Context(), &b, []string{text}, tokenizer.Options{}); err != nil {
		t.Fatal(err)
	}
	ids := slices.Clone(b.Text(0))
	res, err := r.Encode(t.Context(), &Request{
		Model: mean, Tokens: [][]int32{ids, ids[1:3], append(slices.Clone(ids), make([]int32, 100)...)},
	})
	if err != nil {
		t.Fatal(err)
	}
	byText := r.Rows(&Request{Model: mean, Texts: []string{text}})
	if !bytes.Equal(res.Rows[0], byText[0]) || bytes.Equal(res.Rows[1], byText[0]) {
		t.Error("token ids do not give what their text gives")
	}
	if want := len(ids) + 2 + 40; res.Tokens != want {
		t.Errorf("%d tokens, want %d", res.Tokens, want)
	}
}

func TestFullQueue(t *testing.T) {
	r := start(t, func(o *Options) { held(1000)(o); o.MaxQueueItems = 10 }, []string{mean})
	if err := r.Preload(t.Context(), mean); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := r.Encode(ctx, &Request{Model: mean, Texts: words(8)})
		first <- err
	}()
	r.Queued(mean, 8)
	e := r.Refused(t.Context(), &Request{Model: mean, Texts: words(3)}, errs.QueueFull, 503)
	if e.Message != "Queue full: 8 items pending, cannot add 3 more (limit: 10)" ||
		e.RetryAfter < time.Second {
		t.Errorf("%q, retry after %v", e.Message, e.RetryAfter)
	}
	if st := r.Status(); st.Saturated || st.Models[0].QueuePendingItems != 8 {
		t.Errorf("status of a queue with room: %+v", st)
	}
	left := errors.New("left")
	cancel(left)
	if err := <-first; err != left {
		t.Errorf("got %v, want the cause", err)
	}
}

func TestDeadline(t *testing.T) {
	r := start(t, held(1000), []string{mean})
	if err := r.Preload(t.Context(), mean); err != nil { // or the load has the time
		t.Fatal(err)
	}
	// one request is queued, the other waits for its queued chunks
	for _, texts := range [][]string{words(1), words(700)} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errs.Late(time.Minute))
		e := r.Refused(ctx, &Request{Model: mean, Texts: texts}, errs.DeadlineExceeded, 504)
		if !strings.Contains(e.Message, "1m0s") || e.RetryAfter == 0 {
			t.Errorf("%q, retry after %v", e.Message, e.RetryAfter)
		}
		cancel()
	}
}

func TestCancelMidway(t *testing.T) {
	left := errors.New("the client left")
	for name, c := range map[string]struct {
		change func(*Options)
		queued int
	}{
		"while its chunks are queued": {held(10_000), task.ChunksAhead * task.ChunkTexts},
		"while it waits for room": {
			func(o *Options) { held(10_000)(o); o.MaxQueueItems = task.ChunkTexts + 1 }, task.ChunkTexts,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, c.change, []string{mean})
			ctx, cancel := context.WithCancelCause(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := r.Encode(ctx, &Request{Model: mean, Texts: words(1000)})
				done <- err
			}()
			r.Queued(mean, c.queued)
			cancel(left)
			select {
			case err := <-done:
				if err != left {
					t.Errorf("got %v, want the cause", err)
				}
			case <-time.After(2 * time.Minute):
				t.Error("still busy long after its client left")
			}
		})
	}
	t.Run("while it runs", func(t *testing.T) {
		sequences, counting := counted(func(o *Options) { o.Batch.MaxRequests = 1; o.MaxBatchTokens = 64 })
		r := start(t, counting, []string{mean})
		r.Vectors(mean, "a")
		before := sequences.Load()
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := r.Encode(ctx, &Request{Model: mean, Texts: words(20_000)})
			done <- err
		}()
		testrig.Until(r.T, "a batch ran", func() bool { return sequences.Load() > before })
		cancel(left)
		if err := <-done; err != left {
			t.Errorf("got %v, want the cause", err)
		}
		r.Queued(mean, 0)
		if ran := sequences.Load() - before; ran > 15_000 {
			t.Errorf("%d of 20,000 texts ran for a client that left early", ran)
		}
		r.Vectors(mean, "still serving")
	})
	t.Run("before it starts", func(t *testing.T) {
		r := start(t, nil, []string{mean})
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(left)
		if _, err := r.Encode(ctx, &Request{Model: mean, Texts: words(3)}); err != left {
			t.Errorf("got %v, want the cause", err)
		}
	})
}
