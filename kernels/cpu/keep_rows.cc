// keep_rows — y[i] = x[index[i]]: copies the token rows that the batch keeps, in order.
// Shapes   x [T, C], y [K, C], row strides ≥ C; index [K], rows of x. K ≥ 0, C ≥ 1.
// Types    x, y f32 | bf16, one type: bits are copied.
// Alias    none.
// Align    element.
// Share    kept rows.
// Cost     2·C elements moved a row.
// Plan     memcpy a row.
// Error    none.
#include "isa.h"

#include <string.h>

namespace sie_cpu {
namespace SIE_ISA_NS {

sie_status keep_rows(const sie_keep_rows_args *a, const sie_share *share) {
  if (!is_float(a->x.dtype) || a->y.dtype != a->x.dtype) return SIE_UNSUPPORTED;
  const int64_t size = a->x.dtype == SIE_F32 ? 4 : 2;
  const Range kept = share_of(*a->kept.n, share);
  for (int64_t i = kept.first; i < kept.last; i++) {
    memcpy(static_cast<char *>(a->y.p) + i * a->y.ld * size,
           static_cast<const char *>(a->x.p) + a->index[i] * a->x.ld * size,
           static_cast<size_t>(a->c * size));
  }
  return SIE_OK;
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
