// layernorm — y = LN(x)·γ + β, and optionally its u8 twin.
//   μ = Σ x/C,  σ² = Σ (x−μ)²/C,  y = (x−μ)/√(σ²+ε)·γ + β      two passes, sums in f32
// Shapes   x, y, yq [R, C], row stride ≥ C; γ, β [C], β may be absent.   R ≥ 0, C ≥ 1.
// Types    x, y f32 | bf16; yq u8 with scale and zero, quantised from the f32 result.
// Alias    y may be x when the types agree; else disjoint.
// Align    element.                                Share    rows.
// Cost     reads x once from memory, then from L1; ~8·C flop a row → memory bound.
// Plan     a row at a time, vectors of four accumulators; the last vector of a row is masked.
// Error    |y − ref| ≤ 1e-6·max|x−μ|/σ·|γ| for C ≤ 8192, then bf16 rounding.   Source  Ba 2016 §3,
// arXiv:1607.06450
#include "rows.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

namespace {

template <typename X, typename Y>
void layernorm_rows(const sie_layernorm_args *a, Range rows, float *scratch) {
  for (int64_t r = rows.first; r < rows.last; r++) {
    const X *x = row_of<const X>(a->x, r);
    Y *y = row_of<Y>(a->y, r);
    if (a->yq.p == nullptr) {
      normalise_row(x, a->c, a->gamma, a->beta, a->eps, y);
      continue;
    }
    normalise_row(x, a->c, a->gamma, a->beta, a->eps, scratch);
    copy_row(scratch, a->c, y);
    quantise_row(scratch, a->c, a->yq, r);
  }
}

}  // namespace

sie_status layernorm(const sie_layernorm_args *a, const sie_share *share) {
  if (!is_float(a->x.dtype) || !is_float(a->y.dtype)) return SIE_UNSUPPORTED;
  const Range rows = share_of(*a->rows.n, share);
  float *scratch = static_cast<float *>(share->scratch);
  const bool from_f32 = a->x.dtype == SIE_F32, to_f32 = a->y.dtype == SIE_F32;
  if (from_f32 && to_f32) layernorm_rows<float, float>(a, rows, scratch);
  if (from_f32 && !to_f32) layernorm_rows<float, Bf16>(a, rows, scratch);
  if (!from_f32 && to_f32) layernorm_rows<Bf16, float>(a, rows, scratch);
  if (!from_f32 && !to_f32) layernorm_rows<Bf16, Bf16>(a, rows, scratch);
  return SIE_OK;
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
