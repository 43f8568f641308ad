// gemm_call.h — a checked call of linear, with the checks that all families of kernels share.
#ifndef SIE_KERNELS_CUDA_GEMM_CALL_H
#define SIE_KERNELS_CUDA_GEMM_CALL_H

#include "cuda/gemm_epilogue.h"
#include "cuda/gemm_pack.h"
#include "ops.h"

namespace sie_cuda {

// A checked call. Borrows args and on.
struct GemmCall {
  const sie_linear_args *args;
  const sie_stream *on;
  GemmEpilogue epilogue;
  GemmLayout layout;     // of the weight
  const float *w_scale;  // FP8: [n_padded]; else NULL
  bool block_scales;     // FP8: x has one scale a 1×128 block, not a row
};

// Fills *call. SIE_UNSUPPORTED: a class that GPUs lack, x not of the class's type, e4m3 scales
// other than per row or 1×128 block, x or its row stride not a multiple of 16 bytes, or what
// gemm_epilogue does not support. SIE_INVALID_ARGUMENT: no stream, weight, count or scales; a shape
// that is not the weight's or outside 1 … 2²⁸ (K), 0 … 2³⁰ (rows); a stride below K; a weight not
// 16-byte aligned; what gemm_epilogue refuses.
sie_status gemm_call(const sie_linear_args *args, const sie_stream *on, GemmCall *call);

inline int64_t divide_up(int64_t x, int64_t y) { return (x + y - 1) / y; }

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_CALL_H
