// gemm_epilogue.h — a linear's bias, addend, activation, residual and output, passed to a GEMM
// kernel by value.
#ifndef SIE_KERNELS_CUDA_GEMM_EPILOGUE_H
#define SIE_KERNELS_CUDA_GEMM_EPILOGUE_H

#include "ops.h"

namespace sie_cuda {

// Which accesses may be wide: 16 bytes at a time (8 where y is e4m3), for runs that start at a
// multiple of 8 columns.
enum GemmWide : int32_t { GEMM_WIDE_BIAS = 1, GEMM_WIDE_RESIDUAL = 2, GEMM_WIDE_Y = 4, GEMM_WIDE_ADDEND = 8 };

struct GemmEpilogue {
  const float *bias;                      // [n] or NULL
  const float *addend;                    // [R, n] or NULL
  const void *residual;                   // [R, columns] or NULL; f32, bf16 or f16. May be y.
  void *y;                                // [R, columns]
  float *y_scale;                         // y in e4m3: [R, y_scale_ld], y_scale_ld = ⌈columns/128⌉
  int64_t residual_ld, y_ld, y_scale_ld;  // elements between rows
  int64_t addend_ld;
  int32_t n;              // rows of W
  int32_t columns;        // of y: n, or n/2 behind a gate
  int32_t act, gate;      // sie_act, sie_gate; one of them is NONE
  int32_t residual_type;  // sie_dtype; 0 without residual
  int32_t y_type;         // sie_dtype
  int32_t wide;           // GemmWide
};

// Fills *e from the operation's arguments. SIE_UNSUPPORTED: y is neither f32, bf16, f16 nor e4m3
// with scales per 1×128 block, the residual is not a float type, or the addend is not f32.
// SIE_INVALID_ARGUMENT: an unknown act or gate, both at once, an odd n with a gate, n outside 1 …
// 2³⁰, a stride below the columns, scales missing, or a pointer below its element's alignment.
sie_status gemm_epilogue(const sie_linear_args *args, GemmEpilogue *e);

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_EPILOGUE_H
