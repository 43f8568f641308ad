// replay_blocks_test.cc — the blocks and shares that an operation is cut into, and what each is called with, on a
// made-up plan.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "cut.h"
#include "hooks.h"
#include "tests/check.h"
#include "tests/replay_rig.h"

using namespace noted;
using sie::Cut;

namespace {

// Counts pauses, and notes each block.
struct Counting final : sie::Pause {
  int taken = 0;
  void take() override { taken++; }
};
std::vector<int64_t> blocks;
void note_block(int32_t operation, int64_t number) { blocks.push_back(operation * 1000 + number); }
const sie::hooks::Hooks noting_blocks = {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, note_block};

// The operation at place 1 of a plan, block by block. Returns the pauses taken.
int in_blocks(Made *m, sie::PlannedOp planned, Cut cut, sie_status want = SIE_OK) {
  planned.cut = cut;
  m->p.plan.clear();
  CHECK(m->p.plan.push(planned_op(SIE_OP_POOL)) && m->p.plan.push(planned), "no memory");
  m->calls.linears.clear(), m->calls.linear_rows.clear(), m->calls.attentions.clear(),
      m->calls.shares.clear();
  m->calls.calls = 0;
  blocks.clear();
  Counting pause;
  sie::hooks::installed.store(&noting_blocks);
  const sie_status status = sie::replay_blocks(m->r, 1, &pause);
  sie::hooks::installed.store(nullptr);
  CHECK(status == want, "status %d", status);
  for (size_t i = 0; i < blocks.size(); i++)
    CHECK(blocks[i] == 1000 + static_cast<int64_t>(i), "block %zu is %lld", i,
          static_cast<long long>(blocks[i]));
  return pause.taken;
}

}  // namespace

TEST(replayed_blocks_of_rows) {
  const auto m = std::make_unique<Made>();
  m->r.long_cap = 4096, m->r.stage_cap = 2000;
  m->p.values[m->of_tokens].columns = m->p.values[m->view].columns = 4;
  std::vector<char> region(4096 * 64 + 4096);
  m->r.values = region.data();
  m->p.long_row_bytes = 64;
  sie::Buffer &b = m->p.buffers[0];
  b = {};
  b.dtype = SIE_F32;
  b.columns = 4, b.ld = 16;
  m->slab.spaces[tokens].n = 1900;
  m->p.block_flops = 1;
  sie::PlannedOp op = planned_op(SIE_OP_LINEAR, m->of_tokens, m->of_tokens);
  op.op.weights[0] = &m->w;
  op.in[0] = m->at(0), op.out = m->at(0);
  op.row_flops = 1;
  for (int64_t stage_first : {int64_t{0}, int64_t{576}}) {
    for (int64_t stage_n :
         {int64_t{1}, int64_t{287}, int64_t{288}, int64_t{289}, int64_t{576}, int64_t{900}}) {
      m->r.stage_first = stage_first, m->r.stage_n = stage_n;
      const int taken = in_blocks(m.get(), op, Cut::rows);
      const int64_t count = (stage_n + 287) / 288;
      CHECK(taken == count - 1 && static_cast<int64_t>(m->calls.linears.size()) == count &&
                static_cast<int64_t>(blocks.size()) == count,
            "%d pauses, %zu blocks of %lld rows", taken, m->calls.linears.size(),
            static_cast<long long>(stage_n));
      for (int64_t i = 0; i < count; i++) {
        const sie_linear_args &a = m->calls.linears[static_cast<size_t>(i)];
        const int64_t row = stage_first + 288 * i;
        CHECK(m->calls.linear_rows[static_cast<size_t>(i)] ==
                  std::min<int64_t>(288, stage_first + stage_n - row),
              "block %lld has %d rows", static_cast<long long>(i),
              m->calls.linear_rows[static_cast<size_t>(i)]);
        CHECK(a.x.p == region.data() + row * 64 && a.rows.cap == 101, "block %lld begins elsewhere",
              static_cast<long long>(i));
      }
    }
  }
  // A block's failure is the operation's.
  m->r.stage_first = 0, m->r.stage_n = 900;
  m->calls.fails_at = 1;
  in_blocks(m.get(), op, Cut::rows, SIE_INTERNAL);
  CHECK(m->calls.calls == 2, "%d blocks", m->calls.calls);
  m->calls.fails_at = -1;
  CHECK(m->slab.spaces[tokens].n == 1900, "the slab is changed");
}

// Spaces and inputs of a block: rows of ROWS and SUBSET spaces are the block's, inputs of its space begin at its
// first row, up to the largest number of either.
TEST(replayed_blocks_have_the_rows_of_their_space) {
  for (sie_space of : {tokens, labels}) {
    const auto m = std::make_unique<Made>();
    m->r.long_cap = 4096, m->r.stage_cap = 2000;
    m->r.stage_first = 288, m->r.stage_n = 300;
    m->slab.spaces[of].n = 1900;
    m->p.block_flops = 1;
    std::vector<char> region(4096 * 64 + 4096);
    m->r.values = region.data();
    m->p.buffers[0] = {};
    m->p.buffers[0].dtype = SIE_F32;
    m->p.buffers[0].ld = 16;
    // Both inputs of the space, and one of another.
    m->p.inputs[ids].space = m->p.inputs[group_of].space = of;
    m->p.inputs[types].space = words;
    const sie_value v = of == tokens ? m->of_tokens : m->of_labels;
    static std::vector<sie_rows> seen_rows;
    static std::vector<const int32_t *> seen_ids, seen_last;
    static std::vector<int32_t> seen_n;
    seen_rows.clear(), seen_ids.clear(), seen_last.clear(), seen_n.clear();
    m->ops.embed_layernorm = [](const sie_embed_layernorm_args *a, const sie_share *) {
      seen_rows.push_back(a->tokens);
      seen_n.push_back(*a->tokens.n);
      seen_ids.push_back(a->ids);
      seen_last.push_back(a->type_ids);
      CHECK(a->cu_seqlens[0] == 0 && a->cu_seqlens[1] == *a->tokens.n, "the block's sequence is %d rows",
            a->cu_seqlens[1]);
      return SIE_OK;
    };
    sie::PlannedOp op = planned_op(SIE_OP_EMBED_LAYERNORM, SIE_NO_VALUE, v);
    op.op.weights[0] = &m->w;
    op.op.inputs[0] = ids, op.op.inputs[1] = group_of;
    op.out = m->at(0);
    op.row_flops = 1;
    in_blocks(m.get(), op, Cut::rows);
    CHECK(seen_n == (std::vector<int32_t>{288, 12}), "%zu blocks", seen_n.size());
    for (size_t i = 0; i < seen_n.size(); i++) {
      const int64_t row = 288 + 288 * static_cast<int64_t>(i);
      CHECK(seen_rows[i].cap == 100 + of && seen_ids[i] == m->inputs[ids] + row &&
                seen_last[i] == m->inputs[group_of] + row,
            "inputs of block %zu begin elsewhere", i);
    }
    op.op.inputs[1] = types;
    seen_last.clear();
    in_blocks(m.get(), op, Cut::rows);
    for (const int32_t *input : seen_last)
      CHECK(input == m->inputs[types], "an input of another space is moved");
    // One that the batch leaves out stays so.
    m->slab.inputs[group_of] = nullptr;
    op.op.inputs[1] = group_of;
    seen_last.clear();
    in_blocks(m.get(), op, Cut::rows);
    for (const int32_t *input : seen_last) CHECK(input == nullptr, "an input that is left out is moved");
  }
  // A rope is told how many rows its sequence has, and where the block is.
  const auto m = std::make_unique<Made>();
  m->r.long_cap = 4096, m->r.stage_cap = 2000;
  m->r.stage_first = 0, m->r.stage_n = 300;
  m->slab.spaces[tokens].n = 1900;
  std::vector<char> region(4096 * 64 + 4096);
  m->r.values = region.data();
  m->p.block_flops = 1;
  sie::PlannedOp op = planned_op(SIE_OP_QK_NORM_ROPE, m->of_tokens);
  op.op.rope.turns = &m->w;
  op.row_flops = 1;
  in_blocks(m.get(), op, Cut::rows);
  CHECK(m->calls.rope.whole_rows == 1900 && m->calls.rope.position_offset == 288, "row %d of %d",
        m->calls.rope.position_offset, m->calls.rope.whole_rows);
}

// Blocks of queries: each head of keys and each 288 queries or more are one, dealt among the members.
TEST(replayed_blocks_of_queries) {
  for (int64_t count : {int64_t{1}, int64_t{288}, int64_t{289}, int64_t{600}, int64_t{864}}) {
    for (bool prefix : {false, true}) {
      for (int32_t parts : {1, 2, 3}) {
        const auto m = std::make_unique<Made>();
        m->slab.spaces[tokens].n = static_cast<int32_t>(count);
        m->slab.spaces[words].n = 50;
        m->slab.max_keys = prefix ? 100 : 9999;
        sie::PlannedOp op = planned_op(SIE_OP_ATTENTION, m->of_tokens, m->of_tokens);
        op.op.in[1] = op.op.in[2] = m->of_words;
        op.op.attention.heads = 6, op.op.attention.kv_heads = 3, op.op.attention.head_dim = 16;
        op.op.attention.segment = prefix ? 1 : 0;
        m->r.state = nullptr;
        // Two heads of queries, 50 keys, or 100 with the prefix: 288 or 576 queries are a block.
        op.row_flops = 1;
        m->p.block_flops = 100.0 * 576;
        const int64_t step = prefix ? 288 : 576;
        std::vector<std::pair<int32_t, int64_t>> seen;
        int64_t taken = 0, items = 0;
        for (int32_t part = 0; part < parts; part++) {
          m->r.share.part = part, m->r.share.parts = parts;
          taken += in_blocks(m.get(), op, Cut::queries);
          for (size_t i = 0; i < m->calls.attentions.size(); i++) {
            const sie_attention_args &a = m->calls.attentions[i];
            const sie_share &share = m->calls.shares[i];
            CHECK(share.parts == 3 && a.q_first % step == 0 &&
                      a.q_last == std::min<int64_t>(a.q_first + step, count) && a.q_last > a.q_first,
                  "queries %d to %d of head %d", a.q_first, a.q_last, share.part);
            seen.push_back({share.part, a.q_first});
          }
          items += static_cast<int64_t>(m->calls.attentions.size()) - (m->calls.attentions.empty() ? 0 : 1);
          const int64_t all = 3 * ((count + step - 1) / step);
          CHECK(static_cast<int64_t>(m->calls.attentions.size()) ==
                    all * (part + 1) / parts - all * part / parts,
                "%zu blocks of member %d of %d", m->calls.attentions.size(), part, parts);
        }
        CHECK(taken == items, "%lld pauses between %lld blocks", static_cast<long long>(taken),
              static_cast<long long>(items));
        std::vector<std::pair<int32_t, int64_t>> want;
        for (int32_t head = 0; head < 3; head++) {
          for (int64_t first = 0; first < count; first += step) want.push_back({head, first});
        }
        CHECK(seen == want, "%zu blocks of %lld queries", seen.size(), static_cast<long long>(count));
        m->r.share.part = 0, m->r.share.parts = 1;
        m->calls.fails_at = 1;
        in_blocks(m.get(), op, Cut::queries, SIE_INTERNAL);
        CHECK(m->calls.calls == 2, "%d blocks", m->calls.calls);
      }
    }
  }
}

// Shares: as if more members shared the operation; of labels, those of the sequence count.
TEST(replayed_blocks_of_shares) {
  const auto m = std::make_unique<Made>();
  m->r.nonfinite = m->first[7];
  m->p.block_flops = 1000;
  auto shares = [&](const sie::PlannedOp &op, int32_t part, int32_t parts, int64_t want) {
    m->r.share.part = part, m->r.share.parts = parts;
    const int taken = in_blocks(m.get(), op, Cut::shares);
    const std::vector<sie_share> &all = m->calls.shares;
    CHECK(taken == want - 1 && static_cast<int64_t>(all.size()) == want,
          "%d pauses, %zu shares, %lld expected", taken, all.size(), static_cast<long long>(want));
    for (size_t i = 0; i < all.size(); i++) {
      CHECK(all[i].part == part * want + static_cast<int64_t>(i) && all[i].parts == parts * want,
            "share %zu is %d of %d", i, all[i].part, all[i].parts);
    }
  };
  sie::PlannedOp op = planned_op(SIE_OP_SPLADE, m->of_tokens, m->of_sequences);
  op.op.weights[0] = &m->w;
  op.row_flops = 100;
  m->slab.spaces[tokens].n = 45;
  shares(op, 0, 1, 5);  // 4,500 operations
  shares(op, 0, 2, 3);
  shares(op, 1, 2, 3);
  shares(op, 2, 4, 2);
  m->slab.spaces[tokens].n = 9;
  shares(op, 0, 1, 1);
  // Of what is found, words times labels: those of the slab, or of its sequence's group.
  op = planned_op(SIE_OP_SPANS, m->of_words);
  op.op.in[1] = m->of_words, op.op.in[2] = m->of_labels;
  op.row_flops = 10;
  m->slab.spaces[words].n = 20;
  m->slab.spaces[labels].n = 29;
  shares(op, 0, 1, 6);  // 5,800
  shares(op, 1, 2, 3);
  op.op.inputs[0] = group_of;
  m->inputs[group_of][0] = 1;
  m->offsets[labels][1] = 7, m->offsets[labels][2] = 17;
  shares(op, 0, 1, 3);  // 2,000
  m->inputs[group_of][0] = -1;
  shares(op, 0, 1, 1);
  m->inputs[group_of][0] = 1;
  m->r.share.part = 0, m->r.share.parts = 1;
  m->calls.fails_at = 1;
  in_blocks(m.get(), op, Cut::shares, SIE_INTERNAL);
  CHECK(m->calls.calls == 2, "%d shares", m->calls.calls);
  m->calls.fails_at = -1;
  // What is not cut is one block.
  op = planned_op(SIE_OP_LINEAR, m->of_tokens, m->of_tokens);
  op.op.weights[0] = &m->w;
  CHECK(in_blocks(m.get(), op, Cut::none) == 0 && m->calls.calls == 1 && blocks.size() == 1, "%d blocks",
        m->calls.calls);
}
