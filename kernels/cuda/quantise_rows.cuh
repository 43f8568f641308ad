// quantise_rows — rows to e4m3 with one scale a row, or one a block of 128 columns.
//   scale = max|x|/448 (below 2⁻¹⁰⁰: 1) over the row or block, q = e4m3(x·(1/scale)); every step is
//   rounded once in f32
// Shapes   x, y [R, C], row stride ≥ C; scale [R], or [R, ⌈C/128⌉] dense. R ≥ 0; C ≤ 8192 for rows,
//          any for blocks.
// Types    x bf16 | f16 | f32; y e4m3.
// Alias    none.
// Cost     R·C elements of x read, bytes of y written → memory bound. R = 16,384, C = 3072, bf16:
//          151 MB, 50 µs.
// Plan     rows: as layernorm.cuh, one warp a row to C = 1536, the row in registers between the
//          load and the store. blocks: one warp for 1024 columns; a block is what 16 neighbouring
//          lanes hold, its maximum a butterfly.
// Error    none: the reference's bits.
// Source   OCP 8-bit floating point 1.0; sie_tensor (ops.h)
#ifndef SIE_KERNELS_CUDA_QUANTISE_ROWS_CUH
#define SIE_KERNELS_CUDA_QUANTISE_ROWS_CUH

#include "cuda/rows.cuh"

namespace sie_cuda {

template <Storage S, int V, int W>
__global__ void __launch_bounds__(row_threads, row_min_blocks(S, V))
    quantise_rows_kernel(const sie_quantise_rows_args a) {
  ptx::grid_dependency_wait();
  SIE_DYNAMIC_SHARED(shared);
  const uint32_t row_of_block = threadIdx.x / (32 * W);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (row_warps / W) + row_of_block;
  if (row >= *a.rows.n) return;
  RowThreads<W, row_warps / W> threads(row_of_block, reinterpret_cast<double *>(shared) + row_of_block * W);
  const int32_t c = static_cast<int32_t>(a.c), first = 8 * static_cast<int32_t>(threads.thread());
  constexpr int32_t stride = 8 * RowThreads<W>::count;

  Loaded<S> x[V];
#pragma unroll
  for (int i = 0; i < V; i++) x[i].load(a.x, row, first + i * stride, c);
  float v[V][8], most = 0;
#pragma unroll
  for (int i = 0; i < V; i++) {
    x[i].get(v[i]);
    most = octet_max<S>(most, v[i], first + i * stride, c);
  }
  ptx::grid_dependency_launch();
  const float scale = e4m3_scale(threads.max(most));
  const float inverse = e4m3_inverse(scale);
#pragma unroll
  for (int i = 0; i < V; i++) store_octet_f8<S>(a.y, row, first + i * stride, c, v[i], inverse);
  if (threads.thread() == 0) a.y.scale[row] = scale;
}

constexpr int block_columns = 128;
constexpr int block_octets = 4;                            // of a lane
constexpr int block_warp_columns = 32 * 8 * block_octets;  // of a warp

template <Storage S>
__global__ void __launch_bounds__(row_threads, 4) quantise_blocks_kernel(const sie_quantise_rows_args a) {
  ptx::grid_dependency_wait();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * row_warps + threadIdx.x / 32;
  if (row >= *a.rows.n) return;
  const int32_t c = static_cast<int32_t>(a.c), lane = static_cast<int32_t>(ptx::lane_id());
  const int32_t first = static_cast<int32_t>(blockIdx.y) * block_warp_columns + 8 * lane;
  const int32_t blocks = (c + block_columns - 1) / block_columns;

  Loaded<S> x[block_octets];
#pragma unroll
  for (int i = 0; i < block_octets; i++) x[i].load(a.x, row, first + i * 256, c);
  ptx::grid_dependency_launch();
#pragma unroll
  for (int i = 0; i < block_octets; i++) {
    const int32_t column = first + i * 256;
    float v[8];
    x[i].get(v);
    float most = octet_max<S>(0.0f, v, column, c);
#pragma unroll
    for (int step = 8; step > 0; step /= 2) most = fmaxf(most, ptx::shuffle_xor(most, step));
    const float scale = e4m3_scale(most);
    store_octet_f8<S>(a.y, row, column, c, v, e4m3_inverse(scale));
    if (lane % 16 == 0 && column < c) a.y.scale[row * blocks + column / block_columns] = scale;
  }
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_QUANTISE_ROWS_CUH
