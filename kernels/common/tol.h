/* tol.h — how far a kernel may be from the reference, by storage type and length, and why.
 *
 * u = 2⁻²⁴ is half a unit in the last place of f32 relative to the value; a bf16 store adds up to
 * 2⁻⁸ relative. Every bound is per element and in the unit of the result. */
#ifndef SIE_KERNELS_COMMON_TOL_H
#define SIE_KERNELS_COMMON_TOL_H

#include <math.h>
#include <stdint.h>

#include "sie.h"

#define SIE_TOL_U 5.9604644775390625e-8 /* 2⁻²⁴ */

/* The rounding of the store: half a step, and a little more for a value that lies next to a tie.
 * The bound of the computation covers f32 stores. A u8 store is bounded by its row's scale
 * instead. */
static inline double sie_tol_store(int32_t dtype, double y) {
  switch (dtype) {
    case SIE_BF16:
      return fabs(y) * 0.00390625 * 1.001 + 1e-38; /* 2⁻⁸ */
    case SIE_F16:
      return fabs(y) * 0.00048828125 * 1.001 + 6e-8; /* 2⁻¹¹, and half the subnormal step */
    default:
      return 0;
  }
}

/* A sum of k products x·w in f32, in any order: by Cauchy-Schwarz Σ|x·w| ≤ ‖x‖‖w‖. The worst case
 * grows with k, but rounding errors are independent enough that √k holds with room (the worst error
 * seen is a third of it). */
static inline double sie_tol_dot(int64_t k, double x_norm, double w_norm) {
  return (8 + 2 * sqrt((double)k)) * SIE_TOL_U * x_norm * w_norm;
}

/* Class FP8 on tensor cores: their sums of e4m3 products keep 13 bits below the largest term
 * (DeepSeek-V3 §3.3.2, arXiv:2412.19437). Promotion to f32 every 128 products bounds the error. */
static inline double sie_tol_fp8_sum(double x_norm, double w_norm) {
  return 1.220703125e-4 * x_norm * w_norm;
}

/* An activation of z that is off by dz. Every activation has a slope of at most 1.13. Its own error
 * is 6e-7·max(1, |z|) in class F32 when the result stays f32 (polynomials in f32). The operands of
 * the other classes carry 8 to 11 bits, so shorter polynomials suffice: 2e-5. Results that are
 * rounded to bf16, u8 or e4m3 next may use the shortest: 3.5e-4, less than half a step of bf16 from
 * |y| = 0.1 on; those rounded to f16 use one of 6e-5. */
static inline double sie_tol_act(int32_t act, uint32_t compute, int32_t stored_as, double z, double dz) {
  double magnitude = fabs(z) > 1 ? fabs(z) : 1;
  double own = stored_as != SIE_F32 ? 3.5e-4 : (compute == SIE_COMPUTE_F32 ? 6e-7 : 2e-5);
  if (stored_as == SIE_F16) own = 6e-5;
  if (act == SIE_ACT_NONE || act == SIE_ACT_RELU) own = 0;
  return 1.13 * dz + own * magnitude;
}

/* LayerNorm: x − μ carries the rounding of x's magnitude, which 1/σ then scales; the rest is a few
 * roundings of the result. factor = 1/√(σ² + ε). */
static inline double sie_tol_norm(double x_max, double factor, double gamma, double beta, double y) {
  return 8 * SIE_TOL_U * (x_max * factor * fabs(gamma) + fabs(y) + fabs(beta)) + 2e-6 * fabs(y);
}

/* Attention: the error of a score's dot product becomes a relative error of its probability. bf16
 * and f16 forms also round probabilities to 8 or 11 bits (2⁻⁸, 2⁻¹¹ at most; the errors average
 * out, but not over a single key) and may first round scale·q. */
static inline double sie_tol_attention(int32_t dtype, int64_t d, double score_norm, double v_max) {
  double relative = 2 * sie_tol_dot(d, score_norm, 1) + 4e-6;
  if (dtype == SIE_BF16) relative += 0.008;
  if (dtype == SIE_F16) relative += 0.001;
  return relative * v_max;
}

/* The mean of n values in f32. */
static inline double sie_tol_mean(int64_t n, double x_max) {
  return (4 + sqrt((double)n)) * SIE_TOL_U * 2 * x_max;
}

#endif /* SIE_KERNELS_COMMON_TOL_H */
