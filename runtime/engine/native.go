//go:build native

package engine

// #cgo CFLAGS: -I${SRCDIR}/../../csrc/include
//
// #cgo noescape sie_weight_create
// #cgo noescape sie_muvera_order
// #cgo noescape sie_go_slot_load
// #cgo nocallback sie_go_slot_load
// #cgo noescape sie_program_submit
// #cgo nocallback sie_program_submit
// #cgo noescape sie_slot_wait
// #cgo nocallback sie_slot_wait
// #cgo noescape sie_slot_nonfinite
// #cgo nocallback sie_slot_nonfinite
// #cgo noescape sie_slot_output
// #cgo nocallback sie_slot_output
// #include "sie.h"
//
// // Takes a batch's pointers one by one: lists of Go's that hold them would have to be pinned.
// // Entries are by the numbers of entry.go.
// static sie_status sie_go_slot_load(sie_slot *slot, const sie_program *program, int64_t n_seqs,
//     int64_t n_queries, const int32_t *ids, const int32_t *type_ids, const int32_t *cu_seqlens,
//     const uint8_t *keep, const int32_t *adapter, const float *queries,
//     const int32_t *cu_queries, const int32_t *partner, const int32_t *prefix_first,
//     const int32_t *prefix_rows, const int32_t *cu_words, const int32_t *word_first,
//     const int32_t *word_last, const int32_t *cu_markers, const int32_t *markers,
//     const int32_t *cu_spans, const int32_t *span_first, const int32_t *span_last,
//     const sie_out_item *items0, const sie_out_item *items1,
//     const sie_out_item *items2, const sie_out_item *items3, sie_error *err) {
//   const sie_rows_of spaces[] = {{0, cu_seqlens}, {0, 0}, {0, 0}, {n_queries, cu_queries},
//                                 {0, cu_words}, {0, cu_markers}, {0, cu_spans}};
//   const void *const inputs[] = {ids, type_ids, keep, adapter, partner, queries, prefix_first,
//                                 prefix_rows, word_first, word_last, markers, span_first,
//                                 span_last};
//   const sie_out_item *const items[] = {items0, items1, items2, items3};
//   sie_batch batch = {sizeof batch, 7, 13, 4, n_seqs, spaces, inputs, items};
//   return sie_slot_load(slot, program, &batch, err);
// }
import "C"

import (
	"bytes"
	"fmt"
	"reflect"
	"runtime"
	"unsafe"
)

// This file holds every call into C, one small function each: it converts arguments and copies the
// caller-owned error out. Go memory is passed as a direct argument of one call, except the parts of
// a weight and the entries of a program, which are pinned. With the noescape directives the error
// buffer and out parameters stay on the stack, so load, submit and wait allocate nothing.

// The Go slice of items is passed to C without conversion, so both structs must have one layout.
var (
	_ [unsafe.Sizeof(C.sie_out_item{}) - unsafe.Sizeof(outItem{})]struct{}
	_ [unsafe.Sizeof(outItem{}) - unsafe.Sizeof(C.sie_out_item{})]struct{}
	_ [unsafe.Offsetof(C.sie_out_item{}.offset) - unsafe.Offsetof(outItem{}.offset)]struct{}
)

// The Go constants equal the header's. Each difference is an index into an array of one element, so
// another value does not compile.
var (
	_ = [1]int{}[StatusInternal-C.SIE_INTERNAL]
	_ = [1]int{}[CPU-C.SIE_DEVICE_CPU] + [1]int{}[CUDA-C.SIE_DEVICE_CUDA] + [1]int{}[Ref-C.SIE_DEVICE_REF]
	_ = [1]int{}[AVX2-C.SIE_ISA_AVX2] + [1]int{}[AVX512-C.SIE_ISA_AVX512] + [1]int{}[AVX512VNNI-
		C.SIE_ISA_AVX512_VNNI] + [1]int{}[AVX512BF16-C.SIE_ISA_AVX512_BF16] + [1]int{}[AMX-C.SIE_ISA_AMX] +
		[1]int{}[NEON-C.SIE_ISA_NEON] + [1]int{}[NEONDot-C.SIE_ISA_NEON_DOT]
	_ = [1]int{}[F32-C.SIE_F32] + [1]int{}[F16-C.SIE_F16] + [1]int{}[BF16-C.SIE_BF16] + [1]int{}[I8-C.SIE_I8]
	_ = [1]int{}[U8-C.SIE_U8] + [1]int{}[I32-C.SIE_I32] + [1]int{}[F8E4M3-C.SIE_F8E4M3] + [1]int{}[Binary-
		C.SIE_BINARY]
	_ = [1]int{}[ComputeF32-C.SIE_COMPUTE_F32] + [1]int{}[ComputeBF16-C.SIE_COMPUTE_BF16] +
		[1]int{}[ComputeINT8-C.SIE_COMPUTE_INT8]
	_ = [1]int{}[ComputeF16-C.SIE_COMPUTE_F16] + [1]int{}[ComputeFP8-C.SIE_COMPUTE_FP8]
	_ = [1]int{}[NoAct-C.SIE_ACT_NONE] + [1]int{}[GELU-C.SIE_ACT_GELU_ERF] + [1]int{}[Tanh-C.SIE_ACT_TANH]
	_ = [1]int{}[GELUTanh-C.SIE_ACT_GELU_TANH] + [1]int{}[ReLU-C.SIE_ACT_RELU] + [1]int{}[SiLU-C.SIE_ACT_SILU]
	_ = [1]int{}[PoolCLS-C.SIE_POOL_CLS] + [1]int{}[PoolMean-C.SIE_POOL_MEAN] + [1]int{}[PoolLast-
		C.SIE_POOL_LAST]
	_ = [1]int{}[FullMask-C.SIE_MASK_FULL] + [1]int{}[CausalMask-C.SIE_MASK_CAUSAL] + [1]int{}[WindowMask-
		C.SIE_MASK_WINDOW]
	_ = [1]int{}[LinearWeight-C.SIE_WEIGHT_LINEAR] + [1]int{}[TableWeight-C.SIE_WEIGHT_TABLE] +
		[1]int{}[VectorWeight-C.SIE_WEIGHT_VECTOR]
	_ = [1]int{}[DataWeight-C.SIE_WEIGHT_DATA]
	_ = [1]int{}[Interleaved-C.SIE_PLACE_INTERLEAVED] + [1]int{}[Copied-C.SIE_PLACE_COPIED]
	_ = [1]int{}[SparseAsIs-C.SIE_SPARSE_AS_IS] + [1]int{}[SparseLog-C.SIE_SPARSE_LOG] +
		[1]int{}[SparseLogLog-C.SIE_SPARSE_LOG_LOG]
	_ = [1]int{}[Concat-C.SIE_LAYOUT_CONCAT] + [1]int{}[InterleaveGateUp-C.SIE_LAYOUT_INTERLEAVE_GATE_UP]
	_ = [1]int{}[NoValue-C.SIE_NO_VALUE]
	_ = [1]int{}[poolAttention-C.SIE_POOL_ATTENTION] + [1]int{}[PoolWeightedMean-C.SIE_POOL_WEIGHTED_MEAN]
	_ = [1]int{}[PoolMax-C.SIE_POOL_MAX] + [1]int{}[PoolMeanSqrt-C.SIE_POOL_MEAN_SQRT]
	_ = [1]int{}[PoolSum-C.SIE_POOL_SUM] + [1]int{}[PoolRMS-C.SIE_POOL_RMS] + [1]int{}[PoolAbsMax-
		C.SIE_POOL_ABS_MAX] + [1]int{}[PoolAbsMean-C.SIE_POOL_ABS_MEAN]
	_ = [1]int{}[LayerNorm-C.SIE_NORM_LAYER] + [1]int{}[RMSNorm-C.SIE_NORM_RMS] + [1]int{}[NoNorm-
		C.SIE_NORM_NONE]
	_ = [1]int{}[SwiGLU-C.SIE_GATE_SWIGLU] + [1]int{}[GEGLU-C.SIE_GATE_GEGLU] + [1]int{}[GEGLUTanh-
		C.SIE_GATE_GEGLU_TANH]
	_ = [1]int{}[FormValues-C.SIE_FORM_VALUES] + [1]int{}[FormRows-C.SIE_FORM_ROWS] + [1]int{}[FormTokenRows-
		C.SIE_FORM_TOKEN_ROWS]
	_ = [1]int{}[FormSparse-C.SIE_FORM_SPARSE] + [1]int{}[FormFound-C.SIE_FORM_FOUND]
	_ = [1]int{}[kindSpace-C.SIE_SPACE] + [1]int{}[kindInput-C.SIE_INPUT] + [1]int{}[kindEmbed-C.SIE_EMBED] +
		[1]int{}[kindNorm-C.SIE_NORM]
	_ = [1]int{}[kindLinear-C.SIE_LINEAR] + [1]int{}[kindColumns-C.SIE_COLUMNS] + [1]int{}[kindAttention-
		C.SIE_ATTENTION]
	_ = [1]int{}[kindRope-C.SIE_ROPE] + [1]int{}[kindGatherRows-C.SIE_GATHER_ROWS] +
		[1]int{}[kindPool-C.SIE_POOL]
	_ = [1]int{}[kindKeepRows-C.SIE_KEEP_ROWS] + [1]int{}[kindSplade-C.SIE_SPLADE] + [1]int{}[kindMaxSim-
		C.SIE_MAXSIM]
	_ = [1]int{}[kindOutputRows-C.SIE_OUTPUT_ROWS] + [1]int{}[kindOutputValues-C.SIE_OUTPUT_VALUES]
	_ = [1]int{}[kindOutputTokenRows-C.SIE_OUTPUT_TOKEN_ROWS] + [1]int{}[kindOutputSparse-C.SIE_OUTPUT_SPARSE]
	_ = [1]int{}[kindOutputMuvera-C.SIE_OUTPUT_MUVERA] + [1]int{}[kindOutputSMVE-C.SIE_OUTPUT_SMVE] +
		[1]int{}[kindJoin-C.SIE_JOIN] + [1]int{}[kindStream-C.SIE_STREAM]
	_ = [1]int{}[kindState-C.SIE_STATE] + [1]int{}[kindStateRows-C.SIE_STATE_ROWS]
	_ = [1]int{}[kindTakeRows-C.SIE_TAKE_ROWS] + [1]int{}[kindProduct-C.SIE_PRODUCT] +
		[1]int{}[kindDots-C.SIE_DOTS] + [1]int{}[kindLSTM-C.SIE_LSTM]
	_ = [1]int{}[kindOutputSpans-C.SIE_OUTPUT_SPANS] + [1]int{}[kindOutputPairs-C.SIE_OUTPUT_PAIRS] +
		[1]int{}[kindGivenRows-C.SIE_GIVEN_ROWS] + [1]int{}[kindSoftmax-C.SIE_SOFTMAX]
	_ = [1]int{}[MaxSpanWidth-C.SIE_MAX_SPAN_WIDTH]
	_ = [1]int{}[MaxSegments-C.SIE_MAX_SEGMENTS]
	_ = [1]int{}[spaceSeqs-C.SIE_SPACE_SEQS] + [1]int{}[spaceRows-C.SIE_SPACE_ROWS] + [1]int{}[spaceSubset-
		C.SIE_SPACE_SUBSET]
	_ = [1]int{}[spaceShared-C.SIE_SPACE_SHARED]
)

// mirrors pairs the structs of entry.go with those of sie.h, whose layout they must have.
var mirrors = [][2]reflect.Type{
	{reflect.TypeFor[entry](), reflect.TypeFor[C.sie_op]()},
	{reflect.TypeFor[spaceParams](), reflect.TypeFor[C.sie_space_params]()},
	{reflect.TypeFor[inputParams](), reflect.TypeFor[C.sie_input_params]()},
	{reflect.TypeFor[embedParams](), reflect.TypeFor[C.sie_embed_params]()},
	{reflect.TypeFor[normParams](), reflect.TypeFor[C.sie_norm_params]()},
	{reflect.TypeFor[linearParams](), reflect.TypeFor[C.sie_linear_params]()},
	{reflect.TypeFor[columnsParams](), reflect.TypeFor[C.sie_columns_params]()},
	{reflect.TypeFor[joinParams](), reflect.TypeFor[C.sie_join_params]()},
	{reflect.TypeFor[streamParams](), reflect.TypeFor[C.sie_stream_params]()},
	{reflect.TypeFor[stateParams](), reflect.TypeFor[C.sie_state_params]()},
	{reflect.TypeFor[stateRowsParams](), reflect.TypeFor[C.sie_state_rows_params]()},
	{reflect.TypeFor[attentionParams](), reflect.TypeFor[C.sie_attention_params]()},
	{reflect.TypeFor[ropeParams](), reflect.TypeFor[C.sie_rope_params]()},
	{reflect.TypeFor[gatherRowsParams](), reflect.TypeFor[C.sie_gather_rows_params]()},
	{reflect.TypeFor[poolParams](), reflect.TypeFor[C.sie_pool_params]()},
	{reflect.TypeFor[keepRowsParams](), reflect.TypeFor[C.sie_keep_rows_params]()},
	{reflect.TypeFor[takeRowsParams](), reflect.TypeFor[C.sie_take_rows_params]()},
	{reflect.TypeFor[productParams](), reflect.TypeFor[C.sie_product_params]()},
	{reflect.TypeFor[dotsParams](), reflect.TypeFor[C.sie_dots_params]()},
	{reflect.TypeFor[softmaxParams](), reflect.TypeFor[C.sie_softmax_params]()},
	{reflect.TypeFor[lstmParams](), reflect.TypeFor[C.sie_lstm_params]()},
	{reflect.TypeFor[spladeParams](), reflect.TypeFor[C.sie_splade_params]()},
	{reflect.TypeFor[maxSimParams](), reflect.TypeFor[C.sie_maxsim_params]()},
	{reflect.TypeFor[outputParams](), reflect.TypeFor[C.sie_output_params]()},
	{reflect.TypeFor[outputSparseParams](), reflect.TypeFor[C.sie_output_sparse_params]()},
	{reflect.TypeFor[outputSpansParams](), reflect.TypeFor[C.sie_output_spans_params]()},
	{reflect.TypeFor[outputPairsParams](), reflect.TypeFor[C.sie_output_pairs_params]()},
	{reflect.TypeFor[givenRowsParams](), reflect.TypeFor[C.sie_given_rows_params]()},
	{reflect.TypeFor[muveraParams](), reflect.TypeFor[C.sie_muvera_params]()},
	{reflect.TypeFor[smveParams](), reflect.TypeFor[C.sie_smve_params]()},
}

// Built reports whether the native engine is in this binary.
const Built = true

// LibSum identifies the C library and header this binary was built against.
func LibSum() string { return libSum }

// fail turns a status into an error. A call that succeeds does not reach it.
func fail(op string, status C.sie_status, e *C.sie_error) error {
	msg := unsafe.Slice((*byte)(unsafe.Pointer(&e.message[0])), len(e.message))
	if n := bytes.IndexByte(msg, 0); n >= 0 {
		msg = msg[:n]
	}
	return &Error{Op: op, Status: Status(status), Msg: string(msg)}
}

func ids(s []int32) *C.int32_t { return (*C.int32_t)(unsafe.SliceData(s)) }

func cDeviceOpen(o Options, onGPU *sieGPU) (unsafe.Pointer, error) {
	if v := C.sie_abi_version(); v != C.SIE_ABI_VERSION {
		return nil, &Error{Op: "open", Status: StatusInternal, Msg: fmt.Sprintf(
			"the library has ABI %d, this binary wants %d: rebuild both", v, C.SIE_ABI_VERSION)}
	}
	var e C.sie_error
	var d *C.sie_device
	options := C.sie_device_options{struct_size: C.sizeof_sie_device_options, kind: C.uint32_t(o.Kind),
		threads: C.int32_t(o.Threads), isa: C.uint32_t(o.ISA)}
	if o.OneNode {
		options.one_node = 1
	}
	var pins runtime.Pinner
	defer pins.Unpin()
	if onGPU != nil {
		g := &C.sie_gpu{
			struct_size:     C.sizeof_sie_gpu,
			major:           C.int32_t(onGPU.about.Major),
			minor:           C.int32_t(onGPU.about.Minor),
			multiprocessors: C.int32_t(onGPU.about.Multiprocessors),
			memory_total:    C.int64_t(onGPU.about.MemoryTotal),
			overlap:         C.uint32_t(onGPU.overlap),
		}
		if onGPU.graphs {
			g.graphs = 1
		}
		*(*uintptr)(unsafe.Pointer(&g.stream)) = onGPU.stream // the driver's handle: not Go memory
		for i := range min(len(onGPU.about.Name), len(g.name)-1) {
			g.name[i] = C.char(onGPU.about.Name[i])
		}
		pins.Pin(g)
		options.gpu = g
	}
	if st := C.sie_device_open(&options, &d, &e); st != C.SIE_OK {
		return nil, fail("open", st, &e)
	}
	return unsafe.Pointer(d), nil
}

func cDeviceClose(d unsafe.Pointer) { C.sie_device_close((*C.sie_device)(d)) }

func cDeviceInfo(d unsafe.Pointer) (Info, error) {
	var e C.sie_error
	in := C.sie_device_info{struct_size: C.sizeof_sie_device_info}
	if st := C.sie_device_query((*C.sie_device)(d), &in, &e); st != C.SIE_OK {
		return Info{}, fail("device info", st, &e)
	}
	info := Info{
		Kind: Kind(in.kind), Name: C.GoString(&in.name[0]), Threads: int(in.threads),
		CPUsAffinity: int(in.cpus_affinity), CPUsQuota: float64(in.cpus_quota), ISA: ISA(in.isa),
		ISADetected: ISA(in.isa_detected), MemoryTotal: int64(in.memory_total),
		MemoryWeights: int64(in.memory_weights), GraphsRefused: int64(in.graphs_refused),
		Why:   C.GoString(&in.why[0]),
		Cores: int(in.cores), Caches: int(in.caches), Nodes: int(in.nodes), NodesUsed: int(in.nodes_used),
	}
	for c := ComputeF32; c <= ComputeFP8; c++ {
		if in.compute_mask&(1<<c) != 0 {
			info.Compute = append(info.Compute, c)
		}
	}
	return info, nil
}

func cWeightCreate(d unsafe.Pointer, s WeightSpec, rows int64) (unsafe.Pointer, error) {
	var e C.sie_error
	var w *C.sie_weight
	desc := C.sie_weight_desc{
		struct_size: C.sizeof_sie_weight_desc,
		kind:        C.uint32_t(s.Kind),
		compute:     C.uint32_t(s.Compute),
		dtype:       C.uint32_t(s.DType),
		layout:      C.uint32_t(s.Layout),
		n_parts:     C.int32_t(len(s.Parts)),
		n:           C.int64_t(rows),
		k:           C.int64_t(s.K),
		placement:   C.uint32_t(s.Placement),
		group:       C.uint32_t(s.Group),
	}
	var pins runtime.Pinner // the descriptor points to the parts; memory outside the Go heap needs no pin
	defer pins.Unpin()
	for i, p := range s.Parts {
		data := unsafe.SliceData(p.Data)
		pins.Pin(data)
		desc.parts[i] = C.sie_weight_part{data: unsafe.Pointer(data), rows: C.int64_t(p.Rows)}
	}
	st := C.sie_weight_create((*C.sie_device)(d), &desc, &w, &e)
	if st != C.SIE_OK {
		return nil, fail("weight", st, &e)
	}
	return unsafe.Pointer(w), nil
}

// cWeightStaged returns the address of the packed bytes that are to be uploaded to a GPU.
func cWeightStaged(w unsafe.Pointer) uintptr { return uintptr(C.sie_weight_staged((*C.sie_weight)(w))) }

func cWeightPlace(w unsafe.Pointer, p devicePtr) error {
	var e C.sie_error
	if st := C.sie_weight_place((*C.sie_weight)(w), deviceMemory(p), &e); st != C.SIE_OK {
		return fail("weight", st, &e)
	}
	return nil
}

// deviceMemory returns a GPU address as a C pointer. Go's garbage collector ignores pointers to
// memory that is not its own.
func deviceMemory(p devicePtr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

func cWeightFree(w unsafe.Pointer)        { C.sie_weight_free((*C.sie_weight)(w)) }
func cWeightBytes(w unsafe.Pointer) int64 { return int64(C.sie_weight_bytes((*C.sie_weight)(w))) }
func cWeightDenormals(w unsafe.Pointer) int64 {
	return int64(C.sie_weight_denormals((*C.sie_weight)(w)))
}

// cProgram records a program from its entries in one call, and plans it. memory is all the Go
// memory that the entries point to.
func cProgram(d unsafe.Pointer, entries []entry, memory []unsafe.Pointer) (unsafe.Pointer, Workspace, error) {
	var e C.sie_error
	var p *C.sie_program
	var size C.sie_workspace
	if st := C.sie_program_begin((*C.sie_device)(d), &p, &e); st != C.SIE_OK {
		return nil, Workspace{}, fail("program", st, &e)
	}
	var pins runtime.Pinner
	defer pins.Unpin()
	for _, m := range memory {
		pins.Pin(m)
	}
	st := C.sie_program_add(p, (*C.sie_op)(unsafe.Pointer(unsafe.SliceData(entries))),
		C.int64_t(len(entries)), &e)
	if st == C.SIE_OK {
		st = C.sie_program_end(p, &size, &e)
	}
	if st != C.SIE_OK {
		C.sie_program_free(p)
		return nil, Workspace{}, fail("program", st, &e)
	}
	return unsafe.Pointer(p), Workspace{Lane: int64(size.lane), Region: int64(size.region)}, nil
}

func cProgramOutputs(p unsafe.Pointer, n int) ([]Output, error) {
	outputs := make([]Output, n)
	for i := range outputs {
		var e C.sie_error
		in := C.sie_output_info{struct_size: C.sizeof_sie_output_info}
		if st := C.sie_program_output((*C.sie_program)(p), C.int32_t(i), &in, &e); st != C.SIE_OK {
			return nil, fail("program outputs", st, &e)
		}
		outputs[i] = Output{
			Name:     C.GoString(&in.name[0]),
			Form:     OutputForm(in.form),
			PerToken: in.space != spaceSequences,
			Of:       listed(int32(in.space)),
			Columns:  int(in.columns),
		}
	}
	return outputs, nil
}

// cProgramColumns returns the width of an input.
func cProgramColumns(p unsafe.Pointer, input int32) (int64, error) {
	var e C.sie_error
	in := C.sie_input_info{struct_size: C.sizeof_sie_input_info}
	if st := C.sie_program_input((*C.sie_program)(p), C.sie_input(input), &in, &e); st != C.SIE_OK {
		return 0, fail("program inputs", st, &e)
	}
	return int64(in.columns), nil
}

func cProgramInputBytes(p unsafe.Pointer) int64 {
	return int64(C.sie_program_input_bytes((*C.sie_program)(p)))
}

func cProgramFree(p unsafe.Pointer) { C.sie_program_free((*C.sie_program)(p)) }

func cProgramDescribe(p unsafe.Pointer) string {
	text := make([]byte, C.sie_program_describe((*C.sie_program)(p), nil, 0)+1)
	C.sie_program_describe((*C.sie_program)(p), (*C.char)(unsafe.Pointer(unsafe.SliceData(text))),
		C.size_t(len(text)))
	return string(bytes.TrimRight(text, "\x00"))
}

func cArenaCreate(d unsafe.Pointer, workspace Workspace) (unsafe.Pointer, error) {
	var e C.sie_error
	var a *C.sie_arena
	size := C.sie_workspace{lane: C.int64_t(workspace.Lane), region: C.int64_t(workspace.Region)}
	if st := C.sie_arena_create((*C.sie_device)(d), &size, &a, &e); st != C.SIE_OK {
		return nil, fail("arena", st, &e)
	}
	return unsafe.Pointer(a), nil
}

func cArenaPlace(a unsafe.Pointer, at *gpuArena) error {
	var e C.sie_error
	var outputs [MaxOutputs]unsafe.Pointer
	var bytes [MaxOutputs]C.int64_t
	for i := range MaxOutputs {
		outputs[i], bytes[i] = deviceMemory(at.output[i]), C.int64_t(at.bytes[i])
	}
	if st := C.sie_arena_place((*C.sie_arena)(a), deviceMemory(at.memory), MaxOutputs, &outputs[0], &bytes[0],
		&e); st != C.SIE_OK {
		return fail("arena", st, &e)
	}
	return nil
}

func cArenaFree(a unsafe.Pointer)        { C.sie_arena_free((*C.sie_arena)(a)) }
func cArenaBytes(a unsafe.Pointer) int64 { return int64(C.sie_arena_bytes((*C.sie_arena)(a))) }

func cProgramStateBytes(p unsafe.Pointer) int64 {
	return int64(C.sie_program_state_bytes((*C.sie_program)(p)))
}

func cStateCreate(d unsafe.Pointer, bytes int64) (unsafe.Pointer, error) {
	var e C.sie_error
	var s *C.sie_state
	desc := C.sie_state_desc{struct_size: C.sizeof_sie_state_desc, bytes: C.int64_t(bytes)}
	if st := C.sie_state_create((*C.sie_device)(d), &desc, &s, &e); st != C.SIE_OK {
		return nil, fail("state", st, &e)
	}
	return unsafe.Pointer(s), nil
}

func cStatePlace(s unsafe.Pointer, memory devicePtr) error {
	var e C.sie_error
	if st := C.sie_state_place((*C.sie_state)(s), deviceMemory(memory), &e); st != C.SIE_OK {
		return fail("state", st, &e)
	}
	return nil
}

func cStateFree(s unsafe.Pointer) { C.sie_state_free((*C.sie_state)(s)) }

func cSlotCreate(d unsafe.Pointer, caps SlotCaps, doneFD int) (unsafe.Pointer, error) {
	var e C.sie_error
	var s *C.sie_slot
	c := C.sie_slot_caps{
		struct_size:  C.sizeof_sie_slot_caps,
		n_outputs:    C.uint32_t(len(caps.OutputBytes)),
		max_tokens:   C.int64_t(caps.MaxTokens),
		max_seqs:     C.int64_t(caps.MaxSeqs),
		input_bytes:  C.int64_t(caps.InputBytes),
		output_bytes: (*C.int64_t)(unsafe.SliceData(caps.OutputBytes)),
		done_fd:      C.int32_t(doneFD),
	}
	var pins runtime.Pinner
	defer pins.Unpin()
	pins.Pin(c.output_bytes)
	if st := C.sie_slot_create((*C.sie_device)(d), &c, &s, &e); st != C.SIE_OK {
		return nil, fail("slot", st, &e)
	}
	return unsafe.Pointer(s), nil
}

// cSlotInput returns the pinned memory of a loaded slot that is to be copied to the GPU.
func cSlotInput(s unsafe.Pointer) (host uintptr, bytes int64, err error) {
	var e C.sie_error
	var p unsafe.Pointer
	var n C.int64_t
	if st := C.sie_slot_input((*C.sie_slot)(s), &p, &n, &e); st != C.SIE_OK {
		return 0, 0, fail("slot input", st, &e)
	}
	return uintptr(p), int64(n), nil
}

func cSlotFree(s unsafe.Pointer) { C.sie_slot_free((*C.sie_slot)(s)) }

func cSlotLoad(s, p unsafe.Pointer, b *Batch, of *Slot) error {
	items := &of.items
	cu := func(places *Places) *C.int32_t {
		if places.Cu == nil {
			return ids(of.none)
		}
		return ids(places.Cu)
	}
	var e C.sie_error
	st := C.sie_go_slot_load((*C.sie_slot)(s), (*C.sie_program)(p), C.int64_t(len(b.CuSeqlens)-1),
		C.int64_t(max(len(b.CuQueries)-1, 0)), ids(b.IDs), ids(b.TypeIDs), ids(b.CuSeqlens),
		(*C.uint8_t)(unsafe.SliceData(b.Keep)), ids(b.Adapter), (*C.float)(unsafe.SliceData(b.Queries)),
		ids(b.CuQueries), ids(b.Partner), ids(b.PrefixFirst), ids(b.PrefixRows),
		cu(&b.Words), ids(b.Words.First), ids(b.Words.Last), cu(&b.Markers), ids(b.Markers.First),
		cu(&b.Spans), ids(b.Spans.First), ids(b.Spans.Last), outItems(items[0]),
		outItems(items[1]), outItems(items[2]), outItems(items[3]), &e)
	if st != C.SIE_OK {
		return fail("slot load", st, &e)
	}
	return nil
}

// outItems returns NULL for no items. A slot keeps its slice at length 0, whose pointer is not
// NULL.
func outItems(s []outItem) *C.sie_out_item {
	if len(s) == 0 {
		return nil
	}
	return (*C.sie_out_item)(unsafe.Pointer(unsafe.SliceData(s)))
}

func cProgramSubmit(p, a, s, state unsafe.Pointer) error {
	var e C.sie_error
	if st := C.sie_program_submit((*C.sie_program)(p), (*C.sie_arena)(a), (*C.sie_slot)(s),
		(*C.sie_state)(state), &e); st != C.SIE_OK {
		return fail("submit", st, &e)
	}
	return nil
}

func cSlotWait(s unsafe.Pointer) error {
	var e C.sie_error
	if st := C.sie_slot_wait((*C.sie_slot)(s), &e); st != C.SIE_OK {
		return fail("run", st, &e)
	}
	return nil
}

// cSlotNonFinite returns the memory of a slot's flags, and the offset of a GPU's flags in the
// arena.
func cSlotNonFinite(s unsafe.Pointer) (flags unsafe.Pointer, offset int64) {
	var at C.int64_t
	p := C.sie_slot_nonfinite((*C.sie_slot)(s), &at)
	return unsafe.Pointer(p), int64(at)
}

func cSlotOutput(s unsafe.Pointer, index int) unsafe.Pointer {
	return unsafe.Pointer(C.sie_slot_output((*C.sie_slot)(s), C.int32_t(index), nil))
}

func cMuveraOrder(sketch []int32, repetitions, block, finalDims int, output, source []int32) error {
	var e C.sie_error
	st := C.sie_muvera_order(ids(sketch), C.int64_t(repetitions), C.int64_t(block), C.int64_t(finalDims),
		ids(output), ids(source), &e)
	if st != C.SIE_OK {
		return fail("muvera sketch", st, &e)
	}
	return nil
}
