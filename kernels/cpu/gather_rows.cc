// gather_rows — y[b] = the first or last row of sequence b; an empty sequence gives zeros.
// Shapes   x [T, C], y [B, C], row strides ≥ C; cu_seqlens [B+1]. B ≥ 0, C ≥ 1.
// Types    x, y f32 | bf16, one type: bits are copied.
// Alias    none.
// Align    element.
// Share    sequences.
// Cost     2·C elements moved a sequence.
// Plan     memcpy a row.
// Error    none.
#include "isa.h"

#include <string.h>

namespace sie_cpu {
namespace SIE_ISA_NS {

sie_status gather_rows(const sie_gather_rows_args *a, const sie_share *share) {
  if (!is_float(a->x.dtype) || a->y.dtype != a->x.dtype) return SIE_UNSUPPORTED;
  if (a->which != SIE_POOL_CLS && a->which != SIE_POOL_LAST) return SIE_UNSUPPORTED;
  const int64_t size = a->x.dtype == SIE_F32 ? 4 : 2;
  const size_t bytes = static_cast<size_t>(a->c * size);
  const Range seqs = share_of(*a->seqs.n, share);
  for (int64_t b = seqs.first; b < seqs.last; b++) {
    char *y = static_cast<char *>(a->y.p) + b * a->y.ld * size;
    const int64_t first = a->cu_seqlens[b], last = a->cu_seqlens[b + 1] - 1;
    if (last < first) {
      memset(y, 0, bytes);
      continue;
    }
    const int64_t row = a->which == SIE_POOL_CLS ? first : last;
    memcpy(y, static_cast<const char *>(a->x.p) + row * a->x.ld * size, bytes);
  }
  return SIE_OK;
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
