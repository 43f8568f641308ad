//go:build native

package tokenizer

/*
#include "sietok.h"

// sietok_decoded is sietok_decode, but gives NULL for an empty text. The library's address of one
// is 1, and Go ends the process when it moves a stack on which such a pointer lies.
static inline uint8_t *sietok_decoded(const sietok *model, const uint32_t *ids, size_t len,
                                      bool skip_special, size_t *out_len, int32_t *code) {
  uint8_t *text = sietok_decode(model, ids, len, skip_special, out_len, code);
  if (*out_len == 0) {
    sietok_free_text(text, 0);
    text = NULL;
  }
  return text;
}
#cgo noescape sietok_encode
#cgo nocallback sietok_encode
#cgo noescape sietok_token_id
#cgo nocallback sietok_token_id
#cgo noescape sietok_new
#cgo nocallback sietok_new
#cgo noescape sietok_refine
#cgo nocallback sietok_refine
#cgo nocallback sietok_decoded
#cgo nocallback sietok_free
#cgo nocallback sietok_free_text
*/
import "C"

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"unsafe"
)

// LibSum returns the sha256 of the linked library. So a binary with a rebuilt library is a changed
// binary.
func LibSum() string { return libSum }

var errTooMany = errors.New("more than 2147483647 tokens in one call")

// library is the Rust object; the zero value is closed.
type library struct {
	model *C.sietok
}

func (l library) open() bool { return l.model != nil }
func (l library) free()      { C.sietok_free(l.model) }

// newLibrary parses tokenizer.json. bert replaces the flags of a BertNormalizer, if it is not nil.
func newLibrary(json []byte, bert *bertFlags) (library, info, error) {
	lower, chinese, strip := C.int8_t(-1), C.int8_t(-1), C.int8_t(-1)
	if bert != nil {
		lower, chinese = flag(bert.lowercase), flag(bert.chinese)
		if bert.stripAccents != nil {
			strip = flag(*bert.stripAccents)
		}
	}
	var (
		in      C.sietok_info
		message [512]byte
		n       C.uint32_t
	)
	model := C.sietok_new((*C.uint8_t)(unsafe.SliceData(json)), C.size_t(len(json)), lower, chinese, strip,
		&in, (*C.uint8_t)(&message[0]), C.size_t(len(message)), &n)
	if model == nil {
		return library{}, info{}, errors.New(string(message[:n]))
	}
	return library{model}, info{
		vocabSize:    int(in.vocab_size),
		specials:     int(in.specials),
		pairSpecials: int(in.pair_specials),
		streaming:    in.streaming != 0,
		cuttable:     in.cuttable != 0,
	}, nil
}

// refine completes a library that nothing uses yet; json is what it was made of.
func (l library) refine(json []byte, r refinement) error {
	flags := C.uint32_t(0)
	if r.literal {
		flags |= C.SIETOK_LITERAL
	}
	if r.exact && modelKind(json) == "Unigram" {
		flags |= C.SIETOK_EXACT
	}
	if flags == 0 {
		return nil
	}
	var (
		message [512]byte
		n       C.uint32_t
	)
	if C.sietok_refine(l.model, (*C.uint8_t)(unsafe.SliceData(json)), C.size_t(len(json)), flags,
		(*C.uint8_t)(&message[0]), C.size_t(len(message)), &n) != C.SIETOK_OK {
		return errors.New(string(message[:n]))
	}
	return nil
}

func flag(b bool) C.int8_t {
	if b {
		return 1
	}
	return 0
}

func (l library) tokenID(token string) (int32, bool) {
	id := C.sietok_token_id(l.model, (*C.uint8_t)(unsafe.StringData(token)), C.size_t(len(token)))
	return int32(id), id >= 0
}

func (l library) decode(ids []int32, skipSpecial bool) (string, error) {
	text, n, code := l.decoded(ids, skipSpecial)
	s := ""
	if text != nil {
		s = string(unsafe.Slice((*byte)(text), int(n)))
		C.sietok_free_text(text, n)
	}
	if code != C.SIETOK_OK {
		return "", fmt.Errorf("tokenizer: decode: %s", s)
	}
	return s, nil
}

// decoded returns the library's text, which the caller frees; nil for an empty one.
func (l library) decoded(ids []int32, skipSpecial bool) (text *C.uint8_t, n C.size_t, code C.int32_t) {
	text = C.sietok_decoded(l.model, (*C.uint32_t)(unsafe.Pointer(unsafe.SliceData(ids))), C.size_t(len(ids)),
		C.bool(skipSpecial), &n, &code)
	return text, n, code
}

// arena holds the texts of a chunk end to end.
type arena struct {
	text    []byte
	offsets []C.uint64_t
	cut     []C.uint8_t
}

var arenas = sync.Pool{New: func() any { return new(arena) }}

// encode appends texts [from, to) to dst. The caller holds t.mu for reading, and t is open.
func (t *Tokenizer) encode(dst *Batch, in input, from, to int, opt Options, stop *uint32) error {
	a := arenas.Get().(*arena)
	defer func() {
		if cap(a.text) <= maxKept {
			arenas.Put(a)
		}
	}()
	count := to - from
	text := a.fill(in, from, to)
	bytes := int(a.offsets[len(a.offsets)-1])
	if cap(a.cut) < count {
		a.cut = make([]C.uint8_t, count)
	}
	a.cut = a.cut[:count]
	clear(a.cut)

	o := C.sietok_options{
		max_tokens: C.uint64_t(max(opt.MaxTokens, 0)),
		max_whole:  opt.maxWhole(),
		piece:      C.uint64_t(opt.piece),
		flags:      t.flags(in, opt),
	}
	guess := bytes/3 + count*8
	if opt.MaxTokens > 0 && opt.MaxTokens < guess/count {
		guess = count * opt.MaxTokens
	}
	base, texts := len(dst.IDs), len(dst.Ends)
	dst.IDs = grow(dst.IDs, guess)
	dst.Ends = grow(dst.Ends, count)[:texts+count]
	var (
		p       C.sietok_progress
		message [512]byte
	)
	for {
		types := (*C.int32_t)(nil)
		if in.second != nil {
			dst.TypeIDs = grow(dst.TypeIDs, cap(dst.IDs)-len(dst.TypeIDs))
			types = (*C.int32_t)(unsafe.SliceData(dst.TypeIDs[base:cap(dst.TypeIDs)]))
		}
		room := dst.IDs[base:cap(dst.IDs)]
		C.sietok_encode(t.lib.model, text, unsafe.SliceData(a.offsets), C.size_t(count), &o,
			(*C.int32_t)(unsafe.SliceData(room)), types, C.size_t(len(room)),
			(*C.int32_t)(unsafe.SliceData(dst.Ends[texts:])), unsafe.SliceData(a.cut),
			&p, (*C.uint32_t)(stop), (*C.uint8_t)(&message[0]), C.size_t(len(message)))
		written := base + int(p.ids)
		if p.need == 0 || p.code != C.SIETOK_OK {
			break
		}
		if written+int(p.need) > math.MaxInt32 {
			return &TextError{from + int(p.done), errTooMany}
		}
		// Make room for the rest at the rate seen so far, and for the text that did not fit.
		rest := (count - int(p.done)) * (int(p.ids)/max(int(p.done), 1) + 1)
		if opt.MaxTokens > 0 {
			rest = min(rest, count*opt.MaxTokens)
		}
		dst.IDs = grow(dst.IDs[:written], int(p.need)+rest)
		if in.second != nil {
			dst.TypeIDs = dst.TypeIDs[:written]
		}
	}
	if p.code != C.SIETOK_OK {
		err := failure(int(p.code), opt, string(message[:p.message_len]))
		if err == errStopped {
			return err
		}
		return &TextError{from + int(p.done), err}
	}
	written := base + int(p.ids)
	if written > math.MaxInt32 {
		return &TextError{to - 1, errTooMany}
	}
	dst.IDs = dst.IDs[:written]
	if in.second != nil {
		dst.TypeIDs = dst.TypeIDs[:written]
	}
	for i := range dst.Ends[texts:] {
		dst.Ends[texts+i] += int32(base)
	}
	for _, c := range a.cut {
		dst.Truncated = append(dst.Truncated, c != 0)
	}
	return nil
}

// The Go slice of spans is passed to C without conversion, so both structs must have one size.
var (
	_ [unsafe.Sizeof(C.sietok_place{}) - unsafe.Sizeof(TokenSpan{})]struct{}
	_ [unsafe.Sizeof(TokenSpan{}) - unsafe.Sizeof(C.sietok_place{})]struct{}
)

// encodeSpans tokenizes one text. The caller holds t.mu for reading, and t is open.
func (t *Tokenizer) encodeSpans(
	text string, opt Options, stop *uint32,
) (tokens []TokenSpan, cut bool, err error) {
	o := C.sietok_options{
		max_tokens: C.uint64_t(max(opt.MaxTokens, 0)),
		max_whole:  opt.maxWhole(),
		piece:      C.uint64_t(opt.piece),
		flags:      t.flags(input{}, opt),
	}
	room := len(text)/3 + 8
	if opt.MaxTokens > 0 {
		room = min(room, opt.MaxTokens)
	}
	for {
		var (
			p       C.sietok_progress
			wasCut  C.uint8_t
			message [512]byte
		)
		tokens = make([]TokenSpan, room)
		C.sietok_places(t.lib.model, (*C.uint8_t)(unsafe.StringData(text)), C.size_t(len(text)), &o,
			(*C.sietok_place)(unsafe.Pointer(unsafe.SliceData(tokens))), C.size_t(len(tokens)), &wasCut, &p,
			(*C.uint32_t)(stop), (*C.uint8_t)(&message[0]), C.size_t(len(message)))
		switch {
		case p.code != C.SIETOK_OK:
			return nil, false, failure(int(p.code), opt, string(message[:p.message_len]))
		case p.need == 0:
			return tokens[:p.ids], wasCut != 0, nil
		}
		room = int(p.need)
	}
}

// fill lays out texts [from, to) end to end and returns their address. A single text is not copied.
func (a *arena) fill(in input, from, to int) *C.uint8_t {
	a.text, a.offsets = a.text[:0], append(a.offsets[:0], 0)
	if to-from == 1 && in.second == nil {
		s := in.texts[from]
		a.offsets = append(a.offsets, C.uint64_t(len(s)))
		return (*C.uint8_t)(unsafe.StringData(s))
	}
	for i := from; i < to; i++ {
		a.text = append(a.text, in.texts[i]...)
		a.offsets = append(a.offsets, C.uint64_t(len(a.text)))
		if in.second != nil {
			a.text = append(a.text, in.second[i]...)
			a.offsets = append(a.offsets, C.uint64_t(len(a.text)))
		}
	}
	return (*C.uint8_t)(unsafe.SliceData(a.text))
}

// maxWhole returns how many bytes the library may take at once. It is larger for tests that forbid
// cuts.
func (o Options) maxWhole() C.uint64_t {
	if o.whole {
		return 64 << 20
	}
	return MaxWholeBytes
}

func (t *Tokenizer) flags(in input, opt Options) C.uint32_t {
	f := C.uint32_t(0)
	set := func(on bool, bit C.uint32_t) {
		if on {
			f |= bit
		}
	}
	set(!opt.NoSpecial, C.SIETOK_SPECIAL)
	set(in.second != nil, C.SIETOK_PAIR)
	set(t.left || opt.Left, C.SIETOK_LEFT)
	set(opt.OnlySecond, C.SIETOK_SECOND)
	set(opt.OnlyFirst, C.SIETOK_FIRST)
	set(opt.general || t.literal, C.SIETOK_GENERAL)
	set(opt.whole, C.SIETOK_WHOLE)
	return f
}

func failure(code int, opt Options, message string) error {
	switch code {
	case C.SIETOK_TOO_LONG:
		return fmt.Errorf("%w within %s bytes; break it with spaces, or shorten it", ErrTooLong, message)
	case C.SIETOK_STOPPED:
		return errStopped
	case C.SIETOK_NO_ROOM:
		return fmt.Errorf("%w: %d allowed, %s needed", ErrNoRoom, opt.MaxTokens, message)
	}
	return errors.New(message)
}
