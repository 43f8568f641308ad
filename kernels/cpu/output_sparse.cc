// output_sparse — the columns of each row with x > 0, and t(x) of them, as sparse output rows.
//   t(x) = x, log(1 + x) or log(1 + log(1 + x)). A NaN is not > 0.
// Shapes   x [B, C], row stride ≥ C; items [B], dims ≥ 1. B ≥ 0, C ≥ 1.
// Types    x f32; values f32 | f16 (nearest even).
// Alias    none.
// Align    element; items' offsets 16 bytes.
// Share    sequences.
// Cost     4·C bytes read a row; one or two logarithms for each column that is kept.
// Plan     a vector comparison finds the columns to keep; they are few, so they are handled one by
//          one.
// Error    libm's log1p, twice at most: ≤ 2·2⁻²³ relative, then the store's rounding.
#include "sparse_row.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

sie_status output_sparse(const sie_output_sparse_args *a, const sie_share *share) {
  if (a->x.dtype != SIE_F32) return SIE_UNSUPPORTED;
  if (a->transform < SIE_SPARSE_AS_IS || a->transform > SIE_SPARSE_LOG_LOG) return SIE_INVALID_ARGUMENT;
  const Range seqs = share_of(*a->seqs.n, share);
  for (int64_t b = seqs.first; b < seqs.last; b++) {
    if (!is_sparse_item(a->items[b])) return SIE_UNSUPPORTED;
    SparseRow row = sparse_row(a->items[b], a->out);
    const float *x = row_of<const float>(a->x, b);
    for (int64_t i = 0; i < a->c; i += kLanes) {
      for (uint32_t kept = vpositive(vload_row(x, i, a->c)); kept != 0; kept &= kept - 1) {
        const int64_t column = i + __builtin_ctz(kept);
        float value = x[column];
        for (int32_t log = 0; log < a->transform; log++) value = __builtin_log1pf(value);
        add_column(&row, column, value);
      }
    }
    finish_row(row);
  }
  return SIE_OK;
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
