// qk_norm_rope — q and k in place: each head is normalised where it has a weight, then rotated.
//   x' = x/√(Σ x²/D + ε)·(offset + γ)
//   y[i] = x'[i]·cos[p,i] − x'[i+h]·sin[p,i],  y[i+h] = x'[i+h]·cos[p,i] + x'[i]·sin[p,i]
//   for i < h = rot/2; p is the token's index in its sequence b + offset + first_position[b]. All in
//   double, rounded once. A sequence of more rows than positions has cos and sin of 2π·p·t_i, of turns.
// Shapes   q [T, H·D], k [T, Hkv·D], row strides ≥ columns; γ [D]; cos, sin [positions, h];
//          cu_seqlens [B+1]; first_position [B] or absent: 0; turns [lengths, rot] or absent.
// Types    q, k f32 | bf16 | f16, one type.
// Alias    in place.
// Share    sequences.
// Scratch  D doubles.
// Source   Su 2021 §3.4.2, arXiv:2104.09864, with the pairs half a head apart
#include "rows.h"

namespace sie_ref {

namespace {

// The cos and sin of pair i, in a sequence of that many rows.
struct Angle {
  double c, s;
};

Angle angle_of(const sie_qk_norm_rope_args *a, int64_t rows, int64_t position, int64_t i) {
  const int64_t h = a->rot / 2;
  if (rows <= a->positions) {
    return {static_cast<double>(a->cos[position * h + i]), static_cast<double>(a->sin[position * h + i])};
  }
  const int32_t *turns = a->turns + (rows - a->positions - 1) * 2 * h;
  uint64_t step = uint64_t{static_cast<uint32_t>(turns[i])} << 32 | static_cast<uint32_t>(turns[i + h]);
  double turn =
      ldexp(static_cast<double>(static_cast<uint64_t>(position) * step), -64);  // without whole ones
  return {cos(2 * M_PI * turn), sin(2 * M_PI * turn)};
}

void rotate_head(const sie_qk_norm_rope_args *a, const sie_tensor &t, int64_t row, int64_t column,
                 int64_t rows, int64_t position, const float *gamma, double *x) {
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
    const auto [c, s] = angle_of(a, rows, position, i);
    store(t, row, column + i, static_cast<float>(x[i] * c - x[i + h] * s));
    store(t, row, column + i + h, static_cast<float>(x[i + h] * c + x[i] * s));
  }
  for (int64_t i = 2 * h; i < d; i++) store(t, row, column + i, static_cast<float>(x[i]));
}

}  // namespace

sie_status qk_norm_rope(const sie_qk_norm_rope_args *a, const sie_share *share) {
  if (!is_float(a->q.dtype) || (a->k.p != nullptr && a->k.dtype != a->q.dtype)) return SIE_UNSUPPORTED;
  if (a->rot < 0 || a->rot > a->head_dim || a->rot % 2 != 0) return SIE_INVALID_ARGUMENT;
  if (a->turns != nullptr && a->first_position != nullptr) return SIE_INVALID_ARGUMENT;
  double *x = static_cast<double *>(share->scratch);
  Range seqs = share_of(*a->seqs.n, share);
  for (int64_t b = seqs.first; b < seqs.last; b++) {
    int64_t start = a->position_offset + (a->first_position != nullptr ? a->first_position[b] : 0);
    int64_t rows = a->whole_rows > 0 ? a->whole_rows : a->cu_seqlens[b + 1] - a->cu_seqlens[b];
    for (int64_t r = a->cu_seqlens[b]; r < a->cu_seqlens[b + 1]; r++) {
      int64_t position = r - a->cu_seqlens[b] + start;
      for (int64_t h = 0; h < a->heads; h++)
        rotate_head(a, a->q, r, h * a->head_dim, rows, position, a->q_gamma, x);
      for (int64_t h = 0; h < a->kv_heads; h++)
        rotate_head(a, a->k, r, h * a->head_dim, rows, position, a->k_gamma, x);
    }
  }
  return SIE_OK;
}

}  // namespace sie_ref
