package task

import (
	"slices"

	"github.com/sie-engine/sie/runtime/batch"
)

// share makes the ids with which all items of a chunk begin their prefix, where batches of the
// variant take maxTokens tokens of prefixes. Which ids these are is read off the ids, so that it
// does not matter how the prompt was tokenised. The items of a later chunk have the prefix of the
// one before if all begin with it. An item for the program of longer texts keeps all its ids, and
// every item one of its own. Results do not depend on it, in any bit.
func (r *run) share(items []batch.Item, maxTokens int) {
	longest := r.use.Weights().ShortLen
	isShort := func(it *batch.Item) bool { return len(it.IDs) > 0 && len(it.IDs) <= longest }
	begins := func(it *batch.Item) bool {
		n := len(r.shared.IDs)
		return n > 0 && len(it.IDs) > n && slices.Equal(it.IDs[:n], r.shared.IDs)
	}
	for i := range items {
		if it := &items[i]; r.shared == nil || isShort(it) && !begins(it) {
			r.shared = &batch.Prefix{IDs: commonStart(items, longest, maxTokens)}
			break
		}
	}
	for i := range items {
		if it := &items[i]; isShort(it) && begins(it) {
			it.Prefix, it.IDs = r.shared, it.IDs[len(r.shared.IDs):]
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
