// layernorm — y = norm(s), s = (x + bias) + residual, and optionally s itself and y's quantised
// twin.
//   LAYER  μ = Σ s/C,  σ² = Σ (s−μ)²/C,  y = (s−μ)/√(σ²+ε)·(offset + γ) + β    in two passes
//   RMS    y = s/√(Σ s²/C + ε)·(offset + γ) + β
//   Sums are in f32.
// Shapes   x, residual, sum, y, yq [R, C], row stride ≥ C; bias, γ, β [C], β may be absent. R ≥ 0,
//          C ≥ 1.
// Types    x, residual, sum, y f32 | bf16; yq u8 | e4m3, a scale a row, quantised from the f32
//          result.
// Alias    y and sum may each be x or residual when the types agree; else disjoint.
// Align    element.
// Share    rows.
// Scratch  C floats: s or the f32 result, where one is wanted beside y.
// Cost     reads x and residual once from memory, then from L1; ~8·C flop a row → memory bound.
// Plan     a row at a time, vectors of four accumulators; the last vector of a row is masked.
// Error    |y − ref| ≤ 1e-6·max|s−μ|/σ·|γ| for C ≤ 8192, then bf16 rounding; s has the bits of the
//          formula.
// Source   Ba 2016 §3, arXiv:1607.06450; Zhang 2019 §4, arXiv:1910.07467
#include "rows.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

namespace {

// Computes s into the scratch, and stores it where the caller wants it.
template <typename X>
void sum_terms(const sie_layernorm_args *a, int64_t r, float *s) {
  copy_row(row_of<const X>(a->x, r), a->c, s);
  for (int64_t i = 0; a->bias != nullptr && i < a->c; i += kLanes)
    vstore_row(s, i, a->c, vload_row(s, i, a->c) + vload_row(a->bias, i, a->c));
  if (a->residual.p != nullptr) add_row(s, a->c, a->residual, r);
  if (a->sum.p == nullptr) return;
  if (a->sum.dtype == SIE_F32) {
    copy_row(s, a->c, row_of<float>(a->sum, r));
  } else {
    copy_row(s, a->c, row_of<Bf16>(a->sum, r));
  }
}

template <typename Y, typename From>
SIE_INLINE void normalise(const sie_layernorm_args *a, const Norm &norm, int64_t r, const From *from,
                          float *scratch) {
  Y *y = row_of<Y>(a->y, r);
  if (a->yq.p == nullptr) {
    normalise_row(norm, from, a->c, y);
    return;
  }
  normalise_row(norm, from, a->c, scratch);
  copy_row(scratch, a->c, y);
  quantise_row(scratch, a->c, a->yq, r);
}

template <typename X, typename Y>
void layernorm_rows(const sie_layernorm_args *a, Range rows, float *scratch) {
  const Norm norm = {a->gamma, a->beta, a->eps, a->weight_offset, a->norm == SIE_NORM_LAYER};
  const bool sums = a->bias != nullptr || a->residual.p != nullptr || a->sum.p != nullptr;
  for (int64_t r = rows.first; r < rows.last; r++) {
    if (sums) {
      sum_terms<X>(a, r, scratch);
      normalise<Y, float>(a, norm, r, scratch, scratch);
    } else {
      normalise<Y, X>(a, norm, r, row_of<const X>(a->x, r), scratch);
    }
  }
}

}  // namespace

sie_status layernorm(const sie_layernorm_args *a, const sie_share *share) {
  if (!is_float(a->x.dtype) || !is_float(a->y.dtype)) return SIE_UNSUPPORTED;
  if (!is_float_or_absent(a->residual) || !is_float_or_absent(a->sum)) return SIE_UNSUPPORTED;
  if (a->norm != SIE_NORM_LAYER && a->norm != SIE_NORM_RMS) return SIE_UNSUPPORTED;
  if (!is_twin_or_absent(a->yq)) return SIE_UNSUPPORTED;
  const Range rows = share_of(*a->rows.n, share);
  float *scratch = static_cast<float *>(share->scratch);
  const bool from_f32 = a->x.dtype == SIE_F32, to_f32 = a->y.dtype == SIE_F32;
  auto *const run = from_f32 ? (to_f32 ? layernorm_rows<float, float> : layernorm_rows<float, Bf16>)
                             : (to_f32 ? layernorm_rows<Bf16, float> : layernorm_rows<Bf16, Bf16>);
  run(a, rows, scratch);
  return SIE_OK;
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
