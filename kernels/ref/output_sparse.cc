// output_sparse — the columns of each row with x > 0, and t(x) of them, as sparse output rows.
//   t(x) = x, log(1 + x) or log(1 + log(1 + x)), in double, rounded once to f32. A NaN is not > 0.
// Shapes   x [B, C], row stride ≥ C; items [B], dims ≥ 1.
// Types    x f32; values f32 | f16.
// Alias    none.
// Share    sequences.
#include "sparse_row.h"

namespace sie_ref {

sie_status output_sparse(const sie_output_sparse_args *a, const sie_share *share) {
  if (a->x.dtype != SIE_F32) return SIE_UNSUPPORTED;
  if (a->transform < SIE_SPARSE_AS_IS || a->transform > SIE_SPARSE_LOG_LOG) return SIE_INVALID_ARGUMENT;
  Range seqs = share_of(*a->seqs.n, share);
  for (int64_t b = seqs.first; b < seqs.last; b++) {
    if (!is_sparse_item(a->items[b])) return SIE_UNSUPPORTED;
    SparseRow row(a->items[b], a->out);
    for (int64_t i = 0; i < a->c; i++) {
      double x = load(a->x, b, i);
      if (!(x > 0)) continue;
      for (int32_t log = 0; log < a->transform; log++) x = log1p(x);
      row.add(i, x);
    }
    row.finish();
  }
  return SIE_OK;
}

}  // namespace sie_ref
