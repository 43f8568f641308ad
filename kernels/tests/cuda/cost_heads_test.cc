// cost_heads_test.cc — the formulas of cost_heads.h against arithmetic by hand, on a card of round
// numbers: four multiprocessors at 2 GHz; an instruction of a warp is a fourth of a clock, and a
// pass through shared memory is one.
#include "cuda/cost_heads.h"
#include "cuda/lora.h"

#include "tests/check.h"
#include "tests/cuda/round_card.h"

#include <vector>

namespace {

using sie_cuda::Card;
using sie_cuda::Limit;
using sie_cuda::Prediction;
using sie_cuda::round_card;
using sie_cuda::same;

// Compares a prediction with clocks by hand.
void expect(const char *what, const Prediction &p, Limit limit, double clocks, double launches = 1) {
  const double want = clocks / 2e3 + 2 * launches;
  CHECK(p.limit == limit && same(p.us, want), "%s: %.4f us by %s, %.4f by hand", what, p.us,
        limit_name(p.limit), want);
}

// A card one of whose rates is `times` as high.
Card with(double Card::*rate, double times) {
  Card card = round_card();
  card.*rate *= times;
  return card;
}

// A prediction that DRAM bounds.
void expect_bytes(const char *what, const Prediction &p, double bytes) {
  CHECK(p.limit == Limit::dram && same(p.us, bytes + 2) && same(p.floor_us, bytes),
        "%s: %.4f us by %s, floor %.4f", what, p.us, limit_name(p.limit), p.floor_us);
}

// A line of a tile: 4 · 64 passes for reads and 48 for copies, 208 instructions, 96 clocks of L2.
TEST(cost_of_linear_f32_by_hand) {
  expect("one tile", predict_linear_f32(round_card(), 16, 32, 64), Limit::latency, 1500 + 2 * 304);
  expect("a row and a column more", predict_linear_f32(round_card(), 33, 33, 640), Limit::shared,
         1500 + 20 * 2 * 304);
  expect("a part of a line", predict_linear_f32(round_card(), 64, 64, 641), Limit::shared,
         1500 + 21 * 2 * 304);
  const Prediction p = predict_linear_f32(round_card(), 64, 64, 640);
  CHECK(same(p.floor_us, 64 * 64 * 640 / 512 / 2e3), "a floor of %.4f us", p.floor_us);
  expect("L2", predict_linear_f32(with(&Card::l2_bytes, 1 / 8.0), 64, 64, 640), Limit::l2,
         1500 + 20 * 2 * 768);
  expect("issue", predict_linear_f32(with(&Card::lanes, 1 / 4.0), 64, 64, 640), Limit::issue,
         1500 + 20 * 2 * 832);
  expect("five lines under way", predict_linear_f32(with(&Card::load_clocks, 10), 64, 64, 640),
         Limit::latency, 15000 + 20 * 1000);
  expect_bytes("bytes", predict_linear_f32(with(&Card::dram_bytes_s, 1e-4), 64, 64, 640),
               4e-2 * (640 * 128 + 64 * 64));
}

// Two CTAs a multiprocessor, of at least 128 columns, in whole turns of 64.
TEST(cost_of_lora_deals_columns_by_hand) {
  const struct {
    int64_t row_tiles, n, multiprocessors, columns;
  } rows[] = {{1, 1, 132, 64},      {1, 64, 132, 64},      {1, 128, 132, 128},   {1, 1024, 132, 128},
              {1, 1000, 132, 128},  {100, 1024, 132, 512}, {132, 768, 132, 384}, {133, 768, 132, 768},
              {264, 768, 132, 768}, {1000, 768, 132, 768}, {3, 1024, 4, 512}};
  for (const auto &r : rows) {
    const int64_t got = sie_cuda::lora_block_columns(r.row_tiles, r.n, r.multiprocessors);
    CHECK(got == r.columns, "%lld tiles of rows, %lld columns: %lld a CTA, %lld by hand",
          static_cast<long long>(r.row_tiles), static_cast<long long>(r.n), static_cast<long long>(got),
          static_cast<long long>(r.columns));
  }
}

// A step of 32 columns of x waits for memory and a rank's further rows for L1: 500 + 32 + 80
// clocks. 64 columns of y are 256 clocks of L2 for each CTA, or B's trip and a product, 310.
TEST(cost_of_lora_by_hand) {
  const sie_cuda::LoraShape a = {128, 64, 16};
  expect("a tile", predict_lora(round_card(), a, 64, 64), Limit::latency, 2000 + 2 * 612 + 2 * 310);
  expect("none has an adapter", predict_lora(round_card(), a, 64, 0), Limit::latency, 2000 + 2 * 256);
  expect("a row more", predict_lora(round_card(), a, 65, 1), Limit::latency, 2000 + 2 * 612 + 2 * 310);
  expect("three a multiprocessor", predict_lora(round_card(), a, 9 * 64, 64), Limit::latency,
         2000 + 2 * 612 + 2 * 3 * 256);
  expect("two turns of four", predict_lora(round_card(), a, 17 * 64, 64), Limit::latency,
         2000 + 2 * (2 * 612 + 2 * 4 * 256));
  expect("columns for each CTA", predict_lora(round_card(), {1000, 64, 16}, 64, 64), Limit::latency,
         2000 + 2 * 612 + 2 * 2 * 256);
  expect("two runs of ranks", predict_lora(round_card(), {128, 65, 65}, 64, 64), Limit::latency,
         2000 + 3 * 2 * (500 + 7 * 32 + 80) + 2 * 5 * 310);
  expect("a rank more", predict_lora(round_card(), {128, 64, 17}, 64, 64), Limit::latency,
         2000 + 2 * (500 + 3 * 32 + 80) + 2 * 2 * 310);
  expect("x, slow", predict_lora(with(&Card::dram_bytes_s, 1e-3), {64, 4096, 16}, 64, 64), Limit::dram,
         2000 + 2 * (64 * 4096 * 2 + 64 * 64 * 4) / 0.88);
  const Prediction p = predict_lora(with(&Card::dram_bytes_s, 1e-3), a, 64, 32);
  CHECK(p.limit == Limit::dram && same(p.us, (4.096 + 32.768) / 0.88 + 1 + 2) &&
            same(p.floor_us, 8.192 + 32.768),
        "bytes: %.4f us by %s of %.4f", p.us, limit_name(p.limit), p.floor_us);
  // 2·64·64 bytes of x never take as long as their trips here.
  expect("y, slow", predict_lora(with(&Card::dram_bytes_s, 1.0 / 32), a, 64, 64), Limit::latency,
         2000 + 2 * 612 + 32768 * 32 / 0.88 / 500);
  expect("y, slower", predict_lora(with(&Card::dram_bytes_s, 1.0 / 64), a, 64, 64), Limit::dram,
         2000 + 2 * 612 + 32768 * 64 / 0.88 / 500);
}

// A step has 310 instructions beside its products, a trip to L2 and two across the cluster: 940
// clocks.
TEST(cost_of_lstm_by_hand) {
  const std::vector<int32_t> lengths = {3, 5, 4, 1, 7}, one = {10};
  const auto of = [](const Card &card, const sie_cuda::LstmShape &a, const std::vector<int32_t> &of) {
    return predict_lstm(card, a, of.data(), static_cast<int64_t>(of.size()));
  };
  // A lone warp of two units a CTA; groups of 5 and of 7 steps, one after the other.
  expect("few units", of(round_card(), {16, 1}, lengths), Limit::latency, 2 * (1500 + 16) + 12 * (182 + 940));
  Card card = round_card();
  card.multiprocessors = 16;
  expect("beside each other", of(card, {16, 1}, lengths), Limit::latency, 1516 + 7 * (182 + 940));
  // Forty units a CTA are five warps, of which one scheduler has two.
  const double begin = 1500 + 4 * 40 * 320 * 4 / 64.0, ends = 310 * 1.25 + 630;
  const Prediction p = of(round_card(), {320, 2}, one);
  expect("both directions", p, Limit::shared, 2 * begin + 20 * (4000 + ends));
  CHECK(same(p.floor_us, 20 * 4 * 320 * 320 / 512.0 / 2e3), "a floor of %.4f us", p.floor_us);
  // 33 units a CTA are five warps, too, and 264 columns nine lines of 32.
  expect("a unit more", of(round_card(), {264, 1}, one), Limit::shared,
         1500 + 4 * 33 * 288 * 4 / 64.0 + 10 * (3600 + ends));
  expect("no texts", of(round_card(), {16, 1}, {}), Limit::dram, 2e-3 * 4 * 16 * 16 * 4);
  expect("issue", of(with(&Card::shared_bytes, 8), {320, 2}, one), Limit::issue,
         2 * begin + 20 * (2275 + ends));
  expect_bytes("bytes", of(with(&Card::dram_bytes_s, 1e-4), {320, 2}, one),
               1e-2 * (20 * 5 * 320 * 2 + 2 * 4 * 320 * 320 * 4));
}

// A line is 700 instructions a warp or 608 passes, and for a lone CTA five trips to L2 more; a
// tile's end 400 instructions.
TEST(cost_of_spans_by_hand) {
  const std::vector<int32_t> two = {3, 0, 5}, many = {160};
  const auto of = [](const Card &card, const sie_cuda::SpansShape &a, const std::vector<int32_t> &of) {
    return predict_spans(card, a, of.data(), static_cast<int64_t>(of.size()));
  };
  Prediction p = of(round_card(), {32, 12, 32}, two);
  expect("three CTAs", p, Limit::latency, 2500 + 2050 + 400);
  CHECK(same(p.floor_us, 21 * 32 * 32 / 512.0 / 2e3), "a floor of %.5f us", p.floor_us);
  expect("four tiles of two lines", of(round_card(), {33, 13, 33}, two), Limit::latency,
         2500 + 4 * (2 * 2050 + 400));
  expect("no texts", of(round_card(), {32, 12, 32}, {}), Limit::latency, 2500);
  expect("a word", of(round_card(), {32, 12, 32}, {1}), Limit::latency, 2500 + 2050 + 400);
  // 12 CTAs are one turn, 13 are two.
  expect("48 words", of(round_card(), {32, 12, 32}, {48}), Limit::issue, 2500 + 2100 + 1200);
  expect("of two texts", of(round_card(), {32, 12, 32}, {24, 24}), Limit::issue, 2500 + 2100 + 1200);
  expect("49 words", of(round_card(), {32, 12, 32}, {49}), Limit::issue, 2500 + 2 * (2100 + 1200));
  // 40 CTAs, three a multiprocessor, in four turns.
  p = of(round_card(), {64, 12, 32}, many);
  expect("many", p, Limit::issue, 2500 + 4 * (2 * 2100 + 3 * 400));
  CHECK(same(p.floor_us, (12 * 160 - 66) * 32 * 64 / 512.0 / 2e3), "a floor of %.5f us", p.floor_us);
  expect("shared memory", of(with(&Card::shared_bytes, 0.5), {64, 12, 32}, many), Limit::shared,
         2500 + 4 * (2 * 3 * 1216 + 3 * 400));
  expect("L2", of(with(&Card::l2_bytes, 1 / 64.0), {64, 12, 32}, many), Limit::l2,
         2500 + 4 * (2 * 3 * 3328 + 3 * 400));
  expect_bytes("bytes", of(with(&Card::dram_bytes_s, 1e-6), {64, 12, 32}, many), 2 * (320 + 32) * 64);
}

// A line is 2,048 clocks of products, 480 of instructions or 968 passes; a panel's end 2,400 clocks
// of instructions or 768 passes; for a lone CTA a trip a line and three chains of loads more.
TEST(cost_of_pairs_by_hand) {
  const std::vector<int32_t> one = {8}, many = {80};
  const auto of = [](const Card &card, const sie_cuda::PairsShape &a, const std::vector<int32_t> &of) {
    return predict_pairs(card, a, of.data(), static_cast<int64_t>(of.size()));
  };
  const double chains = 3 * (16 * 32 + 4 * 238);
  expect("one CTA", of(round_card(), {64, 64, 16}, one), Limit::latency, 2500 + 270 + 2048 + chains);
  expect("four panels", of(round_card(), {65, 65, 17}, one), Limit::latency,
         2500 + 4 * (2 * (270 + 2048) + chains));
  expect("72 words", of(round_card(), {64, 640, 16}, {72}), Limit::tensor, 2500 + 2 * 2 * 20480);
  expect("64 words", of(round_card(), {64, 640, 16}, {64}), Limit::tensor, 2500 + 2 * 20480);
  const Prediction p = of(round_card(), {64, 640, 16}, many);  // ten CTAs, two a multiprocessor, in two turns
  expect("many", p, Limit::tensor, 2500 + 2 * 2 * 20480);
  CHECK(same(p.floor_us, 80 * 16 * 64 * 640 / 2048.0 / 2e3), "a floor of %.4f us", p.floor_us);
  Card card = with(&Card::multiply_adds, 16);
  expect("shared memory", of(card, {64, 640, 16}, many), Limit::shared, 2500 + 2 * 2 * (9680 + 768));
  card.load_clocks = 0;
  card.shared_bytes *= 4;  // 242 passes, 480 clocks of instructions
  expect("a lone CTA's line", of(card, {64, 128, 16}, one), Limit::latency, 2 * (270 + 480) + chains);
  card = with(&Card::lanes, 1 / 8.0);
  expect("issue", of(card, {64, 640, 16}, many), Limit::issue, 2500 + 2 * 2 * (10 * 3840 + 19200));
  expect("a lone CTA's instructions", of(card, {64, 64, 16}, one), Limit::latency, 2500 + 270 + 3840 + 19200);
  expect("L2", of(with(&Card::l2_bytes, 1 / 64.0), {64, 640, 16}, many), Limit::l2,
         2500 + 2 * 2 * 10 * 11264);
  expect_bytes("bytes", of(with(&Card::dram_bytes_s, 1e-6), {64, 640, 16}, many),
               2 * (64 * 640 + (80 + 16) * (64 + 640)));
}

// Anchors in blocks of 64: 600 instructions a warp and step and 140 for offering, or 138 and 40
// passes; for a lone CTA four trips to L1 and two to memory a step. The rows' norms are a kernel of
// their own, and so is pooling.
TEST(cost_of_smve_by_hand) {
  const std::vector<int32_t> one = {32}, many = {200, 88}, nine(9, 32);
  const auto of = [](const Card &card, const sie_cuda::SmveShape &a, const std::vector<int32_t> &of) {
    return predict_smve(card, a, of.data(), static_cast<int64_t>(of.size()));
  };
  const auto norms = [](double rows, double columns) { return rows * columns * 2 / 0.88 * 2e-3 + 1000; };
  const auto pool = [](double rows, double lists, double ranges) {
    return 1500 + rows * lists * (ranges * 92 + 238) + ranges * 3800;
  };
  Prediction p = of(round_card(), {32, 1, 64, 64}, one);
  expect("one block", p, Limit::latency, 1000 + 128 + 1000 + 1480 + pool(32, 2, 1) + norms(32, 32), 3);
  CHECK(same(p.floor_us, 32 * 64 * 32 / 512.0 / 2e3), "a floor of %.5f us", p.floor_us);
  // Two steps; a list of 64 takes 64·ln 2 further ones of 128, each in 130 instructions, for each
  // of 32 rows.
  const double found = 32 * 64 * log(2) / 2 * 130;
  expect("two blocks", of(round_card(), {33, 1, 128, 64}, one), Limit::latency,
         1000 + 2 * (2 * 1128 + 2 * (1200 + 140) + found / 4) + pool(32, 2, 1) + norms(32, 33), 3);
  // Nine CTAs, two a multiprocessor, in two turns.
  const double offers = 1480 + 32 * 32 * log(2) * 130 / 4;
  expect("many", of(round_card(), {32, 1, 64, 32}, many), Limit::issue,
         1000 + 4 * offers + pool(200, 1, 1) + norms(288, 32), 3);
  expect("repetitions", of(round_card(), {32, 2, 64, 32}, one), Limit::latency,
         1000 + 1128 + offers + pool(32, 1, 1) + norms(32, 32), 3);
  // Of two turns the first waits for memory; 9 sequences are pooled in two turns of two a
  // multiprocessor.
  p = of(with(&Card::load_clocks, 10), {32, 1, 64, 64}, nine);
  expect("slow memory", p, Limit::issue,
         10000 + 11608 + 2960 + 15000 + 2 * (32 * 2 * (92 + 238) + 3800) + norms(288, 32) + 9000, 3);
  expect("an anchor more", of(round_card(), {32, 1, 65, 65}, one), Limit::latency,
         1000 + 2 * 2608 + pool(32, 3, 1) + norms(32, 32), 3);
  expect("a row more", of(round_card(), {32, 1, 64, 64}, {129}), Limit::issue,
         1000 + 2960 + pool(129, 2, 1) + norms(129, 32), 3);
  expect("a column more", of(round_card(), {32, 1, 8193, 8193}, one), Limit::latency,
         1000 + 129 * 2608 + pool(32, 257, 2) + norms(32, 32), 3);
  expect("ranges", of(round_card(), {32, 5, 2048, 2048}, one), Limit::issue,
         1000 + 32 * 2960 + pool(32, 64, 2) + norms(32, 32), 3);
  expect("shared memory", of(with(&Card::shared_bytes, 0.5), {32, 1, 64, 64}, nine), Limit::shared,
         1000 + 4 * 2848 + 1500 + 2 * (32 * 2 * 330 + 3800) + norms(288, 32), 3);
  expect("L2", of(with(&Card::l2_bytes, 1 / 32.0), {32, 1, 64, 64}, nine), Limit::l2,
         1000 + 4 * 4096 + 1500 + 2 * (32 * 2 * 330 + 3800) + norms(288, 32), 3);
  p = of(with(&Card::dram_bytes_s, 1e-4), {32, 3, 64, 64}, one);
  const double rows = 32 * 32 * 2 * 1e-2, all = rows + 3 * 64 * 32 * 4 * 1e-2;
  CHECK(p.limit == Limit::dram && same(p.us, all + rows / 0.88 + 0.5 + 6) && same(p.floor_us, all),
        "%.4f us by %s of %.4f", p.us, limit_name(p.limit), p.floor_us);
}

// Blocks of 64 queries and 64 keys: 80 times eight rows of a table, 70 instructions and 13 passes
// each; 680 and 240 a warp beside them. A warp waits 302 clocks for each eight.
TEST(cost_of_disentangled_attention_by_hand) {
  const std::vector<int32_t> one = {64}, many(20, 64), few = {20}, more = {65};
  const auto of = [](const Card &card, const sie_cuda::DisentangledShape &a, const std::vector<int32_t> &of) {
    return predict_disentangled(card, a, of.data(), static_cast<int64_t>(of.size()));
  };
  expect("one block", of(round_card(), {2, 64}, one), Limit::latency, 2000 + 20 * 302);
  expect("twenty queries", of(round_card(), {2, 64}, few), Limit::latency, 2000 + 10 * 302);
  // 64 and 1 queries, with 64 and 1 keys: the longest CTA has 10 + 10 and 10 + 2 eights.
  expect("a query more", of(round_card(), {2, 64}, more), Limit::latency, 2000 + 32 * 302);
  const double scores = 10 * 4096, exposed = 0.5 * (scores / 16 + scores * 6 / 128);
  Prediction p = of(round_card(), {2, 64}, many);
  expect("many", p, Limit::tensor, 2000 + 20 * 2304 + exposed);
  CHECK(same(p.floor_us, 4 * 20 * 4096 * 2 * 64 / 2048.0 / 2e3), "a floor of %.4f us", p.floor_us);
  // 64 and 17 queries with 64 and 17 keys: 80, 36, 36 and 16 eights by 4, 4, 2 and 2 warps.
  p = of(round_card(), {2, 64}, std::vector<int32_t>(20, 81));
  expect("ends", p, Limit::tensor, 2000 + 10 * (168 * 128 + 2 * 12 * 1024) / 4 + 0.5 * (7680 + 5760));
  CHECK(same(p.floor_us, 4 * 20 * 81 * 81 * 2 * 64 / 2048.0 / 2e3), "a floor of %.4f us", p.floor_us);
  Card card = with(&Card::multiply_adds, 16);
  expect("shared memory", of(card, {2, 64}, many), Limit::shared, 2000 + 20 * 1064 + exposed);
  expect("instructions", of(with(&Card::lanes, 1 / 4.0), {2, 64}, many), Limit::issue,
         2000 + 20 * 4160 + 0.5 * (scores / 16 + scores * 6 / 32));
  expect("exponentials", of(with(&Card::exponentials, 1 / 64.0), {2, 64}, many), Limit::exponentials,
         2000 + scores * 4 + 0.5 * (scores * 4 + scores * 6 / 128));
  // Three CTAs hide each other's waits, two at 128 columns.
  card.shared_bytes *= 16, card.lanes *= 16;
  expect("waits", of(card, {2, 64}, many), Limit::latency, 2000 + 0.5 * 400 / 3 * 302);
  expect("waits, 128 columns", of(card, {2, 128}, many), Limit::latency, 2000 + 0.5 * 400 / 2 * 302);
  expect("128 columns", of(round_card(), {2, 128}, many), Limit::tensor, 2000 + 20 * 4608 + exposed);
  // 80 eights of 21 passes, four warps of 416, and 256 for the copies; of 80 instructions, and of
  // 780.
  card = with(&Card::multiply_adds, 16);
  expect("128 columns, shared", of(card, {2, 128}, many), Limit::shared,
         2000 + 10 * (1680 + 1664 + 256) + exposed);
  card.shared_bytes *= 4, card.lanes /= 2;
  expect("128 columns, instructions", of(card, {2, 128}, many), Limit::issue,
         2000 + 20 * (1600 + 780) + 0.5 * (scores / 16 + scores * 6 / 64));
  p = of(with(&Card::dram_bytes_s, 1e-6), {2, 64}, many);
  const double bytes = 4 * 1280 * 2 * 64 * 2;
  CHECK(p.limit == Limit::dram && same(p.us, bytes / 0.88 + 2) && same(p.floor_us, bytes),
        "%.4f us by %s of %.4f", p.us, limit_name(p.limit), p.floor_us);
}

}  // namespace
