// host_attention_test.cc — on every CPU table: attention of a few rows, and of more keys than a block and
// more rows than a chunk, as the reference has it, with operands that end where their memory does; its
// parts write each row of y once.
#include "at_end.h"

#include <algorithm>

using namespace at_end;

namespace {

struct Config {
  int64_t d, queries, keys;  // of the first sequence
  int32_t heads = 2, kv_heads = 2;
  int64_t prefix = 0;
  int32_t mask = SIE_MASK_FULL, window = 0;
  bool slopes = false;
  int32_t bias_reach = -1;  // −1: none
  int32_t q_first = 0, q_last = 0;
  bool queries_first = false;
  int32_t reach = -1;  // of buckets; −1: none
  int32_t shared = 1;  // distances of a row of the tables
  int32_t tables = 3;  // 1: of keys, 2: of queries
  bool skips = false;  // rows of the tables are passed over
  bool front = false;  // the tables and the scratch begin where their memory does
  bool late = false;   // keys from 512 on are a little larger
  float last = 0;      // the values of the last key, where they are not 0
  int32_t shape = 0;   // shared below 0, above 0; a row passed over at the last distance, at the first
  int32_t tail = 3;    // keys of the last sequence
};

// `count` elements of either type, and behind them nothing.
struct Elements {
  AtEnd<float> wide;
  AtEnd<uint16_t> half;
  bool is_half;

  Elements(int64_t count, bool bf16, int64_t seed, bool front = false)
      : wide(bf16 ? 1 : count, 0.0f, front), half(bf16 ? count : 1), is_half(bf16) {
    for (int64_t i = 0; i < count; i++) {
      const float v = small(i * 5 + i / 9 + seed) / 4;  // exact in either type
      uint32_t bits;
      memcpy(&bits, &v, sizeof bits);
      if (bf16) {
        half.data()[i] = static_cast<uint16_t>(bits >> 16);
      } else {
        wide.data()[i] = v;
      }
    }
  }
  sie_tensor tensor(int64_t ld) const {
    return is_half ? of(half.data(), ld, SIE_BF16) : of(wide.data(), ld, SIE_F32);
  }
};

// The sequences: the configuration's, one of a few rows, one without keys, one without queries, and one
// that ends with the memory.
constexpr int32_t seqs = 5;

void attend(const Config &c, bool bf16) {
  const int64_t own = c.keys - c.prefix;
  AtEnd<int32_t> cu_q(seqs + 1), cu_kv(seqs + 1), prefix_first(seqs), prefix_keys(seqs);
  const int32_t first_q = static_cast<int32_t>(c.queries), first_kv = static_cast<int32_t>(own);
  const int32_t more_q[] = {0, 3, 5, 5, 7}, more_kv[] = {0, 4, 4, 5, 5 + c.tail};
  for (int32_t b = 0; b < seqs; b++) {
    cu_q.data()[b + 1] = first_q + more_q[b], cu_kv.data()[b + 1] = first_kv + more_kv[b];
    prefix_first.data()[b] = b == 0 ? 1 : 0,
    prefix_keys.data()[b] = b == 0 ? static_cast<int32_t>(c.prefix) : 0;
  }
  const int32_t q_rows = cu_q.data()[seqs], kv_rows = cu_kv.data()[seqs], count = seqs;
  const int64_t ld = c.heads * c.d, kv_ld = c.kv_heads * c.d;
  const Elements q(q_rows * ld, bf16, 1), k(kv_rows * kv_ld, bf16, 2), v(kv_rows * kv_ld, bf16, 3),
      prefix_k((c.prefix + 1) * kv_ld, bf16, 4), prefix_v((c.prefix + 1) * kv_ld, bf16, 5);
  AtEnd<float> slopes(c.heads), bias(c.heads * (2 * std::max(c.bias_reach, 0) + 1));
  for (int32_t h = 0; h < c.heads; h++) slopes.data()[h] = h == 1 ? 0.0f : 0.25f / static_cast<float>(h + 1);
  for (int64_t i = 0; i < c.heads * (2 * std::max(c.bias_reach, 0) + 1); i++) bias.data()[i] = small(i) / 4;
  const int32_t reach = std::max(c.reach, 0), step = c.skips ? 2 : 1;
  AtEnd<int32_t> buckets(2 * reach + 1);
  for (int32_t i = 0; i <= 2 * reach; i++) {
    const int32_t below = std::min(i, reach), above = i - below;
    buckets.data()[i] = c.shape == 1   ? below / 2 + above
                        : c.shape == 2 ? below + (above + 1) / 2
                        : c.shape == 3 ? i + (i == 2 * reach ? 5 : 0)
                        : c.shape == 4 ? i + (i > 0 ? 5 : 0)
                        : c.shape == 5 ? (i < reach ? 0 : std::max(above, 1))
                                       : i / c.shared * step;
  }
  const int32_t rows = buckets.data()[2 * reach] + 1;
  const Elements pos_key(rows * ld, false, 6, c.front), pos_query(rows * ld, false, 7, c.front);
  for (int64_t i = 0; c.last != 0 && i < kv_ld; i++) v.wide.data()[(own - 1) * kv_ld + i] = c.last;
  for (int64_t i = 512 * kv_ld; c.late && i < own * kv_ld; i++) k.wide.data()[i] *= 1.25f;
  sie_attention_args a = {};
  a.q_rows = {q_rows, &q_rows}, a.seqs = {count, &count};
  a.cu_q = cu_q.data(), a.cu_kv = cu_kv.data(), a.max_kv = c.keys;
  a.q = q.tensor(ld), a.k = k.tensor(kv_ld), a.v = v.tensor(kv_ld);
  a.heads = c.heads, a.kv_heads = c.kv_heads, a.head_dim = static_cast<int32_t>(c.d);
  a.mask = c.mask, a.window = c.window;
  a.scale = 0.5f;
  a.alibi_slopes = c.slopes ? slopes.data() : nullptr;
  a.q_first = c.q_first, a.q_last = c.q_last, a.queries_first = c.queries_first ? 1 : 0;
  if (c.bias_reach >= 0) a.bias = bias.data(), a.bias_reach = c.bias_reach;
  if (c.prefix > 0) {
    a.prefix_k = prefix_k.tensor(kv_ld), a.prefix_v = prefix_v.tensor(kv_ld);
    a.prefix_first = prefix_first.data(), a.prefix_keys = prefix_keys.data();
  }
  if (c.reach >= 0) {
    if ((c.tables & 1) != 0) a.pos_key = pos_key.tensor(ld);
    if ((c.tables & 2) != 0) a.pos_query = pos_query.tensor(ld);
    a.buckets = buckets.data(), a.bucket_reach = reach, a.position_rows = rows;
  }
  sie_op_bounds bounds = {};
  bounds.kind = SIE_OP_ATTENTION;
  bounds.rows = std::max(q_rows, kv_rows), bounds.seqs = seqs;
  bounds.max_len = std::max({c.queries, c.keys, int64_t{4}, int64_t{c.tail}});
  bounds.head_dim = a.head_dim, bounds.heads = c.heads, bounds.kv_heads = c.kv_heads;
  bounds.position_rows = a.position_rows, bounds.bucket_reach = a.bucket_reach;
  // With a column that is not y's behind each row.
  const int64_t y_ld = ld + 1;
  std::vector<float> want;
  for (const sie_ops *ops : tables()) {
    const bool tiles = bf16 && (c.d == 32 || c.d == 64 || c.d == 128 || c.d == 256);
    if (!has_own_generic(ops) && !(tiles && ops->isa == SIE_ISA_AMX)) continue;
    std::vector<float> all;
    for (int32_t parts : {1, 2, 5, 11, 47}) {
      if (parts > 1 && (c.queries * c.keys > 20000 || ops == sie_ref_ops())) continue;
      Scratch scratch(ops, bounds);
      AtEnd<uint8_t> front(c.front ? ops->scratch_bytes(&bounds) : 1, 0, true);
      std::vector<float> y(static_cast<size_t>(q_rows * y_ld), -9.0f);
      for (int32_t part = 0; part < parts; part++) {
        AtEnd<float> wide(q_rows * y_ld, -77.0f);
        AtEnd<uint16_t> half(q_rows * y_ld, 0xc29a);  // −77
        a.y = bf16 ? of(half.data(), y_ld, SIE_BF16) : of(wide.data(), y_ld, SIE_F32);
        sie_share share = scratch.share(part, parts);
        if (c.front) share.scratch = front.data();
        const sie_status status = ops->attention(&a, &share);
        CHECK(status == SIE_OK && scratch.intact(), "%s: D %lld: status %d", ops->name,
              static_cast<long long>(c.d), status);
        for (int64_t i = 0; i < q_rows * y_ld; i++) {
          const uint32_t bits = static_cast<uint32_t>(half.data()[i]) << 16;
          float got = wide.data()[i];
          if (bf16) memcpy(&got, &bits, sizeof got);
          if (got == -77) continue;
          CHECK(i % y_ld != ld, "%s: wrote behind a row", ops->name);
          CHECK(y[static_cast<size_t>(i)] == -9, "%s: D %lld: two of %d parts write element %lld", ops->name,
                static_cast<long long>(c.d), parts, static_cast<long long>(i));
          y[static_cast<size_t>(i)] = got;
        }
      }
      if (all.empty()) all = y;
      close_to(ops->name, y, all, 0);
    }
    if (want.empty()) want = all;
    close_to(ops->name, all, want, bf16 ? 0.01 : 2e-6);
    if (c.q_last == 0 || ops == sie_ref_ops()) continue;
    // The bits of a call for all queries.
    std::vector<float> y(static_cast<size_t>(q_rows * y_ld), -9.0f);
    std::vector<uint16_t> half(static_cast<size_t>(q_rows * y_ld));
    a.q_first = a.q_last = 0;
    a.y = bf16 ? of(half.data(), y_ld, SIE_BF16) : of(y.data(), y_ld, SIE_F32);
    Scratch scratch(ops, bounds);
    const sie_share share = scratch.share(0, 1);
    CHECK(ops->attention(&a, &share) == SIE_OK, "%s: attention", ops->name);
    a.q_first = c.q_first, a.q_last = c.q_last;
    for (int64_t i = c.q_first * y_ld; !bf16 && i < c.q_last * y_ld; i++) {
      if (i % y_ld == ld) continue;
      const size_t at = static_cast<size_t>(i);
      CHECK(memcmp(&y[at], &all[at], sizeof(float)) == 0, "%s: other bits of element %zu in a call for all",
            ops->name, at);
    }
  }
}

}  // namespace

TEST(host_attention_of_few_rows) {
  for (int64_t d : {1, 5, 8, 17, 40}) {
    for (bool bf16 : {false, true}) {
      if (bf16 && d != 5) continue;
      attend({d, 7, 9}, bf16);
      attend({d, 6, 9, 2, 2, 0, SIE_MASK_WINDOW, 7}, bf16);
      attend({d, 40, 8, 2, 2, 0, SIE_MASK_WINDOW, 3, false, -1, 0, 0, true}, bf16);
      attend({d, 13, 16, 3, 1}, bf16);
      attend({d, 5, 30, 4, 2, 11}, bf16);
      attend({d, 20, 20, 2, 2, 0, SIE_MASK_CAUSAL}, bf16);
      attend({d, 9, 25, 4, 2, 8, SIE_MASK_CAUSAL}, bf16);
      attend({d, 30, 12, 2, 1, 0, SIE_MASK_CAUSAL}, bf16);
      attend({d, 40, 40, 2, 1, 0, SIE_MASK_WINDOW, 3}, bf16);
      attend({d, 12, 50, 2, 2, 17, SIE_MASK_WINDOW, 9, true}, bf16);
      attend({d, 19, 24, 4, 2, 0, SIE_MASK_FULL, 0, true}, bf16);
      attend({d, 19, 24, 4, 2, 0, SIE_MASK_CAUSAL, 0, true}, bf16);
      attend({d, 21, 33, 2, 2, 0, SIE_MASK_FULL, 0, false, 4}, bf16);
      attend({d, 21, 33, 4, 2, 5, SIE_MASK_WINDOW, 6, false, 9}, bf16);
      attend({d, 17, 17, 2, 2, 0, SIE_MASK_FULL, 0, false, 0}, bf16);
      attend({d, 15, 15, 2, 1, 0, SIE_MASK_FULL, 0, false, -1, 2, 9}, bf16);
      attend({d, 15, 15, 2, 2, 0, SIE_MASK_CAUSAL, 0, false, -1, 0, 1}, bf16);
      attend({d, 6, 20, 2, 2, 0, SIE_MASK_CAUSAL, 0, false, -1, 0, 0, true}, bf16);
    }
  }
}

// Values that are no numbers stay away from queries that do not see their key.
TEST(host_attention_of_hidden_values) {
  for (float last : {NAN, INFINITY}) {
    for (int64_t keys : {9, 20, 600}) {
      for (int32_t mask : {SIE_MASK_FULL, SIE_MASK_CAUSAL, SIE_MASK_WINDOW}) {
        Config c = {9, 14, keys};
        c.mask = mask, c.window = 3, c.last = last;
        attend(c, false);
        if (keys < 600) c.queries = keys;
        c.slopes = true;
        attend(c, false);
      }
    }
  }
  attend({256, 12, 9, 1, 1}, false);  // whole tiles
}

// Where all scores are −∞ there is no weight to divide by: rows 1 and 3; those of rows 0 and 2 are ∞.
TEST(host_attention_without_any_weight) {
  const int32_t queries = 4, keys = 600, one = 1, cu_q[] = {0, queries}, cu_kv[] = {0, keys}, zero = 0;
  AtEnd<float> q(queries, 1.0f), k(keys, -INFINITY), v(keys, 1.0f), table(1, 0.0f);
  q.data()[0] = q.data()[2] = -1;
  for (const sie_ops *ops : tables()) {
    for (bool by_distance : {false, true}) {
      float y[queries] = {};
      sie_attention_args a = {};
      a.q_rows = {queries, &queries}, a.seqs = {1, &one};
      a.cu_q = cu_q, a.cu_kv = cu_kv, a.max_kv = keys;
      a.q = of(q.data(), 1, SIE_F32), a.k = of(k.data(), 1, SIE_F32), a.v = of(v.data(), 1, SIE_F32);
      a.y = of(y, 1, SIE_F32);
      a.heads = a.kv_heads = a.head_dim = 1;
      a.scale = 1;
      if (by_distance) a.pos_key = of(table.data(), 1, SIE_F32), a.buckets = &zero, a.position_rows = 1;
      sie_op_bounds bounds = {};
      bounds.kind = SIE_OP_ATTENTION;
      bounds.rows = bounds.max_len = keys, bounds.seqs = 1;
      bounds.head_dim = bounds.heads = bounds.kv_heads = 1;
      bounds.position_rows = a.position_rows;
      Scratch scratch(ops, bounds);
      const sie_share share = scratch.share(0, 1);
      CHECK(ops->attention(&a, &share) == SIE_OK && scratch.intact(), "%s: attention", ops->name);
      for (float got : y) CHECK(isnan(got), "%s: y = %g of no weights", ops->name, static_cast<double>(got));
    }
  }
}

// The weighted values of row 1 are too small for an f32 and below zero, and the last of its own is −0. Row 2,
// which sees a key more, lies in the same tile or in another: row 1 has the same zero.
TEST(host_attention_has_one_zero) {
  const int32_t rows = 3, one = 1, cu[] = {0, rows};
  AtEnd<float> q(rows, 1.0f), k(rows, 0.0f), v(rows);
  k.data()[1] = 28;
  v.data()[0] = -0x1p-120f, v.data()[1] = -0.0f, v.data()[2] = 1;
  for (const sie_ops *ops : tables()) {
    float y[2][rows] = {};
    for (int32_t parts : {1, rows}) {
      sie_attention_args a = {};
      a.q_rows = {rows, &rows}, a.seqs = {1, &one};
      a.cu_q = a.cu_kv = cu, a.max_kv = rows;
      a.q = of(q.data(), 1, SIE_F32), a.k = of(k.data(), 1, SIE_F32), a.v = of(v.data(), 1, SIE_F32);
      a.y = of(y[parts == 1 ? 0 : 1], 1, SIE_F32);
      a.heads = a.kv_heads = a.head_dim = 1;
      a.mask = SIE_MASK_CAUSAL;
      a.scale = 1;
      sie_op_bounds bounds = {};
      bounds.kind = SIE_OP_ATTENTION;
      bounds.rows = bounds.max_len = rows, bounds.seqs = 1;
      bounds.head_dim = bounds.heads = bounds.kv_heads = 1;
      Scratch scratch(ops, bounds);
      for (int32_t part = 0; part < parts; part++) {
        const sie_share share = scratch.share(part, parts);
        CHECK(ops->attention(&a, &share) == SIE_OK && scratch.intact(), "%s: attention", ops->name);
      }
    }
    CHECK(memcmp(y[0], y[1], sizeof y[0]) == 0, "%s: row 1 is %g beside row 2, %g alone", ops->name,
          static_cast<double>(y[0][1]), static_cast<double>(y[1][1]));
  }
}

TEST(host_attention_of_blocks_and_chunks) {
  attend({8, 3, 512}, false);
  attend({8, 9, 1024}, false);  // whole blocks
  attend({8, 7, 513, 3, 1}, false);
  attend({5, 14, 1025, 2, 2, 600}, false);
  attend({9, 14, 1100, 2, 1, 300, SIE_MASK_CAUSAL}, false);
  attend({8, 600, 600, 2, 1, 0, SIE_MASK_CAUSAL}, false);
  attend({8, 1300, 1300, 1, 1, 0, SIE_MASK_WINDOW, 20}, false);
  attend({5, 700, 700, 2, 1, 100, SIE_MASK_WINDOW, 130, true}, false);
  attend({5, 20, 1200, 2, 2, 0, SIE_MASK_FULL, 0, true, 7}, true);
  attend({8, 30, 700, 2, 2, 0, SIE_MASK_FULL, 0, false, -1, 4, 19}, false);
  attend({8, 1160, 520, 1, 1, 0, SIE_MASK_CAUSAL}, false);
  attend({9, 1152, 520, 1, 1, 0, SIE_MASK_CAUSAL}, false);
  attend({8, 1153, 520, 1, 1}, false);
  attend({3, 2300, 520, 1, 1}, false);
  attend({17, 703, 520, 1, 1, 0, SIE_MASK_CAUSAL}, false);
  attend({40, 7, 1030, 2, 2, 0, SIE_MASK_FULL, 0, true}, false);
  attend({8, 1300, 1300, 1, 1, 0, SIE_MASK_WINDOW, 20, false, -1, 490, 1300}, false);
  attend({256, 7, 520, 1, 1, 0, SIE_MASK_CAUSAL}, false);
  Config late = {40, 14, 1030};
  late.late = true;
  attend(late, false);
  attend({3, 40, 600, 2, 2, 0, SIE_MASK_CAUSAL, 0, false, -1, 0, 0, true}, false);
}

TEST(host_attention_by_distance_of_few_rows) {
  for (int64_t d : {1, 5, 8, 17}) {
    for (bool bf16 : {false, true}) {
      if (bf16 && d != 8) continue;
      for (int32_t tables : {1, 2, 3}) {
        for (int32_t reach : {0, 1, 6, 15, 40}) {
          for (int32_t shared : {1, 3, 100}) {
            Config c = {d, 11, 13};
            c.reach = reach, c.shared = shared, c.tables = tables, c.skips = (reach + shared) % 4 == 0;
            attend(c, bf16);
          }
        }
        for (int32_t shape : {1, 2, 3, 4, 5}) {
          Config c = {d, 25, 27};
          c.reach = 15, c.tables = tables, c.shape = shape;
          attend(c, bf16);
        }
        Config c = {d, 40, 29};
        c.reach = 20, c.tables = tables;
        attend(c, bf16);
        c.front = true;
        attend(c, bf16);
        c.q_first = 3, c.q_last = 17, c.queries_first = true;
        attend(c, bf16);
      }
    }
  }
}

TEST(host_attention_by_distance_of_blocks_and_chunks) {
  for (int32_t which = 0; which < 10; which++) {
    Config c = {8, 140, 140};
    c.reach = 50, c.shared = which % 2 + 1;
    if (which == 1) c.queries = 12, c.keys = 513;
    if (which == 2) c.queries = 300, c.keys = 600, c.reach = 300, c.heads = c.kv_heads = 1;
    if (which == 3) c.d = 5, c.queries = 1200, c.keys = 530, c.heads = c.kv_heads = 1, c.reach = 7;
    if (which == 4) c.d = 9, c.queries = 20, c.keys = 1030, c.q_first = 2, c.q_last = 15;
    if (which == 5) c.queries = 7, c.keys = 512, c.skips = true;
    if (which == 6) c.d = 9, c.queries = 1152, c.keys = 520, c.heads = c.kv_heads = 1, c.reach = 9;
    if (which == 7) c.queries = 250, c.keys = 33;
    if (which == 8) c.d = 256, c.queries = 140, c.keys = 30, c.heads = c.kv_heads = 1;
    if (which == 9) c.queries = 9, c.keys = 1024;  // whole blocks
    attend(c, which == 4);
  }
}

// What is on both sides of tiles of 16 and of 32: queries, keys, the rows of tables that both meet. A
// last sequence of an odd and of an even number of keys, and of more than a tile.
TEST_LIST(host_attention_on_tiles) {
  int number = 0;
  auto on_tiles = [&](const Config &c) {
    if (!check::in_shard(number++)) return;
    check::judged(("on tiles " + std::to_string(number)).c_str(), [&] { attend(c, true); });
  };
  for (int64_t d : {32, 64}) {
    for (int32_t tail : {3, 4, 20}) {
      auto each = [&](Config c) {
        c.tail = tail;
        on_tiles(c);
      };
      each({d, 7, 9});
      each({d, 16, 32});
      each({d, 33, 30, 3, 1});
      each({d, 6, 9, 2, 2, 0, SIE_MASK_WINDOW, 7});
      each({d, 40, 8, 2, 2, 0, SIE_MASK_WINDOW, 3, false, -1, 0, 0, true});
      each({d, 5, 30, 4, 2, 11});
      each({d, 9, 45, 4, 2, 28, SIE_MASK_CAUSAL});
      each({d, 40, 22, 2, 1, 0, SIE_MASK_CAUSAL});
      each({d, 40, 140, 2, 1, 0, SIE_MASK_WINDOW, 3});
      each({d, 12, 50, 2, 2, 17, SIE_MASK_WINDOW, 9, true});
      each({d, 19, 24, 4, 2, 0, SIE_MASK_CAUSAL, 0, true});
      each({d, 21, 33, 2, 2, 0, SIE_MASK_FULL, 0, false, 4});
      each({d, 21, 33, 4, 2, 5, SIE_MASK_WINDOW, 6, false, 9});
      each({d, 40, 40, 4, 2, 0, SIE_MASK_CAUSAL, 0, true, 17});
      each({d, 45, 45, 2, 1, 0, SIE_MASK_FULL, 0, false, -1, 2, 39});
      each({d, 6, 20, 2, 2, 0, SIE_MASK_CAUSAL, 0, false, -1, 0, 0, true});
      for (int32_t tables : {1, 2, 3}) {
        Config c = {d, 35, 27};
        c.tables = tables, c.reach = 40;
        each(c);
        c.queries = 11, c.keys = 70, c.shared = 3;
        each(c);
        c.reach = 15, c.shape = 5;
        each(c);
        c.q_first = 3, c.q_last = 9, c.queries_first = true;
        each(c);
        // The last column that a tile meets begins a step of 32, or ends the last one.
        Config first = {d, 25, 27};
        first.tables = tables, first.reach = 40;
        each(first);
        Config last = {d, 63, 100};
        last.tables = tables, last.reach = 63, last.shared = 2, last.queries_first = true;
        each(last);
      }
    }
  }
  on_tiles({32, 3, 512});
  on_tiles({32, 9, 1024});
  on_tiles({32, 7, 513, 3, 1});
  on_tiles({64, 14, 1025, 2, 2, 600, SIE_MASK_CAUSAL});
  on_tiles({32, 1160, 520, 1, 1, 0, SIE_MASK_CAUSAL});
  on_tiles({32, 1152, 520, 1, 1});
  on_tiles({32, 33, 530, 40, 1, 0, SIE_MASK_CAUSAL, 0, true});
  on_tiles({32, 700, 700, 2, 1, 100, SIE_MASK_WINDOW, 130, true});
  on_tiles({32, 20, 700, 3, 1, 0, SIE_MASK_FULL, 0, true, 7});
  // Windows that reach further back than a block, that begin behind the first block, and beyond the keys.
  on_tiles({32, 20, 600, 1, 1, 0, SIE_MASK_WINDOW, 600, false, -1, 0, 0, true});
  on_tiles({32, 700, 700, 1, 1, 0, SIE_MASK_WINDOW, 20, false, -1, 690, 700});
  on_tiles({32, 540, 520, 1, 1, 0, SIE_MASK_WINDOW, 3, false, -1, 515, 540, true});
  for (int32_t which = 0; which < 4; which++) {
    Config c = {32, 1160, 513, 1, 1};
    c.reach = 50;
    if (which == 1) c.queries = 40, c.keys = 512, c.heads = c.kv_heads = 2;
    if (which == 2) c.d = 64, c.queries = 40, c.keys = 1024, c.reach = 300, c.heads = c.kv_heads = 2;
    if (which == 3) c.queries = 50, c.keys = 600, c.q_first = 2, c.q_last = 45, c.heads = c.kv_heads = 2;
    on_tiles(c);
  }
}

// Whichever key it is: a weight of more than 1 would be none that the exponential knows.
TEST(host_attention_finds_the_largest_score) {
  for (int32_t keys : {1, 8, 9, 17, 33, 530}) {
    for (int32_t at = 0; at < keys; at += keys > 500 ? 23 : 1) {
      const int32_t queries = 4, one = 1, cu_q[] = {0, queries}, cu_kv[] = {0, keys};
      AtEnd<float> q(queries, 1.0f), k(keys, 0.0f), v(keys, 0.0f);
      k.data()[at] = 1000, v.data()[at] = 3;
      const float none = 0;
      const int32_t zero = 0;
      for (const sie_ops *ops : tables()) {
        for (bool by_distance : {false, true}) {
          float y[queries] = {};
          AtEnd<float> table(1, none);
          sie_attention_args a = {};
          a.q_rows = {queries, &queries}, a.seqs = {1, &one};
          a.cu_q = cu_q, a.cu_kv = cu_kv, a.max_kv = keys;
          a.q = of(q.data(), 1, SIE_F32), a.k = of(k.data(), 1, SIE_F32), a.v = of(v.data(), 1, SIE_F32);
          a.y = of(y, 1, SIE_F32);
          a.heads = a.kv_heads = a.head_dim = 1;
          a.scale = 1;
          if (by_distance) a.pos_key = of(table.data(), 1, SIE_F32), a.buckets = &zero, a.position_rows = 1;
          sie_op_bounds bounds = {};
          bounds.kind = SIE_OP_ATTENTION;
          bounds.rows = bounds.max_len = std::max(keys, queries), bounds.seqs = 1;
          bounds.head_dim = bounds.heads = bounds.kv_heads = 1;
          bounds.position_rows = a.position_rows;
          Scratch scratch(ops, bounds);
          const sie_share share = scratch.share(0, 1);
          CHECK(ops->attention(&a, &share) == SIE_OK && scratch.intact(), "%s: attention", ops->name);
          for (float got : y)
            CHECK(got == 3, "%s: key %d of %d: y = %g", ops->name, at, keys, static_cast<double>(got));
        }
      }
    }
  }
}
