// pool — y[b] = the first row, the mean of the rows, or the last row of sequence b, as f32.
//   mean: Σ x/L in double. An empty sequence gives zeros. Without cu_seqlens x has one row a sequence.
// Shapes   x [T, C] (or [B, C]), y [B, C], row strides ≥ C; cu_seqlens [B+1] or null.
// Types    x f32 | bf16; y f32.
// Alias    none.                                   Share    sequences.
#include "rows.h"

namespace sie_ref {

sie_status pool(const sie_pool_args *a, const sie_share *share) {
  if (!is_float(a->x.dtype) || a->y.dtype != SIE_F32) return SIE_UNSUPPORTED;
  Range seqs = share_of(*a->seqs.n, share);
  for (int64_t b = seqs.first; b < seqs.last; b++) {
    int64_t first = b, end = b + 1;
    if (a->cu_seqlens != nullptr) {
      first = a->cu_seqlens[b];
      end = a->cu_seqlens[b + 1];
      if (a->mode == SIE_POOL_CLS && end > first) end = first + 1;
      if (a->mode == SIE_POOL_LAST && end > first) first = end - 1;
    }
    for (int64_t i = 0; i < a->c; i++) {
      double sum = 0;
      for (int64_t r = first; r < end; r++) sum += load(a->x, r, i);
      store(a->y, b, i, end > first ? static_cast<float>(sum / static_cast<double>(end - first)) : 0.0f);
    }
  }
  return SIE_OK;
}

}  // namespace sie_ref
