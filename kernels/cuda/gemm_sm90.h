// gemm_sm90.h — linear on Hopper (sm_90a): wgmma kernels with TMA, for classes BF16, F16 and FP8.
//
// gemm_pack.h describes the weights. All variants of a class compute the same bits
// (gemm_sm90_test.cc): the choice changes speed alone and may depend on the rows.
#ifndef SIE_KERNELS_CUDA_GEMM_SM90_H
#define SIE_KERNELS_CUDA_GEMM_SM90_H

#include "cuda/gemm_epilogue.h"
#include "ops.h"

namespace sie_cuda {

// A way to divide the work. Names say schedule, tile and cluster.
struct GemmSm90Variant {
  const char *name;        // for the sweep's table
  int32_t rows, columns;   // of a CTA's tile (columns of W); the skinny form: rows it takes at most, and 0
  int32_t warpgroup_rows;  // of a warpgroup's tile: less than rows where two share a tile
  int32_t cluster;
  uint32_t classes;  // bit (1 << sie_compute)
};

// The variants by index; NULL past the last. Index 0 is the skinny form.
const GemmSm90Variant *gemm_sm90_variant(int32_t index);

// Whether the variant takes the call: its class has it, the rows fit (skinny), and its tile holds
// whole blocks where y is e4m3 or gated.
bool gemm_sm90_takes(int32_t variant, const sie_linear_args *args);

// The fastest variant by the table of gemm_tiles.h, else by the cost model (cost.h): a function of
// shape, types, epilogue, rows.cap and the device. −1 where the arguments are refused.
int32_t gemm_sm90_choose(const sie_linear_args *args, const sie_stream *on);

// The same without the checks and the pointers: of the arguments it reads rows.cap, n, k, act, gate, the
// types of addend, residual and y, whether the first two are there, and w->compute.
int32_t gemm_sm90_pick(const sie_linear_args &args, const sie_stream &on);

// The operation (ops.h) by one variant; no scratch. Host function, asynchronous.
//   x       16-byte aligned, row stride a multiple of 16 bytes (TMA); e4m3 scales per row or per
//           1×128 block
//   y       f32, bf16, f16, or e4m3 with scales per 1×128 block; any alignment and stride
//           (multiples of 16 bytes are faster). Of rows.cap rows only the first *n are written.
// Any K and N ≥ 1. rows.cap 0 does nothing. SIE_UNSUPPORTED: a GPU that is not sm_9x, a variant
// that does not take the call, or what gemm_call does not support. SIE_INVALID_ARGUMENT: what
// gemm_call refuses. All checks come before any launch.
sie_status gemm_sm90_run(int32_t variant, const sie_linear_args *args, const sie_stream *on);

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_SM90_H
