#include "tests/cuda/gemm_check.h"

#include <math.h>

#include "common/dtype.h"
#include "cuda/linear.h"
#include "simt/simt.h"
#include "tests/check.h"

namespace gemm_test {

namespace {

double exact_activation(int32_t act, double z) {
  switch (act) {
    case SIE_ACT_GELU_ERF:
      return 0.5 * z * erfc(-z * 0.70710678118654752440);
    case SIE_ACT_TANH:
      return tanh(z);
    case SIE_ACT_GELU_TANH:
      return 0.5 * z * (1 + tanh(0.79788456080286535588 * (z + 0.044715 * z * z * z)));
    case SIE_ACT_RELU:
      return z > 0 ? z : 0;
    case SIE_ACT_SILU:
      return z / (1 + exp(-z));
    default:
      return z;
  }
}

int32_t gate_activation(int32_t gate) {
  return gate == SIE_GATE_SWIGLU ? SIE_ACT_SILU
                                 : (gate == SIE_GATE_GEGLU ? SIE_ACT_GELU_ERF : SIE_ACT_GELU_TANH);
}

// The expected value of one element, and how far f32 may be from it; without residual.
double expected(const Problem &problem, const Ending &e, int64_t r, int64_t c, double *tolerance) {
  constexpr double own = 2e-6;  // of any activation
  auto z = [&](int64_t column) {
    return problem.z(r, column) + (e.bias ? problem.bias(column) : 0.0) +
           (e.addend ? problem.addend(r, column) : 0.0);
  };
  if (e.gate == SIE_GATE_NONE) {
    *tolerance = 1.13 * problem.z_tolerance(r, c) + (e.act == SIE_ACT_NONE ? 0 : own * fmax(1, fabs(z(c))));
    return exact_activation(e.act, z(c));
  }
  double gate = exact_activation(gate_activation(e.gate), z(2 * c)), up = z(2 * c + 1);
  double gate_tolerance = 1.13 * problem.z_tolerance(r, 2 * c) + own * fmax(1, fabs(z(2 * c)));
  *tolerance = fabs(up) * gate_tolerance + fabs(gate) * problem.z_tolerance(r, 2 * c + 1) +
               gate_tolerance * 1e-3 + 1e-7;
  return gate * up;
}

// One row of y from its values in f32: residual, scales, rounding. Widened again, scales to
// `scale`.
std::vector<float> finished_row(const Problem &problem, const Ending &e, const float *values, int64_t r,
                                std::vector<float> *scale) {
  const int64_t columns = problem.columns(e);
  std::vector<float> v(values, values + columns);
  for (int64_t c = 0; c < columns && e.residual != 0; c++)
    v[static_cast<size_t>(c)] += problem.residual(e.residual, r, c);
  for (int64_t first = 0; first < columns && e.y == SIE_F8E4M3; first += 128) {
    const int64_t last = first + 128 < columns ? first + 128 : columns;
    float most = 0;
    for (int64_t c = first; c < last; c++) most = fmaxf(most, fabsf(v[static_cast<size_t>(c)]));
    scale->push_back(sie_f8_scale(most));
    const float inverse = 1 / scale->back();
    for (int64_t c = first; c < last; c++) v[static_cast<size_t>(c)] *= inverse;
  }
  for (float &x : v) {
    uint8_t element[4];
    store(e.y, element, 0, x);
    x = load(e.y, element, 0);
  }
  return v;
}

// Rows whose stride is a multiple of 16 bytes start on one, too; others at odd elements.
int64_t shift_of(int64_t gap, int64_t ld, int64_t element) {
  return ld * element % 16 == 0 ? 0 : gap * element % 64;
}

}  // namespace

const char *class_name(uint32_t compute) {
  static const char *const names[] = {"", "f32", "bf16", "int8", "f16", "fp8"};
  return names[compute];
}

sie_status call(const Family &family, int32_t variant, const sie_linear_args *a, const sie_stream *on) {
  if (variant != by_choice) return family.run(variant, a, on);
  sie_share share = {};
  share.parts = 1;
  share.on = on;
  return sie_cuda::linear(a, &share);
}

Result run(const Family &family, const Problem &problem, const Ending &e, int32_t variant) {
  const Shape &s = problem.shape();
  const int64_t element = element_bytes(e.y), columns = problem.columns(e), blocks = (columns + 127) / 128;
  const int64_t shift = shift_of(e.gap, problem.y_ld(e), element);
  const bool apart = e.residual != 0 && !e.in_place;
  Bytes y(problem.bytes(e, problem.y_ld(e), e.y), shift);
  Bytes own_residual(apart ? problem.bytes(e, problem.residual_ld(e), e.residual) : 0,
                     shift_of(e.residual_gap, problem.residual_ld(e), element_bytes(e.residual)));
  const Bytes &residual = e.in_place ? y : own_residual;
  const Bytes addend(problem.addend_bytes(e), shift_of(e.residual_gap, problem.addend_ld(e), 4));
  if (e.addend) problem.fill_addend(e, addend);
  if (e.residual != 0) problem.fill_residual(e, residual);
  std::vector<float> scales(static_cast<size_t>(s.cap * blocks + 1), NAN);
  const int32_t n_rows = static_cast<int32_t>(s.n_rows);
  sie_linear_args a = problem.args(e, y, residual, scales.data(), &addend);
  a.rows.n = &n_rows;
  Result result;
  const int64_t x_elements = s.cap > 0 ? (s.cap - 1) * a.x.ld + s.k : 0;
  simt::written_before(a.x.p, static_cast<size_t>(x_elements * element_bytes(a.x.dtype)));
  result.status = call(family, variant, &a, &family.on);
  simt::written_before(nullptr, 0);
  if (result.status != SIE_OK) return result;

  int64_t strangers = 0;
  for (int64_t i = 0; i < y.size(); i++) {
    int64_t row = i / (problem.y_ld(e) * element), column = i % (problem.y_ld(e) * element) / element;
    if ((row >= s.n_rows || column >= columns) && y.p()[i] != 0xff) strangers++;
  }
  for (int64_t i = 0; i < shift; i++) strangers += y.p()[i - shift] != 0xff;
  for (size_t i = static_cast<size_t>(s.n_rows * blocks); i < scales.size(); i++)
    strangers += !isnan(scales[i]);
  CHECK(strangers == 0, "%s R=%lld N=%lld K=%lld variant %d: %lld bytes written that are no elements",
        class_name(s.compute), static_cast<long long>(s.n_rows), static_cast<long long>(s.n),
        static_cast<long long>(s.k), variant, static_cast<long long>(strangers));
  for (int64_t r = 0; r < s.n_rows; r++) {
    for (int64_t c = 0; c < columns; c++)
      result.y.push_back(load(e.y, y.p() + r * problem.y_ld(e) * element, c));
  }
  if (e.y == SIE_F8E4M3) result.scale.assign(scales.begin(), scales.begin() + s.n_rows * blocks);
  return result;
}

bool same_bits(const Result &a, const Result &b) {
  auto same = [](const std::vector<float> &x, const std::vector<float> &y) {
    return x.size() == y.size() && (x.empty() || memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0);
  };
  return a.status == b.status && same(a.y, b.y) && same(a.scale, b.scale);
}

void check_sums(const Problem &problem, const Ending &e, const Result &result, int32_t variant) {
  const Shape &s = problem.shape();
  const int64_t columns = problem.columns(e);
  for (int64_t r = 0; r < s.n_rows; r++) {
    for (int64_t c = 0; c < columns; c++) {
      double tolerance, want = expected(problem, e, r, c, &tolerance);
      double got = static_cast<double>(result.y[static_cast<size_t>(r * columns + c)]);
      CHECK(fabs(got - want) <= tolerance,
            "%s R=%lld N=%lld K=%lld act=%d gate=%d variant %d: y[%lld,%lld] = %.9g, %.9g ± %.2g",
            class_name(s.compute), static_cast<long long>(s.n_rows), static_cast<long long>(s.n),
            static_cast<long long>(s.k), e.act, e.gate, variant, static_cast<long long>(r),
            static_cast<long long>(c), got, want, tolerance);
    }
  }
}

Result check_ending(const Family &family, const Problem &problem, const Ending &e, int32_t variant) {
  const Shape &s = problem.shape();
  Ending plain = e;
  plain.y = SIE_F32;
  plain.residual = 0;
  plain.in_place = plain.odd_bias = false;
  Result base = run(family, problem, plain, variant), result = run(family, problem, e, variant);
  CHECK(base.status == SIE_OK && result.status == SIE_OK, "variant %d: status %d, %d", variant, base.status,
        result.status);
  if (base.status != SIE_OK || result.status != SIE_OK) return result;
  check_sums(problem, plain, base, variant);
  Result want;
  for (int64_t r = 0; r < s.n_rows; r++) {
    std::vector<float> row = finished_row(problem, e, base.y.data() + r * problem.columns(e), r, &want.scale);
    want.y.insert(want.y.end(), row.begin(), row.end());
  }
  CHECK(same_bits(want, result),
        "%s R=%lld N=%lld act=%d gate=%d residual=%d y=%d gap=%lld variant %d: other bits",
        class_name(s.compute), static_cast<long long>(s.n_rows), static_cast<long long>(s.n), e.act, e.gate,
        e.residual, e.y, static_cast<long long>(e.gap), variant);
  return result;
}

namespace {

const int32_t residuals[] = {0, SIE_F32, SIE_BF16, SIE_F16},
              outputs[] = {SIE_F32, SIE_BF16, SIE_F16, SIE_F8E4M3};
// With 10, rows of 150 columns are a multiple of 16 bytes apart in all types and end in the middle
// of one.
constexpr int64_t gaps[] = {0, 10, 3};

}  // namespace

std::vector<Ending> activation_endings() {
  std::vector<Ending> all;
  for (int32_t act = SIE_ACT_NONE; act <= SIE_ACT_SILU; act++) {
    for (int32_t i = 0; i < 4; i++) {
      Ending e;
      e.act = act;
      e.residual = residuals[i];
      e.y = outputs[(act + i) % 4];
      e.bias = (act + i) % 5 != 0;
      e.odd_bias = (act + i) % 2 != 0;
      e.gap = gaps[(act + 2 * i) % 3];
      e.residual_gap = gaps[(act + act / 3) % 3];
      e.in_place = e.residual == e.y;
      e.addend = (act + i) % 3 == 0;
      all.push_back(e);
    }
  }
  return all;
}

std::vector<Ending> gate_endings() {
  std::vector<Ending> all;
  for (int32_t gate = SIE_GATE_SWIGLU; gate <= SIE_GATE_GEGLU_TANH; gate++) {
    for (int32_t i = 0; i < 4; i++) {
      Ending e;
      e.gate = gate;
      e.residual = residuals[(gate + i) % 4];
      e.y = outputs[i];
      e.bias = (gate + i) % 3 != 0;
      e.odd_bias = i % 2 != 0;
      e.gap = gaps[(gate + i) % 3];
      e.residual_gap = gaps[(gate + 2 * i + 1) % 3];
      e.in_place = e.residual == e.y && i == 1;
      e.addend = (gate + i) % 3 == 1;
      all.push_back(e);
    }
  }
  return all;
}

void check_nan_stays_in_its_row(const Family &family, uint32_t compute,
                                const std::vector<int32_t> &variants) {
  const Shape s = {compute, 20, 20, 24, 48, -1, 0};
  Problem problem(s), poisoned(s);
  memset(poisoned.x_row(3), compute == SIE_COMPUTE_FP8 ? 0x7f : 0xff, 4);
  Ending e;
  e.act = SIE_ACT_GELU_ERF;
  for (int32_t variant : variants) {
    Result clean = run(family, problem, e, variant), result = run(family, poisoned, e, variant);
    CHECK(clean.y.size() == 20 * 24 && result.y.size() == clean.y.size(), "%s variant %d: no result",
          class_name(compute), variant);
    for (size_t i = 0; i < clean.y.size() && i < result.y.size(); i++) {
      const bool own = i / 24 == 3;
      CHECK(own ? isnan(result.y[i]) : result.y[i] == clean.y[i], "%s variant %d: row %zu is %g, was %g",
            class_name(compute), variant, i / 24, static_cast<double>(result.y[i]),
            static_cast<double>(clean.y[i]));
    }
  }
}

void check_least_scale(const Family &family, int32_t variant) {
  const Problem problem({SIE_COMPUTE_BF16, 4, 4, 128, 64, -1, 0});
  for (int64_t r = 0; r < 4; r++) memset(problem.x_row(r), 0, 128);
  const std::vector<float> bias(128, ldexpf(448, -100));
  Ending e;
  e.y = SIE_F8E4M3;
  const Bytes y(4 * 128), none(0);
  float scale[4] = {};
  const int32_t n_rows = 4;
  sie_linear_args a = problem.args(e, y, none, scale);
  a.rows.n = &n_rows;
  a.bias = bias.data();
  CHECK(call(family, variant, &a, &family.on) == SIE_OK, "variant %d is not run", variant);
  for (int64_t r = 0; r < 4; r++) {
    CHECK(scale[r] == ldexpf(1, -100) && y.p()[r * 128] == 0x7e, "scale %g, element %02x",
          static_cast<double>(scale[r]), y.p()[r * 128]);
  }
}

}  // namespace gemm_test
