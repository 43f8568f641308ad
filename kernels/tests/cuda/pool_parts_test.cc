// pool_parts_test.cc — the bits of what is pooled in parts: on cards of any size, whatever is known of the
// longest sequence, alone and in company.
#include <math.h>

#include "tests/cuda/operands.h"
#include "tests/row_input.h"

using namespace calls;

namespace {

constexpr int64_t width = 600;

class Pooling {
 public:
  explicit Pooling(const std::vector<int32_t> &lengths) : sequences_(lengths) {
    Random random(99);
    x_.reset(new Rows(&random, aligned, sequences_.tokens(), width, SIE_BF16));
    fill(x_.get(), &random, plain);
  }

  // The rows of `count` sequences from `first` on.
  std::vector<float> pool(const Gpu &gpu, int32_t mode, int64_t first, int64_t count, int32_t longest) {
    std::vector<float> y(static_cast<size_t>(count * width), NAN);
    Array<int32_t> n = {static_cast<int32_t>(count)};
    sie_pool_args a = {};
    a.seqs = {count, n.data()};
    a.cu_seqlens = sequences_.cu(first, count);
    a.mode = mode;
    a.longest = longest;
    a.c = width;
    a.x = x_->tensor(sequences_.first(first));
    a.y = {y.data(), width, SIE_F32, 0, nullptr, nullptr, nullptr};
    sie_op_bounds bounds = {};
    bounds.kind = SIE_OP_POOL;
    bounds.rows = sequences_.first(first + count) - sequences_.first(first);
    bounds.seqs = count;
    bounds.c = width;
    bounds.max_len = longest;
    Scratch scratch(gpu.ops, bounds);
    sie_share share = scratch.share(0, 1);
    share.on = &gpu.on;
    CHECK(gpu.ops->pool(&a, &share) == SIE_OK && memory.finish(&gpu.on) == SIE_OK && scratch.intact(),
          "%s: refused, or wrote behind its scratch", gpu.ops->name);
    return y;
  }

  const Sequences &sequences() const { return sequences_; }

 private:
  Sequences sequences_;
  std::unique_ptr<Rows> x_;
};

bool same_bits(const float *a, const float *b, size_t count) { return memcmp(a, b, count * sizeof *a) == 0; }

}  // namespace

TEST(pool_parts_have_the_same_bits_on_any_card) {
  Pooling pooling({300, 5, 0, 128, 1000, 129, 1});
  const int64_t seqs = pooling.sequences().count();
  for (const Gpu &card : gpus()) {
    for (int32_t mode : {SIE_POOL_MEAN, SIE_POOL_WEIGHTED_MEAN, SIE_POOL_MAX, SIE_POOL_MEAN_SQRT}) {
      const std::vector<float> all = pooling.pool(card, mode, 0, seqs, 1000);
      Gpu other = card;
      for (int32_t multiprocessors : {1, 5, 132}) {
        other.on.multiprocessors = multiprocessors;
        CHECK(same_bits(pooling.pool(other, mode, 0, seqs, 0).data(), all.data(), all.size()),
              "%s: mode %d differs with %d multiprocessors", card.ops->name, mode, multiprocessors);
      }
      for (int64_t b = 0; b < seqs; b++) {
        const int32_t length = static_cast<int32_t>(pooling.sequences().length(b));
        for (int32_t longest : {length, 0, 4000}) {
          CHECK(same_bits(pooling.pool(card, mode, b, 1, longest).data(), all.data() + b * width, width),
                "%s: mode %d of %d rows differs alone, of at most %d", card.ops->name, mode, length, longest);
        }
      }
    }
  }
}
