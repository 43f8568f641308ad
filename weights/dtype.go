package weights

// DType is the element type of a tensor, written as in a safetensors header.
type DType string

// The element types of the format. Elements are little-endian; BOOL is one byte, C64 is two F32.
const (
	F64        DType = "F64"
	F32        DType = "F32"
	F16        DType = "F16"
	BF16       DType = "BF16"
	F8E4M3     DType = "F8_E4M3"
	F8E5M2     DType = "F8_E5M2"
	F8E8M0     DType = "F8_E8M0"
	F8E4M3FNUZ DType = "F8_E4M3FNUZ"
	F8E5M2FNUZ DType = "F8_E5M2FNUZ"
	F6E2M3     DType = "F6_E2M3"
	F6E3M2     DType = "F6_E3M2"
	F4         DType = "F4"
	I64        DType = "I64"
	I32        DType = "I32"
	I16        DType = "I16"
	I8         DType = "I8"
	U64        DType = "U64"
	U32        DType = "U32"
	U16        DType = "U16"
	U8         DType = "U8"
	Bool       DType = "BOOL"
	C64        DType = "C64"
)

// Bits returns the size of one element in bits, or 0 for a type the format does not define.
// Elements smaller than a byte are packed, and a tensor of them must fill whole bytes.
func (d DType) Bits() int64 {
	switch d {
	case F64, I64, U64, C64:
		return 64
	case F32, I32, U32:
		return 32
	case F16, BF16, I16, U16:
		return 16
	case F8E4M3, F8E5M2, F8E8M0, F8E4M3FNUZ, F8E5M2FNUZ, I8, U8, Bool:
		return 8
	case F6E2M3, F6E3M2:
		return 6
	case F4:
		return 4
	}
	return 0
}
