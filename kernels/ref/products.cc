// product, dots — y[r, c] = a[r, c]·b[r, c], and y[r] = Σ_c a[r, c]·b[r, c].
//   In double; each result is rounded once to f32, then to y's type.
// Shapes   a, b [R, C], y [R, C] or [R, 1], row strides ≥ the columns.
// Types    a, b f32 | bf16 | f16, each its own; y of product one of these, of dots f32.
// Alias    product: y may be a or b when the types agree.
// Share    rows.
#include "rows.h"

namespace sie_ref {

sie_status product(const sie_product_args *a, const sie_share *share) {
  if (!is_float(a->a.dtype) || !is_float(a->b.dtype) || !is_float(a->y.dtype)) return SIE_UNSUPPORTED;
  const Range rows = share_of(*a->rows.n, share);
  for (int64_t r = rows.first; r < rows.last; r++) {
    for (int64_t c = 0; c < a->c; c++) {
      store(a->y, r, c, static_cast<float>(load(a->a, r, c) * load(a->b, r, c)));
    }
  }
  return SIE_OK;
}

sie_status dots(const sie_dots_args *a, const sie_share *share) {
  if (!is_float(a->a.dtype) || !is_float(a->b.dtype) || a->y.dtype != SIE_F32) return SIE_UNSUPPORTED;
  const Range rows = share_of(*a->rows.n, share);
  for (int64_t r = rows.first; r < rows.last; r++) {
    double sum = 0;
    for (int64_t c = 0; c < a->c; c++) sum += load(a->a, r, c) * load(a->b, r, c);
    store(a->y, r, 0, static_cast<float>(sum));
  }
  return SIE_OK;
}

}  // namespace sie_ref
