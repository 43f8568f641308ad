// join_columns — y[r] = [x[0][r], x[1][r], x[2][r]]: columns of several tensors next to each other.
// Shapes   x[i] [R, c[i]], y [R, Σ c], row strides ≥ the columns; c[i] 0: absent. R ≥ 0,
//          Σ c ≤ 2²⁰.
// Types    x, y bf16 | f16 | f32, each its own; rounded to nearest even where y is narrower.
// Alias    none.
// Cost     R·Σ c elements read and written → memory bound: 16k rows of 2 × 768 in bf16 101 MB,
//          34 µs at 3.0 TB/s.
// Plan     one warp a row, tensor by tensor; a lane converts an octet (octets.cuh) at a time, two
//          under way; element by element where an octet starts between multiples of 16 bytes.
// Error    none.
#ifndef SIE_KERNELS_CUDA_JOIN_COLUMNS_CUH
#define SIE_KERNELS_CUDA_JOIN_COLUMNS_CUH

#include "cuda/rows.cuh"

namespace sie_cuda {

// Copies the c columns of a row of x to y's, from its column `at` on.
SIE_DEVICE void copy_columns(const sie_tensor &x, int32_t c, const sie_tensor &y, int64_t row, int32_t at) {
  constexpr int under_way = 2;
  constexpr int32_t step = 8 * 32;
  sie_tensor to = y;
  to.p = element_at(y, 0, at);
  for (int32_t first = 8 * static_cast<int32_t>(ptx::lane_id()); first < c; first += under_way * step) {
    float v[under_way][8];
#pragma unroll
    for (int i = 0; i < under_way; i++) load_octet_any(x, row, first + i * step, c, v[i]);
#pragma unroll
    for (int i = 0; i < under_way; i++) store_octet_any(to, row, first + i * step, c, v[i]);
  }
}

__global__ void __launch_bounds__(row_threads, 4) join_columns_kernel(const sie_join_columns_args a) {
  ptx::grid_dependency_wait();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * row_warps + threadIdx.x / 32;
  if (row >= *a.rows.n) return;
  ptx::grid_dependency_launch();
  int32_t at = 0;
#pragma unroll
  for (int i = 0; i < SIE_MAX_JOINED; i++) {
    const int32_t c = static_cast<int32_t>(a.c[i]);
    copy_columns(a.x[i], c, a.y, row, at);
    at += c;
  }
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_JOIN_COLUMNS_CUH
