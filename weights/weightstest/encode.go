// Package weightstest writes safetensors files for tests. It writes the same canonical bytes as the
// Python library, and whole model directories, single or sharded. It is for tests only and panics
// on misuse.
//
// Entry points: [Encode] for the bytes of one file, [WriteFile] and [WriteSharded] for files on
// disk, [ReadPublished] for the headers of published models, [Bytes] for the elements of a tensor,
// [OnRead] to change a file between two reads. It starts no goroutines. It does not check the
// tensors, so that tests can also make hostile files with it.
package weightstest

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/weights"
)

// Tensor is one tensor to write. Data holds its elements, row-major and little-endian.
type Tensor struct {
	Name  string
	DType weights.DType
	Shape []int64
	Data  []byte
}

// Float32 makes an F32 tensor.
func Float32(name string, shape []int64, values ...float32) Tensor {
	t := Tensor{Name: name, DType: weights.F32, Shape: shape}
	for _, v := range values {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(v))
	}
	return t
}

// writeOrder is the order in which the reference writer lays out element types: by size, the
// largest first.
var writeOrder = []weights.DType{
	weights.U64, weights.I64, weights.F64, weights.C64, weights.F32, weights.U32, weights.I32, weights.BF16,
	weights.F16,
	weights.U16, weights.I16, weights.F8E5M2FNUZ, weights.F8E4M3FNUZ, weights.F8E8M0, weights.F8E4M3,
	weights.F8E5M2,
	weights.I8, weights.U8, weights.F6E3M2, weights.F6E2M3, weights.F4, weights.Bool,
}

// Encode returns the canonical file of the tensors. Data and header are in writeOrder, then by
// name. The header has no white space and is padded with spaces to a multiple of 8 bytes. Metadata
// comes first, its keys sorted.
func Encode(metadata map[string]string, tensors ...Tensor) []byte {
	tensors = slices.Clone(tensors)
	slices.SortStableFunc(tensors, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(slices.Index(writeOrder, a.DType), slices.Index(writeOrder, b.DType)),
			cmp.Compare(a.Name, b.Name))
	})
	return EncodeInOrder(metadata, tensors...)
}

// EncodeInOrder returns the same file as Encode, with the tensors in the order given.
func EncodeInOrder(metadata map[string]string, tensors ...Tensor) []byte {
	var members []string
	if metadata != nil {
		var pairs []string
		for _, key := range slices.Sorted(maps.Keys(metadata)) {
			pairs = append(pairs, quote(key)+":"+quote(metadata[key]))
		}
		members = append(members, `"__metadata__":{`+strings.Join(pairs, ",")+"}")
	}
	var data []byte
	for _, t := range tensors {
		shape := make([]string, len(t.Shape))
		for i, dim := range t.Shape {
			shape[i] = fmt.Sprint(dim)
		}
		members = append(members,
			fmt.Sprintf(`%s:{"dtype":%s,"shape":[%s],"data_offsets":[%d,%d]}`, quote(t.Name),
				quote(string(t.DType)), strings.Join(shape, ","), len(data), len(data)+len(t.Data)))
		data = append(data, t.Data...)
	}
	return File("{"+strings.Join(members, ",")+"}", data)
}

// File joins a header, padded with spaces to a multiple of 8 bytes, and an unchecked data section.
func File(header string, data []byte) []byte {
	header += strings.Repeat(" ", -len(header)&7)
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(file, header...), data...)
}

// WriteFile writes dir/name and returns its path.
func WriteFile(tb testing.TB, dir, name string, data []byte) string {
	tb.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		tb.Fatal(err)
	}
	return path
}

// WriteSharded writes each group of tensors as one shard into dir, and one index of all shards.
func WriteSharded(tb testing.TB, dir string, groups ...[]Tensor) {
	tb.Helper()
	var entries []string
	total := 0
	for i, group := range groups {
		name := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(groups))
		WriteFile(tb, dir, name, Encode(nil, group...))
		for _, t := range group {
			entries = append(entries, quote(t.Name)+": "+quote(name))
			total += len(t.Data)
		}
	}
	WriteFile(tb, dir, weights.IndexFile, fmt.Appendf(nil,
		"{\n  \"metadata\": {\n    \"total_size\": %d\n  },\n  \"weight_map\": {\n    %s\n  }\n}\n",
		total, strings.Join(entries, ",\n    ")))
}

// quote writes a JSON string with the fewest escapes, as the format's reference writer does.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 && strings.ContainsRune("\b\f\n\r\t", r):
			b.WriteByte('\\')
			b.WriteByte("btn_fr"[r-'\b'])
		case r < 0x20:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
