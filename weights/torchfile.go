package weights

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/bits"
	"path/filepath"
	"slices"
	"strings"
)

// The torch.save files that Open falls back to.
const (
	TorchFile      = "pytorch_model.bin"
	TorchIndexFile = "pytorch_model.bin.index.json"
)

// copyFactor bounds the bytes read for tensors that are not row-major, as a multiple of the file
// size. The three parts of a fused projection, cut by columns, read it three times.
const copyFactor = 4

var torchExtensions = []string{".bin", ".pt", ".pth", ".ckpt"}

// isTorch reports whether the name is that of a torch file.
func isTorch(name string) bool {
	return slices.Contains(torchExtensions, strings.ToLower(filepath.Ext(name)))
}

// torchEntry is one tensor of a torch file. Its elements are the bytes [begin, end) of the file, or
// data where they are not row-major in the file.
type torchEntry struct {
	name       string
	dtype      DType
	shape      []int64
	begin, end int64
	data       []byte
}

// readTorch reads the tensors of a torch.save file (PyTorch 1.6 or later), sorted by name. It runs
// nothing that the file names. On error the result is nil; a file that breaks the format gives a
// *FormatError.
func readTorch(r io.ReaderAt, size int64, file string) ([]torchEntry, error) {
	entries, err := parseTorch(r, size)
	if err != nil {
		var fe *FormatError
		switch {
		case errors.As(err, &fe):
			fe.File = file
			return nil, fe
		default:
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
	}
	return entries, nil
}

func parseTorch(r io.ReaderAt, size int64) ([]torchEntry, error) {
	if err := checkTorchMagic(r, size); err != nil {
		return nil, err
	}
	members, err := readZip(r, size)
	if err != nil {
		return nil, err
	}
	prefix, err := torchPrefix(members)
	if err != nil {
		return nil, err
	}
	if order, ok := members[prefix+"byteorder"]; ok {
		if raw, err := readMember(r, order, 16); err != nil {
			return nil, err
		} else if string(raw) != "little" {
			return nil, &FormatError{
				Field:  "byteorder",
				Reason: fmt.Sprintf("is %s; only little-endian files are read", quoted(string(raw))),
			}
		}
	}
	raw, err := readMember(r, members[prefix+"data.pkl"], maxPickleBytes)
	if err != nil {
		return nil, err
	}
	value, err := unpickle(raw)
	if err != nil {
		return nil, pickleError(err)
	}
	found, err := tensorViews(value)
	if err != nil {
		return nil, pickleError(err)
	}
	copies := copyFactor * size
	var entries []torchEntry
	for _, name := range slices.Sorted(maps.Keys(found)) {
		e, err := found[name].entry(r, members, prefix, &copies)
		if err != nil {
			var fe *FormatError
			if errors.As(err, &fe) {
				fe.Tensor = name
			}
			return nil, err
		}
		e.name = name
		entries = append(entries, e)
	}
	return entries, nil
}

// pickleError turns an error of the pickle into a FormatError.
func pickleError(err error) error {
	var fe *FormatError
	if errors.As(err, &fe) {
		return fe
	}
	return &FormatError{Field: "data.pkl", Reason: err.Error()}
}

// checkTorchMagic tells an archive from the other kinds of files that have a torch file's name.
func checkTorchMagic(r io.ReaderAt, size int64) error {
	fail := func(format string, args ...any) error {
		return &FormatError{Field: "file", Reason: fmt.Sprintf(format, args...)}
	}
	head := make([]byte, min(size, 16))
	if err := readFull(r, head, 0); err != nil {
		return err
	}
	switch {
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		return nil
	case bytes.HasPrefix(head, []byte("version ")):
		return fail("is a git-lfs pointer, not the weights; run `git lfs pull` in that repository")
	case len(head) > 0 && head[0] == 0x80:
		return fail(
			"is a pickle of PyTorch before 1.6, whose format is not read; load it and save it again with a newer PyTorch")
	}
	return fail("%d bytes that are not an archive of torch.save; download it again", size)
}

// torchPrefix returns the folder of data.pkl inside the archive, with a slash at the end.
func torchPrefix(members map[string]member) (string, error) {
	var prefix string
	for name := range members {
		folder, ok := strings.CutSuffix(name, "/data.pkl")
		if !ok || strings.Contains(folder, "/") {
			continue
		}
		if prefix != "" {
			return "", &FormatError{Field: "zip directory", Reason: "has more than one data.pkl"}
		}
		prefix = folder + "/"
	}
	if prefix == "" {
		return "", &FormatError{
			Field: "zip directory", Reason: "has no data.pkl; this archive is not of torch.save",
		}
	}
	if _, script := members[prefix+"constants.pkl"]; script {
		return "", &FormatError{
			Field: "zip directory", Reason: "is a TorchScript program; save the model's state_dict instead",
		}
	}
	return prefix, nil
}

func readMember(r io.ReaderAt, m member, limit int64) ([]byte, error) {
	begin, end, err := m.locate()
	if err != nil {
		return nil, err
	}
	if end-begin > limit {
		return nil, &FormatError{
			Field:  quoted(m.Name),
			Reason: fmt.Sprintf("has %d bytes; at most %d are possible", end-begin, limit),
		}
	}
	raw := make([]byte, end-begin)
	return raw, readFull(r, raw, begin)
}

// entry checks a view against its storage and returns where its elements lie. A view that is not
// row-major is copied. copies is the number of bytes that may still be read for copies; it is
// needed because many views may share one storage.
func (v tensorView) entry(
	r io.ReaderAt, members map[string]member, prefix string, copies *int64,
) (torchEntry, error) {
	fail := func(field, format string, args ...any) (torchEntry, error) {
		return torchEntry{}, &FormatError{Field: field, Reason: fmt.Sprintf(format, args...)}
	}
	e := torchEntry{dtype: v.storage.dtype, shape: v.shape}
	m, ok := members[prefix+"data/"+v.storage.key]
	if !ok {
		return fail("storage", "%s is not in the archive; download it again", quoted(v.storage.key))
	}
	begin, end, err := m.locate()
	if err != nil {
		return torchEntry{}, err
	}
	width := v.storage.dtype.Bits() / 8
	if v.storage.count > (end-begin)/width {
		return fail("storage", "%s has %d bytes; its %d elements of %s do not fit",
			quoted(v.storage.key), end-begin, v.storage.count, e.dtype)
	}
	bytes, ok := tensorBytes(e.dtype, v.shape)
	if !ok {
		return fail("shape", "%v of %s is too large", v.shape, e.dtype)
	}
	if bytes == 0 {
		e.begin, e.end = begin, begin
		return e, nil
	}
	last, ok := v.last()
	if !ok || last >= v.storage.count {
		return fail("stride", "shape %v with strides %v from %d leaves the storage of %d elements",
			v.shape, v.stride, v.offset, v.storage.count)
	}
	if v.rowMajor() {
		e.begin = begin + v.offset*width
		e.end = e.begin + bytes
		return e, nil
	}
	span := (last - v.offset + 1) * width
	if bytes > span || span > *copies {
		return fail("stride",
			"shape %v with strides %v repeats elements, or the file has too many such tensors; "+
				"save it again with contiguous() tensors", v.shape, v.stride)
	}
	*copies -= span
	storage := make([]byte, span)
	if err := readFull(r, storage, begin+v.offset*width); err != nil {
		return torchEntry{}, err
	}
	e.data, e.end = v.gather(storage, width, bytes), bytes
	return e, nil
}

// last returns the storage index of the view's last element, or false when it overflows. The view
// must not be empty.
func (v tensorView) last() (int64, bool) {
	sum := uint64(v.offset)
	for i, n := range v.shape {
		high, step := bits.Mul64(uint64(n-1), uint64(v.stride[i]))
		next, carry := bits.Add64(sum, step, 0)
		if high != 0 || carry != 0 || next > 1<<62 {
			return 0, false
		}
		sum = next
	}
	return int64(sum), true
}

// rowMajor reports whether the elements follow each other in row-major order. Strides of dimensions
// of size 1 are ignored.
func (v tensorView) rowMajor() bool {
	want := int64(1)
	for i := len(v.shape) - 1; i >= 0; i-- {
		if v.shape[i] != 1 && v.stride[i] != want {
			return false
		}
		want *= v.shape[i]
	}
	return true
}

// gather copies the elements of the view in row-major order. storage begins at the view's first
// element.
func (v tensorView) gather(storage []byte, width, bytes int64) []byte {
	out := make([]byte, 0, bytes)
	index := make([]int64, len(v.shape))
	for at := int64(0); ; {
		out = append(out, storage[at*width:(at+1)*width]...)
		d := len(index) - 1
		for ; d >= 0; d-- {
			index[d]++
			at += v.stride[d]
			if index[d] < v.shape[d] {
				break
			}
			at -= v.shape[d] * v.stride[d]
			index[d] = 0
		}
		if d < 0 {
			return out
		}
	}
}
