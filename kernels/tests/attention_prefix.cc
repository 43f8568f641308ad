// attention_prefix.cc — attention over two segments of keys has the bits of one that holds the same
// keys.
#include "tests/attention_blocks.h"
#include "tests/attention_case.h"

namespace harness {

using namespace attention;

namespace {

using Bytes = std::vector<uint8_t>;

struct PrefixCase {
  std::vector<int32_t> lengths, prefixes;
  int32_t heads, kv_heads, d, mask, window;
  bool alibi = false;
  int32_t reach = -1;
  Input input = plain;
};

Bytes bytes_of(const AttentionCase &c) { return c.outputs[0]->bytes(0, c.outputs[0]->rows()); }

// Some queries of each sequence in a call of their own; the bits of the others must not be asked for.
void check_queries(AttentionCase *c, const sie_ops *ops, const Bytes &whole) {
  const Rows &y = *c->outputs[0];
  const size_t row_bytes = whole.size() / static_cast<size_t>(y.rows());
  for (const auto &[from, to] : {std::pair<int32_t, int32_t>{0, 1}, {1, 17}, {16, 40}, {39, 600}}) {
    c->outputs[0]->clear();
    c->set_block(from, to);
    Scratch scratch(ops, c->bounds());
    const sie_share share = scratch.share(0, 1);
    const sie_status status = c->call(ops, &share, 0, c->units);
    CHECK(status == SIE_OK && scratch.intact(), "%s %s: queries from %d on: %d", ops->name, c->form.c_str(),
          from, status);
    for (int64_t u = 0; u < c->units; u++) {
      for (int64_t i = 0; i < c->queries().length(u); i++) {
        const int64_t row = c->queries().first(u) + i;
        const Bytes now = y.bytes(row, row + 1);
        const bool asked = i >= from && i < to;
        const bool same =
            memcmp(now.data(), whole.data() + static_cast<size_t>(row) * row_bytes, row_bytes) == 0;
        CHECK(asked ? same : y.untouched(row, row + 1),
              "%s %s %s: query %lld of sequence %lld of those from %d", ops->name, c->form.c_str(),
              c->shape.c_str(), static_cast<long long>(i), static_cast<long long>(u), from);
      }
    }
  }
  c->set_block(0, 0);
}

void check_prefix(const Config &config, const sie_ops *ops, int seed) {
  Config one = config;
  one.joined = true;
  AttentionCase parts(config, aligned, seed),
      joined(one, stream_of(ops) != nullptr ? aligned : odd, seed + 1);
  joined.join(parts);
  if (!run_whole(parts, ops)) return;
  const Bytes bits = bytes_of(parts);
  CHECK(run_whole(joined, ops) && bytes_of(joined) == bits,
        "%s %s %s: prefixes of no key, and all keys behind them, give other bits", ops->name,
        parts.form.c_str(), parts.shape.c_str());
  joined.leave_out_prefixes();
  CHECK(run_whole(joined, ops) && bytes_of(joined) == bits, "%s %s %s: other bits than without prefixes",
        ops->name, parts.form.c_str(), parts.shape.c_str());
  if (stream_of(ops) != nullptr) return;
  for (int32_t share_count : {2, 5}) {
    parts.outputs[0]->clear();
    Scratch scratch(ops, parts.bounds());
    for (int32_t i = 0; i < share_count; i++) {
      const sie_share share = scratch.share(i, share_count);
      CHECK(parts.call(ops, &share, 0, parts.units) == SIE_OK && scratch.intact(), "%s: share %d", ops->name,
            i);
    }
    CHECK(bytes_of(parts) == bits, "%s %s %s: other bits in %d shares", ops->name, parts.form.c_str(),
          parts.shape.c_str(), share_count);
  }
  if (!config.gathered) check_queries(&parts, ops, bits);
}

// Every length of a prefix that is a boundary of vectors, panels, blocks of keys or forms of a
// kernel, with own keys that begin on either side of the next boundary.
std::vector<PrefixCase> prefix_cases() {
  const std::vector<int32_t> prefixes = {0, 1, 15, 16, 17, 60, 255, 256, 511, 512, 513},
                             own = {40, 3, 17, 1, 16, 70, 2, 33, 5, 21, 9};
  // Own keys that straddle key 512 or 1,024, begin there, and end there.
  const std::vector<int32_t> far = {500, 511, 512, 1000, 1024, 300}, straddling = {40, 2, 24, 60, 20, 212};
  std::vector<PrefixCase> all;
  for (int32_t d : {32, 64, 96, 128, 256}) {
    const int32_t kv_heads = d % 64 == 0 ? 1 : 2;
    all.push_back({own, prefixes, 2, kv_heads, d, SIE_MASK_CAUSAL, 0});
    all.push_back({own, prefixes, 2, kv_heads, d, SIE_MASK_WINDOW, 24});
    if (d == 64 || d == 128) {
      all.push_back({own, prefixes, 2, 1, d, SIE_MASK_FULL, 0});
      all.push_back({straddling, far, 2, 1, d, SIE_MASK_FULL, 0, d == 64});
      all.push_back({straddling, far, 2, 2, d, SIE_MASK_WINDOW, 500, true});
    }
    all.push_back({straddling, far, d == 256 ? 1 : 2, 1, d, SIE_MASK_CAUSAL, 0, false, -1, sharp});
    all.push_back({straddling, far, 1, 1, d, SIE_MASK_WINDOW, 12});
  }
  all.push_back({own, prefixes, 2, 1, 64, SIE_MASK_FULL, 0, false, 30});
  all.push_back({straddling, far, 2, 1, 64, SIE_MASK_CAUSAL, 0, false, 700});
  return all;
}

// A key of a prefix that no query of a window sees may be a NaN; one that some see spoils those alone.
void check_hidden_prefix(const Config &config, const sie_ops *ops, int seed) {
  AttentionCase c(config, odd, seed);
  if (!run_whole(c, ops)) return;
  const Rows &y = *c.outputs[0];
  const Bytes whole = bytes_of(c);
  const size_t row_bytes = whole.size() / static_cast<size_t>(y.rows());
  const int32_t split = config.prefix[0];
  std::vector<int64_t> poisoned;
  for (int32_t key : {0, split - 30, split - 1}) {
    c.poison_prefix(key);  // the only sequence's prefix begins at row 0
    poisoned.push_back(key);
    run_whole(c, ops);
    for (int64_t i = 0; i < y.rows(); i++) {
      bool seen = false;
      for (int64_t j : poisoned) seen = seen || c.sees(split + i, j);
      const bool same =
          memcmp(y.bytes(i, i + 1).data(), whole.data() + static_cast<size_t>(i) * row_bytes, row_bytes) == 0;
      CHECK(seen ? isnan(y.get(i, 0)) : same, "%s %s %s: query %lld and key %d of its prefix", ops->name,
            c.form.c_str(), c.shape.c_str(), static_cast<long long>(i), key);
    }
  }
}

}  // namespace

void check_attention_prefix() {
  int index = 0;
  for (int32_t dtype : {SIE_F32, SIE_BF16, SIE_F16}) {
    for (const PrefixCase &p : prefix_cases()) {
      for (bool gathered : {false, true}) {
        // f16 exists on GPUs alone.
        if (dtype == SIE_F16 && (p.d != 64 || gathered)) continue;
        if (!check::in_shard(index++)) continue;
        const Config c = {p.lengths, p.heads, p.kv_heads, p.d,   p.mask,  p.window, dtype,
                          gathered,  true,    p.input,    false, p.alibi, false,    p.reach};
        const Config config = behind(c, p.prefixes);
        for (const sie_ops *ops : backends()) {
          // The tables of GPUs have the same kernels, so one of them takes each case.
          const size_t turn = static_cast<size_t>(index) % (gpus().empty() ? 1 : gpus().size());
          if (stream_of(ops) != nullptr && ops != gpus()[turn].ops) continue;
          // VNNI has the attention of AVX-512, and so has AMX in f32; neon-dot has neon's. The
          // reference takes its time.
          const bool tiles = ops->isa == SIE_ISA_AMX && dtype == SIE_BF16;
          if (!tiles && !has_own_generic(ops)) continue;
          if (ops == sie_ref_ops() && !gathered) continue;
          // Only AMX has a kernel of its own in bf16; the others differ in their loads and stores.
          if (dtype == SIE_BF16 && ops->isa != SIE_ISA_AMX && p.d != 64 && p.d != 128) continue;
          check::judged((text("prefix %d ", index) + ops->name).c_str(),
                        [&] { check_prefix(config, ops, 5200 + index); });
        }
      }
    }
  }
}

void check_attention_hidden_prefix() {
  for (int32_t dtype : {SIE_F32, SIE_BF16}) {
    for (int32_t prefix : {100, 530}) {
      for (const sie_ops *ops : backends()) {
        if (stream_of(ops) != nullptr) continue;
        const Config c = {{40}, 2, 1, 64, SIE_MASK_WINDOW, 20, dtype, false, true, plain, false};
        check::judged((text("hidden prefix %s %d ", dtype_text(dtype), prefix) + ops->name).c_str(),
                      [&] { check_hidden_prefix(behind(c, {prefix}), ops, 5900 + prefix); });
      }
    }
  }
}

}  // namespace harness
