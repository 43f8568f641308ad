// gemm_sm90_test.cc — the wgmma GEMM under emulation: every variant against sums in double, all variants of a
// class against each other bit for bit (the skinny form too), every ending against its definition, and what
// is refused.
#include "cuda/gemm_sm90.h"

#include <math.h>

#include "tests/check.h"
#include "tests/cuda/gemm_check.h"

namespace {

using gemm_test::Bytes;
using gemm_test::check_ending;
using gemm_test::Ending;
using gemm_test::Family;
using gemm_test::Problem;
using gemm_test::Result;
using gemm_test::Shape;

enum Variant {
  skinny,
  pingpong_64,
  pingpong_128,
  pingpong_pair,
  pingpong_192,
  cooperative,
  cooperative_pair
};

// Few multiprocessors: each CTA gets several tiles.
Family family(int32_t multiprocessors = 2) {
  return {sie_cuda::gemm_sm90_run, {nullptr, 90, multiprocessors, 1, 0}};
}

// Elements that fill the rows of x up to a multiple of 16 bytes, and `more` such multiples.
int64_t gap(uint32_t compute, int64_t k, int64_t more) {
  const int64_t of_16 = compute == SIE_COMPUTE_FP8 ? 16 : 8;
  return (of_16 - k % of_16) % of_16 + more * of_16;
}

Shape shape(uint32_t compute, int64_t rows, int64_t cap, int64_t n, int64_t k, int32_t x_group) {
  return {compute, rows, cap, n, k, x_group, gap(compute, k, n % 3)};
}

// All variants that take it: the first against double, the others bit for bit.
void check_shape(const Shape &s, const Ending &e = Ending(), int32_t multiprocessors = 2) {
  Problem problem(s);
  Result first;
  bool any = false;
  const Family of = family(multiprocessors);
  for (int32_t variant = 0; sie_cuda::gemm_sm90_variant(variant) != nullptr; variant++) {
    Bytes none(0);
    sie_linear_args a = problem.args(e, none, none, nullptr);
    if (!sie_cuda::gemm_sm90_takes(variant, &a)) continue;
    Result result = any ? run(of, problem, e, variant) : check_ending(of, problem, e, variant);
    CHECK(result.status == SIE_OK, "variant %d: status %d", variant, result.status);
    if (!any) first = result;
    any = true;
    CHECK(same_bits(result, first), "%s R=%lld N=%lld K=%lld: variant %s gives other bits",
          gemm_test::class_name(s.compute), static_cast<long long>(s.n_rows), static_cast<long long>(s.n),
          static_cast<long long>(s.k), sie_cuda::gemm_sm90_variant(variant)->name);
  }
  CHECK(any, "%s", "no variant takes it");
}

const uint32_t computes[] = {SIE_COMPUTE_BF16, SIE_COMPUTE_F16, SIE_COMPUTE_FP8};

TEST(gemm_sm90_rows) {
  const int64_t rows[] = {0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129};
  for (uint32_t compute : computes) {
    for (int64_t r : rows) {
      // Capacity exact, one more, and enough for tiles that do not exist in this run.
      int64_t cap = r % 3 == 0 ? r : (r % 3 == 1 ? r + 1 : r + 70);
      check_shape(shape(compute, r, cap, 72, 80, r % 2 == 0 ? 128 : -1));
    }
    check_shape(shape(compute, 0, 40, 24, 64, 128));
  }
}

TEST(gemm_sm90_columns_and_sums) {
  // N around pairs, pieces and tiles; K around lines, down to what is no multiple of anything.
  const int64_t shapes[][2] = {{1, 1},    {3, 64},    {8, 63},    {33, 65},  {64, 128}, {65, 127}, {127, 129},
                               {130, 40}, {192, 191}, {193, 256}, {257, 33}, {2, 300},  {320, 16}};
  for (uint32_t compute : computes) {
    for (const int64_t *s : shapes) check_shape(shape(compute, 19, 21, s[0], s[1], s[0] % 2 == 0 ? 128 : -1));
  }
}

TEST(gemm_sm90_many_steps) {
  // More K steps than any ring has stages, several times around; several tiles a CTA; odd and even numbers of
  // them.
  for (uint32_t compute : computes) {
    const int64_t step = compute == SIE_COMPUTE_FP8 ? 128 : 64;
    check_shape(shape(compute, 40, 40, 140, 19 * step - 5, 128));
    check_shape(shape(compute, 200, 210, 400, 3 * step, 128));
    check_shape(shape(compute, 330, 340, 130, step, -1), Ending(), 3);
    check_shape(shape(compute, 64, 64, 300, 9 * step, 128), Ending(), 1);
  }
}

TEST(gemm_sm90_many_tiles) {
  // More than one band of row tiles, on one CTA and on many.
  check_shape(shape(SIE_COMPUTE_BF16, 1100, 1200, 260, 16, -1), Ending(), 4);
  check_shape(shape(SIE_COMPUTE_FP8, 600, 600, 70, 16, -1), Ending(), 64);
}

TEST(gemm_sm90_endings) {
  const int32_t residuals[] = {0, SIE_F32, SIE_BF16, SIE_F16},
                outputs[] = {SIE_F32, SIE_BF16, SIE_F16, SIE_F8E4M3};
  for (uint32_t compute : computes) {
    Problem problem(shape(compute, 37, 40, 150, 32, -1));
    int turn = 0;
    for (int32_t act = SIE_ACT_NONE; act <= SIE_ACT_SILU; act++) {
      for (int32_t residual : residuals) {
        Ending e;
        e.act = act;
        e.residual = residual;
        e.y = outputs[turn % 4];
        e.bias = turn % 5 != 0;
        e.gap =
            turn % 3 == 0 ? 0 : (turn % 3 == 1 ? 10 : 3);  // 150 + 10 is a multiple of 16 bytes in all types
        e.in_place = residual == e.y && turn % 2 == 0;
        check_ending(family(), problem, e, e.y == SIE_F8E4M3 || turn % 2 == 0 ? pingpong_64 : skinny);
        turn += turn % 4 == 3 ? 2 : 1;
      }
    }
  }
}

TEST(gemm_sm90_gates) {
  const int32_t residuals[] = {0, SIE_F32, SIE_BF16, SIE_F16},
                outputs[] = {SIE_F32, SIE_BF16, SIE_F16, SIE_F8E4M3};
  for (uint32_t compute : computes) {
    Problem problem(shape(compute, 18, 20, 300, 32, -1));
    int turn = 0;
    for (int32_t gate = SIE_GATE_SWIGLU; gate <= SIE_GATE_GEGLU_TANH; gate++) {
      for (int32_t y : outputs) {
        Ending e;
        e.gate = gate;
        e.residual = residuals[turn % 4];
        e.y = y;
        e.bias = turn % 3 != 0;
        e.gap = turn % 2 == 0 ? 7 : 10;
        e.in_place = e.residual == y;
        Result wide = check_ending(family(), problem, e, y == SIE_F8E4M3 ? cooperative : pingpong_64);
        if (y != SIE_F8E4M3) {
          Result swapped = run(family(), problem, e, skinny);
          CHECK(same_bits(wide, swapped), "gate %d, y %d: the skinny form gives other bits", gate, y);
        }
        turn += y == SIE_F8E4M3 ? 2 : 1;
      }
    }
  }
}

TEST(gemm_sm90_endings_of_all_tiles) {
  // Rows for whole 16-row pieces and a rest, several blocks of e4m3 scales; in place; x in blocks.
  for (uint32_t compute : computes) {
    for (int32_t y : {SIE_BF16, SIE_F32, SIE_F8E4M3}) {
      for (int32_t gate : {SIE_GATE_NONE, SIE_GATE_GEGLU}) {
        Ending e;
        e.gate = gate;
        e.act = gate == SIE_GATE_NONE ? SIE_ACT_GELU_ERF : SIE_ACT_NONE;
        e.y = y;
        e.residual = SIE_BF16;
        e.in_place = y == SIE_BF16;
        check_shape(shape(compute, 150, 160, 528, 64, 128), e);
      }
    }
  }
}

TEST(gemm_sm90_nan_stays_in_its_row) {
  for (uint32_t compute : computes) {
    Problem problem(shape(compute, 20, 20, 24, 48, -1)), poisoned(shape(compute, 20, 20, 24, 48, -1));
    memset(poisoned.x_row(3), compute == SIE_COMPUTE_FP8 ? 0x7f : 0xff, 2);
    for (int32_t variant : {skinny, pingpong_64, cooperative_pair}) {
      Ending e;
      e.act = SIE_ACT_GELU_ERF;
      Result clean = run(family(), problem, e, variant), result = run(family(), poisoned, e, variant);
      for (size_t i = 0; i < clean.y.size(); i++) {
        bool own = i / 24 == 3;
        CHECK(own ? isnan(result.y[i]) : result.y[i] == clean.y[i], "%s variant %d: row %zu is %g, was %g",
              gemm_test::class_name(compute), variant, i / 24, static_cast<double>(result.y[i]),
              static_cast<double>(clean.y[i]));
      }
    }
  }
}

TEST(gemm_sm90_choice) {
  const sie_stream h100 = {nullptr, 90, 132, 0, 0};
  Bytes none(0);
  float scale = 0;
  uint8_t somewhere[16] alignas(16) = {};
  const int32_t n_rows = 0;
  for (uint32_t compute : computes) {
    Problem weights(shape(compute, 0, 0, 768, 768, -1));
    for (int64_t cap : {1, 8, 64, 65, 512, 4096, 16384, 100000}) {
      for (int32_t y : {SIE_BF16, SIE_F8E4M3}) {
        Ending e;
        e.y = y;
        e.gate = cap == 512 ? SIE_GATE_SWIGLU : SIE_GATE_NONE;
        sie_linear_args a = weights.args(e, none, none, &scale);
        a.rows = {cap, &n_rows};
        a.x.p = a.y.p = somewhere;
        int32_t variant = sie_cuda::gemm_sm90_choose(&a, &h100);
        CHECK(variant >= 0 && sie_cuda::gemm_sm90_takes(variant, &a), "%s cap %lld y %d: variant %d",
              gemm_test::class_name(compute), static_cast<long long>(cap), y, variant);
        CHECK((variant == skinny) == (cap <= 64 && y != SIE_F8E4M3), "%s cap %lld y %d: variant %d",
              gemm_test::class_name(compute), static_cast<long long>(cap), y, variant);
        CHECK(cap < 16384 || variant > pingpong_64, "%s cap %lld: the smallest tile",
              gemm_test::class_name(compute), static_cast<long long>(cap));
      }
    }
  }
}

TEST(gemm_sm90_refuses) {
  Problem problem(shape(SIE_COMPUTE_BF16, 4, 4, 8, 16, -1)), fp8(shape(SIE_COMPUTE_FP8, 4, 4, 8, 16, -1));
  Ending e;
  Bytes y(4 * 8 * 4), none(0);
  const int32_t n_rows = 4;
  auto refused = [&](const Problem &of, sie_status want, const char *what, auto change) {
    sie_stream on = family().on;
    sie_packed packed = *of.args(e, y, none, nullptr).w;
    sie_linear_args a = of.args(e, y, none, nullptr);
    a.rows.n = &n_rows;
    a.w = &packed;
    change(&a, &packed, &on);
    sie_share share = {};
    share.parts = 1;
    share.on = &on;
    sie_status status = sie_cuda::gemm_sm90_linear(&a, &share);
    CHECK(status == want, "%s: status %d", what, status);
    CHECK(sie_cuda::gemm_sm90_choose(&a, &on) == -1, "%s: a variant is chosen", what);
    for (int64_t i = 0; i < y.size(); i++) CHECK(y.p()[i] == 0xff, "%s: y was written", what);
  };
  using A = sie_linear_args *;
  using W = sie_packed *;
  using S = sie_stream *;
  const sie_status unsupported = SIE_UNSUPPORTED, invalid = SIE_INVALID_ARGUMENT;
  refused(problem, unsupported, "sm_89", [](A, W, S on) { on->sm = 89; });
  refused(problem, unsupported, "sm_100", [](A, W, S on) { on->sm = 100; });
  refused(problem, unsupported, "class int8", [](A, W w, S) { w->compute = SIE_COMPUTE_INT8; });
  refused(problem, unsupported, "x of another type", [](A a, W, S) { a->x.dtype = SIE_F16; });
  refused(problem, unsupported, "y u8", [](A a, W, S) { a->y.dtype = SIE_U8; });
  refused(problem, unsupported, "y e4m3 a row", [](A a, W, S) {
    a->y.dtype = SIE_F8E4M3;
    a->y.scale_group = -1;
  });
  refused(fp8, unsupported, "scales of 64", [](A a, W, S) { a->x.scale_group = 64; });
  refused(problem, invalid, "K 0", [](A a, W w, S) { a->k = w->k = 0; });
  refused(problem, invalid, "K of another weight", [](A, W w, S) { w->k = 32; });
  refused(problem, invalid, "N of another weight", [](A, W w, S) { w->n = 32; });
  refused(problem, invalid, "N 0", [](A a, W w, S) { a->n = w->n = 0; });
  refused(problem, invalid, "x at 2 bytes", [](A a, W, S) { a->x.p = static_cast<uint8_t *>(a->x.p) + 2; });
  refused(problem, invalid, "a stride of 41", [](A a, W, S) { a->x.ld = 41; });
  refused(problem, invalid, "a stride below K", [](A a, W, S) { a->x.ld = 8; });
  refused(problem, invalid, "y's stride below N", [](A a, W, S) { a->y.ld = 7; });
  refused(problem, invalid, "W at 8 bytes",
          [](A, W w, S) { w->data = static_cast<const uint8_t *>(w->data) + 8; });
  refused(problem, invalid, "no count of rows", [](A a, W, S) { a->rows.n = nullptr; });
  refused(problem, invalid, "an unknown act", [](A a, W, S) { a->act = 9; });
  refused(problem, invalid, "act and gate", [](A a, W, S) {
    a->gate = SIE_GATE_GEGLU;
    a->act = SIE_ACT_RELU;
  });
  refused(fp8, invalid, "no scales of x", [](A a, W, S) { a->x.scale = nullptr; });
  // Variants that exist but do not take it.
  const sie_stream on = family().on;
  sie_linear_args a = problem.args(e, y, none, nullptr);
  a.rows.n = &n_rows;
  CHECK(sie_cuda::gemm_sm90_run(pingpong_64, &a, nullptr) == invalid, "%s", "no stream");
  CHECK(sie_cuda::gemm_sm90_run(99, &a, &on) == unsupported, "%s", "no such variant");
  a.gate = SIE_GATE_GEGLU;
  CHECK(sie_cuda::gemm_sm90_run(pingpong_192, &a, &on) == unsupported, "%s", "a gate on 192 columns");
  a.gate = SIE_GATE_NONE;
  a.rows.cap = 65;
  CHECK(sie_cuda::gemm_sm90_run(skinny, &a, &on) == unsupported, "%s", "65 rows in the skinny form");
  a.rows.cap = 0;
  CHECK(sie_cuda::gemm_sm90_run(pingpong_64, &a, &on) == SIE_OK, "%s", "no rows");
}

}  // namespace

int main(int argc, char **argv) { return check::run_tests(argc, argv); }
