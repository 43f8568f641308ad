// softmax — y[r] = e^(s·x[r]) / Σ e^(s·x) over the rows of r's sequence. All in double.
// Shapes   x, y [R, 1], row strides ≥ 1; cu_seqlens [B+1].
// Types    f32.
// Alias    none.
// Share    sequences.
#include "rows.h"

namespace sie_ref {

sie_status softmax(const sie_softmax_args *a, const sie_share *share) {
  if (a->x.dtype != SIE_F32 || a->y.dtype != SIE_F32) return SIE_UNSUPPORTED;
  const Range seqs = share_of(*a->seqs.n, share);
  const double scale = static_cast<double>(a->scale);
  for (int64_t b = seqs.first; b < seqs.last; b++) {
    double largest = -INFINITY, sum = 0;
    for (int64_t r = a->cu_seqlens[b]; r < a->cu_seqlens[b + 1]; r++) {
      largest = fmax(largest, scale * load(a->x, r, 0));
    }
    for (int64_t r = a->cu_seqlens[b]; r < a->cu_seqlens[b + 1]; r++) {
      sum += exp(scale * load(a->x, r, 0) - largest);
    }
    for (int64_t r = a->cu_seqlens[b]; r < a->cu_seqlens[b + 1]; r++) {
      store(a->y, r, 0, static_cast<float>(exp(scale * load(a->x, r, 0) - largest) / sum));
    }
  }
  return SIE_OK;
}

}  // namespace sie_ref
