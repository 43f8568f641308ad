// emulated_attention_test.cc — the number of tiles that attention on AMX multiplies.
#include "tests/attention_case.h"
#include "tests/emulated_amx.h"

using namespace harness;
using namespace harness::attention;

namespace {

// For 32 queries of a head and 32 keys, of which some query sees some: 2 × 2 tiles for each 32
// dimensions, in the scores and in the values.
int64_t needed(const AttentionCase &c, const Config &config) {
  int64_t seen = 0;
  for (int32_t length : config.lengths) {
    for (int32_t i = 0; i < length; i += 32) {
      for (int32_t j = 0; j < length; j += 32) {
        bool any = false;
        for (int32_t q = i; q < i + 32 && q < length; q++) {
          for (int32_t k = j; k < j + 32 && k < length; k++) any = any || c.sees(q, k);
        }
        seen += any ? 1 : 0;
      }
    }
  }
  return seen * config.heads * 8 * config.head_dim / 32;
}

}  // namespace

TEST(emulated_attention_multiplies_what_is_seen) {
  const std::vector<int32_t> whole = {160, 31}, blocks = {1216};
  const sie_ops *ops = emulated_amx();
  if (ops == nullptr) return;
  for (int32_t d : {32, 128}) {
    for (int32_t mask : {SIE_MASK_FULL, SIE_MASK_CAUSAL, SIE_MASK_WINDOW}) {
      for (const std::vector<int32_t> &lengths : {whole, blocks}) {
        const Config config = {lengths, 2, 1, d, mask, 64, SIE_BF16, false, true, plain, false};
        AttentionCase c(config, dense, 4700);
        const int64_t before = emulated_products();
        CHECK(run_whole(c, ops), "%s: refused", c.form.c_str());
        const int64_t products = emulated_products() - before;
        CHECK(products == needed(c, config), "%s %s: %lld tiles multiplied, %lld needed", c.form.c_str(),
              c.shape.c_str(), static_cast<long long>(products), static_cast<long long>(needed(c, config)));
      }
    }
  }
}
