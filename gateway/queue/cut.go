package queue

import (
	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/work"
)

// maxResultBytes bounds what the results of a slice are expected to take.
const maxResultBytes = 32 << 20

// minSpread is the least number of items of a slice that is made small to occupy more workers.
const minSpread = 8

// free returns how many of the workers that have a model the open requests leave without work, if
// each of those has whole slices: a request is cut small for these alone. Where all are busy, small
// slices would only make batches that are not full. A nil line has no open requests.
func (l *line) free(workers int) int {
	if l == nil {
		return workers
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(workers-(l.unanswered+l.share.Waiting()+work.MaxItems-1)/work.MaxItems, 1)
}

// cut splits a request's items into slices: as many as occupy so many workers, within the bounds on
// items, bytes and expected results. result is what the results of an item are expected to take,
// nil for little. A slice with its query and options (extra bytes) above limit leaves its items in
// the payload store.
func cut(items []msgp.Raw, workers, extra, limit int, result func(i int) int) []slice {
	n := len(items)
	most := (n + max(workers, 1) - 1) / max(workers, 1)
	most = min(max(most, minSpread), work.MaxItems)
	count := (n + most - 1) / most
	out := make([]slice, 0, count)
	for first := 0; first < n; {
		end, bytes, expected := first, 0, 0
		for end < n && end-first < most {
			b, e := len(items[end]), 0
			if result != nil {
				e = result(end)
			}
			if end > first && (bytes+b > work.MaxSliceBytes || expected+e > maxResultBytes) {
				break
			}
			bytes, expected = bytes+b, expected+e
			end++
		}
		s := slice{first: first, end: end, bytes: bytes + extra + maxHeadroom}
		s.offload = s.bytes > limit
		out = append(out, s)
		first = end
	}
	return out
}
