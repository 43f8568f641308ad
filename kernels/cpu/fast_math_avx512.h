/* fast_math_avx512.h — sixteen-lane activations whose error hides below bf16 and u8 rounding. Class
 * F32 uses others (math.h): these are for the low-precision epilogues only.
 *
 *   fast_gelu_erf   |y − x·Φ(x)| ≤ 1.1e-5 for every finite x; exactly x for x ≥ 4.7, 0 for x ≤ −4.7
 *   fast_exp2       relative error ≤ 2.7e-6 (degree 4), for x ≤ 127; x < −126 gives 0 or a denormal
 *   fast_exp        relative error ≤ 4e-6 for |x| ≤ 16, growing with |x| as the rounding of
 *                   x·log2(e) does
 *   fast_tanh       |y − tanh x| ≤ 1e-5 for every x
 * −∞ gives the activation's limit, 0 or −0; a NaN stays NaN. Fits: Lawson iteration on Chebyshev
 * nodes over the stated range. */
#ifndef SIE_KERNELS_CPU_FAST_MATH_AVX512_H
#define SIE_KERNELS_CPU_FAST_MATH_AVX512_H

#include <immintrin.h>

#include "sie.h"

namespace sie_cpu {

/* x·Φ(x) with Φ(x) = 1/2 + x·P(x²), a degree 9 fit on |x| ≤ 4.6. Beyond that P keeps its end value,
 * so that x·P leaves [−1/2, 1/2] and Φ clamps to 0 or 1. */
static inline __m512 fast_gelu_erf(__m512 x) {
  const __m512 t = _mm512_mul_ps(x, x);
  const __m512 u = _mm512_min_ps(
      _mm512_fmsub_ps(t, _mm512_set1_ps(2.0f / (4.6f * 4.6f)), _mm512_set1_ps(1.0f)), _mm512_set1_ps(1.0f));
  __m512 p = _mm512_set1_ps(-0.0019862994085997343f);
  p = _mm512_fmadd_ps(p, u, _mm512_set1_ps(0.005698722787201405f));
  p = _mm512_fmadd_ps(p, u, _mm512_set1_ps(-0.007595825009047985f));
  p = _mm512_fmadd_ps(p, u, _mm512_set1_ps(0.010830125771462917f));
  p = _mm512_fmadd_ps(p, u, _mm512_set1_ps(-0.0191635899245739f));
  p = _mm512_fmadd_ps(p, u, _mm512_set1_ps(0.029581628739833832f));
  p = _mm512_fmadd_ps(p, u, _mm512_set1_ps(-0.04058581963181496f));
  p = _mm512_fmadd_ps(p, u, _mm512_set1_ps(0.05412952974438667f));
  p = _mm512_fmadd_ps(p, u, _mm512_set1_ps(-0.07575733214616776f));
  p = _mm512_fmadd_ps(p, u, _mm512_set1_ps(0.15354357659816742f));
  __m512 phi = _mm512_fmadd_ps(x, p, _mm512_set1_ps(0.5f));
  phi = _mm512_min_ps(_mm512_set1_ps(1.0f), _mm512_max_ps(_mm512_setzero_ps(), phi));
  /* Below −4.7 phi is 0, and −∞·0 would be NaN. In this order of operands a NaN passes. */
  return _mm512_mul_ps(_mm512_max_ps(_mm512_set1_ps(-4.7f), x), phi);
}

/* 2^x: the fraction in [0, 1) by a degree 4 fit, the whole part by scalef (which floors again). */
static inline __m512 fast_exp2(__m512 x) {
  const __m512 r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  __m512 p = _mm512_set1_ps(0.013534166850149632f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.052011460065841675f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.2414427548646927f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.6930038332939148f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0000026226043701f));
  return _mm512_scalef_ps(p, x);
}

static inline __m512 fast_exp(__m512 x) { return fast_exp2(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f))); }

/* 1/(1 + e^−x); the clamp keeps e^−x finite. */
static inline __m512 fast_sigmoid(__m512 x) {
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 e = fast_exp(_mm512_min_ps(_mm512_set1_ps(80.0f), _mm512_sub_ps(_mm512_setzero_ps(), x)));
  return _mm512_div_ps(one, _mm512_add_ps(one, e));
}

static inline __m512 fast_tanh(__m512 x) {
  const __m512 s = fast_sigmoid(_mm512_add_ps(x, x));
  return _mm512_sub_ps(_mm512_add_ps(s, s), _mm512_set1_ps(1.0f));
}

/* x·p for a p that falls faster than x grows: 0 at −∞. */
static inline __m512 fast_gated(__m512 x, __m512 p) {
  const int minus_infinity = 0x10;
  return _mm512_maskz_mul_ps(_knot_mask16(_mm512_fpclass_ps_mask(x, minus_infinity)), x, p);
}

/* The activation of the epilogue; act is a sie_act. */
template <int Act>
static inline __m512 fast_act(__m512 x) {
  if (Act == SIE_ACT_GELU_ERF) return fast_gelu_erf(x);
  if (Act == SIE_ACT_TANH) return fast_tanh(x);
  if (Act == SIE_ACT_RELU) return _mm512_max_ps(_mm512_setzero_ps(), x);
  if (Act == SIE_ACT_SILU) return fast_gated(x, fast_sigmoid(x));
  if (Act == SIE_ACT_GELU_TANH) { /* x·σ(2·√(2/π)·(x + 0.044715·x³)) */
    const __m512 t = _mm512_mul_ps(x, x);
    const __m512 u = _mm512_mul_ps(
        x, _mm512_fmadd_ps(t, _mm512_set1_ps(0.0713548162726f), _mm512_set1_ps(1.59576912161f)));
    return fast_gated(x, fast_sigmoid(u));
  }
  return x;
}

}  // namespace sie_cpu

#endif /* SIE_KERNELS_CPU_FAST_MATH_AVX512_H */
