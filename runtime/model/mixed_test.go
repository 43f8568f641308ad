package model

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/golden"
)

// mixedCalls returns requests of all kinds to models of three architectures: a decoder that embeds
// and one that judges, ModernBERT with vectors and with tags, and BERT with vectors, sparse vectors
// and vectors of tokens. The three that give dense vectors have adapters.
func mixedCalls(t *testing.T, r *rig) (calls []*chaosCall, models []*catalog.Model) {
	t.Helper()
	texts := []string{"the cat sat on the mat", "zebra quiz 42", "a",
		"the quick brown fox jumps over the lazy dog and sleeps"}
	add := func(m *catalog.Model, q Request, loras ...string) {
		models = append(models, m)
		for _, lora := range append([]string{""}, loras...) {
			q := q
			q.Model, q.Texts, q.Options = m.ID, texts, map[string]any{}
			if lora != "" {
				q.Options["lora_id"] = lora
			}
			calls = append(calls, &chaosCall{model: m.ID, ask: func(ctx context.Context) (string, error) {
				res, err := r.Encode(ctx, &q)
				if err != nil {
					return "", err
				}
				return fmt.Sprint(res.Rows, res.Sparse, res.Multi, res.Scores, res.Entities, res.Errors), nil
			}})
		}
	}
	dense := func(id, of, adapter string, dim int, loras ...string) {
		paths, at := "", filepath.Join(golden.Open(t, of).Dir, "adapters")
		for _, lora := range loras {
			paths += fmt.Sprintf("%s: %s/%s, ", lora, at, lora)
		}
		add(loadtime(t, id, withTokenizer(t, of, "st-mean", nil), adapter,
			fmt.Sprintf("tasks: {encode: {dense: {dim: %d}}}", dim), "{lora_paths: {"+paths+"}}"),
			Request{}, loras...)
	}
	dense("mixed/bert", "lora-bert", "bert_flash", 64, "rank4", "rslora", "patterns")
	dense("mixed/modern", "lora-modernbert", "modernbert_flash", 64, "attention", "every", "gate")
	dense("mixed/decoder", "lora-qwen3", "qwen2_flash", 48, "attention", "every", "gate")
	judge, _, err := catalog.ParseModel("judge.yaml", fmt.Appendf(nil, `sie_id: mixed/judge
weights_path: %s
tasks: {score: {}}
max_sequence_length: 256
profiles:
  default:
    adapter_path: "sie_server.adapters.qwen2_flash_cross_encoder.adapter:X"
    max_batch_tokens: 4096
    adapter_options:
      loadtime: {yes_token: "yes", no_token: "no", input_format: qwen3, score_mode: log_softmax}
`, golden.Open(t, "judge-qwen3").Dir))
	if err != nil {
		t.Fatal(err)
	}
	add(judge, Request{Query: "the cat"})
	add(entry(t, "mixed/tags", withTokenizer(t, "tag-modernbert", "st-mean", nil), "token_classification",
		"tasks: {extract: {}}"), Request{Extract: true})
	add(entry(t, "mixed/sparse", golden.Open(t, "splade-bert").Dir, "splade_flash",
		"tasks: {encode: {sparse: {dim: 101}}}"), Request{OutputTypes: []string{"sparse"}})
	add(entry(t, "mixed/tokens", withTokenizer(t, "colbert-linear", "st-mean", nil), "colbert",
		"tasks: {encode: {multivector: {dim: 24}}}"), Request{OutputTypes: []string{"multivector"}})
	return calls, models
}

// Models of three architectures share a server and its device, with loads, evictions and adapters
// under way and clients that leave. Afterwards nothing is held: no weight or adapter is packed, no
// goroutine runs (start), no program, slot or arena is open (a device panics if it is closed with
// one), and no file.
func TestArchitecturesShareAServer(t *testing.T) {
	files, percent := openFiles(t), debug.SetGCPercent(-1) // the collector would close them, too
	t.Cleanup(func() {                                     // after the host was closed
		if now := openFiles(t); now > files {
			t.Errorf("%d files are open, %d were before", now, files)
		}
		debug.SetGCPercent(percent)
	})
	r := chaosRig(t)
	calls, models := mixedCalls(t, r)
	chaos(t, r, calls, models, []string{"mixed/bert", "mixed/modern", "mixed/decoder", "mixed/judge"})
}

// openFiles counts the open files of this process.
func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(list)
}
