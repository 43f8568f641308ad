// attention_test.cc — attention's CUDA kernel under emulation, beyond the conformance list: every
// form, number of warps, grid and way to cut the rows gives the same bits; queries and keys of any
// lengths. The wide form of sm_90 has bits of its own (attention_sm90_test.cc).
#include "attention_problem.h"

namespace attention_test {
namespace {

using std::vector;

// The table's own run against the reference, and every other way to run against that, bit for bit.
void check_forms(const Config &config) {
  Problem problem(config);
  problem.run();
  problem.verify();
  const Bits bits = problem.run(89);
  problem.verify();
  const Form forms[] = {
      {4, 2, 64, false},      // tiles of one CTA's rows
      {4, 2, 1024, true},     // one item a sequence: rounds of tiles
      {4, 3, 128, true, 1},   // short for up to three blocks, two rounds; one CTA takes all items in turn
      {8, 2, 128, false},     //
      {8, 3, 192, true, 40},  // a grid larger than the list; the last round is half empty
  };
  for (const Form &f : forms) {
    if (f.warps == 8 && config.head_dim == 256) continue;
    CHECK(problem.run_as(f) == bits, "%s: other bits by %d warps, %d resident blocks, %d rows%s",
          problem.text().c_str(), f.warps, f.resident, f.rows, f.warp_form ? ", warp form" : "");
  }
}

TEST(forms_agree) {
  const vector<Lengths> lengths = {{130, 130}, {0, 40}, {31, 31}, {1, 1},
                                   {32, 32},   {70, 0}, {65, 65}, {9, 0}};
  for (int32_t d : {32, 64, 128, 256}) {
    for (int32_t dtype : {SIE_BF16, SIE_F16}) {
      check_forms({dtype, d, 2, 2, SIE_MASK_FULL, 0, false, lengths});
    }
    check_forms({SIE_BF16, d, 1, 1, SIE_MASK_CAUSAL, 0, true, {{150, 150}, {20, 20}}});
    // Rows from 80 on see key 63 first, the last of its block.
    check_forms({SIE_F16, d, 1, 1, SIE_MASK_WINDOW, 17, false, {{210, 210}, {20, 20}}});
  }
}

// A relative bias in every form: of a reach within a block, across blocks, and beyond the text.
TEST(forms_agree_on_biases) {
  const vector<Lengths> lengths = {{150, 150}, {31, 31}, {1, 1}, {32, 32}, {70, 0}, {65, 65}, {1, 100}};
  for (int32_t d : {32, 64, 128}) {
    check_forms({SIE_BF16, d, 2, 1, SIE_MASK_FULL, 0, false, lengths, 1, 20});
    check_forms({SIE_F16, d, 2, 2, SIE_MASK_WINDOW, 17, false, lengths, 1, 100});
    check_forms({SIE_BF16, d, 1, 1, SIE_MASK_CAUSAL, 0, true, {{150, 150}, {20, 20}}, 1, 400});
  }
}

// Keys that are the first rows of a sequence, in a window that some queries have left behind.
TEST(forms_agree_on_first_keys) {
  const vector<Lengths> lengths = {{150, 70}, {90, 20}, {33, 32}, {5, 1}, {70, 0}, {300, 129}};
  for (int32_t d : {32, 64, 128}) {
    check_forms({SIE_BF16, d, 2, 1, SIE_MASK_WINDOW, 17, false, lengths, 1, -1, true});
  }
}

// Keys in two segments in every form: prefixes that end within a block, between two and between the
// rows of a copy; of no key, of all keys, and longer than a window.
TEST(forms_agree_on_prefixes) {
  const vector<Lengths> lengths = {{90, 150, 60}, {20, 20},      {5, 32, 27},   {1, 31, 31},
                                   {3, 67, 64},   {70, 0},       {40, 103, 63}, {6, 71, 65},
                                   {2, 200, 193}, {64, 128, 64}, {0, 40, 9}};
  for (int32_t d : {32, 64, 128, 256}) {
    check_forms({SIE_BF16, d, 2, 1, SIE_MASK_CAUSAL, 0, false, lengths});
    check_forms({SIE_F16, d, 2, 2, SIE_MASK_WINDOW, 17, d == 64, lengths});
    check_forms({SIE_BF16, d, 1, 1, SIE_MASK_FULL, 0, true, {{40, 133, 70}, {3, 9, 4}}});
  }
}

// What no instance has, and a reach that is none.
TEST(biases_are_refused) {
  Problem problem({SIE_BF16, 256, 2, 2, SIE_MASK_FULL, 0, false, {{3, 3}}, 1, 4});
  sie_attention_args a = problem.args();
  CHECK(sie_cuda::attention_check(&a) == SIE_UNSUPPORTED, "head dimension 256 has a bias");
  a.head_dim = 128;
  CHECK(sie_cuda::attention_check(&a) == SIE_OK, "head dimension 128 has none");
  Problem both({SIE_BF16, 64, 2, 2, SIE_MASK_FULL, 0, false, {{3, 5, 2}}, 1, 4});
  const sie_attention_args refused = both.args();
  CHECK(sie_cuda::attention_check(&refused) == SIE_UNSUPPORTED, "a bias behind a prefix passes");
  for (int32_t reach : {-1, SIE_MAX_BIAS_REACH + 1}) {
    a.bias_reach = reach;
    CHECK(sie_cuda::attention_check(&a) == SIE_INVALID_ARGUMENT, "a reach of %d passes", reach);
  }
}

// A warp's first row sees all keys of a block but the last, or its last row all but the first: the
// block is masked.
TEST(blocks_seen_but_for_one_key) {
  for (int32_t d : {64, 256}) {
    Problem window({SIE_F16, d, 1, 1, SIE_MASK_WINDOW, 78, false, {{160, 160}}});
    window.run();
    window.verify();
    Problem causal({SIE_F16, d, 1, 1, SIE_MASK_CAUSAL, 0, false, {{66, 128}, {80, 94}}});
    causal.run();
    causal.verify();
  }
}

// Queries stand at the last keys: fewer than keys (pruning, prefixes), more than keys; heads in
// groups.
TEST(lengths_may_differ) {
  const vector<Lengths> lengths = {{1, 200}, {1, 20}, {5, 90}, {100, 7}, {90, 40}, {40, 64}, {3, 129}};
  for (int32_t mask : {SIE_MASK_FULL, SIE_MASK_CAUSAL, SIE_MASK_WINDOW}) {
    check_forms({SIE_BF16, 64, 3, 1, mask, 10, false, lengths});
    check_forms({SIE_F16, 32, 5, 2, mask, 33, true, lengths});
  }
}

// More blocks than can be resident.
TEST(long_sequences) {
  const vector<Lengths> lengths = {{330, 330}, {2, 600}, {64, 64}, {17, 17}, {129, 129}};
  for (int32_t mask : {SIE_MASK_FULL, SIE_MASK_CAUSAL, SIE_MASK_WINDOW}) {
    Problem problem({SIE_BF16, 64, 2, 2, mask, 64, false, lengths});
    const Bits bits = problem.run(80);
    problem.verify();
    CHECK(problem.run(89) == bits, "%s: other bits on sm_89", problem.text().c_str());
  }
}

// A block whose largest score is far below, or far above, that of the blocks before: in one
// direction the factor between them leaves the range of f32, so it must be at most 1.
TEST(scores_may_fall_and_rise) {
  for (int32_t d : {64, 256}) {
    check_forms({SIE_BF16, d, 1, 1, SIE_MASK_FULL, 0, false, {{40, 130}}, 40});
    check_forms({SIE_BF16, d, 1, 1, SIE_MASK_FULL, 0, false, {{40, 130}}, 0.02f});
    // 2¹⁶ is beyond f16, so the shift must be the largest score itself.
    Problem problem({SIE_F16, d, 1, 1, SIE_MASK_FULL, 0, false, {{40, 130}}, 40});
    problem.run();
    problem.verify();
  }
}

// A grid smaller than the list, units of both forms in one run.
TEST(many_sequences) {
  vector<Lengths> lengths(40, Lengths{3, 3});
  lengths.insert(lengths.end(), 20, Lengths{34, 34});
  Problem problem({SIE_BF16, 32, 4, 4, SIE_MASK_FULL, 0, false, lengths});
  const Bits bits = problem.run(90, 132);
  problem.verify();
  CHECK(problem.run(90, 1) == bits, "%s: other bits by a smaller grid", problem.text().c_str());
}

// At least one CTA for each head, even with few multiprocessors.
TEST(many_heads) {
  Problem problem({SIE_BF16, 32, 20, 10, SIE_MASK_FULL, 0, false, {{40, 40}, {3, 3}}});
  problem.run(80, 0);
  problem.verify();
}

}  // namespace
}  // namespace attention_test

int main(int argc, char **argv) { return check::run_tests(argc, argv); }
