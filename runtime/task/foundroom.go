package task

import (
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/batch"
)

// usualFound is what the found results of a window take usually, in bytes. That much of each is not
// counted; a low threshold can make a result of some MiB.
const usualFound = 64 << 10

// foundRoom asks room for the found results of a request's windows: those of the chunks that a job
// has in memory at a time. Owned by one goroutine.
type foundRoom struct {
	hold   Hold
	held   int64
	chunks [chunksAhead]int64 // bytes of the last chunks, in turns
	next   int
}

// add counts the results of a chunk that is queued next. whole is the number of the request's items
// whose windows are all before it. field is the option of that value that makes results large.
func (r *foundRoom) add(items []batch.Item, whole int, field string, value float64) error {
	bytes, sum := int64(0), int64(0)
	for i := range items {
		one := int64(-usualFound)
		for _, spec := range items[i].Specs {
			one += int64(spec.Bytes)
		}
		bytes += max(0, one)
	}
	r.chunks[r.next] = bytes
	r.next = (r.next + 1) % chunksAhead
	for _, n := range r.chunks {
		sum += n
	}
	if sum <= r.held {
		return nil
	}
	if err := r.hold(sum-r.held, whole); err != nil {
		if errs.As(err).Status == 400 {
			return errs.Invalidf(field,
				"Field '%s' is %v, and what the model finds above it takes %d bytes at a time, more than there may be: raise it, or send fewer texts or labels",
				field, value, sum)
		}
		return err
	}
	r.held = sum
	return nil
}
