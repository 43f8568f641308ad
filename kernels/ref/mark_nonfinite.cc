// mark_nonfinite — flags the sequences that have a row with an element that is NaN or infinite.
// Shapes   x [R, C], row stride ≥ C; cu_seqlens [B+1]; place [B]; flags holds every place.
// Types    x f32 | bf16 | f16 | u8 | e4m3.
// Alias    none.
// Share    sequences.
#include "rows.h"

namespace sie_ref {

namespace {

bool finite_row(const sie_tensor &x, int64_t c, int64_t r) {
  for (int64_t g = 0; is_quantised(x) && g < scales_of_row(x, c); g++) {
    if (!isfinite(x.scale[r * scales_of_row(x, c) + g])) return false;
  }
  if (x.dtype == SIE_U8) return true;
  for (int64_t i = 0; i < c; i++) {
    if (!isfinite(load(x, r, i))) return false;
  }
  return true;
}

}  // namespace

sie_status mark_nonfinite(const sie_mark_nonfinite_args *a, const sie_share *share) {
  if (!is_float(a->x.dtype) && !is_quantised(a->x)) return SIE_UNSUPPORTED;
  if (a->which != 0 && a->which != SIE_POOL_CLS && a->which != SIE_POOL_LAST) return SIE_INVALID_ARGUMENT;
  Range seqs = share_of(*a->seqs.n, share);
  for (int64_t b = seqs.first; b < seqs.last; b++) {
    int64_t first = a->cu_seqlens != nullptr ? a->cu_seqlens[b] : b;
    int64_t end = a->cu_seqlens != nullptr ? a->cu_seqlens[b + 1] : b + 1;
    for (int64_t r = first; r < end; r++) {
      bool named = a->which == 0 || r == (a->which == SIE_POOL_CLS ? first : end - 1);
      if (named && !finite_row(a->x, a->c, r)) a->flags[a->place != nullptr ? a->place[b] : b] = 1;
    }
  }
  return SIE_OK;
}

}  // namespace sie_ref
