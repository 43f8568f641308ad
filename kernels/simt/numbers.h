// numbers.h — converts the number formats as the device does (the numbers of
// kernels/common/dtype.h, but a NaN becomes the device's canonical NaN).
#ifndef SIE_KERNELS_SIMT_NUMBERS_H
#define SIE_KERNELS_SIMT_NUMBERS_H

#include "common/dtype.h"

namespace simt {

inline uint16_t bf16_from_f32(float x) { return x == x ? sie_bf16_from_f32(x) : uint16_t{0x7fff}; }
inline float f32_from_bf16(uint16_t bits) { return sie_f32_from_bf16(bits); }
inline uint16_t f16_from_f32(float x) { return x == x ? sie_f16_from_f32(x) : uint16_t{0x7fff}; }
inline float f32_from_f16(uint16_t bits) { return sie_f32_from_f16(bits); }

// Converts each of the 256 e4m3 values; 0x7f and 0xff are NaN.
inline float f32_from_e4m3(uint8_t bits) {
  uint32_t magnitude = bits & 0x7fu;
  float x = magnitude == 0x7fu  ? sie_f32_from_bits(0x7fffffffu)
            : magnitude < 0x08u ? static_cast<float>(magnitude) * 0.001953125f
                                : sie_f32_from_bits((magnitude << 20) + 0x3c000000u);
  return (bits & 0x80u) != 0 ? -x : x;
}

}  // namespace simt

#endif  // SIE_KERNELS_SIMT_NUMBERS_H
