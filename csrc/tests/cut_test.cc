// cut_test.cc — how operations of long slabs are cut, their stages and the sizes of their blocks, for
// made-up plans.
#include "cut.h"

#include <vector>

#include "program.h"
#include "tests/check.h"

namespace {

constexpr sie_space rows_space = 1, seqs_space = 2, other_rows = 3;

// A program whose values have these columns and spaces.
struct Made {
  sie_program p;
  sie_weight wide, narrow;  // [40, 16] and [8, 5]

  Made() {
    p.seqs = seqs_space;
    value(0, 0);  // SIE_NO_VALUE
    wide.n = 40, wide.k = 16;
    narrow.n = 8, narrow.k = 5;
  }
  Made(const Made &) = delete;
  Made &operator=(const Made &) = delete;

  sie_value value(sie_space space, int64_t columns) {
    sie::Value v = {};
    v.space = space;
    v.columns = columns;
    CHECK(p.values.push(v), "no memory");
    return static_cast<sie_value>(p.values.size() - 1);
  }
  sie::PlannedOp &add(uint32_t kind, sie_value in, sie_value out, const sie_weight *w = nullptr) {
    sie::PlannedOp planned = {};
    planned.op.kind = kind;
    planned.op.in[0] = in;
    planned.op.out = out;
    planned.op.weights[0] = w;
    planned.stage_end = -1;
    CHECK(p.plan.push(planned), "no memory");
    return p.plan[p.plan.size() - 1];
  }
};

}  // namespace

TEST(cuts_cost_what_their_operations_compute) {
  using sie::Cut;
  Made m;
  const sie_value x = m.value(rows_space, 24), y = m.value(rows_space, 40), one = m.value(seqs_space, 24);
  struct Want {
    Cut cut;
    double flops;
  };
  std::vector<Want> want;
  auto add = [&](uint32_t kind, sie_value in, sie_value out, Cut cut, double flops,
                 const sie_weight *w = nullptr) -> sie::PlannedOp & {
    want.push_back({cut, flops});
    return m.add(kind, in, out, w);
  };
  add(SIE_OP_EMBED_LAYERNORM, SIE_NO_VALUE, x, Cut::rows, 512 * 24, &m.wide);
  add(SIE_OP_LINEAR, x, y, Cut::rows, 2 * 40 * 16, &m.wide);
  add(SIE_OP_LINEAR_NORM, x, y, Cut::rows, 2 * 40 * 16, &m.wide);
  add(SIE_OP_LAYERNORM, x, y, Cut::rows, 32 * 40);
  add(SIE_OP_QUANTISE_ROWS, x, x, Cut::rows, 32 * 24);
  add(SIE_OP_JOIN_COLUMNS, x, y, Cut::rows, 32 * 40);
  add(SIE_OP_PRODUCT, x, y, Cut::rows, 32 * 40);
  add(SIE_OP_DOTS, y, x, Cut::rows, 32 * 40);
  add(SIE_OP_LORA, x, y, Cut::rows, 2 * 7 * (40 + 16), &m.wide).op.max_rank = 7;
  sie::Op &rope = add(SIE_OP_QK_NORM_ROPE, x, SIE_NO_VALUE, Cut::rows, 32 * 6 * (3 + 2)).op;
  rope.rope.head_dim = 6, rope.rope.heads = 3, rope.rope.kv_heads = 2;
  // Two products, and one more for each table of positions.
  for (int tables = 0; tables < 4; tables++) {
    sie::Op &op = add(SIE_OP_ATTENTION, x, y, Cut::queries, 2 * 12 * (2 + (tables & 1) + (tables >> 1))).op;
    op.attention.head_dim = 12;
    op.attention.pos_key = (tables & 1) != 0 ? &m.wide : nullptr;
    op.attention.pos_query = (tables & 2) != 0 ? &m.wide : nullptr;
  }
  add(SIE_OP_SPLADE, x, y, Cut::shares, 2 * 8 * 5, &m.narrow);
  add(SIE_OP_SPANS, x, SIE_NO_VALUE, Cut::shares, 2 * 9 * 24, &m.wide).op.widest = 9;
  add(SIE_OP_PAIRS, x, SIE_NO_VALUE, Cut::shares, 2 * 8 * 5, &m.narrow);
  // The second pass is not cut, nor is what has one row a sequence, nor what else there is.
  sie::PlannedOp &second = add(SIE_OP_SPANS, x, SIE_NO_VALUE, Cut::none, 0, &m.wide);
  second.op.widest = 9, second.writes = true;
  add(SIE_OP_LINEAR, one, one, Cut::none, 0, &m.wide);
  add(SIE_OP_GATHER_ROWS, x, one, Cut::none, 0);
  sie::cut_plan(&m.p);
  for (size_t i = 0; i < want.size(); i++) {
    const sie::PlannedOp &planned = m.p.plan[static_cast<int64_t>(i)];
    CHECK(planned.cut == want[i].cut, "%s is cut otherwise", sie::op_name(planned.op.kind));
    CHECK(planned.row_flops == want[i].flops, "%s: %g operations a row, %g expected",
          sie::op_name(planned.op.kind), planned.row_flops, want[i].flops);
  }
  // Of a token: what its rows are multiplied with.
  CHECK(m.p.token_flops == 2 * 2 * 40 * 16, "%g operations a token", m.p.token_flops);
  sie::cut_plan(&m.p);
  CHECK(m.p.token_flops == 2 * 2 * 40 * 16, "%g operations a token, cut again", m.p.token_flops);
}

TEST(stages_are_neighbours_of_one_space) {
  Made m;
  const sie_value x = m.value(rows_space, 24), other = m.value(other_rows, 24), one = m.value(seqs_space, 24);
  std::vector<int32_t> want;
  auto add = [&](uint32_t kind, sie_value in, sie_value out, int32_t end) {
    m.add(kind, in, out, &m.wide);
    want.push_back(end);
  };
  add(SIE_OP_EMBED_LAYERNORM, SIE_NO_VALUE, x, 4);
  add(SIE_OP_LINEAR, x, x, 4);
  add(SIE_OP_QK_NORM_ROPE, x, SIE_NO_VALUE, 4);  // its rows are its operand's
  add(SIE_OP_LAYERNORM, x, x, 4);
  add(SIE_OP_ATTENTION, x, x, 5);
  add(SIE_OP_LINEAR, x, x, 6);
  add(SIE_OP_LINEAR, other, other, 8);
  add(SIE_OP_LAYERNORM, other, other, 8);
  add(SIE_OP_GATHER_ROWS, other, one, 9);
  add(SIE_OP_LINEAR, one, one, 10);
  add(SIE_OP_ATTENTION, x, x, 11);
  add(SIE_OP_ATTENTION, x, x, 12);
  add(SIE_OP_LINEAR, x, x, 15);
  add(SIE_OP_LINEAR, x, x, 15);
  add(SIE_OP_LINEAR, x, x, 15);
  // What a longer plan has left behind the last operation is not joined.
  m.add(SIE_OP_LINEAR, x, x, &m.wide).cut = sie::Cut::rows;
  m.p.plan.pop();
  sie::cut_plan(&m.p);
  for (size_t i = 0; i < want.size(); i++) {
    const int32_t end = m.p.plan[static_cast<int64_t>(i)].stage_end;
    CHECK(end == want[i], "operation %zu: its stage ends at %d, %d expected", i, end, want[i]);
  }
  CHECK(sie::cut_space(&m.p, m.p.plan[0].op) == rows_space &&
            sie::cut_space(&m.p, m.p.plan[2].op) == rows_space &&
            sie::cut_space(&m.p, m.p.plan[8].op) == seqs_space,
        "the space of a result, or of the operand where there is none");
}

TEST(blocks_hold_as_many_steps_of_rows_as_their_work_allows) {
  Made m;
  sie::PlannedOp planned = {};
  auto rows = [&](double block, double row, int64_t keys, int32_t parts) {
    m.p.block_flops = block;
    planned.row_flops = row;
    return sie::block_rows(&m.p, planned, keys, parts);
  };
  struct {
    sie::Cut cut;
    double block, row;
    int64_t keys;
    int32_t parts;
    int64_t want;
  } cases[] = {{sie::Cut::rows, 2880, 1, 0, 1, 2880},       {sie::Cut::rows, 2880, 1, 50, 3, 3 * 2880},
               {sie::Cut::rows, 2879, 1, 0, 1, 2880 - 288}, {sie::Cut::rows, 1e9, 1e9, 0, 1, 288},
               {sie::Cut::rows, 5760e3, 1e4, 0, 1, 576},    {sie::Cut::queries, 5760e3, 1e2, 100, 3, 576},
               {sie::Cut::queries, 2880, 1, 1, 7, 2880},    {sie::Cut::rows, 2e9, 0, 0, 1, 999999936},
               {sie::Cut::rows, 2880, 0.25, 0, 1, 2880}};
  for (const auto &c : cases) {
    planned.cut = c.cut;
    const int64_t got = rows(c.block, c.row, c.keys, c.parts);
    CHECK(got == c.want, "blocks of %g, %g a row, %lld keys, %d parts: %lld rows, %lld expected", c.block,
          c.row, static_cast<long long>(c.keys), c.parts, static_cast<long long>(got),
          static_cast<long long>(c.want));
  }
}

TEST(blocks_of_shares_are_bounded) {
  Made m;
  sie::PlannedOp planned = {};
  struct {
    double block, row;
    int64_t rows;
    int32_t parts;
    int64_t want;
  } cases[] = {{100, 400, 1, 4, 2},
               {100, 10, 1000, 4, 26},
               {100, 10, 39, 4, 1},
               {1, 1000, 1000, 1, 4097},
               {100, 0, 1000, 1, 1}};
  for (const auto &c : cases) {
    m.p.block_flops = c.block;
    planned.row_flops = c.row;
    const int64_t got = sie::block_shares(&m.p, planned, c.rows, c.parts);
    CHECK(got == c.want, "%lld rows of %g: %lld shares, %lld expected", static_cast<long long>(c.rows), c.row,
          static_cast<long long>(got), static_cast<long long>(c.want));
  }
}
