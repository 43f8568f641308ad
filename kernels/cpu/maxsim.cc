// maxsim — y[b] = Σ_i max_j q_i·d_j/‖d_j‖, q the rows of sequence b's query, d its own rows.
//   ‖d_j‖ = max(√Σ d², 1e-12), its squares in double; 1 without normalize. One FMA chain a product,
//   columns ascending; the sum over i ascends. A sequence without a query, without query rows or
//   without rows gives 0. A product that is NaN does not count in the maximum.
// Shapes   x [R, C], row stride ≥ C; queries [Q, C] dense, cu_queries, partner, y [B, 1]. B ≥ 0,
//          C ≥ 1.
// Types    x f32 | bf16; queries, y f32.
// Alias    none.
// Align    element.
// Share    sequences.
// Scratch  kPanel + kRows rows of C floats.
// Cost     2·Lq·Ld·C flop a pair → bound by the FMA ports.
// Plan     query rows in panels of kPanel, transposed into [C][kPanel] as gemm_tile.h takes its
//          right side; neighbouring sequences of one query share the panel. All rows of the
//          sequence pass in tiles of kRows; bf16 rows are widened first.
// Error    sie_tol_dot a product, then n roundings of the sum.
// Source   Khattab 2020 §3.3, arXiv:2004.12832
#include "panel.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

namespace {

// The panel in scratch: rows [first, first + count) of the queries; first −1: empty. A row that a
// panel begins with belongs to one query, whose end decides count.
struct Panel {
  float *b;  // [C][width], width = count in whole vectors
  int64_t first, count;
};

void load_panel(const sie_maxsim_args *a, int64_t first, int64_t count, Panel *panel) {
  if (panel->first == first) return;
  panel->first = first;
  panel->count = count;
  transpose_rows(a->queries + first * a->c, a->c, count, a->c, panel->b);
}

float norm_of(const float *x, int64_t c) {
  double squares = 0;
  for (int64_t i = 0; i < c; i += kLanes) squares += vsum_squares(vload_row(x, i, c));
  const float norm = static_cast<float>(__builtin_sqrt(squares));
  return norm < 1e-12f ? 1e-12f : norm;
}

// Adds to `sum`, one by one, the best product of each of the panel's query rows with rows [first,
// end) of x.
float add_best(const sie_maxsim_args *a, const Panel &panel, int64_t first, int64_t end, float *wide,
               float sum) {
  const int64_t vecs = vectors_in(panel.count), tiles = tile_count(end - first);
  alignas(64) float best[kPanel];
  alignas(64) float z[kRows * kPanel];
  for (int64_t v = 0; v < vecs; v++) vstore(best + v * kLanes, vset(-__builtin_inff()));
  for (int64_t i = 0; i < tiles; i++) {
    const int64_t row = first + tile_start(end - first, tiles, i),
                  rows = first + tile_start(end - first, tiles, i + 1) - row;
    int64_t ld;
    const float *x = f32_rows(a->x, a->c, row, rows, wide, &ld);
    multiply_tile(rows, vecs, x, ld, panel.b, vecs * kLanes, a->c, z, kPanel);
    for (int64_t m = 0; m < rows; m++) {
      const Vec norm = vset(a->normalize != 0 ? norm_of(x + m * ld, a->c) : 1.0f);
      for (int64_t v = 0; v < vecs; v++) {
        const Vec dot = vload(z + m * kPanel + v * kLanes);
        const Vec s = a->normalize != 0 ? dot / norm : dot;
        vstore(best + v * kLanes, vmax(s, vload(best + v * kLanes)));
      }
    }
  }
  for (int64_t i = 0; i < panel.count; i++) sum += best[i];
  return sum;
}

}  // namespace

sie_status maxsim(const sie_maxsim_args *a, const sie_share *share) {
  if (!is_float(a->x.dtype) || a->y.dtype != SIE_F32) return SIE_UNSUPPORTED;
  const Range seqs = share_of(*a->seqs.n, share);
  Panel panel = {static_cast<float *>(share->scratch), -1, 0};
  float *const wide = panel.b + kPanel * a->c;
  for (int64_t b = seqs.first; b < seqs.last; b++) {
    const int64_t first = a->cu_seqlens[b], end = a->cu_seqlens[b + 1];
    const int32_t query = a->partner[b];
    float sum = 0.0f;
    if (query >= 0 && first < end) {
      const int64_t last = a->cu_queries[query + 1];
      for (int64_t i = a->cu_queries[query]; i < last; i += kPanel) {
        load_panel(a, i, last - i < kPanel ? last - i : kPanel, &panel);
        sum = add_best(a, panel, first, end, wide, sum);
      }
    }
    *row_of<float>(a->y, b) = sum;
  }
  return SIE_OK;
}

int64_t maxsim_scratch(const sie_op_bounds *bounds) { return float_bytes((kPanel + kRows) * bounds->c); }

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
