// convert.h — f32 to and from bf16, f16 and e4m3, alone and packed. Rounding is to nearest, ties to
// even.
//
// bf16, f16  overflow gives infinity, f16 subnormals are exact (NumPy's astype(float16) bit for
//            bit on numbers); a NaN becomes 0x7fff
// e4m3       saturates: |x| > 448 and infinities give ±448; a NaN becomes 0x7f. Bias 7, no
//            infinity.
// Packed registers hold the first value in the low bits. Source: PTX ISA 9.0, cvt.
#ifndef SIE_KERNELS_CUDA_PTX_CONVERT_H
#define SIE_KERNELS_CUDA_PTX_CONVERT_H

#include "cuda/ptx/device.h"

#ifndef __CUDACC__
#include "simt/numbers.h"
#endif

namespace ptx {

// The 16-bit types by operand type, for kernels that are templates over it.
template <Operand T>
SIE_DEVICE uint16_t to_16(float x) {
  static_assert(T != Operand::e4m3, "16-bit types only");
#ifdef __CUDACC__
  uint16_t bits;
  if constexpr (T == Operand::bf16) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  } else {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  }
  return bits;
#else
  return T == Operand::bf16 ? simt::bf16_from_f32(x) : simt::f16_from_f32(x);
#endif
}

template <Operand T>
SIE_DEVICE float from_16(uint16_t bits) {
  static_assert(T != Operand::e4m3, "16-bit types only");
  if constexpr (T == Operand::bf16) return __uint_as_float(static_cast<uint32_t>(bits) << 16);
#ifdef __CUDACC__
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
#else
  return simt::f32_from_f16(bits);
#endif
}

template <Operand T>
SIE_DEVICE uint32_t pack2(float low, float high) {
  static_assert(T != Operand::e4m3, "two values fill a register in bf16 and f16 only");
#ifdef __CUDACC__
  uint32_t bits;
  if constexpr (T == Operand::bf16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  }
  return bits;
#else
  return to_16<T>(low) | static_cast<uint32_t>(to_16<T>(high)) << 16;
#endif
}

template <Operand T>
SIE_DEVICE float2 unpack2(uint32_t bits) {
  static_assert(T != Operand::e4m3, "a register holds two values in bf16 and f16 only");
  if constexpr (T == Operand::bf16)
    return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u));
  return make_float2(from_16<T>(static_cast<uint16_t>(bits)), from_16<T>(static_cast<uint16_t>(bits >> 16)));
}

// The same by name.
SIE_DEVICE float from_bf16(uint16_t bits) { return from_16<Operand::bf16>(bits); }
SIE_DEVICE float from_f16(uint16_t bits) { return from_16<Operand::f16>(bits); }
SIE_DEVICE uint16_t to_bf16(float x) { return to_16<Operand::bf16>(x); }
SIE_DEVICE uint16_t to_f16(float x) { return to_16<Operand::f16>(x); }
SIE_DEVICE uint32_t pack_bf16x2(float low, float high) { return pack2<Operand::bf16>(low, high); }
SIE_DEVICE uint32_t pack_f16x2(float low, float high) { return pack2<Operand::f16>(low, high); }
SIE_DEVICE float2 unpack_bf16x2(uint32_t bits) { return unpack2<Operand::bf16>(bits); }
SIE_DEVICE float2 unpack_f16x2(uint32_t bits) { return unpack2<Operand::f16>(bits); }

// Before sm_89 there is no instruction; integer arithmetic gives the same numbers.
SIE_DEVICE uint32_t e4m3_bits(float x) {
  uint32_t bits = __float_as_uint(x);
  uint32_t sign = (bits >> 24) & 0x80u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fu;
  if (magnitude >= 0x43e00000u) return sign | 0x7eu;  // ≥ 448
  if (magnitude < 0x3c800000u) {                      // below 2⁻⁶: multiples of 2⁻⁹
    // The f32 adder rounds at the unit of 2¹⁴ = 2²³·2⁻⁹.
    float shifted = __uint_as_float(magnitude) + 16384.0f;
    return sign | (__float_as_uint(shifted) & 0xfu);
  }
  uint32_t rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u);
  return sign | ((rounded - 0x3c000000u) >> 20);
}

SIE_DEVICE uint16_t pack_e4m3x2(float low, float high) {
#if SIE_PTX_SM89
  uint16_t bits;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(high), "f"(low));
  return bits;
#else
  return static_cast<uint16_t>(e4m3_bits(low) | e4m3_bits(high) << 8);
#endif
}

SIE_DEVICE uint8_t to_e4m3(float x) { return static_cast<uint8_t>(pack_e4m3x2(x, 0.0f)); }

SIE_DEVICE uint32_t pack_e4m3x4(float x0, float x1, float x2, float x3) {
  return pack_e4m3x2(x0, x1) | static_cast<uint32_t>(pack_e4m3x2(x2, x3)) << 16;
}

SIE_DEVICE float from_e4m3(uint8_t bits) {
  uint32_t magnitude = bits & 0x7fu;
  float x;
  if (magnitude == 0x7fu) {
    x = __uint_as_float(0x7fffffffu);
  } else if (magnitude < 8u) {
    x = static_cast<float>(magnitude) * 0.001953125f;  // 2⁻⁹
  } else {
    x = __uint_as_float((magnitude << 20) + 0x3c000000u);
  }
  return (bits & 0x80u) != 0 ? -x : x;
}

SIE_DEVICE float2 unpack_e4m3x2(uint16_t bits) {
#if SIE_PTX_SM89
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(bits));
  return unpack_f16x2(halves);
#else
  return make_float2(from_e4m3(static_cast<uint8_t>(bits)), from_e4m3(static_cast<uint8_t>(bits >> 8)));
#endif
}

}  // namespace ptx

#endif  // SIE_KERNELS_CUDA_PTX_CONVERT_H
