// gemm_sm90_pairs — two neighbouring columns at a time: how a thread of the skinny form
// reads bias, scales and residual and writes y.
#ifndef SIE_KERNELS_CUDA_GEMM_SM90_PAIRS_CUH
#define SIE_KERNELS_CUDA_GEMM_SM90_PAIRS_CUH

#include "cuda/gemm_epilogue.cuh"

namespace sie_cuda {

// Two neighbouring columns of W's vector (bias, scales), with any alignment and a check of each column.
SIE_DEVICE float2 sm90_pair(const float *p, int32_t column, int32_t n) {
  return make_float2(column < n ? p[column] : 0.0f, column + 1 < n ? p[column + 1] : 0.0f);
}

// An element of a row of the residual and its right neighbour, with any alignment and a check of each column.
template <int32_t Type>
SIE_DEVICE float2 sm90_residual(const void *row, int32_t column, int32_t columns) {
  if (Type == SIE_F32) {
    const float *p = static_cast<const float *>(row) + column;
    return make_float2(column < columns ? p[0] : 0.0f, column + 1 < columns ? p[1] : 0.0f);
  }
  const uint16_t *p = static_cast<const uint16_t *>(row) + column;
  const uint32_t bits =
      (column < columns ? p[0] : 0u) | (column + 1 < columns ? static_cast<uint32_t>(p[1]) << 16 : 0u);
  return Type == SIE_BF16 ? ptx::unpack_bf16x2(bits) : ptx::unpack_f16x2(bits);
}

// Any residual, with a check of its type and of each column; `second` says whether the neighbour
// exists.
SIE_DEVICE float2 sm90_residual_any(const GemmEpilogue &e, int64_t row, int32_t column, bool second) {
  const int32_t columns = column + (second ? 2 : 1);
  const void *of_row =
      static_cast<const char *>(e.residual) + row * e.residual_ld * (e.residual_type == SIE_F32 ? 4 : 2);
  if (e.residual_type == SIE_F32) return sm90_residual<SIE_F32>(of_row, column, columns);
  if (e.residual_type == SIE_BF16) return sm90_residual<SIE_BF16>(of_row, column, columns);
  return sm90_residual<SIE_F16>(of_row, column, columns);
}

// Rounds and stores one or two columns of y (f32, bf16, f16), element by element where y is not
// aligned.
SIE_DEVICE void sm90_store_pair(const GemmEpilogue &e, int64_t row, int32_t column, bool second, float2 v) {
  const int64_t at = row * e.y_ld + column;
  const bool wide = second && (e.wide & GEMM_WIDE_Y) != 0 && column % 2 == 0;
  if (e.y_type == SIE_F32) {
    float *p = static_cast<float *>(e.y) + at;
    if (wide) return ptx::store_global(p, v);
    p[0] = v.x;
    if (second) p[1] = v.y;
  } else {
    uint16_t *p = static_cast<uint16_t *>(e.y) + at;
    uint32_t bits = e.y_type == SIE_BF16 ? ptx::pack_bf16x2(v.x, v.y) : ptx::pack_f16x2(v.x, v.y);
    if (wide) return ptx::store_global(p, bits);
    p[0] = static_cast<uint16_t>(bits);
    if (second) p[1] = static_cast<uint16_t>(bits >> 16);
  }
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_SM90_PAIRS_CUH
