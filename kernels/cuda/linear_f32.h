// linear_f32.h — linear of class F32 on every GPU, for the heads behind pooling, which are computed
// in f32 in every class of model.
#ifndef SIE_KERNELS_CUDA_LINEAR_F32_H
#define SIE_KERNELS_CUDA_LINEAR_F32_H

#include "cuda/gemm_epilogue.h"
#include "ops.h"

namespace sie_cuda {

// All arguments of a launch; the kernel's one parameter.
struct LinearF32Args {
  const int32_t *rows;   // *n, on the device
  const uint8_t *x, *w;  // 16-byte aligned; w as gemm_pack.h has it
  int64_t x_row, w_row;  // bytes between rows
  int32_t k;
  int32_t row_tiles;
  GemmEpilogue epilogue;
};

// The operation (ops.h) for weights of class F32; no scratch. Host function, asynchronous.
//   x   f32, 16-byte aligned, row stride a multiple of 16 bytes
//   y   f32, bf16 or f16; any alignment and stride. Of rows.cap rows only the first *n are written.
// Any K and N ≥ 1. rows.cap 0 does nothing. SIE_UNSUPPORTED: a GPU below sm_80, a weight of another
// class, y in e4m3, more than 2³¹−1 tiles, or what gemm_call does not support.
// SIE_INVALID_ARGUMENT: what gemm_call refuses. All checks come before any launch.
sie_status linear_f32(const sie_linear_args *args, const sie_stream *on);

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_LINEAR_F32_H
