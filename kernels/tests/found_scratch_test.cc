// found_scratch_test.cc — the scratch of spans and pairs: of some rows and labels, however many
// words, spans and pairs there are.
#include "tests/harness.h"

using namespace harness;

TEST(found_scratch_is_bounded) {
  for (const sie_ops *ops : backends()) {
    if (ops == sie_ref_ops()) continue;  // the judge, whose scratch is not bounded
    for (int64_t k : {int64_t{64}, int64_t{2048}}) {
      for (int64_t labels : {int64_t{25}, int64_t{1000}}) {
        for (uint32_t kind : {SIE_OP_SPANS, SIE_OP_PAIRS}) {
          sie_op_bounds b = {};
          b.kind = kind;
          b.compute = SIE_COMPUTE_F32;
          b.n = b.c = b.k = k;
          b.labels = labels;
          b.rows = b.max_len = 16;
          b.seqs = 1;
          const int64_t few = ops->scratch_bytes(&b);
          b.rows = b.max_len = 1 << 16;
          b.seqs = 1 << 12;
          const int64_t many = ops->scratch_bytes(&b);
          CHECK(few == many, "%s kind %u: %lld bytes for 16 words, %lld for 65,536", ops->name, kind,
                static_cast<long long>(few), static_cast<long long>(many));
          // Floats: of a tile's rows, of a panel and of a linear, and of some widths' logits.
          const int64_t bound = 4 * (320 * k + 16 * labels + 4096);
          CHECK(few <= bound, "%s kind %u K=%lld labels=%lld: %lld bytes, at most %lld", ops->name, kind,
                static_cast<long long>(k), static_cast<long long>(labels), static_cast<long long>(few),
                static_cast<long long>(bound));
          if (stream_of(ops) != nullptr) CHECK(few == 0, "%s: a GPU needs none", ops->name);
        }
      }
    }
  }
}
