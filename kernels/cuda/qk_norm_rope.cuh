// qk_norm_rope — q and k in place: each head is normalised where it has a weight, then rotated,
// rounded once.
//   x' = x/√(Σ x²/D + ε)·(offset + γ)
//   y[i] = x'[i]·cos[p,i] − x'[i+h]·sin[p,i],  y[i+h] = x'[i+h]·cos[p,i] + x'[i]·sin[p,i]
//   for i < h = rot/2; p is the token's index in its own sequence b + offset + first_position[b].
//   Columns from rot on are only normalised. A sequence of more rows than positions has cos and sin
//   of 2π·p·t_i, of turns.
// Shapes   q [T, H·D], k [T, Hkv·D], row strides ≥ columns; γ [D]; cos, sin [positions, h];
//          cu_seqlens [B+1]; first_position [B] or absent: 0; turns [lengths, rot] or absent. T ≥ 0,
//          1 ≤ D ≤ 256, rot even, 0 … D; every p < positions, or its sequence in turns (the caller's
//          check).
// Types    q, k bf16 | f16 | f32, one type; γ, cos, sin f32.
// Alias    in place; q and k are disjoint.
// Cost     T·(H + Hkv)·D elements read and written → memory bound. T = 16,384, H = Hkv = 12, D =
//          64, bf16: 101 MB at 3.0 TB/s, 33.6 µs as a pass of its own; better would be the epilogue
//          of the QKV product.
// Plan     octets: D ∈ {32, 64, 128, 256}, rot a multiple of 16, 16-bit, aligned rows. One warp a
//          token; D/8 lanes a head, an octet each, four heads of a lane in flight. A pair's other
//          half is a shuffle away, and cos, sin and γ stay in registers for all heads of the token.
//          heads: any other, and all with turns, so that the other form does not have their
//          registers. One warp a token and head; the head passes through shared memory for the other
//          halves. The form follows from D, rot, type, alignment and turns: all calls of a model take
//          the same form.
// Error    a few roundings of |x'|: 6·u·(|x'[i]| + |x'[i+h]|) before the store.
// Source   Su 2021 §3.4.2, arXiv:2104.09864, with the pairs half a head apart
#ifndef SIE_KERNELS_CUDA_QK_NORM_ROPE_CUH
#define SIE_KERNELS_CUDA_QK_NORM_ROPE_CUH

#include "common/turns.h"
#include "cuda/rows.cuh"

namespace sie_cuda {

constexpr int32_t rope_head_max = 256;

// A lane's octet of cos and of sin at the token's position, and where its partner is.
struct Rotation {
  float cos[8], sin[8];  // sin with the sign that this half takes it with
  int partner;           // lane of the pairs' other halves; the lane itself where nothing rotates
};

SIE_DEVICE int32_t position_in(const sie_qk_norm_rope_args &a, const Sequence &b, int32_t token) {
  const int32_t first = a.first_position != nullptr ? a.first_position[b.index] : 0;
  return token - b.start + a.position_offset + first;
}

// By a whole warp.
SIE_DEVICE int32_t position_of(const sie_qk_norm_rope_args &a, int64_t token) {
  const int32_t t = static_cast<int32_t>(token);
  return position_in(a, sequence_of(a.cu_seqlens, *a.seqs.n, t), t);
}

template <int D>
SIE_DEVICE Rotation load_rotation(const sie_qk_norm_rope_args &a, int32_t position) {
  constexpr int lanes = D / 8;
  const int lane = static_cast<int>(ptx::lane_id()), octet = lane % lanes, half = a.rot / 16;
  Rotation r = {};
#pragma unroll
  for (int j = 0; j < 8; j++) r.cos[j] = 1.0f;
  r.partner = lane;
  if (octet >= 2 * half) return r;
  const bool upper = octet >= half;
  const int64_t at = static_cast<int64_t>(position) * (a.rot / 2) + 8 * (upper ? octet - half : octet);
  load_vector<Storage::bf16>(a.cos + at, 0, 8, r.cos);
  load_vector<Storage::bf16>(a.sin + at, 0, 8, r.sin);
#pragma unroll
  for (int j = 0; j < 8; j++) r.sin[j] = upper ? r.sin[j] : -r.sin[j];
  r.partner = upper ? lane - half : lane + half;
  return r;
}

// x·y + z·w, both products rounded, as one sum.
SIE_DEVICE float two_products(float x, float y, float z, float w) {
  return __fadd_rn(__fmul_rn(x, y), __fmul_rn(z, w));
}

SIE_DEVICE float norm_factor(float squares, int32_t d, float eps) {
  return __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(squares, static_cast<float>(d)) + eps));
}

// All heads of one row of t.
template <Storage S, int D>
SIE_DEVICE void rotate_heads(const sie_tensor &t, int64_t row, int32_t heads, const float *gamma,
                             float weight_offset, float eps, const Rotation &r) {
  constexpr int lanes = D / 8, at_once = 32 / lanes, under_way = 4;
  const int32_t lane = static_cast<int32_t>(ptx::lane_id()), octet = lane % lanes;
  const int32_t columns = heads * D;
  float weight[8];
  if (gamma != nullptr) load_vector<Storage::bf16>(gamma, 8 * octet, D, weight);
  // Column of the lane's octet in head lane / lanes, the first of each round; at_once heads are one
  // warp's 256 columns.
  for (int32_t first = 8 * lane; first - 8 * lane < columns; first += 256 * under_way) {
    static_assert(at_once * D == 256, "a round of a warp");
    Loaded<S> x[under_way];
#pragma unroll
    for (int u = 0; u < under_way; u++) x[u].load(t, row, first + 256 * u, columns);
#pragma unroll
    for (int u = 0; u < under_way; u++) {
      if (first - 8 * lane + 256 * u >= columns) break;  // for the whole warp
      float v[8];
      x[u].get(v);
      if (gamma != nullptr) {
        float squares = 0;
#pragma unroll
        for (int j = 0; j < 8; j++) squares = __fmaf_rn(v[j], v[j], squares);
#pragma unroll
        for (int step = lanes / 2; step > 0; step /= 2) squares += ptx::shuffle_xor(squares, step);
        const float factor = norm_factor(squares, D, eps);
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = __fmul_rn(__fmul_rn(v[j], factor), weight_offset + weight[j]);
      }
#pragma unroll
      for (int j = 0; j < 8; j++) {
        const float other = ptx::shuffle_from(v[j], r.partner);
        v[j] = r.partner == lane ? v[j] : two_products(v[j], r.cos[j], other, r.sin[j]);
      }
      store_octet<S>(t, row, first + 256 * u, columns, v);
    }
  }
}

template <Storage S, int D>
__global__ void __launch_bounds__(row_threads, 3) qk_norm_rope_octets_kernel(const sie_qk_norm_rope_args a) {
  ptx::grid_dependency_wait();
  const int64_t token = static_cast<int64_t>(blockIdx.x) * row_warps + threadIdx.x / 32;
  if (token >= *a.tokens.n) return;
  const Rotation r = load_rotation<D>(a, position_of(a, token));
  rotate_heads<S, D>(a.q, token, a.heads, a.q_gamma, a.weight_offset, a.eps, r);
  ptx::grid_dependency_launch();
  if (a.k.p != nullptr) rotate_heads<S, D>(a.k, token, a.kv_heads, a.k_gamma, a.weight_offset, a.eps, r);
}

// Columns of a head and its other halves, by one warp.
__global__ void __launch_bounds__(row_threads, 4) qk_norm_rope_heads_kernel(const sie_qk_norm_rope_args a) {
  ptx::grid_dependency_wait();
  SIE_DYNAMIC_SHARED(shared);
  const int32_t heads = a.heads + (a.k.p != nullptr ? a.kv_heads : 0);
  const int64_t item = static_cast<int64_t>(blockIdx.x) * row_warps + threadIdx.x / 32;
  const int64_t token = item / heads;
  if (token >= *a.tokens.n) return;
  const int32_t head = static_cast<int32_t>(item % heads), lane = static_cast<int32_t>(ptx::lane_id());
  const bool of_q = head < a.heads;
  const sie_tensor &t = of_q ? a.q : a.k;
  const float *gamma = of_q ? a.q_gamma : a.k_gamma;
  const int32_t d = a.head_dim, half = a.rot / 2, column = (of_q ? head : head - a.heads) * d;
  float *x = reinterpret_cast<float *>(shared) + threadIdx.x / 32 * rope_head_max;
  const Sequence b = sequence_of(a.cu_seqlens, *a.seqs.n, static_cast<int32_t>(token));
  const int64_t position = position_in(a, b, static_cast<int32_t>(token));
  const int32_t rows = a.whole_rows > 0 ? a.whole_rows : a.cu_seqlens[b.index + 1] - b.start;
  const int32_t *turns = sie_turns_of(&a, rows);

  float squares = 0;
  for (int32_t i = lane; i < d; i += 32) {
    x[i] = load_element(t.p, t.dtype, token * t.ld + column + i);
    squares = __fmaf_rn(x[i], x[i], squares);
  }
  if (gamma != nullptr) {
    const float factor = norm_factor(ptx::warp_sum(squares), d, a.eps);
    for (int32_t i = lane; i < d; i += 32)
      x[i] = __fmul_rn(__fmul_rn(x[i], factor), a.weight_offset + gamma[i]);
  }
  ptx::grid_dependency_launch();
  ptx::sync_warp();
  for (int32_t i = lane; i < d; i += 32) {
    float y = x[i];
    if (i < 2 * half) {
      const bool upper = i >= half;
      const int32_t pair = upper ? i - half : i;
      float c, s;
      if (turns != nullptr) {
        sie_cos_sin(turns, half, pair, position, &c, &s);
      } else {
        c = a.cos[position * half + pair];
        s = a.sin[position * half + pair];
      }
      y = two_products(x[i], c, x[upper ? i - half : i + half], upper ? s : -s);
    }
    store_element(t.p, t.dtype, token * t.ld + column + i, y);
  }
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_QK_NORM_ROPE_CUH
