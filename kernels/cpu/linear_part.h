// linear_part.h — which rows and panels of a linear one part of a share computes, and what a product
// reads.
#ifndef SIE_KERNELS_CPU_LINEAR_PART_H
#define SIE_KERNELS_CPU_LINEAR_PART_H

#include "isa.h"

namespace sie_cpu {

struct LinearPart {
  Range rows, panels;
  bool empty() const { return rows.first == rows.last; }  // a part that has rows has a panel
};

// The part of this call. Panels are dealt out first, since the weights of a panel are then read by one
// part. With fewer than panels_of_share for each, rows are split too, in whole blocks of `block`, where
// that leaves the largest part less to do: panels may be fewer than parts, or divide badly among them.
static inline LinearPart part_of(int64_t rows, int64_t panels, int64_t block, const sie_share *share) {
  const int64_t parts = share->parts, blocks = (rows + block - 1) / block;
  int64_t down = 1, across = 1, least = 0;
  const int64_t most = panels >= panels_of_share * parts ? 1 : parts < blocks ? parts : blocks;
  for (int64_t d = 1; d <= most; d++) {
    const int64_t side = parts / d < panels ? parts / d : panels;
    if (side == 0) break;
    const int64_t largest = ((blocks + d - 1) / d) * ((panels + side - 1) / side);
    if (d > 1 && largest >= least) continue;
    down = d;
    across = side;
    least = largest;
  }
  const int64_t line = share->part / across, column = share->part % across;
  if (line >= down) return {{0, 0}, {0, 0}};
  const int64_t last = blocks * (line + 1) / down * block;
  return {{blocks * line / down * block, last < rows ? last : rows},
          {panels * column / across, panels * (column + 1) / across}};
}

// What a product on packed panels of 32 columns reads, in bytes.
struct LinearOperands {
  const char *a;  // row 0 of x
  int64_t a_ld;
  const char *a_tail;  // [rows][64]: the last step of every row, zero-padded; NULL when K fills its steps
  const char *packed;  // panel 0
  int64_t steps;       // K steps of a panel, each 64 bytes of a row and 2,048 of the panel
  int64_t rows, panel_begin, panel_end;
};

static inline int64_t element_bytes(int32_t dtype) { return dtype == SIE_F32 ? 4 : dtype == SIE_U8 ? 1 : 2; }

// A tensor of f32, bf16 or u8 rows from its row `first` on.
static inline sie_tensor rows_from(sie_tensor t, int64_t first) {
  if (t.p == nullptr) return t;
  t.p = static_cast<char *>(t.p) + first * t.ld * element_bytes(t.dtype);
  if (t.scale != nullptr) t.scale += first;
  if (t.zero != nullptr) t.zero += first;
  if (t.outlier != nullptr) t.outlier += first;
  return t;
}

// The arguments of a linear from row `first` on, of *count rows; y is not quantised in groups.
static inline sie_linear_args rows_from(const sie_linear_args *a, int64_t first, const int32_t *count) {
  sie_linear_args part = *a;
  part.rows.n = count;
  part.x = rows_from(a->x, first);
  part.addend = rows_from(a->addend, first);
  part.residual = rows_from(a->residual, first);
  part.y = rows_from(a->y, first);
  return part;
}

}  // namespace sie_cpu

#endif  // SIE_KERNELS_CPU_LINEAR_PART_H
