// take_rows — y[r] = a row of x of the same sequence, or the mean of a range of them.
//   SIE_POOL_CLS x[first], SIE_POOL_LAST x[last], SIE_POOL_MEAN Σ x/n over first … last in double;
//   without cu_x the sequence's one row; for the place -1 zeros.
// Shapes   x [Rx, C], y [R, C], row strides ≥ C; first, last [R] places in the sequence of x.
// Types    x, y f32 | bf16 | f16, one type: bits are copied, a mean is rounded once.
// Alias    none.
// Share    rows of y.
#include "rows.h"

namespace sie_ref {

namespace {

void take(const sie_take_rows_args *a, int64_t r, int64_t first, int64_t last) {
  if (first == last) {
    const int64_t size = a->x.dtype == SIE_F32 ? 4 : 2;
    memcpy(static_cast<char *>(a->y.p) + r * a->y.ld * size,
           static_cast<const char *>(a->x.p) + first * a->x.ld * size, static_cast<size_t>(a->c * size));
    return;
  }
  for (int64_t c = 0; c < a->c; c++) {
    double sum = 0;
    for (int64_t i = first; i <= last; i++) sum += load(a->x, i, c);
    store(a->y, r, c, static_cast<float>(sum / static_cast<double>(last - first + 1)));
  }
}

}  // namespace

sie_status take_rows(const sie_take_rows_args *a, const sie_share *share) {
  if (!is_float(a->x.dtype) || a->y.dtype != a->x.dtype) return SIE_UNSUPPORTED;
  const bool cls = a->which == SIE_POOL_CLS, tail = a->which == SIE_POOL_LAST;
  if (a->cu_x != nullptr && !cls && !tail && a->which != SIE_POOL_MEAN) return SIE_UNSUPPORTED;
  const Range rows = share_of(*a->rows.n, share);
  int64_t b = 0;
  for (int64_t r = rows.first; r < rows.last; r++) {
    while (a->cu_seqlens[b + 1] <= r) b++;
    if (a->cu_x == nullptr) {
      take(a, r, b, b);
      continue;
    }
    if ((tail ? a->last : a->first)[r] < 0) {
      for (int64_t c = 0; c < a->c; c++) store(a->y, r, c, 0);
      continue;
    }
    const int64_t from = a->cu_x[b];
    take(a, r, from + (tail ? a->last : a->first)[r], from + (cls ? a->first : a->last)[r]);
  }
  return SIE_OK;
}

}  // namespace sie_ref
