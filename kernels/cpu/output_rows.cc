// output_rows — each sequence's row is cut, optionally divided by its L2 norm, converted and
// written at its offset.
//   norm     x / max(√Σx², 1e-12), the sum in double, the quotient in f32, over the dims that are
//            kept
//   F32 F16  the value
//   I8       rint(x / s · 127), s = max|x| (0 counts as 1)
//   U8       rint((x − min) / r · 255), r = max − min (0 counts as 1)
//   BINARY   bit = x > 0, most significant first, the last byte's low bits zero
//   All in f32, divide before multiply, ties to even: the bits NumPy gives. A NaN becomes 0 in I8
//   and U8.
// Shapes   x [B, C], row stride ≥ C; items [B], dims ≤ C. B ≥ 0, C ≥ 1.
// Types    x f32.
// Alias    none.
// Align    element.
// Share    sequences.
// Scratch  C floats.
// Cost     4·C bytes read a row → memory bound.
// Plan     the cut, normalised row in scratch (L1), then one loop per type. Divides are true
//          divides.
// Error    none after the norm; the norm's last bit may differ from another order of summation.
#include "output_row.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

sie_status output_rows(const sie_output_rows_args *a, const sie_share *share) {
  if (a->x.dtype != SIE_F32) return SIE_UNSUPPORTED;
  float *row = static_cast<float *>(share->scratch);
  const Range seqs = share_of(*a->seqs.n, share);
  for (int64_t b = seqs.first; b < seqs.last; b++) {
    const sie_out_item &item = a->items[b];
    copy_row(row_of<const float>(a->x, b), item.dims != 0 ? item.dims : a->c, row);
    const sie_status status = write_item(item, a->c, row, a->out);
    if (status != SIE_OK) return status;
  }
  return SIE_OK;
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
