//go:build native

package engine

// #cgo CFLAGS: -I${SRCDIR}/../../csrc/include
//
// #cgo noescape sie_op_embed_layernorm
// #cgo noescape sie_op_linear
// #cgo noescape sie_op_layernorm
// #cgo noescape sie_op_columns
// #cgo noescape sie_op_attention
// #cgo noescape sie_op_gather_rows
// #cgo noescape sie_op_pool
// #cgo noescape sie_op_keep_rows
// #cgo noescape sie_op_splade
// #cgo noescape sie_op_maxsim
// #cgo noescape sie_muvera_group
// #include "sie.h"
import "C"

import (
	"runtime"
	"unsafe"
)

// This file holds the calls into C that record a program, as native.go says.

func cEmbedLayerNorm(p, word, position, typ, gamma, beta unsafe.Pointer, eps float32, offset int32) (Value, error) {
	var e C.sie_error
	var y C.sie_value
	st := C.sie_op_embed_layernorm((*C.sie_program)(p), (*C.sie_weight)(word), (*C.sie_weight)(position), (*C.sie_weight)(typ),
		(*C.sie_weight)(gamma), (*C.sie_weight)(beta), C.float(eps), C.int32_t(offset), &y, &e)
	if st != C.SIE_OK {
		return NoValue, fail("embed_layernorm", st, &e)
	}
	return Value(y), nil
}

func cLinear(p unsafe.Pointer, x Value, w, bias unsafe.Pointer, act Act, residual Value) (Value, error) {
	var e C.sie_error
	var y C.sie_value
	st := C.sie_op_linear((*C.sie_program)(p), C.sie_value(x), (*C.sie_weight)(w), (*C.sie_weight)(bias), C.sie_act(act),
		C.sie_value(residual), &y, &e)
	if st != C.SIE_OK {
		return NoValue, fail("linear", st, &e)
	}
	return Value(y), nil
}

func cLayerNorm(p unsafe.Pointer, x Value, gamma, beta unsafe.Pointer, eps float32) (Value, error) {
	var e C.sie_error
	var y C.sie_value
	st := C.sie_op_layernorm((*C.sie_program)(p), C.sie_value(x), (*C.sie_weight)(gamma), (*C.sie_weight)(beta), C.float(eps), &y, &e)
	if st != C.SIE_OK {
		return NoValue, fail("layernorm", st, &e)
	}
	return Value(y), nil
}

func cColumns(p unsafe.Pointer, x Value, column, width int64) (Value, error) {
	var e C.sie_error
	var y C.sie_value
	st := C.sie_op_columns((*C.sie_program)(p), C.sie_value(x), C.int64_t(column), C.int64_t(width), &y, &e)
	if st != C.SIE_OK {
		return NoValue, fail("columns", st, &e)
	}
	return Value(y), nil
}

func cAttention(p unsafe.Pointer, q, k, v Value, a Attention) (Value, error) {
	var e C.sie_error
	var y C.sie_value
	params := C.sie_attention_params{struct_size: C.sizeof_sie_attention_params, mask: C.uint32_t(a.Mask), heads: C.int32_t(a.Heads),
		kv_heads: C.int32_t(a.KVHeads), head_dim: C.int32_t(a.HeadDim), window: C.int32_t(a.Window), scale: C.float(a.Scale)}
	st := C.sie_op_attention((*C.sie_program)(p), C.sie_value(q), C.sie_value(k), C.sie_value(v), &params, &y, &e)
	if st != C.SIE_OK {
		return NoValue, fail("attention", st, &e)
	}
	return Value(y), nil
}

func cGatherRows(p unsafe.Pointer, x Value, which Pooling) (Value, error) {
	var e C.sie_error
	var y C.sie_value
	st := C.sie_op_gather_rows((*C.sie_program)(p), C.sie_value(x), C.sie_pooling(which), &y, &e)
	if st != C.SIE_OK {
		return NoValue, fail("gather_rows", st, &e)
	}
	return Value(y), nil
}

func cPool(p unsafe.Pointer, x Value, mode Pooling) (Value, error) {
	var e C.sie_error
	var y C.sie_value
	st := C.sie_op_pool((*C.sie_program)(p), C.sie_value(x), C.sie_pooling(mode), &y, &e)
	if st != C.SIE_OK {
		return NoValue, fail("pool", st, &e)
	}
	return Value(y), nil
}

func cOutputRows(p unsafe.Pointer, x Value, index int) error {
	var e C.sie_error
	if st := C.sie_op_output_rows((*C.sie_program)(p), C.sie_value(x), C.int32_t(index), &e); st != C.SIE_OK {
		return fail("output_rows", st, &e)
	}
	return nil
}

func cOutputValues(p unsafe.Pointer, x Value, index int) error {
	var e C.sie_error
	if st := C.sie_op_output_values((*C.sie_program)(p), C.sie_value(x), C.int32_t(index), &e); st != C.SIE_OK {
		return fail("output_values", st, &e)
	}
	return nil
}

func cKeepRows(p unsafe.Pointer, x Value) (Value, error) {
	var e C.sie_error
	var y C.sie_value
	if st := C.sie_op_keep_rows((*C.sie_program)(p), C.sie_value(x), &y, &e); st != C.SIE_OK {
		return NoValue, fail("keep_rows", st, &e)
	}
	return Value(y), nil
}

// cLinearLoRA takes the adapters' handles, nil where one has nothing for this linear.
func cLinearLoRA(p unsafe.Pointer, x Value, w, bias unsafe.Pointer, act Act, residual Value, a, b []unsafe.Pointer) (Value, error) {
	var e C.sie_error
	var y C.sie_value
	var pins runtime.Pinner
	defer pins.Unpin()
	lora := C.sie_lora{struct_size: C.sizeof_sie_lora, n_adapters: C.int32_t(len(a))}
	if len(a) > 0 {
		pins.Pin(&a[0])
		pins.Pin(&b[0])
		lora.a, lora.b = (**C.sie_weight)(unsafe.Pointer(&a[0])), (**C.sie_weight)(unsafe.Pointer(&b[0]))
	}
	st := C.sie_op_linear_lora((*C.sie_program)(p), C.sie_value(x), (*C.sie_weight)(w), (*C.sie_weight)(bias), C.sie_act(act),
		C.sie_value(residual), &lora, &y, &e)
	if st != C.SIE_OK {
		return NoValue, fail("linear with LoRA", st, &e)
	}
	return Value(y), nil
}

func cSplade(p unsafe.Pointer, x Value, w, bias unsafe.Pointer) (Value, error) {
	var e C.sie_error
	var y C.sie_value
	st := C.sie_op_splade((*C.sie_program)(p), C.sie_value(x), (*C.sie_weight)(w), (*C.sie_weight)(bias), &y, &e)
	if st != C.SIE_OK {
		return NoValue, fail("splade", st, &e)
	}
	return Value(y), nil
}

func cMaxSim(p unsafe.Pointer, x Value, normalize bool) (Value, error) {
	var e C.sie_error
	var y C.sie_value
	if st := C.sie_op_maxsim((*C.sie_program)(p), C.sie_value(x), flag(normalize), &y, &e); st != C.SIE_OK {
		return NoValue, fail("maxsim", st, &e)
	}
	return Value(y), nil
}

func cOutputTokenRows(p unsafe.Pointer, x Value, index int) error {
	var e C.sie_error
	if st := C.sie_op_output_token_rows((*C.sie_program)(p), C.sie_value(x), C.int32_t(index), &e); st != C.SIE_OK {
		return fail("output_token_rows", st, &e)
	}
	return nil
}

func cOutputSparse(p unsafe.Pointer, x Value, t Sparse, index int) error {
	var e C.sie_error
	st := C.sie_op_output_sparse((*C.sie_program)(p), C.sie_value(x), C.sie_sparse(t), C.int32_t(index), &e)
	if st != C.SIE_OK {
		return fail("output_sparse", st, &e)
	}
	return nil
}

// cOutputMuvera takes the handles of m's tables, nil for those it lacks.
func cOutputMuvera(p unsafe.Pointer, x Value, m Muvera, simhash, ams, sketch, first, source unsafe.Pointer, index int) error {
	var e C.sie_error
	params := C.sie_muvera{struct_size: C.sizeof_sie_muvera, repetitions: C.int32_t(m.Repetitions), simhash_bits: C.int32_t(m.SimHashBits),
		projected: C.int32_t(m.Projected), final_dims: C.int32_t(m.FinalDims), is_query: flag(m.Query), fill_empty: flag(m.FillEmpty),
		center_tokens: flag(m.CenterTokens), normalize: flag(m.Normalize), simhash: (*C.sie_weight)(simhash), ams: (*C.sie_weight)(ams),
		sketch: (*C.sie_weight)(sketch), sketch_first: (*C.sie_weight)(first), sketch_source: (*C.sie_weight)(source)}
	if st := C.sie_op_output_muvera((*C.sie_program)(p), C.sie_value(x), &params, C.int32_t(index), &e); st != C.SIE_OK {
		return fail("output_muvera", st, &e)
	}
	return nil
}

func cOutputSMVE(p unsafe.Pointer, x Value, s SMVE, anchors unsafe.Pointer, index int) error {
	var e C.sie_error
	params := C.sie_smve{struct_size: C.sizeof_sie_smve, repetitions: C.int32_t(s.Repetitions), width: C.int32_t(s.Width),
		top: C.int32_t(s.Top), max_nonzeros: C.int32_t(s.MaxNonzeros), is_query: flag(s.Query), normalize: flag(s.Normalize),
		anchors: (*C.sie_weight)(anchors)}
	if st := C.sie_op_output_smve((*C.sie_program)(p), C.sie_value(x), &params, C.int32_t(index), &e); st != C.SIE_OK {
		return fail("output_smve", st, &e)
	}
	return nil
}

func cMuveraGroup(sketch []int32, repetitions, block, finalDims int, first, source []int32) error {
	var e C.sie_error
	st := C.sie_muvera_group(ids(sketch), C.int64_t(repetitions), C.int64_t(block), C.int64_t(finalDims), ids(first), ids(source), &e)
	if st != C.SIE_OK {
		return fail("muvera sketch", st, &e)
	}
	return nil
}

func flag(b bool) C.int32_t {
	if b {
		return 1
	}
	return 0
}
