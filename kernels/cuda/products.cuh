// product, dots — y[r, c] = a[r, c]·b[r, c], and y[r] = Σ_c a[r, c]·b[r, c].
//   dots: one FMA chain a row, c ascending.
// Shapes   a, b [R, C], y [R, C] or [R, 1], row strides ≥ the columns. R ≥ 0, 1 ≤ C ≤ 2²⁰.
// Types    a, b bf16 | f16 | f32, each its own; y of product one of these, of dots f32.
// Alias    product: y may be a or b when the types agree.
// Align    any; 128-bit accesses where a row allows them.
// Cost     2·C elements read a row → memory bound: 16k rows of 768 in bf16 50 MB, 17 µs at 3.0
//          TB/s. Few rows: dots takes a chain of C FMAs of 4 clocks, 1.8 µs for 768 at 1.7 GHz.
// Plan     product: one warp a row, an octet (octets.cuh) a lane. dots: one warp for 32 rows. Lines
//          of 32 columns pass through shared memory in f32; a lane brings octets of eight rows,
//          then adds its own row. Rows of a line lie 33 floats apart: the 32 rows of a column, and
//          the octets that the lanes bring, are in different banks.
// Error    product: one rounding, and that of y's type. dots: sie_tol_dot.
#ifndef SIE_KERNELS_CUDA_PRODUCTS_CUH
#define SIE_KERNELS_CUDA_PRODUCTS_CUH

#include "cuda/rows.cuh"

namespace sie_cuda {

__global__ void __launch_bounds__(row_threads, 4) product_kernel(const sie_product_args a) {
  ptx::grid_dependency_wait();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * row_warps + threadIdx.x / 32;
  if (row >= *a.rows.n) return;
  ptx::grid_dependency_launch();
  const int32_t c = static_cast<int32_t>(a.c);
  for (int32_t column = 8 * static_cast<int32_t>(ptx::lane_id()); column < c; column += 8 * 32) {
    float x[8], y[8];
    load_octet_any(a.a, row, column, c, x);
    load_octet_any(a.b, row, column, c, y);
#pragma unroll
    for (int j = 0; j < 8; j++) y[j] = __fmul_rn(x[j], y[j]);
    store_octet_any(a.y, row, column, c, y);
  }
}

constexpr int32_t dots_warps = 2, dots_threads = 32 * dots_warps, dots_min_ctas = 6;
constexpr int32_t dots_rows = 32, dots_line = 32;  // of a warp, and of its columns at a time
constexpr int32_t dots_stride = 33;                // floats between the rows of a line
constexpr int32_t dots_half = dots_rows * dots_stride;
constexpr int32_t dots_shared_bytes = dots_warps * 2 * dots_half * 4;

// Columns [column, column + dots_line) of rows [first, end) into a line; of others zeros.
SIE_DEVICE void dots_load(const sie_tensor &x, int64_t first, int64_t end, int32_t column, int32_t c,
                          float *line) {
  const int32_t lane = static_cast<int32_t>(ptx::lane_id()), octet = lane % 4 * 8;
#pragma unroll
  for (int i = 0; i < dots_rows / 8; i++) {
    const int32_t row = lane / 4 + 8 * i;
    float v[8];
    load_octet_any(x, first + row, column + octet, first + row < end ? c : 0, v);
#pragma unroll
    for (int j = 0; j < 8; j++) ptx::store_shared(line + row * dots_stride + octet + j, v[j]);
  }
}

__global__ void __launch_bounds__(dots_threads, dots_min_ctas) dots_kernel(const sie_dots_args a) {
  ptx::grid_dependency_wait();
  SIE_DYNAMIC_SHARED(shared);
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32, lane = static_cast<int32_t>(ptx::lane_id()),
                c = static_cast<int32_t>(a.c);
  float *const x = reinterpret_cast<float *>(shared) + warp * 2 * dots_half, *const y = x + dots_half;
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * dots_warps + warp) * dots_rows, end = *a.rows.n;
  if (first >= end) return;
  ptx::grid_dependency_launch();
  float sum = 0.0f;
  for (int32_t column = 0; column < c; column += dots_line) {
    dots_load(a.a, first, end, column, c, x);
    dots_load(a.b, first, end, column, c, y);
    ptx::sync_warp();
#pragma unroll 8
    for (int32_t k = 0; k < dots_line; k++) {
      sum = __fmaf_rn(ptx::load_shared<float>(x + lane * dots_stride + k),
                      ptx::load_shared<float>(y + lane * dots_stride + k), sum);
    }
    ptx::sync_warp();
  }
  if (first + lane < end) *reinterpret_cast<float *>(element_at(a.y, first + lane, 0)) = sum;
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_PRODUCTS_CUH
