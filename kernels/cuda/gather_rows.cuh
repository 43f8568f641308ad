// gather_rows — y[b] = the first or last row of sequence b; an empty sequence gives zeros.
// Shapes   x [T, C], y [B, C], row strides ≥ C; cu_seqlens [B+1]. B ≥ 0, C ≥ 1.
// Types    x, y bf16 | f16 | f32, one type: bits are copied.
// Alias    none.
// Cost     B·C elements read and written → memory bound; at B = 128, C = 768 a launch.
// Plan     one warp a sequence, 128-bit copies, four under way; 4 or 2 bytes at a time where a row
//          starts or ends between multiples of 16.
// Error    none.
#ifndef SIE_KERNELS_CUDA_GATHER_ROWS_CUH
#define SIE_KERNELS_CUDA_GATHER_ROWS_CUH

#include "cuda/copy_row.cuh"

namespace sie_cuda {

__global__ void __launch_bounds__(row_threads, 4) gather_rows_kernel(const sie_gather_rows_args a) {
  ptx::grid_dependency_wait();
  const int64_t b = static_cast<int64_t>(blockIdx.x) * row_warps + threadIdx.x / 32;
  if (b >= *a.seqs.n) return;
  const int32_t first = a.cu_seqlens[b], last = a.cu_seqlens[b + 1] - 1;
  ptx::grid_dependency_launch();
  char *to = element_at(a.y, b, 0);
  const char *from = last < first ? nullptr : element_at(a.x, a.which == SIE_POOL_CLS ? first : last, 0);
  copy_row(to, from, a.c, a.x.dtype);
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GATHER_ROWS_CUH
