// lora — y = (x·Aᵀ)·Bᵀ with the adapter of each row's sequence; zeros without one or with rank 0.
//   One FMA chain a sum, ascending; t = x·Aᵀ stays f32.
// Shapes   x [R, K], y [R, N], row strides ≥ columns; A [rank, K], B [N, rank] dense; adapter [B];
//          cu_seqlens [B+1], or NULL where x has one row a sequence. R ≥ 0; K, N ≥ 1;
//          0 ≤ rank ≤ max_rank.
// Types    x f32 | bf16; A, B, y f32.
// Alias    none.
// Align    element.
// Share    rows.
// Scratch  a panel of kPanel rows of A or B, kRows rows of x, t of kBlock rows.
// Cost     2·R·rank·(K + N) flop; at rank 8 writing y, 4·R·N bytes, costs as much. A and B are
//          transposed once a block.
// Plan     runs of neighbouring sequences with one adapter, in blocks of kBlock rows: panels of A's
//          rows give t by gemm_tile.h, then panels of B's rows give y.
// Error    sie_tol_dot of K, then of rank: no rounding to storage between them.
// Source   Hu 2021 §4.1, arXiv:2106.09685
#include "panel.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

namespace {

constexpr int64_t kBlock = 256;

struct Scratch {
  float *panel, *wide, *t;
};

Scratch divide(float *memory, int64_t k, int64_t max_rank) {
  const int64_t longest = k > max_rank ? k : max_rank;
  return {memory, memory + kPanel * longest, memory + kPanel * longest + kRows * k};
}

// t [rows, rank] = x·Aᵀ for rows from `row` on.
void multiply_a(const sie_lora_args *a, const sie_lora_pair &pair, int64_t row, int64_t rows,
                const Scratch &scratch) {
  const int64_t tiles = tile_count(rows);
  for (int64_t r = 0; r < pair.rank; r += kPanel) {
    const int64_t count = pair.rank - r < kPanel ? pair.rank - r : kPanel, vecs = vectors_in(count);
    transpose_rows(static_cast<const float *>(pair.a) + r * a->k, a->k, count, a->k, scratch.panel);
    for (int64_t i = 0; i < tiles; i++) {
      const int64_t first = tile_start(rows, tiles, i), m = tile_start(rows, tiles, i + 1) - first;
      alignas(64) float z[kRows * kPanel];
      int64_t ld;
      const float *x = f32_rows(a->x, a->k, row + first, m, scratch.wide, &ld);
      multiply_tile(m, vecs, x, ld, scratch.panel, vecs * kLanes, a->k, z, kPanel);
      for (int64_t j = 0; j < m; j++)
        copy_row(z + j * kPanel, count, scratch.t + (first + j) * pair.rank + r);
    }
  }
}

// y = t·Bᵀ for the same rows.
void multiply_b(const sie_lora_args *a, const sie_lora_pair &pair, int64_t row, int64_t rows,
                const Scratch &scratch) {
  const int64_t tiles = tile_count(rows);
  for (int64_t n = 0; n < a->n; n += kPanel) {
    const int64_t count = a->n - n < kPanel ? a->n - n : kPanel, vecs = vectors_in(count);
    transpose_rows(static_cast<const float *>(pair.b) + n * pair.rank, pair.rank, count, pair.rank,
                   scratch.panel);
    for (int64_t i = 0; i < tiles; i++) {
      const int64_t first = tile_start(rows, tiles, i), m = tile_start(rows, tiles, i + 1) - first;
      alignas(64) float z[kRows * kPanel];
      multiply_tile(m, vecs, scratch.t + first * pair.rank, pair.rank, scratch.panel, vecs * kLanes,
                    pair.rank, z, kPanel);
      for (int64_t j = 0; j < m; j++)
        copy_row(z + j * kPanel, count, row_of<float>(a->y, row + first + j) + n);
    }
  }
}

// Rows [first, last), which share an adapter.
void run(const sie_lora_args *a, int32_t adapter, int64_t first, int64_t last, const Scratch &scratch) {
  if (adapter < 0) {
    for (int64_t r = first; r < last; r++)
      memset(row_of<float>(a->y, r), 0, static_cast<size_t>(a->n) * sizeof(float));
    return;
  }
  const sie_lora_pair &pair = a->adapters[adapter];
  for (int64_t row = first; row < last; row += kBlock) {
    const int64_t rows = last - row < kBlock ? last - row : kBlock;
    multiply_a(a, pair, row, rows, scratch);
    multiply_b(a, pair, row, rows, scratch);
  }
}

// One past the last row of sequence b.
int64_t end_of(const sie_lora_args *a, int64_t b) {
  return a->cu_seqlens != nullptr ? a->cu_seqlens[b + 1] : b + 1;
}

}  // namespace

sie_status lora(const sie_lora_args *a, const sie_share *share) {
  if (!is_float(a->x.dtype) || a->y.dtype != SIE_F32) return SIE_UNSUPPORTED;
  for (int32_t i = 0; i < a->n_adapters; i++) {
    if (a->adapters[i].rank < 0 || a->adapters[i].rank > a->max_rank) return SIE_INVALID_ARGUMENT;
    if (a->adapters[i].rank > 0 && a->adapters[i].dtype != SIE_F32) return SIE_UNSUPPORTED;
  }
  const Range rows = share_of(*a->rows.n, share);
  const Scratch scratch = divide(static_cast<float *>(share->scratch), a->k, a->max_rank);
  const int64_t seqs = *a->seqs.n;
  int64_t row = rows.first;
  for (int64_t b = 0; row < rows.last;) {
    const int32_t adapter = a->adapter[b];
    int64_t last = end_of(a, b);
    for (b++; b < seqs && a->adapter[b] == adapter; b++) last = end_of(a, b);
    if (last > rows.last) last = rows.last;
    if (last <= row) continue;  // before this share, or empty
    run(a, adapter, row, last, scratch);
    row = last;
  }
  return SIE_OK;
}

int64_t lora_scratch(const sie_op_bounds *bounds) {
  const int64_t longest = bounds->k > bounds->max_rank ? bounds->k : bounds->max_rank;
  return float_bytes(kPanel * longest + kRows * bounds->k + kBlock * bounds->max_rank);
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
