// rehearse_test.cc — the bounds that a table is asked for its scratch with, and the call of every operation
// without rows, on made-up plans.
#include <string.h>

#include <memory>
#include <string>
#include <vector>

#include "cut.h"
#include "program.h"
#include "record.h"
#include "replay.h"
#include "says.h"

namespace {

using sie::Cut;

constexpr sie_space tokens = 1, sequences = 2, words = 3, labels = 4, queries = 8;

std::vector<sie_op_bounds> asked;
int64_t answer = 0;       // of scratch
int64_t long_answer = 0;  // of one sequence
int64_t scratch_bytes(const sie_op_bounds *bounds) {
  asked.push_back(*bounds);
  return bounds->seqs == 1 ? long_answer : answer;
}

// A slab of at most 300 tokens and 20 sequences; the longest sequence has 200, or 900.
struct Made {
  sie_ops ops = *sie_ref_ops();
  sie_device device;
  sie_program p;
  sie_weight w, other;
  sie_value of_tokens, of_sequences, of_words, of_labels, of_queries;

  Made() {
    ops.scratch_bytes = scratch_bytes;
    ops.name = "made-up";
    device.kind = SIE_DEVICE_CPU;
    device.ops = &ops;
    device.threads = 1;
    p.device = &device;
    p.seqs = sequences;
    p.slab_tokens = 300, p.slab_seqs = 20;
    p.caps.max_len = 200;
    space(tokens, SIE_SPACE_ROWS, 4000, 200);
    space(sequences, SIE_SPACE_SEQS, 50, 0);
    space(words, SIE_SPACE_ROWS, 3000, 150);
    space(labels, SIE_SPACE_ROWS, 2000, 250);
    space(queries, SIE_SPACE_SHARED, 77, 0);
    p.inputs[1].space = tokens, p.inputs[20].space = queries;
    CHECK(sie::reserve_value(&p, SIE_NO_VALUE), "no memory");
    of_tokens = value(tokens, 64), of_sequences = value(sequences, 32), of_words = value(words, 16);
    of_labels = value(labels, 8), of_queries = value(queries, 24);
    w.n = 48, w.k = 64;
    w.packed.compute = SIE_COMPUTE_INT8;
    other.n = 12, other.k = 11;
    other.packed.compute = SIE_COMPUTE_BF16;
    asked.clear();
    answer = long_answer = 0;
  }
  Made(const Made &) = delete;
  Made &operator=(const Made &) = delete;

  void space(sie_space number, uint32_t kind, int64_t rows, int64_t each) {
    p.spaces[number].kind = kind;
    p.spaces[number].max_rows = rows, p.spaces[number].max_each = each;
  }
  sie_value value(sie_space of, int64_t columns) {
    sie::Op op = sie::new_op(SIE_OP_LINEAR);
    op.out = static_cast<sie_value>(p.values.size());
    CHECK(sie::append(&p, op, of, SIE_COMPUTE_F32, columns, nullptr) == SIE_OK, "no memory");
    return op.out;
  }
  sie::PlannedOp &push(uint32_t kind, sie_value in = SIE_NO_VALUE, sie_value out = SIE_NO_VALUE) {
    sie::PlannedOp planned = {};
    planned.op = sie::new_op(kind);
    planned.op.in[0] = in, planned.op.out = out;
    planned.work = -1;
    CHECK(p.plan.push(planned), "no memory");
    return p.plan[p.plan.size() - 1];
  }
  // The bounds of the only operation in a lane, and of one sequence alone.
  sie_op_bounds bounds(size_t which = 0) {
    asked.clear();
    PASSES(sie::plan_scratch(&p, &err));
    CHECK(asked.size() == (p.region_tokens > 0 ? 2 : 1), "%zu questions", asked.size());
    p.plan.clear();
    return asked[which];
  }
};

sie_op_bounds expected(uint32_t kind, int64_t rows, int64_t columns) {
  sie_op_bounds b = {};
  b.kind = kind;
  b.rows = rows, b.seqs = 20;
  b.c = columns;
  b.max_len = 200;
  return b;
}
void same(const sie_op_bounds &got, const sie_op_bounds &want) {
  CHECK(
      memcmp(&got, &want, sizeof got) == 0,
      "operation %u: %lld rows, [%lld, %lld] of class %u, %lld columns, %lld long, %lld labels, other bounds",
      got.kind, static_cast<long long>(got.rows), static_cast<long long>(got.n),
      static_cast<long long>(got.k), got.compute, static_cast<long long>(got.c),
      static_cast<long long>(got.max_len), static_cast<long long>(got.labels));
}

}  // namespace

TEST(rehearsed_bounds_of_operations) {
  const auto m = std::make_unique<Made>();
  sie::Op *op = &m->push(SIE_OP_EMBED_LAYERNORM, SIE_NO_VALUE, m->of_words).op;
  op->weights[0] = &m->w;
  same(m->bounds(), expected(SIE_OP_EMBED_LAYERNORM, 300, 16));
  m->push(SIE_OP_LAYERNORM, m->of_sequences, m->of_tokens);
  same(m->bounds(), expected(SIE_OP_LAYERNORM, 20, 32));
  sie_op_bounds want;
  for (uint32_t kind : {SIE_OP_LINEAR, SIE_OP_SPLADE, SIE_OP_LORA, SIE_OP_LINEAR_NORM}) {
    op = &m->push(kind, m->of_tokens, m->of_tokens).op;
    op->weights[0] = &m->w;
    op->max_rank = 9;
    want = expected(kind, 300, 64);
    want.compute = SIE_COMPUTE_INT8;
    want.n = 48, want.k = 64;
    want.max_rank = 9;
    same(m->bounds(), want);
  }
  for (bool reverse : {false, true}) {
    op = &m->push(SIE_OP_LSTM, m->of_words, m->of_words).op;
    op->weights[reverse ? 1 : 0] = reverse ? &m->other : &m->w;
    want = expected(SIE_OP_LSTM, 300, 16);
    want.k = reverse ? 11 : 64;
    same(m->bounds(), want);
  }
  for (bool prefix : {false, true}) {
    for (bool buckets : {false, true}) {
      op = &m->push(SIE_OP_ATTENTION, m->of_tokens, m->of_tokens).op;
      op->attention.heads = 4, op->attention.kv_heads = 2, op->attention.head_dim = 16;
      op->attention.segment = prefix ? 1 : 0;
      op->attention.buckets = buckets ? &m->other : nullptr;
      op->attention.pos_query = buckets ? &m->w : nullptr;
      m->p.state.declared = prefix;
      m->p.state.rows = prefix ? 5 : 0;
      m->p.state.max_rows = 70;
      m->p.caps.max_len = 230;  // with the prefix
      want = expected(SIE_OP_ATTENTION, 300, 64);
      want.max_len = 230;
      want.heads = 4, want.kv_heads = 2, want.head_dim = 16;
      want.position_rows = buckets ? 48 : 0, want.bucket_reach = buckets ? 5 : 0;
      m->p.slab_tokens = 190;  // no sequence of a slab is longer
      want.rows = 190;
      want.max_len = prefix ? 230 : 190;
      same(m->bounds(), want);
    }
  }
  m->p.slab_tokens = 300, m->p.caps.max_len = 200;
  op = &m->push(SIE_OP_QK_NORM_ROPE, m->of_tokens).op;
  op->rope.heads = 6, op->rope.kv_heads = 3, op->rope.head_dim = 8;
  want = expected(SIE_OP_QK_NORM_ROPE, 300, 64);
  want.heads = 6, want.kv_heads = 3, want.head_dim = 8;
  same(m->bounds(), want);
  op = &m->push(SIE_OP_MAXSIM, m->of_tokens, m->of_sequences).op;
  op->inputs[0] = 20;
  want = expected(SIE_OP_MAXSIM, 300, 64);
  want.query_rows = 77;
  same(m->bounds(), want);
  m->p.outputs[3].columns = 555;
  for (int32_t projected : {0, 13}) {
    op = &m->push(SIE_OP_MUVERA, m->of_tokens).op;
    op->output = 3;
    op->muvera.repetitions = 5, op->muvera.simhash_bits = 4, op->muvera.projected = projected;
    want = expected(SIE_OP_MUVERA, 300, 64);
    want.repetitions = 5, want.simhash_bits = 4, want.projected = projected != 0 ? 13 : 64;
    want.final_dims = 555;
    same(m->bounds(), want);
  }
  // Labels of a sequence: at most as many as a slab has rows; shared ones, as many as there are.
  for (uint32_t kind : {SIE_OP_SPANS, SIE_OP_PAIRS}) {
    for (sie_space of : {words, labels, queries}) {
      op = &m->push(kind, m->of_words).op;
      op->in[2] = of == words ? m->of_words : of == labels ? m->of_labels : m->of_queries;
      op->weights[0] = &m->other;
      m->p.slab_tokens = of == labels ? 240 : 300;
      want = expected(kind, m->p.slab_tokens, 16);
      want.labels = of == words ? 150 : of == labels ? 240 : 77;
      want.k = 16;
      if (kind == SIE_OP_PAIRS) want.compute = SIE_COMPUTE_BF16, want.n = 12;
      if (of == queries) m->p.slab_tokens = want.rows = want.max_len = 60;
      same(m->bounds(), want);
      m->p.slab_tokens = 300;
    }
  }
  op = &m->push(SIE_OP_SMVE, m->of_tokens).op;
  op->smve.repetitions = 3, op->smve.width = 40, op->smve.top = 2;
  want = expected(SIE_OP_SMVE, 300, 64);
  want.repetitions = 3, want.n = 40, want.top = 2;
  same(m->bounds(), want);
}

// Of one sequence, of which an operation that is cut into rows has a block.
TEST(rehearsed_bounds_of_long_slabs) {
  const auto m = std::make_unique<Made>();
  m->p.caps.max_len = 900;
  m->p.region_tokens = 1024;
  const struct {
    Cut cut;
    int64_t stage_rows, flops, rows;
  } cases[] = {{Cut::none, 288, 1, 900},       {Cut::queries, 288, 1, 900}, {Cut::shares, 288, 1, 900},
               {Cut::rows, 640, 1, 640},       {Cut::rows, 960, 1, 900},    {Cut::rows, 960, 1 << 30, 576},
               {Cut::rows, 9999, 1 << 30, 576}};
  for (const auto &t : cases) {
    m->p.stage_rows = t.stage_rows;
    m->p.block_flops =
        t.flops == 1 ? 1e12 : static_cast<double>(t.flops) * 576 / 64;  // for one of 64 members
    sie::PlannedOp &planned = m->push(SIE_OP_PRODUCT, m->of_tokens, m->of_tokens);
    planned.cut = t.cut;
    planned.row_flops = static_cast<double>(t.flops);
    sie_op_bounds want = expected(SIE_OP_PRODUCT, t.rows, 64);
    want.seqs = 1, want.max_len = 900;
    same(m->bounds(1), want);
    // In a lane no sequence is longer than a slab.
    CHECK(asked[0].rows == 300 && asked[0].seqs == 20 && asked[0].max_len == 300, "%lld rows, %lld long",
          static_cast<long long>(asked[0].rows), static_cast<long long>(asked[0].max_len));
  }
}

TEST(rehearsed_scratch_is_the_most_of_all) {
  const auto m = std::make_unique<Made>();
  static const int64_t each[] = {100, 300, 200};
  m->ops.scratch_bytes = [](const sie_op_bounds *b) {
    CHECK(b->kind < 64, "operation %u is asked for", b->kind);
    const int64_t bytes = each[b->kind == SIE_OP_PRODUCT ? 0 : b->kind == SIE_OP_DOTS ? 1 : 2];
    return b->seqs == 1 ? 10 * bytes : bytes;
  };
  for (uint32_t kind : {SIE_OP_PRODUCT, SIE_OP_DOTS, SIE_OP_SOFTMAX})
    m->push(kind, m->of_tokens, m->of_tokens);
  // csrc does these itself.
  m->push(sie::op_output_values, m->of_tokens), m->push(sie::op_state_rows, m->of_tokens);
  m->p.values_bytes = 65, m->p.late_bytes = 1;
  for (bool region : {false, true}) {
    m->p.scratch_bytes = m->p.long_scratch_bytes = 0;
    m->p.region_tokens = region ? 1024 : 0;
    PASSES(sie::plan_scratch(&m->p, &err));
    CHECK(m->p.scratch_bytes == 320 && m->p.long_scratch_bytes == (region ? 3008 : 0) &&
              m->p.values_bytes == 128 && m->p.late_bytes == 64,
          "%lld and %lld bytes", static_cast<long long>(m->p.scratch_bytes),
          static_cast<long long>(m->p.long_scratch_bytes));
  }
  m->p.region_tokens = 0;
  m->ops.scratch_bytes = [](const sie_op_bounds *b) {
    CHECK(b->kind < 64, "operation %u is asked for", b->kind);
    return b->kind == SIE_OP_DOTS ? int64_t{-1} : int64_t{0};
  };
  SAYS("dots has no scratch bound", sie::plan_scratch(&m->p, &err), SIE_INTERNAL);
  m->ops.scratch_bytes = [](const sie_op_bounds *) { return int64_t{0}; };
  PASSES(sie::plan_scratch(&m->p, &err));
}

// The bytes of a team's late rows are the most of its late operations, where there are teams.
TEST(rehearsed_late_rows) {
  for (uint32_t kind : {SIE_DEVICE_CPU, SIE_DEVICE_CUDA}) {
    for (int32_t threads : {1, 2, 5}) {
      const auto m = std::make_unique<Made>();
      m->device.kind = kind;
      m->device.threads = threads;
      m->ops.scratch_bytes = [](const sie_op_bounds *) { return int64_t{0}; };
      int64_t most = 0;
      for (int64_t columns : {16, 64, 32}) {
        const sie_value v = m->value(tokens, columns);
        sie::PlannedOp &planned = m->push(SIE_OP_LINEAR, m->of_tokens, v);
        planned.op.weights[0] = &m->w;
        planned.quantised.present = true;
        CHECK(sie::writes_levels_only(planned), "no late operation");
        most = std::max(most, sie::late_bytes_of(&m->p, planned));
      }
      CHECK(most > 0, "no bytes");
      // One that is larger and not late.
      const sie_value wide = m->value(tokens, 5000);
      m->push(SIE_OP_PRODUCT, wide, wide);
      PASSES(sie::plan_scratch(&m->p, &err));
      const int64_t want = kind == SIE_DEVICE_CPU && threads > 1 ? (most + 63) / 64 * 64 : 0;
      CHECK(m->p.late_bytes == want, "%d threads: %lld bytes, %lld expected", threads,
            static_cast<long long>(m->p.late_bytes), static_cast<long long>(want));
    }
  }
}

namespace {

// What the rehearsal calls: each operation once, with these rows.
struct Call {
  uint32_t kind;
  sie_rows rows, seqs;
  const int32_t *cu;
  const void *input;
  sie_share share;
  char *y;
};
std::vector<Call> called;
int64_t fill_values = 0;  // bytes behind the values' start that a kernel may write
int fails_at = -1;

sie_status answer_of(const Call &call) {
  called.push_back(call);
  if (fill_values > 0) memset(call.y, 0x5a, static_cast<size_t>(fill_values));
  return static_cast<int>(called.size()) - 1 == fails_at ? SIE_UNSUPPORTED : SIE_OK;
}

std::unique_ptr<Made> rehearsed() {
  auto m = std::make_unique<Made>();
  m->ops.embed_layernorm = [](const sie_embed_layernorm_args *a, const sie_share *s) {
    return answer_of(
        {SIE_OP_EMBED_LAYERNORM, a->tokens, a->seqs, a->cu_seqlens, a->ids, *s, static_cast<char *>(a->y.p)});
  };
  m->ops.gather_rows = [](const sie_gather_rows_args *a, const sie_share *s) {
    return answer_of(
        {SIE_OP_GATHER_ROWS, a->seqs, a->seqs, a->cu_seqlens, nullptr, *s, static_cast<char *>(a->y.p)});
  };
  m->ops.attention = [](const sie_attention_args *a, const sie_share *s) {
    return answer_of(
        {SIE_OP_ATTENTION, a->q_rows, a->seqs, a->cu_kv, a->prefix_keys, *s, static_cast<char *>(a->y.p)});
  };
  m->ops.maxsim = [](const sie_maxsim_args *a, const sie_share *s) {
    return answer_of(
        {SIE_OP_MAXSIM, a->rows, a->seqs, a->cu_queries, a->queries, *s, static_cast<char *>(a->y.p)});
  };
  m->ops.mark_nonfinite = [](const sie_mark_nonfinite_args *, const sie_share *) { return SIE_OK; };
  called.clear();
  fill_values = 0;
  fails_at = -1;
  m->w.table.p = &m->w;
  sie::Buffer b = {};
  CHECK(m->p.buffers.push(b), "no memory");
  sie::Operand out = {};
  out.present = true;
  out.dtype = SIE_BF16;
  sie::PlannedOp *op = &m->push(SIE_OP_EMBED_LAYERNORM, SIE_NO_VALUE, m->of_tokens);
  op->op.weights[0] = &m->w;
  op->op.inputs[0] = 1;
  op->out = out;
  op = &m->push(SIE_OP_MAXSIM, m->of_queries, m->of_sequences);
  op->op.inputs[0] = 20;
  op->in[0] = op->out = out;
  op = &m->push(SIE_OP_ATTENTION, m->of_tokens, m->of_tokens);
  op->op.in[1] = op->op.in[2] = m->of_words;
  op->op.attention.head_dim = 24, op->op.attention.mask = SIE_MASK_CAUSAL, op->op.attention.segment = 1;
  op->in[0] = op->in[1] = op->in[2] = op->out = out;
  op->in[0].dtype = SIE_F32;
  m->p.state.first = m->p.state.rows = 1;
  return m;
}

}  // namespace

TEST(rehearsed_calls) {
  const auto m = rehearsed();
  // An operation that a longer plan has left behind its end.
  CHECK(m->p.plan.push(m->p.plan[0]), "no memory");
  m->p.plan.pop();
  m->p.scratch_bytes = 1 << 10;
  m->p.values_bytes = 32 << 20;
  fill_values = m->p.buffers[0].bytes = (32 << 20) - 64;  // a zone behind the buffer is not the kernel's
  for (bool only_long : {false, true}) {
    // A lane for long slabs alone is smaller than the values.
    m->p.region_tokens = only_long ? 1024 : 0;
    m->p.caps.min_len = only_long ? 513 : 0;
    m->p.long_scratch_bytes = 64;
    called.clear();
    PASSES(sie::rehearse(&m->p, &err));
    CHECK(called.size() == 3, "%zu calls", called.size());
    for (const Call &call : called) {
      CHECK(call.rows.cap == 300 && call.seqs.cap == 20 && *call.rows.n == 0 && *call.seqs.n == 0,
            "operation %u of %lld rows", call.kind, static_cast<long long>(call.rows.cap));
      CHECK(call.cu != nullptr && call.cu[0] == 0 && call.input != nullptr, "operation %u lacks inputs",
            call.kind);
      CHECK(call.share.part == 0 && call.share.parts == 1 && call.share.scratch_bytes == 1 << 10 &&
                call.share.on == nullptr && call.y == static_cast<char *>(call.share.scratch) + (1 << 10),
            "operation %u writes elsewhere", call.kind);
    }
  }
  fill_values = 0;
  // Rows of sequences have no offsets.
  m->p.plan.clear();
  sie::PlannedOp &gather = m->push(SIE_OP_GATHER_ROWS, m->of_sequences, m->of_sequences);
  gather.in[0].present = gather.out.present = true;
  called.clear();
  PASSES(sie::rehearse(&m->p, &err));
  CHECK(called.size() == 1 && called[0].cu == nullptr, "offsets of sequence rows");
}

TEST(rehearsed_calls_of_a_gpu) {
  const auto m = rehearsed();
  m->device.kind = SIE_DEVICE_CUDA;
  m->p.scratch_bytes = 1 << 10;
  PASSES(sie::rehearse(&m->p, &err));
  CHECK(called.size() == 3, "%zu calls", called.size());
  for (const Call &call : called) {
    CHECK(call.rows.cap == 0 && call.seqs.cap == 0 && call.share.on == &m->device.on &&
              call.share.scratch == nullptr && call.share.scratch_bytes == 1 << 10 && call.y != nullptr &&
              reinterpret_cast<uintptr_t>(call.y) % 256 == 0,
          "operation %u has room for %lld rows", call.kind, static_cast<long long>(call.rows.cap));
  }
}

TEST(rehearsed_forms_that_a_device_lacks) {
  const char *const words_of[] = {
      "operation 0, embed_layernorm of bf16 rows: this device (made-up) has no such form",
      "operation 1, maxsim of bf16 rows: this device (made-up) has no such form",
      "operation 2, attention of f32 rows, head_dim 24, mask 1: this device (made-up) has no such form"};
  for (int i = 0; i < 3; i++) {
    const auto m = rehearsed();
    fails_at = i;
    sie_error err = {};
    says("rehearse", sie::rehearse(&m->p, &err), err, words_of[i], SIE_UNSUPPORTED);
    CHECK(static_cast<int>(called.size()) == i + 1, "%zu calls", called.size());
  }
  const auto m = rehearsed();
  fails_at = 2;
  m->p.plan[2].op.attention.segment = 0;
  m->p.plan[2].op.attention.bias = &m->other;
  m->other.table.p = &m->w;
  SAYS("head_dim 24, mask 1, bias: this device", sie::rehearse(&m->p, &err), SIE_UNSUPPORTED);
  called.clear();
  m->p.plan[2].op.attention.bias = nullptr;
  m->p.plan[2].op.attention.buckets = &m->other;
  m->p.plan[2].op.attention.pos_key = &m->w;
  SAYS("head_dim 24, mask 1, disentangled (pos_key, pos_query): this device", sie::rehearse(&m->p, &err),
       SIE_UNSUPPORTED);
}
