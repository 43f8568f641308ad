// late_test.cc — which operations a team quantises late, and in which groups of rows, for made-up plans.
#include <string.h>

#include <initializer_list>
#include <memory>

#include "replay.h"
#include "tests/check.h"

namespace {

// A linear of class INT8 with 80 columns of x and 100 of its result, whose levels alone exist, and a
// member of a team that runs it.
struct Made {
  sie_program p;
  sie_weight w;
  sie::Slab slab = {};
  sie::Replay r = {};
  int32_t rows = 10;
  float late[1];

  Made() {
    for (int64_t columns : {0, 80, 100}) {
      sie::Value v = {};
      v.space = columns == 0 ? 0 : 1;
      v.columns = columns;
      CHECK(p.values.push(v), "no memory");
    }
    w.k = 80, w.n = 100;
    w.packed.compute = SIE_COMPUTE_INT8;
    sie::PlannedOp planned = {};
    planned.op.kind = SIE_OP_LINEAR;
    planned.op.in[0] = 1, planned.op.out = 2;
    planned.op.weights[0] = &w;
    planned.quantised.present = true;
    CHECK(p.plan.push(planned), "no memory");
    p.slab_tokens = 512;
    r.program = &p;
    r.slab = &slab;
    r.rows[1] = {512, &rows};
    r.share.parts = 2;
    r.late = late;
  }
  sie::PlannedOp &planned() { return p.plan[0]; }
};

}  // namespace

TEST(late_operations_are_those_whose_levels_alone_exist) {
  const auto m = std::make_unique<Made>();
  CHECK(sie::writes_levels_only(m->planned()), "a linear that writes levels");
  m->planned().op.kind = SIE_OP_SPLADE;
  CHECK(!sie::writes_levels_only(m->planned()), "another operation");
  m->planned().op.kind = SIE_OP_LINEAR;
  m->planned().out.present = true;
  CHECK(!sie::writes_levels_only(m->planned()), "a linear with float rows, too");
  m->planned().out.present = false;
  m->planned().quantised.present = false;
  CHECK(!sie::writes_levels_only(m->planned()), "a linear without levels");
  m->planned().quantised.present = true;
  m->w.packed.compute = SIE_COMPUTE_FP8;
  CHECK(!sie::writes_levels_only(m->planned()), "a linear of another class");
}

// Eight times the rows are fewer than the columns that the other members spare.
TEST(late_operations_have_few_rows_and_many_members) {
  const auto m = std::make_unique<Made>();
  struct {
    int32_t rows, parts;
    int64_t k;
    bool late;
  } cases[] = {{10, 2, 80, false},   {10, 2, 81, true},  {9, 2, 80, true},  {20, 3, 80, false},
               {19, 3, 80, true},    {10, 1, 80, false}, {0, 1, 80, false}, {0, 2, 80, true},
               {150, 16, 80, false}, {149, 16, 80, true}};
  for (const auto &c : cases) {
    m->rows = c.rows;
    m->r.share.parts = c.parts;
    m->w.k = c.k;
    CHECK(sie::quantises_late(m->r, 0) == c.late, "%d rows by %d members, %lld columns", c.rows, c.parts,
          static_cast<long long>(c.k));
  }
  m->rows = 1;
  CHECK(sie::quantises_late(m->r, 0), "one row by 16 members");
  m->r.late = nullptr;
  CHECK(!sie::quantises_late(m->r, 0), "without a place for the rows");
  m->r.late = m->late;
  m->planned().out.present = true;
  CHECK(!sie::quantises_late(m->r, 0), "a linear with float rows, too");
}

// As many rows of f32 as the limit holds, but one at least and no more than a slab has.
TEST(late_rows_come_in_groups) {
  const auto m = std::make_unique<Made>();
  struct {
    int64_t limit, rows;
  } cases[] = {{4000, 10}, {3999, 9},     {4399, 10},    {400, 1},     {399, 1},
               {0, 1},     {204800, 512}, {205200, 512}, {204799, 511}};
  for (const auto &c : cases) {
    m->p.late_limit = c.limit;
    const int64_t rows = sie::late_rows(m->r, 0), bytes = sie::late_bytes_of(&m->p, m->planned());
    CHECK(rows == c.rows && bytes == c.rows * 400, "%lld bytes hold %lld rows, which take %lld",
          static_cast<long long>(c.limit), static_cast<long long>(rows), static_cast<long long>(bytes));
  }
}
