package api

import (
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/half"
)

// writer is one of the two encodings of an answer. Every method appends to dst. A container is
// opened with the number of its entries. The caller writes sep before each entry except the first,
// and closes the container.
type writer interface {
	object(dst []byte, n int) []byte
	endObject(dst []byte) []byte
	list(dst []byte, n int) []byte
	endList(dst []byte) []byte
	sep(dst []byte) []byte
	key(dst []byte, k string) []byte
	str(dst []byte, s string) []byte
	int(dst []byte, i int64) []byte
	float(dst []byte, f float64) []byte
	bool(dst []byte, b bool) []byte
	null(dst []byte) []byte
	bytes(dst []byte, b []byte) []byte
	array(dst []byte, a Array) []byte
	sink() *Sink // nil: the answer is written as a whole
}

// mpackWriter writes minimal msgpack as Python's packer does.
type mpackWriter struct{ out *Sink }

func (w mpackWriter) sink() *Sink { return w.out }

func (mpackWriter) object(dst []byte, n int) []byte    { return msgp.AppendMapHeader(dst, uint32(n)) }
func (mpackWriter) endObject(dst []byte) []byte        { return dst }
func (mpackWriter) list(dst []byte, n int) []byte      { return msgp.AppendArrayHeader(dst, uint32(n)) }
func (mpackWriter) endList(dst []byte) []byte          { return dst }
func (mpackWriter) sep(dst []byte) []byte              { return dst }
func (mpackWriter) key(dst []byte, k string) []byte    { return msgp.AppendString(dst, k) }
func (mpackWriter) str(dst []byte, s string) []byte    { return msgp.AppendString(dst, s) }
func (mpackWriter) float(dst []byte, f float64) []byte { return msgp.AppendFloat64(dst, f) }
func (mpackWriter) bool(dst []byte, b bool) []byte     { return msgp.AppendBool(dst, b) }
func (mpackWriter) null(dst []byte) []byte             { return msgp.AppendNil(dst) }
func (mpackWriter) bytes(dst []byte, b []byte) []byte  { return msgp.AppendBytes(dst, b) }

func (mpackWriter) int(dst []byte, i int64) []byte {
	if i >= 0 {
		return msgp.AppendUint64(dst, uint64(i))
	}
	return msgp.AppendInt64(dst, i)
}

// arrayOverhead bounds the bytes that an array takes in msgpack in addition to its data.
const arrayOverhead = 52

// array writes the map that numpy's msgpack decoders expect: its keys are byte strings, in this
// order.
func (w mpackWriter) array(dst []byte, a Array) []byte {
	dst = append(dst, "\x85\xc4\x02nd\xc3\xc4\x04type\xa3"...)
	dst = append(dst, numTypes[a.Type].wire...)
	dst = append(dst, "\xc4\x04kind\xc4\x00\xc4\x05shape"...)
	if a.Rows < 0 {
		dst = append(dst, 0x91)
	} else {
		dst = w.int(append(dst, 0x92), int64(a.Rows))
	}
	dst = w.int(dst, int64(a.Cols))
	dst = append(dst, "\xc4\x04data"...)
	if w.out == nil {
		return msgp.AppendBytes(dst, a.Data)
	}
	dst = msgp.AppendBytesHeader(dst, uint32(len(a.Data)))
	for data := a.Data; len(data) > 0 && !w.out.stopped(); {
		n := min(len(data), flushBytes)
		dst = w.out.flush(append(dst, data[:n]...))
		data = data[n:]
	}
	return dst
}

// jsonWriter writes compact JSON, with non-ASCII characters as UTF-8.
type jsonWriter struct{ out *Sink }

func (w jsonWriter) sink() *Sink { return w.out }

func (jsonWriter) object(dst []byte, _ int) []byte { return append(dst, '{') }
func (jsonWriter) endObject(dst []byte) []byte     { return append(dst, '}') }
func (jsonWriter) list(dst []byte, _ int) []byte   { return append(dst, '[') }
func (jsonWriter) endList(dst []byte) []byte       { return append(dst, ']') }
func (jsonWriter) sep(dst []byte) []byte           { return append(dst, ',') }
func (jsonWriter) key(dst []byte, k string) []byte { return append(AppendJSONString(dst, k), ':') }
func (jsonWriter) str(dst []byte, s string) []byte { return AppendJSONString(dst, s) }
func (jsonWriter) int(dst []byte, i int64) []byte  { return strconv.AppendInt(dst, i, 10) }
func (jsonWriter) bool(dst []byte, b bool) []byte  { return strconv.AppendBool(dst, b) }
func (jsonWriter) null(dst []byte) []byte          { return append(dst, "null"...) }
func (jsonWriter) float(dst []byte, f float64) []byte {
	return AppendJSONFloat(dst, f)
}

func (jsonWriter) bytes(dst []byte, b []byte) []byte { return appendBase64String(dst, b) }

func (w jsonWriter) array(dst []byte, a Array) []byte {
	if a.Rows < 0 {
		return w.row(dst, a.Type, a.Data)
	}
	dst = append(dst, '[')
	stride := a.Cols * a.Type.Size()
	for i := range a.Rows {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = w.out.flush(w.row(dst, a.Type, a.Data[i*stride:(i+1)*stride]))
		if w.out.stopped() {
			break
		}
	}
	return append(dst, ']')
}

func (w jsonWriter) row(dst []byte, t NumType, data []byte) []byte {
	dst = append(dst, '[')
	if w.out == nil {
		return append(w.numbers(dst, t, data), ']')
	}
	for first := 0; first < len(data) && !w.out.stopped(); first += flushBytes {
		if first > 0 {
			dst = append(dst, ',')
		}
		dst = w.out.flush(w.numbers(dst, t, data[first:min(len(data), first+flushBytes)]))
	}
	return append(dst, ']')
}

// numbers appends the elements of data with commas between them.
func (jsonWriter) numbers(dst []byte, t NumType, data []byte) []byte {
	size := t.Size()
	dst = slices.Grow(dst, len(data)/size*jsonNumberSize[t])
	for i := 0; i+size <= len(data); i += size {
		if i > 0 {
			dst = append(dst, ',')
		}
		b := data[i : i+size]
		switch t {
		case Float32:
			dst = appendFloat32(dst, math.Float32frombits(le32(b)))
		case Float16:
			dst = appendFloat32(dst, half.ToFloat32(uint16(b[0])|uint16(b[1])<<8))
		case Int8:
			dst = strconv.AppendInt(dst, int64(int8(b[0])), 10)
		case Uint8:
			dst = strconv.AppendUint(dst, uint64(b[0]), 10)
		case Int32:
			dst = strconv.AppendInt(dst, int64(int32(le32(b))), 10)
		}
	}
	return dst
}

// jsonNumberSize is the usual length of a number with its comma; the buffer grows once by it.
var jsonNumberSize = [...]int{Float32: 23, Float16: 20, Int8: 5, Uint8: 4, Int32: 8}

func le32(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

// AppendJSONString appends s as a JSON string. It escapes only what JSON requires; bytes that are
// not UTF-8 become U+FFFD.
func AppendJSONString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, s[start:i]...), "\ufffd"...)
				start = i + 1
			}
			i += n
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}
