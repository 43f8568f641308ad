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
//          128-bit loads to its 128-bit stores, with a two-pass variance; sums of 257 … 1,024 columns in
//          the order of norm_order.cuh, of others by butterfly and in the order of the warps. A row is
//          asked for before the batch's count is known. The next kernel may start once a CTA's rows are
//          loaded. bias, γ, β come from L1: 3·C·4 B of 128 B/clk a row.
// Error    sie_tol_norm (common/tol.h); yq is exact except for y's error.
// Source   Ba 2016 §3, arXiv:1607.06450; Zhang 2019, arXiv:1910.07467
#ifndef SIE_KERNELS_CUDA_LAYERNORM_CUH
#define SIE_KERNELS_CUDA_LAYERNORM_CUH

#include "cuda/norm_order.cuh"
#include "cuda/ptx/special.h"
#include "cuda/rows.cuh"

namespace sie_cuda {

struct NormParameters {
  const float *gamma, *beta;
  float eps, weight_offset;
  int32_t norm;
};

constexpr int norm_reductions = 3;

// The order of a row's sums, and the octets that a thread holds for it: groups is norm_order.cuh's where a row
// has that; else those of rows.cuh.
enum class NormOrder { butterfly, groups };

template <NormOrder O, int V, class Threads>
constexpr bool norm_in_groups = O == NormOrder::groups && norm_ordered<V, Threads::count / 32>;

// The first column of a thread's octet i.
template <NormOrder O, int V, class Threads>
SIE_DEVICE int32_t norm_column_of(const Threads &threads, int i) {
  // Read anew, the thread's number leaves a register to what is loaded ahead: without that, 80 are too few.
  if constexpr (norm_in_groups<O, V, Threads>) return norm_column<V>(ptx::thread_index() % 32, i);
  return 8 * static_cast<int32_t>(threads.thread()) + i * 8 * Threads::count;
}

// The sum of a row, 0 of either sign beyond it.
template <NormOrder O, int V, class Threads>
SIE_DEVICE float norm_sum(const float (&v)[V][8], Threads *threads) {
  if constexpr (norm_in_groups<O, V, Threads>) {
    float pair[V][4];
#pragma unroll
    for (int i = 0; i < V; i++) {
#pragma unroll
      for (int t = 0; t < 4; t++) pair[i][t] = norm_pair(v[i][2 * t], v[i][2 * t + 1]);
    }
    return norm_row(pair);
  } else {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < V; i++) {
#pragma unroll
      for (int j = 0; j < 8; j++) sum += v[i][j];
    }
    return threads->sum(sum);
  }
}

// Takes the mean from a row and returns the sum of squares of what is left.
template <Storage S, NormOrder O, int V, class Threads>
SIE_DEVICE float norm_sum_of_squares(float (&v)[V][8], float mean, int32_t c, Threads *threads) {
  if constexpr (norm_in_groups<O, V, Threads>) {
    float pair[V][4];
#pragma unroll
    for (int i = 0; i < V; i++) {
      const int32_t column = norm_column_of<O, V>(*threads, i);
#pragma unroll
      for (int j = 0; j < 8; j++) v[i][j] = in_row<S>(column, j, c) ? v[i][j] - mean : 0.0f;
#pragma unroll
      for (int t = 0; t < 4; t++) pair[i][t] = norm_pair_of_squares(v[i][2 * t], v[i][2 * t + 1]);
    }
    return norm_row(pair);
  } else {
    float squares = 0;
#pragma unroll
    for (int i = 0; i < V; i++) {
#pragma unroll
      for (int j = 0; j < 8; j++) {
        const float d = v[i][j] - mean;
        v[i][j] = d;
        if (in_row<S>(norm_column_of<O, V>(*threads, i), j, c)) squares = __fmaf_rn(d, d, squares);
      }
    }
    return threads->sum(squares);
  }
}

// The norm of a row's sums v and its stores; the thread's octets are those of norm_column_of.
template <Storage S, NormOrder O, int V, class Threads>
SIE_DEVICE void norm_and_store(float (&v)[V][8], int64_t row, int32_t c, const NormParameters &p,
                               const sie_tensor &y, const sie_tensor &yq, Threads *threads) {
  const auto column = [&](int i) { return norm_column_of<O, V>(*threads, i); };
  if (p.norm != SIE_NORM_NONE) {
    const float columns = static_cast<float>(c);
    float mean = 0;
    if (p.norm == SIE_NORM_LAYER) mean = __fdiv_rn(norm_sum<O>(v, threads), columns);
    const float variance = __fdiv_rn(norm_sum_of_squares<S, O>(v, mean, c, threads), columns);
    const float factor = __fdiv_rn(1.0f, __fsqrt_rn(variance + p.eps));
#pragma unroll
    for (int i = 0; i < V; i++) {
      float gamma[8], beta[8] = {};
      load_vector<S>(p.gamma, column(i), c, gamma);
      if (p.beta != nullptr) load_vector<S>(p.beta, column(i), c, beta);
#pragma unroll
      for (int j = 0; j < 8; j++) {
        v[i][j] = __fmaf_rn(__fmul_rn(v[i][j], factor), p.weight_offset + gamma[j], beta[j]);
      }
    }
  }
  if (y.p != nullptr) {
#pragma unroll
    for (int i = 0; i < V; i++) store_octet<S>(y, row, column(i), c, v[i]);
  }
  if (yq.p == nullptr) return;
  float most = 0;
#pragma unroll
  for (int i = 0; i < V; i++) most = octet_max<S>(most, v[i], column(i), c);
  const float scale = e4m3_scale(threads->max(most));
  const float inverse = e4m3_inverse(scale);
#pragma unroll
  for (int i = 0; i < V; i++) store_octet_f8<S>(yq, row, column(i), c, v[i], inverse);
  if (threads->thread() == 0) yq.scale[row] = scale;
}

// The sums of 257 … 512 columns need some registers more than those of row_min_blocks: they spill with five CTAs.
constexpr int layernorm_min_blocks(Storage s, int v) {
  return v == 2 && s != Storage::any ? 4 : row_min_blocks(s, v);
}

template <Storage S, int V, int W, bool HasResidual>
__global__ void __launch_bounds__(row_threads, layernorm_min_blocks(S, V))
    layernorm_kernel(const sie_layernorm_args a) {
  ptx::grid_dependency_wait();
  SIE_DYNAMIC_SHARED(shared);
  const uint32_t row_of_block = threadIdx.x / (32 * W);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (row_warps / W) + row_of_block;
  // Rows to `cap` have memory: they are asked for before the count is known, one trip less.
  if (row >= a.rows.cap) return;
  RowThreads<W, row_warps / W> threads(
      row_of_block, reinterpret_cast<double *>(shared) + row_of_block * W * norm_reductions);
  const int32_t c = static_cast<int32_t>(a.c);
  constexpr NormOrder order = NormOrder::groups;
  const auto column = [&](int i) { return norm_column_of<order, V>(threads, i); };

  Loaded<S> x[V], residual[V];
#pragma unroll
  for (int i = 0; i < V; i++) {
    x[i].load(a.x, row, column(i), c);
    if (HasResidual) residual[i].load(a.residual, row, column(i), c);
  }
  const int32_t n = ptx::load_count(a.rows.n);
  float v[V][8];
#pragma unroll
  for (int i = 0; i < V; i++) {
    x[i].get(v[i]);
    if (a.bias != nullptr) {
      float bias[8];
      load_vector<S>(a.bias, column(i), c, bias);
#pragma unroll
      for (int j = 0; j < 8; j++) v[i][j] += bias[j];
    }
    if (HasResidual) {
      float r[8];
      residual[i].get(r);
#pragma unroll
      for (int j = 0; j < 8; j++) v[i][j] += r[j];
    }
    // load_vector gives octets beyond the row the first columns' bias. −0 changes no sum, not even one of −0.
#pragma unroll
    for (int j = 0; j < 8; j++) v[i][j] = in_row<S>(column(i), j, c) ? v[i][j] : -0.0f;
  }
  if (row >= n) return;
  ptx::grid_dependency_launch();
  if (a.sum.p != nullptr) {
#pragma unroll
    for (int i = 0; i < V; i++) store_octet<S>(a.sum, row, column(i), c, v[i]);
  }
  norm_and_store<S, order>(v, row, c, {a.gamma, a.beta, a.eps, a.weight_offset, a.norm}, a.y, a.yq, &threads);
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_LAYERNORM_CUH
