package model

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/internal/testrig"
)

// chaosCall is a request and the bits of its answer.
type chaosCall struct {
	model string
	ask   func(ctx context.Context) (string, error)
	want  string
}

// chaosCalls returns requests for vectors, scores and labels to models with separate weights, some
// with adapters.
func chaosCalls(t *testing.T, w *rig) (calls []*chaosCall, models []*catalog.Model) {
	t.Helper()
	long := []string{"the cat sat on the mat", "zebra quiz 42", "a",
		"the quick brown fox jumps over the lazy dog and sleeps"}
	adapters := filepath.Join(golden.Open(t, "lora-bert").Dir, "adapters")
	encoder := linked(t, withTokenizer(t, "lora-bert", "st-mean", nil))
	paths := fmt.Sprintf("{lora_paths: {four: %s/rank4, other: %s/rslora, third: %s/patterns}}",
		adapters, adapters, adapters)
	add := func(model, lora string, ask func(ctx context.Context, options map[string]any) (string, error)) {
		options := map[string]any{}
		if lora != "" {
			options["lora_id"] = lora
		}
		calls = append(calls, &chaosCall{
			model: model, ask: func(ctx context.Context) (string, error) { return ask(ctx, options) },
		})
	}
	encode := func(model string, outputs ...string) func(context.Context, map[string]any) (string, error) {
		return func(ctx context.Context, options map[string]any) (string, error) {
			res, err := w.Encode(ctx,
				&Request{Model: model, Texts: long, Options: options, OutputTypes: outputs})
			if err != nil {
				return "", err
			}
			return fmt.Sprint(res.Rows, res.Sparse, res.Multi), nil
		}
	}
	for _, id := range []string{"chaos/one", "chaos/two"} {
		models = append(models,
			loadtime(t, id, linked(t, encoder), "bert_flash", "tasks: {encode: {dense: {dim: 64}}}", paths))
		for _, lora := range []string{"", "four", "other", "third"} {
			add(id, lora, encode(id))
		}
	}
	models = append(models, entry(t, "chaos/sparse", golden.Open(t, "splade-bert").Dir, "splade_flash",
		"tasks: {encode: {sparse: {dim: 101}}}"))
	add("chaos/sparse", "", encode("chaos/sparse", "sparse"))
	models = append(models, adapted(t, "chaos/rerank", golden.Open(t, "rerank-sigmoid").Dir, "rerank-sigmoid",
		"cross_encoder", "tasks: {score: {}}"))
	for _, lora := range []string{"", "attention", "all"} {
		add("chaos/rerank", lora, func(ctx context.Context, options map[string]any) (string, error) {
			res, err := w.Encode(ctx,
				&Request{Model: "chaos/rerank", Query: "the cat", Texts: long, Options: options})
			if err != nil {
				return "", err
			}
			return fmt.Sprint(res.Scores), nil
		})
	}
	models = append(models, adapted(t, "chaos/tags", withTokenizer(t, "tag-bert", "st-mean", nil), "tag-bert",
		"token_classification", "tasks: {extract: {}}"))
	for _, lora := range []string{"", "all"} {
		add("chaos/tags", lora, func(ctx context.Context, options map[string]any) (string, error) {
			res, err := w.Encode(ctx,
				&Request{Model: "chaos/tags", Extract: true, Texts: long, Options: options})
			if err != nil {
				return "", err
			}
			return fmt.Sprint(res.Entities, res.Errors), nil
		})
	}
	return calls, models
}

func TestChaos(t *testing.T) {
	r := chaosRig(t)
	calls, models := chaosCalls(t, r)
	chaos(t, r, calls, models, []string{"chaos/one", "chaos/rerank", "chaos/tags"})
}

// chaosRig has two places for adapters, and waits for a load no longer than it likes.
func chaosRig(t *testing.T) *rig {
	return start(t, func(o *Options) {
		o.MaxLoRAs, o.EvictWait, o.LoadWait = 2, 5*time.Second, 300*time.Millisecond
	}, nil)
}

// chaos: clients send all kinds of requests at once and leave in the middle; the budget holds half
// of the models; adapters take turns in two places; and the catalog keeps changing, in which only
// the models kept stay. Every answer has the same bits as without load, or is a 503 with a time to
// retry. The accounted bytes stay within the budget, and nothing is left at the end. The clients go
// on until each model has answered and some of them have left, however slow the machine is.
func chaos(t *testing.T, r *rig, calls []*chaosCall, models []*catalog.Model, kept []string) {
	t.Helper()
	whole, err := r.snapshot.Load().catalog.With(models...)
	if err != nil {
		t.Fatal(err)
	}
	half, _ := whole.Select(kept)
	if _, err := r.SetCatalog(whole); err != nil {
		t.Fatal(err)
	}
	for _, c := range calls {
		for c.want == "" {
			if c.want, err = c.ask(t.Context()); err != nil && !chaosRetryable(err) {
				t.Fatalf("%s: %v", c.model, err)
			}
		}
	}
	budget := r.models.Bytes() / 2
	chaosEmpty(t, r)
	r.opt.MemoryBudget = budget
	if _, err := r.SetCatalog(whole); err != nil {
		t.Fatal(err)
	}

	stop := make(chan struct{})
	var others, clients sync.WaitGroup
	others.Go(func() { // the catalog
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(20+i%30) * time.Millisecond):
			}
			c := whole
			if i%2 == 0 {
				c = half
			}
			if _, err := r.SetCatalog(c); err != nil {
				t.Error(err)
			}
		}
	})
	others.Go(func() { // checks the accounted bytes
		for {
			if used := r.models.Bytes(); used > budget {
				t.Errorf("%d bytes are packed, the budget is %d", used, budget)
				return
			}
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Microsecond):
			}
		}
	})
	var answered, later, left, unknown atomic.Int64
	answers := map[string]*atomic.Int64{} // by model
	for _, m := range models {
		answers[m.ID] = new(atomic.Int64)
	}
	const each = 120
	for client := range 8 {
		clients.Go(func() {
			dice := rand.New(rand.NewPCG(7, uint64(client)))
			enough := func() bool {
				for _, n := range answers {
					if n.Load() == 0 {
						return false
					}
				}
				return answered.Load() >= each && left.Load() > 0
			}
			for i := 0; !t.Failed() && (i < each || !enough()); i++ {
				c := calls[dice.IntN(len(calls))]
				ctx, cancel := context.WithCancel(t.Context())
				leaves := dice.IntN(3) == 0
				if leaves {
					time.AfterFunc(time.Duration(dice.IntN(4000))*time.Microsecond, cancel)
				}
				got, err := c.ask(ctx)
				cancel()
				e := errs.As(err)
				switch {
				case err == nil && got == c.want:
					answered.Add(1)
					answers[c.model].Add(1)
				case err == nil:
					t.Errorf("%s: %.200s instead of %.200s", c.model, got, c.want)
				case chaosRetryable(err):
					later.Add(1)
					time.Sleep(time.Duration(dice.IntN(5)) * time.Millisecond)
				case leaves && errors.Is(err, context.Canceled):
					left.Add(1)
				case e != nil && e.Code == errs.ModelNotFound && !slices.Contains(kept, c.model):
					// while it is removed
					unknown.Add(1)
				default:
					t.Errorf("%s: %v", c.model, err)
				}
			}
		})
	}
	clients.Wait()
	close(stop)
	others.Wait()
	t.Logf("%d answered, %d told to come later, %d left, %d asked for what was removed",
		answered.Load(), later.Load(), left.Load(), unknown.Load())
	chaosEmpty(t, r)
}

// chaosEmpty removes every model and waits until all are unloaded.
func chaosEmpty(t *testing.T, r *rig) {
	t.Helper()
	if _, err := r.SetCatalog(only(r)); err != nil {
		t.Fatal(err)
	}
	testrig.Until(t, "nothing is packed", func() bool {
		info, err := r.devices[0].engine.Info()
		return err == nil && info.MemoryWeights == 0 && r.models.Bytes() == 0
	})
}

// chaosRetryable reports whether an error tells the client to retry.
func chaosRetryable(err error) bool {
	e := errs.As(err)
	return e != nil && e.Status == 503 && e.RetryAfter > 0
}
