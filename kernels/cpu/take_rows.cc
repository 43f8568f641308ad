// take_rows — y[r] = a row of x of the same sequence, the mean of a range of them, or 0 for the place -1.
//   A mean adds its rows in ascending order, an f32 sum a column, then divides once.
// Shapes   x [Rx, C], y [R, C], row strides ≥ C; first, last [R] places in the sequence of x;
//          cu_seqlens, cu_x [B+1]. R ≥ 0, C ≥ 1.
// Types    x, y f32 | bf16, one type: bits are copied; a mean is rounded once.
// Alias    none.
// Align    element.
// Share    rows of y.
// Cost     2·C elements moved a row, a mean (n + 1)·C.
// Plan     memcpy a row; a mean by vectors of columns, down its rows.
// Error    a mean: n roundings of the sum.
#include "rows.h"

#include <string.h>

namespace sie_cpu {
namespace SIE_ISA_NS {

namespace {

template <typename T>
void mean_rows(const sie_take_rows_args *a, int64_t r, int64_t first, int64_t last) {
  const Vec count = vset(static_cast<float>(last - first + 1));
  for (int64_t i = 0; i < a->c; i += kLanes) {
    Vec sum = vload_row(row_of<const T>(a->x, first), i, a->c);
    for (int64_t row = first + 1; row <= last; row++) {
      sum = sum + vload_row(row_of<const T>(a->x, row), i, a->c);
    }
    vstore_row(row_of<T>(a->y, r), i, a->c, sum / count);
  }
}

void copy(const sie_take_rows_args *a, int64_t r, int64_t row) {
  const int64_t size = a->x.dtype == SIE_F32 ? 4 : 2;
  memcpy(static_cast<char *>(a->y.p) + r * a->y.ld * size,
         static_cast<const char *>(a->x.p) + row * a->x.ld * size, static_cast<size_t>(a->c * size));
}

void clear(const sie_take_rows_args *a, int64_t r) {
  const int64_t size = a->x.dtype == SIE_F32 ? 4 : 2;
  memset(static_cast<char *>(a->y.p) + r * a->y.ld * size, 0, static_cast<size_t>(a->c * size));
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
      copy(a, r, b);
      continue;
    }
    if ((tail ? a->last : a->first)[r] < 0) {
      clear(a, r);
      continue;
    }
    const int64_t from = a->cu_x[b], first = from + (tail ? a->last : a->first)[r],
                  last = from + (cls ? a->first : a->last)[r];
    if (first == last) {
      copy(a, r, first);
    } else if (a->x.dtype == SIE_F32) {
      mean_rows<float>(a, r, first, last);
    } else {
      mean_rows<Bf16>(a, r, first, last);
    }
  }
  return SIE_OK;
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
