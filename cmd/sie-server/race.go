package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/sie-engine/sie/internal/obs"
	"github.com/sie-engine/sie/runtime/metrics"
	"github.com/sie-engine/sie/runtime/worker"
)

// raceCmd is the library path of the benchmark in bench/: it loads texts, then encodes all of them once for every line
// on standard input and prints the seconds that took, so that several engines can be timed in turns.
type raceCmd struct {
	sourceFlags  `embed:""`
	computeFlags `embed:""`
	Texts        string `arg:"" help:"JSON file with a list of texts."`
	Model        string `default:"${model}"`
	One          bool   `help:"One text at a time, printing each one's seconds."`
	IDs          bool   `name:"ids" help:"Tokenise once, before the first pass: what is timed is batching and the device."`
}

func (c *raceCmd) Run() error {
	b, err := os.ReadFile(c.Texts)
	if err != nil {
		return err
	}
	var texts []string
	if err := json.Unmarshal(b, &texts); err != nil {
		return fmt.Errorf("%s: %w", c.Texts, err)
	}
	cat, err := c.catalog()
	if err != nil {
		return err
	}
	w, err := newWorker(&c.sourceFlags, &c.computeFlags, &batchFlags{MaxBatchRequests: 64, MaxBatchWait: 15, MaxQueued: 2048,
		MemoryPercent: 95, MaxLoRAs: 10}, cat, obs.NewLogger(os.Stderr, false, false), metrics.New(), nil)
	if err != nil {
		return err
	}
	defer w.Close()
	ctx := context.Background()
	if err := w.Preload(ctx, c.Model); err != nil {
		return err
	}
	all := worker.Request{Model: c.Model, Texts: texts}
	if c.IDs {
		if all, err = tokenised(ctx, w, all); err != nil {
			return err
		}
	}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(map[string]any{"ready": true, "precision": w.Precision()}); err != nil {
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if err := c.pass(ctx, w, all, out); err != nil {
			return err
		}
	}
	return nil
}

func (c *raceCmd) pass(ctx context.Context, w *worker.Worker, all worker.Request, out *json.Encoder) error {
	if !c.One {
		start := time.Now()
		res, err := w.Encode(ctx, &all)
		if err != nil {
			return err
		}
		return out.Encode(map[string]any{"seconds": time.Since(start).Seconds(), "tokens": res.Tokens})
	}
	seconds := make([]float64, max(len(all.Texts), len(all.Tokens)))
	for i := range seconds {
		one := worker.Request{Model: all.Model}
		if all.Tokens != nil {
			one.Tokens = all.Tokens[i : i+1]
		} else {
			one.Texts = all.Texts[i : i+1]
		}
		start := time.Now()
		if _, err := w.Encode(ctx, &one); err != nil {
			return err
		}
		seconds[i] = time.Since(start).Seconds()
	}
	return out.Encode(map[string]any{"each": seconds})
}

// tokenised is the request with token ids for its texts, special tokens included. A text over the model's limit is refused
// by the first pass, not cut.
func tokenised(ctx context.Context, w *worker.Worker, r worker.Request) (worker.Request, error) {
	read, err := w.Tokenize(ctx, r.Model, r.Texts, true)
	if err != nil {
		return r, err
	}
	r.Texts, r.Tokens = nil, make([][]int32, len(read))
	for i, tokens := range read {
		r.Tokens[i] = make([]int32, len(tokens))
		for k, t := range tokens {
			r.Tokens[i][k] = int32(t.ID)
		}
	}
	return r, nil
}
