// gemm_sm80_test.cc — the mma.sync GEMM under emulation: every tile variant against sums in double,
// all variants of a class against each other bit for bit, every ending against its definition bit
// for bit, and what must be refused.
#include "cuda/gemm_sm80.h"

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

Family family(uint32_t compute) {
  // Cards with programmatic launch, where the emulator insists on the wait. The conformance list
  // has others.
  return {sie_cuda::gemm_sm80_run, {nullptr, compute == SIE_COMPUTE_FP8 ? 120 : 100, 108, 1, 0}};
}

// Rows of x keep their alignment; `more` multiples of 16 bytes between them.
Shape shape(uint32_t compute, int64_t rows, int64_t cap, int64_t n, int64_t k, int32_t x_group,
            int64_t more) {
  return {compute, rows, cap, n, k, x_group, gemm_test::gap(compute, k, more)};
}

std::vector<int32_t> variants_of(uint32_t compute) {
  std::vector<int32_t> all;
  for (int32_t i = 0; sie_cuda::gemm_sm80_variant(compute, i) != nullptr; i++) all.push_back(i);
  return all;
}

// All variants: the first against double, the others bit for bit.
void check_shape(const Shape &s) {
  Problem problem(s);
  const Family of = family(s.compute);
  Result first;
  for (int32_t variant : variants_of(s.compute)) {
    Result result = run(of, problem, Ending(), variant);
    CHECK(result.status == SIE_OK, "variant %d: status %d", variant, result.status);
    if (result.status != SIE_OK) return;
    if (variant == 0) {
      check_sums(problem, Ending(), result, variant);
      first = result;
    }
    CHECK(same_bits(result, first), "%s R=%lld N=%lld K=%lld: variant %s gives other bits",
          gemm_test::class_name(s.compute), static_cast<long long>(s.n_rows), static_cast<long long>(s.n),
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
      check_shape(shape(compute, r, cap, 40, 80, r % 2 == 0 ? 128 : -1, 1));
    }
  }
}

TEST(gemm_sm80_columns_and_sums) {
  // N around tiles and runs; K around pieces, lines, stages and promotion, up to more lines than
  // stages.
  const int64_t shapes[][2] = {{1, 1},     {7, 33},   {8, 47},   {33, 64},  {65, 95}, {127, 112}, {130, 128},
                               {264, 145}, {24, 271}, {34, 400}, {9, 1040}, {12, 8},  {20, 200}};
  for (uint32_t compute : computes) {
    for (const int64_t *s : shapes)
      check_shape(shape(compute, 19, 21, s[0], s[1], s[0] % 2 == 0 ? 128 : -1, s[1] % 2));
  }
  // Tile rows enough for two groups of the grid's order.
  check_shape(shape(SIE_COMPUTE_BF16, 300, 310, 70, 16, -1, 0));
}

// The last variant whose tile takes the ending, which is the smallest.
int32_t small_variant(uint32_t compute, const Ending &e) {
  if (e.y != SIE_F8E4M3) return compute == SIE_COMPUTE_FP8 ? 3 : 5;
  if (e.gate != SIE_GATE_NONE) return compute == SIE_COMPUTE_FP8 ? 1 : 0;
  return 2;
}

TEST(gemm_sm80_reads_to_the_end) {
  // Operands, scales and bias end where what may be read ends: rows of whole lines, no further row
  // or column.
  for (uint32_t compute : computes) {
    const int64_t line = compute == SIE_COMPUTE_FP8 ? 128 : 64;
    check_shape(shape(compute, 16, 16, 128, line, -1, 0));
    check_shape(shape(compute, 20, 20, 128, 2 * line, 128, 0));
    const Problem even(shape(compute, 4, 4, 20, 3 * line, -1, 0)), odd(shape(compute, 8, 8, 21, line, -1, 0));
    for (int32_t residual : {SIE_F32, SIE_BF16}) {
      Ending e;
      e.residual = residual;
      e.addend = true;
      check_ending(family(compute), even, e, small_variant(compute, e));
      check_ending(family(compute), odd, e, small_variant(compute, e));
    }
  }
}

TEST(gemm_sm80_endings) {
  for (uint32_t compute : computes) {
    const Problem problem(shape(compute, 18, 20, 150, 32, -1, 0)),
        gated(shape(compute, 18, 20, 300, 32, -1, 0));
    for (const Ending &e : gemm_test::activation_endings())
      check_ending(family(compute), problem, e, small_variant(compute, e));
    for (const Ending &e : gemm_test::gate_endings())
      check_ending(family(compute), gated, e, small_variant(compute, e));
  }
}

TEST(gemm_sm80_wide_endings) {
  // Aligned rows of whole runs, several blocks of e4m3 scales, on each variant that takes them.
  for (uint32_t compute : computes) {
    Problem problem({compute, 37, 40, 400, 64, 128, 0});
    const int32_t types[] = {SIE_BF16, SIE_F32, SIE_F8E4M3};
    for (int32_t variant : variants_of(compute)) {
      for (int gate = 0; gate < 2; gate++) {
        Ending e;
        e.gate = gate != 0 ? SIE_GATE_GEGLU : SIE_GATE_NONE;
        e.act = gate != 0 ? SIE_ACT_NONE : SIE_ACT_GELU_ERF;
        e.y = types[(variant + gate) % 3];
        e.residual = e.y == SIE_F32 ? SIE_F32 : SIE_BF16;
        e.in_place = e.y == SIE_BF16;
        check_ending(family(compute), problem, e, e.y == SIE_F8E4M3 ? small_variant(compute, e) : variant);
      }
    }
    for (int32_t variant = 0; variant < 3; variant++) {
      Ending e;
      e.act = SIE_ACT_GELU_ERF;
      e.y = SIE_F8E4M3;
      check_ending(family(compute), problem, e, variant);
    }
  }
}

TEST(gemm_sm80_nan_stays_in_its_row) {
  for (uint32_t compute : computes)
    gemm_test::check_nan_stays_in_its_row(family(compute), compute, variants_of(compute));
}

TEST(gemm_sm80_least_scale) { gemm_test::check_least_scale(family(SIE_COMPUTE_BF16), 2); }

TEST(gemm_sm80_choice) {
  for (uint32_t compute : computes) {
    Problem problem({compute, 33, 33, 48, 48, -1, 0});
    for (int32_t y : {SIE_BF16, SIE_F8E4M3}) {
      for (int32_t gate : {SIE_GATE_NONE, SIE_GATE_SWIGLU}) {
        Ending e;
        e.y = y;
        e.gate = gate;
        Result chosen = run(family(compute), problem, e, gemm_test::by_choice),
               other = run(family(compute), problem, e, small_variant(compute, e));
        CHECK(chosen.status == SIE_OK && same_bits(chosen, other),
              "%s y=%d gate=%d: status %d, or other bits", gemm_test::class_name(compute), y, gate,
              chosen.status);
      }
    }
    // Many rows take a large tile, few a small one; no tile is too large for a block of scales.
    Bytes none(0);
    float scale = 0;
    const sie_stream on = family(compute).on;
    const int32_t n_rows = 0;
    uint8_t somewhere[16] alignas(16) = {};
    Problem weights({compute, 0, 0, 768, 768, -1, 0});
    sie_linear_args a = weights.args(Ending(), none, none, &scale);
    a.x.p = a.y.p = somewhere;
    a.rows = {16384, &n_rows};
    const sie_cuda::GemmSm80Variant *variant =
        sie_cuda::gemm_sm80_variant(compute, sie_cuda::gemm_sm80_choose(&a, &on));
    CHECK(variant != nullptr && variant->rows == 128, "%s: %s for 16384 rows", gemm_test::class_name(compute),
          variant->name);
    a.rows.cap = 8;
    variant = sie_cuda::gemm_sm80_variant(compute, sie_cuda::gemm_sm80_choose(&a, &on));
    CHECK(variant != nullptr && variant->rows == 16, "%s: %s for 8 rows", gemm_test::class_name(compute),
          variant->name);
  }
}

// Cards of GeForce kind leave a CTA the least shared memory: 99 KiB.
TEST(gemm_sm80_tiles_fit_every_card) {
  const Bytes none(0);
  const int32_t n_rows = 0;
  uint8_t somewhere[16] alignas(16) = {};
  for (uint32_t compute : computes) {
    const sie_stream on = {nullptr, compute == SIE_COMPUTE_FP8 ? 89 : 86, 2, 0, 0};
    const Problem problem(shape(compute, 0, 0, 8, 16, -1, 0));
    sie_linear_args a = problem.args(Ending(), none, none, nullptr);
    a.rows = {128, &n_rows};
    a.x.p = a.y.p = somewhere;
    for (int32_t variant : variants_of(compute)) {
      const sie_status status = sie_cuda::gemm_sm80_run(variant, &a, &on);
      CHECK(status == SIE_OK, "%s on sm_%d: status %d", sie_cuda::gemm_sm80_variant(compute, variant)->name,
            on.sm, status);
    }
  }
}

TEST(gemm_sm80_refuses) {
  gemm_test::check_refusals(family(SIE_COMPUTE_FP8));
  // The class or the card; sm_9x have kernels of their own.
  const struct {
    int32_t sm;
    uint32_t compute;
    bool taken;
  } cards[] = {{75, SIE_COMPUTE_BF16, false}, {90, SIE_COMPUTE_BF16, false}, {86, SIE_COMPUTE_FP8, false},
               {103, SIE_COMPUTE_FP8, false}, {100, SIE_COMPUTE_BF16, true}, {120, SIE_COMPUTE_FP8, true}};
  const Bytes y(4 * 8 * 4), none(0);
  const int32_t n_rows = 4;
  for (const auto &card : cards) {
    const Problem problem(shape(card.compute, 4, 4, 8, 16, -1, 0));
    sie_linear_args a = problem.args(Ending(), y, none, nullptr);
    a.rows.n = &n_rows;
    const sie_stream on = {nullptr, card.sm, 2, 0, 0};
    const bool taken = sie_cuda::gemm_sm80_choose(&a, &on) >= 0;
    CHECK(taken == card.taken, "%s on sm_%d: taken %d", gemm_test::class_name(card.compute), card.sm, taken);
    CHECK(taken || sie_cuda::gemm_sm80_run(0, &a, &on) == SIE_UNSUPPORTED, "%s on sm_%d runs",
          gemm_test::class_name(card.compute), card.sm);
  }
  CHECK(sie_cuda::gemm_sm80_variant(SIE_COMPUTE_F32, 0) == nullptr, "%s", "a variant of class f32");
}

}  // namespace
