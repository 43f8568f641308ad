// gemm_cost_test.cc — the model of cost.h against figures that others have published and against the
// arithmetic of a tile by hand.
#include "cuda/cost.h"
#include "cuda/gemm_sm90_variants.h"
#include "tests/check.h"

#include <math.h>

#include <initializer_list>

namespace {

using sie_cuda::card_h100;
using sie_cuda::GemmTileShape;
using sie_cuda::GemmWork;

double tflops(const GemmWork &w, const sie_cuda::Prediction &p) {
  return 2.0 * static_cast<double>(w.rows) * static_cast<double>(w.n) * static_cast<double>(w.k) / p.us * 1e-6;
}

double off(double got, double published) { return fabs(got / published - 1); }

GemmWork square(int64_t n, bool fp8) {
  GemmWork w;
  w.rows = w.n = w.k = n;
  w.fp8 = fp8;
  return w;
}

// cuBLASLt, 8192³ in bf16, measured on an H100 SXM: 798 TFLOP/s. ThunderKittens claims 855.
TEST(gemm_cost_of_a_large_bf16_product) {
  const GemmWork w = square(8192, false);
  const double got = tflops(w, predict_gemm(card_h100, w, {128, 256, 64, 2}));
  CHECK(off(got, 798) <= 0.15, "%.0f TFLOP/s for cuBLASLt's 798", got);
  CHECK(off(got, 855) <= 0.15, "%.0f TFLOP/s for ThunderKittens' 855", got);
}

// DeepGEMM: 1,550 TFLOP/s in e4m3 with block scales at its best shape; cooperative, so that one warpgroup's
// promotion hides behind the other's products.
TEST(gemm_cost_of_a_large_fp8_product) {
  const GemmWork w = square(8192, true);
  const double got = tflops(w, predict_gemm(card_h100, w, {128, 256, 64, 2}));
  CHECK(off(got, 1550) <= 0.15, "%.0f TFLOP/s for DeepGEMM's 1,550", got);
}

// FlashAttention-3, forward, bf16, no mask, H100 SXM, as its authors' plot has it.
TEST(gemm_cost_of_flash_attention_3) {
  const struct {
    int64_t length;
    int32_t dim;
    double published;
  } points[] = {{512, 64, 333}, {1024, 64, 392}, {16384, 64, 497}, {512, 128, 467}, {1024, 128, 565}, {16384, 128, 648}};
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
    CHECK(off(shared, row.shared) < 0.002, "%.1f bytes a clock through shared memory, %.1f by hand", shared, row.shared);
    CHECK(off(l2, row.l2) < 0.002, "%.1f bytes a clock from L2, %.1f by hand", l2, row.l2);
  }
}

// Which tile is the faster one where the reason is known.
TEST(gemm_cost_orders_tiles) {
  GemmWork w = square(0, false);
  w.rows = 16384;
  w.n = 3072;
  w.k = 768;
  const GemmTileShape narrow = {128, 128, 128, 1}, pair = {128, 128, 128, 2}, wide = {128, 192, 128, 1};
  const double one = gemm_clocks(card_h100, w, narrow, 132), two = gemm_clocks(card_h100, w, pair, 132),
               three = gemm_clocks(card_h100, w, wide, 132);
  CHECK(two <= one, "sharing W makes a tile slower: %.0f, %.0f clocks", two, one);
  CHECK(three < two, "128 columns are bound by shared memory, 192 are not: %.0f, %.0f clocks", three, two);
  const double plain = gemm_clocks(card_h100, w, {128, 256, 64, 2}, 132);
  w.activated = true;
  const double activated = gemm_clocks(card_h100, w, {128, 256, 64, 2}, 132);
  CHECK(activated > plain * 1.05, "a cooperative tile hides its epilogue: %.0f, %.0f clocks", activated, plain);
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
            const sie_cuda::Prediction p =
                predict_gemm(card_h100, w, {v.rows, v.columns, v.warpgroup_rows, v.cluster});
            CHECK(p.us >= p.floor_us && p.us < 1e9, "%s: %.2f us below the floor %.2f", v.name, p.us, p.floor_us);
          }
        }
      }
    }
  }
}

}  // namespace
