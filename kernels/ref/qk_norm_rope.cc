// qk_norm_rope — q and k in place: each head is normalised where it has a weight, then rotated.
//   x' = x/√(Σ x²/D + ε)·(offset + γ)
//   y[i] = x'[i]·cos[p,i] − x'[i+h]·sin[p,i],  y[i+h] = x'[i+h]·cos[p,i] + x'[i]·sin[p,i]
//   for i < h = rot/2; p is the token's index in its sequence b + offset + first_position[b]. All in
//   double, rounded once.
// Shapes   q [T, H·D], k [T, Hkv·D], row strides ≥ columns; γ [D]; cos, sin [positions, h];
//          cu_seqlens [B+1]; first_position [B] or absent: 0.
// Types    q, k f32 | bf16 | f16, one type.
// Alias    in place.
// Share    sequences.
// Scratch  D doubles.
// Source   Su 2021 §3.4.2, arXiv:2104.09864, with the pairs half a head apart
#include "rows.h"

namespace sie_ref {

namespace {

void rotate_head(const sie_qk_norm_rope_args *a, const sie_tensor &t, int64_t row, int64_t column,
                 int64_t position, const float *gamma, double *x) {
  const int64_t d = a->head_dim, h = a->rot / 2;
  double squares = 0;
  for (int64_t i = 0; i < d; i++) {
    x[i] = load(t, row, column + i);
    squares += x[i] * x[i];
  }
  double factor = 1 / sqrt(squares / static_cast<double>(d) + static_cast<double>(a->eps));
  for (int64_t i = 0; i < d && gamma != nullptr; i++) {
    x[i] *= factor * (static_cast<double>(a->weight_offset) + static_cast<double>(gamma[i]));
  }
  for (int64_t i = 0; i < h; i++) {
    double c = static_cast<double>(a->cos[position * h + i]),
           s = static_cast<double>(a->sin[position * h + i]);
    store(t, row, column + i, static_cast<float>(x[i] * c - x[i + h] * s));
    store(t, row, column + i + h, static_cast<float>(x[i + h] * c + x[i] * s));
  }
  for (int64_t i = 2 * h; i < d; i++) store(t, row, column + i, static_cast<float>(x[i]));
}

}  // namespace

sie_status qk_norm_rope(const sie_qk_norm_rope_args *a, const sie_share *share) {
  if (!is_float(a->q.dtype) || (a->k.p != nullptr && a->k.dtype != a->q.dtype)) return SIE_UNSUPPORTED;
  if (a->rot < 0 || a->rot > a->head_dim || a->rot % 2 != 0) return SIE_INVALID_ARGUMENT;
  double *x = static_cast<double *>(share->scratch);
  Range seqs = share_of(*a->seqs.n, share);
  for (int64_t b = seqs.first; b < seqs.last; b++) {
    int64_t start = a->position_offset + (a->first_position != nullptr ? a->first_position[b] : 0);
    for (int64_t r = a->cu_seqlens[b]; r < a->cu_seqlens[b + 1]; r++) {
      int64_t position = r - a->cu_seqlens[b] + start;
      for (int64_t h = 0; h < a->heads; h++)
        rotate_head(a, a->q, r, h * a->head_dim, position, a->q_gamma, x);
      for (int64_t h = 0; h < a->kv_heads && a->k.p != nullptr; h++)
        rotate_head(a, a->k, r, h * a->head_dim, position, a->k_gamma, x);
    }
  }
  return SIE_OK;
}

}  // namespace sie_ref
