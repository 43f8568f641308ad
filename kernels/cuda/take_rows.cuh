// take_rows — y[r] = a row of x of the same sequence, the mean of a range of them, or 0 for the
// place −1.
//   A mean adds its rows in ascending order, an f32 sum a column, then divides once.
// Shapes   x [Rx, C], y [R, C], row strides ≥ C; first, last [R] places in the sequence of x;
//          cu_seqlens, cu_x [B+1]. R ≥ 0, 1 ≤ C ≤ 2²⁰.
// Types    x, y bf16 | f16 | f32, one type: bits are copied; a mean is rounded once.
// Alias    none.
// Cost     2·C elements moved a row, a mean (n + 1)·C → memory bound: 16k rows of 768 in bf16 50
//          MB, 17 µs at 3.0 TB/s.
// Plan     one warp a row, which finds its sequence and copies as keep_rows; a mean goes octet by
//          octet (octets.cuh) down its rows, of which there are few.
// Error    a mean: n roundings of the sum, one of the quotient and that of the store.
#ifndef SIE_KERNELS_CUDA_TAKE_ROWS_CUH
#define SIE_KERNELS_CUDA_TAKE_ROWS_CUH

#include "cuda/copy_row.cuh"

namespace sie_cuda {

// y[row] = the mean of rows first … last of x, by one warp.
SIE_DEVICE void mean_rows(const sie_take_rows_args &a, int64_t row, int32_t first, int32_t last) {
  const int32_t c = static_cast<int32_t>(a.c);
  const float count = __int2float_rn(last - first + 1);
  for (int32_t column = 8 * static_cast<int32_t>(ptx::lane_id()); column < c; column += 8 * 32) {
    float sum[8];
    load_octet_any(a.x, first, column, c, sum);
    for (int32_t i = first + 1; i <= last; i++) {
      float v[8];
      load_octet_any(a.x, i, column, c, v);
#pragma unroll
      for (int j = 0; j < 8; j++) sum[j] = __fadd_rn(sum[j], v[j]);
    }
#pragma unroll
    for (int j = 0; j < 8; j++) sum[j] = __fdiv_rn(sum[j], count);
    store_octet_any(a.y, row, column, c, sum);
  }
}

__global__ void __launch_bounds__(row_threads, 4) take_rows_kernel(const sie_take_rows_args a) {
  ptx::grid_dependency_wait();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * row_warps + threadIdx.x / 32;
  if (row >= *a.rows.n) return;
  const int32_t b = sequence_of(a.cu_seqlens, *a.seqs.n, static_cast<int32_t>(row)).index;
  int32_t first = b, last = b, begin = 0;
  if (a.cu_x != nullptr) {
    begin = a.cu_x[b];
    first = a.which == SIE_POOL_LAST ? a.last[row] : a.first[row];
    last = a.which == SIE_POOL_CLS ? first : a.last[row];
  }
  ptx::grid_dependency_launch();
  if (first != last && first >= 0) {
    mean_rows(a, row, begin + first, begin + last);
  } else {
    copy_row(element_at(a.y, row, 0), first < 0 ? nullptr : element_at(a.x, begin + first, 0), a.c,
             a.x.dtype);
  }
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_TAKE_ROWS_CUH
