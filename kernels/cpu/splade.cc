// splade — y[b, v] = max(0, max over the tokens i of sequence b of (x_i·Wᵀ + bias)[v]); 0 without
// tokens.
// Shapes   x [T, K], W packed [N, K], y [B, N], row strides ≥ columns; cu_seqlens [B+1]. T, B ≥ 0,
//          N, K ≥ 1.
// Types    x and W as the linear of the class; y f32. A NaN does not count in the maximum.
// Alias    none.
// Align    element; the packed weight 64 B.
// Share    groups of column panels, the same for any number of shares.
// Scratch  kSlabRows × the widest group in f32, then that of the linear.
// Cost     2·T·N·K flop; the maximum reads each logit once, from the second-level cache.
// Plan     kGroup panels of columns at a time, and for each group all rows in slabs: the linear of
//          the class computes a slab's logits of the group, which are reduced at once to the
//          sequences' rows of y. Logits [T, N] never exist; W is read once, x once a group.
// Error    that of the linear: a maximum rounds nothing, and its order changes nothing.
// Source   Formal 2021, arXiv:2109.10086 §3: max pooling; the logarithm is output_sparse's.
#include "linear_part.h"
#include "rows.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

namespace {

constexpr int64_t kSlabRows = splade_slab_rows, kGroup = panels_of_share;

// The panels of W in groups of kGroup to 2·kGroup − 1. With at least kGroup panels a share, linears
// share out whole panels as share_of does. So share `group` of `groups` of the linear is the
// columns of one group.
struct Groups {
  int64_t panel, panels, count, n;

  Range columns(int64_t group) const {
    const Range of = {panels * group / count * panel, panels * (group + 1) / count * panel};
    return {of.first, of.last < n ? of.last : n};
  }
  int64_t widest() const { return (panels + count - 1) / count * panel; }  // whole vectors, as a panel is
};

Groups groups_of(int64_t n, int64_t panel) {
  const int64_t panels = (n + panel - 1) / panel;
  return {panel, panels, panels < kGroup ? 1 : panels / kGroup, n};
}

// y[i] = max(y[i], z[r][i] over `rows` rows) for `count` columns.
void take_largest(const float *z, int64_t ld, int64_t rows, int64_t count, float *y) {
  constexpr int kAtOnce = 4;
  int64_t i = 0;
  for (; i + kAtOnce * kLanes <= count; i += kAtOnce * kLanes) {
    Vec most[kAtOnce];
    for (int v = 0; v < kAtOnce; v++) most[v] = vload(y + i + v * kLanes);
    for (int64_t r = 0; r < rows; r++) {
      for (int v = 0; v < kAtOnce; v++) most[v] = vmax(vload(z + r * ld + i + v * kLanes), most[v]);
    }
    for (int v = 0; v < kAtOnce; v++) vstore(y + i + v * kLanes, most[v]);
  }
  for (; i < count; i += kLanes) {
    Vec most = vload_row(y, i, count);
    for (int64_t r = 0; r < rows; r++) most = vmax(vload_row(z + r * ld, i, count), most);
    vstore_row(y, i, count, most);
  }
}

// Reduces the logits of rows [row, row + rows) into the sequences' rows of y. On entry *b is the
// sequence that holds `row`, on return the one that holds the next row.
void reduce_slab(const sie_splade_args *a, const float *z, int64_t ld, int64_t row, int64_t rows,
                 Range columns, int64_t *b) {
  const int64_t seqs = *a->seqs.n, end = row + rows;
  for (; *b < seqs; ++*b) {
    const int64_t first = a->cu_seqlens[*b] > row ? a->cu_seqlens[*b] : row, next = a->cu_seqlens[*b + 1],
                  last = next < end ? next : end;
    if (first < last) {
      take_largest(z + (first - row) * ld, ld, last - first, columns.last - columns.first,
                   row_of<float>(a->y, *b) + columns.first);
    }
    if (next > end) return;
  }
}

}  // namespace

sie_status splade(const sie_splade_args *a, const sie_share *share, LinearFn linear, int64_t panel) {
  if (a->y.dtype != SIE_F32) return SIE_UNSUPPORTED;
  const Groups groups = groups_of(a->n, panel);
  const int64_t ld = groups.widest(), tokens = *a->tokens.n, logits_bytes = float_bytes(kSlabRows * ld);
  float *const z = static_cast<float *>(share->scratch);
  int32_t rows = 0;
  sie_linear_args slab = {};
  slab.rows = {kSlabRows, &rows};
  slab.n = a->n;
  slab.k = a->k;
  slab.x = a->x;
  slab.w = a->w;
  slab.bias = a->bias;
  slab.y = {z, ld, SIE_F32, 0, nullptr, nullptr, nullptr};
  sie_share part = {0, static_cast<int32_t>(groups.count), static_cast<char *>(share->scratch) + logits_bytes,
                    share->scratch_bytes - logits_bytes, nullptr};
  const sie_status status = linear(&slab, &part);  // no rows: only its refusals count
  if (status != SIE_OK) return status;

  const Range own = share_of(groups.count, share);
  for (int64_t g = own.first; g < own.last; g++) {
    const Range columns = groups.columns(g);
    for (int64_t b = 0; b < *a->seqs.n; b++) {
      memset(row_of<float>(a->y, b) + columns.first, 0,
             static_cast<size_t>(columns.last - columns.first) * sizeof(float));
    }
    part.part = static_cast<int32_t>(g);
    // The linear writes its y from column columns.first on.
    slab.y.p = reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(z) -
                                        static_cast<uintptr_t>(columns.first) * sizeof(float));
    int64_t b = 0;
    for (int64_t row = 0; row < tokens; row += kSlabRows) {
      rows = static_cast<int32_t>(tokens - row < kSlabRows ? tokens - row : kSlabRows);
      slab.x = rows_from(a->x, row);
      linear(&slab, &part);
      reduce_slab(a, z, ld, row, rows, columns, &b);
    }
  }
  return SIE_OK;
}

int64_t splade_logits_bytes(int64_t n, int64_t panel) {
  return float_bytes(kSlabRows * groups_of(n, panel).widest());
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
