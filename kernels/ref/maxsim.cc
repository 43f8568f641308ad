// maxsim — y[b] = Σ_i max_j q_i·d_j/‖d_j‖, q the rows of sequence b's query, d its own rows.
//   All in double. ‖d_j‖ is at least 1e-12, and 1 without normalize. A sequence without a query,
//   without query rows or without rows gives 0.
// Shapes   x [R, C], queries [Q, C] dense, cu_queries [queries+1], partner, y [B, 1]; cu_seqlens
//          [B+1].
// Types    x f32 | bf16 | f16; queries, y f32.
// Alias    none.
// Share    sequences.
// Scratch  none.
// Source   Khattab 2020 §3.3, arXiv:2004.12832
#include "rows.h"

namespace sie_ref {

namespace {

double norm_of(const sie_maxsim_args *a, int64_t row) {
  double sum = 0;
  for (int64_t c = 0; c < a->c; c++) sum += load(a->x, row, c) * load(a->x, row, c);
  return sqrt(sum) < 1e-12 ? 1e-12 : sqrt(sum);
}

// The largest similarity of query row i with a row of x in [first, end).
double best_of(const sie_maxsim_args *a, int64_t i, int64_t first, int64_t end) {
  double best = -INFINITY;
  for (int64_t row = first; row < end; row++) {
    double dot = 0;
    for (int64_t c = 0; c < a->c; c++)
      dot += static_cast<double>(a->queries[i * a->c + c]) * load(a->x, row, c);
    if (a->normalize != 0) dot /= norm_of(a, row);
    if (dot > best) best = dot;
  }
  return best;
}

}  // namespace

sie_status maxsim(const sie_maxsim_args *a, const sie_share *share) {
  if (!is_float(a->x.dtype) || a->y.dtype != SIE_F32) return SIE_UNSUPPORTED;
  const Range seqs = share_of(*a->seqs.n, share);
  for (int64_t b = seqs.first; b < seqs.last; b++) {
    const int64_t first = a->cu_seqlens[b], end = a->cu_seqlens[b + 1];
    const int32_t query = a->partner[b];
    double sum = 0;
    if (query >= 0 && first < end) {
      for (int64_t i = a->cu_queries[query]; i < a->cu_queries[query + 1]; i++)
        sum += best_of(a, i, first, end);
    }
    store(a->y, b, 0, static_cast<float>(sum));
  }
  return SIE_OK;
}

}  // namespace sie_ref
