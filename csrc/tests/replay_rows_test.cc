// replay_rows_test.cc — which operations flag what is not finite, which rows of a state and of a stage they get,
// and the zone behind a result, on a made-up plan.
#include <string.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "cut.h"
#include "tests/check.h"
#include "tests/replay_rig.h"

using namespace noted;
using sie::Cut;

// Which operations flag the sequences of what they read, and of which operands and rows.
TEST(replayed_marks) {
  const auto m = std::make_unique<Made>();
  m->r.nonfinite = m->first[7];
  auto marked = [&](sie::PlannedOp op,
                    sie_status want = SIE_OK) -> const std::vector<sie_mark_nonfinite_args> & {
    m->calls.marks.clear();
    for (sie::Operand &in : op.in) {
      if (!in.present) in = m->at(64 * (1 + (&in - op.in)));
    }
    const sie_status status = sie::mark_nonfinite(m->r, op);
    CHECK(status == want, "status %d", status);
    return m->calls.marks;
  };
  const struct {
    uint32_t kind;
    int32_t pooling;
    bool marks;
    int32_t which;
  } cases[] = {{SIE_OP_LINEAR, 0, false, 0},
               {SIE_OP_LINEAR_NORM, 0, false, 0},
               {SIE_OP_POOL, SIE_POOL_MEAN, false, 0},
               {SIE_OP_POOL, SIE_POOL_CLS, false, 0},
               {SIE_OP_POOL, SIE_POOL_MAX, true, 0},
               {SIE_OP_POOL, SIE_POOL_ABS_MAX, true, 0},
               {SIE_OP_POOL_OUTPUT, SIE_POOL_CLS, true, SIE_POOL_CLS},
               {SIE_OP_POOL_OUTPUT, SIE_POOL_LAST, true, SIE_POOL_LAST},
               {SIE_OP_POOL_OUTPUT, SIE_POOL_MEAN, true, 0},
               {SIE_OP_POOL_OUTPUT, sie::each_row, true, 0},
               {SIE_OP_OUTPUT_ROWS, 0, true, 0},
               {SIE_OP_OUTPUT_ROWS, SIE_POOL_CLS, true, 0},
               {SIE_OP_SOFTMAX, 0, true, 0},
               {sie::op_output_values, 0, true, 0},
               {SIE_OP_LAYERNORM, 0, false, 0}};
  for (const auto &t : cases) {
    sie::PlannedOp op = planned_op(t.kind, m->of_tokens);
    op.op.in[1] = m->of_words;
    op.op.pooling = t.pooling;
    const auto &marks = marked(op);
    CHECK(marks.size() == (t.marks ? 1 : 0), "operation %u is marked %zu times", t.kind, marks.size());
    if (marks.empty()) continue;
    const sie_mark_nonfinite_args &a = marks[0];
    CHECK(a.which == t.which && a.rows.cap == 101 && a.seqs.cap == 102 &&
              a.cu_seqlens == m->offsets[tokens] && a.c == 64 && a.x.p == m->memory.data() + 64 &&
              a.place == m->first[sequences] && a.flags == m->r.nonfinite,
          "operation %u: row %d", t.kind, a.which);
  }
  // What is found reads several operands; the first pass flags them. Given rows are no sequence's.
  sie::PlannedOp op = planned_op(SIE_OP_PAIRS, m->of_words);
  op.op.in[2] = m->of_kept, op.op.in[3] = m->of_labels;
  op.in[2].present = true, op.in[2].given = types;
  const auto &marks = marked(op);
  CHECK(marks.size() == 2 && marks[0].c == 16 && marks[1].c == 24 && marks[1].x.p == m->memory.data() + 256,
        "%zu operands are marked", marks.size());
  op.writes = true;
  CHECK(marked(op).empty(), "the second pass marks again");
  op.writes = false;
  m->calls.mark_status = SIE_INTERNAL;
  CHECK(marked(op, SIE_INTERNAL).size() == 1, "a failure is passed over");
  // The operation itself is not run then.
  m->calls.calls = 0;
  op = planned_op(SIE_OP_OUTPUT_ROWS, m->of_sequences);
  op.in[0] = m->at(64);
  m->run(op, SIE_INTERNAL);
  CHECK(m->calls.calls == 0, "what is not checked is written");
  m->calls.mark_status = SIE_OK;
  m->run(op);
  CHECK(m->calls.calls == 1 && m->calls.output_rows.c == 32, "what is checked is not written");
}

// The rows of sequences go to their places in the state, by share; on a GPU all at once.
TEST(replayed_rows_of_a_state) {
  const auto m = std::make_unique<Made>();
  m->slab.spaces[sequences].n = 4;
  const int32_t cu[] = {0, 3, 3, 8, 9};
  for (int i = 0; i < 5; i++) m->offsets[words][i] = cu[i];
  const int32_t places[] = {12, 0, 1, 8};
  for (int i = 0; i < 4; i++) m->first[words][i] = places[i];
  for (int32_t dtype : {SIE_F32, SIE_BF16}) {
    const int64_t element = dtype == SIE_F32 ? 4 : 2;
    for (int32_t parts : {1, 2, 3, 5}) {
      m->p.state.segments[2] = {16, dtype, 24, 0};
      std::vector<char> state(16 * 24 * 4), want = state;
      m->r.state = state.data();
      m->r.state_rows = 16;
      sie::PlannedOp op = planned_op(sie::op_state_rows, m->of_words);
      op.op.segment = 2;
      op.in[0] = m->at(0, dtype);
      for (size_t i = 0; i < 4096; i++) m->memory[i] = static_cast<char>(i * 7 + i / 256);
      for (int32_t part = 0; part < parts; part++) {
        std::fill(state.begin(), state.end(), 'x');
        std::fill(want.begin(), want.end(), 'x');
        m->r.share.part = part, m->r.share.parts = parts;
        m->run(op);
        for (int b = 0; b < 4; b++) {
          const int32_t length = cu[b + 1] - cu[b];
          for (int32_t i = length * part / parts; i < length * (part + 1) / parts; i++) {
            memcpy(&want[static_cast<size_t>((places[b] + i) * 24 * element)],
                   &m->memory[static_cast<size_t>((cu[b] + i) * 70 * element)],
                   static_cast<size_t>(16 * element));
          }
        }
        CHECK(state == want, "share %d of %d of type %d", part, parts, dtype);
      }
    }
  }
  m->r.share.part = 0, m->r.share.parts = 1;
  m->device.kind = SIE_DEVICE_CUDA;
  sie::PlannedOp op = planned_op(sie::op_state_rows, m->of_words);
  op.op.segment = 2;
  op.in[0] = m->at(64);
  m->run(op);
  CHECK(m->calls.join.rows.cap == 103 && m->calls.join.c[0] == 16 && m->calls.join.c[1] == 0 &&
            m->calls.join.x[0].p == m->memory.data() + 64 && m->calls.join.y.p == m->r.state &&
            m->calls.join.y.ld == 24,
        "rows are joined elsewhere");
}

TEST(replayed_stages_have_rows) {
  const auto m = std::make_unique<Made>();
  for (Cut cut : {Cut::none, Cut::rows, Cut::queries, Cut::shares}) {
    sie::PlannedOp op = planned_op(SIE_OP_LINEAR, m->of_tokens, m->of_words);
    op.cut = cut;
    m->p.plan.clear();
    CHECK(m->p.plan.push(op), "no memory");
    CHECK(sie::rows_of_stage(m->r, 0) == (cut == Cut::rows ? 43 : 0), "%lld rows",
          static_cast<long long>(sie::rows_of_stage(m->r, 0)));
  }
}

// The zone behind a result is looked at where one caller computes all of it on a CPU; a kernel's own failure counts
// before.
#ifdef SIE_CHECK_ZONES
TEST(replayed_zones) {
  const auto m = std::make_unique<Made>();
  m->p.buffers[0].offset = 512, m->p.buffers[0].bytes = 192;
  static int64_t stray = 0;
  static sie_status answer = SIE_OK;
  m->ops.product = [](const sie_product_args *a, const sie_share *) {
    static_cast<char *>(a->y.p)[stray] = 1;
    return answer;
  };
  sie::PlannedOp op = planned_op(SIE_OP_PRODUCT, m->of_words, m->of_words);
  op.op.in[1] = m->of_words;
  op.out = m->at(512);
  for (int64_t at : {191, 192, 255, 256}) {
    const bool in_zone = at == 192 || at == 255;
    for (sie_status status : {SIE_OK, SIE_UNSUPPORTED}) {
      stray = at, answer = status;
      m->run(op, status == SIE_OK && in_zone ? SIE_INTERNAL : status);
      m->r.share.parts = 2;
      m->run(op, status);
      m->r.share.parts = 1;
      m->device.kind = SIE_DEVICE_CUDA;
      m->run(op, status);
      m->device.kind = SIE_DEVICE_CPU;
    }
  }
}
#endif
