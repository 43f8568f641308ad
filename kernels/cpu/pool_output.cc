// pool_output — pool, then output_rows on the pooled row, without the rows in between.
// Shapes   as pool's x and output_rows' items and out. B ≥ 0, C ≥ 1.
// Types    x f32 | bf16; output types as output_rows.
// Alias    none.
// Align    element.
// Share    sequences.
// Scratch  C floats, the pooled row; a float for each row of the longest sequence.
// Cost     reads x once, for attention twice → memory bound.
// Plan     pool's row into scratch (L1), output_rows' loops over it.
// Error    that of pool, then that of output_rows.
#include "output_row.h"
#include "pool_row.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

sie_status pool_output(const sie_pool_output_args *a, const sie_share *share) {
  if (!pool_supported(a->x, a->mode)) return SIE_UNSUPPORTED;
  sie_pool_args pool = {};
  pool.cu_seqlens = a->cu_seqlens;
  pool.mode = a->mode;
  pool.c = a->c;
  pool.x = a->x;
  pool.w = a->w;
  pool.index = a->index;
  pool.cu_whole = a->cu_whole;
  char *scratch = static_cast<char *>(share->scratch);
  float *row = reinterpret_cast<float *>(scratch);
  float *weights = reinterpret_cast<float *>(scratch + float_bytes(a->c));
  const Range seqs = share_of(*a->seqs.n, share);
  for (int64_t b = seqs.first; b < seqs.last; b++) {
    if (a->x.dtype == SIE_F32) {
      pool_row<float>(&pool, b, weights, row);
    } else {
      pool_row<Bf16>(&pool, b, weights, row);
    }
    const sie_status status = write_item(a->items[b], a->c, row, a->out);
    if (status != SIE_OK) return status;
  }
  return SIE_OK;
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
