// activation.cuh — the activation functions of GEMM epilogues, one f32 at a time.
//
//   GELU_ERF   x·Φ(x) = max(x, 0) − t·Q(t), t = |x|; Q(t) = 1 − Φ(t) = 2^p(t), p of degree 6
//   GELU_TANH  x·σ(2√(2/π)·(x + 0.044715·x³)), the tanh form written with a logistic
//   SILU       x·σ(x);   TANH   1 − 2/(1 + e^2x), an odd polynomial below 0.35;   RELU   max(x, 0)
//
// Plan     log2 Q is smooth on the whole half line (it bends like −t²), so a short polynomial in
//          its exponent follows the tail in relative terms, which no polynomial for erf itself
//          does: no cancellation, and no branch between centre and tail. t is clamped at 6, where
//          t·Q(t) = 6e-9 has left every 16-bit type.
// Cost     SASS instructions an element, counted for sm_80 and sm_90a: GELU_ERF 10 (7 FFMA, 2
//          FMNMX, 1 MUFU), SILU 5 (2 MUFU), GELU_TANH 7 (2 MUFU), RELU 1. A MUFU has a pipe of its
//          own, at an eighth of the issue rate: below GELU_ERF's issue slots, so those are the
//          bound.
// Error    against f64, all x = k·2⁻¹⁶ in [−10, 10] (activation_test.cc): GELU_ERF ≤ 1.5e-6
//          absolute, and ≤ 1e-4 relative for x ≥ −5.9: rounded to bf16 within 0.53 ulp of
//                     exact there (0.5 is perfect), the wrong neighbour of two in 0.2 % of the x
//          GELU_TANH, SILU ≤ 2e-7·max(1, |x|);   TANH ≤ 4e-7 relative
//          A NaN stays one; +∞ gives +∞ (GELU, SILU, RELU); GELU_ERF(−∞) = −6e-9.
// Source   Hendrycks & Gimpel, arXiv:1606.08415 (GELU). Coefficients: weighted minimax fit of log2
//          Q on [0, 6] in f64 with weight 1 + 60·t·Q(t), which trades relative for absolute
//          accuracy; to f32.
#ifndef SIE_KERNELS_CUDA_ACTIVATION_CUH
#define SIE_KERNELS_CUDA_ACTIVATION_CUH

#include "cuda/ptx/fast_math.h"
#include "cuda/ptx/nan_max.h"
#include "ops.h"

namespace sie_cuda {

SIE_DEVICE float gelu_erf(float x) {
  float t = fminf(fabsf(x), 6.0f);
  float p = 2.5760591597645544e-05f;
  p = __fmaf_rn(p, t, -6.5921118948608637e-04f);
  p = __fmaf_rn(p, t, 7.5031481683254242e-03f);
  p = __fmaf_rn(p, t, -5.2061878144741058e-02f);
  p = __fmaf_rn(p, t, -4.6021822094917297e-01f);
  p = __fmaf_rn(p, t, -1.1505568027496338f);
  p = __fmaf_rn(p, t, -1.0000783205032349f);
  return __fmaf_rn(-t, ptx::exp2_approx(p), ptx::nan_max(x, 0.0f));
}

// x·σ(a) with b = −a·log2 e given.
SIE_DEVICE float times_logistic(float x, float b) {
  return __fmul_rn(x, ptx::reciprocal_approx(__fadd_rn(1.0f, ptx::exp2_approx(b))));
}

SIE_DEVICE float silu(float x) { return times_logistic(x, __fmul_rn(x, -1.4426950408889634f)); }

SIE_DEVICE float gelu_tanh(float x) {
  // −2·log2 e·√(2/π) and 0.044715 times it.
  float b = __fmaf_rn(__fmul_rn(x, x), -0.10294324f, -2.3022082f);
  return times_logistic(x, __fmul_rn(b, x));
}

SIE_DEVICE float tanh_exp(float x) {
  float e = ptx::exp2_approx(__fmul_rn(x, 2.8853900817779268f));
  float large = __fmaf_rn(-2.0f, ptx::reciprocal_approx(__fadd_rn(1.0f, e)), 1.0f);
  // The difference above loses what is small: there the series x − x³/3 + 2x⁵/15 − 17x⁷/315 +
  // 62x⁹/2835.
  float s = __fmul_rn(x, x);
  float p = __fmaf_rn(s, 2.1869488e-02f, -5.3968254e-02f);
  p = __fmaf_rn(p, s, 1.3333334e-01f);
  p = __fmaf_rn(p, s, -3.3333334e-01f);
  float small = __fmaf_rn(__fmul_rn(p, s), x, x);
  return fabsf(x) < 0.35f ? small : large;
}

// One of sie_act.
template <int32_t Act>
SIE_DEVICE float activate(float x) {
  static_assert(Act >= SIE_ACT_NONE && Act <= SIE_ACT_SILU, "a sie_act");
  if (Act == SIE_ACT_GELU_ERF) return gelu_erf(x);
  if (Act == SIE_ACT_TANH) return tanh_exp(x);
  if (Act == SIE_ACT_GELU_TANH) return gelu_tanh(x);
  if (Act == SIE_ACT_RELU) return ptx::nan_max(x, 0.0f);
  if (Act == SIE_ACT_SILU) return silu(x);
  return x;
}

// act(gate)·up for one of sie_gate but NONE, rounded after each of the two.
template <int32_t Gate>
SIE_DEVICE float gated(float gate, float up) {
  static_assert(Gate >= SIE_GATE_SWIGLU && Gate <= SIE_GATE_GEGLU_TANH, "a gate");
  float opened = Gate == SIE_GATE_SWIGLU  ? silu(gate)
                 : Gate == SIE_GATE_GEGLU ? gelu_erf(gate)
                                          : gelu_tanh(gate);
  return __fmul_rn(opened, up);
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_ACTIVATION_CUH
