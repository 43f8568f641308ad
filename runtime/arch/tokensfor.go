package arch

import (
	"cmp"

	"github.com/sie-engine/sie/runtime/engine"
)

// slabTokens is the number of tokens of a full slab, which an executor computes alone
// (slab_tokens_max in csrc/program.h). With fewer it reads the weights for fewer.
const slabTokens = 512

// TokensFor returns how many tokens a batch may have on a device: `tokens`, or DefaultMaxTokens if
// it is 0, and on a CPU of many executors as many as give each a full slab. Up to 32 executors
// DefaultMaxTokens is as many.
func TokensFor(info engine.Info, tokens int) int {
	tokens = cmp.Or(tokens, DefaultMaxTokens)
	if info.Kind != engine.CPU {
		return tokens
	}
	return max(tokens, slabTokens*info.Threads)
}
