package weights

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/sie-engine/sie/internal/half"
)

// blockBytes is the size of the blocks in which a tensor is read for conversion. It is a multiple
// of every element's width.
const blockBytes = 256 << 10

// blocks reads the tensor and calls f with each block in order.
func (t Tensor) blocks(f func(b []byte)) error {
	block := make([]byte, min(blockBytes, t.Bytes()))
	for at := int64(0); at < t.Bytes(); {
		b := block[:min(int64(len(block)), t.Bytes()-at)]
		if err := t.ReadAt(b, at); err != nil {
			return err
		}
		f(b)
		at += int64(len(b))
	}
	return nil
}

// AppendFloat32 appends the elements of a floating-point tensor to dst as float32. F16 and BF16
// convert exactly, F64 is rounded to nearest. Use it for small tensors and golden data; the engine
// converts large tensors itself. It returns an error for any other element type, and the errors of
// ReadAt; dst is then unchanged.
func (t Tensor) AppendFloat32(dst []float32) ([]float32, error) {
	var element func(b []byte) float32
	switch t.DType {
	case F32:
		element = func(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }
	case F64:
		element = func(b []byte) float32 {
			return float32(math.Float64frombits(binary.LittleEndian.Uint64(b)))
		}
	case BF16:
		element = func(b []byte) float32 {
			return math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16)
		}
	case F16:
		element = func(b []byte) float32 { return half.ToFloat32(binary.LittleEndian.Uint16(b)) }
	default:
		return dst, fmt.Errorf("tensor %s: %s does not convert to float32", quoted(t.Name), t.DType)
	}
	out, width := dst, int(t.DType.Bits()/8)
	if err := t.blocks(func(b []byte) {
		for ; len(b) >= width; b = b[width:] {
			out = append(out, element(b))
		}
	}); err != nil {
		return dst, err
	}
	return out, nil
}

// AppendInt64 appends the elements of an integer tensor to dst. It returns an error for a U64
// element above 2⁶³−1 and for any other element type, and the errors of ReadAt; dst is then
// unchanged.
func (t Tensor) AppendInt64(dst []int64) ([]int64, error) {
	var element func(b []byte) int64
	switch t.DType {
	case I64, U64:
		element = func(b []byte) int64 { return int64(binary.LittleEndian.Uint64(b)) }
	case I32:
		element = func(b []byte) int64 { return int64(int32(binary.LittleEndian.Uint32(b))) }
	case U32:
		element = func(b []byte) int64 { return int64(binary.LittleEndian.Uint32(b)) }
	case I16:
		element = func(b []byte) int64 { return int64(int16(binary.LittleEndian.Uint16(b))) }
	case U16:
		element = func(b []byte) int64 { return int64(binary.LittleEndian.Uint16(b)) }
	case I8:
		element = func(b []byte) int64 { return int64(int8(b[0])) }
	case U8, Bool:
		element = func(b []byte) int64 { return int64(b[0]) }
	default:
		return dst, fmt.Errorf("tensor %s: %s does not convert to int64", quoted(t.Name), t.DType)
	}
	out, width := dst, int(t.DType.Bits()/8)
	var tooLarge error
	if err := t.blocks(func(b []byte) {
		for ; len(b) >= width && tooLarge == nil; b = b[width:] {
			v := element(b)
			if t.DType == U64 && v < 0 {
				tooLarge = fmt.Errorf("tensor %s: %d is above 2⁶³−1", quoted(t.Name), uint64(v))
			}
			out = append(out, v)
		}
	}); err != nil {
		return dst, err
	}
	if tooLarge != nil {
		return dst, tooLarge
	}
	return out, nil
}
