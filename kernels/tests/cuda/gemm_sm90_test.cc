// gemm_sm90_test.cc — the wgmma GEMM under emulation: every variant against sums in double, all
// variants of a class against each other bit for bit (the skinny form too), every ending against
// its definition, and what is refused.
#include "cuda/gemm_sm90.h"

#include <vector>

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
  pingpong_192_pair,
  cooperative,
  cooperative_pair
};

// Few multiprocessors: each CTA gets several tiles.
Family family(int32_t multiprocessors = 2) {
  return {sie_cuda::gemm_sm90_run, {nullptr, 90, multiprocessors, 1, 0}};
}

Shape shape(uint32_t compute, int64_t rows, int64_t cap, int64_t n, int64_t k, int32_t x_group) {
  return {compute, rows, cap, n, k, x_group, gemm_test::gap(compute, k, n % 3)};
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

TEST(gemm_sm90_reads_to_the_end) {
  // Operands, scales, bias and residual end where what may be read ends: no further row or column.
  for (uint32_t compute : computes) {
    const int64_t line = compute == SIE_COMPUTE_FP8 ? 128 : 64;
    for (int32_t residual : {SIE_F32, SIE_BF16}) {
      Ending e;
      e.residual = residual;
      e.addend = true;
      check_shape(shape(compute, 20, 20, 48, line, 128), e);
      check_shape(shape(compute, 28, 28, 44, 2 * line, -1), e);
      e.odd_bias = true;
      check_shape(shape(compute, 20, 20, 43, line, -1), e);
      e.gate = SIE_GATE_SWIGLU;
      check_shape(shape(compute, 28, 28, 80, line, -1), e);
    }
    // The last block of scales is the tile's first half; its rows' stride allows 8 bytes at a time
    // and no TMA.
    Ending blocks;
    blocks.y = SIE_F8E4M3;
    check_shape(shape(compute, 20, 20, 128, line, -1), blocks);
    blocks.gap = 2;
    check_shape(shape(compute, 20, 20, 150, line, -1), blocks);
    // Behind a gate W's columns, and in FP8 their scales, end in the middle of what a warp stages at once.
    blocks.gate = SIE_GATE_SWIGLU;
    check_shape(shape(compute, 20, 20, 384, line, -1), blocks);
  }
}

TEST(gemm_sm90_y_that_tma_does_not_take) {
  // In all else a hot form's. Rows a multiple of 16 bytes apart that begin off one, at a multiple of 17; rows that
  // begin on one, 136 bytes apart, a multiple of 17. No rows: the test only asks whether the call is launched.
  uint8_t memory[1024] alignas(16);
  size_t odd = 4;
  while (odd % 16 == 0 || reinterpret_cast<uintptr_t>(memory + odd) % 17 != 0) odd += 4;
  const Bytes none(0);
  const int32_t n_rows = 0;
  const sie_stream on = family().on;
  const struct {
    uint32_t compute;
    int32_t y, act;
    int64_t n, ld;
    size_t at;
  } calls[] = {{SIE_COMPUTE_BF16, SIE_BF16, SIE_ACT_NONE, 64, 64, odd},
               {SIE_COMPUTE_BF16, SIE_BF16, SIE_ACT_NONE, 64, 68, 0},
               {SIE_COMPUTE_FP8, SIE_F8E4M3, SIE_ACT_GELU_ERF, 128, 136, 0}};
  for (const auto &c : calls) {
    const Problem problem(shape(c.compute, 0, 4, c.n, 16, -1));
    Ending e;
    e.y = c.y;
    e.act = c.act;
    float scale = 0;
    sie_linear_args a = problem.args(e, none, none, &scale);
    a.rows.n = &n_rows;
    a.y.p = memory + c.at;
    a.y.ld = c.ld;
    const sie_status status = sie_cuda::gemm_sm90_run(pingpong_64, &a, &on);
    CHECK(status == SIE_OK, "N=%lld, rows %lld apart: status %d", static_cast<long long>(c.n),
          static_cast<long long>(c.ld), status);
  }
}

TEST(gemm_sm90_many_steps) {
  // More K steps than any ring has stages, several times around; several tiles a CTA; odd and even
  // numbers of them.
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
  // A band that is full, and none behind it.
  const Problem full(shape(SIE_COMPUTE_BF16, 450, 450, 24, 16, -1));
  check_ending(family(3), full, Ending(), pingpong_64);
}

TEST(gemm_sm90_endings) {
  for (uint32_t compute : computes) {
    const Problem problem(shape(compute, 37, 40, 150, 32, -1)), gated(shape(compute, 18, 20, 300, 32, -1));
    auto check = [](const Problem &of, const Ending &e) {
      const bool blocks = e.y == SIE_F8E4M3, gate = e.gate != SIE_GATE_NONE;
      Result wide = check_ending(family(), of, e, blocks && gate ? cooperative : pingpong_64);
      if (blocks) return;
      CHECK(same_bits(wide, run(family(), of, e, skinny)),
            "act %d, gate %d, y %d: the skinny form gives other bits", e.act, e.gate, e.y);
    };
    for (const Ending &e : gemm_test::activation_endings()) check(problem, e);
    for (const Ending &e : gemm_test::gate_endings()) check(gated, e);
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

// The endings of hot forms in a class (Sm90Form): whole lines of y, all of it aligned.
std::vector<Ending> hot_endings(uint32_t compute) {
  const int32_t own = compute == SIE_COMPUTE_F16 ? SIE_F16 : SIE_BF16;
  const int32_t next = compute == SIE_COMPUTE_FP8 ? SIE_F8E4M3 : own;  // what the next product reads
  std::vector<Ending> all(8);
  all[0].y = own;
  all[1].y = all[1].residual = own;
  all[1].in_place = true;
  all[2].y = all[2].residual = own;
  all[2].residual_gap = 24;
  all[2].bias = false;
  all[3].y = all[3].residual = SIE_F32;
  all[3].in_place = true;
  all[4].y = all[4].residual = SIE_F32;
  all[4].gap = 12;
  all[5].y = next;
  all[5].act = SIE_ACT_GELU_ERF;
  all[6].y = all[7].y = next;
  all[6].gate = SIE_GATE_SWIGLU;
  all[7].gate = SIE_GATE_GEGLU;
  all[7].gap = 16;
  return all;
}

// All variants by one of these endings, and by what is almost it.
void check_hot(size_t which) {
  for (uint32_t compute : computes) {
    const int64_t step = compute == SIE_COMPUTE_FP8 ? 128 : 64;
    const Ending e = hot_endings(compute)[which];
    // Columns end in the middle of tiles; rows in the middle of a piece, of a block and of a tile.
    const int64_t n = (e.y == SIE_F8E4M3 ? 384 : 320) * (e.gate != SIE_GATE_NONE ? 2 : 1);
    check_shape(shape(compute, 150, 160, n, 2 * step, 128), e);
    check_shape(shape(compute, 64, 64, n, step, -1), e, 1);
    // More steps than stages, and a warp with one row; more than one band of row tiles, several tiles a CTA, one piece
    // a row of a tile with other tiles behind it.
    check_shape(shape(compute, 17, 40, n, 9 * step + 16, -1), e);
    const int64_t few = (e.y == SIE_F8E4M3 ? 256 : 192) * (e.gate != SIE_GATE_NONE ? 2 : 1);
    check_shape(shape(compute, 1100, 1100, few, 16, -1), e, 4);
    // All operands end where what may be read ends.
    check_shape(shape(compute, 20, 20, n, step, -1), e);
    // What is one element off in any way is no hot form's, nor are columns that are not whole lines.
    check_shape(shape(compute, 20, 20, n - (e.gate != SIE_GATE_NONE ? 32 : 16), step, -1), e);
    Ending odd = e;
    odd.odd_bias = true;
    check_shape(shape(compute, 20, 20, n, step, -1), odd);
    odd = e;
    odd.gap += 1;
    check_shape(shape(compute, 20, 20, n, step, -1), odd);
    odd = e;
    odd.addend = true;
    check_shape(shape(compute, 20, 20, n, step, -1), odd);
    odd = e;
    if (e.residual == 0 || e.in_place) continue;
    odd.residual_gap += 1;
    check_shape(shape(compute, 20, 20, n, step, -1), odd);
  }
}

TEST(gemm_sm90_hot_plain) { check_hot(0); }
TEST(gemm_sm90_hot_residual_in_place) { check_hot(1); }
TEST(gemm_sm90_hot_residual) { check_hot(2); }
TEST(gemm_sm90_hot_residual_f32_in_place) { check_hot(3); }
TEST(gemm_sm90_hot_residual_f32) { check_hot(4); }
TEST(gemm_sm90_hot_gelu) { check_hot(5); }
TEST(gemm_sm90_hot_swiglu) { check_hot(6); }
TEST(gemm_sm90_hot_geglu) { check_hot(7); }

TEST(gemm_sm90_whole_lines) {
  // 65 · 8 columns, one line of 64 in eight too many.
  Ending e;
  e.y = SIE_BF16;
  check_shape(shape(SIE_COMPUTE_BF16, 20, 20, 520, 16, -1), e);
}

// Each hot form takes its own ending alone: whole lines of what no model asks for, such as a residual behind a gate, a
// residual of another type than y, or one of what is quantised, are any's.
TEST(gemm_sm90_whole_lines_of_any_ending) {
  for (uint32_t compute : computes) {
    const int32_t own = compute == SIE_COMPUTE_F16 ? SIE_F16 : SIE_BF16;
    for (int32_t gate : {SIE_GATE_NONE, SIE_GATE_SWIGLU, SIE_GATE_GEGLU}) {
      for (int32_t act : {SIE_ACT_NONE, SIE_ACT_GELU_ERF}) {
        if (gate != SIE_GATE_NONE && act != SIE_ACT_NONE) continue;
        for (int32_t residual : {0, own, static_cast<int32_t>(SIE_F32)}) {
          for (int32_t y : {own, static_cast<int32_t>(SIE_F32), static_cast<int32_t>(SIE_F8E4M3)}) {
            Ending e;
            e.gate = gate;
            e.act = act;
            e.residual = residual;
            e.y = y;
            check_shape(shape(compute, 17, 40, gate != SIE_GATE_NONE ? 256 : 128, 64, -1), e);
          }
        }
      }
    }
  }
}

TEST(gemm_sm90_nan_stays_in_its_row) {
  for (uint32_t compute : computes)
    gemm_test::check_nan_stays_in_its_row(family(), compute, {skinny, pingpong_64, cooperative_pair});
}

TEST(gemm_sm90_least_scale) { gemm_test::check_least_scale(family(), pingpong_64); }

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
  gemm_test::check_refusals(family());
  const Problem problem(shape(SIE_COMPUTE_BF16, 4, 4, 8, 16, -1));
  const Bytes y(4 * 8 * 4), none(0);
  const int32_t n_rows = 4;
  sie_linear_args a = problem.args(Ending(), y, none, nullptr);
  a.rows.n = &n_rows;
  for (int32_t sm : {89, 100}) {
    const sie_stream on = {nullptr, sm, 2, 0, 0};
    CHECK(sie_cuda::gemm_sm90_choose(&a, &on) == -1, "a variant for sm_%d", sm);
    CHECK(sie_cuda::gemm_sm90_run(pingpong_64, &a, &on) == SIE_UNSUPPORTED, "runs on sm_%d", sm);
  }
  // Variants that exist but do not take it.
  const sie_stream on = family().on;
  a.gate = SIE_GATE_GEGLU;
  for (int32_t variant : {pingpong_192, pingpong_192_pair}) {
    CHECK(sie_cuda::gemm_sm90_run(variant, &a, &on) == SIE_UNSUPPORTED, "%s: a gate on 192 columns",
          sie_cuda::gemm_sm90_variant(variant)->name);
  }
  a.gate = SIE_GATE_NONE;
  a.rows.cap = 65;
  CHECK(sie_cuda::gemm_sm90_run(skinny, &a, &on) == SIE_UNSUPPORTED, "%s", "65 rows in the skinny form");
  // The most tiles there may be, 2²⁹ − 1, and one more; without rows, so that nothing is read.
  const int32_t no_rows = 0;
  sie_packed packed = *a.w;
  a.w = &packed;
  a.rows = {233 * 64, &no_rows};
  a.n = packed.n = a.y.ld = int64_t{2304167} * 128;
  a.bias = nullptr;
  CHECK(sie_cuda::gemm_sm90_run(pingpong_64, &a, &on) == SIE_OK, "%s", "as many tiles as there may be");
  a.rows.cap = 64 * 64;
  a.n = packed.n = a.y.ld = int64_t{1} << 30;
  CHECK(sie_cuda::gemm_sm90_run(pingpong_64, &a, &on) == SIE_UNSUPPORTED, "%s", "too many tiles");
  // Rows of y farther apart than a tensor map takes, with a residual that one takes.
  const Problem lines(shape(SIE_COMPUTE_BF16, 4, 4, 64, 16, -1));
  Ending residual;
  residual.y = residual.residual = SIE_BF16;
  const Bytes there(4 * 64 * 2);
  sie_linear_args far = lines.args(residual, there, there, nullptr);
  far.rows.n = &no_rows;
  CHECK(sie_cuda::gemm_sm90_run(pingpong_64, &far, &on) == SIE_OK, "%s", "rows of y next to each other");
  far.y.ld = int64_t{1} << 39;
  CHECK(sie_cuda::gemm_sm90_run(pingpong_64, &far, &on) == SIE_INVALID_ARGUMENT, "%s",
        "rows of y 2⁴⁰ bytes apart");
}

}  // namespace
