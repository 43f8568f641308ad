package task

import (
	"slices"

	"github.com/sie-engine/sie/runtime/batch"
)

// share makes the ids with which all items of a request begin their prefix, where batches of the
// variant take maxTokens tokens of prefixes. Which ids these are is read off the ids of the first
// items, so that it does not matter how the prompt was tokenised; an item of a later chunk that
// begins otherwise, or is for the program of longer texts, keeps all its ids. Every item keeps one
// of its own. Results do not depend on it, in any bit.
func (r *run) share(items []batch.Item, maxTokens int) {
	longest := r.use.Weights().ShortLen
	if r.shared == nil {
		r.shared = &batch.Prefix{IDs: commonStart(items, longest, maxTokens)}
	}
	common := r.shared.IDs
	if len(common) == 0 {
		return
	}
	for i := range items {
		it := &items[i]
		n := len(common)
		if len(it.IDs) > n && len(it.IDs) <= longest && slices.Equal(it.IDs[:n], common) {
			it.Prefix, it.IDs = r.shared, it.IDs[n:]
		}
	}
}

// commonStart returns the ids, at most maxTokens, with which the items of at most longest tokens
// begin before their last one; none for fewer than two such items.
func commonStart(items []batch.Item, longest, maxTokens int) []int32 {
	var common []int32
	n := 0
	for _, it := range items {
		if len(it.IDs) > longest || len(it.IDs) == 0 {
			continue
		}
		before := it.IDs[:len(it.IDs)-1]
		if n++; n == 1 {
			common = before[:min(len(before), maxTokens)]
			continue
		}
		same := 0
		for same < min(len(common), len(before)) && common[same] == before[same] {
			same++
		}
		common = common[:same]
	}
	if n < 2 {
		return nil
	}
	return slices.Clone(common)
}
