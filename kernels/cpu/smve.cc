// smve — the sparse multi-vector encoding of each sequence's rows, as a sparse output row.
//   The formulas are at sie_smve_args (kernels/ops.h). A NaN is never kept.
// Shapes   x [R, C], row stride ≥ C; anchors [repetitions, width, C]; items [B]. 1 ≤ top ≤ width.
// Types    x f32 | bf16; values f32 | f16.
// Alias    none.
// Align    element; items' offsets 16 bytes.
// Share    sequences.
// Scratch  Layout below, 16·repetitions·L·top bytes most of it.
// Cost     2·L·C·width·repetitions flop: 8.6 GFLOP for 512 tokens of 128 columns and 65,536
//          anchors.
// Plan     kSlab rows at a time against panels of anchors, transposed on the fly, with the
//          register-blocked product of linear. Each row keeps its largest projections in a heap
//          whose root is the least of them; one comparison of a vector with the root rejects nearly
//          all others. Then the lists are pooled, kRange columns at a time, so that memory does not
//          grow with the width.
// Order    one FMA chain a projection, C ascending; sums over tokens ascending: bits depend on the
//          item alone.
// Error    f32 sums; a projection within rounding of a row's last kept one may take its place.
// Source   Spisak and Galovic 2026, topk.io/blog/20260311-smve-multi-vector-retrieval
#include "gemm_tile.h"
#include "output_row.h"
#include "smve_heap.h"
#include "sparse_row.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

namespace {

constexpr int64_t kSlab = 64, kRange = 8192;

// The places of an item's intermediates in the scratch, in bytes.
struct Layout {
  int64_t rows, panel, values, columns, pooled_values, pooled_columns, sums, counts, end;
};

Layout layout_of(int64_t c, int64_t entries) {
  Layout at;
  at.rows = 0;                                           // f32 [kSlab, C]
  at.panel = at.rows + float_bytes(kSlab * c);           // f32 [C, kPanel]
  at.values = at.panel + float_bytes(c * kPanel);        // f32 [repetitions, L, top]
  at.columns = at.values + float_bytes(entries);         // s32, the same; −1: none
  at.pooled_values = at.columns + float_bytes(entries);  // f32 [≤ entries]
  at.pooled_columns = at.pooled_values + float_bytes(entries);
  at.sums = at.pooled_columns + float_bytes(entries);  // f32 [kRange]
  at.counts = at.sums + float_bytes(kRange);           // s32 [kRange]
  at.end = at.counts + float_bytes(kRange);
  return at;
}

struct Item {
  const sie_smve_args *a;
  int64_t first, tokens;
  float *rows, *panel, *values, *pooled_values, *sums;
  int32_t *columns, *pooled_columns, *counts;
};

// Anchors [first, first + count) as [C][kPanel]; zeros behind.
void load_panel(const Item &item, const float *anchors, int64_t count) {
  const int64_t c = item.a->c;
  for (int64_t j = 0; j < kPanel; j += kLanes) {
    for (int64_t i = 0; i < c; i += kLanes) {
      Vec block[kLanes];
      for (int l = 0; l < kLanes; l++)
        block[l] = j + l < count ? vload_row(anchors + (j + l) * c, i, c) : vset(0.0f);
      vtranspose(block);
      for (int l = 0; l < kLanes && i + l < c; l++) vstore(item.panel + (i + l) * kPanel + j, block[l]);
    }
  }
}

// Rows [t, t + count) of the sequence in f32, divided by their norms with normalize.
void load_rows(const Item &item, int64_t t, int64_t count) {
  const sie_smve_args *a = item.a;
  for (int64_t i = 0; i < count; i++) {
    float *const row = item.rows + i * a->c;
    if (a->x.dtype == SIE_F32) {
      copy_row(row_of<const float>(a->x, item.first + t + i), a->c, row);
    } else {
      copy_row(row_of<const Bf16>(a->x, item.first + t + i), a->c, row);
    }
    if (a->normalize != 0) divide_by_norm(row, a->c);
  }
}

// The lists of tokens [t, t + count), at most kSlab of them, in one repetition.
void keep_largest(const Item &item, int64_t repetition, int64_t t, int64_t count) {
  const sie_smve_args *a = item.a;
  alignas(64) float z[kRows * kPanel];
  Heap heaps[kSlab];
  for (int64_t i = 0; i < count; i++) {
    const int64_t at = (repetition * item.tokens + t + i) * a->top;
    heaps[i] = {item.values + at, item.columns + at, 0, a->top};
  }
  for (int64_t first = 0; first < a->width; first += kPanel) {
    const int64_t column = repetition * a->width + first,
                  columns = a->width - first < kPanel ? a->width - first : kPanel;
    load_panel(item, a->anchors + column * a->c, columns);
    for (int64_t row = 0; row < count; row += kRows) {
      const int64_t rows = count - row < kRows ? count - row : kRows;
      multiply_tile(rows, kVecs, item.rows + row * a->c, a->c, item.panel, kPanel, a->c, z, kPanel);
      for (int64_t i = 0; i < rows; i++) offer_panel(&heaps[row + i], z + i * kPanel, columns, column);
    }
  }
  for (int64_t i = 0; i < count; i++) {
    for (int64_t e = heaps[i].count; e < a->top; e++) heaps[i].columns[e] = -1;
  }
}

// Writes the columns whose value is not 0, ascending, and their values; returns their number.
int64_t pool(const Item &item) {
  const sie_smve_args *a = item.a;
  const int64_t all = int64_t{a->repetitions} * a->width, of_repetition = item.tokens * a->top;
  int64_t count = 0;
  for (int64_t base = 0; base < all; base += kRange) {
    const int64_t end = base + kRange < all ? base + kRange : all;
    memset(item.sums, 0, static_cast<size_t>(end - base) * sizeof(float));
    memset(item.counts, 0, static_cast<size_t>(end - base) * sizeof(int32_t));
    for (int64_t i = base / a->width * of_repetition; i < ((end - 1) / a->width + 1) * of_repetition; i++) {
      const int64_t at = item.columns[i] - base;
      if (at < 0 || at >= end - base) continue;
      item.sums[at] += item.values[i];
      item.counts[at] += item.values[i] != 0 ? 1 : 0;
    }
    for (int64_t at = 0; at < end - base; at++) {
      if (item.sums[at] == 0) continue;  // one that nobody has kept, too
      item.pooled_values[count] =
          a->is_query != 0 ? item.sums[at] : item.sums[at] / static_cast<float>(item.counts[at]);
      item.pooled_columns[count++] = static_cast<int32_t>(base + at);
    }
  }
  return count;
}

uint32_t magnitude(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits & 0x7fffffffu;
}

// The number of values whose magnitude has at least the bits `least`.
int64_t count_from(const float *values, int64_t count, uint32_t least) {
  int64_t large = 0;
  for (int64_t i = 0; i < count; i++) large += magnitude(values[i]) >= least ? 1 : 0;
  return large;
}

void write(const Item &item, int64_t count, const sie_out_item &to) {
  // Finds the limit-th largest magnitude bit by bit; of the values equal to it the lowest columns
  // are kept.
  const int64_t limit = item.a->max_nonzeros;
  uint32_t least = 0;
  int64_t equals = 0;
  if (limit > 0 && count > limit) {
    for (uint32_t bit = 1u << 30; bit != 0; bit >>= 1) {
      if (count_from(item.pooled_values, count, least | bit) >= limit) least |= bit;
    }
    equals = limit - count_from(item.pooled_values, count, least + 1);
  }
  SparseRow row = sparse_row(to, item.a->out);
  for (int64_t i = 0; i < count; i++) {
    const uint32_t size = magnitude(item.pooled_values[i]);
    if (size > least || (size == least && equals-- > 0))
      add_column(&row, item.pooled_columns[i], item.pooled_values[i]);
  }
  finish_row(row);
}

}  // namespace

int64_t smve_scratch(const sie_op_bounds *bounds) {
  return layout_of(bounds->c, bounds->repetitions * bounds->max_len * bounds->top).end;
}

sie_status smve(const sie_smve_args *a, const sie_share *share) {
  if (!is_float(a->x.dtype)) return SIE_UNSUPPORTED;
  if (a->repetitions < 1 || a->top < 1 || a->top > a->width || a->max_nonzeros < 0)
    return SIE_INVALID_ARGUMENT;
  if (int64_t{a->repetitions} * a->width > INT32_MAX) return SIE_UNSUPPORTED;
  const Range seqs = share_of(*a->seqs.n, share);
  char *const scratch = static_cast<char *>(share->scratch);
  for (int64_t b = seqs.first; b < seqs.last; b++) {
    if (!is_sparse_item(a->items[b])) return SIE_UNSUPPORTED;
    Item item;
    item.a = a;
    item.first = a->cu_seqlens[b];
    item.tokens = a->cu_seqlens[b + 1] - item.first;
    const Layout at = layout_of(a->c, a->repetitions * item.tokens * a->top);
    item.rows = reinterpret_cast<float *>(scratch + at.rows);
    item.panel = reinterpret_cast<float *>(scratch + at.panel);
    item.values = reinterpret_cast<float *>(scratch + at.values);
    item.columns = reinterpret_cast<int32_t *>(scratch + at.columns);
    item.pooled_values = reinterpret_cast<float *>(scratch + at.pooled_values);
    item.pooled_columns = reinterpret_cast<int32_t *>(scratch + at.pooled_columns);
    item.sums = reinterpret_cast<float *>(scratch + at.sums);
    item.counts = reinterpret_cast<int32_t *>(scratch + at.counts);
    for (int64_t t = 0; t < item.tokens; t += kSlab) {
      const int64_t count = item.tokens - t < kSlab ? item.tokens - t : kSlab;
      load_rows(item, t, count);
      for (int64_t r = 0; r < a->repetitions; r++) keep_largest(item, r, t, count);
    }
    write(item, pool(item), a->items[b]);
  }
  return SIE_OK;
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
