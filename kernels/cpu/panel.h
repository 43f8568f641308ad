// panel.h — turns rows in memory into a panel, gemm_tile.h's right side, and rows of either type
// into its left side.
#ifndef SIE_KERNELS_CPU_PANEL_H
#define SIE_KERNELS_CPU_PANEL_H

#include "gemm_tile.h"
#include "rows.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

SIE_INLINE int64_t vectors_in(int64_t n) { return (n + kLanes - 1) / kLanes; }

// Fills panel [c][width] from `count` ≤ kPanel rows of c elements (f32 | bf16), `ld` apart; width is
// count in whole vectors, and columns behind the last row are zero.
template <typename X>
SIE_INLINE void transpose_rows(const X *rows, int64_t ld, int64_t count, int64_t c, float *panel) {
  const int64_t width = vectors_in(count) * kLanes;
  for (int64_t n = 0; n < width; n += kLanes) {
    for (int64_t i = 0; i < c; i += kLanes) {
      Vec block[kLanes];
      for (int64_t r = 0; r < kLanes; r++)
        block[r] = n + r < count ? vload_row(rows + (n + r) * ld, i, c) : vset(0.0f);
      vtranspose(block);
      for (int64_t k = i; k < i + kLanes && k < c; k++) vstore(panel + k * width + n, block[k - i]);
    }
  }
}

// Rows [row, row + count) of x (f32 | bf16, c columns) as f32, *ld apart: in place, or widened into
// `wide` [count][c].
SIE_INLINE const float *f32_rows(const sie_tensor &x, int64_t c, int64_t row, int64_t count, float *wide,
                                 int64_t *ld) {
  if (x.dtype == SIE_F32) {
    *ld = x.ld;
    return row_of<const float>(x, row);
  }
  for (int64_t m = 0; m < count; m++) copy_row(row_of<const Bf16>(x, row + m), c, wide + m * c);
  *ld = c;
  return wide;
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu

#endif  // SIE_KERNELS_CPU_PANEL_H
