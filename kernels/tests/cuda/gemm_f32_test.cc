// gemm_f32_test.cc — linear of class F32 under emulation: sums against double, every ending against
// its definition bit for bit, rows that do not depend on other rows or the card, and refusals.
#include "cuda/linear_f32.h"

#include <math.h>

#include "tests/check.h"
#include "tests/cuda/gemm_check.h"

namespace {

using gemm_test::Bytes;
using gemm_test::Ending;
using gemm_test::Family;
using gemm_test::Problem;
using gemm_test::Result;
using gemm_test::Shape;

sie_status run_f32(int32_t, const sie_linear_args *a, const sie_stream *on) {
  return sie_cuda::linear_f32(a, on);
}

// Cards with programmatic launch, where the emulator insists on the wait.
const Family sm100 = {run_f32, {nullptr, 100, 108, 1, 0}}, sm80 = {run_f32, {nullptr, 80, 108, 0, 0}};

// Rows of x keep their alignment; `more` multiples of 16 bytes between them.
Shape shape(int64_t rows, int64_t cap, int64_t n, int64_t k, int64_t more) {
  return {SIE_COMPUTE_F32, rows, cap, n, k, -1, gemm_test::gap(SIE_COMPUTE_F32, k, more)};
}

void check_shape(const Shape &s) {
  const Problem problem(s);
  const Result result = run(sm100, problem, Ending(), 0);
  CHECK(result.status == SIE_OK, "status %d", result.status);
  if (result.status != SIE_OK) return;
  check_sums(problem, Ending(), result, 0);
  CHECK(same_bits(result, run(sm80, problem, Ending(), gemm_test::by_choice)),
        "R=%lld: another card, other bits", static_cast<long long>(s.n_rows));
}

TEST(gemm_f32_rows_columns_and_sums) {
  for (int64_t r : {0, 1, 7, 15, 16, 17, 31, 32, 33, 65}) {
    // Capacity exact, one more, and enough for tiles that must leave at once.
    check_shape(shape(r, r % 3 == 0 ? r : (r % 3 == 1 ? r + 1 : r + 40), 40, 44, r % 2));
  }
  // N around tiles and runs; K around pieces, lines and stages, up to twice as many lines as
  // stages.
  const int64_t shapes[][2] = {{1, 1},  {7, 33},   {8, 31},  {31, 32},  {32, 65},  {33, 96}, {64, 127},
                               {65, 5}, {130, 34}, {9, 160}, {12, 161}, {20, 193}, {24, 400}};
  for (const int64_t *s : shapes) check_shape(shape(19, 21, s[0], s[1], s[1] % 2));
}

TEST(gemm_f32_reads_to_the_end) {
  // x, bias and residual end where the readable memory ends.
  for (int64_t k : {32, 33, 66, 224}) check_shape(shape(16, 16, 128, k, 0));
  const Problem even(shape(4, 4, 20, 96, 0)), odd(shape(8, 8, 21, 32, 0));
  for (int32_t residual : {SIE_F32, SIE_BF16}) {
    Ending e;
    e.residual = residual;
    e.addend = true;
    check_ending(sm100, even, e, 0);
    check_ending(sm100, odd, e, 0);
  }
}

TEST(gemm_f32_endings) {
  const Problem problem(shape(18, 20, 150, 32, 0)), gated(shape(18, 20, 300, 32, 0));
  for (const Ending &e : gemm_test::activation_endings()) {
    if (e.y != SIE_F8E4M3) check_ending(sm100, problem, e, 0);
  }
  for (const Ending &e : gemm_test::gate_endings()) {
    if (e.y != SIE_F8E4M3) check_ending(sm100, gated, e, 0);
  }
}

// z is the bias where x is 0.
float activated(int32_t act, int32_t gate, float z, float up) {
  const Problem problem(shape(1, 1, 2, 4, 0));
  memset(problem.x_row(0), 0, 16);
  const Bytes y(8), none(0);
  const int32_t one = 1;
  const float bias[] = {z, up};
  Ending e;
  e.act = act;
  e.gate = gate;
  sie_linear_args a = problem.args(e, y, none, nullptr);
  a.rows.n = &one;
  a.bias = bias;
  CHECK(sie_cuda::linear_f32(&a, &sm100.on) == SIE_OK, "act %d is refused", act);
  return reinterpret_cast<const float *>(y.p())[0];
}

TEST(gemm_f32_gelu_is_exact) {
  for (int32_t i = -200; i <= 200; i++) {
    const float z = static_cast<float>(i) / 16;
    const double exact =
        0.5 * static_cast<double>(z) * erfc(-static_cast<double>(z) * 0.70710678118654752440);
    const double bound = 2e-7 * fmax(1, fabs(static_cast<double>(z)));
    const double gelu = static_cast<double>(activated(SIE_ACT_GELU_ERF, SIE_GATE_NONE, z, 0)) - exact,
                 gate = static_cast<double>(activated(SIE_ACT_NONE, SIE_GATE_GEGLU, z, 1)) - exact;
    CHECK(fabs(gelu) <= bound && fabs(gate) <= bound, "gelu(%g) is off by %.2g, behind a gate by %.2g",
          static_cast<double>(z), gelu, gate);
  }
  const float large = activated(SIE_ACT_GELU_ERF, SIE_GATE_NONE, INFINITY, 0),
              small = activated(SIE_ACT_GELU_ERF, SIE_GATE_NONE, -INFINITY, 0);
  CHECK(large == INFINITY && small == 0, "gelu of infinities: %g, %g", static_cast<double>(large),
        static_cast<double>(small));
  CHECK(isnan(activated(SIE_ACT_GELU_ERF, SIE_GATE_NONE, NAN, 0)), "%s", "gelu loses a NaN");
}

TEST(gemm_f32_nan_stays_in_its_row) { gemm_test::check_nan_stays_in_its_row(sm100, SIE_COMPUTE_F32, {0}); }

TEST(gemm_f32_refuses) {
  const Problem problem(shape(4, 4, 8, 16, 0)), bf16({SIE_COMPUTE_BF16, 4, 4, 8, 16, -1, 0});
  const Bytes y(4 * 8 * 4), none(0);
  const int32_t n_rows = 4;
  float scale = 0;
  auto expect = [&](const char *what, sie_status want, const sie_linear_args &a, const sie_stream &on) {
    const sie_status status = sie_cuda::linear_f32(&a, &on);
    CHECK(status == want, "%s: status %d", what, status);
    for (int64_t i = 0; i < y.size(); i++) CHECK(y.p()[i] == 0xff, "%s: y was written", what);
  };
  Ending blocks;
  blocks.y = SIE_F8E4M3;
  auto args = [&](const Problem &of, const Ending &e) {
    sie_linear_args a = of.args(e, y, none, &scale);
    a.rows.n = &n_rows;
    return a;
  };
  const sie_linear_args right = args(problem, Ending());
  expect("another class", SIE_UNSUPPORTED, args(bf16, Ending()), sm100.on);
  expect("y in e4m3", SIE_UNSUPPORTED, args(problem, blocks), sm100.on);
  sie_stream turing = sm100.on;
  turing.sm = 75;
  expect("sm_75", SIE_UNSUPPORTED, right, turing);
  sie_linear_args a = right;
  a.x.dtype = SIE_BF16;
  expect("x in bf16", SIE_UNSUPPORTED, a, sm100.on);
  a = right;
  a.x.ld = 18;
  expect("a stride of 18", SIE_UNSUPPORTED, a, sm100.on);
  a.x.ld = 12;
  expect("a stride below K", SIE_INVALID_ARGUMENT, a, sm100.on);
  // 2³¹ tiles of 16×32, and one row of tiles less, which the launcher lets pass and the emulator
  // does not.
  sie_packed wide = *right.w;
  a = right;
  a.w = &wide;
  a.n = wide.n = a.y.ld = 256;
  a.rows.cap = int64_t{1} << 30;
  expect("8 times 2²⁶ tiles", SIE_OUT_OF_MEMORY, a, sm100.on);
  a.n = wide.n = a.y.ld = 1024;
  expect("32 times 2²⁶ tiles", SIE_UNSUPPORTED, a, sm100.on);
  a.rows.cap -= 16;
  expect("as many as int32 counts", SIE_OUT_OF_MEMORY, a, sm100.on);
  a = right;
  a.rows = {0, nullptr};
  a.x.p = a.y.p = nullptr;
  expect("no rows", SIE_OK, a, sm100.on);
  expect("no rows on sm_75", SIE_UNSUPPORTED, a, turing);
}

}  // namespace
