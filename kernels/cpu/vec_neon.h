// vec_neon.h — vec.h's Vec for NEON: 8 lanes in two registers.
//
// Eight lanes, as AVX2 has, so that every sum has AVX2's tree and every packed weight its layout: a
// result of class F32 has the same bits on both. NaNs are the exception, whose sign and payload
// differ. Included by vec.h, whose comments say what each function does.
#ifndef SIE_KERNELS_CPU_VEC_NEON_H
#define SIE_KERNELS_CPU_VEC_NEON_H

#include <arm_neon.h>

namespace sie_cpu {
namespace SIE_ISA_NS {

struct Vec {
  float32x4_t lo, hi;  // lanes 0 to 3, and 4 to 7
};
constexpr int kLanes = 8;

// One bit or none in all 32 of a lane.
struct LaneMask {
  uint32x4_t lo, hi;
};

SIE_INLINE Vec operator+(Vec a, Vec b) { return {vaddq_f32(a.lo, b.lo), vaddq_f32(a.hi, b.hi)}; }
SIE_INLINE Vec operator-(Vec a, Vec b) { return {vsubq_f32(a.lo, b.lo), vsubq_f32(a.hi, b.hi)}; }
SIE_INLINE Vec operator*(Vec a, Vec b) { return {vmulq_f32(a.lo, b.lo), vmulq_f32(a.hi, b.hi)}; }
SIE_INLINE Vec operator/(Vec a, Vec b) { return {vdivq_f32(a.lo, b.lo), vdivq_f32(a.hi, b.hi)}; }

// The prefetch instructions of data that is read: into the first level of cache, and the second.
SIE_INLINE void fetch_near(const void *p) { __builtin_prefetch(p, 0, 3); }
SIE_INLINE void fetch_far(const void *p) { __builtin_prefetch(p, 0, 2); }

SIE_INLINE float square_root(float x) { return vgetq_lane_f32(vsqrtq_f32(vdupq_n_f32(x)), 0); }
SIE_INLINE double square_root(double x) { return vget_lane_f64(vsqrt_f64(vdup_n_f64(x)), 0); }

// The first n lanes.
SIE_INLINE LaneMask lanes(int64_t n) {
  static const uint32_t table[16] = {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0, 0, 0, 0, 0, 0, 0, 0};
  return {vld1q_u32(table + 8 - n), vld1q_u32(table + 12 - n)};
}
// a where the mask is set, b elsewhere.
SIE_INLINE Vec choose(LaneMask mask, Vec a, Vec b) {
  return {vbslq_f32(mask.lo, a.lo, b.lo), vbslq_f32(mask.hi, a.hi, b.hi)};
}
SIE_INLINE LaneMask below(Vec a, Vec b) { return {vcltq_f32(a.lo, b.lo), vcltq_f32(a.hi, b.hi)}; }
SIE_INLINE LaneMask equal(Vec a, Vec b) { return {vceqq_f32(a.lo, b.lo), vceqq_f32(a.hi, b.hi)}; }
// Bit i is bit 0 of lane i.
SIE_INLINE uint32_t bits_of(LaneMask mask) {
  static const uint32_t bit[8] = {1, 2, 4, 8, 16, 32, 64, 128};
  return vaddvq_u32(vorrq_u32(vandq_u32(mask.lo, vld1q_u32(bit)), vandq_u32(mask.hi, vld1q_u32(bit + 4))));
}

SIE_INLINE Vec vset(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
SIE_INLINE Vec vload(const float *p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
SIE_INLINE Vec vload_part(const float *p, int64_t n) {
  float some[kLanes] = {};
  memcpy(some, p, static_cast<size_t>(n) * sizeof *p);
  return vload(some);
}
SIE_INLINE Vec vload_part_or(const float *p, int64_t n, Vec other) {
  return choose(lanes(n), vload_part(p, n), other);
}
SIE_INLINE void vstore(float *p, Vec v) {
  vst1q_f32(p, v.lo);
  vst1q_f32(p + 4, v.hi);
}
SIE_INLINE void vstore_part(float *p, Vec v, int64_t n) {
  float all[kLanes];
  vstore(all, v);
  memcpy(p, all, static_cast<size_t>(n) * sizeof *p);
}

SIE_INLINE Vec vkeep(Vec v, int64_t n) { return choose(lanes(n), v, vset(0.0f)); }
SIE_INLINE float vfirst(Vec v) { return vgetq_lane_f32(v.lo, 0); }

SIE_INLINE Vec vfma(Vec a, Vec b, Vec c) {
  return {vfmaq_f32(c.lo, a.lo, b.lo), vfmaq_f32(c.hi, a.hi, b.hi)};
}
SIE_INLINE Vec vfnma(Vec a, Vec b, Vec c) {
  return {vfmsq_f32(c.lo, a.lo, b.lo), vfmsq_f32(c.hi, a.hi, b.hi)};
}
// Not FMIN and FMAX: those give NaN where either is one, and order the zeros.
SIE_INLINE Vec vmin(Vec a, Vec b) { return choose(below(a, b), a, b); }
SIE_INLINE Vec vmax(Vec a, Vec b) { return choose(below(b, a), a, b); }
SIE_INLINE Vec vsqrt(Vec a) { return {vsqrtq_f32(a.lo), vsqrtq_f32(a.hi)}; }
SIE_INLINE Vec vabs(Vec a) { return {vabsq_f32(a.lo), vabsq_f32(a.hi)}; }
SIE_INLINE Vec vrint(Vec a) { return {vrndnq_f32(a.lo), vrndnq_f32(a.hi)}; }
SIE_INLINE Vec vzero_unless_above(Vec x, Vec limit, Vec v) {
  // ≤ is false for a NaN.
  const LaneMask zero = {vcleq_f32(x.lo, limit.lo), vcleq_f32(x.hi, limit.hi)};
  return choose(zero, vset(0.0f), v);
}

// 2ⁿ for n for which that is a normal number.
SIE_INLINE float32x4_t power_of_two(int32x4_t n) {
  return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23));
}
SIE_INLINE float32x4_t scaled(float32x4_t v, float32x4_t n) {
  const int32x4_t whole = vcvtnq_s32_f32(n), half = vshrq_n_s32(whole, 1);
  return vmulq_f32(vmulq_f32(v, power_of_two(half)), power_of_two(vsubq_s32(whole, half)));
}
// In two halves, as on AVX2: |n| ≤ 250; a NaN in v stays.
SIE_INLINE Vec vscale(Vec v, Vec n) { return {scaled(v.lo, n.lo), scaled(v.hi, n.hi)}; }
SIE_INLINE Vec vscale_normal(Vec v, Vec n) {
  return {vmulq_f32(v.lo, power_of_two(vcvtnq_s32_f32(n.lo))),
          vmulq_f32(v.hi, power_of_two(vcvtnq_s32_f32(n.hi)))};
}
SIE_INLINE Vec vquotient(Vec a, Vec b) { return a / b; }

SIE_INLINE float vsum(Vec v) {
  const float32x4_t b = vaddq_f32(v.lo, v.hi);
  const float32x2_t c = vadd_f32(vget_low_f32(b), vget_high_f32(b));
  return vget_lane_f32(c, 0) + vget_lane_f32(c, 1);
}
// a where it is smaller, b elsewhere; and the same for larger.
SIE_INLINE float lesser_of(float a, float b) { return a < b ? a : b; }
SIE_INLINE float greater_of(float a, float b) { return a > b ? a : b; }
SIE_INLINE float vlargest(Vec v) {
  float x[kLanes];
  vstore(x, vmax(v, {v.hi, v.lo}));
  return greater_of(greater_of(x[0], x[2]), greater_of(x[1], x[3]));
}
SIE_INLINE float vsmallest(Vec v) {
  float x[kLanes];
  vstore(x, vmin(v, {v.hi, v.lo}));
  return lesser_of(lesser_of(x[0], x[2]), lesser_of(x[1], x[3]));
}
SIE_INLINE double vsum_squares(Vec v) {
  const float64x2_t a = vcvt_f64_f32(vget_low_f32(v.lo)), b = vcvt_high_f64_f32(v.lo),
                    c = vcvt_f64_f32(vget_low_f32(v.hi)), d = vcvt_high_f64_f32(v.hi);
  const float64x2_t low = vaddq_f64(vmulq_f64(a, a), vmulq_f64(c, c)),
                    high = vaddq_f64(vmulq_f64(b, b), vmulq_f64(d, d)), sum = vaddq_f64(low, high);
  return vgetq_lane_f64(sum, 0) + vgetq_lane_f64(sum, 1);
}

SIE_INLINE Vec widen(uint16x8_t h) {
  return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(h), 16)),
          vreinterpretq_f32_u32(vshll_high_n_u16(h, 16))};
}
// To nearest, ties to even, in the upper half of each lane; a NaN stays one.
SIE_INLINE uint32x4_t rounded_to_bf16(float32x4_t v) {
  const uint32x4_t bits = vreinterpretq_u32_f32(v), odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
  return vbslq_u32(vceqq_f32(v, v), rounded, vorrq_u32(bits, vdupq_n_u32(0x400000)));
}
SIE_INLINE uint16x8_t narrow(Vec v) {
  return vcombine_u16(vshrn_n_u32(rounded_to_bf16(v.lo), 16), vshrn_n_u32(rounded_to_bf16(v.hi), 16));
}
SIE_INLINE Vec vload(const Bf16 *p) { return widen(vld1q_u16(&p->bits)); }
SIE_INLINE Vec vload_part(const Bf16 *p, int64_t n) {
  uint16_t some[kLanes] = {};
  memcpy(some, p, static_cast<size_t>(n) * sizeof *p);
  return widen(vld1q_u16(some));
}
SIE_INLINE void vstore(Bf16 *p, Vec v) { vst1q_u16(&p->bits, narrow(v)); }
SIE_INLINE void vstore_part(Bf16 *p, Vec v, int64_t n) {
  const uint16x8_t h = narrow(v);
  memcpy(p, &h, static_cast<size_t>(n) * sizeof *p);
}

SIE_INLINE uint8x8_t to_bytes(Vec v) {
  const uint32x4_t lo = vreinterpretq_u32_s32(vcvtnq_s32_f32(v.lo)),
                   hi = vreinterpretq_u32_s32(vcvtnq_s32_f32(v.hi));
  return vmovn_u16(vcombine_u16(vmovn_u32(lo), vmovn_u32(hi)));
}
SIE_INLINE void vstore_bytes(void *p, Vec v) { vst1_u8(static_cast<uint8_t *>(p), to_bytes(v)); }
SIE_INLINE void vstore_bytes_part(void *p, Vec v, int64_t n) {
  const uint8x8_t bytes = to_bytes(v);
  memcpy(p, &bytes, static_cast<size_t>(n));
}

// FCVTN rounds as FPCR says, which is to nearest even wherever kernels run (csrc/float_state.h).
SIE_INLINE uint16x8_t to_halves(Vec v) {
  return vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(v.lo), v.hi));
}
SIE_INLINE void vstore_half(uint16_t *p, Vec v) { vst1q_u16(p, to_halves(v)); }
SIE_INLINE void vstore_half_part(uint16_t *p, Vec v, int64_t n) {
  const uint16x8_t h = to_halves(v);
  memcpy(p, &h, static_cast<size_t>(n) * sizeof *p);
}

// Transposes four vectors of four lanes.
SIE_INLINE void transpose_quarter(float32x4_t *a, float32x4_t *b, float32x4_t *c, float32x4_t *d) {
  const float64x2_t ab_even = vreinterpretq_f64_f32(vtrn1q_f32(*a, *b)),
                    ab_odd = vreinterpretq_f64_f32(vtrn2q_f32(*a, *b)),
                    cd_even = vreinterpretq_f64_f32(vtrn1q_f32(*c, *d)),
                    cd_odd = vreinterpretq_f64_f32(vtrn2q_f32(*c, *d));
  *a = vreinterpretq_f32_f64(vzip1q_f64(ab_even, cd_even));
  *b = vreinterpretq_f32_f64(vzip1q_f64(ab_odd, cd_odd));
  *c = vreinterpretq_f32_f64(vzip2q_f64(ab_even, cd_even));
  *d = vreinterpretq_f32_f64(vzip2q_f64(ab_odd, cd_odd));
}
SIE_INLINE void vtranspose(Vec r[kLanes]) {
  transpose_quarter(&r[0].lo, &r[1].lo, &r[2].lo, &r[3].lo);
  transpose_quarter(&r[0].hi, &r[1].hi, &r[2].hi, &r[3].hi);
  transpose_quarter(&r[4].lo, &r[5].lo, &r[6].lo, &r[7].lo);
  transpose_quarter(&r[4].hi, &r[5].hi, &r[6].hi, &r[7].hi);
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    const float32x4_t across = r[i].hi;
    r[i].hi = r[i + 4].lo;
    r[i + 4].lo = across;
  }
}

SIE_INLINE uint32_t vpositive(Vec v) { return bits_of(below(vset(0.0f), v)); }
SIE_INLINE uint32_t equal_lanes(Vec a, Vec b) { return bits_of(equal(a, b)); }
SIE_INLINE uint32_t nan_lanes(Vec a) { return 0xffu ^ equal_lanes(a, a); }
SIE_INLINE Vec vreplace(Vec a, Vec x, Vec b) { return choose(equal(a, x), b, a); }

// Four lanes of v by their numbers, which are below 8.
SIE_INLINE float32x4_t pick(uint8x16x2_t v, uint32x4_t lane) {
  // Byte j of a lane's four is byte 4·lane + j.
  const uint32x4_t bytes = vmlaq_u32(vdupq_n_u32(0x03020100), lane, vdupq_n_u32(0x04040404));
  return vreinterpretq_f32_u8(vqtbl2q_u8(v, vreinterpretq_u8_u32(bytes)));
}
SIE_INLINE Vec vpick(Vec v, const int32_t *at, int32_t first) {
  const uint8x16x2_t all = {{vreinterpretq_u8_f32(v.lo), vreinterpretq_u8_f32(v.hi)}};
  const int32x4_t base = vdupq_n_s32(first);
  return {pick(all, vreinterpretq_u32_s32(vsubq_s32(vld1q_s32(at), base))),
          pick(all, vreinterpretq_u32_s32(vsubq_s32(vld1q_s32(at + 4), base)))};
}

SIE_INLINE void vsplit_pairs(Vec a, Vec b, Vec *even, Vec *odd) {
  *even = {vuzp1q_f32(a.lo, a.hi), vuzp1q_f32(b.lo, b.hi)};
  *odd = {vuzp2q_f32(a.lo, a.hi), vuzp2q_f32(b.lo, b.hi)};
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu

#endif  // SIE_KERNELS_CPU_VEC_NEON_H
