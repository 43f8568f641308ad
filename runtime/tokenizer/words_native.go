//go:build native

package tokenizer

/*
#include "sietok.h"
#cgo noescape sietok_words
#cgo nocallback sietok_words
*/
import "C"

import (
	"math"
	"unsafe"
)

// words encodes the items of a chunk into dst, which is empty. The caller holds t.mu for reading,
// and t is open.
func (t *Tokenizer) words(dst *WordBatch, items []Words, c wordChunk, opt WordOptions, stop *uint32) error {
	count := c.to - c.from
	text := make([]byte, 0, c.bytes)
	offsets := append(make([]C.uint64_t, 0, c.words+1), 0)
	starts := append(make([]C.uint64_t, 0, count+1), 0)
	given := make([]int32, 0, c.words)
	for _, item := range items[c.from:c.to] {
		for i, word := range item.Texts {
			text = append(text, word...)
			offsets = append(offsets, C.uint64_t(len(text)))
			mark := int32(-1)
			if item.Marks != nil {
				mark = item.Marks[i]
			}
			given = append(given, mark)
		}
		starts = append(starts, C.uint64_t(len(given)))
	}
	o := C.sietok_options{
		max_tokens: C.uint64_t(max(opt.MaxTokens, 0)),
		max_whole:  MaxWholeBytes,
		flags:      t.flags(input{}, Options{NoSpecial: opt.NoSpecial}),
	}
	dst.Ends = make([]int32, count)
	cut := make([]C.uint8_t, count)
	var (
		p       C.sietok_progress
		message [512]byte
	)
	room := c.words*2 + c.bytes/4 + count*8
	for {
		ids, words := make([]int32, room), make([]int32, room)
		copy(ids, dst.IDs)
		copy(words, dst.Words)
		C.sietok_words(t.lib.model, (*C.uint8_t)(unsafe.SliceData(text)), unsafe.SliceData(offsets),
			(*C.int32_t)(unsafe.SliceData(given)), unsafe.SliceData(starts), C.size_t(count),
			(*C.int32_t)(unsafe.SliceData(opt.Reserved)), C.size_t(len(opt.Reserved)), &o,
			(*C.int32_t)(unsafe.SliceData(ids)), (*C.int32_t)(unsafe.SliceData(words)), C.size_t(room),
			(*C.int32_t)(unsafe.SliceData(dst.Ends)), unsafe.SliceData(cut), &p, (*C.uint32_t)(stop),
			(*C.uint8_t)(&message[0]), C.size_t(len(message)))
		dst.IDs, dst.Words = ids[:p.ids], words[:p.ids]
		if p.code != C.SIETOK_OK {
			err := failure(int(p.code), Options{MaxTokens: opt.MaxTokens}, string(message[:p.message_len]))
			if err == errStopped {
				return err
			}
			return &TextError{c.from + int(p.done), err}
		}
		if p.need == 0 {
			break
		}
		if int(p.ids)+int(p.need) > math.MaxInt32 {
			return &TextError{c.from + int(p.done), errTooMany}
		}
		// Make room for the item that did not fit, and for the rest at the rate seen so far.
		rest := (count - int(p.done)) * (int(p.ids)/max(int(p.done), 1) + 1)
		room = int(p.ids) + int(p.need) + rest
	}
	for _, c := range cut {
		dst.Truncated = append(dst.Truncated, c != 0)
	}
	return nil
}
