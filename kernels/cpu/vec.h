// vec.h — one vector of floats per instruction set: 16 lanes with AVX-512, 8 with AVX2, and 8 with
// NEON, whose form is in vec_neon.h.
//
// Vec supports + - * / by lanes. Loads and stores take f32 or bf16 memory of element alignment. The _part forms touch n elements (0 < n < kLanes) and nothing beyond; missing lanes
// read as 0. Reductions add in one fixed tree, so their bits depend on the values alone. Everything
// has internal linkage.
#ifndef SIE_KERNELS_CPU_VEC_H
#define SIE_KERNELS_CPU_VEC_H

#include <stdint.h>
#include <string.h>

#include "common/dtype.h"

#if defined(__x86_64__)
// GCC 12 warns about the deliberately undefined operands of its own intrinsics.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#endif

#define SIE_INLINE static inline __attribute__((always_inline))

namespace sie_cpu {

// The storage of a bf16 element, a type of its own so that templates can tell it from an integer.
struct Bf16 {
  uint16_t bits;
};

}  // namespace sie_cpu

#if defined(__aarch64__)
#include "vec_neon.h"
#endif

namespace sie_cpu {
namespace SIE_ISA_NS {

#if defined(__x86_64__)
// Brings the line at p into L1, or into L2 and no nearer. Memory that does not exist does nothing.
SIE_INLINE void fetch_near(const void *p) { _mm_prefetch(static_cast<const char *>(p), _MM_HINT_T0); }
SIE_INLINE void fetch_far(const void *p) { _mm_prefetch(static_cast<const char *>(p), _MM_HINT_T1); }

SIE_INLINE float square_root(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }
SIE_INLINE double square_root(double x) {
  return _mm_cvtsd_f64(_mm_sqrt_sd(_mm_setzero_pd(), _mm_set_sd(x)));
}
#endif

#if defined(__AVX512F__)

typedef __m512 Vec;
constexpr int kLanes = 16;

SIE_INLINE __mmask16 lanes(int64_t n) { return static_cast<__mmask16>((1u << n) - 1u); }

SIE_INLINE Vec vset(float x) { return _mm512_set1_ps(x); }
SIE_INLINE Vec vload(const float *p) { return _mm512_loadu_ps(p); }
SIE_INLINE Vec vload_part(const float *p, int64_t n) { return _mm512_maskz_loadu_ps(lanes(n), p); }
// Missing lanes read as those of `other`.
SIE_INLINE Vec vload_part_or(const float *p, int64_t n, Vec other) {
  return _mm512_mask_loadu_ps(other, lanes(n), p);
}
SIE_INLINE void vstore(float *p, Vec v) { _mm512_storeu_ps(p, v); }
SIE_INLINE void vstore_part(float *p, Vec v, int64_t n) { _mm512_mask_storeu_ps(p, lanes(n), v); }

SIE_INLINE Vec vkeep(Vec v, int64_t n) { return _mm512_maskz_mov_ps(lanes(n), v); }  // 0 from lane n on
SIE_INLINE float vfirst(Vec v) { return _mm512_cvtss_f32(v); }

SIE_INLINE Vec vfma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }    // a·b + c
SIE_INLINE Vec vfnma(Vec a, Vec b, Vec c) { return _mm512_fnmadd_ps(a, b, c); }  // c − a·b
SIE_INLINE Vec vmin(Vec a, Vec b) { return _mm512_min_ps(a, b); }                // b where either is NaN
SIE_INLINE Vec vmax(Vec a, Vec b) { return _mm512_max_ps(a, b); }                // b where either is NaN
SIE_INLINE Vec vsqrt(Vec a) { return _mm512_sqrt_ps(a); }
SIE_INLINE Vec vabs(Vec a) { return _mm512_abs_ps(a); }
SIE_INLINE Vec vrint(Vec a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
// v where x > limit or x is NaN, 0 elsewhere.
SIE_INLINE Vec vzero_unless_above(Vec x, Vec limit, Vec v) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLE_UQ), v);
}
// v·2ⁿ for integral n, exact through the subnormals to 0 and to infinity.
SIE_INLINE Vec vscale(Vec v, Vec n) { return _mm512_scalef_ps(v, n); }
// The same for n for which 2ⁿ is a normal number.
SIE_INLINE Vec vscale_normal(Vec v, Vec n) { return _mm512_scalef_ps(v, n); }
// a/b for finite b of ordinary size: relative error ≤ 2⁻²³. Six instructions that pipeline; a
// divide does not pipeline.
SIE_INLINE Vec vquotient(Vec a, Vec b) {
  Vec r = _mm512_rcp14_ps(b);
  r = vfma(vfnma(b, r, vset(1.0f)), r, r);
  Vec q = a * r;
  return vfma(vfnma(b, q, a), r, q);
}

SIE_INLINE float vsum(Vec v) {
  __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
SIE_INLINE float vlargest(Vec v) { return _mm512_reduce_max_ps(v); }
SIE_INLINE float vsmallest(Vec v) { return _mm512_reduce_min_ps(v); }
// Σ v² in double.
SIE_INLINE double vsum_squares(Vec v) {
  __m512d lo = _mm512_cvtps_pd(_mm512_castps512_ps256(v)), hi = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
  return _mm512_reduce_add_pd(_mm512_add_pd(_mm512_mul_pd(lo, lo), _mm512_mul_pd(hi, hi)));
}

SIE_INLINE Vec widen(__m256i h) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
SIE_INLINE __m256i narrow(Vec v) {
  __m512i bits = _mm512_castps_si512(v);
  __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}
SIE_INLINE Vec vload(const Bf16 *p) {
  return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)));
}
SIE_INLINE Vec vload_part(const Bf16 *p, int64_t n) { return widen(_mm256_maskz_loadu_epi16(lanes(n), p)); }
SIE_INLINE void vstore(Bf16 *p, Vec v) { _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), narrow(v)); }
SIE_INLINE void vstore_part(Bf16 *p, Vec v, int64_t n) { _mm256_mask_storeu_epi16(p, lanes(n), narrow(v)); }

// The low byte of each lane rounded to an integer; a NaN gives 0.
SIE_INLINE __m128i to_bytes(Vec v) { return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)); }
SIE_INLINE void vstore_bytes(void *p, Vec v) { _mm_storeu_si128(static_cast<__m128i *>(p), to_bytes(v)); }
SIE_INLINE void vstore_bytes_part(void *p, Vec v, int64_t n) {
  _mm_mask_storeu_epi8(p, lanes(n), to_bytes(v));
}

// IEEE half: nearest even, overflow to infinity.
SIE_INLINE void vstore_half(uint16_t *p, Vec v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
SIE_INLINE void vstore_half_part(uint16_t *p, Vec v, int64_t n) {
  _mm256_mask_storeu_epi16(p, lanes(n), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

// Transposes: lane j of r[i] ↔ lane i of r[j]. Swaps pairs, quads, then 128-bit quarters.
SIE_INLINE void vtranspose(Vec r[kLanes]) {
  Vec t[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4) {
#pragma GCC unroll 16
    for (int h = 0; h < 2; h++) {
      __m512d a = _mm512_castps_pd(t[i + h]), b = _mm512_castps_pd(t[i + h + 2]);
      r[i + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
      r[i + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 4; i++) {
    r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
    r[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
    r[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

// Lane i is lane at[i] − first of v.
SIE_INLINE Vec vpick(Vec v, const int32_t *at, int32_t first) {
  return _mm512_permutexvar_ps(_mm512_sub_epi32(_mm512_loadu_si512(at), _mm512_set1_epi32(first)), v);
}

// a's then b's elements 0, 2, 4, …, and 1, 3, 5, …
SIE_INLINE void vsplit_pairs(Vec a, Vec b, Vec *even, Vec *odd) {
  const __m512i at = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  *even = _mm512_permutex2var_ps(a, at, b);
  *odd = _mm512_permutex2var_ps(a, _mm512_add_epi32(at, _mm512_set1_epi32(1)), b);
}

// Bit i is set where lane i > 0.
SIE_INLINE uint32_t vpositive(Vec v) { return _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_GT_OQ); }
// The lanes in which a and b are equal.
SIE_INLINE uint32_t equal_lanes(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
// Lanes that hold a NaN.
SIE_INLINE uint32_t nan_lanes(Vec a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
// b where a and x are equal, a elsewhere.
SIE_INLINE Vec vreplace(Vec a, Vec x, Vec b) {
  return _mm512_mask_mov_ps(a, _mm512_cmp_ps_mask(a, x, _CMP_EQ_OQ), b);
}

#elif defined(__AVX2__)

typedef __m256 Vec;
constexpr int kLanes = 8;

SIE_INLINE __m256i lanes(int64_t n) {
  static const int32_t table[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
  return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(table + 8 - n));
}

SIE_INLINE Vec vset(float x) { return _mm256_set1_ps(x); }
SIE_INLINE Vec vload(const float *p) { return _mm256_loadu_ps(p); }
SIE_INLINE Vec vload_part(const float *p, int64_t n) { return _mm256_maskload_ps(p, lanes(n)); }
SIE_INLINE Vec vload_part_or(const float *p, int64_t n, Vec other) {
  return _mm256_blendv_ps(other, _mm256_maskload_ps(p, lanes(n)), _mm256_castsi256_ps(lanes(n)));
}
SIE_INLINE void vstore(float *p, Vec v) { _mm256_storeu_ps(p, v); }
SIE_INLINE void vstore_part(float *p, Vec v, int64_t n) { _mm256_maskstore_ps(p, lanes(n), v); }

SIE_INLINE Vec vkeep(Vec v, int64_t n) { return _mm256_and_ps(v, _mm256_castsi256_ps(lanes(n))); }
SIE_INLINE float vfirst(Vec v) { return _mm256_cvtss_f32(v); }

SIE_INLINE Vec vfma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
SIE_INLINE Vec vfnma(Vec a, Vec b, Vec c) { return _mm256_fnmadd_ps(a, b, c); }
SIE_INLINE Vec vmin(Vec a, Vec b) { return _mm256_min_ps(a, b); }
SIE_INLINE Vec vmax(Vec a, Vec b) { return _mm256_max_ps(a, b); }
SIE_INLINE Vec vsqrt(Vec a) { return _mm256_sqrt_ps(a); }
SIE_INLINE Vec vabs(Vec a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
SIE_INLINE Vec vrint(Vec a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
SIE_INLINE Vec vzero_unless_above(Vec x, Vec limit, Vec v) {
  return _mm256_and_ps(_mm256_cmp_ps(x, limit, _CMP_NLE_UQ), v);
}
// 2ⁿ in two halves, since 2ⁿ leaves the exponent's range before v·2ⁿ does. |n| ≤ 250; a NaN in v
// stays.
SIE_INLINE Vec vscale(Vec v, Vec n) {
  __m256i whole = _mm256_cvtps_epi32(n);
  __m256i half = _mm256_srai_epi32(whole, 1), rest = _mm256_sub_epi32(whole, half);
  __m256i bias = _mm256_set1_epi32(127);
  Vec a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
  Vec b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
  return v * a * b;
}
SIE_INLINE Vec vscale_normal(Vec v, Vec n) {
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return v * _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
}
SIE_INLINE Vec vquotient(Vec a, Vec b) { return a / b; }

SIE_INLINE float vsum(Vec v) {
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  b = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
SIE_INLINE float vlargest(Vec v) {
  __m128 b = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  b = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}
SIE_INLINE float vsmallest(Vec v) {
  __m128 b = _mm_min_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  b = _mm_min_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_min_ss(b, _mm_movehdup_ps(b)));
}
SIE_INLINE double vsum_squares(Vec v) {
  __m256d lo = _mm256_cvtps_pd(_mm256_castps256_ps128(v)), hi = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
  __m256d s = _mm256_add_pd(_mm256_mul_pd(lo, lo), _mm256_mul_pd(hi, hi));
  __m128d t = _mm_add_pd(_mm256_castpd256_pd128(s), _mm256_extractf128_pd(s, 1));
  return _mm_cvtsd_f64(_mm_add_sd(t, _mm_unpackhi_pd(t, t)));
}

SIE_INLINE Vec widen(__m128i h) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
SIE_INLINE __m128i narrow(Vec v) {
  __m256i bits = _mm256_castps_si256(v);
  __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  rounded = _mm256_blendv_epi8(rounded, _mm256_or_si256(bits, _mm256_set1_epi32(0x400000)), nan);
  rounded = _mm256_srli_epi32(rounded, 16);
  __m256i packed = _mm256_packus_epi32(rounded, rounded);
  return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
}
SIE_INLINE Vec vload(const Bf16 *p) { return widen(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p))); }
SIE_INLINE Vec vload_part(const Bf16 *p, int64_t n) {
  __m128i h = _mm_setzero_si128();
  memcpy(&h, p, static_cast<size_t>(n) * sizeof *p);
  return widen(h);
}
SIE_INLINE void vstore(Bf16 *p, Vec v) { _mm_storeu_si128(reinterpret_cast<__m128i *>(p), narrow(v)); }
SIE_INLINE void vstore_part(Bf16 *p, Vec v, int64_t n) {
  __m128i h = narrow(v);
  memcpy(p, &h, static_cast<size_t>(n) * sizeof *p);
}

SIE_INLINE int64_t to_bytes(Vec v) {
  __m256i x = _mm256_and_si256(_mm256_cvtps_epi32(v), _mm256_set1_epi32(0xff));
  __m128i w = _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  return _mm_cvtsi128_si64(_mm_packus_epi16(w, w));
}
SIE_INLINE void vstore_bytes(void *p, Vec v) {
  int64_t bytes = to_bytes(v);
  memcpy(p, &bytes, sizeof bytes);
}
SIE_INLINE void vstore_bytes_part(void *p, Vec v, int64_t n) {
  int64_t bytes = to_bytes(v);
  memcpy(p, &bytes, static_cast<size_t>(n));
}

SIE_INLINE void vstore_half(uint16_t *p, Vec v) {
  _mm_storeu_si128(reinterpret_cast<__m128i *>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
SIE_INLINE void vstore_half_part(uint16_t *p, Vec v, int64_t n) {
  __m128i h = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
  memcpy(p, &h, static_cast<size_t>(n) * sizeof *p);
}

SIE_INLINE void vtranspose(Vec r[kLanes]) {
  Vec t[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 8; i += 4) {
#pragma GCC unroll 16
    for (int h = 0; h < 2; h++) {
      __m256d a = _mm256_castps_pd(t[i + h]), b = _mm256_castps_pd(t[i + h + 2]);
      r[i + 2 * h] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
      r[i + 2 * h + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < 4; i++) {
    t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
    t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 8; i++) r[i] = t[i];
}

SIE_INLINE uint32_t vpositive(Vec v) {
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_GT_OQ)));
}
SIE_INLINE uint32_t equal_lanes(Vec a, Vec b) {
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)));
}
SIE_INLINE uint32_t nan_lanes(Vec a) {
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)));
}
SIE_INLINE Vec vreplace(Vec a, Vec x, Vec b) {
  return _mm256_blendv_ps(a, b, _mm256_cmp_ps(a, x, _CMP_EQ_OQ));
}

SIE_INLINE Vec vpick(Vec v, const int32_t *at, int32_t first) {
  const __m256i lane =
      _mm256_sub_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(at)), _mm256_set1_epi32(first));
  return _mm256_permutevar8x32_ps(v, lane);
}

SIE_INLINE Vec vpairs_in_order(Vec v) {
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8));
}
SIE_INLINE void vsplit_pairs(Vec a, Vec b, Vec *even, Vec *odd) {
  *even = vpairs_in_order(_mm256_shuffle_ps(a, b, 0x88));
  *odd = vpairs_in_order(_mm256_shuffle_ps(a, b, 0xdd));
}

#endif

// Element i on of a row of `count`: a whole vector, or what is left of the row.
template <typename T>
SIE_INLINE Vec vload_row(const T *p, int64_t i, int64_t count) {
  return i + kLanes <= count ? vload(p + i) : vload_part(p + i, count - i);
}
template <typename T>
SIE_INLINE void vstore_row(T *p, int64_t i, int64_t count, Vec v) {
  if (i + kLanes <= count) {
    vstore(p + i, v);
  } else {
    vstore_part(p + i, v, count - i);
  }
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu

#endif  // SIE_KERNELS_CPU_VEC_H
