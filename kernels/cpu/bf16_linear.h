/* bf16_linear.h — class BF16: the packed layout, and the part of a linear that is the same for tiles
 * and vectors.
 *
 * Packed [N, K], with N' = N up to a multiple of 32, steps = ⌈K/32⌉:
 *   bf16 panel[N'/32][steps][2 tiles][16][16][2]
 * Element [i][j][l] of a tile is column 16·tile + j, k = 2·i + l of the step: both kernels read it
 * in order. Padding is zero. */
#ifndef SIE_KERNELS_CPU_BF16_LINEAR_H
#define SIE_KERNELS_CPU_BF16_LINEAR_H

#include <string.h>

#include "isa.h"
#include "linear_part.h"

namespace sie_cpu {

/* A step: columns of x, their bytes in a row of x, and the bytes of a panel's step. */
enum { kBf16Step = 32, kBf16StepRowBytes = 64, kBf16StepBytes = 2048, kBf16Panel = 32 };

static inline int64_t bf16_steps(int64_t k) { return (k + kBf16Step - 1) / kBf16Step; }

/* One product for a unit: all rows of a, panels [begin, end). tails: the zero-padded last step of
 * each row, [rows][64 bytes], or NULL when K fills its steps, so that nothing beyond a row of x
 * enters a sum. */
typedef void (*Bf16Product)(const sie_linear_args *a, const char *tails, int64_t panel_begin,
                            int64_t panel_end);

/* Copies the last step of each row, zero-padded, to `tails`. Returns it, or NULL when K fills its
 * steps. */
static inline const char *bf16_copy_tails(const sie_linear_args *a, char *tails) {
  const int64_t tail = a->k % kBf16Step, rows = *a->rows.n;
  if (tail == 0) return nullptr;
  memset(tails, 0, static_cast<size_t>(rows * kBf16StepRowBytes));
  const char *const x = static_cast<const char *>(a->x.p) + 2 * (a->k - tail);
  for (int64_t r = 0; r < rows; r++)
    memcpy(tails + r * kBf16StepRowBytes, x + r * 2 * a->x.ld, static_cast<size_t>(2 * tail));
  return tails;
}

/* The linear of a unit, whose product takes `block` rows at once. Scratch holds the tails. */
static inline sie_status bf16_linear(const sie_linear_args *a, const sie_share *share, Bf16Product product,
                                     int64_t block) {
  if (a->w->compute != SIE_COMPUTE_BF16 || a->x.dtype != SIE_BF16 || !is_float(a->y.dtype))
    return SIE_UNSUPPORTED;
  const int64_t panels = (a->n + kBf16Panel - 1) / kBf16Panel;
  const LinearPart part = part_of(*a->rows.n, panels, block, share);
  if (part.empty()) return SIE_OK;
  const int32_t rows = static_cast<int32_t>(part.rows.last - part.rows.first);
  const sie_linear_args own = rows_from(a, part.rows.first, &rows);
  product(&own, bf16_copy_tails(&own, static_cast<char *>(share->scratch)), part.panels.first,
          part.panels.last);
  return SIE_OK;
}

}  // namespace sie_cpu

#endif /* SIE_KERNELS_CPU_BF16_LINEAR_H */
