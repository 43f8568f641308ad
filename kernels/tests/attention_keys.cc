// attention_keys.cc — attention around its blocks of keys, behind masks, and its scratch.
#include "tests/attention_blocks.h"
#include "tests/attention_case.h"

namespace harness {

using namespace attention;

namespace {

// Of the host's tables those whose attention no lower table has: VNNI's is AVX-512's, and AMX's in
// f32; neon-dot's is neon's.
bool has_own_attention(const sie_ops *ops, int32_t dtype) {
  return stream_of(ops) == nullptr &&
         (has_own_generic(ops) || (ops->isa == SIE_ISA_AMX && dtype == SIE_BF16));
}

// Runs the case in `parts` shares, or unit by unit (parts 0), and checks the bits against `whole`.
void check_split(AttentionCase *c, const sie_ops *ops, int32_t parts, const std::vector<uint8_t> &whole) {
  c->outputs[0]->clear();
  Scratch scratch(ops, c->bounds());
  for (int32_t i = 0; i < (parts > 0 ? parts : c->units); i++) {
    const sie_share share = parts > 0 ? scratch.share(i, parts) : scratch.share(0, 1);
    const sie_status status = parts > 0 ? c->call(ops, &share, 0, c->units) : c->call(ops, &share, i, 1);
    CHECK(status == SIE_OK && scratch.intact(), "%s %s %s: status %d in share %d of %d", ops->name,
          c->form.c_str(), c->shape.c_str(), status, i, parts);
  }
  const Rows &y = *c->outputs[0];
  CHECK(y.bytes(0, y.rows()) == whole && y.guards_intact(), "%s %s %s: other bits %s (%d)", ops->name,
        c->form.c_str(), c->shape.c_str(), parts > 0 ? "in shares" : "alone", parts);
}

// Some queries alone: each must have the bits that it has in the whole.
void check_single_queries(AttentionCase *c, const sie_ops *ops, const std::vector<uint8_t> &whole) {
  const Rows &y = *c->outputs[0];
  const size_t row_bytes = whole.size() / static_cast<size_t>(y.rows());
  for (int32_t i : {0, 1, 62, 511, 512, 513, 575, 576, 577, 640, 1023, 1024, 4096}) {
    if (i >= c->queries().longest()) break;
    c->outputs[0]->clear();
    c->set_block(i, i + 1);
    Scratch scratch(ops, c->bounds());
    const sie_share share = scratch.share(0, 1);
    const sie_status status = c->call(ops, &share, 0, c->units);
    CHECK(status == SIE_OK, "%s %s: query %d alone: %d", ops->name, c->form.c_str(), i, status);
    for (int64_t u = 0; u < c->units; u++) {
      if (i >= c->queries().length(u)) continue;
      const int64_t row = c->queries().first(u) + i;
      const std::vector<uint8_t> now = y.bytes(row, row + 1);
      CHECK(memcmp(now.data(), whole.data() + static_cast<size_t>(row) * row_bytes, row_bytes) == 0,
            "%s %s %s: query %d of sequence %lld alone has other bits", ops->name, c->form.c_str(),
            c->shape.c_str(), i, static_cast<long long>(u));
    }
  }
  c->set_block(0, 0);
}

// Poisons one key after the other: queries that do not see it keep their bits, the others are lost.
void check_hidden_keys(AttentionCase *c, const sie_ops *ops, const std::vector<int64_t> &keys) {
  if (!run_whole(*c, ops)) return;
  const Rows &y = *c->outputs[0];
  const std::vector<uint8_t> whole = y.bytes(0, y.rows());
  const size_t row_bytes = whole.size() / static_cast<size_t>(y.rows());
  std::vector<int64_t> poisoned;
  for (int64_t key : keys) {
    c->poison_key(key);
    poisoned.push_back(key);
    run_whole(*c, ops);
    for (int64_t i = 0; i < y.rows(); i++) {
      bool seen = false;
      for (int64_t j : poisoned) seen = seen || c->sees(i, j);
      const std::vector<uint8_t> now = y.bytes(i, i + 1);
      const bool same = memcmp(now.data(), whole.data() + static_cast<size_t>(i) * row_bytes, row_bytes) == 0;
      CHECK(seen || same, "%s %s %s: query %lld sees key %lld behind the mask", ops->name, c->form.c_str(),
            c->shape.c_str(), static_cast<long long>(i), static_cast<long long>(key));
      CHECK(!seen || isnan(y.get(i, 0)), "%s %s %s: query %lld does not see key %lld", ops->name,
            c->form.c_str(), c->shape.c_str(), static_cast<long long>(i), static_cast<long long>(key));
    }
  }
}

struct KeyCase {
  std::vector<int32_t> lengths;
  int32_t heads, kv_heads, d, mask, window;
  bool alibi;
  int32_t reach = -1;
  Positions positions = {};
};

std::vector<KeyCase> key_cases() {
  const std::vector<int32_t> edges = {1, 2, 3, 63, 64, 65, 127, 128, 129, 511, 512, 513},
                             blocks_of_keys = {1023, 1, 1024, 1025}, beyond = {600, 3};
  std::vector<KeyCase> all;
  for (int32_t window : {0, 1, 7, 64, 600, 5000})
    all.push_back({edges, 2, 1, 64, SIE_MASK_WINDOW, window, false});
  for (int32_t window : {1, 7, 64, 600}) {
    all.push_back({blocks_of_keys, 1, 1, 64, SIE_MASK_WINDOW, window, false});
    all.push_back({{4097}, 1, 1, 64, SIE_MASK_WINDOW, window, window == 64});
  }
  all.push_back({edges, 2, 1, 64, SIE_MASK_FULL, 0, false});
  all.push_back({edges, 2, 1, 64, SIE_MASK_CAUSAL, 0, false});
  all.push_back({blocks_of_keys, 1, 1, 64, SIE_MASK_FULL, 0, true});
  all.push_back({blocks_of_keys, 1, 1, 64, SIE_MASK_CAUSAL, 0, false});
  for (int32_t d : {32, 80, 96, 128, 256}) {
    all.push_back({beyond, 3, 1, d, SIE_MASK_FULL, 0, false});
    all.push_back({beyond, 4, 2, d, SIE_MASK_CAUSAL, 0, true});
    all.push_back({beyond, 2, 2, d, SIE_MASK_WINDOW, 40, true});
    all.push_back({beyond, 2, 1, d, SIE_MASK_FULL, 0, false, 128});
  }
  // More rows than a chunk has, of many heads over one key head and of many queries.
  all.push_back({beyond, 40, 1, 32, SIE_MASK_CAUSAL, 0, false});
  all.push_back({{1300}, 1, 1, 32, SIE_MASK_CAUSAL, 0, true});
  // Relative biases: within a block of keys, across several, and of causal and window masks.
  all.push_back({edges, 2, 1, 64, SIE_MASK_FULL, 0, false, 128});
  all.push_back({edges, 2, 2, 64, SIE_MASK_WINDOW, 64, false, 40});
  for (int32_t reach : {1, 128, 700})
    all.push_back({blocks_of_keys, 1, 1, 64, SIE_MASK_FULL, 0, false, reach});
  all.push_back({blocks_of_keys, 1, 1, 64, SIE_MASK_CAUSAL, 0, false, 128});
  // Tables by distance: DeBERTa's, of a short reach, and in steps of several rows.
  all.push_back({edges, 2, 2, 64, SIE_MASK_FULL, 0, false, -1, {512, 512, true, true}});
  all.push_back({blocks_of_keys, 1, 1, 64, SIE_MASK_FULL, 0, false, -1, {512, 512, true, true}});
  all.push_back({{1300, 600}, 1, 1, 32, SIE_MASK_FULL, 0, false, -1, {64, 100, true, true}});
  all.push_back({beyond, 2, 2, 80, SIE_MASK_FULL, 0, false, -1, {400, 100, true, true}});
  all.push_back({beyond, 2, 2, 128, SIE_MASK_FULL, 0, false, -1, {64, 64, false, true}});
  all.push_back({beyond, 1, 1, 256, SIE_MASK_FULL, 0, false, -1, {512, 512, true, false}});
  // Around AMX tiles: of queries, of keys, and of the rows of the tables that both meet.
  const std::vector<int32_t> tiles = {1, 2, 15, 16, 17, 31, 33, 48, 256, 257};
  all.push_back({tiles, 1, 1, 32, SIE_MASK_FULL, 0, false, -1, {256, 300, true, true}});
  all.push_back({tiles, 1, 1, 64, SIE_MASK_FULL, 0, false, -1, {512, 512, false, true}});
  all.push_back({tiles, 2, 2, 64, SIE_MASK_FULL, 0, false, -1, {6, 20, true, false}});
  all.push_back({tiles, 1, 1, 128, SIE_MASK_FULL, 0, false, -1, {33, 16, true, true}});
  return all;
}

}  // namespace

void check_attention_keys() {
  int index = 0;
  for (int32_t dtype : {SIE_F32, SIE_BF16}) {
    for (const KeyCase &k : key_cases()) {
      if (!check::in_shard(index++)) continue;
      for (const Input input : {plain, sharp}) {
        if ((input == sharp) != (k.d > 64)) continue;
        Config config = {k.lengths, k.heads, k.kv_heads, k.d,   k.mask,  k.window, dtype,
                         false,     true,    input,      false, k.alibi, false,    k.reach};
        config.positions = k.positions;
        std::vector<const sie_ops *> tables;
        for (const sie_ops *ops : backends()) {
          // In bf16 the generic kernels differ in their loads and stores alone: every third case.
          if (ops == sie_ref_ops() || !has_own_attention(ops, dtype)) continue;
          if (ops->isa == SIE_ISA_AMX || dtype == SIE_F32 || index % 3 == 0) tables.push_back(ops);
        }
        if (tables.empty()) continue;
        AttentionCase c(config, odd, 4500 + index);
        c.expect();
        for (const sie_ops *ops : tables) {
          check::judged((c.form + " keys " + c.shape + " " + ops->name).c_str(), [&] {
            if (!run_whole(c, ops)) return;
            c.verify(ops->name);
            const std::vector<uint8_t> whole = c.outputs[0]->bytes(0, c.outputs[0]->rows());
            for (int32_t parts : {0, 2, 5}) check_split(&c, ops, parts, whole);
            check_single_queries(&c, ops, whole);
          });
        }
      }
    }
  }
}

// Poisons rows of the tables by distance, the farthest before and behind, the last row and a row in
// the middle: queries that meet none of them keep their bits, the others are lost.
static void check_hidden_buckets(AttentionCase *c, const sie_ops *ops, int64_t length) {
  if (!run_whole(*c, ops)) return;
  const Rows &y = *c->outputs[0];
  const std::vector<uint8_t> whole = y.bytes(0, y.rows());
  const size_t row_bytes = whole.size() / static_cast<size_t>(y.rows());
  std::vector<int64_t> poisoned;
  for (int64_t distance : {length - 1, 1 - length, length / 2 + 40}) {
    poisoned.push_back(c->bucket(distance));
    c->poison_bucket(poisoned.back());
    run_whole(*c, ops);
    for (int64_t i = 0; i < length; i++) {
      bool met = false;
      for (int64_t j = 0; j < length; j++)
        met = met || std::count(poisoned.begin(), poisoned.end(), c->bucket(i - j)) > 0;
      const std::vector<uint8_t> now = y.bytes(i, i + 1);
      const bool same = memcmp(now.data(), whole.data() + static_cast<size_t>(i) * row_bytes, row_bytes) == 0;
      CHECK(met || same, "%s %s %s: query %lld has met a row of the tables that none of its keys has",
            ops->name, c->form.c_str(), c->shape.c_str(), static_cast<long long>(i));
      CHECK(!met || isnan(y.get(i, 0)), "%s %s %s: query %lld has not met row %lld of the tables", ops->name,
            c->form.c_str(), c->shape.c_str(), static_cast<long long>(i),
            static_cast<long long>(poisoned.back()));
    }
  }
}

void check_attention_hidden_buckets() {
  int index = 0;
  for (int32_t dtype : {SIE_F32, SIE_BF16}) {
    for (int32_t length : {90, 150, 600}) {
      for (int32_t tables : {1, 2, 3}) {
        if ((length == 600 && tables != 3) || !check::in_shard(index++)) continue;
        for (const sie_ops *ops : backends()) {
          if (ops == sie_ref_ops() || !has_own_attention(ops, dtype)) continue;
          Config config = {{length}, 1, 1, 64, SIE_MASK_FULL, 0, dtype, false, true, plain, false};
          config.positions = {length == 150 ? 128 : 2048, 1024, (tables & 1) != 0, (tables & 2) != 0};
          const std::string name = text("hidden buckets %s %d %d ", dtype_text(dtype), length, tables);
          check::judged((name + ops->name).c_str(), [&] {
            AttentionCase c(config, odd, 4980 + length);
            check_hidden_buckets(&c, ops, length);
          });
        }
      }
    }
  }
}

void check_attention_hidden_keys() {
  const std::pair<int32_t, int32_t> shapes[] = {{100, 64}, {700, 64},  {1100, 64},
                                                {90, 32},  {600, 128}, {520, 256}};
  int index = 0;
  for (int32_t dtype : {SIE_F32, SIE_BF16}) {
    for (const auto &[length, d] : shapes) {
      for (int32_t mask : {SIE_MASK_CAUSAL, SIE_MASK_WINDOW}) {
        if (!check::in_shard(index++)) continue;
        for (const sie_ops *ops : backends()) {
          if (!has_own_attention(ops, dtype)) continue;
          const Config config = {{length}, 2, 1, d, mask, 20, dtype, false, true, plain, false};
          const std::string name = text("hidden keys %s %d D=%d %d ", dtype_text(dtype), length, d, mask);
          check::judged((name + ops->name).c_str(), [&] {
            AttentionCase c(config, odd, 4900 + length);
            check_hidden_keys(&c, ops, {length - 1, length / 2 + 5});
          });
        }
      }
    }
  }
}

// Queries so far behind the last key that their window holds none, whole and one by one. The keys
// fill whole vectors.
void check_attention_without_sight() {
  for (int32_t dtype : {SIE_F32, SIE_BF16}) {
    const Config config =
        longer_than_keys({{16, 48, 512}, 2, 1, 64, SIE_MASK_WINDOW, 3, dtype, false, true, plain, false}, 70);
    for (const sie_ops *ops : backends()) {
      if (!has_own_attention(ops, dtype)) continue;
      check::judged((std::string("no sight ") + dtype_text(dtype) + " " + ops->name).c_str(), [&] {
        AttentionCase c(config, odd, 4950);
        c.expect();
        if (!run_whole(c, ops)) return;
        c.verify(ops->name);
        check_single_queries(&c, ops, c.outputs[0]->bytes(0, c.outputs[0]->rows()));
      });
    }
  }
}

void check_attention_scratch() {
  for (const sie_ops *ops : backends()) {
    if (stream_of(ops) != nullptr || ops == sie_ref_ops()) continue;
    for (int32_t d : {32, 64, 80, 128, 256}) {
      sie_op_bounds b = {};
      b.kind = SIE_OP_ATTENTION;
      b.head_dim = d;
      b.heads = 16;
      b.kv_heads = 8;
      b.max_len = 513;
      const int64_t short_bytes = ops->scratch_bytes(&b);
      b.max_len = 32768;
      const int64_t bytes = ops->scratch_bytes(&b);
      CHECK(bytes == short_bytes, "%s D=%d: %lld bytes for 513 keys, %lld for 32,768", ops->name, d,
            static_cast<long long>(short_bytes), static_cast<long long>(bytes));
      CHECK(bytes <= 9000 * d + 32768, "%s D=%d: %lld bytes", ops->name, d, static_cast<long long>(bytes));
    }
  }
}

}  // namespace harness
