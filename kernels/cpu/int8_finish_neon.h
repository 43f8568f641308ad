// int8_finish_neon.h — the exact part of an int8 result on NEON, for both of its products.
//
// Both multiply signed bytes: they take x_q − 128 for x_q, so their sums lack 128·Σ w_q.
#ifndef SIE_KERNELS_CPU_INT8_FINISH_NEON_H
#define SIE_KERNELS_CPU_INT8_FINISH_NEON_H

#include "int8_finish.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

constexpr int32_t kInt8Centre = 128;

// Sixteen bytes of x_q at p, less 128: that changes the top bit alone.
SIE_INLINE int8x16_t centred(const char *p) {
  return vreinterpretq_s8_u8(veorq_u8(vld1q_u8(reinterpret_cast<const uint8_t *>(p)), vdupq_n_u8(0x80)));
}

// Columns 4·half to 4·half + 3 of the terms.
SIE_INLINE int32x4_t int8_difference(const Int8Terms &t, int half) {
  int32x4_t sum = vld1q_s32(t.sums + 4 * half);
  if (t.weights != nullptr) {
    const int32x4_t bytes = vld1q_s32(reinterpret_cast<const int32_t *>(t.weights) + 4 * half);
    sum = vmlaq_n_s32(sum, vshrq_n_s32(vshlq_s32(bytes, vdupq_n_s32(t.shift)), 24), t.excess);
  }
  return vmlsq_n_s32(sum, vld1q_s32(t.weight_sums + 4 * half), t.zero - kInt8Centre);
}

// Runs tile for each half of a panel.
inline void tile_by_tile(void (*tile)(const Int8Block &, int32_t *), Int8Block block, int32_t *sums) {
  tile(block, sums);
  block.b += kInt8StepBytes / 2;
  tile(block, sums + kInt8Panel / 2);
}

// What int8_finish.h asks of a kernel, but for the sums.
struct NeonTerms {
  static Vec difference(const Int8Terms &t) {
    return {vcvtq_f32_s32(int8_difference(t, 0)), vcvtq_f32_s32(int8_difference(t, 1))};
  }
};

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu

#endif  // SIE_KERNELS_CPU_INT8_FINISH_NEON_H
