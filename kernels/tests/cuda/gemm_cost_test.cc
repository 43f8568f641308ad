// gemm_cost_test.cc — the model of cost.h against figures that others have published and against the
// arithmetic of a tile by hand.
#include "cuda/cost.h"
#include "cuda/gemm_sm90_code.h"
#include "cuda/gemm_sm90_variants.h"
#include "tests/check.h"
#include "tests/cuda/round_card.h"

#include <math.h>
#include <string.h>

#include <initializer_list>
#include <vector>

namespace {

using sie_cuda::card_h100;
using sie_cuda::GemmTileShape;
using sie_cuda::GemmWork;
using sie_cuda::round_card;
using sie_cuda::same;

double tflops(const GemmWork &w, const sie_cuda::Prediction &p) {
  return 2.0 * static_cast<double>(w.rows) * static_cast<double>(w.n) * static_cast<double>(w.k) / p.us *
         1e-6;
}

double off(double got, double published) { return fabs(got / published - 1); }

GemmWork square(int64_t n, bool fp8) {
  GemmWork w;
  w.rows = w.n = w.k = n;
  w.fp8 = fp8;
  return w;
}

// The cooperative pair of 128 × 256, as large as its kernel is.
GemmTileShape large(const GemmWork &w) { return {128, 256, 64, 2, sie_cuda::gemm_sm90_code(128, 256, w)}; }

// cuBLASLt, 8192³ in bf16, measured on an H100 SXM: 798 TFLOP/s. ThunderKittens claims 855.
TEST(gemm_cost_of_a_large_bf16_product) {
  const GemmWork w = square(8192, false);
  const double got = tflops(w, predict_gemm(card_h100, w, large(w)));
  CHECK(off(got, 798) <= 0.15, "%.0f TFLOP/s for cuBLASLt's 798", got);
  CHECK(off(got, 855) <= 0.15, "%.0f TFLOP/s for ThunderKittens' 855", got);
}

// DeepGEMM: 1,550 TFLOP/s in e4m3 with block scales at its best shape; cooperative, so that one warpgroup's
// promotion hides behind the other's products.
TEST(gemm_cost_of_a_large_fp8_product) {
  GemmWork w = square(8192, true);
  w.blocks = true;
  const double got = tflops(w, predict_gemm(card_h100, w, large(w)));
  CHECK(off(got, 1550) <= 0.15, "%.0f TFLOP/s for DeepGEMM's 1,550", got);
}

// FlashAttention-3, forward, bf16, no mask, H100 SXM, as its authors' plot has it.
TEST(gemm_cost_of_flash_attention_3) {
  const struct {
    int64_t length;
    int32_t dim;
    double published;
  } points[] = {{512, 64, 333},  {1024, 64, 392},  {16384, 64, 497},
                {512, 128, 467}, {1024, 128, 565}, {16384, 128, 648}};
  for (const auto &p : points) {
    const double got = sie_cuda::flash3_tflops(card_h100, p.length, p.dim);
    CHECK(off(got, p.published) <= 0.15, "%.0f TFLOP/s at %lld keys of %d columns; %.0f published", got,
          static_cast<long long>(p.length), p.dim, p.published);
  }
}

// Bytes a clock at the tensor cores' full rate, by hand: each K step of 64 columns is written once by TMA, x
// is read once and W once for each 64 rows.
TEST(gemm_cost_of_a_tile_by_hand) {
  sie_cuda::Card full = card_h100;
  full.products_share = 1;
  const struct {
    GemmTileShape tile;
    double shared, l2;
  } rows[] = {
      {{128, 128, 128, 1}, 160, 64},
      {{128, 128, 128, 2}, 160, 48},
      {{128, 192, 128, 1}, 138.7, 53.3},
      {{128, 256, 64, 2}, 128, 32},
  };
  for (const auto &row : rows) {
    const sie_cuda::Cost c = gemm_main_loop(full, square(4096, false), row.tile);
    const double shared = c.shared * full.shared_bytes / c.tensor, l2 = c.l2 * full.l2_bytes / c.tensor;
    CHECK(off(shared, row.shared) < 0.002, "%.1f bytes a clock through shared memory, %.1f by hand", shared,
          row.shared);
    CHECK(off(l2, row.l2) < 0.002, "%.1f bytes a clock from L2, %.1f by hand", l2, row.l2);
  }
}

GemmWork product(int64_t rows, int64_t n, int64_t k, bool fp8 = false) {
  GemmWork w;
  w.rows = rows;
  w.n = n;
  w.k = k;
  w.fp8 = fp8;
  return w;
}

constexpr GemmTileShape pingpong = {128, 128, 128, 1}, cooperative = {128, 128, 64, 1},
                        pair = {128, 128, 128, 2};

// Tiles on four multiprocessors: 2,048 clocks of products and 768 of storing each, which ping-pong hides but
// for the last; 500 before the first.
TEST(gemm_cost_counts_turns_by_hand) {
  const struct {
    int64_t rows, n, k;
    GemmTileShape tile;
    double clocks;
  } rows[] = {
      {1, 1, 64, pingpong, 500 + 2048 + 768},
      {4 * 128, 128, 64, pingpong, 500 + 2048 + 768},
      {4 * 128 + 1, 128, 64, pingpong, 500 + 2 * 2048 + 768},
      {8 * 128, 128, 64, pingpong, 500 + 2 * 2048 + 768},
      {4 * 128, 129, 64, pingpong, 500 + 2 * 2048 + 768},
      {8 * 128, 129, 64, pingpong, 500 + 4 * 2048 + 768},
      {128, 128, 65, pingpong, 500 + 4096 + 768},
      {128, 128, 128, pingpong, 500 + 4096 + 768},
      {4 * 128, 128, 64, cooperative, 500 + 2048 + 768},
      {5 * 128, 128, 64, cooperative, 500 + 2 * (2048 + 768)},
      {4 * 128, 128, 64, pair, 500 + 2048 + 768},
      {4 * 128 + 1, 128, 64, pair, 500 + 2 * 2048 + 768},
      {1, 3 * 128, 64, pair, 500 + 2 * 2048 + 768},
  };
  for (const auto &r : rows) {
    const double got = gemm_clocks(round_card(), product(r.rows, r.n, r.k), r.tile, 4);
    CHECK(same(got, r.clocks), "%lld × %lld × %lld: %.0f clocks, %.0f by hand",
          static_cast<long long>(r.rows), static_cast<long long>(r.n), static_cast<long long>(r.k), got,
          r.clocks);
  }
  CHECK(same(gemm_clocks(round_card(), product(128, 256, 64), pair, 1), 500 + 2 * 2048 + 768), "%s",
        "a pair on one multiprocessor");
  // e4m3: half of the products' clocks, and 128 for promoting 128 columns of K, which ping-pong adds.
  CHECK(same(gemm_clocks(round_card(), product(128, 128, 128, true), pingpong, 4), 500 + 2048 + 128 + 768),
        "%s", "e4m3 in ping-pong");
  CHECK(same(gemm_clocks(round_card(), product(128, 128, 128, true), cooperative, 4), 500 + 2048 + 768), "%s",
        "e4m3 in a cooperative tile");
  sie_cuda::Card slow = round_card();
  slow.l2_bytes = 8;  // 4,096 clocks for the tile's bytes, 4,096 for those of y
  CHECK(same(gemm_clocks(slow, product(128, 128, 128, true), pingpong, 4), 500 + 4096 + 4096), "%s",
        "e4m3 in ping-pong, bound by L2");
}

// 16,384 elements of a tile: 128 lanes, 64 bytes a clock from or to L2.
TEST(gemm_cost_of_an_epilogue_by_hand) {
  GemmWork w = product(128, 128, 64);
  const sie_cuda::Card card = round_card();
  CHECK(same(gemm_epilogue_clocks(card, w, pingpong), 768), "%s", "plain: 6 instructions");
  w.y_bytes = 4;
  CHECK(same(gemm_epilogue_clocks(card, w, pingpong), 1024), "%s", "y of f32: 4 bytes");
  w.gated = true;
  CHECK(same(gemm_epilogue_clocks(card, w, pingpong), 768), "%s", "half of y's columns");
  w = product(128, 128, 64);
  w.activated = true;
  CHECK(same(gemm_epilogue_clocks(card, w, pingpong), 3072), "%s", "activated: 24 instructions");
  CHECK(same(gemm_clocks(card, w, pingpong, 4), 500 + 2560 + 3072), "%s",
        "storing takes longer than products");
  w.activated = false;
  w.residual_bytes = 2;
  CHECK(same(gemm_epilogue_clocks(card, w, pingpong), 1408 + 500), "%s",
        "a residual: 11 instructions, a load");
  w.residual_bytes = 8;
  CHECK(same(gemm_epilogue_clocks(card, w, pingpong), 2560 + 500), "%s", "a residual of 8 bytes");
}

// What is left of the issue slots, and what it makes of an epilogue of 768 clocks: under the other warpgroup's
// products of 2,048, of which 5 eighths are hidden, it shows when it is longer than they are.
TEST(gemm_cost_of_code_by_hand) {
  const struct {
    int32_t kib;
    double share;
  } rows[] = {{0, 1},      {1, 1},     {48, 1},     {64, 1},    {96, 0.93},
              {128, 0.86}, {136, 0.6}, {144, 0.34}, {323, 0.34}};
  for (const auto &r : rows) {
    const double share = sie_cuda::code_share(r.kib * 1024);
    CHECK(off(share, r.share) < 1e-12, "%d KiB: %.4f of the slots, %.4f by hand", r.kib, share, r.share);
    GemmTileShape tile = pingpong, both = cooperative;
    tile.code = both.code = r.kib * 1024;
    GemmWork w = product(4 * 128, 128, 64);
    const double clocks = gemm_epilogue_clocks(round_card(), w, tile);
    CHECK(off(clocks, 768 / r.share) < 1e-12, "%d KiB: an epilogue of %.1f clocks", r.kib, clocks);
    w.rows = 3 * 4 * 128;
    const double turns = gemm_clocks(round_card(), w, tile, 4), own = 768 / r.share;
    const double turn = own > 2048 ? (2048 + own) / 2 : 2048;
    CHECK(off(turns, 500 + 3 * turn + own) < 1e-12, "%d KiB: three tiles of %.1f clocks", r.kib, turns);
    CHECK(off(gemm_clocks(round_card(), w, both, 4), 500 + 3 * (2048 + own)) < 1e-12, "%d KiB: cooperative",
          r.kib);
  }
}

// The kernels that do a model's products, and one that none of them does.
TEST(gemm_cost_of_code_is_that_of_the_form) {
  const auto code = [](int32_t columns, bool fp8, bool activated, bool gated, int32_t residual, int32_t y) {
    GemmWork w = product(1, 1, 1, fp8);
    w.activated = activated;
    w.gated = gated;
    w.residual_bytes = residual;
    w.y_bytes = y;
    return sie_cuda::gemm_sm90_code(128, columns, w);
  };
  const struct {
    int32_t columns;
    bool fp8, activated, gated;
    int32_t residual, y, form;  // place in its line
    int line;
  } rows[] = {{128, false, false, false, 0, 2, 1, 1}, {128, false, false, false, 2, 2, 2, 1},
              {192, false, false, false, 4, 4, 3, 2}, {256, false, true, false, 0, 2, 4, 3},
              {256, false, true, true, 0, 2, 6, 3},   {192, false, true, true, 0, 2, 0, 2},
              {128, true, true, false, 0, 1, 4, 5},   {256, true, true, true, 0, 1, 6, 6},
              {128, true, true, false, 0, 2, 0, 5},   {128, false, false, false, 4, 2, 0, 1},
              {128, false, false, false, 0, 4, 0, 1}, {256, false, true, false, 2, 2, 0, 3},
              {256, false, false, false, 6, 2, 0, 3}};
  for (const auto &r : rows) {
    const int32_t got = code(r.columns, r.fp8, r.activated, r.gated, r.residual, r.y);
    CHECK(got == sie_cuda::gemm_sm90_codes[r.line].bytes[r.form], "line %d, form %d: %d bytes", r.line,
          r.form, got);
  }
  CHECK(code(192, true, false, false, 0, 2) == 0, "%s", "FP8 has no tile of 192 columns");
  const GemmTileShape shape =
      gemm_sm90_shape(sie_cuda::gemm_sm90_variants[sie_cuda::GEMM_SM90_PINGPONG_128X192], product(1, 1, 1));
  CHECK(shape.rows == 128 && shape.columns == 192 && shape.warpgroup_rows == 128 && shape.cluster == 1 &&
            shape.code == sie_cuda::gemm_sm90_codes[2].bytes[1],
        "%d × %d, %d bytes", shape.rows, shape.columns, shape.code);
}

// Block scales: 270 clocks from L2 for one step in eight, 32 for the others, less what they are asked for ahead.
TEST(gemm_cost_of_block_scales_by_hand) {
  GemmWork w = product(128, 128, 1025, true);
  CHECK(sie_cuda::scale_clocks(w, 0) == 0, "%s", "a scale a row");
  w.blocks = true;
  for (const auto &[ahead, clocks] : {std::pair{0.0, (270 + 7 * 32) / 8.0},
                                      {20.0, (250 + 7 * 12) / 8.0},
                                      {200.0, 70 / 8.0},
                                      {270.0, 0.0}}) {
    CHECK(same(sie_cuda::scale_clocks(w, ahead), clocks), "%.0f clocks ahead: %.3f", ahead,
          sie_cuda::scale_clocks(w, ahead));
  }
  // 64 × 128 × 128 products at 1,024 a clock are 1,024 clocks, with a card sixteen times as fast 64.
  sie_cuda::Card card = round_card();
  const double hidden = gemm_clocks(card, w, {64, 128, 64, 1}, 4);
  w.blocks = false;
  CHECK(same(hidden, gemm_clocks(card, w, {64, 128, 64, 1}, 4)), "%s", "products hide them");
  card.multiply_adds *= 16;
  const double none = gemm_clocks(card, w, cooperative, 4);
  w.blocks = true;
  CHECK(same(gemm_clocks(card, w, cooperative, 4), none + 9 * 206 / 8.0), "%s", "nine steps of 64 clocks");
  card.chain_clocks = 20;  // two chains of 80 clocks ahead
  card.l2_bytes = 1e9;
  CHECK(same(skinny_clocks(card, w, 4), 1000 + 9 * (80 + 110 / 8.0) + 192), "%s", "skinny");
}

TEST(gemm_cost_counts_bytes_by_hand) {
  GemmWork w = product(10, 32, 64);
  w.residual_bytes = 4;
  CHECK(gemm_bytes(w) == 2 * (10 * 64 + 32 * 64) + 10 * 32 * 6, "%.0f bytes", gemm_bytes(w));
  w.fp8 = w.gated = true;
  w.y_bytes = 1;
  w.residual_bytes = 0;
  CHECK(gemm_bytes(w) == 10 * 64 + 32 * 64 + 10 * 16, "%.0f bytes in e4m3, gated", gemm_bytes(w));
}

// Which unit bounds a product, as each gets slower in turn.
TEST(gemm_cost_names_the_limit) {
  using sie_cuda::Limit;
  const GemmWork w = product(512, 512, 4096), fp8 = product(512, 512, 4096, true);
  const double full_us = 512.0 * 512 * 4096 / (1024 * 0.5 * 4) / 2e3;
  sie_cuda::Card c = round_card();
  sie_cuda::Prediction p = predict_gemm(c, w, pingpong);
  CHECK(p.limit == Limit::tensor && same(p.floor_us, full_us), "%s, a floor of %.3f us", limit_name(p.limit),
        p.floor_us);
  CHECK(same(p.us, gemm_clocks(c, w, pingpong, 4) / 2e3 + 2), "%.3f us", p.us);
  p = predict_gemm(c, fp8, cooperative);
  CHECK(p.limit == Limit::tensor && same(p.floor_us, full_us / 2), "e4m3: %s, %.3f us", limit_name(p.limit),
        p.floor_us);
  c.shared_bytes = 8;
  CHECK(predict_gemm(c, w, pingpong).limit == Limit::shared, "%s", "shared memory");
  c = round_card();
  c.l2_bytes = 4;
  CHECK(predict_gemm(c, w, pingpong).limit == Limit::l2, "%s", "L2");
  c = round_card();
  c.lanes = 1;
  CHECK(predict_gemm(c, fp8, cooperative).limit == Limit::issue, "%s", "issue");
  c = round_card();
  c.dram_bytes_s = 1e9;
  p = predict_gemm(c, w, pingpong);
  CHECK(
      p.limit == Limit::dram && same(p.us, gemm_bytes(w) / 1e3 + 2) && same(p.floor_us, gemm_bytes(w) / 1e3),
      "%s, %.3f us", limit_name(p.limit), p.us);
  for (double share : {0.99, 1.01}) {  // of the time that the multiprocessors take
    c.dram_bytes_s = gemm_bytes(w) * 1e6 / (gemm_clocks(c, w, pingpong, 4) / 2e3 * share);
    p = predict_gemm(c, w, pingpong);
    CHECK(p.limit == (share > 1 ? Limit::dram : Limit::tensor), "%s with %.2f of its time for bytes",
          limit_name(p.limit), share);
  }
  const sie_cuda::Cost one[] = {
      {5, 1, 2, 3, 4}, {1, 5, 2, 3, 4}, {1, 2, 5, 3, 4}, {1, 2, 3, 5, 4}, {1, 2, 3, 4, 5}};
  const char *const names[] = {"tensor", "shared", "L2", "exponentials", "issue"};
  for (int i = 0; i < 5; i++) {
    CHECK(strcmp(limit_name(one[i].limit()), names[i]) == 0 && one[i].busiest() == 5, "%s for %s",
          limit_name(one[i].limit()), names[i]);
  }
  CHECK(strcmp(limit_name(Limit::dram), "DRAM") == 0 && strcmp(limit_name(Limit::latency), "latency") == 0,
        "%s", "names");
}

// Maxima instead of rows: no bytes of y leave the product, and a kernel writes 4 · 10 · 128 bytes of zeros.
TEST(gemm_cost_of_splade_by_hand) {
  GemmWork w = product(8 * 128, 128, 64);
  w.y_bytes = 0;
  const double zeros = 4.0 * 10 * 128 / 1e6, products = (500 + 2 * 2048 + 768) / 2e3 + 2;
  sie_cuda::Prediction p = predict_splade(round_card(), w, pingpong, 10);
  CHECK(same(p.us, products + zeros / 0.88 + 2) && p.limit == sie_cuda::Limit::tensor, "%.4f us by %s", p.us,
        limit_name(p.limit));
  CHECK(same(p.floor_us, 8 * 2048 / 4 / 2e3 + zeros), "a floor of %.4f us", p.floor_us);
  CHECK(gemm_bytes(w) == 2 * 64 * (8 * 128 + 128), "%.0f bytes", gemm_bytes(w));
}

// 160 clocks a step of 64 columns (128 in e4m3), 64 rows of W a CTA, two trips to memory before.
TEST(gemm_cost_of_the_skinny_form_by_hand) {
  const struct {
    int64_t n, k;
    bool fp8;
    double clocks;
  } rows[] = {{64, 64, false, 160},    {64, 65, false, 320},    {256, 640, false, 1600},
              {257, 640, false, 2000}, {512, 640, false, 3200}, {512, 640, true, 1600},
              {512, 641, true, 1920}};
  for (const auto &r : rows) {
    const sie_cuda::Prediction p = predict_skinny(round_card(), product(16, r.n, r.k, r.fp8));
    const double want = (1000 + r.clocks + 192) / 2e3 + 2;
    CHECK(p.limit == sie_cuda::Limit::latency && same(p.us, want), "%lld × %lld: %.4f us by %s, %.4f by hand",
          static_cast<long long>(r.n), static_cast<long long>(r.k), p.us, limit_name(p.limit), want);
  }
  sie_cuda::Card slow = round_card();
  CHECK(same(skinny_clocks(slow, product(16, 512, 640), 2), 1000 + 4 * 1600 + 192), "%s",
        "on half of the multiprocessors");
  slow.l2_bytes = 32;  // 256 clocks for the bytes of a step
  CHECK(same(predict_skinny(slow, product(16, 64, 64)).us, (1000 + 256 + 256) / 2e3 + 2), "%s",
        "bound by L2");
}

// Two heads on four multiprocessors: pairs in blocks of 16 queries and 64 keys.
TEST(gemm_cost_of_attention_by_hand) {
  using sie_cuda::Limit;
  const int32_t lengths[] = {100, 16}, longer = 300;
  sie_cuda::AttentionShape a = {2, 1, 32};
  const sie_cuda::Card card = round_card();
  const auto us = [](double pairs) {  // of one multiprocessor: products, exponentials, instructions
    return (pairs / 4 + 0.5 * (pairs / 16 + pairs * 6 / 128) + 1000) / 2e3 + 2;
  };
  sie_cuda::Prediction p = predict_attention(card, a, lengths, 2);
  const double pairs = (112 * 128 + 16 * 64) * 2 / 4.0, bytes = (2 * 2 + 2 * 1) * 32 * 2 * 116;
  CHECK(p.limit == Limit::tensor && same(p.us, us(pairs)), "%s, %.4f us, %.4f by hand", limit_name(p.limit),
        p.us, us(pairs));
  CHECK(same(p.floor_us, pairs * 64 / 512 / 2e3), "a floor of %.4f us", p.floor_us);
  a.window = 80;
  p = predict_attention(card, a, &longer, 1);
  CHECK(same(p.us, us(304 * 256 * 2 / 4.0)), "a window: %.4f us", p.us);
  a.window = 0;
  a.causal = true;
  p = predict_attention(card, a, &longer, 1);
  CHECK(same(p.us, us(304 * 192 * 2 / 4.0)), "causal: %.4f us", p.us);
  a.causal = false;
  const auto limit = [&](double sie_cuda::Card::*unit) {
    sie_cuda::Card slow = round_card();
    slow.*unit /= 64;
    return predict_attention(slow, a, lengths, 2).limit;
  };
  CHECK(limit(&sie_cuda::Card::shared_bytes) == Limit::shared, "%s", "shared memory");
  CHECK(limit(&sie_cuda::Card::exponentials) == Limit::exponentials, "%s", "exponentials");
  CHECK(limit(&sie_cuda::Card::lanes) == Limit::issue, "%s", "issue");
  sie_cuda::Card slow = card;
  slow.dram_bytes_s = 1e9;
  p = predict_attention(slow, a, lengths, 2);
  CHECK(p.limit == Limit::dram && same(p.us, bytes / 0.88 / 1e3 + 2) && same(p.floor_us, bytes / 1e3),
        "%s, %.4f us", limit_name(p.limit), p.us);
}

// Two heads of 64 columns on four multiprocessors: a sequence of the wide form beside one that is not.
TEST(gemm_cost_of_wide_attention_by_hand) {
  const int32_t lengths[] = {1100, 100}, longest = 1100;
  sie_cuda::AttentionShape a = {2, 2, 64};
  const sie_cuda::Card card = round_card();
  // 4.5 tiles of a multiprocessor, of 128 queries and 1,152 keys, in five turns; three launches.
  const auto wide = [](double pairs) { return (pairs / 8 + 0.7 * pairs / 16 + 3600 * 4.5) / 0.85 * 5 / 4.5; };
  const double pairs = 1152 * 1152 * 2 / 4.0;
  sie_cuda::Prediction p = predict_attention(card, a, &longest, 1);
  CHECK(same(p.us, (wide(pairs) + 1000) / 2e3 + 6), "alone: %.4f us", p.us);
  const double few = 112 * 128 * 2 / 4.0;
  const double narrow = few / 2 + 0.5 * (few / 16 + few * 6 / 128);
  p = predict_attention(card, a, lengths, 2);
  CHECK(same(p.us, (wide(pairs) + narrow + 1000) / 2e3 + 6), "beside a short one: %.4f us", p.us);
  a.slopes = true;  // two instructions a score: of the wide form 0.7 of them, of the narrow one half
  p = predict_attention(card, a, lengths, 2);
  CHECK(same(p.us, (wide(pairs) + 0.7 * pairs * 2 / 128 / 0.85 * 5 / 4.5 + narrow + 0.5 * few * 2 / 128 +
                    1000) / 2e3 +
                       6),
        "slopes: %.4f us", p.us);
  a.slopes = false;
  a.reach = 20;  // six instructions a score; of the wide form one, but for 184 keys of 1,152
  p = predict_attention(card, a, lengths, 2);
  const double added = pairs * (1 + 5 * 184 / 1152.0);
  CHECK(same(p.us,
             (wide(pairs) + 0.7 * added / 128 / 0.85 * 5 / 4.5 + narrow + 0.5 * few * 6 / 128 + 1000) / 2e3 +
                 6),
        "a bias: %.4f us", p.us);
  a.reach = 2000;
  p = predict_attention(card, a, &longest, 1);
  CHECK(same(p.us, (wide(pairs) + 0.7 * pairs * 6 / 128 / 0.85 * 5 / 4.5 + 1000) / 2e3 + 6),
        "a far reach: %.4f us", p.us);
  a.reach = -1;
  const sie_cuda::AttentionShape large = {2, 2, 256};  // blocks of 64 keys, above 256 keys in any order
  const int32_t some = 300;                            // of 1.5 tiles of 128 queries in two turns
  const double seen = 384 * 320 * 2 / 4.0;
  p = predict_attention(card, large, &some, 1);
  CHECK(same(p.us, ((seen / 2 + 0.7 * seen / 16 + 3600 * 1.5) / 0.85 * 2 / 1.5 + 1000) / 2e3 + 6),
        "D = 256: %.4f us", p.us);
  a.causal = true;
  p = predict_attention(card, a, &longest, 1);  // 1,409 would be wide
  const double half = 1104 * 640 * 2 / 4.0;     // 614 keys
  CHECK(same(p.us, (half / 2 + 0.5 * (half / 16 + half * 6 / 128) + 1000) / 2e3 + 4), "causal: %.4f us",
        p.us);
}

TEST(gemm_cost_of_rows_by_hand) {
  using sie_cuda::Limit;
  sie_cuda::Prediction p = predict_rows(round_card(), 44e6, 2);
  CHECK(p.limit == Limit::dram && same(p.us, 50 + 0.5 + 2) && same(p.floor_us, 44), "%s, %.3f us of %.3f",
        limit_name(p.limit), p.us, p.floor_us);
  p = predict_rows(round_card(), 44e3, 3);
  CHECK(p.limit == Limit::latency && same(p.us, 0.05 + 0.75 + 2), "%s, %.3f us", limit_name(p.limit), p.us);
}

// Four multiprocessors. A CTA a text, which reads as long as the longest; 8 parts of 3 octets in six turns; 64
// parts of 256 rows, joined in four trips; the same where memory is slow.
TEST(gemm_cost_of_pooling_by_hand) {
  using sie_cuda::Limit;
  const auto pooled = [](const sie_cuda::Card &card, int32_t columns, const std::vector<int32_t> &lengths) {
    return predict_pool(card, columns, lengths.data(), static_cast<int64_t>(lengths.size()));
  };
  sie_cuda::Prediction p = pooled(round_card(), 256, {100, 50, 0});
  CHECK(p.limit == Limit::latency && same(p.us, 0.4 + 0.75 + 2) && same(p.floor_us, 150 * 512e-6),
        "short texts: %s, %.4f us of %.4f", limit_name(p.limit), p.us, p.floor_us);
  p = pooled(round_card(), 256, {128, 128, 128, 128, 128, 128, 128, 128});
  CHECK(p.limit == Limit::l2 && same(p.us, 1.024 + 0.75 + 2), "of one part: %s, %.4f us", limit_name(p.limit),
        p.us);
  p = pooled(round_card(), 768, {1024});
  CHECK(p.limit == Limit::l2 && same(p.us, 3.072 + (2000 + 384) / 2e3 + 4), "a long text: %s, %.4f us",
        limit_name(p.limit), p.us);
  p = pooled(round_card(), 1024, {129, 129, 1});
  CHECK(same(p.us, 3.072 + (2000 + 128) / 2e3 + 4), "two parts each: %.4f us", p.us);
  p = pooled(round_card(), 256, {16384});
  CHECK(same(p.us, 16.384 + (3500 + 1024) / 2e3 + 4), "parts of 256 rows: %.4f us", p.us);
  sie_cuda::Card slow = round_card();
  slow.dram_bytes_s = 1e11;
  p = pooled(slow, 768, {1024});
  CHECK(p.limit == Limit::dram && same(p.us, 15.72864 / 0.88 + (2000 + 384) / 2e3 + 4),
        "slow memory: %s, %.4f us", limit_name(p.limit), p.us);
}

// Four multiprocessors: a text of 130 rows has three tiles, and 40 query rows are two of them; five texts of one
// tile are more than the busiest.
TEST(gemm_cost_of_maxsim_by_hand) {
  using sie_cuda::Limit;
  const int32_t lengths[] = {130, 20}, ones[] = {64, 64, 64, 64, 64, 64, 64, 64, 64, 64};
  sie_cuda::Prediction p = predict_maxsim(round_card(), 512, 40, lengths, 2);
  // 6 tiles of 64·32·512 products, three times at 256 a clock.
  CHECK(
      p.limit == Limit::tensor && same(p.us, (1500 + 6 * 12288) / 2e3 + 2) && same(p.floor_us, 150 * 1024e-6),
      "%s, %.4f us", limit_name(p.limit), p.us);
  p = predict_maxsim(round_card(), 512, 32, ones, 10);
  CHECK(same(p.us, (1500 + 2.5 * 12288) / 2e3 + 2), "of one tile: %.4f us", p.us);
  sie_cuda::Card card = round_card();
  card.multiply_adds = 1e6;
  p = predict_maxsim(card, 512, 40, lengths, 2);
  CHECK(p.limit == Limit::l2 && same(p.us, (1500 + 6 * 2048) / 2e3 + 2), "%s, %.4f us", limit_name(p.limit),
        p.us);
  p = predict_maxsim(card, 32, 40, lengths, 2);
  CHECK(p.limit == Limit::latency && same(p.us, (1500 + 6 * 128) / 2e3 + 2), "%s, %.4f us",
        limit_name(p.limit), p.us);
  card.dram_bytes_s = 1e9;
  p = predict_maxsim(card, 32, 40, lengths, 2);
  CHECK(p.limit == Limit::dram && same(p.us, 150 * 64e-3 / 0.88 + 2), "%s, %.4f us", limit_name(p.limit),
        p.us);
}

// Four multiprocessors: three documents are one turn, nine are two, whether a CTA has two or one. The longest of 100
// tokens is 13 a warp, by twos; a repetition has 8 partitions and 16 times 32 additions.
TEST(gemm_cost_of_muvera_by_hand) {
  using sie_cuda::Limit;
  const std::vector<int32_t> lengths = {100, 50, 10}, nine(9, 8), tall = {300};
  const auto encoded = [](const sie_cuda::Card &card, int32_t documents, const std::vector<int32_t> &of) {
    return predict_muvera(card, {64, 2, 3, 1000, documents}, of.data(), static_cast<int64_t>(of.size()));
  };
  const double planes = 160 * 64 * 6 / 512.0, rounds = 7 * 120;
  sie_cuda::Prediction p = encoded(round_card(), 2, lengths);
  CHECK(p.limit == Limit::latency && same(p.us, (planes + 2 * (7 * 32 + 270 + rounds) + 1500) / 2e3 + 4) &&
            same(p.floor_us, 0.03248),
        "%s, %.4f us of %.5f", limit_name(p.limit), p.us, p.floor_us);
  for (int32_t documents : {1, 2}) {
    p = encoded(round_card(), documents, nine);
    CHECK(same(p.us, (54 + 2 * 2 * (32 + 270 + rounds) + 1500) / 2e3 + 4), "nine, %d a CTA: %.4f us",
          documents, p.us);
  }
  sie_cuda::Card card = round_card();
  card.lanes = 32;
  p = encoded(card, 2, lengths);
  const double filled = 320 / 3.0 * 33 + 16 * 80;
  CHECK(p.limit == Limit::issue && same(p.us, (4 * planes + 2 * (filled + 16 * 39)) / 2e3 + 4), "%s, %.4f us",
        limit_name(p.limit), p.us);
  p = encoded(card, 1, lengths);
  CHECK(same(p.us, (4 * planes + 2 * (filled + 16 * 65)) / 2e3 + 4), "one a CTA: %.4f us", p.us);
  card = round_card();
  card.shared_bytes = 1;
  p = encoded(card, 2, lengths);
  CHECK(p.limit == Limit::shared && same(p.us, (planes + 2 * 2 * 128 * 16 * 5.65) / 2e3 + 4), "%s, %.4f us",
        limit_name(p.limit), p.us);
  // Rows of 256 tokens are the longest that stay in L1.
  card = round_card();
  card.l2_bytes = 1;
  p = encoded(card, 2, lengths);
  CHECK(p.limit == Limit::l2 && same(p.us, (planes + (2 * 2 * 512 * 8 + 160 * 128) / 4.0) / 2e3 + 4),
        "%s, %.4f us", limit_name(p.limit), p.us);
  p = encoded(card, 2, tall);
  CHECK(same(p.us, (225 + 2 * (512 * 8 + 300 * 128) / 4.0) / 2e3 + 4), "tall, L2: %.4f us", p.us);
  p = encoded(round_card(), 2, tall);
  CHECK(p.limit == Limit::latency && same(p.us, (225 + 2 * (19 * 270 + 270 + rounds) + 1500) / 2e3 + 4),
        "tall, %s: %.4f us", limit_name(p.limit), p.us);
  card.dram_bytes_s = 1e8;
  p = encoded(card, 2, lengths);
  CHECK(p.limit == Limit::dram && same(p.us, 324.8 / 0.88 + 4), "%s, %.4f us", limit_name(p.limit), p.us);
}

// Which tile is the faster one where the reason is known.
TEST(gemm_cost_orders_tiles) {
  GemmWork w = square(0, false);
  w.rows = 16384;
  w.n = 3072;
  w.k = 768;
  const GemmTileShape narrow = pingpong, wide = {128, 192, 128, 1};
  const double one = gemm_clocks(card_h100, w, narrow, 132), two = gemm_clocks(card_h100, w, pair, 132),
               three = gemm_clocks(card_h100, w, wide, 132);
  CHECK(two <= one, "sharing W makes a tile slower: %.0f, %.0f clocks", two, one);
  CHECK(three < two, "128 columns are bound by shared memory, 192 are not: %.0f, %.0f clocks", three, two);
  const double plain = gemm_clocks(card_h100, w, {128, 256, 64, 2}, 132);
  w.activated = true;
  const double activated = gemm_clocks(card_h100, w, {128, 256, 64, 2}, 132);
  CHECK(activated > plain * 1.05, "a cooperative tile hides its epilogue: %.0f, %.0f clocks", activated,
        plain);
  w.rows = 128;
  CHECK(gemm_clocks(card_h100, w, {64, 128, 64, 1}, 132) < gemm_clocks(card_h100, w, narrow, 132),
        "few rows want small tiles");
}

TEST(gemm_cost_never_beats_its_floor) {
  for (int64_t rows : {1, 32, 333, 4096, 16384}) {
    for (int64_t n : {64, 768, 2304, 30522}) {
      for (int64_t k : {64, 384, 768, 4096}) {
        for (bool fp8 : {false, true}) {
          GemmWork w;
          w.rows = rows;
          w.n = n;
          w.k = k;
          w.fp8 = fp8;
          for (int32_t i = 1; i < sie_cuda::GEMM_SM90_COUNT; i++) {
            const sie_cuda::GemmSm90Variant &v = sie_cuda::gemm_sm90_variants[i];
            const sie_cuda::Prediction p = predict_gemm(card_h100, w, gemm_sm90_shape(v, w));
            CHECK(p.us >= p.floor_us && p.us < 1e9, "%s: %.2f us below the floor %.2f", v.name, p.us,
                  p.floor_us);
          }
        }
      }
    }
  }
}

}  // namespace

// Products that normalise their rows: microseconds of an H200, and which tile takes them, as docs/adr/0046 has them.
TEST(gemm_cost_of_a_product_with_its_norm) {
  const GemmTileShape pair = {128, 192, 128, 2}, four = {128, 192, 128, 4}, low = {64, 192, 64, 4},
                      eight = {128, 128, 128, 8}, wide = {128, 256, 64, 4};
  const struct {
    int64_t rows, n, k;
    GemmTileShape tile;
    double us;
  } cases[] = {
      {16384, 384, 384, pair, 12.3},    {16384, 384, 1536, pair, 30.4},  {16384, 768, 768, four, 30.4},
      {16384, 768, 3072, four, 104.9},  {16512, 768, 768, four, 36.6},   {16512, 768, 3072, four, 129.7},
      {4096, 768, 768, four, 11.8},     {4096, 768, 3072, four, 30.4},   {2048, 768, 768, low, 8.6},
      {2048, 768, 3072, low, 21.0},     {512, 768, 768, low, 8.6},       {512, 768, 3072, low, 21.0},
      {16384, 1024, 1024, eight, 54.4}, {16384, 1024, 4096, wide, 196.2}};
  for (const auto &c : cases) {
    GemmWork w;
    w.rows = c.rows, w.n = c.n, w.k = c.k;
    w.residual_bytes = 2;
    const double got = predict_gemm_norm(sie_cuda::card_h200, w, c.tile).us;
    CHECK(fabs(got - c.us) < 0.05, "%lld rows of %lld by %lld: %.2f us, %.1f expected",
          static_cast<long long>(c.rows), static_cast<long long>(c.n), static_cast<long long>(c.k), got,
          c.us);
  }
}

// Of clusters that a card cannot place at once some wait; a card of few multiprocessors has one at least. Code that no
// cache holds makes the ending longer.
TEST(gemm_cost_of_clusters_that_wait) {
  GemmWork w;
  w.n = 1024, w.k = 1024, w.residual_bytes = 2;
  const auto clocks = [&](int64_t rows, int32_t cluster, int32_t multiprocessors) {
    w.rows = rows;
    return gemm_norm_clocks(card_h100, w, {128, 1024 / cluster, 64, cluster}, multiprocessors);
  };
  const struct {
    int32_t cluster, multiprocessors;
    int64_t at_once;
  } cases[] = {{2, 132, 66}, {4, 132, 32}, {8, 132, 16}, {4, 114, 28},
               {8, 78, 8},   {2, 3, 1},    {4, 2, 1},    {8, 15, 1}};
  for (const auto &c : cases) {
    CHECK(sie_cuda::gemm_norm_clusters(c.cluster, c.multiprocessors) == c.at_once, "%d of %d: %lld at once",
          c.cluster, c.multiprocessors, static_cast<long long>(c.at_once));
    const double one = clocks(128, c.cluster, c.multiprocessors);
    const double last = clocks(128 * c.at_once, c.cluster, c.multiprocessors),
                 next = clocks(128 * c.at_once + 1, c.cluster, c.multiprocessors);
    CHECK(last == one && next > one, "%d of %d: %lld at once", c.cluster, c.multiprocessors,
          static_cast<long long>(c.at_once));
  }
  w.rows = 128;
  const GemmTileShape small = {128, 256, 64, 4, 64 << 10}, big = {128, 256, 64, 4, 84 << 10};
  CHECK(gemm_norm_clocks(card_h100, w, small, 132) < gemm_norm_clocks(card_h100, w, big, 132),
        "code costs nothing");
}
