// quantise_rows — each row to u8 with its own scale and zero point, or to e4m3 with a scale a row
// or block.
//   u8    lo = min(0, min x), hi = max(0, max x), scale = (hi − lo)/255 (0 counts as 1),
//         zero = rint(−lo/scale), q = clamp(rint(x/scale) + zero, 0, 255). With y.outlier the
//         largest element stays out of the range.
//   e4m3  scale = max|x|/448 (below 2⁻¹⁰⁰ counts as 1), q = e4m3(x·(1/scale)), saturating
//   All in f32, ties to even, as sie_tensor's comment (kernels/ops.h) says.
// Shapes   x, y [R, C], row stride ≥ C; y.scale, y.zero, y.outlier [R], or y.scale [R, ⌈C/128⌉].
//          R ≥ 0.
// Types    x f32 | bf16 | f16; y u8 | e4m3.
// Alias    none.
// Share    rows.
// Scratch  C floats.
#include "rows.h"

namespace sie_ref {

sie_status quantise_rows(const sie_quantise_rows_args *a, const sie_share *share) {
  if (!is_float(a->x.dtype) || !is_quantised(a->y)) return SIE_UNSUPPORTED;
  float *row = static_cast<float *>(share->scratch);
  Range rows = share_of(*a->rows.n, share);
  for (int64_t r = rows.first; r < rows.last; r++) {
    for (int64_t i = 0; i < a->c; i++) row[i] = static_cast<float>(load(a->x, r, i));
    quantise_row(row, a->c, a->y, r);
  }
  return SIE_OK;
}

}  // namespace sie_ref
