package arch

import (
	"testing"

	"github.com/sie-engine/sie/runtime/engine"
)

func TestTokensFor(t *testing.T) {
	for _, c := range []struct {
		kind                  engine.Kind
		threads, tokens, want int
	}{
		{engine.CPU, 1, 0, DefaultMaxTokens},
		{engine.CPU, 2, 16384, 16384},
		{engine.CPU, 4, 8192, 8192},
		{engine.CPU, 32, 0, DefaultMaxTokens},
		{engine.CPU, 33, 0, 33 * 512},
		{engine.CPU, 64, 8192, 32768},
		{engine.CPU, 128, 1 << 20, 1 << 20},
		{engine.CPU, 1024, 0, 524288},
		{engine.CUDA, 1, 0, DefaultMaxTokens},
		{engine.CUDA, 64, 8192, 8192},
		{engine.Ref, 1, 0, DefaultMaxTokens},
	} {
		if got := TokensFor(engine.Info{Kind: c.kind, Threads: c.threads}, c.tokens); got != c.want {
			t.Errorf("%v, %d threads, %d tokens: %d, want %d", c.kind, c.threads, c.tokens, got, c.want)
		}
	}
}
