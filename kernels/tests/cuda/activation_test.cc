// activation_test.cc — the error bounds that activation.cuh states, over a dense grid and at the
// edges.
#include "cuda/activation.cuh"

#include <math.h>

#include "common/dtype.h"
#include "tests/check.h"

namespace {

constexpr double sqrt_half = 0.70710678118654752440, sqrt_2_over_pi = 0.79788456080286535588;

double gelu_exact(double x) {
  return 0.5 * x * erfc(-x * sqrt_half);
}  // erfc keeps the tail's relative accuracy

struct Worst {
  double error = 0, at = 0;
  void add(double e, double x) {
    if (!(e <= error)) {  // a NaN counts as the worst
      error = e;
      at = x;
    }
  }
};

TEST(activations_hold_their_bounds) {
  Worst absolute, relative, ulps, silu, gelu_tanh, tanh_relative;
  for (int32_t i = -655360; i <= 655360; i++) {
    const float x = static_cast<float>(i) / 65536;
    const double d = static_cast<double>(x), magnitude = fabs(d) > 1 ? fabs(d) : 1;
    const double exact = gelu_exact(d);
    const float y = sie_cuda::gelu_erf(x);
    absolute.add(fabs(static_cast<double>(y) - exact), d);
    if (i != 0 && x >= -5.9f) {
      relative.add(fabs(static_cast<double>(y) / exact - 1), d);
      double stored = static_cast<double>(sie_f32_from_bf16(sie_bf16_from_f32(y)));
      ulps.add(fabs(stored - exact) / ldexp(1, ilogb(exact) - 7), d);
    }
    silu.add(fabs(static_cast<double>(sie_cuda::silu(x)) - d / (1 + exp(-d))) / magnitude, d);
    double tanh_form = 0.5 * d * (1 + tanh(sqrt_2_over_pi * (d + 0.044715 * d * d * d)));
    gelu_tanh.add(fabs(static_cast<double>(sie_cuda::gelu_tanh(x)) - tanh_form) / magnitude, d);
    if (i != 0) tanh_relative.add(fabs(static_cast<double>(sie_cuda::tanh_exp(x)) / tanh(d) - 1), d);
  }
  CHECK(absolute.error <= 1.5e-6, "GELU_ERF is off by %g at %g", absolute.error, absolute.at);
  CHECK(relative.error <= 1e-4, "GELU_ERF is off by %g relative at %g", relative.error, relative.at);
  CHECK(ulps.error <= 0.53, "GELU_ERF in bf16 is off by %g ulp at %g", ulps.error, ulps.at);
  CHECK(silu.error <= 2e-7, "SILU is off by %g at %g", silu.error, silu.at);
  CHECK(gelu_tanh.error <= 2e-7, "GELU_TANH is off by %g at %g", gelu_tanh.error, gelu_tanh.at);
  CHECK(tanh_relative.error <= 4e-7, "TANH is off by %g relative at %g", tanh_relative.error,
        tanh_relative.at);
}

TEST(activations_at_the_edges) {
  using sie_cuda::activate;
  const float infinity = INFINITY, not_a_number = NAN;
  CHECK(isnan(activate<SIE_ACT_GELU_ERF>(not_a_number)) && isnan(activate<SIE_ACT_TANH>(not_a_number)) &&
            isnan(activate<SIE_ACT_GELU_TANH>(not_a_number)) && isnan(activate<SIE_ACT_RELU>(not_a_number)) &&
            isnan(activate<SIE_ACT_SILU>(not_a_number)) && isnan(activate<SIE_ACT_NONE>(not_a_number)),
        "%s", "an activation lost a NaN");
  CHECK(activate<SIE_ACT_GELU_ERF>(infinity) == infinity && activate<SIE_ACT_SILU>(infinity) == infinity &&
            activate<SIE_ACT_GELU_TANH>(infinity) == infinity && activate<SIE_ACT_RELU>(infinity) == infinity,
        "%s", "an activation of +infinity is not infinite");
  CHECK(fabsf(activate<SIE_ACT_GELU_ERF>(-infinity)) < 1e-8f, "GELU_ERF(-infinity) = %g",
        static_cast<double>(activate<SIE_ACT_GELU_ERF>(-infinity)));
  CHECK(activate<SIE_ACT_TANH>(infinity) == 1 && activate<SIE_ACT_TANH>(-infinity) == -1, "%s",
        "tanh at infinity");
  CHECK(activate<SIE_ACT_RELU>(-infinity) == 0 && activate<SIE_ACT_RELU>(-1.0f) == 0, "%s", "relu below 0");
  for (float x = 16; x < 1e38f; x *= 3) {
    CHECK(activate<SIE_ACT_GELU_ERF>(x) == x && activate<SIE_ACT_SILU>(x) > 0.999f * x &&
              activate<SIE_ACT_GELU_TANH>(x) == x && activate<SIE_ACT_TANH>(x) == 1,
          "an activation of %g", static_cast<double>(x));
    CHECK(fabsf(activate<SIE_ACT_GELU_ERF>(-x)) < 1e-8f && fabsf(activate<SIE_ACT_SILU>(-x)) < 2e-6f &&
              activate<SIE_ACT_GELU_TANH>(-x) == 0 && activate<SIE_ACT_TANH>(-x) == -1,
          "an activation of %g", static_cast<double>(-x));
  }
  CHECK(sie_cuda::gated<SIE_GATE_SWIGLU>(1.5f, -2.0f) == -2.0f * sie_cuda::silu(1.5f), "%s", "SwiGLU");
  CHECK(sie_cuda::gated<SIE_GATE_GEGLU>(1.5f, -2.0f) == -2.0f * sie_cuda::gelu_erf(1.5f), "%s", "GeGLU");
  CHECK(sie_cuda::gated<SIE_GATE_GEGLU_TANH>(1.5f, -2.0f) == -2.0f * sie_cuda::gelu_tanh(1.5f), "%s",
        "GeGLU tanh");
}

}  // namespace
