/* dtype.h — bf16, f16 and e4m3 to and from f32 in plain code, for packing, for the reference and
 * for the tails of vector loops.
 *
 * Rounding is to nearest, ties to even. Overflow gives infinity, or ±448 in e4m3, which has no
 * infinity. A NaN stays a NaN. The functions are static, so that the linker never replaces one with
 * a copy compiled for another instruction set. */
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

/* e4m3: sign, four bits of exponent (bias 7), three of fraction; 0x7e is 448, 0x7f a NaN, no
 * infinities. */
static inline float sie_f32_from_f8e4m3(uint8_t q) {
  uint32_t sign = (uint32_t)(q & 0x80u) << 24;
  uint32_t exponent = (q >> 3) & 0xfu;
  uint32_t fraction = q & 0x7u;
  if ((q & 0x7fu) == 0x7fu) return sie_f32_from_bits(sign | 0x7fc00000u);
  if (exponent != 0) return sie_f32_from_bits(sign | ((exponent + 120u) << 23) | (fraction << 20));
  float x = (float)fraction * 0.001953125f; /* subnormal: fraction · 2⁻⁹ */
  return sign != 0 ? -x : x;
}

/* Every NaN becomes 0x7f, which the conversion instruction of GPUs also gives. */
static inline uint8_t sie_f8e4m3_from_f32(float x) {
  uint32_t bits = sie_f32_bits(x);
  uint8_t sign = (uint8_t)((bits >> 24) & 0x80u);
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return 0x7f;
  if (bits >= 0x3c800000u) { /* 2⁻⁶: normal in e4m3 */
    bits += 0x7ffffu + ((bits >> 20) & 1u);
    bits = (bits - 0x3c000000u) >> 20;
    return (uint8_t)(sign | (bits < 0x7eu ? bits : 0x7eu));
  }
  /* Subnormal: adding 2¹⁴ lets the f32 adder round at 2⁻⁹, ties to even; 8 such steps are the least
   * normal. */
  float shifted = sie_f32_from_bits(bits) + 16384.0f;
  return (uint8_t)(sign | (sie_f32_bits(shifted) & 0xfu));
}

/* The scale of e4m3 elements whose largest magnitude is `most` (kernels/ops.h, sie_tensor). */
static inline float sie_f8_scale(float most) {
  float scale = most / 448.0f;
  return scale >= 0x1p-100f ? scale : 1.0f;
}

#endif /* SIE_KERNELS_COMMON_DTYPE_H */
