// attention_disentangled_test.cc — disentangled attention's CUDA kernel under emulation, beyond the
// conformance list: queries and keys of any lengths, lists of work cut in any way, and what is refused.
#include <algorithm>

#include "attention_problem.h"
#include "cuda/attention_disentangled.h"

namespace attention_test {
namespace {

using std::vector;

// The values of each way to cut the rows, with few and with many CTAs, and on each family of devices.
void check_lists(const Config &config) {
  Problem problem(config);
  const Bits bits = problem.run();
  problem.verify();
  const Form forms[] = {
      {4, 2, 64, true, 1},     // one CTA takes all items in turn, those for single warps as well
      {4, 2, 1024, false, 3},  // one item a sequence: rounds of 64 rows
      {4, 2, 96, false, 40},   // rounds of 64 and of 32; a grid larger than the list
      {4, 2, 7, true},         // warps without rows
  };
  for (const Form &f : forms)
    CHECK(problem.run_as(f) == bits, "%s: other bits by %d rows an item, %lld CTAs%s", problem.text().c_str(),
          f.rows, static_cast<long long>(f.ctas), f.warp_form ? ", items of single warps" : "");
  CHECK(problem.run(80) == bits, "%s: other bits on sm_80", problem.text().c_str());
  CHECK(problem.run(89, 0) == bits, "%s: other bits on sm_89", problem.text().c_str());
}

TEST(disentangled_lists_agree) {
  const vector<Lengths> lengths = {{130, 130}, {0, 40},  {31, 31}, {1, 1},   {32, 32},
                                   {70, 0},    {65, 65}, {9, 0},   {64, 64}, {63, 63}};
  for (int32_t d : {32, 64, 128}) {
    for (int32_t reach : {0, 20, 200})
      check_lists({SIE_BF16, d, 2, 2, SIE_MASK_FULL, 0, false, lengths, 1, -1, false, reach});
    check_lists({SIE_F16, d, 1, 1, SIE_MASK_FULL, 0, false, {{150, 150}, {20, 20}}, 1, -1, false, 90});
  }
}

// Fewer queries than keys and more, at the last positions and at the first.
TEST(disentangled_lengths_may_differ) {
  const vector<Lengths> lengths = {{1, 200}, {1, 20},  {5, 90},  {100, 7},
                                   {90, 40}, {40, 64}, {3, 129}, {17, 16}};
  for (bool first : {false, true}) {
    check_lists({SIE_BF16, 64, 3, 3, SIE_MASK_FULL, 0, false, lengths, 1, -1, first, 60});
    check_lists({SIE_F16, 32, 2, 2, SIE_MASK_FULL, 0, false, lengths, 1, -1, first, 9, true, false});
    check_lists({SIE_BF16, 64, 2, 2, SIE_MASK_FULL, 0, false, lengths, 1, -1, first, 300, false, true});
  }
}

// One block of keys, which has the only slot of the memory.
TEST(disentangled_keys_may_be_one_block) {
  check_lists({SIE_BF16, 32, 2, 2, SIE_MASK_FULL, 0, false, {{64, 64}, {10, 64}, {2, 64}}, 1, -1, false, 60});
}

// A block whose largest score is far below, or far above, that of the blocks before.
TEST(disentangled_scores_may_fall_and_rise) {
  for (float steep : {40.0f, 0.02f})
    check_lists({SIE_BF16, 64, 1, 1, SIE_MASK_FULL, 0, false, {{40, 130}}, steep, -1, false, 30});
}

TEST(disentangled_shared_memory_fits) {
  for (int d : {32, 64, 128}) {
    for (int64_t keys : {0, 1, 64, 65, 128, 1 << 20}) {
      const int64_t slots = keys > 64 ? 2 : 1, bytes = sie_cuda::attention_disentangled_shared(d, keys);
      CHECK(bytes == 64 * d * 2 + 64 * 68 * 4 + slots * 2 * 64 * d * 2 && bytes <= 99 * 1024,
            "D = %d, %lld keys: %lld bytes", d, static_cast<long long>(keys), static_cast<long long>(bytes));
    }
  }
}

TEST(disentangled_attention_refuses) {
  Problem problem({SIE_BF16, 64, 2, 2, SIE_MASK_FULL, 0, false, {{8, 8}}, 1, -1, false, 4});
  float one = 1;
  const int32_t first = 0;
  auto refuses = [&](sie_status want, const char *what, auto change) {
    sie_attention_args a = problem.args();
    change(&a);
    const sie_status got = sie_cuda::attention_check(&a);
    CHECK(got == want, "%s: status %d, not %d", what, got, want);
  };
  using A = sie_attention_args *;
  refuses(SIE_OK, "nothing wrong", [](A) {});
  refuses(SIE_OK, "no pos_key", [](A a) { a->pos_key.p = nullptr; });
  refuses(SIE_OK, "no pos_query", [](A a) { a->pos_query.p = nullptr; });
  refuses(SIE_INVALID_ARGUMENT, "no table", [](A a) { a->pos_key.p = a->pos_query.p = nullptr; });
  const auto of_dim = [](A a, int32_t d) {
    a->head_dim = d;
    for (sie_tensor *t : {&a->q, &a->k, &a->v, &a->y, &a->pos_key, &a->pos_query}) t->ld = 2 * d;
  };
  refuses(SIE_OK, "D 64, rows without gaps", [&](A a) { of_dim(a, 64); });
  refuses(SIE_OK, "D 128, rows without gaps", [&](A a) { of_dim(a, 128); });
  refuses(SIE_UNSUPPORTED, "D 256", [&](A a) { of_dim(a, 256); });
  refuses(SIE_UNSUPPORTED, "a causal mask", [](A a) { a->mask = SIE_MASK_CAUSAL; });
  refuses(SIE_UNSUPPORTED, "a window", [](A a) { a->mask = SIE_MASK_WINDOW; });
  refuses(SIE_UNSUPPORTED, "heads in groups", [](A a) { a->kv_heads = 1; });
  refuses(SIE_UNSUPPORTED, "slopes", [&](A a) { a->alibi_slopes = &one; });
  refuses(SIE_UNSUPPORTED, "a bias", [&](A a) { a->bias = &one; });
  refuses(SIE_UNSUPPORTED, "a prefix",
          [&](A a) { a->prefix_k = a->k, a->prefix_v = a->v, a->prefix_first = a->prefix_keys = &first; });
  refuses(SIE_INVALID_ARGUMENT, "reach -1", [](A a) { a->bucket_reach = -1; });
  refuses(SIE_INVALID_ARGUMENT, "a reach too far", [](A a) { a->bucket_reach = SIE_MAX_BIAS_REACH + 1; });
  refuses(SIE_OK, "reach 0", [](A a) { a->bucket_reach = 0; });
  refuses(SIE_OK, "the largest reach", [](A a) { a->bucket_reach = SIE_MAX_BIAS_REACH; });
  refuses(SIE_INVALID_ARGUMENT, "no rows", [](A a) { a->position_rows = 0; });
  refuses(SIE_INVALID_ARGUMENT, "too many rows", [](A a) { a->position_rows = SIE_MAX_POSITION_ROWS + 1; });
  refuses(SIE_OK, "one row", [](A a) { a->position_rows = 1; });
  refuses(SIE_OK, "the most rows", [](A a) { a->position_rows = SIE_MAX_POSITION_ROWS; });
  refuses(SIE_UNSUPPORTED, "pos_key of another type", [](A a) { a->pos_key.dtype = SIE_F32; });
  refuses(SIE_UNSUPPORTED, "pos_query of another type", [](A a) { a->pos_query.dtype = SIE_F16; });
  refuses(SIE_INVALID_ARGUMENT, "pos_key's stride below its columns", [](A a) { a->pos_key.ld = 120; });
  refuses(SIE_INVALID_ARGUMENT, "pos_query's stride below its columns", [](A a) { a->pos_query.ld = 120; });
  refuses(SIE_UNSUPPORTED, "pos_key's stride of 132", [](A a) { a->pos_key.ld = 132; });
  refuses(SIE_UNSUPPORTED, "pos_query's stride of 130", [](A a) { a->pos_query.ld = 130; });
  refuses(SIE_UNSUPPORTED, "pos_key at 8 bytes",
          [](A a) { a->pos_key.p = static_cast<uint16_t *>(a->pos_key.p) + 4; });
  refuses(SIE_UNSUPPORTED, "pos_query at 2 bytes",
          [](A a) { a->pos_query.p = static_cast<uint16_t *>(a->pos_query.p) + 1; });
}

}  // namespace
}  // namespace attention_test
