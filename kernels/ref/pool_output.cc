// pool_output — pool and output_rows in one loop, one sequence at a time.
// Shapes   as pool's x and output_rows' items and out.
// Types    x f32 | bf16 | f16; output types as output_rows.
// Alias    none.
// Share    sequences.
// Scratch  C floats, then one double for each token of the longest sequence.
#include "rows.h"

namespace sie_ref {

sie_status pool_output(const sie_pool_output_args *a, const sie_share *share) {
  sie_pool_args pool = {};
  pool.cu_seqlens = a->cu_seqlens;
  pool.mode = a->mode;
  pool.c = a->c;
  pool.x = a->x;
  pool.y.dtype = SIE_F32;
  pool.w = a->w;
  pool.index = a->index;
  pool.cu_whole = a->cu_whole;
  if (!pool_supported(&pool)) return SIE_UNSUPPORTED;
  float *row = static_cast<float *>(share->scratch);
  double *weights = reinterpret_cast<double *>(row + (a->c + 1) / 2 * 2);
  Range seqs = share_of(*a->seqs.n, share);
  for (int64_t b = seqs.first; b < seqs.last; b++) {
    pool_sequence(&pool, b, weights, row);
    sie_status status = write_item(a->items[b], a->c, row, a->out);
    if (status != SIE_OK) return status;
  }
  return SIE_OK;
}

}  // namespace sie_ref
