// gemm_sm80_test.cc — the mma.sync GEMM under emulation: every tile variant against sums in double, all
// variants of a class against each other bit for bit, every ending against its definition bit for bit, and
// what must be refused.
#include "cuda/gemm_sm80.h"

#include <math.h>

#include "common/dtype.h"
#include "common/tol.h"
#include "cuda/activation.cuh"
#include "tests/check.h"
#include "tests/cuda/gemm_problem.h"

namespace {

using gemm_test::Bytes;
using gemm_test::Ending;
using gemm_test::Problem;
using gemm_test::Shape;
using std::vector;

const char *const classes[] = {"", "f32", "bf16", "int8", "f16", "fp8"};

sie_stream stream_for(uint32_t compute) {
  sie_stream on = {};
  on.sm = compute == SIE_COMPUTE_FP8 ? 89 : 80;
  on.multiprocessors = 108;
  return on;
}

constexpr int32_t by_choice = -1;  // gemm_sm80_linear instead of a variant

struct Result {
  sie_status status = SIE_OK;
  vector<float> y;      // [n_rows, columns], widened
  vector<float> scale;  // y in e4m3: [n_rows, blocks]
};

// Runs and checks what holds for every run: nothing written outside y's elements of the rows that exist.
Result run(const Problem &problem, const Ending &e, int32_t variant) {
  const Shape &s = problem.shape();
  const int64_t element = gemm_test::element_bytes(e.y), columns = problem.columns(e),
                blocks = (columns + 127) / 128;
  const int64_t shift = e.gap * element % 64,
                residual_shift = e.gap * gemm_test::element_bytes(e.residual) % 64;
  Bytes y(problem.y_bytes(e, e.y), shift);
  Bytes own_residual(e.residual != 0 && !e.in_place ? problem.y_bytes(e, e.residual) : 0, residual_shift);
  const Bytes &residual = e.in_place ? y : own_residual;
  if (e.residual != 0) problem.fill_residual(e, residual);
  vector<float> scales(static_cast<size_t>(s.cap * blocks + 1), NAN);
  const int32_t n_rows = static_cast<int32_t>(s.n_rows);
  sie_linear_args a = problem.args(e, y, residual, scales.data());
  a.rows.n = &n_rows;
  sie_stream on = stream_for(s.compute);
  sie_share share = {};
  share.parts = 1;
  share.on = &on;
  Result result;
  result.status = variant == by_choice ? sie_cuda::gemm_sm80_linear(&a, &share)
                                       : sie_cuda::gemm_sm80_run(variant, &a, &on);
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
        classes[s.compute], static_cast<long long>(s.n_rows), static_cast<long long>(s.n),
        static_cast<long long>(s.k), variant, static_cast<long long>(strangers));
  for (int64_t r = 0; r < s.n_rows; r++) {
    for (int64_t c = 0; c < columns; c++) {
      result.y.push_back(gemm_test::load(e.y, y.p() + r * problem.y_ld(e) * element, c));
    }
  }
  if (e.y == SIE_F8E4M3) result.scale.assign(scales.begin(), scales.begin() + s.n_rows * blocks);
  return result;
}

bool same_bits(const vector<float> &a, const vector<float> &b) {
  return a.size() == b.size() && (a.empty() || memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

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

// What one element is, and how far f32 may be from it; no residual.
double expected(const Problem &problem, const Ending &e, int64_t r, int64_t c, double *tolerance) {
  constexpr double own = 2e-6;  // of any activation
  auto z = [&](int64_t column) { return problem.z(r, column) + (e.bias ? problem.bias(column) : 0.0); };
  if (e.gate == SIE_GATE_NONE) {
    double magnitude = fmax(1, fabs(z(c)));
    *tolerance = 1.13 * problem.z_tolerance(r, c) + (e.act == SIE_ACT_NONE ? 0 : own * magnitude);
    return exact_activation(e.act, z(c));
  }
  double gate = exact_activation(gate_activation(e.gate), z(2 * c)), up = z(2 * c + 1);
  double gate_tolerance = 1.13 * problem.z_tolerance(r, 2 * c) + own * fmax(1, fabs(z(2 * c)));
  *tolerance = fabs(up) * gate_tolerance + fabs(gate) * problem.z_tolerance(r, 2 * c + 1) +
               gate_tolerance * 1e-3 + 1e-7;
  return gate * up;
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
            classes[s.compute], static_cast<long long>(s.n_rows), static_cast<long long>(s.n),
            static_cast<long long>(s.k), e.act, e.gate, variant, static_cast<long long>(r),
            static_cast<long long>(c), got, want, tolerance);
    }
  }
}

// All variants: the first against double, the others bit for bit.
void check_shape(const Shape &s) {
  Problem problem(s);
  Ending e;
  Result first;
  for (int32_t variant = 0; sie_cuda::gemm_sm80_variant(s.compute, variant) != nullptr; variant++) {
    Result result = run(problem, e, variant);
    CHECK(result.status == SIE_OK, "variant %d: status %d", variant, result.status);
    if (result.status != SIE_OK) return;
    if (variant == 0) {
      check_sums(problem, e, result, variant);
      first = result;
    }
    CHECK(same_bits(result.y, first.y), "%s R=%lld N=%lld K=%lld: variant %s gives other bits",
          classes[s.compute], static_cast<long long>(s.n_rows), static_cast<long long>(s.n),
          static_cast<long long>(s.k), sie_cuda::gemm_sm80_variant(s.compute, variant)->name);
  }
}

const uint32_t computes[] = {SIE_COMPUTE_BF16, SIE_COMPUTE_F16, SIE_COMPUTE_FP8};

TEST(gemm_sm80_rows) {
  const int64_t rows[] = {0, 1, 7, 16, 17, 31, 32, 33, 64, 65, 130};
  for (uint32_t compute : computes) {
    for (int64_t r : rows) {
      // Capacity exact, one more, and enough for tiles that must leave at once.
      int64_t cap = r % 3 == 0 ? r : (r % 3 == 1 ? r + 1 : r + 140);
      check_shape({compute, r, cap, 40, 80, r % 2 == 0 ? 128 : -1, 16});
    }
  }
}

TEST(gemm_sm80_columns_and_sums) {
  // N around tiles and runs; K around lines, stages and promotion, up to more lines than stages.
  const int64_t shapes[][2] = {{1, 16},    {7, 32},    {8, 48},   {33, 64},  {65, 96}, {127, 112},
                               {130, 128}, {264, 144}, {24, 272}, {34, 400}, {9, 1040}};
  for (uint32_t compute : computes) {
    for (const int64_t *shape : shapes) {
      check_shape(
          {compute, 19, 21, shape[0], shape[1], shape[0] % 2 == 0 ? 128 : -1, shape[1] % 32 == 0 ? 0 : 16});
    }
    if (compute != SIE_COMPUTE_FP8) check_shape({compute, 5, 5, 12, 8, 0, 8});
    if (compute != SIE_COMPUTE_FP8) check_shape({compute, 18, 20, 20, 200, 0, 0});
  }
  // Tile rows enough for two groups of the grid's order.
  check_shape({SIE_COMPUTE_BF16, 300, 310, 70, 16, 0, 0});
}

// Endings on one shape: y in f32 against double, then everything else derived from it bit for bit.
void check_ending(const Problem &problem, Ending e, int32_t variant) {
  const Shape &s = problem.shape();
  const int64_t columns = problem.columns(e), blocks = (columns + 127) / 128;
  Ending plain = e;
  plain.y = SIE_F32;
  plain.residual = 0;
  plain.in_place = false;
  Result base = run(problem, plain, variant), result = run(problem, e, variant);
  CHECK(base.status == SIE_OK && result.status == SIE_OK, "variant %d: status %d, %d", variant, base.status,
        result.status);
  if (base.status != SIE_OK || result.status != SIE_OK) return;
  check_sums(problem, plain, base, variant);
  int64_t wrong = 0, at = 0;
  for (int64_t r = 0; r < s.n_rows; r++) {
    vector<float> v(static_cast<size_t>(columns));
    for (int64_t c = 0; c < columns; c++) {
      float x = base.y[static_cast<size_t>(r * columns + c)];
      v[static_cast<size_t>(c)] = e.residual != 0 ? x + problem.residual(e.residual, r, c) : x;
    }
    for (int64_t block = 0; block < blocks && e.y == SIE_F8E4M3; block++) {
      float most = 0;
      for (int64_t c = block * 128; c < columns && c < block * 128 + 128; c++) {
        most = fmaxf(most, fabsf(v[static_cast<size_t>(c)]));
      }
      float scale = sie_f8_scale(most), inverse = 1 / scale;
      wrong += result.scale[static_cast<size_t>(r * blocks + block)] != scale;
      for (int64_t c = block * 128; c < columns && c < block * 128 + 128; c++)
        v[static_cast<size_t>(c)] *= inverse;
    }
    for (int64_t c = 0; c < columns; c++) {
      uint8_t element[4];
      gemm_test::store(e.y, element, 0, v[static_cast<size_t>(c)]);
      float want = gemm_test::load(e.y, element, 0), got = result.y[static_cast<size_t>(r * columns + c)];
      if (memcmp(&want, &got, sizeof want) != 0) {
        wrong++;
        at = r * columns + c;
      }
    }
  }
  CHECK(wrong == 0,
        "%s N=%lld act=%d gate=%d residual=%d y=%d gap=%lld variant %d: %lld elements differ, one is %lld",
        classes[s.compute], static_cast<long long>(s.n), e.act, e.gate, e.residual, e.y,
        static_cast<long long>(e.gap), variant, static_cast<long long>(wrong), static_cast<long long>(at));
}

// The last variant whose tile takes the ending, which is the smallest.
int32_t small_variant(uint32_t compute, const Ending &e) {
  if (e.y != SIE_F8E4M3) return compute == SIE_COMPUTE_FP8 ? 3 : 5;
  if (e.gate != SIE_GATE_NONE) return compute == SIE_COMPUTE_FP8 ? 1 : 0;
  return 2;
}

TEST(gemm_sm80_endings) {
  const int32_t residuals[] = {0, SIE_F32, SIE_BF16, SIE_F16},
                outputs[] = {SIE_F32, SIE_BF16, SIE_F16, SIE_F8E4M3};
  for (uint32_t compute : computes) {
    Problem problem({compute, 18, 20, 50, 32, -1, 0});
    int turn = 0;
    for (int32_t act = SIE_ACT_NONE; act <= SIE_ACT_SILU; act++) {
      for (int32_t residual : residuals) {
        Ending e;
        e.act = act;
        e.residual = residual;
        e.y = outputs[turn % 4];
        e.bias = turn % 5 != 0;
        e.gap = turn % 3 == 0
                    ? 0
                    : (turn % 3 == 1 ? 14 : 3);  // columns + 14 is a multiple of 16 bytes in all types
        e.in_place = residual == e.y && turn % 2 == 0;
        check_ending(problem, e, small_variant(compute, e));
        turn += turn % 4 == 3 ? 2 : 1;
      }
    }
    for (int32_t gate = SIE_GATE_SWIGLU; gate <= SIE_GATE_GEGLU_TANH; gate++) {
      for (int32_t y : outputs) {
        Ending e;
        e.gate = gate;
        e.residual = residuals[turn % 4];
        e.y = y;
        e.bias = turn % 3 != 0;
        e.gap = turn % 2 == 0 ? 7 : 0;
        check_ending(problem, e, small_variant(compute, e));
        turn += y == SIE_F8E4M3 ? 2 : 1;
      }
    }
  }
}

TEST(gemm_sm80_wide_endings) {
  // Aligned rows of whole runs, several blocks of e4m3 scales, on each variant that takes them.
  for (uint32_t compute : computes) {
    Problem problem({compute, 37, 40, 400, 64, 128, 0});
    const int32_t types[] = {SIE_BF16, SIE_F32, SIE_F8E4M3};
    for (int32_t variant = 0; sie_cuda::gemm_sm80_variant(compute, variant) != nullptr; variant++) {
      for (int gate = 0; gate < 2; gate++) {
        Ending e;
        e.gate = gate != 0 ? SIE_GATE_GEGLU : SIE_GATE_NONE;
        e.act = gate != 0 ? SIE_ACT_NONE : SIE_ACT_GELU_ERF;
        e.y = types[(variant + gate) % 3];
        e.residual = SIE_BF16;
        e.in_place = e.y == SIE_BF16;
        check_ending(problem, e, e.y == SIE_F8E4M3 ? small_variant(compute, e) : variant);
      }
    }
    for (int32_t variant = 0; variant < 3; variant++) {
      Ending e;
      e.act = SIE_ACT_GELU_ERF;
      e.y = SIE_F8E4M3;
      check_ending(problem, e, variant);
    }
  }
}

TEST(gemm_sm80_nan_stays_in_its_row) {
  for (uint32_t compute : computes) {
    Problem problem({compute, 20, 20, 24, 48, -1, 0});
    for (int32_t variant = 0; sie_cuda::gemm_sm80_variant(compute, variant) != nullptr; variant++) {
      Problem poisoned({compute, 20, 20, 24, 48, -1, 0});
      memset(poisoned.x_row(3), compute == SIE_COMPUTE_FP8 ? 0x7f : 0xff, 2);
      Ending e;
      e.act = SIE_ACT_GELU_ERF;
      Result clean = run(problem, e, variant), result = run(poisoned, e, variant);
      for (size_t i = 0; i < clean.y.size(); i++) {
        bool own = i / 24 == 3;
        CHECK(own ? isnan(result.y[i]) : result.y[i] == clean.y[i], "%s variant %d: row %zu is %g, was %g",
              classes[compute], variant, i / 24, static_cast<double>(result.y[i]),
              static_cast<double>(clean.y[i]));
      }
    }
  }
}

TEST(gemm_sm80_choice) {
  for (uint32_t compute : computes) {
    Problem problem({compute, 33, 33, 48, 48, -1, 0});
    for (int32_t y : {SIE_BF16, SIE_F8E4M3}) {
      for (int32_t gate : {SIE_GATE_NONE, SIE_GATE_SWIGLU}) {
        Ending e;
        e.y = y;
        e.gate = gate;
        Result chosen = run(problem, e, by_choice), other = run(problem, e, small_variant(compute, e));
        CHECK(chosen.status == SIE_OK && same_bits(chosen.y, other.y) && same_bits(chosen.scale, other.scale),
              "%s y=%d gate=%d: status %d, or other bits", classes[compute], y, gate, chosen.status);
      }
    }
    // Many rows take a large tile, few a small one; no tile is too large for a block of scales.
    Bytes none(0);
    float scale = 0;
    sie_stream on = stream_for(compute);
    Problem weights({compute, 0, 0, 768, 768, -1, 0});
    sie_linear_args a = weights.args(Ending(), none, none, &scale);
    a.rows.cap = 16384;
    const sie_cuda::GemmSm80Variant *variant =
        sie_cuda::gemm_sm80_variant(compute, sie_cuda::gemm_sm80_choose(&a, &on));
    CHECK(variant != nullptr && variant->rows == 128, "%s: %s for 16384 rows", classes[compute],
          variant->name);
    a.rows.cap = 8;
    variant = sie_cuda::gemm_sm80_variant(compute, sie_cuda::gemm_sm80_choose(&a, &on));
    CHECK(variant != nullptr && variant->rows == 16, "%s: %s for 8 rows", classes[compute], variant->name);
  }
}

TEST(gemm_sm80_refuses) {
  Problem problem({SIE_COMPUTE_BF16, 4, 4, 8, 16, -1, 0}), fp8({SIE_COMPUTE_FP8, 4, 4, 8, 16, -1, 0});
  Ending e;
  Bytes y(4 * 8 * 4), none(0);
  const int32_t n_rows = 4;
  auto refused = [&](const Problem &of, sie_status want, const char *what, auto change) {
    sie_stream on = stream_for(of.shape().compute);
    sie_packed packed = *of.args(e, y, none, nullptr).w;
    sie_linear_args a = of.args(e, y, none, nullptr);
    a.rows.n = &n_rows;
    a.w = &packed;
    change(&a, &packed, &on);
    sie_share share = {};
    share.parts = 1;
    share.on = &on;
    CHECK(sie_cuda::gemm_sm80_linear(&a, &share) == want, "%s: status %d", what,
          sie_cuda::gemm_sm80_linear(&a, &share));
    CHECK(sie_cuda::gemm_sm80_choose(&a, &on) == -1, "%s: a variant is chosen", what);
    for (int64_t i = 0; i < y.size(); i++) CHECK(y.p()[i] == 0xff, "%s: y was written", what);
  };
  using A = sie_linear_args *;
  using W = sie_packed *;
  using S = sie_stream *;
  const sie_status unsupported = SIE_UNSUPPORTED, invalid = SIE_INVALID_ARGUMENT;
  refused(problem, unsupported, "sm_75", [](A, W, S on) { on->sm = 75; });
  refused(problem, unsupported, "sm_90", [](A, W, S on) { on->sm = 90; });
  refused(fp8, unsupported, "fp8 on sm_86", [](A, W, S on) { on->sm = 86; });
  refused(fp8, unsupported, "fp8 on sm_103", [](A, W, S on) { on->sm = 103; });
  refused(problem, unsupported, "class int8", [](A, W w, S) { w->compute = SIE_COMPUTE_INT8; });
  refused(problem, unsupported, "x of another type", [](A a, W, S) { a->x.dtype = SIE_F16; });
  refused(problem, unsupported, "y u8", [](A a, W, S) { a->y.dtype = SIE_U8; });
  refused(problem, unsupported, "y e4m3 a row", [](A a, W, S) {
    a->y.dtype = SIE_F8E4M3;
    a->y.scale_group = -1;
  });
  refused(problem, unsupported, "residual u8", [](A a, W, S) {
    a->residual = a->y;
    a->residual.dtype = SIE_U8;
  });
  refused(fp8, unsupported, "scales of 64", [](A a, W, S) { a->x.scale_group = 64; });
  refused(problem, invalid, "K 12", [](A a, W w, S) { a->k = w->k = 12; });
  refused(problem, invalid, "K 0", [](A a, W w, S) { a->k = w->k = 0; });
  refused(fp8, invalid, "K 8 in fp8", [](A a, W w, S) { a->k = w->k = 8; });
  refused(problem, invalid, "K of another weight", [](A, W w, S) { w->k = 32; });
  refused(problem, invalid, "N of another weight", [](A, W w, S) { w->n = 32; });
  refused(problem, invalid, "N 0", [](A a, W w, S) { a->n = w->n = 0; });
  refused(problem, invalid, "x at 2 bytes", [](A a, W, S) { a->x.p = static_cast<uint8_t *>(a->x.p) + 2; });
  refused(problem, invalid, "a stride of 17", [](A a, W, S) { a->x.ld = 17; });
  refused(problem, invalid, "a stride below K", [](A a, W, S) { a->x.ld = 8; });
  refused(problem, invalid, "y's stride below N", [](A a, W, S) { a->y.ld = 7; });
  refused(problem, invalid, "y at 1 byte", [](A a, W, S) { a->y.p = static_cast<uint8_t *>(a->y.p) + 1; });
  refused(problem, invalid, "residual's stride below N", [](A a, W, S) {
    a->residual = a->y;
    a->residual.ld = 7;
  });
  refused(problem, invalid, "an unknown act", [](A a, W, S) { a->act = 9; });
  refused(problem, invalid, "an unknown gate", [](A a, W, S) { a->gate = 4; });
  refused(problem, invalid, "act and gate", [](A a, W, S) {
    a->gate = SIE_GATE_GEGLU;
    a->act = SIE_ACT_RELU;
  });
  refused(problem, invalid, "an odd N with a gate", [](A a, W w, S) {
    a->gate = SIE_GATE_GEGLU;
    a->n = w->n = 7;
  });
  refused(fp8, invalid, "no scales of x", [](A a, W, S) { a->x.scale = nullptr; });
  refused(problem, invalid, "no scales of y", [](A a, W, S) {
    a->y.dtype = SIE_F8E4M3;
    a->y.scale_group = 128;
  });
  sie_linear_args a = problem.args(e, y, none, nullptr);
  CHECK(sie_cuda::gemm_sm80_run(0, &a, nullptr) == invalid, "%s", "no stream");
  sie_stream on = stream_for(SIE_COMPUTE_BF16);
  CHECK(sie_cuda::gemm_sm80_run(99, &a, &on) == invalid, "%s", "no such variant");
  CHECK(sie_cuda::gemm_sm80_variant(SIE_COMPUTE_F32, 0) == nullptr, "%s", "a variant of class f32");
}

}  // namespace

int main(int argc, char **argv) { return check::run_tests(argc, argv); }
