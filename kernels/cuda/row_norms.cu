// row_norms.cu — the kernel and its launcher.
//   norms[r] = max(√Σ x[r, c]², 1e-12), the squares exact in double, one order of summation
// Shapes   x [R, C], row stride ≥ C; norms [R]. 1 ≤ C ≤ 2²⁰.
// Types    x bf16 | f16 | f32.
// Cost     R·C elements read → memory bound: 16k rows of 128 in bf16 are 4 MB, the time of a
//          launch.
// Plan     a warp a row; a lane reads octets of it, by 128-bit loads where rows allow it.
#include "cuda/row_norms.h"

#include "cuda/rows.cuh"

namespace sie_cuda {

namespace {

__global__ void __launch_bounds__(row_threads, 4)
    row_norms_kernel(const sie_rows rows, const sie_tensor x, int32_t c, float *norms) {
  ptx::grid_dependency_wait();
  const int64_t r = static_cast<int64_t>(blockIdx.x) * row_warps + threadIdx.x / 32;
  if (r >= *rows.n) return;
  double squares = 0;
  for (int32_t column = 8 * static_cast<int32_t>(ptx::lane_id()); column < c; column += 256) {
    float v[8];
    load_octet_any(x, r, column, c, v);
#pragma unroll
    for (int j = 0; j < 8; j++) squares += static_cast<double>(v[j]) * static_cast<double>(v[j]);
  }
  ptx::grid_dependency_launch();
  RowThreads<1> threads(0, nullptr);
  const float norm = static_cast<float>(sqrt(threads.sum(squares)));
  if (ptx::lane_id() == 0) norms[r] = norm < 1e-12f ? 1e-12f : norm;
}

}  // namespace

sie_status launch_row_norms(const sie_rows &rows, const sie_tensor &x, int32_t c, float *norms,
                            const sie_stream *on) {
  return SIE_LAUNCH(row_norms_kernel, row_grid(rows.cap, 1), row_threads, 0, on, rows, x, c, norms);
}

}  // namespace sie_cuda
