// attention_sm90_test.cc — the wide form of attention on sm_90 (attention_sm90.cuh), emulated: against
// the reference at lengths around its blocks; a sequence's bits alone, in any company and by any grid;
// nothing of a neighbour enters; and which items have the form.
#include "attention_problem.h"

namespace attention_test {
namespace {

using std::vector;

Lengths self(int32_t length) { return {length, length}; }

// The wide form of all sequences against the reference; other items and grids give the same bits.
Bits check_wide(Problem *problem) {
  const Bits bits = problem->run_wide(128, 132);
  problem->verify();
  const std::pair<int32_t, int32_t> others[] = {{64, 3}, {128, 1}, {40, 7}};
  for (const auto &[rows, ctas] : others) {
    CHECK(problem->run_wide(rows, ctas) == bits, "%s: other bits by items of %d rows on %d CTAs",
          problem->text().c_str(), rows, ctas);
  }
  return bits;
}

void check_wide(const Config &config) {
  Problem problem(config);
  check_wide(&problem);
}

// Around blocks and their halves, and long.
TEST(wide_ragged_lengths) {
  const int32_t lengths[] = {1,   16,  64,  65,  127, 128, 129, 130, 191, 192,
                             193, 255, 256, 257, 300, 511, 512, 513, 1000};
  int turn = 0;
  for (int32_t length : lengths) {
    for (int32_t d : {64, 128, 256}) {
      if (d > 64 && length > 520) continue;
      const int32_t dtype = ++turn % 2 == 0 ? SIE_BF16 : SIE_F16;
      // Behind it lies a sequence whose keys and values are NaN, before it a short one.
      Problem problem({dtype, d, 1, 1, SIE_MASK_FULL, 0, false, {self(5), self(length), self(140)}});
      const Bits bits = problem.run_wide(128, 132);
      problem.verify();
      problem.poison(2);
      const Bits beside = problem.run_wide(128, 132);
      for (size_t b : {size_t{0}, size_t{1}}) {
        CHECK(problem.of(beside, b) == problem.of(bits, b), "D = %d: %d keys beside NaN have other bits", d,
              length);
      }
    }
  }
}

TEST(wide_bits_by_any_grid_and_item) {
  for (int32_t d : {64, 128, 256}) {
    const int32_t dtype = d == 64 ? SIE_BF16 : SIE_F16;
    check_wide({dtype, d, 4, 2, SIE_MASK_FULL, 0, false, {self(300), self(20), self(129), self(100)}});
    check_wide({dtype, d, 1, 1, SIE_MASK_CAUSAL, 0, false, {self(260), self(390)}});
    check_wide({dtype, d, 2, 2, SIE_MASK_WINDOW, 30, false, {self(400), self(133)}});
    check_wide({dtype, d, 1, 1, SIE_MASK_WINDOW, 0, false, {self(270)}});
    // The first row of a warpgroup sees the last key of a block, the row behind it none of that block.
    check_wide({dtype, d, 1, 1, SIE_MASK_WINDOW, 65, false, {self(200)}});
  }
  Problem one({SIE_BF16, 64, 1, 1, SIE_MASK_FULL, 0, false, {self(20)}});
  CHECK(one.run_wide(128, 0) == one.run_wide(128, 1), "no CTA where the multiprocessors are not known");
}

// One query a sequence, more queries than keys, queries at the first keys: groups without rows, and rows
// that see nothing.
TEST(wide_lengths_may_differ) {
  const vector<Lengths> lengths = {{1, 200}, {70, 129}, {300, 140}, {3, 513}, {129, 400}, {5, 60}};
  for (int32_t mask : {SIE_MASK_FULL, SIE_MASK_CAUSAL, SIE_MASK_WINDOW}) {
    check_wide({SIE_BF16, 64, 3, 1, mask, 10, false, lengths});
    check_wide({SIE_F16, 128, 1, 1, mask, 33, false, lengths, 1, -1, true});
    check_wide({SIE_BF16, 256, 1, 1, mask, 70, false, lengths, 1, -1, mask == SIE_MASK_WINDOW});
  }
}

// Keys in two segments have the bits of the same keys in one (harness: attention_prefix); here every
// place where the first may end in a block.
TEST(wide_prefixes) {
  const vector<Lengths> lengths = {{40, 200, 127}, {30, 300, 128}, {5, 260, 129}, {20, 276, 256},
                                   {1, 140, 139},  {150, 150, 0},  {9, 137, 1},   {60, 330, 200}};
  for (int32_t d : {64, 128, 256}) {
    check_wide({SIE_BF16, d, 2, 1, SIE_MASK_CAUSAL, 0, false, lengths});
    check_wide({SIE_F16, d, 1, 1, SIE_MASK_FULL, 0, false, lengths});
    check_wide({SIE_F16, d, 2, 2, SIE_MASK_FULL, 0, false, {{40, 200, 127}, {9, 137, 1}}});
  }
}

// ALiBi: heads of several slopes, in groups and not, behind every mask; positions behind the keys, before
// them, and over two segments.
TEST(wide_slopes) {
  for (int32_t d : {64, 128}) {
    const int32_t dtype = d == 64 ? SIE_BF16 : SIE_F16;
    check_wide({dtype, d, 4, 2, SIE_MASK_FULL, 0, true, {self(300), self(20), self(129)}});
    check_wide({dtype, d, 2, 1, SIE_MASK_CAUSAL, 0, true, {self(260), {70, 390}}});
    check_wide({dtype, d, 2, 2, SIE_MASK_WINDOW, 60, true, {self(290), {300, 140}}});
    check_wide({dtype, d, 3, 1, SIE_MASK_FULL, 0, true, {{1, 257}, {150, 129}, {3, 384}}, 1, -1, true});
    check_wide({dtype, d, 2, 1, SIE_MASK_FULL, 0, true, {{40, 200, 127}, {20, 276, 256}, {9, 137, 1}}});
  }
}

// A bias by distance: near all keys, near a few, the same for all.
TEST(wide_biases) {
  for (int32_t d : {64, 128}) {
    const int32_t dtype = d == 64 ? SIE_BF16 : SIE_F16;
    const auto biased = [&](int32_t heads, int32_t mask, int32_t window, vector<Lengths> lengths,
                            int32_t reach, bool first = false) {
      check_wide({dtype, d, heads, 1, mask, window, false, lengths, 1, reach, first});
    };
    biased(3, SIE_MASK_FULL, 0, {self(300), self(20), self(129)}, 40);
    biased(2, SIE_MASK_FULL, 0, {self(270)}, 600);
    biased(2, SIE_MASK_CAUSAL, 0, {self(260), {70, 390}}, 128);
    biased(2, SIE_MASK_WINDOW, 60, {self(290), {300, 140}}, 33);
    biased(2, SIE_MASK_FULL, 0, {{1, 257}, {150, 129}, {3, 384}}, 9, true);
    biased(1, SIE_MASK_FULL, 0, {{20, 200}, self(130)}, 0);
  }
}

// Where all of a block's keys are farther than the reach, the one bias that they have: the bits of a table
// that holds it for each distance.
TEST(wide_biases_far_away) {
  for (int32_t reach : {0, 17, 18, 19, 66, 127, 128, 130}) {
    Config config = {SIE_BF16, 64, 2, 1, SIE_MASK_FULL, 0, false, {self(400), {60, 513}, {9, 385}}, 1, reach};
    Problem held(config);
    config.reach = 600, config.level = reach;
    Problem listed(config);
    CHECK(held.run_wide(128, 132) == listed.run_wide(128, 132), "%s: other bits beyond a reach of %d",
          held.text().c_str(), reach);
  }
}

// A block whose largest score is far below, or far above, that of the blocks before.
TEST(wide_scores_may_fall_and_rise) {
  for (float steep : {40.0f, 0.02f}) {
    for (int32_t d : {64, 128, 256})
      check_wide({SIE_BF16, d, 1, 1, SIE_MASK_FULL, 0, false, {{40, 290}}, steep});
  }
}

// Tall items and short ones by kernels of their own have the bits that one launch for all gives them.
TEST(parts_of_a_list) {
  for (int32_t d : {64, 128, 256}) {
    for (int32_t dtype : {SIE_BF16, SIE_F16}) {
      const int32_t tall = d == 256 ? 200 : 300;
      Problem plain({dtype, d, 2, 1, SIE_MASK_FULL, 0, false, {self(100), self(7), self(tall), self(40)}});
      CHECK(plain.run() == plain.run(89), "%s: other bits in parts", plain.text().c_str());
      CHECK(plain.run() == plain.run(90, 1), "%s: other bits by a smaller grid", plain.text().c_str());
      Problem behind(
          {dtype, d, 1, 1, SIE_MASK_CAUSAL, 0, false, {{20, tall, 100}, {10, 70, 20}, {5, 20, 3}}});
      CHECK(behind.run() == behind.run(89), "%s: other bits in parts", behind.text().c_str());
      if (d == 256) continue;
      Problem biased(
          {dtype, d, 2, 1, SIE_MASK_FULL, 0, false, {self(100), self(7), self(300), self(40)}, 1, 50});
      CHECK(biased.run() == biased.run(89), "%s: other bits in parts", biased.text().c_str());
    }
  }
}

// One CTA for each head takes all items of a part in turn, in the same shared memory: tall and short ones, of as many
// blocks as there is room for, whose few queries leave warps without work, and more warp items than it has warps.
TEST(parts_take_their_items_in_turn) {
  for (int32_t d : {64, 128, 256}) {
    const int32_t most = sie_cuda::attention_short_keys(d);
    Problem mixed({SIE_BF16,
                   d,
                   9,
                   1,
                   SIE_MASK_FULL,
                   0,
                   false,
                   {{20, most + 44},
                    {17, most + 1},
                    {20, most},
                    {33, most - 9},
                    {5, 40},
                    self(32),
                    self(7),
                    self(5),
                    self(3),
                    self(9),
                    self(2)}});
    CHECK(mixed.run(90, 1) == mixed.run(89), "%s: other bits by one CTA", mixed.text().c_str());
  }
}

// The form is a function of the sequence's own keys: beside longer ones, a sequence has the bits of the
// narrow kernel up to attention_narrow_keys; a longer one those that it has among its like, on any GPU of
// Hopper's kind, and other programs have no wide form.
TEST(wide_form_by_own_length) {
  enum Beside { nothing, slopes, bias };
  for (int32_t d : {64, 128, 256}) {
    const int32_t most = sie_cuda::attention_narrow_keys(d, SIE_MASK_FULL);
    for (Beside beside : {nothing, slopes, bias}) {
      if (d == 256 && beside != nothing) continue;
      Problem mixed({SIE_BF16,
                     d,
                     1,
                     1,
                     SIE_MASK_FULL,
                     0,
                     beside == slopes,
                     {{beside == nothing ? most : 50, most}, {40, most + 1}, self(33), self(5)},
                     1,
                     beside == bias ? 20 : -1});
      const Bits bits = mixed.run(), narrow = mixed.run(89), wide = mixed.run_wide(128, 132);
      mixed.verify();
      for (size_t b : {size_t{0}, size_t{2}, size_t{3}})
        CHECK(mixed.of(bits, b) == mixed.of(narrow, b), "%s: sequence %zu has another form",
              mixed.text().c_str(), b);
      CHECK(mixed.of(bits, 1) == mixed.of(wide, 1) && mixed.of(bits, 1) != mixed.of(narrow, 1),
            "%s: %d keys have no form of their own", mixed.text().c_str(), most + 1);
      CHECK(mixed.run(90, 2) == bits, "%s: other bits on two multiprocessors", mixed.text().c_str());
    }
    if (d == 256) continue;
    Problem both({SIE_BF16, d, 1, 1, SIE_MASK_FULL, 0, true, {self(20), {30, most + 1}}, 1, 9});
    CHECK(both.run() == both.run(89), "D = %d: slopes and a bias have a wide form", d);
  }
  Problem window({SIE_BF16, 64, 1, 1, SIE_MASK_WINDOW, 352, false, {{30, 1000}}}),
      wider({SIE_BF16, 64, 1, 1, SIE_MASK_WINDOW, 353, false, {{30, 1000}}});
  CHECK(window.run() == window.run(89), "a window of 704 keys has a wide form");
  CHECK(wider.run() == wider.run_wide(128, 132), "a window of 706 keys has none");
  Problem causal({SIE_BF16, 128, 1, 1, SIE_MASK_CAUSAL, 0, false, {{30, 896}, {40, 897}}});
  const Bits bits = causal.run();
  CHECK(causal.of(bits, 0) == causal.of(causal.run(89), 0), "896 keys in causal order have a wide form");
  CHECK(causal.of(bits, 1) == causal.of(causal.run_wide(128, 132), 1), "897 have none");
  Problem slow({SIE_BF16, 256, 2, 1, SIE_MASK_CAUSAL, 0, false, {{30, 256}, {40, 257}}});
  const Bits of_256 = slow.run();
  CHECK(slow.of(of_256, 0) == slow.of(slow.run(89), 0), "D = 256: 256 keys have a wide form");
  CHECK(slow.of(of_256, 1) == slow.of(slow.run_wide(128, 132), 1), "D = 256: 257 keys have none");
  Problem sloped({SIE_BF16, 256, 1, 1, SIE_MASK_FULL, 0, true, {{30, 300}}});
  CHECK(sloped.run() == sloped.run(89), "D = 256: slopes have a wide form");
  Problem other({SIE_BF16, 32, 1, 1, SIE_MASK_FULL, 0, false, {self(20), {30, 1000}}});
  CHECK(other.run() == other.run(89), "D = 32 has a wide form");
}

}  // namespace
}  // namespace attention_test
