// math.h — exp, erf, tanh and the activations on a Vec: branch-free, in float, errors over dense
// sweeps.
//
//   vexp            ≤ 1 ulp on [−87, 88.7], gradual underflow below, 0 below −104, infinity above
//                   88.73
//   vpow2_weight    2ᵗ for t ≤ 0: relative error ≤ 2.2e-7; 2⁻¹²⁶ from −126 on down
//   verf_half       erf(x/√2): ≤ 6.2 ulp, |error| ≤ 3.7e-7
//   vtanh           ≤ 5.2 ulp, |error| ≤ 3.1e-7
//   gelu_erf        x·Φ(x): |error| ≤ 2.1e-7·max(1, |x|), at most 9.4e-7 for x < 0; 0 from −5.4 on
//                   down
//   gelu_tanh       |error| ≤ 1.8e-7·max(1, |x|)
//   silu            ≤ 2.4 ulp
// A NaN gives a NaN. ±infinity gives the limit (gelu, silu at −∞: 0 or −0). Coefficients are
// minimax fits by iteratively reweighted least squares in double.
#ifndef SIE_KERNELS_CPU_MATH_H
#define SIE_KERNELS_CPU_MATH_H

#include "isa.h"
#include "vec.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

// eˣ = 2ⁿ·e^r with n = rint(x/ln 2), |r| ≤ ln 2/2; ln 2 in two pieces keeps r exact to the last
// bit.
SIE_INLINE Vec vexp(Vec x) {
  x = vmin(vset(89.0f), vmax(vset(-105.0f), x));  // in this order of operands a NaN passes
  Vec n = vrint(x * vset(1.44269504f));
  Vec r = vfnma(n, vset(0.693359375f), x);
  r = vfnma(n, vset(-2.12194440e-4f), r);
  Vec p = vset(1.381416330e-3f);
  p = vfma(p, r, vset(8.368898328e-3f));
  p = vfma(p, r, vset(4.166840648e-2f));
  p = vfma(p, r, vset(1.666651914e-1f));
  p = vfma(p, r, vset(4.999999334e-1f));
  p = vfma(p, r, vset(1.0f));
  p = vfma(p, r, vset(1.0f));
  return vscale(p, n);
}

// 2ᵗ for t ≤ 0, for softmax. It needs two instructions fewer to reduce than base e and one term
// less, and never leaves the normal range.
SIE_INLINE Vec vpow2_weight(Vec t) {
  t = vmax(vset(-126.0f), t);
  const Vec n = vrint(t), r = t - n;
  Vec p = vset(1.326463744e-03f);
  p = vfma(p, r, vset(9.671533745e-03f));
  p = vfma(p, r, vset(5.550734150e-02f));
  p = vfma(p, r, vset(2.402224177e-01f));
  p = vfma(p, r, vset(6.931469773e-01f));
  p = vfma(p, r, vset(1.0f));
  return vscale_normal(p, n);
}

// x clamped to ±limit; a NaN passes.
SIE_INLINE Vec vclamp(Vec x, float limit) { return vmin(vset(limit), vmax(vset(-limit), x)); }

SIE_INLINE Vec verf_half(Vec x) {
  x = vclamp(x, 5.4f);
  Vec u = x * x;
  Vec p = vset(4.718220221e-08f);
  p = vfma(p, u, vset(1.264743063e-05f));
  p = vfma(p, u, vset(3.213883364e-04f));
  p = vfma(p, u, vset(9.257917686e-03f));
  p = vfma(p, u, vset(6.605857836e-02f));
  p = vfma(p, u, vset(7.978845508e-01f));
  Vec q = vset(1.219826518e-06f);
  q = vfma(q, u, vset(7.117264232e-05f));
  q = vfma(q, u, vset(1.838650056e-03f));
  q = vfma(q, u, vset(2.818005000e-02f));
  q = vfma(q, u, vset(2.494586135e-01f));
  q = vfma(q, u, vset(1.0f));
  return vquotient(x * p, q);
}

SIE_INLINE Vec vtanh(Vec x) {
  x = vclamp(x, 9.0f);
  Vec u = x * x;
  Vec p = vset(1.335463971e-08f);
  p = vfma(p, u, vset(2.060906503e-05f));
  p = vfma(p, u, vset(3.495587020e-03f));
  p = vfma(p, u, vset(1.338102470e-01f));
  p = vfma(p, u, vset(9.999999795e-01f));
  Vec q = vset(7.776548912e-07f);
  q = vfma(q, u, vset(3.285633044e-04f));
  q = vfma(q, u, vset(2.587697794e-02f));
  q = vfma(q, u, vset(4.671434030e-01f));
  q = vfma(q, u, vset(1.0f));
  return vclamp(vquotient(x * p, q), 1.0f);
}

SIE_INLINE Vec gelu_erf(Vec x) {
  Vec half = x * vset(0.5f);
  return vzero_unless_above(x, vset(-5.4f), vfma(half, verf_half(x), half));
}

SIE_INLINE Vec gelu_tanh(Vec x) {
  Vec half = x * vset(0.5f);
  Vec t = vtanh(vset(0.797884561f) * vfma(vset(0.044715f) * x * x, x, x));
  return vzero_unless_above(x, vset(-5.4f), vfma(half, t, half));
}

SIE_INLINE Vec relu(Vec x) { return vmax(vset(0.0f), x); }  // a NaN passes

SIE_INLINE Vec silu(Vec x) {
  return vzero_unless_above(x, vset(-120.0f), x / (vset(1.0f) + vexp(vset(0.0f) - x)));
}

// One of sie_act; any other leaves x.
template <int32_t Act>
SIE_INLINE Vec activate(Vec x) {
  if constexpr (Act == SIE_ACT_GELU_ERF) return gelu_erf(x);
  if constexpr (Act == SIE_ACT_TANH) return vtanh(x);
  if constexpr (Act == SIE_ACT_GELU_TANH) return gelu_tanh(x);
  if constexpr (Act == SIE_ACT_RELU) return relu(x);
  if constexpr (Act == SIE_ACT_SILU) return silu(x);
  return x;
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu

#endif  // SIE_KERNELS_CPU_MATH_H
