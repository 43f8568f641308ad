// quantise_rows — each row to u8 with its own scale and zero point, or to e4m3 with one scale a row
// or block of 128.
//   u8    lo = min(0, min x), hi = max(0, max x), scale = (hi − lo)/255 (0 counts as 1),
//         zero = rint(−lo/scale), q = clamp(rint(x/scale) + zero, 0, 255). A NaN does not count in
//         the range, gives 0, and makes the scale NaN.
//   e4m3  scale = max|x|/448 (below 2⁻¹⁰⁰ counts as 1), q = e4m3(x·(1/scale)), saturating
//   All in f32, ties to even. With y.outlier the largest element stays out of the range, as
//   sie_tensor's comment (kernels/ops.h) says.
// Shapes   x, y [R, C], row stride ≥ C; y.scale, y.zero, y.outlier [R], or y.scale [R, ⌈C/128⌉].
//          R ≥ 0, C ≥ 1.
// Types    x f32 | bf16; y u8 | e4m3.
// Alias    none.
// Align    element.
// Share    rows.
// Cost     4·C (f32) + C bytes a row, ~8 flop an element → memory bound.
// Plan     range, then quantise, a row at a time from L1. One pass that keeps two values a lane
//          also gives the range without the outlier.
// Error    none: the bits of the formula.
#include "rows.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

namespace {

template <typename X>
void quantise_all(const sie_quantise_rows_args *a, Range rows) {
  for (int64_t r = rows.first; r < rows.last; r++) {
    quantise_row(row_of<const X>(a->x, r), a->c, a->y, r);
  }
}

}  // namespace

sie_status quantise_rows(const sie_quantise_rows_args *a, const sie_share *share) {
  if (!is_float(a->x.dtype) || !is_quantised(a->y)) return SIE_UNSUPPORTED;
  const Range rows = share_of(*a->rows.n, share);
  if (a->x.dtype == SIE_F32) {
    quantise_all<float>(a, rows);
  } else {
    quantise_all<Bf16>(a, rows);
  }
  return SIE_OK;
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
