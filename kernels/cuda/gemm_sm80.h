// gemm_sm80.h — linear on GPUs without wgmma: mma.sync kernels for sm_80, 86, 89 and the Blackwell
// targets.
//
// Classes BF16 and F16 run everywhere except on sm_90, where the wgmma kernels run. FP8 runs on
// sm_89 and sm_120, the targets whose mma.sync takes e4m3. gemm_pack.h describes the weights. All
// tile variants of a class compute the same bits (gemm_sm80_test.cc): the choice changes speed
// alone and may depend on the rows.
#ifndef SIE_KERNELS_CUDA_GEMM_SM80_H
#define SIE_KERNELS_CUDA_GEMM_SM80_H

#include "cuda/gemm_epilogue.h"
#include "ops.h"

namespace sie_cuda {

// A tile of `rows` × `columns` (of W) a CTA.
struct GemmSm80Variant {
  const char *name;  // for the sweep's table
  int32_t rows, columns;
};

// The variants of a class by index, 0, 1, … from the largest tile down; NULL past the end.
const GemmSm80Variant *gemm_sm80_variant(uint32_t compute, int32_t index);

// The fastest variant, a function of shape, types, rows.cap and the device (gemm_tiles.h); −1 where
// the arguments are refused.
int32_t gemm_sm80_choose(const sie_linear_args *args, const sie_stream *on);

// The operation (ops.h) by one variant; no scratch. Host function, asynchronous.
//   x       16-byte aligned, row stride a multiple of 16 bytes; e4m3 scales per row or per 1×128
//           block
//   y       f32, bf16, f16, or e4m3 with scales per 1×128 block; any alignment and stride (16-byte
//           runs are faster). Of rows.cap rows only the first *n are written.
// Any K and N ≥ 1. rows.cap 0 does nothing. SIE_UNSUPPORTED: a GPU outside this list, no such
// variant, y in e4m3 where the variant's columns of y are not a multiple of 128, or what gemm_call
// does not support. SIE_INVALID_ARGUMENT: what gemm_call refuses. All checks come before any
// launch.
sie_status gemm_sm80_run(int32_t variant, const sie_linear_args *args, const sie_stream *on);

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_SM80_H
