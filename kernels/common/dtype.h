/* dtype.h — bf16 and f16 to and from f32, in plain code: for packing, for the reference and for tails.
 *
 * Rounding is to nearest, ties to even; overflow gives infinity; a NaN stays a NaN. static, so that no object
 * compiled for one instruction set can lend its copy to another. */
#ifndef SIE_KERNELS_COMMON_DTYPE_H
#define SIE_KERNELS_COMMON_DTYPE_H

#include <stdint.h>
#include <string.h>

static inline uint32_t sie_f32_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline float sie_f32_from_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static inline float sie_f32_from_bf16(uint16_t h) { return sie_f32_from_bits((uint32_t)h << 16); }

static inline uint16_t sie_bf16_from_f32(float x) {
  uint32_t bits = sie_f32_bits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u); /* quiet NaN */
  bits += 0x7fffu + ((bits >> 16) & 1u);
  return (uint16_t)(bits >> 16);
}

static inline float sie_f32_from_f16(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
  uint32_t exponent = (h >> 10) & 0x1fu;
  uint32_t fraction = h & 0x3ffu;
  if (exponent == 0x1fu) return sie_f32_from_bits(sign | 0x7f800000u | (fraction << 13));
  if (exponent != 0) return sie_f32_from_bits(sign | ((exponent + 112u) << 23) | (fraction << 13));
  /* Subnormal: fraction · 2⁻²⁴, exact in f32. */
  float x = (float)fraction * 5.9604644775390625e-8f;
  return sign != 0 ? -x : x;
}

static inline uint16_t sie_f16_from_f32(float x) {
  uint32_t bits = sie_f32_bits(x);
  uint16_t sign = (uint16_t)((bits >> 16) & 0x8000u);
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | ((bits >> 13) & 0x3ffu));
  if (bits >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds to 2^16 or more */
  if (bits >= 0x38800000u) {                                  /* normal in f16 */
    bits += 0xfffu + ((bits >> 13) & 1u);
    return (uint16_t)(sign | ((bits - 0x38000000u) >> 13));
  }
  /* Subnormal: adding 0.5 lets the f32 adder round at 2⁻²⁴, ties to even. */
  float shifted = sie_f32_from_bits(bits) + 0.5f;
  return (uint16_t)(sign | (sie_f32_bits(shifted) & 0x7ffu));
}

#endif /* SIE_KERNELS_COMMON_DTYPE_H */
