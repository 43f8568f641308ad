package weights

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"unicode/utf8"
)

// The bounds of a header. The first is the format's own. The others keep the memory that a hostile
// header can claim within a few times its own size, and are far above what published models use.
const (
	maxHeaderBytes = 100_000_000
	maxTensors     = 1 << 20 // per file
	maxRank        = 64
)

const metadataKey = "__metadata__"

// lengthBytes is the size of the little-endian header length that every file starts with.
const lengthBytes = 8

// entry is one tensor of a header, checked. begin and end are byte offsets into the data section.
type entry struct {
	name       string
	dtype      DType
	shape      []int64
	begin, end int64
}

// header is the parsed and checked header of one safetensors file.
type header struct {
	entries   []entry           // in order of their data, which they cover without overlap or hole
	metadata  map[string]string // __metadata__; nil when absent
	dataStart int64             // file offset of the data section
}

// readHeader reads and checks the header of a file of size bytes. It copies the header before it
// parses, so that a concurrent write to the file cannot change what was checked.
func readHeader(r io.ReaderAt, size int64, file string) (*header, error) {
	fail := func(field, format string, args ...any) (*header, error) {
		return nil, &FormatError{File: file, Field: field, Reason: fmt.Sprintf(format, args...)}
	}
	if size < lengthBytes {
		return fail("file", "%d bytes is too short for a safetensors file; download it again", size)
	}
	var length [lengthBytes]byte
	if err := readFull(r, length[:], 0); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	if bytes.Equal(length[:], []byte("version ")) {
		return fail("file", "is a git-lfs pointer, not the weights; run `git lfs pull` in that repository")
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeaderBytes {
		return fail("header length", "%d is above the limit of %d bytes; this is not a safetensors file",
			n, maxHeaderBytes)
	}
	if int64(n) > size-lengthBytes {
		return fail("header length", "%d bytes, but only %d follow; the file is cut short, download it again",
			n, size-lengthBytes)
	}
	raw := make([]byte, n)
	if err := readFull(r, raw, lengthBytes); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	h, err := parseHeader(raw, size-lengthBytes-int64(n))
	if err != nil {
		var fe *FormatError
		if !errors.As(err, &fe) {
			fe = &FormatError{Field: "header", Reason: err.Error()}
		}
		fe.File = file
		return nil, fe
	}
	h.dataStart = lengthBytes + int64(n)
	return h, nil
}

// readFull fills p from offset. A short file is an error even where ReadAt reports a bare end of
// file.
func readFull(r io.ReaderAt, p []byte, offset int64) error {
	n, err := r.ReadAt(p, offset)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// parseHeader parses the JSON of a header whose data section holds dataBytes bytes. Errors are
// *FormatError without a file, or plain for broken JSON. On error the header is nil.
func parseHeader(raw []byte, dataBytes int64) (*header, error) {
	// The format requires '{' first, so that a reader can tell a header from other data without a
	// JSON parser.
	if len(raw) == 0 || raw[0] != '{' {
		return nil, errors.New("does not begin with '{'; this is not a safetensors file")
	}
	if !utf8.Valid(raw) {
		return nil, errors.New("is not valid UTF-8")
	}
	h := &header{}
	seen := make(map[string]struct{})
	s := &scanner{data: raw}
	err := s.object(func(key string) error {
		if _, dup := seen[key]; dup {
			return &FormatError{Tensor: key, Field: "name", Reason: "occurs twice in the header"}
		}
		seen[key] = struct{}{}
		if key == metadataKey {
			return s.metadata(h)
		}
		if len(h.entries) == maxTensors {
			return fmt.Errorf("more than %d tensors", maxTensors)
		}
		e, err := s.entry(key)
		if err != nil {
			return err
		}
		h.entries = append(h.entries, e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := s.end(); err != nil {
		return nil, err
	}
	if err := h.checkCover(dataBytes); err != nil {
		return nil, err
	}
	return h, nil
}

// metadata reads the value of __metadata__: an object of strings.
func (s *scanner) metadata(h *header) error {
	h.metadata = make(map[string]string)
	return s.object(func(key string) error {
		if _, dup := h.metadata[key]; dup {
			return &FormatError{Field: metadataKey, Reason: fmt.Sprintf("key %s occurs twice", quoted(key))}
		}
		s.space()
		value, err := s.str()
		if err != nil {
			return &FormatError{Field: metadataKey, Reason: fmt.Sprintf("key %s: %v", quoted(key), err)}
		}
		h.metadata[key] = value
		return nil
	})
}

// entry reads the description of one tensor and checks that its type, shape and length agree.
func (s *scanner) entry(name string) (entry, error) {
	fail := func(field, format string, args ...any) error {
		return &FormatError{Tensor: name, Field: field, Reason: fmt.Sprintf(format, args...)}
	}
	e := entry{name: name, shape: []int64{}}
	var offsets []int64
	var haveDType, haveShape, haveOffsets bool
	err := s.object(func(key string) (err error) {
		var have *bool
		switch key {
		case "dtype":
			have = &haveDType
		case "shape":
			have = &haveShape
		case "data_offsets":
			have = &haveOffsets
		default:
			return fail(quoted(key), "unknown key; a tensor has dtype, shape and data_offsets")
		}
		if *have {
			return fail(key, "occurs twice")
		}
		*have = true
		switch key {
		case "dtype":
			var text string
			s.space()
			text, err = s.str()
			e.dtype = DType(text)
		case "shape":
			e.shape, err = s.naturals(e.shape, maxRank)
		case "data_offsets":
			offsets, err = s.naturals(nil, 2)
		}
		if err != nil {
			return fail(key, "%v", err)
		}
		return nil
	})
	var fe *FormatError
	switch {
	case errors.As(err, &fe):
		return e, err
	case err != nil:
		return e, fail("", "%v", err)
	case !haveDType:
		return e, fail("dtype", "missing")
	case !haveShape:
		return e, fail("shape", "missing")
	case !haveOffsets:
		return e, fail("data_offsets", "missing")
	case e.dtype.Bits() == 0:
		return e, fail("dtype", "unknown type %s", quoted(string(e.dtype)))
	case len(offsets) != 2:
		return e, fail("data_offsets", "want [begin, end], found %d numbers", len(offsets))
	case offsets[0] > offsets[1]:
		return e, fail("data_offsets", "begin %d is after end %d", offsets[0], offsets[1])
	}
	e.begin, e.end = offsets[0], offsets[1]
	size, ok := tensorBytes(e.dtype, e.shape)
	if !ok {
		return e, fail("shape", "%v of %s is too large, or does not fill whole bytes", e.shape, e.dtype)
	}
	if size != e.end-e.begin {
		return e, fail("data_offsets", "span %d bytes, but shape %v of %s needs %d",
			e.end-e.begin, e.shape, e.dtype, size)
	}
	return e, nil
}

// tensorBytes returns the size of a tensor in bytes, or false when it overflows or is not a whole
// number of bytes. An overflow of the bit count is refused even where a later dimension is 0, so
// that other readers need no special case.
func tensorBytes(d DType, shape []int64) (int64, bool) {
	bits := d.Bits()
	for _, dim := range shape {
		if dim != 0 && bits > math.MaxInt64/dim {
			return 0, false
		}
		bits *= dim
	}
	return bits / 8, bits%8 == 0
}

// checkCover sorts the entries by their offsets and checks that they cover the data section: each
// begins where the one before ends, and the last ends with the file.
func (h *header) checkCover(dataBytes int64) error {
	slices.SortStableFunc(h.entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end))
	})
	var next int64
	for _, e := range h.entries {
		fail := func(format string, args ...any) error {
			return &FormatError{Tensor: e.name, Field: "data_offsets", Reason: fmt.Sprintf(format, args...)}
		}
		switch {
		case e.begin < next:
			return fail("[%d, %d) overlaps another tensor, which ends at %d", e.begin, e.end, next)
		case e.begin > next:
			return fail("[%d, %d) leaves a hole after byte %d", e.begin, e.end, next)
		case e.end > dataBytes:
			return fail(
				"[%d, %d) ends outside the file, which holds %d bytes of data; it is cut short, download it again",
				e.begin, e.end, dataBytes)
		}
		next = e.end
	}
	if next != dataBytes {
		return &FormatError{
			Field: "file", Reason: fmt.Sprintf("%d bytes of data after the last tensor", dataBytes-next),
		}
	}
	return nil
}
