package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/obs"
	"github.com/sie-engine/sie/runtime/metrics"
	"github.com/sie-engine/sie/runtime/service"
	"github.com/sie-engine/sie/runtime/task"
)

// raceCmd is the library path of the benchmarks in bench/. It loads texts, then encodes all of them
// or extracts from them, once per line on standard input, and prints the seconds taken. Several
// engines can so be timed in turns. The line "answers" prints what was extracted instead.
type raceCmd struct {
	sourceFlags  `embed:""`
	computeFlags `embed:""`
	Texts        string `arg:"" help:"JSON file with a list of texts."`
	Model        string `default:"${model}"`
	One          bool   `help:"One text at a time, printing each one's seconds."`
	IDs          bool   `name:"ids" help:"Tokenise once, before the first pass: what is timed is batching and the device."`
	Extract      string `help:"Extract instead, with the params of a request that this JSON file holds."`
}

func (c *raceCmd) Run() error {
	b, err := os.ReadFile(c.Texts)
	if err != nil {
		return err
	}
	if c.Extract != "" {
		if _, err := os.Stat(c.Extract); err != nil {
			return err
		}
	}
	var texts []string
	if err := json.Unmarshal(b, &texts); err != nil {
		return fmt.Errorf("%s: %w", c.Texts, err)
	}
	cat, err := c.catalog()
	if err != nil {
		return err
	}
	w, err := newWorker(&c.sourceFlags, &c.computeFlags,
		&batchFlags{MaxBatchRequests: 64, MaxBatchWait: 15, MaxQueued: 2048, MemoryPercent: 95, MaxLoRAs: 10},
		cat, obs.NewLogger(os.Stderr, false, false), metrics.New(), admit.Options{}, nil)
	if err != nil {
		return err
	}
	defer w.Close()
	ctx := context.Background()
	if err := w.Preload(ctx, c.Model); err != nil {
		return err
	}
	m, err := w.Find(c.Model)
	if err != nil {
		return err
	}
	all := task.Texts(texts)
	work := encodes(ctx, m)
	if c.Extract != "" {
		if work, err = c.extracts(ctx, m); err != nil {
			return err
		}
	}
	if c.IDs {
		if all, err = tokenised(ctx, m, texts); err != nil {
			return err
		}
	}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(map[string]any{"ready": true, "precision": w.Precision()}); err != nil {
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if err := c.pass(work, all, in.Text() == "answers", out); err != nil {
			return err
		}
	}
	return nil
}

// raceWork does the race's operation on some of the texts. It returns the body of the answer, nil
// for vectors, and the tokens read.
type raceWork func(items []api.Item) (answer []byte, tokens int, err error)

func encodes(ctx context.Context, m service.Model) raceWork {
	return func(items []api.Item) ([]byte, int, error) {
		res, err := m.Encode(admit.Unbounded(ctx), &api.EncodeRequest{Items: items})
		if err != nil {
			return nil, 0, err
		}
		return nil, res.Usage.InputTokens, nil
	}
}

func (c *raceCmd) extracts(ctx context.Context, m service.Model) (raceWork, error) {
	params, err := os.ReadFile(c.Extract)
	if err != nil {
		return nil, err
	}
	body := fmt.Appendf(nil, `{"items": [{"text": ""}], "params": %s}`, params)
	asked, err := api.DecodeExtract("application/json", body, api.Limits{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Extract, err)
	}
	return func(items []api.Item) ([]byte, int, error) {
		r := *asked
		r.Items = items
		res, err := m.Extract(admit.Unbounded(ctx), &r)
		if err != nil {
			return nil, 0, err
		}
		return api.AppendExtract(nil, nil, api.JSON, res), res.Usage.InputTokens, nil
	}, nil
}

// pass does the work once, over all texts at once or one by one, and prints its seconds, or, where
// they are asked for, its answers.
func (c *raceCmd) pass(work raceWork, all []api.Item, answers bool, out *json.Encoder) error {
	if answers || !c.One {
		start := time.Now()
		got, tokens, err := work(all)
		switch {
		case err != nil:
			return err
		case answers:
			return out.Encode(map[string]any{"answers": json.RawMessage(got)})
		}
		return out.Encode(map[string]any{"seconds": time.Since(start).Seconds(), "tokens": tokens})
	}
	seconds := make([]float64, len(all))
	for i := range seconds {
		start := time.Now()
		if _, _, err := work(all[i : i+1]); err != nil {
			return err
		}
		seconds[i] = time.Since(start).Seconds()
	}
	return out.Encode(map[string]any{"each": seconds})
}

// tokenised returns the texts' token ids as items, with special tokens. A list over the model's
// limit loses its last ids, the closing special token among them.
func tokenised(ctx context.Context, m service.Model, texts []string) ([]api.Item, error) {
	read, err := m.Tokenize(admit.Unbounded(ctx), texts, true)
	if err != nil {
		return nil, err
	}
	lists := make([][]int32, len(read))
	for i, tokens := range read {
		lists[i] = make([]int32, len(tokens))
		for k, t := range tokens {
			lists[i][k] = int32(t.ID)
		}
	}
	return task.TokenLists(lists), nil
}
