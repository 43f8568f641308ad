// int8_pack — packs weights of class INT8: s8 per output channel, in the layout of int8_linear.h.
//   s_w = max|w|/127 (0 counts as 1),  w_q = rint(w/s_w), ties to even,  sum = Σ_k w_q
// Shapes   W [N, K] f32, row stride ≥ K; rows [n0, n0 + rows) a call, each column once. The caller
//          has zeroed dst.
// Align    dst 64 B.
// Cost     2·N·K elements read, once when a model is loaded.
// Error    |w − s_w·w_q| ≤ s_w/2. Compiled once, for the least instruction set that has a table.
#include <math.h>

#include "int8_linear.h"
#include "kernels_int8.h"

namespace sie_cpu {

int64_t int8_packed_bytes(int64_t n, int64_t k) {
  return int8_padded_columns(n) * (int8_steps(k) * kInt8Step + 8);
}

void int8_pack(int64_t n, int64_t k, int64_t n0, int64_t rows, const float *src, int64_t ld, void *dst) {
  const int64_t columns = int8_padded_columns(n), panel_bytes = int8_steps(k) * kInt8StepBytes;
  float *const scales = static_cast<float *>(dst);
  int32_t *const sums = reinterpret_cast<int32_t *>(scales + columns);
  int8_t *const panels = reinterpret_cast<int8_t *>(sums + columns);
  for (int64_t i = 0; i < rows; i++) {
    const int64_t column = n0 + i;
    const float *const w = src + i * ld;
    float largest = 0;
    for (int64_t j = 0; j < k; j++) largest = fabsf(w[j]) > largest ? fabsf(w[j]) : largest;
    const float scale = largest > 0 ? largest / 127.0f : 1.0f;
    int8_t *const tile =
        panels + column / 32 * panel_bytes + column % 32 / 16 * (kInt8StepBytes / 2) + column % 16 * 4;
    int32_t sum = 0;
    for (int64_t j = 0; j < k; j++) {
      // A denormal largest weight can round its scale down and so push the ratio past 127.
      float q = nearbyintf(w[j] / scale);
      q = q > 127.0f ? 127.0f : q < -127.0f ? -127.0f : q;
      const int32_t level = static_cast<int32_t>(q);
      tile[j / kInt8Step * kInt8StepBytes + j % kInt8Step / 4 * 64 + j % 4] = static_cast<int8_t>(level);
      sum += level;
    }
    scales[column] = scale;
    sums[column] = sum;
  }
}

int64_t linear_int8_scratch(const sie_op_bounds *bounds) {
  const int64_t tails = bounds->k % kInt8Step != 0 ? bounds->rows * kInt8Step : 0;
  const int64_t group = int8_group_rows(bounds->n), rows = bounds->rows < group ? bounds->rows : group;
  return tails + rows * int8_padded_columns(bounds->n) * static_cast<int64_t>(sizeof(float));
}

}  // namespace sie_cpu
