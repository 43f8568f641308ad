// attention_cases.cc — packed attention: ragged and empty sequences, masks, grouped heads, gathered
// queries, ALiBi, relative biases, prefixes, tables by distance.
#include "tests/attention_case.h"

#include "tests/attention_blocks.h"
#include "tests/model_cases.h"

namespace harness {

using namespace attention;

namespace {

const std::vector<int32_t> none = {}, one = {1}, empty = {0, 0},
                           ragged = {7, 1, 0, 33, 64, 2, 65, 0, 31, 130, 32}, longer = {16, 513, 17, 257},
                           long_enough = {9, 193, 65},
                           blocks = {15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 96, 127, 128, 129};

// Every form of one type and head dimension.
void add_forms(std::vector<Config> *all, int32_t dtype, int32_t d) {
  auto add = [&](const std::vector<int32_t> &lengths, int32_t heads, int32_t kv_heads, int32_t mask,
                 int32_t window, bool gathered, bool packed, Input input = plain, bool alibi = false) {
    all->push_back({lengths, heads, kv_heads, d, mask, window, dtype, gathered, packed, input, false, alibi});
  };
  for (bool gathered : {false, true}) {
    for (const std::vector<int32_t> &lengths : {ragged, none, one, empty})
      add(lengths, 3, 3, SIE_MASK_FULL, 0, gathered, lengths.size() > 3);
    // f16 differs from bf16 in the conversions alone.
    if (dtype != SIE_F16) {
      if (d <= 128 || !gathered) add(longer, 1, 1, SIE_MASK_FULL, 0, gathered, true);
      add(blocks, 2, 2, SIE_MASK_FULL, 0, gathered, true);
    }
    add(ragged, 2, 1, SIE_MASK_CAUSAL, 0, gathered, true);
    add(ragged, 2, 2, SIE_MASK_WINDOW, 12, gathered, true);
    add(ragged, 3, 3, SIE_MASK_FULL, 0, gathered, true, plain, true);
  }
  // One query a sequence that is its first row: it sees the keys from there on.
  for (int32_t mask : {SIE_MASK_CAUSAL, SIE_MASK_WINDOW, SIE_MASK_FULL}) {
    add(ragged, 2, 1, mask, 12, true, true, plain, mask != SIE_MASK_CAUSAL);
    all->back().first = true;
  }
  for (Input input : {outliers, equal_rows, sharp}) {
    if (dtype == SIE_F16 && input == outliers) continue;  // beyond its range
    add(ragged, 2, 2, SIE_MASK_FULL, 0, false, true, input);
  }
  add(ragged, 4, 2, SIE_MASK_FULL, 0, false, false);
  add(ragged, 2, 2, SIE_MASK_CAUSAL, 0, false, true);
  add(ragged, 2, 2, SIE_MASK_WINDOW, 0, false, true);
  // Long sequences: more than one block of keys, and windows that begin behind the first.
  const std::vector<int32_t> &some = d <= 64 && dtype != SIE_F16 ? longer : long_enough;
  add(some, 1, 1, SIE_MASK_CAUSAL, 0, false, true);
  add(some, 1, 1, SIE_MASK_WINDOW, 64, false, true);
  add(long_enough, 2, 1, SIE_MASK_CAUSAL, 0, false, false, plain, true);
  add(long_enough, 2, 2, SIE_MASK_WINDOW, 100, false, false, plain, true);
  // The wide form of a GPU, beside what is just too short for it.
  if (dtype == SIE_F32 || (d != 64 && d != 128)) return;
  const std::vector<int32_t> wide = d == 64 ? std::vector<int32_t>{705, 704} : std::vector<int32_t>{448, 449};
  if (dtype == SIE_BF16) add(wide, 1, 1, SIE_MASK_FULL, 0, false, true);
  add({d == 64 ? 1409 : 897}, 1, 1, SIE_MASK_CAUSAL, 0, true, false);
  add(wide, 2, 1, SIE_MASK_WINDOW, 400, true, true);
}

// Head dimensions that fill no whole vectors, tiles or panels, as published encoders have: 16, 40,
// 80, 96; and one column.
void add_odd_dims(std::vector<Config> *all, int32_t dtype, int32_t d) {
  auto add = [&](const std::vector<int32_t> &lengths, int32_t heads, int32_t kv_heads, int32_t mask,
                 int32_t window, bool gathered, Input input = plain, bool alibi = false) {
    all->push_back({lengths, heads, kv_heads, d, mask, window, dtype, gathered, true, input, false, alibi});
  };
  for (const std::vector<int32_t> &lengths : {ragged, blocks, long_enough, none, one, empty})
    add(lengths, 2, 2, SIE_MASK_FULL, 0, false);
  add(ragged, 3, 3, SIE_MASK_FULL, 0, true);
  add(ragged, 4, 2, SIE_MASK_CAUSAL, 0, false);
  add(ragged, 2, 2, SIE_MASK_WINDOW, 12, true);
  add(ragged, 2, 2, SIE_MASK_FULL, 0, false, plain, true);
  for (Input input : {outliers, equal_rows, sharp}) add(ragged, 2, 2, SIE_MASK_FULL, 0, false, input);
}

// Relative biases: a reach within a text, beyond every text, and 0; with masks, heads in groups,
// one query a sequence, ALiBi. A few where another type or head dimension has shown the rest.
void add_biases(std::vector<Config> *all, int32_t dtype, int32_t d, bool few) {
  auto add = [&](const std::vector<int32_t> &lengths, int32_t heads, int32_t kv_heads, int32_t mask,
                 int32_t window, bool gathered, int32_t reach, bool alibi = false) {
    const Config c = {lengths,  heads, kv_heads, d,     mask,  window, dtype,
                      gathered, true,  plain,    false, alibi, false};
    all->push_back(biased(c, reach));
  };
  add(ragged, 3, 3, SIE_MASK_FULL, 0, false, 20);
  add(ragged, 2, 1, SIE_MASK_WINDOW, 12, false, 5, true);
  if (few) return;
  for (const std::vector<int32_t> &lengths : {none, one, empty})
    add(lengths, 2, 2, SIE_MASK_FULL, 0, false, 3);
  add(ragged, 2, 1, SIE_MASK_CAUSAL, 0, false, 9);
  add(ragged, 3, 3, SIE_MASK_FULL, 0, true, 20);
  for (int32_t mask : {SIE_MASK_FULL, SIE_MASK_WINDOW}) {
    add(ragged, 2, 1, mask, 12, true, 7);
    all->back().first = true;
  }
  add(longer, 1, 1, SIE_MASK_FULL, 0, false, 128);
  add(long_enough, 2, 2, SIE_MASK_FULL, 0, false, 600);
  add(blocks, 2, 2, SIE_MASK_FULL, 0, false, 0);
}

// Keys that are the first rows of their sequences: queries behind them see what their windows still
// hold, and nothing beyond.
void add_first_keys(std::vector<Config> *all, int32_t dtype, int32_t d) {
  auto add = [&](const std::vector<int32_t> &lengths, int32_t heads, int32_t kv_heads, int32_t mask,
                 int32_t window, int32_t ahead, int32_t reach = -1) {
    const Config c = {lengths, heads, kv_heads, d, mask, window, dtype, false, true, plain, false};
    all->push_back(biased(longer_than_keys(c, ahead), reach));
  };
  add(ragged, 2, 1, SIE_MASK_WINDOW, 12, 30);
  add(ragged, 2, 2, SIE_MASK_WINDOW, 64, 5);
  if (dtype == SIE_F16 || d > 128) return;
  add(ragged, 2, 2, SIE_MASK_CAUSAL, 0, 20);
  add(long_enough, 1, 1, SIE_MASK_WINDOW, 64, 200);
  add({513, 2}, 1, 1, SIE_MASK_WINDOW, 7, 40);
  add(ragged, 2, 1, SIE_MASK_FULL, 0, 9, 15);
}

// Keys in two segments: prefixes of no key to two blocks of a GPU's keys, that end within a vector
// and between two; behind some of them no own key and no query, or one query a sequence.
void add_prefixes(std::vector<Config> *all, int32_t dtype, int32_t d) {
  const std::vector<int32_t> own = {7, 1, 0, 33, 64, 2, 20, 0, 31}, prefixes = {60, 15, 16, 0, 17, 129, 1};
  auto add = [&](const std::vector<int32_t> &lengths, int32_t heads, int32_t kv_heads, int32_t mask,
                 int32_t window, bool gathered, bool alibi = false, int32_t reach = -1) {
    const Config c = {lengths, heads, kv_heads, d, mask, window, dtype, gathered, true, plain, false, alibi};
    all->push_back(behind(biased(c, reach), prefixes));
  };
  add(own, 2, 1, SIE_MASK_CAUSAL, 0, false);
  if (dtype == SIE_F16) return;  // it differs from bf16 in the conversions alone
  add(own, 3, 3, SIE_MASK_FULL, 0, false);
  add(own, 2, 1, SIE_MASK_WINDOW, 12, false);
  add(own, 4, 2, SIE_MASK_CAUSAL, 0, true);
  add(own, 2, 2, SIE_MASK_WINDOW, 40, true);
  add(own, 2, 2, SIE_MASK_CAUSAL, 0, false, true);
  add(empty, 2, 2, SIE_MASK_CAUSAL, 0, false);
  if (d > 128) return;
  add(own, 2, 1, SIE_MASK_FULL, 0, false, false, 20);
}

// Disentangled attention: DeBERTa's buckets with texts shorter and longer than their linear part and
// their reach; a bucket for all distances; steps of several buckets; one table, one query a sequence.
void add_positions(std::vector<Config> *all, int32_t dtype, int32_t d, bool few) {
  auto add = [&](const std::vector<int32_t> &lengths, int32_t heads, bool gathered, const Positions &p,
                 Input input = plain) {
    const Config c = {lengths, heads, heads, d, SIE_MASK_FULL, 0, dtype, gathered, true, input, false};
    all->push_back(disentangled(c, p));
  };
  add(ragged, 3, false, {64, 64, true, true});
  add(ragged, 2, true, {64, 64, true, true});
  if (few) return;
  for (const std::vector<int32_t> &lengths : {none, one, empty}) add(lengths, 2, false, {64, 64, true, true});
  add(ragged, 2, false, {64, 64, true, false});
  add(ragged, 2, false, {64, 64, false, true});
  add(ragged, 2, true, {64, 64, true, true});
  all->back().first = true;
  add(ragged, 1, false, {1, 0, true, true});
  add(ragged, 1, false, {200, 30, true, true});
  add(ragged, 2, false, {24, 200, true, true}, sharp);
  add(blocks, 1, false, {512, 512, true, true});
  add(longer, 1, false, {512, 512, true, true});
  add(long_enough, 1, false, {127, 63, true, true});
  if (d != 64) return;
  // Around blocks of keys, and DeBERTa's own tables in its longest text.
  add({127, 256, 1, 257, 128, 512, 2, 129}, 1, false, {512, 512, true, true});
  if (dtype == SIE_BF16) add({2048}, 1, false, {512, 512, true, true});
}

// The wide form of a GPU at D = 256, and with slopes and with biases, of one query: emulated GPUs leave out what takes longer. Behind
// all others, because the number of a case says which GPU has its sequences alone.
void add_wide(std::vector<Config> *all) {
  for (int32_t dtype : {SIE_BF16, SIE_F16}) {
    for (int32_t d : {64, 128}) {
      const std::vector<int32_t> lengths =
          d == 64 ? std::vector<int32_t>{705, 704, 3} : std::vector<int32_t>{448, 449};
      const Config c = {lengths, 2, 2, d, SIE_MASK_FULL, 0, dtype, true, true, plain, false, false};
      all->push_back(c);
      all->back().alibi = true;
      if (dtype == SIE_BF16) all->push_back(biased(c, 128));
    }
    all->push_back({{257, 256, 2}, 2, 2, 256, SIE_MASK_FULL, 0, dtype, true, true, plain, false});
    all->push_back({{300}, 1, 1, 256, SIE_MASK_FULL, 0, dtype, false, true, plain, false});
  }
}

// What is timed beside MiniLM's heads: short texts, and long ones by mask; D = 128 in groups of
// two; documents behind an instruction and a query.
void add_timed(std::vector<Config> *all) {
  for (int32_t d : {64, 128}) {
    for (int32_t length : {32, 128, 512}) {
      const std::vector<int32_t> lengths(static_cast<size_t>(512 / length), length);
      for (int32_t dtype : {SIE_F32, SIE_BF16})
        all->push_back({lengths, 16, d == 64 ? 16 : 8, d, d == 64 ? SIE_MASK_FULL : SIE_MASK_CAUSAL, 0, dtype,
                        false, true, plain, true});
    }
    for (int32_t length : {2048, 8192}) {
      for (int32_t mask : {SIE_MASK_FULL, SIE_MASK_CAUSAL, SIE_MASK_WINDOW})
        all->push_back({{length}, 2, d == 64 ? 2 : 1, d, mask, 64, SIE_F32, false, true, plain, true});
    }
  }
  for (int32_t dtype : {SIE_F32, SIE_BF16}) {
    for (int32_t prefix : {60, 256}) {
      const Config c = {
          {128, 128, 128, 128}, 16, 8, 128, SIE_MASK_CAUSAL, 0, dtype, false, true, plain, true};
      all->push_back(behind(c, {prefix}));
    }
  }
}

}  // namespace

std::unique_ptr<Case> make_attention(int index) {
  static const std::vector<std::pair<Config, Layout>> list = [] {
    std::vector<Config> all;
    for (int32_t dtype : {SIE_F32, SIE_BF16, SIE_F16}) {
      for (int32_t d : {32, 64, 128, 256}) {
        add_forms(&all, dtype, d);
        add_biases(&all, dtype, d, d == 256 || dtype == SIE_F16);
        add_first_keys(&all, dtype, d);
        add_prefixes(&all, dtype, d);
        add_positions(&all, dtype, d, d == 256 || dtype == SIE_F16);
      }
      if (dtype == SIE_F16) continue;
      for (int32_t length : {16, 128, 512}) {
        std::vector<int32_t> lengths(static_cast<size_t>(512 / length), length);
        all.push_back({lengths, 12, 12, 32, SIE_MASK_FULL, 0, dtype, false, true, plain, true});
      }
    }
    for (int32_t dtype : {SIE_F32, SIE_BF16}) {
      for (int32_t d : {16, 40, 80, 96, 1}) add_odd_dims(&all, dtype, d);
      for (int32_t d : {40, 80}) add_biases(&all, dtype, d, true);
      for (int32_t d : {1, 40, 80}) add_positions(&all, dtype, d, d != 40);
      add_prefixes(&all, dtype, 96);
    }
    add_timed(&all);
    add_wide(&all);
    return in_layouts(all);
  }();
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  const auto &[config, layout] = list[static_cast<size_t>(index)];
  return in_layout<AttentionCase>(config, layout, 1300 + index);
}

// A slab of 512 tokens in one sequence and in several, with the heads of MiniLM, base and grouped
// models.
std::unique_ptr<Case> make_production_attention(int index) {
  static const std::vector<Config> list = [] {
    std::vector<Config> all;
    for (int32_t dtype : {SIE_F32, SIE_BF16}) {
      all.push_back({{512}, 12, 12, 32, SIE_MASK_FULL, 0, dtype, false, true, plain, true});
      all.push_back({{300, 1, 0, 211}, 12, 12, 64, SIE_MASK_FULL, 0, dtype, false, true, plain, true});
      all.push_back({{497, 15}, 16, 2, 64, SIE_MASK_CAUSAL, 0, dtype, false, true, plain, true});
      // MPNet's heads and distances.
      all.push_back(
          biased({{300, 1, 0, 211}, 12, 12, 64, SIE_MASK_FULL, 0, dtype, false, true, plain, true}, 128));
      // Qwen3's heads: documents behind an instruction and a query, and one alone.
      all.push_back(
          behind({{200, 128, 0, 184}, 16, 8, 128, SIE_MASK_CAUSAL, 0, dtype, false, true, plain, true},
                 {60, 60, 256, 0}));
    }
    return all;
  }();
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  return in_layout<AttentionCase>(list[static_cast<size_t>(index)], dense, 9300 + index);
}

namespace {

// Runs the case in blocks of `step` queries, the last first or, in order, on one scratch. Checks
// that the bits are those of one call for all, and that no row outside the block is written.
void check_blocks(AttentionCase *c, const sie_ops *ops, int32_t step, bool in_order) {
  c->set_block(0, 0);
  if (!run_whole(*c, ops)) return;
  const Rows &y = *c->outputs[0];
  const std::vector<uint8_t> whole = y.bytes(0, y.rows());
  c->outputs[0]->clear();
  Scratch kept(ops, c->bounds());
  const int32_t longest = static_cast<int32_t>(c->queries().longest()), blocks = (longest + step - 1) / step;
  for (int32_t i = 0; i < blocks; i++) {
    const int32_t block = in_order ? i : blocks - 1 - i, first = block * step;
    Scratch own(ops, c->bounds());
    const sie_share share = (in_order ? kept : own).share(0, 1);
    c->set_block(first, first + step);
    const sie_status status = c->call(ops, &share, 0, c->units);
    CHECK(status == SIE_OK && own.intact() && kept.intact(), "%s %s: status %d", ops->name, c->form.c_str(),
          status);
    for (int64_t u = 0; u < c->units; u++) {
      // The rows that are still to be written: the blocks before this one, or after it.
      const int64_t row = c->queries().first(u), length = c->queries().length(u);
      const int64_t from = in_order ? first + step : 0, to = in_order ? length : first;
      const bool clean =
          from >= to || y.untouched(row + (from < length ? from : length), row + (to < length ? to : length));
      CHECK(clean, "%s %s %s: queries from %d wrote others of sequence %lld", ops->name, c->form.c_str(),
            c->shape.c_str(), first, static_cast<long long>(u));
    }
  }
  CHECK(y.bytes(0, y.rows()) == whole && y.guards_intact(),
        "%s %s %s: blocks of %d queries%s give other bits than all", ops->name, c->form.c_str(),
        c->shape.c_str(), step, in_order ? ", in order," : "");
}

// Checks that one query a sequence, the first or the last, has the bits that it has among all.
void check_one_query(const Config &config, const sie_ops *ops, int seed) {
  AttentionCase all(config, odd, seed);
  if (!run_whole(all, ops)) return;
  for (bool first : {true, false}) {
    Config one = config;
    one.gathered = true;
    one.first = first;
    AttentionCase gathered(one, aligned, seed + 1);
    gathered.gather(all);
    CHECK(run_whole(gathered, ops), "%s %s: refused", ops->name, gathered.form.c_str());
    for (int64_t u = 0; u < gathered.units; u++) {
      if (config.lengths[static_cast<size_t>(u)] == 0) continue;
      const int64_t row = all.place_of_one(u, first);
      for (int64_t i = 0; i < gathered.outputs[0]->columns(); i++) {
        const double got = gathered.outputs[0]->get(u, i), want = all.outputs[0]->get(row, i);
        CHECK(got == want, "%s %s %s: column %lld of sequence %lld is %.9g alone, %.9g among all", ops->name,
              gathered.form.c_str(), gathered.shape.c_str(), static_cast<long long>(i),
              static_cast<long long>(u), got, want);
      }
    }
  }
}

}  // namespace

void check_attention_one_query() {
  int index = 0;
  const std::vector<int32_t> lengths = {7, 1, 0, 33, 64, 2, 130, 65, 31, 32, 513, 257};
  for (int32_t dtype : {SIE_F32, SIE_BF16, SIE_F16}) {
    for (int32_t d : {32, 40, 64, 128, 256}) {
      for (int32_t mask : {SIE_MASK_FULL, SIE_MASK_CAUSAL, SIE_MASK_WINDOW}) {
        for (int32_t window : {0, 20, 100}) {
          if ((window > 0 && mask != SIE_MASK_WINDOW) || (dtype == SIE_F16 && d != 64)) continue;
          if (!check::in_shard(index++)) continue;
          const Config config = {lengths, 2,     1,    d,     mask,  window,
                                 dtype,   false, true, plain, false, window != 20};
          for (const sie_ops *ops : backends()) {
            check_one_query(config, ops, 4200 + index);
            if (window != 100) check_one_query(biased(config, 40), ops, 4200 + index);
            if (mask != SIE_MASK_FULL) continue;
            Config by_distance = config;
            by_distance.kv_heads = by_distance.heads;
            by_distance.alibi = false;
            check_one_query(disentangled(by_distance, {128, 150, true, true}), ops, 4200 + index);
          }
        }
      }
    }
  }
}

void check_attention_blocks() {
  int index = 0;
  for (int32_t dtype : {SIE_F32, SIE_BF16}) {
    for (int32_t d : {32, 40, 64, 128}) {
      for (int32_t mask : {SIE_MASK_FULL, SIE_MASK_CAUSAL, SIE_MASK_WINDOW}) {
        if (!check::in_shard(index++)) continue;
        // Several sequences and heads; one of each.
        AttentionCase many({{33, 1, 0, 97}, 2, 1, d, mask, 20, dtype, false, true, plain, false, d == 64},
                           odd, 4000 + index);
        AttentionCase one({{131}, 1, 1, d, mask, 20, dtype, false, true, plain, false, d == 64}, aligned,
                          4100 + index);
        AttentionCase relative(
            biased({{33, 1, 0, 131}, 2, 1, d, mask, 20, dtype, false, true, plain, false}, 30), odd,
            4050 + index);
        AttentionCase by_distance(
            disentangled({{33, 1, 0, 131}, 2, 2, d, SIE_MASK_FULL, 0, dtype, false, true, plain, false},
                         {64, 64, true, true}),
            odd, 4060 + index);
        for (const sie_ops *ops : backends()) {
          if (stream_of(ops) != nullptr) continue;
          check::judged((many.form + " in blocks " + ops->name).c_str(), [&] {
            for (int32_t step : {31, 64}) {
              check_blocks(&many, ops, step, false);
              check_blocks(&one, ops, step, true);
              check_blocks(&relative, ops, step, false);
              if (mask == SIE_MASK_FULL) check_blocks(&by_distance, ops, step, false);
            }
          });
        }
      }
    }
  }
}

std::unique_ptr<Case> model_attention(const ModelShape &m, const Lengths &lengths) {
  return in_layout<AttentionCase>(
      Config{lengths, m.heads, m.kv_heads, m.head_dim, m.mask, m.window, SIE_BF16, false, true, plain, true},
      dense, 1);
}

std::unique_ptr<Case> model_disentangled(const ModelShape &m, const Lengths &lengths) {
  const Config plain_heads = {lengths,  m.heads, m.heads, m.head_dim, SIE_MASK_FULL, 0,
                              SIE_BF16, false,   true,    plain,      true};
  return in_layout<AttentionCase>(disentangled(plain_heads, {512, 512, true, true}), dense, 1);
}

}  // namespace harness
