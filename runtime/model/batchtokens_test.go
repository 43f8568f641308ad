package model

import (
	"testing"

	"github.com/sie-engine/sie/runtime/engine"
)

// TestBatchesGrowWithExecutors: a batch has a full slab for each executor of a CPU, and never fewer
// tokens than the model's files say; what the operator says counts as it is.
func TestBatchesGrowWithExecutors(t *testing.T) {
	for _, c := range []struct{ threads, asked, want int }{
		{2, 0, 16384}, {64, 0, 64 * 512}, {64, 4096, 4096},
	} {
		r := start(t, func(o *Options) {
			o.Devices, o.MaxBatchTokens = []engine.Options{{Threads: c.threads}}, c.asked
		}, []string{mean})
		r.encode(&Request{Model: mean, Texts: words(1)})
		if got := r.copy(mean).options.MaxCost; got != c.want {
			t.Errorf("%d threads, %d asked for: batches of %d tokens, want %d", c.threads, c.asked, got,
				c.want)
		}
	}
}
