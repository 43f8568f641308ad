// emulated_attention_test.cc — the number of tiles that attention on AMX multiplies.
#include <algorithm>

#include "tests/attention_case.h"
#include "tests/emulated_cpu.h"

using namespace harness;
using namespace harness::attention;

namespace {

// AMX on emulated tiles, if this run has it.
const sie_ops *amx() {
  const sie_ops *emulated = emulated_cpu(SIE_ISA_AMX);
  const std::vector<const sie_ops *> &here = backends();
  return std::find(here.begin(), here.end(), emulated) != here.end() ? emulated : nullptr;
}

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

// The rows of the tables that queries [i, i + 32) and keys [j, last) meet, by the first and the last.
std::pair<int64_t, int64_t> met(const AttentionCase &c, int32_t length, int32_t i, int32_t j, int32_t last) {
  std::pair<int64_t, int64_t> rows = {SIE_MAX_POSITION_ROWS, -1};
  for (int32_t q = i; q < i + 32 && q < length; q++) {
    for (int32_t k = j; k < last && k < length; k++) {
      rows.first = std::min(rows.first, c.bucket(q - k));
      rows.second = std::max(rows.second, c.bucket(q - k));
    }
  }
  return rows;
}

// The tiles of the tables' products, beside those of attention: for 32 queries and a block of keys 32
// columns of K at a time, each in 2 × 2 tiles for 32 dimensions; for 32 queries and 32 keys 16 rows of
// Q at a time, each in 1 × 2 tiles.
int64_t needed_by_distance(const AttentionCase &c, const Config &config) {
  int64_t tiles = 0;
  for (int32_t length : config.lengths) {
    for (int32_t i = 0; i < length; i += 32) {
      for (int32_t j = 0; j < length; j += 512) {
        // K lies in reverse.
        const auto [first, last] = met(c, length, i, j, j + 512);
        const int64_t end = config.positions.rows - 1 - first, begin = config.positions.rows - 1 - last;
        if (config.positions.key) tiles += 4 * (end / 32 - begin / 32 + 1);
      }
      for (int32_t j = 0; j < length; j += 32) {
        const auto [first, last] = met(c, length, i, j, j + 32);
        if (config.positions.query) tiles += 2 * ((last - first) / 16 + 1);
      }
    }
  }
  return tiles * config.heads * config.head_dim / 32;
}

}  // namespace

TEST(emulated_attention_multiplies_what_is_seen) {
  const std::vector<int32_t> whole = {160, 31}, blocks = {1216};
  const sie_ops *ops = amx();
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

TEST(emulated_attention_multiplies_tables_by_distance) {
  const sie_ops *ops = amx();
  if (ops == nullptr) return;
  for (int32_t d : {32, 64}) {
    for (const std::vector<int32_t> &lengths :
         {std::vector<int32_t>{160, 31}, std::vector<int32_t>{1216}, std::vector<int32_t>{1024}}) {
      for (const Positions &positions :
           {Positions{512, 512, true, true}, {64, 64, true, false}, {512, 512, false, true}}) {
        if (lengths[0] == 1024 && (d > 32 || positions.reach > 64)) continue;  // whole blocks of keys
        Config config = {lengths, 2, 2, d, SIE_MASK_FULL, 0, SIE_BF16, false, true, plain, false};
        config.positions = positions;
        AttentionCase c(config, dense, 4800);
        const int64_t before = emulated_products();
        CHECK(run_whole(c, ops), "%s: refused", c.form.c_str());
        const int64_t products = emulated_products() - before,
                      wanted = needed(c, config) + needed_by_distance(c, config);
        CHECK(products == wanted, "%s %s: %lld tiles multiplied, %lld needed", c.form.c_str(),
              c.shape.c_str(), static_cast<long long>(products), static_cast<long long>(wanted));
      }
    }
  }
}
