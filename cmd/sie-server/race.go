package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/sie-engine/sie/internal/obs"
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
	cat, _, err := c.catalog()
	if err != nil {
		return err
	}
	w, err := newWorker(&c.sourceFlags, &c.computeFlags, &batchFlags{MaxBatchRequests: 64, MaxBatchWait: 15, MaxQueued: 2048,
		MemoryPercent: 95, MaxLoRAs: 10}, cat, obs.NewLogger(os.Stderr, false, false), obs.NewMetrics(), nil)
	if err != nil {
		return err
	}
	defer w.Close()
	ctx := context.Background()
	if err := w.Preload(ctx, c.Model); err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(map[string]any{"ready": true, "precision": w.Precision()}); err != nil {
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if err := c.pass(ctx, w, texts, out); err != nil {
			return err
		}
	}
	return nil
}

func (c *raceCmd) pass(ctx context.Context, w *worker.Worker, texts []string, out *json.Encoder) error {
	if !c.One {
		start := time.Now()
		res, err := w.Encode(ctx, &worker.Request{Model: c.Model, Texts: texts})
		if err != nil {
			return err
		}
		return out.Encode(map[string]any{"seconds": time.Since(start).Seconds(), "tokens": res.Tokens})
	}
	seconds := make([]float64, len(texts))
	for i := range texts {
		start := time.Now()
		if _, err := w.Encode(ctx, &worker.Request{Model: c.Model, Texts: texts[i : i+1]}); err != nil {
			return err
		}
		seconds[i] = time.Since(start).Seconds()
	}
	return out.Encode(map[string]any{"each": seconds})
}
