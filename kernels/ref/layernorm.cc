// layernorm — y = LN(x)·γ + β.
//   μ = Σ x/C,  σ² = Σ (x−μ)²/C,  y = (x−μ)/√(σ²+ε)·γ + β      two passes, sums in double
// Shapes   x, y, yq [R, C], row stride ≥ C; γ, β [C], β may be absent.   R ≥ 0.
// Types    x, y f32 | bf16; yq u8 with scale and zero, quantised from the f32 result.
// Alias    y may be x.                             Share    rows.
// Scratch  C doubles and C floats.                 Source   Ba 2016 §3, arXiv:1607.06450
#include "rows.h"

namespace sie_ref {

sie_status layernorm(const sie_layernorm_args *a, const sie_share *share) {
  if (!is_float(a->x.dtype) || !is_float(a->y.dtype)) return SIE_UNSUPPORTED;
  double *row = static_cast<double *>(share->scratch);
  float *out = reinterpret_cast<float *>(row + a->c);
  Range rows = share_of(*a->rows.n, share);
  for (int64_t r = rows.first; r < rows.last; r++) {
    for (int64_t i = 0; i < a->c; i++) row[i] = load(a->x, r, i);
    normalise_row(row, a->c, a->gamma, a->beta, a->eps, out);
    store_row(out, a->c, a->y, a->yq, r);
  }
  return SIE_OK;
}

}  // namespace sie_ref
