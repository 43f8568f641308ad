// emulated_avx512.h — the AVX-512 that cpu/ uses, on AVX2: F, BW, DQ, VL, VNNI and BF16, as the
// software developer's manual defines them (volume 2).
//
// Compiled before everything else of a source (-include), with -mavx2 -mfma -mf16c, it puts a
// function of its own in place of each intrinsic. An intrinsic that is missing here does not
// compile. SIE_EMULATED_BF16 says that the source may use AVX512_BF16. A vector is two of AVX2,
// whose instructions round, and treat NaNs and zeros, in the same way. A masked load or store
// touches the elements of its mask alone. What would raise #GP, a load or store that is aligned by
// its name only, ends the program.
//
// Not those of a chip, bit by bit: vrcp14ps has an error below 2⁻¹⁴, and no more is said of it; the
// payload of a NaN may be another, and a signalling one counts as quiet.
#ifndef SIE_KERNELS_TESTS_EMULATED_AVX512_H
#define SIE_KERNELS_TESTS_EMULATED_AVX512_H

#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// Those that are macros without optimisation, or always.
#undef _knot_mask16
#undef _mm512_extractf32x8_ps
#undef _mm512_extracti64x4_epi64
#undef _mm512_inserti64x4
#undef _mm512_shuffle_f32x4
#undef _mm512_shuffle_i32x4
#undef _mm512_i32gather_ps
#undef _mm512_cmp_ps_mask
#undef _mm512_roundscale_ps
#undef _mm512_reduce_ps
#undef _mm512_fpclass_ps_mask
#undef _mm512_cvtps_ph

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wignored-attributes"  // of vectors as arguments of templates
#endif
#define SIE_EMULATED static inline __attribute__((always_inline))

namespace sie_emulated {

// ---- halves, lanes and masks

template <typename To, typename From>
SIE_EMULATED To bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
template <typename Half, typename Whole>
SIE_EMULATED Half half(Whole v, int i) {
  static_assert(2 * sizeof(Half) == sizeof(Whole), "two halves");
  Half h;
  memcpy(&h, reinterpret_cast<const char *>(&v) + static_cast<size_t>(i) * sizeof h, sizeof h);
  return h;
}
template <typename Whole, typename Half>
SIE_EMULATED Whole join(Half low, Half high) {
  static_assert(2 * sizeof(Half) == sizeof(Whole), "two halves");
  Whole v;
  memcpy(&v, &low, sizeof low);
  memcpy(reinterpret_cast<char *>(&v) + sizeof low, &high, sizeof high);
  return v;
}
// f of each half.
template <typename Half, typename Whole, typename F>
SIE_EMULATED Whole by_halves(Whole a, F f) {
  return join<Whole, Half>(f(half<Half>(a, 0)), f(half<Half>(a, 1)));
}
template <typename Half, typename Whole, typename F>
SIE_EMULATED Whole by_halves(Whole a, Whole b, F f) {
  return join<Whole, Half>(f(half<Half>(a, 0), half<Half>(b, 0)), f(half<Half>(a, 1), half<Half>(b, 1)));
}
template <typename Half, typename Whole, typename F>
SIE_EMULATED Whole by_halves(Whole a, Whole b, Whole c, F f) {
  return join<Whole, Half>(f(half<Half>(a, 0), half<Half>(b, 0), half<Half>(c, 0)),
                           f(half<Half>(a, 1), half<Half>(b, 1), half<Half>(c, 1)));
}

// A vector's elements, in memory.
template <typename T, typename V>
struct Lanes {
  static constexpr int count = static_cast<int>(sizeof(V) / sizeof(T));
  T at[count];
  explicit Lanes(V v) { memcpy(at, &v, sizeof v); }
  Lanes() {}
  V vector() const {
    V v;
    memcpy(&v, at, sizeof v);
    return v;
  }
};

// All bits of the 32-bit lanes [8·i, 8·i + 8) whose mask bit is set.
SIE_EMULATED __m256i lanes_of(__mmask16 k, int i) {
  const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(k >> 8 * i), bit), bit);
}
SIE_EMULATED __m512 choose(__mmask16 k, __m512 no, __m512 yes) {
  return join<__m512>(
      _mm256_blendv_ps(half<__m256>(no, 0), half<__m256>(yes, 0), _mm256_castsi256_ps(lanes_of(k, 0))),
      _mm256_blendv_ps(half<__m256>(no, 1), half<__m256>(yes, 1), _mm256_castsi256_ps(lanes_of(k, 1))));
}

SIE_EMULATED void need_alignment(const void *p) {
  if (reinterpret_cast<uintptr_t>(p) % 64 != 0) abort();
}
template <typename V>
SIE_EMULATED V load(const void *p) {
  V v;
  memcpy(&v, p, sizeof v);
  return v;
}
template <typename V>
SIE_EMULATED void store(void *p, V v) {
  memcpy(p, &v, sizeof v);
}
template <typename T, typename V>
SIE_EMULATED V masked_load(uint64_t k, const void *p, V otherwise) {
  Lanes<T, V> lanes(otherwise);
  for (int i = 0; i < lanes.count; i++) {
    if (k >> i & 1) memcpy(&lanes.at[i], static_cast<const T *>(p) + i, sizeof(T));
  }
  return lanes.vector();
}
template <typename T, typename V>
SIE_EMULATED void masked_store(void *p, uint64_t k, V v) {
  const Lanes<T, V> lanes(v);
  for (int i = 0; i < lanes.count; i++) {
    if (k >> i & 1) memcpy(static_cast<T *>(p) + i, &lanes.at[i], sizeof(T));
  }
}

// ---- moves

SIE_EMULATED __m512 _mm512_set1_ps(float x) { return join<__m512>(_mm256_set1_ps(x), _mm256_set1_ps(x)); }
SIE_EMULATED __m512 _mm512_setzero_ps() { return sie_emulated::_mm512_set1_ps(0.0f); }
SIE_EMULATED __m512i _mm512_set1_epi32(int x) {
  return join<__m512i>(_mm256_set1_epi32(x), _mm256_set1_epi32(x));
}
SIE_EMULATED __m512i _mm512_set1_epi16(short x) {
  return join<__m512i>(_mm256_set1_epi16(x), _mm256_set1_epi16(x));
}
SIE_EMULATED __m512i _mm512_setzero_si512() { return sie_emulated::_mm512_set1_epi32(0); }
SIE_EMULATED __m512i _mm512_set_epi32(int x15, int x14, int x13, int x12, int x11, int x10, int x9, int x8,
                                      int x7, int x6, int x5, int x4, int x3, int x2, int x1, int x0) {
  return join<__m512i>(_mm256_setr_epi32(x0, x1, x2, x3, x4, x5, x6, x7),
                       _mm256_setr_epi32(x8, x9, x10, x11, x12, x13, x14, x15));
}

SIE_EMULATED __m512 _mm512_loadu_ps(const void *p) { return load<__m512>(p); }
SIE_EMULATED __m512 _mm512_load_ps(const void *p) {
  need_alignment(p);
  return load<__m512>(p);
}
SIE_EMULATED __m512i _mm512_loadu_si512(const void *p) { return load<__m512i>(p); }
SIE_EMULATED __m512i _mm512_load_si512(const void *p) {
  need_alignment(p);
  return load<__m512i>(p);
}
SIE_EMULATED void _mm512_storeu_ps(void *p, __m512 v) { store(p, v); }
SIE_EMULATED void _mm512_store_ps(void *p, __m512 v) {
  need_alignment(p);
  store(p, v);
}
SIE_EMULATED void _mm512_storeu_si512(void *p, __m512i v) { store(p, v); }
SIE_EMULATED void _mm512_store_si512(void *p, __m512i v) {
  need_alignment(p);
  store(p, v);
}
SIE_EMULATED __m512 _mm512_maskz_loadu_ps(__mmask16 k, const void *p) {
  const float *const f = static_cast<const float *>(p);
  return join<__m512>(_mm256_maskload_ps(f, lanes_of(k, 0)), _mm256_maskload_ps(f + 8, lanes_of(k, 1)));
}
SIE_EMULATED __m512 _mm512_mask_loadu_ps(__m512 otherwise, __mmask16 k, const void *p) {
  return choose(k, otherwise, sie_emulated::_mm512_maskz_loadu_ps(k, p));
}
SIE_EMULATED void _mm512_mask_storeu_ps(void *p, __mmask16 k, __m512 v) {
  float *const f = static_cast<float *>(p);
  _mm256_maskstore_ps(f, lanes_of(k, 0), half<__m256>(v, 0));
  _mm256_maskstore_ps(f + 8, lanes_of(k, 1), half<__m256>(v, 1));
}
SIE_EMULATED __m512i _mm512_maskz_loadu_epi16(__mmask32 k, const void *p) {
  return masked_load<uint16_t>(k, p, sie_emulated::_mm512_setzero_si512());
}
SIE_EMULATED __m256i _mm256_maskz_loadu_epi16(__mmask16 k, const void *p) {
  return masked_load<uint16_t>(k, p, _mm256_setzero_si256());
}
SIE_EMULATED void _mm512_mask_storeu_epi16(void *p, __mmask32 k, __m512i v) {
  masked_store<uint16_t>(p, k, v);
}
SIE_EMULATED void _mm256_mask_storeu_epi16(void *p, __mmask16 k, __m256i v) {
  masked_store<uint16_t>(p, k, v);
}
SIE_EMULATED void _mm_mask_storeu_epi8(void *p, __mmask16 k, __m128i v) { masked_store<uint8_t>(p, k, v); }

SIE_EMULATED __m512 _mm512_mask_mov_ps(__m512 a, __mmask16 k, __m512 b) { return choose(k, a, b); }
SIE_EMULATED __m512 _mm512_maskz_mov_ps(__mmask16 k, __m512 a) {
  return choose(k, sie_emulated::_mm512_setzero_ps(), a);
}
SIE_EMULATED __m512i _mm512_mask_mov_epi32(__m512i a, __mmask16 k, __m512i b) {
  return bits<__m512i>(choose(k, bits<__m512>(a), bits<__m512>(b)));
}

SIE_EMULATED __m512 _mm512_castsi512_ps(__m512i a) { return bits<__m512>(a); }
SIE_EMULATED __m512 _mm512_castpd_ps(__m512d a) { return bits<__m512>(a); }
SIE_EMULATED __m512i _mm512_castps_si512(__m512 a) { return bits<__m512i>(a); }
SIE_EMULATED __m512d _mm512_castps_pd(__m512 a) { return bits<__m512d>(a); }
SIE_EMULATED __m256 _mm512_castps512_ps256(__m512 a) { return half<__m256>(a, 0); }
SIE_EMULATED __m256i _mm512_castsi512_si256(__m512i a) { return half<__m256i>(a, 0); }
// The upper half is undefined.
SIE_EMULATED __m512i _mm512_castsi256_si512(__m256i a) { return join<__m512i>(a, _mm256_set1_epi32(-1)); }
SIE_EMULATED float _mm512_cvtss_f32(__m512 a) { return _mm256_cvtss_f32(half<__m256>(a, 0)); }
SIE_EMULATED __m256 _mm512_extractf32x8_ps(__m512 a, int which) { return half<__m256>(a, which); }
SIE_EMULATED __m256i _mm512_extracti64x4_epi64(__m512i a, int which) { return half<__m256i>(a, which); }
SIE_EMULATED __m512i _mm512_inserti64x4(__m512i a, __m256i b, int which) {
  return which == 0 ? join<__m512i>(b, half<__m256i>(a, 1)) : join<__m512i>(half<__m256i>(a, 0), b);
}

// ---- lanes in another order

template <typename V>
SIE_EMULATED V shuffle_quarters(V a, V b, int order) {
  const Lanes<__m128i, V> x(a), y(b);
  Lanes<__m128i, V> r;
  r.at[0] = x.at[order & 3];
  r.at[1] = x.at[order >> 2 & 3];
  r.at[2] = y.at[order >> 4 & 3];
  r.at[3] = y.at[order >> 6 & 3];
  return r.vector();
}
SIE_EMULATED __m512 _mm512_shuffle_f32x4(__m512 a, __m512 b, int order) {
  return shuffle_quarters(a, b, order);
}
SIE_EMULATED __m512i _mm512_shuffle_i32x4(__m512i a, __m512i b, int order) {
  return shuffle_quarters(a, b, order);
}
SIE_EMULATED __m512 _mm512_unpacklo_ps(__m512 a, __m512 b) {
  return by_halves<__m256>(a, b, [](__m256 x, __m256 y) { return _mm256_unpacklo_ps(x, y); });
}
SIE_EMULATED __m512 _mm512_unpackhi_ps(__m512 a, __m512 b) {
  return by_halves<__m256>(a, b, [](__m256 x, __m256 y) { return _mm256_unpackhi_ps(x, y); });
}
SIE_EMULATED __m512d _mm512_unpacklo_pd(__m512d a, __m512d b) {
  return by_halves<__m256d>(a, b, [](__m256d x, __m256d y) { return _mm256_unpacklo_pd(x, y); });
}
SIE_EMULATED __m512d _mm512_unpackhi_pd(__m512d a, __m512d b) {
  return by_halves<__m256d>(a, b, [](__m256d x, __m256d y) { return _mm256_unpackhi_pd(x, y); });
}
SIE_EMULATED __m512i _mm512_unpacklo_epi32(__m512i a, __m512i b) {
  return by_halves<__m256i>(a, b, [](__m256i x, __m256i y) { return _mm256_unpacklo_epi32(x, y); });
}
SIE_EMULATED __m512i _mm512_unpackhi_epi32(__m512i a, __m512i b) {
  return by_halves<__m256i>(a, b, [](__m256i x, __m256i y) { return _mm256_unpackhi_epi32(x, y); });
}
SIE_EMULATED __m512i _mm512_unpacklo_epi64(__m512i a, __m512i b) {
  return by_halves<__m256i>(a, b, [](__m256i x, __m256i y) { return _mm256_unpacklo_epi64(x, y); });
}
SIE_EMULATED __m512i _mm512_unpackhi_epi64(__m512i a, __m512i b) {
  return by_halves<__m256i>(a, b, [](__m256i x, __m256i y) { return _mm256_unpackhi_epi64(x, y); });
}
// Lane i is element at[i] of a, or of b where the bit above the lane's number is set.
template <typename T, typename V>
SIE_EMULATED V permuted(V a, __m512i at, V b) {
  const Lanes<T, V> x(a), y(b);
  const Lanes<T, __m512i> which(at);
  Lanes<T, V> r;
  for (int i = 0; i < r.count; i++) {
    const int n = which.at[i] & (2 * r.count - 1);
    r.at[i] = n < r.count ? x.at[n] : y.at[n - r.count];
  }
  return r.vector();
}
SIE_EMULATED __m512 _mm512_permutexvar_ps(__m512i at, __m512 a) { return permuted<uint32_t>(a, at, a); }
SIE_EMULATED __m512 _mm512_permutex2var_ps(__m512 a, __m512i at, __m512 b) {
  return permuted<uint32_t>(a, at, b);
}
SIE_EMULATED __m512i _mm512_permutex2var_epi16(__m512i a, __m512i at, __m512i b) {
  return permuted<uint16_t>(a, at, b);
}
SIE_EMULATED __m512 _mm512_i32gather_ps(__m512i at, const void *p, int scale) {
  const Lanes<int32_t, __m512i> which(at);
  Lanes<float, __m512> r;
  for (int i = 0; i < 16; i++)
    memcpy(&r.at[i], static_cast<const char *>(p) + static_cast<int64_t>(which.at[i]) * scale, 4);
  return r.vector();
}

// ---- integers

SIE_EMULATED __m512i _mm512_and_si512(__m512i a, __m512i b) {
  return by_halves<__m256i>(a, b, [](__m256i x, __m256i y) { return _mm256_and_si256(x, y); });
}
SIE_EMULATED __m512i _mm512_mask_or_epi32(__m512i otherwise, __mmask16 k, __m512i a, __m512i b) {
  return sie_emulated::_mm512_mask_mov_epi32(
      otherwise, k, by_halves<__m256i>(a, b, [](__m256i x, __m256i y) { return _mm256_or_si256(x, y); }));
}
SIE_EMULATED __m512i _mm512_add_epi32(__m512i a, __m512i b) {
  return by_halves<__m256i>(a, b, [](__m256i x, __m256i y) { return _mm256_add_epi32(x, y); });
}
SIE_EMULATED __m512i _mm512_sub_epi32(__m512i a, __m512i b) {
  return by_halves<__m256i>(a, b, [](__m256i x, __m256i y) { return _mm256_sub_epi32(x, y); });
}
SIE_EMULATED __m512i _mm512_add_epi16(__m512i a, __m512i b) {
  return by_halves<__m256i>(a, b, [](__m256i x, __m256i y) { return _mm256_add_epi16(x, y); });
}
SIE_EMULATED __m512i _mm512_mullo_epi32(__m512i a, __m512i b) {
  return by_halves<__m256i>(a, b, [](__m256i x, __m256i y) { return _mm256_mullo_epi32(x, y); });
}
SIE_EMULATED __m512i _mm512_min_epi32(__m512i a, __m512i b) {
  return by_halves<__m256i>(a, b, [](__m256i x, __m256i y) { return _mm256_min_epi32(x, y); });
}
SIE_EMULATED __m512i _mm512_max_epi32(__m512i a, __m512i b) {
  return by_halves<__m256i>(a, b, [](__m256i x, __m256i y) { return _mm256_max_epi32(x, y); });
}
SIE_EMULATED __m512i _mm512_abs_epi32(__m512i a) {
  return by_halves<__m256i>(a, [](__m256i x) { return _mm256_abs_epi32(x); });
}
// From 32 on nothing is left, or the sign.
SIE_EMULATED __m512i _mm512_slli_epi32(__m512i a, unsigned count) {
  const int n = static_cast<int>(count);
  return by_halves<__m256i>(a, [n](__m256i x) { return _mm256_slli_epi32(x, n); });
}
SIE_EMULATED __m512i _mm512_srli_epi32(__m512i a, unsigned count) {
  const int n = static_cast<int>(count);
  return by_halves<__m256i>(a, [n](__m256i x) { return _mm256_srli_epi32(x, n); });
}
SIE_EMULATED __m512i _mm512_srai_epi32(__m512i a, unsigned count) {
  const int n = static_cast<int>(count);
  return by_halves<__m256i>(a, [n](__m256i x) { return _mm256_srai_epi32(x, n); });
}
SIE_EMULATED __m512i _mm512_sll_epi32(__m512i a, __m128i count) {
  return by_halves<__m256i>(a, [count](__m256i x) { return _mm256_sll_epi32(x, count); });
}
SIE_EMULATED __mmask32 _mm512_cmpeq_epi16_mask(__m512i a, __m512i b) {
  const Lanes<uint16_t, __m512i> x(a), y(b);
  __mmask32 k = 0;
  for (int i = 0; i < 32; i++) k |= static_cast<__mmask32>(x.at[i] == y.at[i]) << i;
  return k;
}
SIE_EMULATED __mmask16 _knot_mask16(__mmask16 k) { return static_cast<__mmask16>(~k); }
SIE_EMULATED __m512i _mm512_cvtepu16_epi32(__m256i a) {
  return join<__m512i>(_mm256_cvtepu16_epi32(half<__m128i>(a, 0)),
                       _mm256_cvtepu16_epi32(half<__m128i>(a, 1)));
}
// What does not fit is cut off, not saturated.
template <typename T, typename V>
SIE_EMULATED V cut(__m512i a) {
  const Lanes<uint32_t, __m512i> x(a);
  Lanes<T, V> r;
  for (int i = 0; i < 16; i++) r.at[i] = static_cast<T>(x.at[i]);
  return r.vector();
}
SIE_EMULATED __m256i _mm512_cvtepi32_epi16(__m512i a) { return cut<uint16_t, __m256i>(a); }
SIE_EMULATED __m128i _mm512_cvtepi32_epi8(__m512i a) { return cut<uint8_t, __m128i>(a); }

// ---- floats

SIE_EMULATED __m512 _mm512_add_ps(__m512 a, __m512 b) {
  return by_halves<__m256>(a, b, [](__m256 x, __m256 y) { return _mm256_add_ps(x, y); });
}
SIE_EMULATED __m512 _mm512_sub_ps(__m512 a, __m512 b) {
  return by_halves<__m256>(a, b, [](__m256 x, __m256 y) { return _mm256_sub_ps(x, y); });
}
SIE_EMULATED __m512 _mm512_mul_ps(__m512 a, __m512 b) {
  return by_halves<__m256>(a, b, [](__m256 x, __m256 y) { return _mm256_mul_ps(x, y); });
}
SIE_EMULATED __m512 _mm512_div_ps(__m512 a, __m512 b) {
  return by_halves<__m256>(a, b, [](__m256 x, __m256 y) { return _mm256_div_ps(x, y); });
}
// b where either is NaN, and where both are zeros.
SIE_EMULATED __m512 _mm512_min_ps(__m512 a, __m512 b) {
  return by_halves<__m256>(a, b, [](__m256 x, __m256 y) { return _mm256_min_ps(x, y); });
}
SIE_EMULATED __m512 _mm512_max_ps(__m512 a, __m512 b) {
  return by_halves<__m256>(a, b, [](__m256 x, __m256 y) { return _mm256_max_ps(x, y); });
}
SIE_EMULATED __m512 _mm512_mask_max_ps(__m512 otherwise, __mmask16 k, __m512 a, __m512 b) {
  return choose(k, otherwise, sie_emulated::_mm512_max_ps(a, b));
}
SIE_EMULATED __m512 _mm512_maskz_mul_ps(__mmask16 k, __m512 a, __m512 b) {
  return choose(k, sie_emulated::_mm512_setzero_ps(), sie_emulated::_mm512_mul_ps(a, b));
}
SIE_EMULATED __m512 _mm512_sqrt_ps(__m512 a) {
  return by_halves<__m256>(a, [](__m256 x) { return _mm256_sqrt_ps(x); });
}
SIE_EMULATED __m512 _mm512_abs_ps(__m512 a) {
  return by_halves<__m256>(a, [](__m256 x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); });
}
SIE_EMULATED __m512 _mm512_fmadd_ps(__m512 a, __m512 b, __m512 c) {
  return by_halves<__m256>(a, b, c, [](__m256 x, __m256 y, __m256 z) { return _mm256_fmadd_ps(x, y, z); });
}
SIE_EMULATED __m512 _mm512_fmsub_ps(__m512 a, __m512 b, __m512 c) {
  return by_halves<__m256>(a, b, c, [](__m256 x, __m256 y, __m256 z) { return _mm256_fmsub_ps(x, y, z); });
}
SIE_EMULATED __m512 _mm512_fnmadd_ps(__m512 a, __m512 b, __m512 c) {
  return by_halves<__m256>(a, b, c, [](__m256 x, __m256 y, __m256 z) { return _mm256_fnmadd_ps(x, y, z); });
}
SIE_EMULATED __m512d _mm512_add_pd(__m512d a, __m512d b) {
  return by_halves<__m256d>(a, b, [](__m256d x, __m256d y) { return _mm256_add_pd(x, y); });
}
SIE_EMULATED __m512d _mm512_mul_pd(__m512d a, __m512d b) {
  return by_halves<__m256d>(a, b, [](__m256d x, __m256d y) { return _mm256_mul_pd(x, y); });
}
SIE_EMULATED __mmask16 _mm512_cmp_ps_mask(__m512 a, __m512 b, int predicate) {
  const int low = _mm256_movemask_ps(_mm256_cmp_ps(half<__m256>(a, 0), half<__m256>(b, 0), predicate)),
            high = _mm256_movemask_ps(_mm256_cmp_ps(half<__m256>(a, 1), half<__m256>(b, 1), predicate));
  return static_cast<__mmask16>(low | high << 8);
}
// To whole numbers alone: the upper half of `control` would ask for digits behind the point.
SIE_EMULATED __m512 _mm512_roundscale_ps(__m512 a, int control) {
  if (control >> 4 != 0) abort();
  return join<__m512>(_mm256_round_ps(half<__m256>(a, 0), control),
                      _mm256_round_ps(half<__m256>(a, 1), control));
}
SIE_EMULATED __m256 fraction(__m256 x) {
  const __m256 floor = _mm256_floor_ps(x), sum = _mm256_sub_ps(x, floor), zero = _mm256_setzero_ps();
  // The exact rest of the subtraction (Knuth). Below 0, the sum was rounded up.
  const __m256 was = _mm256_add_ps(sum, floor);
  const __m256 rest = _mm256_sub_ps(_mm256_sub_ps(x, was), _mm256_sub_ps(floor, _mm256_sub_ps(was, sum)));
  const __m256i up = _mm256_castps_si256(_mm256_cmp_ps(rest, zero, _CMP_LT_OQ));
  const __m256 down = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(sum), up));
  const __m256 signed_zero = _mm256_and_ps(_mm256_cmp_ps(sum, zero, _CMP_EQ_OQ), _mm256_set1_ps(-0.0f));
  const __m256 infinity = _mm256_set1_ps(__builtin_inff());
  const __m256 infinite = _mm256_cmp_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0f), x), infinity, _CMP_EQ_OQ);
  return _mm256_andnot_ps(infinite, _mm256_or_ps(down, signed_zero));
}
// a − ⌊a⌋, rounded down like the floor, which also makes the sign of a zero; 0 for an infinity. No
// other form.
SIE_EMULATED __m512 _mm512_reduce_ps(__m512 a, int control) {
  if ((control | _MM_FROUND_NO_EXC) != (_MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)) abort();
  return join<__m512>(fraction(half<__m256>(a, 0)), fraction(half<__m256>(a, 1)));
}
// a·2^⌊b⌋ where one of the two is infinite or a NaN.
SIE_EMULATED float scalef_special(float a, float b) {
  const float infinity = __builtin_inff();
  if (b == infinity)
    return a == 0 ? __builtin_nanf("") : a == a ? __builtin_copysignf(infinity, a) : infinity;
  if (b == -infinity)
    return __builtin_fabsf(a) == infinity ? __builtin_nanf("") : a == a ? __builtin_copysignf(0.0f, a) : 0.0f;
  return a != a || b != b ? a + b : a;
}
// The same of finite numbers, rounded once. From 2⁴⁰⁰ on nothing changes.
SIE_EMULATED __m128 scalef_finite(__m128 a, __m128 b) {
  const __m128 near = _mm_max_ps(_mm_min_ps(b, _mm_set1_ps(400.0f)), _mm_set1_ps(-400.0f));
  const __m128i whole = _mm_cvtps_epi32(_mm_floor_ps(near));
  const __m256i power =
      _mm256_slli_epi64(_mm256_cvtepi32_epi64(_mm_add_epi32(whole, _mm_set1_epi32(1023))), 52);
  return _mm256_cvtpd_ps(_mm256_mul_pd(_mm256_cvtps_pd(a), _mm256_castsi256_pd(power)));
}
SIE_EMULATED __m512 _mm512_scalef_ps(__m512 a, __m512 b) {
  const __m512 least = sie_emulated::_mm512_set1_ps(__builtin_inff());
  const __mmask16 finite = static_cast<__mmask16>(
      sie_emulated::_mm512_cmp_ps_mask(sie_emulated::_mm512_abs_ps(a), least, _CMP_LT_OQ) &
      sie_emulated::_mm512_cmp_ps_mask(sie_emulated::_mm512_abs_ps(b), least, _CMP_LT_OQ));
  Lanes<__m128, __m512> r;
  const Lanes<__m128, __m512> x(a), y(b);
  for (int i = 0; i < 4; i++) r.at[i] = scalef_finite(x.at[i], y.at[i]);
  if (finite == 0xffff) return r.vector();
  Lanes<float, __m512> all(r.vector());
  const Lanes<float, __m512> p(a), q(b);
  for (int i = 0; i < 16; i++) {
    if (!(finite >> i & 1)) all.at[i] = scalef_special(p.at[i], q.at[i]);
  }
  return all.vector();
}
// 1/a in 15 bits. Denormals of a beyond 2⁻¹²⁸ give an infinity.
SIE_EMULATED __m512 _mm512_rcp14_ps(__m512 a) {
  return by_halves<__m256>(a, [](__m256 x) {
    const __m256 y = _mm256_div_ps(_mm256_set1_ps(1.0f), x);
    return _mm256_and_ps(y, _mm256_castsi256_ps(_mm256_set1_epi32(~0x1ff)));
  });
}
// The classes of the mask: 1 quiet NaN, 2 +0, 4 −0, 8 +∞, 0x10 −∞, 0x20 denormal, 0x40 negative
// and finite, 0x80 signalling NaN.
SIE_EMULATED __mmask16 _mm512_fpclass_ps_mask(__m512 a, int classes) {
  const Lanes<uint32_t, __m512> x(a);
  uint32_t k = 0;
  for (int i = 0; i < 16; i++) {
    const uint32_t size = x.at[i] & 0x7fffffff, sign = x.at[i] >> 31;
    int of = 0;
    if (size > 0x7f800000) of = size & 0x400000 ? 1 : 0x80;
    if (size == 0x7f800000) of = sign ? 0x10 : 8;
    if (size == 0) of = sign ? 4 : 2;
    if (size > 0 && size < 0x800000) of |= 0x20;
    if (size > 0 && size < 0x7f800000 && sign) of |= 0x40;
    k |= static_cast<uint32_t>((of & classes) != 0) << i;
  }
  return static_cast<__mmask16>(k);
}

SIE_EMULATED __m512 _mm512_cvtepi32_ps(__m512i a) {
  return join<__m512>(_mm256_cvtepi32_ps(half<__m256i>(a, 0)), _mm256_cvtepi32_ps(half<__m256i>(a, 1)));
}
SIE_EMULATED __m512i _mm512_cvtps_epi32(__m512 a) {
  return join<__m512i>(_mm256_cvtps_epi32(half<__m256>(a, 0)), _mm256_cvtps_epi32(half<__m256>(a, 1)));
}
SIE_EMULATED __m512d _mm512_cvtps_pd(__m256 a) {
  return join<__m512d>(_mm256_cvtps_pd(half<__m128>(a, 0)), _mm256_cvtps_pd(half<__m128>(a, 1)));
}
SIE_EMULATED __m256i _mm512_cvtps_ph(__m512 a, int rounding) {
  return join<__m256i>(_mm256_cvtps_ph(half<__m256>(a, 0), rounding),
                       _mm256_cvtps_ph(half<__m256>(a, 1), rounding));
}

// What compilers make of the intrinsics: halves, quarters, pairs, the upper one first; in the end
// neighbours, the lower one first.
template <typename Wide, typename Narrow>
SIE_EMULATED float reduced(__m512 a, Wide wide, Narrow narrow) {
  const __m256 h = wide(half<__m256>(a, 1), half<__m256>(a, 0));
  const __m128 q = narrow(half<__m128>(h, 1), half<__m128>(h, 0));
  const __m128 p = narrow(q, _mm_shuffle_ps(q, q, 0x4e));
  return _mm_cvtss_f32(narrow(p, _mm_shuffle_ps(p, p, 0xb1)));
}
SIE_EMULATED float _mm512_reduce_add_ps(__m512 a) {
  return reduced(
      a, [](__m256 x, __m256 y) { return _mm256_add_ps(x, y); },
      [](__m128 x, __m128 y) { return _mm_add_ps(x, y); });
}
SIE_EMULATED float _mm512_reduce_max_ps(__m512 a) {
  return reduced(
      a, [](__m256 x, __m256 y) { return _mm256_max_ps(x, y); },
      [](__m128 x, __m128 y) { return _mm_max_ps(x, y); });
}
SIE_EMULATED float _mm512_reduce_min_ps(__m512 a) {
  return reduced(
      a, [](__m256 x, __m256 y) { return _mm256_min_ps(x, y); },
      [](__m128 x, __m128 y) { return _mm_min_ps(x, y); });
}
SIE_EMULATED double _mm512_reduce_add_pd(__m512d a) {
  const __m256d h = _mm256_add_pd(half<__m256d>(a, 1), half<__m256d>(a, 0));
  const __m128d q = _mm_add_pd(half<__m128d>(h, 1), half<__m128d>(h, 0));
  return _mm_cvtsd_f64(q) + _mm_cvtsd_f64(_mm_unpackhi_pd(q, q));
}

// ---- VNNI: products of bytes, or of 16-bit halves, added to 32 bits without saturation

SIE_EMULATED __m512i _mm512_dpbusd_epi32(__m512i c, __m512i a, __m512i b) {
  return by_halves<__m256i>(c, a, b, [](__m256i sum, __m256i u, __m256i s) {
    const __m256i low = _mm256_madd_epi16(_mm256_and_si256(u, _mm256_set1_epi16(0xff)),
                                          _mm256_srai_epi16(_mm256_slli_epi16(s, 8), 8)),
                  high = _mm256_madd_epi16(_mm256_srli_epi16(u, 8), _mm256_srai_epi16(s, 8));
    return _mm256_add_epi32(sum, _mm256_add_epi32(low, high));
  });
}
SIE_EMULATED __m512i _mm512_dpwssd_epi32(__m512i c, __m512i a, __m512i b) {
  return by_halves<__m256i>(c, a, b, [](__m256i sum, __m256i x, __m256i y) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(x, y));
  });
}

// ---- BF16

// Nearest even, denormals become zeros, a NaN quiet.
SIE_EMULATED __m256i bf16_of(__m512 a) {
  const Lanes<uint32_t, __m512> x(a);
  Lanes<uint16_t, __m256i> r;
  for (int i = 0; i < 16; i++) {
    const uint32_t u = x.at[i], size = u & 0x7fffffff;
    const uint32_t nearest = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    r.at[i] = static_cast<uint16_t>(size > 0x7f800000 ? u >> 16 | 0x40
                                    : size < 0x800000 ? u >> 16 & 0x8000
                                                      : nearest);
  }
  return r.vector();
}
SIE_EMULATED __m256bh _mm512_cvtneps_pbh(__m512 a) { return bits<__m256bh>(bf16_of(a)); }
SIE_EMULATED __m512bh _mm512_cvtne2ps_pbh(__m512 high, __m512 low) {
  return join<__m512bh>(bf16_of(low), bf16_of(high));
}

// For each lane two FMAs, of the odd elements, then of the even ones. Nearest even, denormals of
// operands and of results are zeros, whatever MXCSR says. A call of its own, so that no operation
// leaves the time in which it says so.
[[gnu::noinline, maybe_unused]] static void dot_bf16(__m512 *c, const __m512i *a, const __m512i *b) {
  const uint32_t masked_nearest_zeros = 0x9fc0, control = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(masked_nearest_zeros);
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  for (int i = 0; i < 2; i++) {
    const __m256i x = half<__m256i>(*a, i), y = half<__m256i>(*b, i);
    __m256 sum = half<__m256>(*c, i);
    sum = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_and_si256(x, upper)),
                          _mm256_castsi256_ps(_mm256_and_si256(y, upper)), sum);
    sum = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_slli_epi32(x, 16)),
                          _mm256_castsi256_ps(_mm256_slli_epi32(y, 16)), sum);
    memcpy(reinterpret_cast<char *>(c) + 32 * i, &sum, 32);
  }
  __builtin_ia32_ldmxcsr(control);
}
SIE_EMULATED __m512 _mm512_dpbf16_ps(__m512 c, __m512bh a, __m512bh b) {
  const __m512i x = bits<__m512i>(a), y = bits<__m512i>(b);
  dot_bf16(&c, &x, &y);
  return c;
}

}  // namespace sie_emulated

#undef SIE_EMULATED
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

// ---- in place of the intrinsics

#define _mm512_set1_ps sie_emulated::_mm512_set1_ps
#define _mm512_setzero_ps sie_emulated::_mm512_setzero_ps
#define _mm512_set1_epi32 sie_emulated::_mm512_set1_epi32
#define _mm512_set1_epi16 sie_emulated::_mm512_set1_epi16
#define _mm512_setzero_si512 sie_emulated::_mm512_setzero_si512
#define _mm512_set_epi32 sie_emulated::_mm512_set_epi32
#define _mm512_loadu_ps sie_emulated::_mm512_loadu_ps
#define _mm512_load_ps sie_emulated::_mm512_load_ps
#define _mm512_loadu_si512 sie_emulated::_mm512_loadu_si512
#define _mm512_load_si512 sie_emulated::_mm512_load_si512
#define _mm512_storeu_ps sie_emulated::_mm512_storeu_ps
#define _mm512_store_ps sie_emulated::_mm512_store_ps
#define _mm512_storeu_si512 sie_emulated::_mm512_storeu_si512
#define _mm512_store_si512 sie_emulated::_mm512_store_si512
#define _mm512_maskz_loadu_ps sie_emulated::_mm512_maskz_loadu_ps
#define _mm512_mask_loadu_ps sie_emulated::_mm512_mask_loadu_ps
#define _mm512_mask_storeu_ps sie_emulated::_mm512_mask_storeu_ps
#define _mm512_maskz_loadu_epi16 sie_emulated::_mm512_maskz_loadu_epi16
#define _mm256_maskz_loadu_epi16 sie_emulated::_mm256_maskz_loadu_epi16
#define _mm512_mask_storeu_epi16 sie_emulated::_mm512_mask_storeu_epi16
#define _mm256_mask_storeu_epi16 sie_emulated::_mm256_mask_storeu_epi16
#define _mm_mask_storeu_epi8 sie_emulated::_mm_mask_storeu_epi8
#define _mm512_mask_mov_ps sie_emulated::_mm512_mask_mov_ps
#define _mm512_maskz_mov_ps sie_emulated::_mm512_maskz_mov_ps
#define _mm512_mask_mov_epi32 sie_emulated::_mm512_mask_mov_epi32
#define _mm512_castsi512_ps sie_emulated::_mm512_castsi512_ps
#define _mm512_castpd_ps sie_emulated::_mm512_castpd_ps
#define _mm512_castps_si512 sie_emulated::_mm512_castps_si512
#define _mm512_castps_pd sie_emulated::_mm512_castps_pd
#define _mm512_castps512_ps256 sie_emulated::_mm512_castps512_ps256
#define _mm512_castsi512_si256 sie_emulated::_mm512_castsi512_si256
#define _mm512_castsi256_si512 sie_emulated::_mm512_castsi256_si512
#define _mm512_cvtss_f32 sie_emulated::_mm512_cvtss_f32
#define _mm512_unpacklo_ps sie_emulated::_mm512_unpacklo_ps
#define _mm512_unpackhi_ps sie_emulated::_mm512_unpackhi_ps
#define _mm512_unpacklo_pd sie_emulated::_mm512_unpacklo_pd
#define _mm512_unpackhi_pd sie_emulated::_mm512_unpackhi_pd
#define _mm512_unpacklo_epi32 sie_emulated::_mm512_unpacklo_epi32
#define _mm512_unpackhi_epi32 sie_emulated::_mm512_unpackhi_epi32
#define _mm512_unpacklo_epi64 sie_emulated::_mm512_unpacklo_epi64
#define _mm512_unpackhi_epi64 sie_emulated::_mm512_unpackhi_epi64
#define _mm512_permutexvar_ps sie_emulated::_mm512_permutexvar_ps
#define _mm512_permutex2var_ps sie_emulated::_mm512_permutex2var_ps
#define _mm512_permutex2var_epi16 sie_emulated::_mm512_permutex2var_epi16
#define _mm512_and_si512 sie_emulated::_mm512_and_si512
#define _mm512_mask_or_epi32 sie_emulated::_mm512_mask_or_epi32
#define _mm512_add_epi32 sie_emulated::_mm512_add_epi32
#define _mm512_sub_epi32 sie_emulated::_mm512_sub_epi32
#define _mm512_add_epi16 sie_emulated::_mm512_add_epi16
#define _mm512_mullo_epi32 sie_emulated::_mm512_mullo_epi32
#define _mm512_min_epi32 sie_emulated::_mm512_min_epi32
#define _mm512_max_epi32 sie_emulated::_mm512_max_epi32
#define _mm512_abs_epi32 sie_emulated::_mm512_abs_epi32
#define _mm512_slli_epi32 sie_emulated::_mm512_slli_epi32
#define _mm512_srli_epi32 sie_emulated::_mm512_srli_epi32
#define _mm512_srai_epi32 sie_emulated::_mm512_srai_epi32
#define _mm512_sll_epi32 sie_emulated::_mm512_sll_epi32
#define _mm512_cmpeq_epi16_mask sie_emulated::_mm512_cmpeq_epi16_mask
#define _knot_mask16 sie_emulated::_knot_mask16
#define _mm512_cvtepu16_epi32 sie_emulated::_mm512_cvtepu16_epi32
#define _mm512_cvtepi32_epi16 sie_emulated::_mm512_cvtepi32_epi16
#define _mm512_cvtepi32_epi8 sie_emulated::_mm512_cvtepi32_epi8
#define _mm512_add_ps sie_emulated::_mm512_add_ps
#define _mm512_sub_ps sie_emulated::_mm512_sub_ps
#define _mm512_mul_ps sie_emulated::_mm512_mul_ps
#define _mm512_div_ps sie_emulated::_mm512_div_ps
#define _mm512_min_ps sie_emulated::_mm512_min_ps
#define _mm512_max_ps sie_emulated::_mm512_max_ps
#define _mm512_mask_max_ps sie_emulated::_mm512_mask_max_ps
#define _mm512_maskz_mul_ps sie_emulated::_mm512_maskz_mul_ps
#define _mm512_sqrt_ps sie_emulated::_mm512_sqrt_ps
#define _mm512_abs_ps sie_emulated::_mm512_abs_ps
#define _mm512_fmadd_ps sie_emulated::_mm512_fmadd_ps
#define _mm512_fmsub_ps sie_emulated::_mm512_fmsub_ps
#define _mm512_fnmadd_ps sie_emulated::_mm512_fnmadd_ps
#define _mm512_add_pd sie_emulated::_mm512_add_pd
#define _mm512_mul_pd sie_emulated::_mm512_mul_pd
#define _mm512_scalef_ps sie_emulated::_mm512_scalef_ps
#define _mm512_rcp14_ps sie_emulated::_mm512_rcp14_ps
#define _mm512_cvtepi32_ps sie_emulated::_mm512_cvtepi32_ps
#define _mm512_cvtps_epi32 sie_emulated::_mm512_cvtps_epi32
#define _mm512_cvtps_pd sie_emulated::_mm512_cvtps_pd
#define _mm512_reduce_add_ps sie_emulated::_mm512_reduce_add_ps
#define _mm512_reduce_max_ps sie_emulated::_mm512_reduce_max_ps
#define _mm512_reduce_min_ps sie_emulated::_mm512_reduce_min_ps
#define _mm512_reduce_add_pd sie_emulated::_mm512_reduce_add_pd
#define _mm512_dpbusd_epi32 sie_emulated::_mm512_dpbusd_epi32
#define _mm512_dpwssd_epi32 sie_emulated::_mm512_dpwssd_epi32
#define _mm512_cvtneps_pbh sie_emulated::_mm512_cvtneps_pbh
#define _mm512_cvtne2ps_pbh sie_emulated::_mm512_cvtne2ps_pbh
#define _mm512_dpbf16_ps sie_emulated::_mm512_dpbf16_ps
#define _mm512_extractf32x8_ps sie_emulated::_mm512_extractf32x8_ps
#define _mm512_extracti64x4_epi64 sie_emulated::_mm512_extracti64x4_epi64
#define _mm512_inserti64x4 sie_emulated::_mm512_inserti64x4
#define _mm512_shuffle_f32x4 sie_emulated::_mm512_shuffle_f32x4
#define _mm512_shuffle_i32x4 sie_emulated::_mm512_shuffle_i32x4
#define _mm512_i32gather_ps sie_emulated::_mm512_i32gather_ps
#define _mm512_cmp_ps_mask sie_emulated::_mm512_cmp_ps_mask
#define _mm512_roundscale_ps sie_emulated::_mm512_roundscale_ps
#define _mm512_reduce_ps sie_emulated::_mm512_reduce_ps
#define _mm512_fpclass_ps_mask sie_emulated::_mm512_fpclass_ps_mask
#define _mm512_cvtps_ph sie_emulated::_mm512_cvtps_ph

// What the sources ask. The headers above had to see that they are compiled for AVX2.
#define __AVX512F__ 1
#ifdef SIE_EMULATED_BF16
#define __AVX512BF16__ 1
#endif

#endif  // SIE_KERNELS_TESTS_EMULATED_AVX512_H
