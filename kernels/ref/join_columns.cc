// join_columns — y[r] = [x[0][r], x[1][r], x[2][r]]: columns of several tensors next to each other.
// Shapes   x[i] [R, c[i]], y [R, Σ c], row strides ≥ the columns; c[i] 0: absent.
// Types    x, y f32 | bf16 | f16, each its own; rounded to nearest even where y is narrower.
// Alias    none.
// Share    rows.
#include "rows.h"

namespace sie_ref {

sie_status join_columns(const sie_join_columns_args *a, const sie_share *share) {
  for (int i = 0; i < SIE_MAX_JOINED; i++) {
    if (a->c[i] > 0 && !is_float(a->x[i].dtype)) return SIE_UNSUPPORTED;
  }
  if (!is_float(a->y.dtype)) return SIE_UNSUPPORTED;
  Range rows = share_of(*a->rows.n, share);
  for (int64_t r = rows.first; r < rows.last; r++) {
    int64_t column = 0;
    for (int i = 0; i < SIE_MAX_JOINED; i++) {
      for (int64_t c = 0; c < a->c[i]; c++) store(a->y, r, column++, static_cast<float>(load(a->x[i], r, c)));
    }
  }
  return SIE_OK;
}

}  // namespace sie_ref
