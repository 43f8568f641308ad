// pool — y[b] = the first row, the mean of the rows, or the last row of sequence b, as f32.
//   mean: Σ x/L, rows added in order, one f32 accumulator a column. An empty sequence gives zeros.
// Shapes   x [T, C], or [B, C] without cu_seqlens; y [B, C]; row strides ≥ C.   B ≥ 0, C ≥ 1.
// Types    x f32 | bf16; y f32.                    Alias    none.
// Align    element.                                Share    sequences.
// Cost     reads x once → memory bound.            Error    |y − ref| ≤ L·2⁻²⁴·max|x|.
// Plan     four vectors of columns at a time, all rows of the sequence: four independent chains of adds.
#include "rows.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

namespace {

// Mean of rows [first, last) of x in columns [i, i + V vectors).
template <int V, typename X>
SIE_INLINE void mean_columns(const sie_tensor &x, int64_t first, int64_t last, int64_t i, int64_t c,
                             float *y) {
  Vec sum[V];
  for (int v = 0; v < V; v++) sum[v] = vset(0.0f);
  for (int64_t r = first; r < last; r++) {
    const X *row = row_of<const X>(x, r);
    for (int v = 0; v < V; v++) sum[v] = sum[v] + vload_row(row, i + v * kLanes, c);
  }
  const Vec length = vset(static_cast<float>(last - first));
  for (int v = 0; v < V; v++) vstore_row(y, i + v * kLanes, c, sum[v] / length);
}

template <typename X>
void pool_sequences(const sie_pool_args *a, Range seqs) {
  const int64_t c = a->c;
  for (int64_t b = seqs.first; b < seqs.last; b++) {
    float *y = row_of<float>(a->y, b);
    int64_t first = b, last = b + 1;
    if (a->cu_seqlens != nullptr) {
      first = a->cu_seqlens[b];
      last = a->cu_seqlens[b + 1];
      if (a->mode == SIE_POOL_CLS && last > first) last = first + 1;
      if (a->mode == SIE_POOL_LAST && last > first) first = last - 1;
    }
    if (last <= first) {
      memset(y, 0, static_cast<size_t>(c) * sizeof *y);
    } else if (last == first + 1) {
      copy_row(row_of<const X>(a->x, first), c, y);
    } else {
      int64_t i = 0;
      for (; i + 4 * kLanes <= c; i += 4 * kLanes) mean_columns<4, X>(a->x, first, last, i, c, y);
      for (; i < c; i += kLanes) mean_columns<1, X>(a->x, first, last, i, c, y);
    }
  }
}

}  // namespace

sie_status pool(const sie_pool_args *a, const sie_share *share) {
  if (!is_float(a->x.dtype) || a->y.dtype != SIE_F32) return SIE_UNSUPPORTED;
  if (a->mode != SIE_POOL_CLS && a->mode != SIE_POOL_MEAN && a->mode != SIE_POOL_LAST) return SIE_UNSUPPORTED;
  const Range seqs = share_of(*a->seqs.n, share);
  if (a->x.dtype == SIE_F32) {
    pool_sequences<float>(a, seqs);
  } else {
    pool_sequences<Bf16>(a, seqs);
  }
  return SIE_OK;
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
