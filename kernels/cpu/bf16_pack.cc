// bf16_pack — packs weights of class BF16 in the layout of bf16_linear.h, rounded to nearest even.
// Shapes   W [N, K] f32, row stride ≥ K; rows [n0, n0 + rows) a call, each column once. The caller
//          has zeroed dst.
// Align    dst 64 B.
// Cost     N·K elements read, once when a model is loaded.
// Error    half a unit in the last place of bf16. Compiled once, for the least instruction set that
//          has a table.
#include "bf16_linear.h"
#include "common/dtype.h"
#include "kernels_bf16.h"

namespace sie_cpu {

int64_t bf16_packed_bytes(int64_t n, int64_t k) {
  return (n + kBf16Panel - 1) / kBf16Panel * bf16_steps(k) * kBf16StepBytes;
}

void bf16_pack(int64_t, int64_t k, int64_t n0, int64_t rows, const float *src, int64_t ld, void *dst) {
  const int64_t panel_elements = bf16_steps(k) * kBf16StepBytes / 2;
  for (int64_t i = 0; i < rows; i++) {
    const int64_t column = n0 + i;
    uint16_t *const tile = static_cast<uint16_t *>(dst) + column / 32 * panel_elements +
                           column % 32 / 16 * (kBf16StepBytes / 4) + column % 16 * 2;
    const float *const w = src + i * ld;
    for (int64_t j = 0; j < k; j++)
      tile[j / kBf16Step * (kBf16StepBytes / 2) + j % kBf16Step / 2 * 32 + j % 2] = sie_bf16_from_f32(w[j]);
  }
}

int64_t linear_bf16_scratch(const sie_op_bounds *bounds) {
  return bounds->k % kBf16Step != 0 ? bounds->rows * kBf16StepRowBytes : 0;
}

}  // namespace sie_cpu
