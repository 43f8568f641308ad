// quantise_rows — each row to u8 with its own scale and zero point.
//   lo = min(0, min x), hi = max(0, max x), scale = (hi − lo)/255 (0 counts as 1), zero = rint(−lo/scale),
//   q = clamp(rint(x/scale) + zero, 0, 255); all in f32, ties to even
// With y.outlier the largest element stays out of the range: sie_tensor's comment (kernels/ops.h) says how.
// Shapes   x, y [R, C], row stride ≥ C; y.scale, y.zero, y.outlier [R].   R ≥ 0.
// Types    x f32 | bf16; y u8.                     Alias    none.
// Share    rows.                                   Scratch  C floats.
#include "rows.h"

namespace sie_ref {

sie_status quantise_rows(const sie_quantise_rows_args *a, const sie_share *share) {
  if (!is_float(a->x.dtype) || a->y.dtype != SIE_U8) return SIE_UNSUPPORTED;
  float *row = static_cast<float *>(share->scratch);
  Range rows = share_of(*a->rows.n, share);
  for (int64_t r = rows.first; r < rows.last; r++) {
    for (int64_t i = 0; i < a->c; i++) row[i] = static_cast<float>(load(a->x, r, i));
    quantise_row(row, a->c, a->y, r);
  }
  return SIE_OK;
}

}  // namespace sie_ref
