// qk_norm_rope — q and k in place: each head is normalised where it has a weight, then its first
// columns are rotated.
//   x' = x/√(Σ x²/D + ε)·(offset + γ)
//   y[i] = x'[i]·cos[p,i] − x'[i+h]·sin[p,i],  y[i+h] = x'[i+h]·cos[p,i] + x'[i]·sin[p,i]
//   for i < h = rot/2; p is the token's index in its sequence b + offset + first_position[b]. In f32,
//   rounded once. A sequence of more rows than positions has cos and sin of 2π·p·t_i, of turns.
// Shapes   q [T, H·D], k [T, Hkv·D], row strides ≥ columns; γ [D]; cos, sin [positions, h];
//          cu_seqlens [B+1]; first_position [B] or absent: 0; turns [lengths, rot] or absent.
// Types    q, k f32 | bf16, one type.
// Alias    in place.
// Align    element.
// Share    tokens.
// Scratch  2·D floats.
// Cost     2·(H + Hkv)·D elements moved a token, ~6 flop each → memory bound.
// Plan     a head at a time: read and normalised into scratch (L1), written rotated. cos and sin by turns
//          are computed once a token, ~40 flop a pair.
// Error    |y − ref| ≤ 12·2⁻²⁴·(|x'[i]| + |x'[i+h]|), then bf16 rounding.
// Source   Su 2021 §3.4.2, arXiv:2104.09864, with the pairs half a head apart
#include "common/turns.h"
#include "rows.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

namespace {

template <typename T>
SIE_INLINE void rotate_head(const sie_qk_norm_rope_args *a, T *head, const float *gamma, const float *cos,
                            const float *sin, float *x) {
  const int64_t d = a->head_dim, h = a->rot / 2;
  if (gamma != nullptr) {
    normalise_row(Norm{gamma, nullptr, a->eps, a->weight_offset, false}, head, d, x);
  } else {
    copy_row(head, d, x);
  }
  for (int64_t i = 0; i < h; i += kLanes) {
    const Vec u = vload_row(x, i, h), v = vload_row(x + h, i, h);
    const Vec c = vload_row(cos, i, h), s = vload_row(sin, i, h);
    vstore_row(head, i, h, vfnma(v, s, u * c));
    vstore_row(head + h, i, h, vfma(u, s, v * c));
  }
  if (gamma != nullptr) copy_row(x + 2 * h, d - 2 * h, head + 2 * h);
}

template <typename T>
void rotate_tokens(const sie_qk_norm_rope_args *a, Range tokens, float *scratch) {
  const int64_t d = a->head_dim;
  const int32_t h = a->rot / 2;
  float *own_cos = scratch + d, *own_sin = own_cos + h;
  int64_t b = 0;
  for (int64_t t = tokens.first; t < tokens.last; t++) {
    while (t >= a->cu_seqlens[b + 1]) b++;
    const int64_t start = a->position_offset + (a->first_position != nullptr ? a->first_position[b] : 0);
    const int64_t position = t - a->cu_seqlens[b] + start;
    const int64_t rows = a->whole_rows > 0 ? a->whole_rows : a->cu_seqlens[b + 1] - a->cu_seqlens[b];
    const float *cos = a->cos + position * h, *sin = a->sin + position * h;
    if (const int32_t *turns = sie_turns_of(a, rows); turns != nullptr) {
      for (int32_t i = 0; i < h; i++) sie_cos_sin(turns, h, i, position, &own_cos[i], &own_sin[i]);
      cos = own_cos;
      sin = own_sin;
    }
    T *q = row_of<T>(a->q, t);
    for (int64_t i = 0; i < a->heads; i++) rotate_head(a, q + i * d, a->q_gamma, cos, sin, scratch);
    if (a->k.p == nullptr) continue;
    T *k = row_of<T>(a->k, t);
    for (int64_t i = 0; i < a->kv_heads; i++) rotate_head(a, k + i * d, a->k_gamma, cos, sin, scratch);
  }
}

}  // namespace

sie_status qk_norm_rope(const sie_qk_norm_rope_args *a, const sie_share *share) {
  if (!is_float(a->q.dtype) || (a->k.p != nullptr && a->k.dtype != a->q.dtype)) return SIE_UNSUPPORTED;
  if (a->rot < 0 || a->rot > a->head_dim || a->rot % 2 != 0) return SIE_INVALID_ARGUMENT;
  if (a->turns != nullptr && a->first_position != nullptr) return SIE_INVALID_ARGUMENT;
  const Range tokens = share_of(*a->tokens.n, share);
  float *scratch = static_cast<float *>(share->scratch);
  if (a->q.dtype == SIE_F32) {
    rotate_tokens<float>(a, tokens, scratch);
  } else {
    rotate_tokens<Bf16>(a, tokens, scratch);
  }
  return SIE_OK;
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
