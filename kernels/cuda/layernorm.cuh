// layernorm — y = norm(s)·(offset + γ) + β with s = (x + bias) + residual, and s itself, in one
// pass over memory.
//   LayerNorm  μ = Σ s/C, σ² = Σ (s − μ)²/C,  y = (s − μ)/√(σ² + ε)·(offset + γ) + β
//   RMSNorm    the same with μ = 0
//   yq         scale = max|y|/448 (below 2⁻¹⁰⁰: 1), q = e4m3(y·(1/scale)), from y before it is
//              rounded
// Shapes   x, residual, sum, y, yq [R, C], row stride ≥ C; bias, γ, β [C]; yq.scale [R]. R ≥ 0,
//          1 ≤ C ≤ 8192.
// Types    x, residual, sum, y bf16 | f16 | f32; yq e4m3, one scale a row. y may be absent where yq
//          is there.
// Alias    y or sum may be x or residual (one type), not each other: a row is read before it is
//          written.
// Cost     R·C elements of x, residual, sum, y moved, ~8 flop each → memory bound. R = 16,384,
//          C = 768, bf16, at 3.0 TB/s: x → y 50.3 MB, 16.8 µs; x → yq 37.8 MB, 12.6 µs; with
//          residual and sum 100.7 MB, 33.6 µs.
// Plan     one warp a row to C = 1536, then 2, 4, 8 (rows.cuh). The row stays in registers from its
//          128-bit loads to its 128-bit stores, with a two-pass variance; sums by butterfly and in
//          the order of the warps. A row is asked for before the batch's count is known. The next kernel may start once a CTA's rows are loaded. bias, γ,
//          β come from L1: 3·C·4 B of 128 B/clk a row.
// Error    sie_tol_norm (common/tol.h); yq is exact except for y's error.
// Source   Ba 2016 §3, arXiv:1607.06450; Zhang 2019, arXiv:1910.07467
#ifndef SIE_KERNELS_CUDA_LAYERNORM_CUH
#define SIE_KERNELS_CUDA_LAYERNORM_CUH

#include "cuda/rows.cuh"

namespace sie_cuda {

// The norm of a row's sums v, the octets thread, thread + count, … of it, and its stores.
struct NormParameters {
  const float *gamma, *beta;
  float eps, weight_offset;
  int32_t norm;
};

constexpr int norm_reductions = 3;

template <Storage S, int V, class Threads>
SIE_DEVICE void norm_and_store(float (&v)[V][8], int64_t row, int32_t c, const NormParameters &p,
                               const sie_tensor &y, const sie_tensor &yq, Threads *threads) {
  const int32_t first = 8 * static_cast<int32_t>(threads->thread());
  constexpr int32_t stride = 8 * Threads::count;
  if (p.norm != SIE_NORM_NONE) {
    const float columns = static_cast<float>(c);
    float mean = 0;
    if (p.norm == SIE_NORM_LAYER) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < V; i++) {
#pragma unroll
        for (int j = 0; j < 8; j++) sum += v[i][j];  // 0 beyond the row
      }
      mean = __fdiv_rn(threads->sum(sum), columns);
    }
    float squares = 0;
#pragma unroll
    for (int i = 0; i < V; i++) {
#pragma unroll
      for (int j = 0; j < 8; j++) {
        const float d = v[i][j] - mean;
        v[i][j] = d;
        if (in_row<S>(first + i * stride, j, c)) squares = __fmaf_rn(d, d, squares);
      }
    }
    const float variance = __fdiv_rn(threads->sum(squares), columns);
    const float factor = __fdiv_rn(1.0f, __fsqrt_rn(variance + p.eps));
#pragma unroll
    for (int i = 0; i < V; i++) {
      float gamma[8], beta[8] = {};
      load_vector<S>(p.gamma, first + i * stride, c, gamma);
      if (p.beta != nullptr) load_vector<S>(p.beta, first + i * stride, c, beta);
#pragma unroll
      for (int j = 0; j < 8; j++) {
        v[i][j] = __fmaf_rn(__fmul_rn(v[i][j], factor), p.weight_offset + gamma[j], beta[j]);
      }
    }
  }
  if (y.p != nullptr) {
#pragma unroll
    for (int i = 0; i < V; i++) store_octet<S>(y, row, first + i * stride, c, v[i]);
  }
  if (yq.p == nullptr) return;
  float most = 0;
#pragma unroll
  for (int i = 0; i < V; i++) most = octet_max<S>(most, v[i], first + i * stride, c);
  const float scale = e4m3_scale(threads->max(most));
  const float inverse = e4m3_inverse(scale);
#pragma unroll
  for (int i = 0; i < V; i++) store_octet_f8<S>(yq, row, first + i * stride, c, v[i], inverse);
  if (threads->thread() == 0) yq.scale[row] = scale;
}

template <Storage S, int V, int W, bool HasResidual>
__global__ void __launch_bounds__(row_threads, row_min_blocks(S, V))
    layernorm_kernel(const sie_layernorm_args a) {
  ptx::grid_dependency_wait();
  SIE_DYNAMIC_SHARED(shared);
  const uint32_t row_of_block = threadIdx.x / (32 * W);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (row_warps / W) + row_of_block;
  // Rows to `cap` have memory: they are asked for before the count is known, one trip less.
  if (row >= a.rows.cap) return;
  RowThreads<W, row_warps / W> threads(
      row_of_block, reinterpret_cast<double *>(shared) + row_of_block * W * norm_reductions);
  const int32_t c = static_cast<int32_t>(a.c), first = 8 * static_cast<int32_t>(threads.thread());
  constexpr int32_t stride = 8 * RowThreads<W>::count;

  Loaded<S> x[V], residual[V];
#pragma unroll
  for (int i = 0; i < V; i++) {
    x[i].load(a.x, row, first + i * stride, c);
    if (HasResidual) residual[i].load(a.residual, row, first + i * stride, c);
  }
  const int32_t n = ptx::load_count(a.rows.n);
  float v[V][8];
#pragma unroll
  for (int i = 0; i < V; i++) {
    x[i].get(v[i]);
    if (a.bias != nullptr) {
      float bias[8];
      load_vector<S>(a.bias, first + i * stride, c, bias);
#pragma unroll
      for (int j = 0; j < 8; j++) v[i][j] += bias[j];
    }
    if (HasResidual) {
      float r[8];
      residual[i].get(r);
#pragma unroll
      for (int j = 0; j < 8; j++) v[i][j] += r[j];
    }
    // load_vector gives octets beyond the row the first columns' bias.
#pragma unroll
    for (int j = 0; j < 8; j++) v[i][j] = in_row<S>(first + i * stride, j, c) ? v[i][j] : 0.0f;
  }
  if (row >= n) return;
  ptx::grid_dependency_launch();
  if (a.sum.p != nullptr) {
#pragma unroll
    for (int i = 0; i < V; i++) store_octet<S>(a.sum, row, first + i * stride, c, v[i]);
  }
  norm_and_store<S, V>(v, row, c, {a.gamma, a.beta, a.eps, a.weight_offset, a.norm}, a.y, a.yq, &threads);
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_LAYERNORM_CUH
