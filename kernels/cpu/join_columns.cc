// join_columns — y[r] = [x[0][r], x[1][r], x[2][r]]: columns of several tensors next to each other.
// Shapes   x[i] [R, c[i]], y [R, Σ c], row strides ≥ the columns; c[i] 0: absent.
// Types    x, y f32 | bf16, each its own; rounded to nearest even where y is narrower.
// Alias    none.
// Align    element.
// Share    rows.
// Cost     Σ c elements read and written a row → memory bound.
// Plan     tensor by tensor, a row at a time, by vectors.
// Error    none.
#include "rows.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

namespace {

template <typename X, typename Y>
void copy_columns(const sie_tensor &x, int64_t c, Range rows, const sie_tensor &y, int64_t column) {
  for (int64_t r = rows.first; r < rows.last; r++)
    copy_row(row_of<const X>(x, r), c, row_of<Y>(y, r) + column);
}

template <typename X>
void copy_to(const sie_tensor &x, int64_t c, Range rows, const sie_tensor &y, int64_t column) {
  if (y.dtype == SIE_F32) {
    copy_columns<X, float>(x, c, rows, y, column);
  } else {
    copy_columns<X, Bf16>(x, c, rows, y, column);
  }
}

}  // namespace

sie_status join_columns(const sie_join_columns_args *a, const sie_share *share) {
  for (int i = 0; i < SIE_MAX_JOINED; i++) {
    if (a->c[i] > 0 && !is_float(a->x[i].dtype)) return SIE_UNSUPPORTED;
  }
  if (!is_float(a->y.dtype)) return SIE_UNSUPPORTED;
  const Range rows = share_of(*a->rows.n, share);
  int64_t column = 0;
  for (int i = 0; i < SIE_MAX_JOINED; i++) {
    if (a->x[i].dtype == SIE_F32) {
      copy_to<float>(a->x[i], a->c[i], rows, a->y, column);
    } else {
      copy_to<Bf16>(a->x[i], a->c[i], rows, a->y, column);
    }
    column += a->c[i];
  }
  return SIE_OK;
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
