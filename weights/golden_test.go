package weights_test

import (
	"bytes"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/weights"
	"github.com/sie-engine/sie/weights/weightstest"
)

// golden was written by the Python library with testdata/make.py.
const golden = "testdata/dtypes.safetensors"

func TestGolden(t *testing.T) {
	c, err := weights.OpenFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	table := make([]float32, 24)
	for i := range table {
		table[i] = float32(i)/8 - 1
	}
	inf := float32(math.Inf(1))
	floats := map[string]struct {
		dtype  weights.DType
		shape  []int64
		values []float32
	}{
		"embeddings.word_embeddings.weight": {weights.F32, []int64{4, 6}, table},
		"half": {weights.F16, []int64{8}, []float32{
			0, float32(math.Copysign(0, -1)), 1, -2.5, 65504, 1.0 / (1 << 24), 1023.0 / (1 << 24), inf,
		}},
		"brain": {weights.BF16, []int64{2, 2},
			[]float32{1, -3.140625, math.Float32frombits(0x7f62 << 16), math.Float32frombits(0x6d << 16)}},
		"double":       {weights.F64, []int64{2}, []float32{1.0 / 3, float32(math.Copysign(0, -1))}},
		"scalar":       {weights.F32, []int64{}, []float32{42.5}},
		"empty":        {weights.F32, []int64{0, 7}, nil},
		"größe\"\\\n名": {weights.F32, []int64{1}, []float32{9}},
	}
	ints := map[string]struct {
		dtype  weights.DType
		shape  []int64
		values []int64
	}{
		"ids":  {weights.I64, []int64{2, 2}, []int64{-1, 1 << 40, 3, -4}},
		"i32":  {weights.I32, []int64{2}, []int64{math.MinInt32, 7}},
		"i16":  {weights.I16, []int64{1}, []int64{-300}},
		"i8":   {weights.I8, []int64{3}, []int64{-128, 127, 5}},
		"u8":   {weights.U8, []int64{2}, []int64{0, 255}},
		"mask": {weights.Bool, []int64{3}, []int64{1, 0, 1}},
	}
	raw := map[string]struct {
		dtype weights.DType
		bytes []byte
	}{
		"f8":  {weights.F8E4M3, []byte{0x38, 0xb0, 0x7e}},
		"f8b": {weights.F8E5M2, []byte{0x3c, 0xb8, 0x7b}},
	}
	if want := len(floats) + len(ints) + len(raw); len(c.Names()) != want {
		t.Fatalf("%d tensors, want %d: %q", len(c.Names()), want, c.Names())
	}
	if !slices.IsSorted(c.Names()) || c.Bytes() != 200 || c.Metadata()["format"] != "pt" {
		t.Errorf("names %q, %d bytes, metadata %v", c.Names(), c.Bytes(), c.Metadata())
	}
	check := func(name string, dtype weights.DType, shape []int64, elements int) weights.Tensor {
		tensor, ok := c.Tensor(name)
		if !ok || tensor.Name != name || tensor.DType != dtype || !slices.Equal(tensor.Shape, shape) ||
			tensor.Elements() != int64(elements) {
			t.Errorf("tensor %q: %v %+v, want %s %v", name, ok, tensor, dtype, shape)
		}
		return tensor
	}
	for name, want := range floats {
		got, err := check(name, want.dtype, want.shape, len(want.values)).AppendFloat32(nil)
		same := func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }
		if err != nil || !slices.EqualFunc(got, want.values, same) {
			t.Errorf("%q = %v, %v, want %v", name, got, err, want.values)
		}
	}
	for name, want := range ints {
		got, err := check(name, want.dtype, want.shape, len(want.values)).AppendInt64(nil)
		if err != nil || !slices.Equal(got, want.values) {
			t.Errorf("%q = %v, %v, want %v", name, got, err, want.values)
		}
	}
	for name, want := range raw {
		tensor := check(name, want.dtype, []int64{int64(len(want.bytes))}, len(want.bytes))
		if !bytes.Equal(weightstest.Bytes(tensor), want.bytes) {
			t.Errorf("%q = %x, want %x", name, weightstest.Bytes(tensor), want.bytes)
		}
		dst := []float32{1}
		if got, err := tensor.AppendFloat32(dst); err == nil || len(got) != 1 {
			t.Errorf("%q converted to %v", name, got)
		}
		if _, err := tensor.AppendInt64(nil); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q converted to integers: %v", name, err)
		}
	}
}

// TestReencodeIsIdentical writes the golden file's tensors again and expects the bytes of the
// Python library.
func TestReencodeIsIdentical(t *testing.T) {
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	c, err := weights.OpenFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := weightstest.Encode(c.Metadata(), all(c)...); !bytes.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

// all returns the tensors of a checkpoint for weightstest, by name.
func all(c *weights.Checkpoint) []weightstest.Tensor {
	var tensors []weightstest.Tensor
	for _, name := range c.Names() {
		tensor, _ := c.Tensor(name)
		tensors = append(tensors, weightstest.Tensor{
			Name: name, DType: tensor.DType, Shape: tensor.Shape, Data: weightstest.Bytes(tensor),
		})
	}
	return tensors
}

func TestUint64AboveInt64(t *testing.T) {
	file := weightstest.Encode(nil, weightstest.Tensor{Name: "u", DType: weights.U64, Shape: []int64{2},
		Data: []byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80}})
	c, err := weights.OpenFile(weightstest.WriteFile(t, t.TempDir(), "u.safetensors", file))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	u, _ := c.Tensor("u")
	if got, err := u.AppendInt64([]int64{5}); err == nil || len(got) != 1 {
		t.Errorf("got %v, %v; want an error and dst as it was", got, err)
	}
}
