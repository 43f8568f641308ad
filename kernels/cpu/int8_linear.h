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
#include "linear_part.h"
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

/* Copies the last step of each row, zero-padded, to `tails`. Returns it, or NULL when K fills its
 * steps. */
static inline const char *int8_copy_tails(const sie_linear_args *a, char *tails) {
  const int64_t tail = a->k % kInt8Step, rows = *a->rows.n;
  if (tail == 0) return nullptr;
  memset(tails, 0, static_cast<size_t>(rows * kInt8Step));
  const char *const x = static_cast<const char *>(a->x.p) + a->k - tail;
  for (int64_t r = 0; r < rows; r++)
    memcpy(tails + r * kInt8Step, x + r * a->x.ld, static_cast<size_t>(tail));
  return tails;
}

/* The linear of an instruction set for a weight of class INT8; its product takes `block` rows at
 * once. Scratch holds the tails, then a group of f32 rows when y is u8: the range of a row is known
 * only when all its columns are. */
static inline sie_status int8_linear(const sie_linear_args *a, const sie_share *share, Int8Product product,
                                     int64_t block) {
  if (a->x.dtype != SIE_U8) return SIE_UNSUPPORTED;
  if (!is_float(a->y.dtype) && a->y.dtype != SIE_U8) return SIE_UNSUPPORTED;
  const int64_t panels = int8_padded_columns(a->n) / kInt8Panel;
  char *const tails = static_cast<char *>(share->scratch);
  if (a->y.dtype != SIE_U8) {
    const LinearPart part = part_of(*a->rows.n, panels, block, share);
    if (part.empty()) return SIE_OK;
    const int32_t count = static_cast<int32_t>(part.rows.last - part.rows.first);
    const sie_linear_args own = rows_from(a, part.rows.first, &count);
    product(&own, int8_copy_tails(&own, tails), part.panels.first, part.panels.last);
    return SIE_OK;
  }

  const Range rows = share_of(*a->rows.n, share);
  const int64_t ld = int8_padded_columns(a->n), all = rows.last - rows.first,
                group = all < int8_group_rows(a->n) ? all : int8_group_rows(a->n),
                tail_bytes = a->k % kInt8Step != 0 ? group * kInt8Step : 0;
  float *const sums = reinterpret_cast<float *>(tails + tail_bytes);
  for (int64_t first = rows.first; first < rows.last; first += group) {
    const int32_t count = static_cast<int32_t>(rows.last - first < group ? rows.last - first : group);
    sie_linear_args part = rows_from(a, first, &count);
    part.y = {sums, ld, SIE_F32, 0, nullptr, nullptr, nullptr};
    product(&part, int8_copy_tails(&part, tails), 0, panels);
    for (int64_t r = 0; r < count; r++)
      SIE_ISA_NS::quantise_row(static_cast<const float *>(sums + r * ld), result_columns(a), a->y, first + r);
  }
  return SIE_OK;
}

}  // namespace sie_cpu

#endif /* SIE_KERNELS_CPU_INT8_LINEAR_H */
