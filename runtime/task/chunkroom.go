package task

import (
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/batch"
)

// usualFound is what the found results of a window take usually, in bytes. That much of each is not
// counted; a low threshold can make a result of some MiB.
const usualFound = 64 << 10

// chunkRoom asks room for results that a request's answer is made of, not for those in it: of the
// chunks that a job has in memory at a time. Owned by one goroutine.
type chunkRoom struct {
	hold   Hold
	usual  int64 // bytes of each item's results that are not counted
	held   int64
	chunks [chunksAhead]int64 // bytes of the last chunks, in turns
	next   int
	asked  int64 // bytes for which room was asked last, with what is held
}

// add counts the results of a chunk that is queued next. whole is the number of the request's items
// whose results are all before it.
func (r *chunkRoom) add(items []batch.Item, whole int) error {
	bytes, sum := int64(0), int64(0)
	for i := range items {
		one := -r.usual
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
	r.asked = sum
	if err := r.hold(sum-r.held, whole); err != nil {
		return err
	}
	r.held = sum
	return nil
}

// above is add for the found results of windows. field is the option of that value that makes them
// large.
func (r *chunkRoom) above(field string, value float64, items []batch.Item, whole int) error {
	err := r.add(items, whole)
	return tooLow(field, value, r.asked, err)
}

// tooLow returns the error of a Hold that was asked for bytes, which are many because an option has
// that value: where the request can never have them, an error that names the option.
func tooLow(field string, value float64, bytes int64, err error) error {
	if err == nil || errs.As(err).Status != 400 {
		return err
	}
	return errs.Invalidf(field,
		"Field '%s' is %v, and what the model finds above it takes %d bytes at a time, more than there may be: raise it, or send fewer texts or labels",
		field, value, bytes)
}
