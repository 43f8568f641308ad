package model

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/weights/weightstest"
)

// large writes a published model, in shards without bytes on the disk, with the tokenizer of a tiny
// one.
func large(t *testing.T, id string) string {
	t.Helper()
	dir := t.TempDir()
	root := golden.Root(t)
	weightstest.ReadPublished(t, filepath.Join(root, "..", "published"))[id].Write(t, dir)
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		data, err := os.ReadFile(filepath.Join(root, "st-qwen3-last", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Qwen3-Embedding-8B is refused where the budget or the machine is smaller than its weights: both
// sizes are told, nothing is packed, no value of the checkpoint is read, and a model that is loaded
// stays. Packed in float32 its weights take 28 GiB, in int8 a quarter and some.
func TestAModelLargerThanTheMemoryIsRefusedFirst(t *testing.T) {
	dir := large(t, "Qwen/Qwen3-Embedding-8B")
	const limit = int64(20) << 30
	for name, change := range map[string]struct {
		options func(*Options)
		says    []string
	}{
		"budget": {func(o *Options) { o.MemoryBudget = limit },
			[]string{"20480 MiB that --memory-budget gives weights"}},
		"machine": {
			func(*Options) {},
			[]string{"out of memory on this machine", "and it has 20480 MiB in all"}},
	} {
		r := start(t, change.options, []string{mean}, adHoc(t, "large", dir))
		if name == "machine" {
			r.memory = func() memory { return memory{total: limit} }
		}
		r.encode(&Request{Model: mean, Texts: words(1)})
		before, err := r.devices[0].engine.Info()
		if err != nil {
			t.Fatal(err)
		}
		var reads, deep atomic.Int64
		weightstest.OnRead(t, func(_ string, offset int64) {
			if reads.Add(1); offset > 1<<20 { // behind every header
				deep.Add(1)
			}
		})
		e := r.refused(t.Context(), &Request{Model: "large", Texts: words(1)}, errs.ModelLoadFailed, 502)
		dev, o := r.devices[0].engine, arch.Options{Task: arch.Embed, Compute: engine.ComputeF32}
		size, err := arch.SizeOf(dir, dev, o)
		if err != nil || size.Packed < 28<<30 || size.Packed > 30<<30 {
			t.Fatalf("%d bytes, %v", size.Packed, err)
		}
		o.Compute = engine.ComputeINT8
		small, err := arch.SizeOf(dir, dev, o)
		if err != nil || small.Packed > size.Packed*3/10 {
			t.Errorf("%d bytes in int8 of %d in float32: %v", small.Packed, size.Packed, err)
		}
		need := fmt.Sprintf("%d MiB", mib(size.Packed))
		if name == "machine" {
			need = fmt.Sprintf("%d MiB", mib(size.Packed+size.Passing))
		}
		for _, part := range append(change.says, "its weights need about "+need) {
			if !strings.Contains(e.Message, part) {
				t.Errorf("%s: %q does not say %q", name, e.Message, part)
			}
		}
		after, err := r.devices[0].engine.Info()
		if err != nil || after.MemoryWeights != before.MemoryWeights || deep.Load() != 0 ||
			reads.Load() == 0 {
			t.Errorf("%s: %d bytes packed, %d of %d reads behind the headers: %v", name,
				after.MemoryWeights-before.MemoryWeights, deep.Load(), reads.Load(), err)
		}
		r.encode(&Request{Model: mean, Texts: words(1)})
		if n := r.loads(mean); n != 1 {
			t.Errorf("%s: mean was loaded %d times", name, n)
		}
	}
}
