/* int8_linear.h — class INT8: the packed layout, and the part of a linear that is the same for
 * every instruction set.
 *
 * Packed [N, K], with N' = N up to a multiple of 32, steps = ⌈K/64⌉:
 *   f32 scale[N']; s32 sum[N']   of each output column: s_w and Σ_k w_q
 *   s8 panel[N'/32][steps][2 tiles][16][16][4]
 * Element [i][j][l] of a tile is column 16·tile + j, k = 4·i + l of the step: all kernels
 * read it in order. Padding is zero, so x's bytes beyond K could not change a result; they are not
 * read either. */
#ifndef SIE_KERNELS_CPU_INT8_LINEAR_H
#define SIE_KERNELS_CPU_INT8_LINEAR_H

#include <string.h>

#include "isa.h"
#include "rows.h"

namespace sie_cpu {

enum { kInt8Step = 64, kInt8Panel = 32, kInt8StepBytes = 2048 };

struct Int8Weight {
  const float *scale;
  const int32_t *sum;
  const char *panels;
  int64_t steps;
};

static inline int64_t int8_padded_columns(int64_t n) {
  return (n + kInt8Panel - 1) / kInt8Panel * kInt8Panel;
}
static inline int64_t int8_steps(int64_t k) { return (k + kInt8Step - 1) / kInt8Step; }

static inline Int8Weight int8_weight(const sie_packed *w) {
  const int64_t columns = int8_padded_columns(w->n);
  const float *const scale = static_cast<const float *>(w->data);
  const int32_t *const sum = reinterpret_cast<const int32_t *>(scale + columns);
  return {scale, sum, reinterpret_cast<const char *>(sum + columns), int8_steps(w->k)};
}

/* Σ x_q·w_q of a row lacks excess·w_q of its outlier. This says where the four bytes of the
 * outlier's weight and three neighbours in K begin, for the first column of a panel (the next
 * sixteen columns are half a step away), and how to shift its byte to the top. */
struct Int8OutlierPlace {
  int64_t offset;
  int shift; /* bits to the left that put the byte on top of its 32 */
};
static inline Int8OutlierPlace int8_outlier_place(int64_t column) {
  return {column / kInt8Step * kInt8StepBytes + column % kInt8Step / 4 * 64,
          static_cast<int>(24 - column % 4 * 8)};
}

/* The number of rows of f32 results that wait for their quantisation: at most 1.5 MB, whole blocks
 * of 32. */
static inline int64_t int8_group_rows(int64_t n) {
  const int64_t rows = (3 << 17) / int8_padded_columns(n) / 32 * 32;
  return rows < 32 ? 32 : rows;
}

/* One product for an instruction set: all rows of a, panels [begin, end), y f32 or bf16. tails: the
 * zero-padded last step of each row, [rows][64], or NULL when K fills its steps. */
typedef void (*Int8Product)(const sie_linear_args *a, const char *tails, int64_t panel_begin,
                            int64_t panel_end);

/* The linear of an instruction set. Scratch holds the tails, then a group of f32 rows when y is u8:
 * the range of a row is known only when all its columns are. */
static inline sie_status int8_linear(const sie_linear_args *a, const sie_share *share, Int8Product product) {
  if (a->w->compute != SIE_COMPUTE_INT8 || a->x.dtype != SIE_U8) return SIE_UNSUPPORTED;
  if (!is_float(a->y.dtype) && a->y.dtype != SIE_U8) return SIE_UNSUPPORTED;
  const int64_t panels = int8_padded_columns(a->n) / kInt8Panel, tail = a->k % kInt8Step;
  const bool bytes = a->y.dtype == SIE_U8;
  const Range rows = bytes ? share_of(*a->rows.n, share) : Range{0, *a->rows.n};
  if (rows.first == rows.last) return SIE_OK;

  char *const tails = static_cast<char *>(share->scratch);
  const int64_t tail_bytes = tail != 0 ? (rows.last - rows.first) * kInt8Step : 0;
  if (tail != 0) {
    memset(tails, 0, static_cast<size_t>(tail_bytes));
    const char *const x = static_cast<const char *>(a->x.p) + a->k - tail;
    for (int64_t r = rows.first; r < rows.last; r++)
      memcpy(tails + (r - rows.first) * kInt8Step, x + r * a->x.ld, static_cast<size_t>(tail));
  }
  if (!bytes) {
    const Range own = share_of(panels, share);
    if (own.first < own.last) product(a, tail != 0 ? tails : nullptr, own.first, own.last);
    return SIE_OK;
  }

  float *const sums = reinterpret_cast<float *>(tails + tail_bytes);
  const int64_t ld = int8_padded_columns(a->n), group = int8_group_rows(a->n);
  for (int64_t first = rows.first; first < rows.last; first += group) {
    const int32_t count = static_cast<int32_t>(rows.last - first < group ? rows.last - first : group);
    sie_linear_args part = *a;
    part.rows.n = &count;
    part.x.p = static_cast<char *>(a->x.p) + first * a->x.ld;
    part.x.scale = a->x.scale + first;
    part.x.zero = a->x.zero + first;
    if (a->x.outlier != nullptr) part.x.outlier = a->x.outlier + first;
    if (a->addend.p != nullptr) part.addend.p = static_cast<float *>(a->addend.p) + first * a->addend.ld;
    if (a->residual.p != nullptr) {
      const int64_t size = a->residual.dtype == SIE_F32 ? 4 : 2;
      part.residual.p = static_cast<char *>(a->residual.p) + first * a->residual.ld * size;
    }
    part.y.p = sums;
    part.y.ld = ld;
    part.y.dtype = SIE_F32;
    product(&part, tail != 0 ? tails + (first - rows.first) * kInt8Step : nullptr, 0, panels);
    for (int64_t r = 0; r < count; r++)
      SIE_ISA_NS::quantise_row(static_cast<const float *>(sums + r * ld), result_columns(a), a->y, first + r);
  }
  return SIE_OK;
}

}  // namespace sie_cpu

#endif /* SIE_KERNELS_CPU_INT8_LINEAR_H */
