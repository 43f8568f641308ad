// layernorm — y = norm(s), s = (x + bias) + residual in f32; optionally s itself is stored.
//   LAYER  μ = Σ s/C,  σ² = Σ (s−μ)²/C,  y = (s−μ)/√(σ²+ε)·(offset + γ) + β    in two passes
//   RMS    y = s/√(Σ s²/C + ε)·(offset + γ) + β
//   Sums are in double.
// Shapes   x, residual, sum, y, yq [R, C], row stride ≥ C; bias, γ, β [C], β may be absent. R ≥ 0.
// Types    x, residual, sum, y f32 | bf16 | f16; yq u8 or e4m3 with one scale a row, from the f32
//          result.
// Alias    y and sum may each be x or residual.
// Share    rows.
// Scratch  2·C floats.
// Source   Ba 2016 §3, arXiv:1607.06450; Zhang 2019 §4, arXiv:1910.07467
#include "rows.h"

namespace sie_ref {

namespace {

bool supported(const sie_layernorm_args *a) {
  if (!is_float(a->x.dtype) || !is_float(a->y.dtype)) return false;
  if (!is_float_or_absent(a->residual) || !is_float_or_absent(a->sum)) return false;
  if (a->norm != SIE_NORM_LAYER && a->norm != SIE_NORM_RMS) return false;
  return a->yq.p == nullptr || (is_quantised(a->yq) && a->yq.scale_group != 128);
}

}  // namespace

sie_status layernorm(const sie_layernorm_args *a, const sie_share *share) {
  if (!supported(a)) return SIE_UNSUPPORTED;
  const Norm norm = {a->norm, a->gamma, a->beta, a->eps, a->weight_offset};
  float *row = static_cast<float *>(share->scratch), *out = row + a->c;
  Range rows = share_of(*a->rows.n, share);
  for (int64_t r = rows.first; r < rows.last; r++) {
    for (int64_t i = 0; i < a->c; i++) {
      row[i] = static_cast<float>(load(a->x, r, i));
      if (a->bias != nullptr) row[i] += a->bias[i];
      if (a->residual.p != nullptr) row[i] += static_cast<float>(load(a->residual, r, i));
    }
    for (int64_t i = 0; i < a->c && a->sum.p != nullptr; i++) store(a->sum, r, i, row[i]);
    normalise_row(norm, row, a->c, out);
    store_row(out, a->c, a->y, a->yq, r);
  }
  return SIE_OK;
}

}  // namespace sie_ref
