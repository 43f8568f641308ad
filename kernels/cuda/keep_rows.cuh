// keep_rows — y[i] = x[index[i]]: copies the token rows that the batch keeps, in order.
// Shapes   x [T, C], y [K, C], row strides ≥ C; index [K], rows of x. K ≥ 0, C ≥ 1.
// Types    x, y bf16 | f16 | f32, one type: bits are copied.
// Alias    none.
// Cost     K·C elements read and written → memory bound: 16k rows of 768 in bf16 50 MB, 17 µs at
//          3.0 TB/s.
// Plan     as gather_rows: one warp a row, 128-bit copies, four under way; 4 or 2 bytes at a time
//          where a row starts or ends between multiples of 16.
// Error    none.
#ifndef SIE_KERNELS_CUDA_KEEP_ROWS_CUH
#define SIE_KERNELS_CUDA_KEEP_ROWS_CUH

#include "cuda/copy_row.cuh"

namespace sie_cuda {

__global__ void __launch_bounds__(row_threads, 4) keep_rows_kernel(const sie_keep_rows_args a) {
  ptx::grid_dependency_wait();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * row_warps + threadIdx.x / 32;
  if (i >= *a.kept.n) return;
  const int32_t row = a.index[i];
  ptx::grid_dependency_launch();
  copy_row(element_at(a.y, i, 0), element_at(a.x, row, 0), a.c, a.x.dtype);
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_KEEP_ROWS_CUH
