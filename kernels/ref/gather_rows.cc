// gather_rows — y[b] = the first or last row of sequence b; an empty sequence gives zeros.
// Shapes   x [T, C], y [B, C], row strides ≥ C; cu_seqlens [B+1].
// Types    x, y f32 | bf16 | f16, one type: bits are copied.
// Alias    none.
// Share    sequences.
#include "rows.h"

namespace sie_ref {

sie_status gather_rows(const sie_gather_rows_args *a, const sie_share *share) {
  if (!is_float(a->x.dtype) || a->y.dtype != a->x.dtype) return SIE_UNSUPPORTED;
  if (a->which != SIE_POOL_CLS && a->which != SIE_POOL_LAST) return SIE_UNSUPPORTED;
  int64_t size = a->x.dtype == SIE_F32 ? 4 : 2;
  size_t bytes = static_cast<size_t>(a->c * size);
  Range seqs = share_of(*a->seqs.n, share);
  for (int64_t b = seqs.first; b < seqs.last; b++) {
    char *y = static_cast<char *>(a->y.p) + b * a->y.ld * size;
    int64_t first = a->cu_seqlens[b], last = a->cu_seqlens[b + 1] - 1;
    if (last < first) {
      memset(y, 0, bytes);
      continue;
    }
    int64_t row = a->which == SIE_POOL_CLS ? first : last;
    memcpy(y, static_cast<const char *>(a->x.p) + row * a->x.ld * size, bytes);
  }
  return SIE_OK;
}

}  // namespace sie_ref
