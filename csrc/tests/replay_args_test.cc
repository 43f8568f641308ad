// replay_args_test.cc — what a kernel is called with: operands of a lane, of a long slab and of a state, and the
// blocks, shares and rows of an operation, on a made-up plan and a table that only notes.
#include <string.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "common/dtype.h"
#include "cut.h"
#include "hooks.h"
#include "program.h"
#include "record.h"
#include "replay_parts.h"
#include "tests/check.h"

namespace {

using sie::Cut;

// The last space and the last input have the largest numbers.
constexpr sie_space tokens = 1, sequences = 2, words = 3, kept = 4, queries = 5, labels = 8;
constexpr sie_input ids = 1, types = 2, first_rows = 3, prefix_rows = 4, keep = 9, group_of = 20;

// The arguments of the last call of each kernel, and what it returns.
struct Calls {
  sie_embed_layernorm_args embed;
  sie_attention_args attention;
  sie_qk_norm_rope_args rope;
  sie_join_columns_args join;
  sie_pool_args pool;
  sie_pool_output_args pool_output;
  sie_linear_args linear;
  sie_lstm_args lstm;
  sie_lora_args lora;
  sie_muvera_args muvera;
  sie_spans_args spans;
  sie_splade_args splade;
  sie_output_rows_args output_rows;
  std::vector<sie_mark_nonfinite_args> marks;
  std::vector<sie_share> shares;         // of every call but marks
  std::vector<sie_linear_args> linears;  // of every call
  std::vector<int32_t> linear_rows;      // and their numbers of rows
  std::vector<sie_attention_args> attentions;
  int calls = 0, fails_at = -1;
  sie_status mark_status = SIE_OK;
};
Calls *c = nullptr;

template <class Args>
sie_status note(Args *to, const Args *a, const sie_share *share) {
  *to = *a;
  c->shares.push_back(*share);
  return c->calls++ == c->fails_at ? SIE_INTERNAL : SIE_OK;
}

sie_ops noting() {
  sie_ops ops = *sie_ref_ops();
  ops.embed_layernorm = [](const sie_embed_layernorm_args *a, const sie_share *s) {
    return note(&c->embed, a, s);
  };
  ops.attention = [](const sie_attention_args *a, const sie_share *s) {
    c->attentions.push_back(*a);
    return note(&c->attention, a, s);
  };
  ops.qk_norm_rope = [](const sie_qk_norm_rope_args *a, const sie_share *s) { return note(&c->rope, a, s); };
  ops.join_columns = [](const sie_join_columns_args *a, const sie_share *s) { return note(&c->join, a, s); };
  ops.pool = [](const sie_pool_args *a, const sie_share *s) { return note(&c->pool, a, s); };
  ops.pool_output = [](const sie_pool_output_args *a, const sie_share *s) {
    return note(&c->pool_output, a, s);
  };
  ops.linear = [](const sie_linear_args *a, const sie_share *s) {
    c->linears.push_back(*a);
    c->linear_rows.push_back(*a->rows.n);
    return note(&c->linear, a, s);
  };
  ops.lstm = [](const sie_lstm_args *a, const sie_share *s) { return note(&c->lstm, a, s); };
  ops.lora = [](const sie_lora_args *a, const sie_share *s) { return note(&c->lora, a, s); };
  ops.muvera = [](const sie_muvera_args *a, const sie_share *s) { return note(&c->muvera, a, s); };
  ops.spans = [](const sie_spans_args *a, const sie_share *s) { return note(&c->spans, a, s); };
  ops.splade = [](const sie_splade_args *a, const sie_share *s) { return note(&c->splade, a, s); };
  ops.output_rows = [](const sie_output_rows_args *a, const sie_share *s) {
    return note(&c->output_rows, a, s);
  };
  ops.mark_nonfinite = [](const sie_mark_nonfinite_args *a, const sie_share *) {
    c->marks.push_back(*a);
    return c->mark_status;
  };
  return ops;
}

struct Made {
  sie_ops ops = noting();
  Calls calls;
  sie_device device;
  sie_program p;
  sie::Slab slab = {};
  sie::Replay r = {};
  int32_t n[9], offsets[9][600], index[9][8], first[9][8], inputs[21][2000];
  sie_out_item items[8][2];
  char outputs[8][64];
  std::vector<char> memory = std::vector<char>(1 << 20);
  sie_weight w, other;
  float vector[4];
  sie_value of_tokens, of_sequences, of_words, of_kept, of_labels, view;

  Made() {
    c = &calls;
    device.kind = SIE_DEVICE_CPU;
    device.ops = &ops;
    p.device = &device;
    p.seqs = sequences;
    for (auto [space, kind] : {std::pair<sie_space, uint32_t>{tokens, SIE_SPACE_ROWS},
                               {sequences, SIE_SPACE_SEQS},
                               {words, SIE_SPACE_ROWS},
                               {kept, SIE_SPACE_SUBSET},
                               {queries, SIE_SPACE_SHARED},
                               {labels, SIE_SPACE_SUBSET}})
      p.spaces[space].kind = kind;
    p.spaces[kept].marks = keep;
    p.spaces[labels].marks = group_of;
    p.inputs[keep].space = p.inputs[ids].space = p.inputs[types].space = tokens;
    p.inputs[first_rows].space = p.inputs[prefix_rows].space = sequences;
    p.inputs[group_of].space = tokens;
    for (int s = 0; s < 9; s++) {
      n[s] = 40 + s;
      for (int i = 0; i < 600; i++) offsets[s][i] = i * (7 + s);
      slab.spaces[s] = {n[s], s == sequences ? nullptr : offsets[s], index[s], first[s]};
      r.rows[s] = {100 + s, &slab.spaces[s].n};
    }
    for (int i = 1; i <= 20; i++) slab.inputs[i] = inputs[i];
    for (int o = 0; o < 8; o++) slab.items[o] = items[o], r.outputs[o] = outputs[o];
    slab.max_len = 33, slab.max_keys = 44;
    CHECK(sie::reserve_value(&p, SIE_NO_VALUE), "no memory");
    of_tokens = value(tokens, 64), of_sequences = value(sequences, 32), of_words = value(words, 16);
    of_kept = value(kept, 8), of_labels = value(labels, 24);
    view = value(tokens, 32);
    p.values[view].base = of_tokens;
    r.program = &p;
    r.slab = &slab;
    r.values = memory.data();
    r.share = {0, 1, memory.data() + (1 << 19), 1000, nullptr};
    r.one_row_each = first[0];
    w.n = 48, w.k = 64;
    w.table.p = vector;
    other.n = 12, other.k = 9;
    other.table.p = vector + 1;
    p.buffers.push(sie::Buffer{});
    p.buffers[0].bytes = 64;
  }
  Made(const Made &) = delete;
  Made &operator=(const Made &) = delete;

  sie_value value(sie_space of, int64_t columns) {
    sie::Op op = sie::new_op(SIE_OP_LINEAR);
    op.out = static_cast<sie_value>(p.values.size());
    CHECK(sie::append(&p, op, of, SIE_COMPUTE_F32, columns, nullptr) == SIE_OK, "no memory");
    return op.out;
  }
  // An operand at a place of its own.
  sie::Operand at(int64_t offset, int32_t dtype = SIE_F32) {
    sie::Operand o = {};
    o.present = true;
    o.offset = offset;
    o.dtype = dtype;
    o.ld = 70;
    return o;
  }
  void run(const sie::PlannedOp &planned, sie_status want = SIE_OK) {
    p.plan.clear();
    CHECK(p.plan.push(planned), "no memory");
    const sie_status status = sie::replay_op(r, 0);
    CHECK(status == want, "status %d, %d expected", status, want);
  }
};

sie::PlannedOp planned_op(uint32_t kind, sie_value in = SIE_NO_VALUE, sie_value out = SIE_NO_VALUE) {
  sie::PlannedOp planned = {};
  planned.op = sie::new_op(kind);
  planned.op.in[0] = in, planned.op.out = out;
  planned.work = -1;
  return planned;
}

bool is_at(const sie_tensor &t, const void *p, int64_t ld, int32_t dtype) {
  return t.p == p && t.ld == ld && t.dtype == dtype;
}
bool none(const sie_tensor &t) { return t.p == nullptr; }

}  // namespace

TEST(replayed_operands_of_a_lane) {
  const auto m = std::make_unique<Made>();
  CHECK(none(sie::tensor(m->r, {})), "an operand that is not there");
  sie::Operand o = m->at(256);
  o.scale = 512, o.zero = 640, o.outlier = 768;
  sie_tensor t = sie::tensor(m->r, o);
  CHECK(is_at(t, m->memory.data() + 256, 70, SIE_F32) && t.scale_group == 0 && t.scale == nullptr &&
            t.zero == nullptr && t.outlier == nullptr,
        "f32 rows");
  for (bool outliers : {false, true}) {
    for (int32_t dtype : {SIE_U8, SIE_F8E4M3}) {
      o.dtype = dtype;
      o.scale_group = dtype == SIE_U8 ? -1 : 128;
      o.outliers = outliers;
      t = sie::tensor(m->r, o);
      char *const base = m->memory.data();
      CHECK(is_at(t, base + 256, 70, dtype) && t.scale_group == o.scale_group &&
                t.scale == reinterpret_cast<float *>(base + 512),
            "quantised rows");
      CHECK(t.zero == (dtype == SIE_U8 ? reinterpret_cast<int32_t *>(base + 640) : nullptr), "zero points");
      CHECK(
          t.outlier == (dtype == SIE_U8 && outliers ? reinterpret_cast<sie_outlier *>(base + 768) : nullptr),
          "outliers");
    }
  }
  // Rows that the batch gives, from a column on.
  o = {};
  o.present = true;
  o.given = types;
  o.column = 12, o.ld = 9;
  t = sie::tensor(m->r, o);
  CHECK(is_at(t, reinterpret_cast<char *>(m->inputs[types]) + 12, 9, SIE_F32) && t.scale == nullptr,
        "given rows");
  // A state's segment.
  m->r.state = m->memory.data() + 4096, m->r.state_rows = 24;
  m->p.state.segments[2] = {128, SIE_BF16, 160, 320};
  t = sie::segment_rows(m->r, 2, 64);
  CHECK(is_at(t, m->r.state + 320 * 24 + 64 * 2, 160, SIE_BF16), "a segment");
}

// In a long slab: values of all its rows, of a stage's rows, of the sequence.
TEST(replayed_operands_of_a_long_slab) {
  const auto m = std::make_unique<Made>();
  m->r.long_cap = 640, m->r.stage_cap = 288;
  m->r.first_row = 330, m->r.stage_first = 288;
  m->p.long_row_bytes = 1000, m->p.long_stage_bytes = 300;
  std::vector<char> region(1200000);
  m->r.values = region.data();
  const struct {
    bool of_seqs, inner;
    int64_t base, cap, row;
  } places[] = {{false, false, 640 * 40, 640, 330},
                {false, true, 640 * 1000 + 288 * 40, 288, 42},
                {true, false, 640 * 1000 + 288 * 300 + 40, 1, 0}};
  for (const auto &place : places) {
    for (int32_t dtype : {SIE_F32, SIE_BF16, SIE_U8, SIE_F8E4M3}) {
      for (int32_t group : {0, -1, 128}) {
        for (bool outliers : {false, true}) {
          sie::Buffer &b = m->p.buffers[0];
          b = {};
          b.of_seqs = place.of_seqs, b.inner = place.inner;
          b.dtype = dtype;
          b.columns = 257, b.ld = 272;
          b.scale_group = group, b.outliers = outliers;
          b.row_offset = 40;
          const sie::LongPlace got = sie::long_place(m->r, b);
          CHECK(got.base == region.data() + place.base && got.cap == place.cap && got.row == place.row,
                "at %lld, %lld rows, row %lld", static_cast<long long>(got.base - region.data()),
                static_cast<long long>(got.cap), static_cast<long long>(got.row));
          sie::Operand o = m->at(7777, dtype);
          o.column = 20;
          const sie_tensor t = sie::tensor(m->r, o);
          const int64_t element = dtype == SIE_F32 ? 4 : dtype == SIE_BF16 ? 2 : 1;
          char *const base = region.data() + place.base;
          CHECK(is_at(t, base + place.row * 272 * element + 20, 272, dtype) && t.scale_group == group,
                "rows at %lld", static_cast<long long>(static_cast<char *>(t.p) - base));
          const sie::BufferParts parts = sie::parts_of(b, place.cap);
          const int64_t groups = group == 128 ? 3 : 1;
          CHECK(t.scale == (group != 0 ? reinterpret_cast<float *>(base + parts.scale) + place.row * groups
                                       : nullptr),
                "scales");
          CHECK(t.zero ==
                    (dtype == SIE_U8 ? reinterpret_cast<int32_t *>(base + parts.zero) + place.row : nullptr),
                "zero points");
          CHECK(t.outlier ==
                    (outliers ? reinterpret_cast<sie_outlier *>(base + parts.outlier) + place.row : nullptr),
                "outliers");
        }
      }
    }
  }
}

TEST(replayed_attention) {
  const auto m = std::make_unique<Made>();
  sie::PlannedOp op = planned_op(SIE_OP_ATTENTION, m->of_tokens, m->of_tokens);
  op.op.in[1] = op.op.in[2] = m->of_words;
  op.in[0] = m->at(0), op.in[1] = m->at(64), op.in[2] = m->at(128);
  op.op.attention.heads = 4, op.op.attention.kv_heads = 2, op.op.attention.head_dim = 16;
  m->r.q_first = 5, m->r.q_last = 11;
  m->r.work[0] = m->inputs[5], m->r.work[1] = m->inputs[6];
  const sie_attention_args &a = m->calls.attention;
  m->run(op);
  CHECK(a.q_rows.cap == 101 && a.seqs.cap == 102 && a.cu_q == m->offsets[tokens] &&
            a.cu_kv == m->offsets[words] && a.max_kv == 33 && a.q_first == 5 && a.q_last == 11 &&
            a.queries_first == 0,
        "spaces");
  CHECK(a.work == nullptr && a.bias == nullptr && a.buckets == nullptr && none(a.prefix_k) &&
            none(a.prefix_v) && a.prefix_first == nullptr && a.prefix_keys == nullptr && none(a.pos_key) &&
            none(a.pos_query),
        "what only other attention has");
  for (int32_t work : {0, 1}) {
    op.work = work;
    m->run(op);
    CHECK(a.work == m->r.work[work], "another list");
  }
  op.work = -1;
  // Queries of sequence rows have one row each.
  op.op.in[0] = m->of_sequences;
  op.op.attention.which = SIE_POOL_CLS;
  m->run(op);
  CHECK(a.cu_q == m->r.one_row_each && a.queries_first == 1, "one query a sequence");
  op.op.attention.which = 0;
  m->other.k = 11;
  op.op.attention.bias = &m->other;
  m->run(op);
  CHECK(a.bias == m->vector + 1 && a.bias_reach == 5, "a bias to %d", a.bias_reach);
  op.op.attention.bias = nullptr;
  m->w.table.ld = 1, m->other.table.ld = 2;
  for (int which : {1, 2, 3}) {
    op.op.attention.buckets = &m->other;
    op.op.attention.pos_key = (which & 1) != 0 ? &m->w : nullptr;
    op.op.attention.pos_query = (which & 2) != 0 ? &m->w : nullptr;
    m->run(op);
    CHECK(a.bucket_reach == 5 && a.buckets == reinterpret_cast<const int32_t *>(m->vector + 1) &&
              a.position_rows == 48,
          "buckets to %d, %d rows", a.bucket_reach, a.position_rows);
    CHECK((a.pos_key.p == m->vector) == ((which & 1) != 0) &&
              (a.pos_query.p == m->vector) == ((which & 2) != 0),
          "tables");
  }
  op.op.attention.buckets = nullptr;
  // Behind a prefix: with a state, and in rehearsals without one.
  op.op.attention.segment = 3;
  m->p.state.first = first_rows, m->p.state.rows = prefix_rows;
  m->p.state.segments[3] = {32, SIE_F32, 48, 64};
  for (bool with : {false, true}) {
    m->r.state = with ? m->memory.data() : nullptr;
    m->r.state_rows = 8;
    m->run(op);
    CHECK(a.max_kv == 44, "at most %lld keys", static_cast<long long>(a.max_kv));
    if (with) {
      CHECK(is_at(a.prefix_k, m->r.state + 512, 48, SIE_F32) &&
                is_at(a.prefix_v, m->r.state + 512 + 16 * 4, 48, SIE_F32) &&
                a.prefix_first == m->inputs[first_rows] && a.prefix_keys == m->inputs[prefix_rows],
            "rows of the state");
    } else {
      CHECK(none(a.prefix_k) && none(a.prefix_v) && a.prefix_first == nullptr && a.prefix_keys == nullptr,
            "rows of no state");
    }
  }
  // Other attention of the same program reads no rows of the state.
  op.op.attention.segment = 0;
  m->run(op);
  CHECK(none(a.prefix_k) && a.prefix_keys == nullptr && a.max_kv == 33,
        "rows of a state that it does not read");
}

TEST(replayed_arguments) {
  const auto m = std::make_unique<Made>();
  m->r.first_row = 100, m->r.whole_rows = 500;
  sie::PlannedOp op = planned_op(SIE_OP_EMBED_LAYERNORM, SIE_NO_VALUE, m->of_tokens);
  op.op.weights[0] = &m->w;
  op.op.inputs[0] = ids;
  op.op.position_offset = 2;
  m->run(op);
  const sie_embed_layernorm_args &e = m->calls.embed;
  CHECK(e.position_offset == 102 && e.ids == m->inputs[ids] && e.type_ids == nullptr && e.c == 64 &&
            none(e.position) && none(e.type) && e.word.p == m->vector,
        "position %d", e.position_offset);
  op.op.weights[1] = &m->other, op.op.inputs[1] = types;
  m->run(op);
  CHECK(e.position.p == m->vector + 1 && none(e.type) && e.type_ids == m->inputs[types], "other tables");
  op.op.weights[2] = &m->w;
  m->run(op);
  CHECK(e.type.p == m->vector, "other tables");

  op = planned_op(SIE_OP_QK_NORM_ROPE, m->of_tokens);
  op.op.rope.position_offset = 7;
  op.op.rope.heads = 4;
  const sie_qk_norm_rope_args &rope = m->calls.rope;
  m->p.state.rows = prefix_rows;
  m->r.state = m->memory.data();
  m->run(op);
  CHECK(rope.position_offset == 107 && rope.positions == 0 && rope.cos == nullptr && rope.turns == nullptr &&
            rope.whole_rows == 0 && rope.first_position == nullptr && rope.q_gamma == nullptr,
        "position %d of %lld", rope.position_offset, static_cast<long long>(rope.positions));
  op.op.rope.cos = op.op.rope.sin = &m->w;
  op.op.rope.q_gamma = &m->other;
  op.op.rope.turns = &m->other;
  op.op.rope.behind = 1;
  m->run(op);
  CHECK(rope.positions == 48 && rope.cos == m->vector &&
            rope.turns == reinterpret_cast<int32_t *>(m->vector + 1) && rope.whole_rows == 500 &&
            rope.first_position == m->inputs[prefix_rows] && rope.q_gamma == m->vector + 1 &&
            rope.k_gamma == nullptr,
        "%lld positions", static_cast<long long>(rope.positions));
  m->r.state = nullptr;
  m->run(op);
  CHECK(rope.first_position == nullptr, "behind no state");

  // A linear whose result exists in quantised rows alone writes those.
  op = planned_op(SIE_OP_LINEAR, m->of_tokens, m->of_words);
  op.op.weights[0] = &m->w;
  op.quantised = m->at(128, SIE_U8);
  m->run(op);
  CHECK(is_at(m->calls.linear.y, m->memory.data() + 128, 70, SIE_U8) && m->calls.linear.rows.cap == 103,
        "other rows are written");
  op.out = m->at(64);
  m->run(op);
  CHECK(is_at(m->calls.linear.y, m->memory.data() + 64, 70, SIE_F32), "other rows are written");

  op = planned_op(SIE_OP_JOIN_COLUMNS, m->of_tokens, m->of_tokens);
  const sie_join_columns_args &join = m->calls.join;
  op.op.in[1] = m->view;
  op.in[0] = m->at(0), op.in[1] = m->at(64), op.in[2] = m->at(128), op.in[3] = m->at(192);
  op.op.in[3] = m->of_words;  // no operand of a join
  m->run(op);
  CHECK(join.c[0] == 64 && join.c[1] == 32 && join.c[2] == 0 && none(join.x[2]), "%lld columns",
        static_cast<long long>(join.c[2]));
  op.op.in[2] = m->view;
  m->run(op);
  CHECK(join.c[2] == 32 && join.x[2].p == m->memory.data() + 128, "%lld columns",
        static_cast<long long>(join.c[2]));

  op = planned_op(SIE_OP_LSTM, m->of_words, m->of_words);
  const sie_lstm_args &lstm = m->calls.lstm;
  op.op.weights[0] = &m->w;
  m->run(op);
  CHECK(lstm.h == 64 && lstm.w == &m->w.packed && lstm.w_reverse == nullptr, "%lld columns",
        static_cast<long long>(lstm.h));
  op.op.weights[0] = nullptr, op.op.weights[1] = &m->other;
  m->run(op);
  CHECK(lstm.h == 9 && lstm.w == nullptr && lstm.w_reverse == &m->other.packed, "%lld columns",
        static_cast<long long>(lstm.h));

  op = planned_op(SIE_OP_LORA, m->of_tokens, m->of_tokens);
  op.op.weights[0] = &m->w;
  op.op.inputs[0] = types;
  sie_lora_pair pairs[8];
  m->r.lora_pairs = pairs;
  m->p.n_adapters = 3;
  for (int32_t lora : {0, 5}) {
    op.op.lora = lora;
    m->run(op);
    CHECK(m->calls.lora.adapters == pairs + lora && m->calls.lora.n_adapters == 3 &&
              m->calls.lora.adapter == m->inputs[types],
          "other adapters");
  }
}

// Pooling of sequences, and widening of rows; of rows that were kept, by their places before.
TEST(replayed_pooling) {
  const auto m = std::make_unique<Made>();
  m->r.nonfinite = m->first[7];
  for (bool output : {false, true}) {
    auto pooled = [&](sie_value in, int32_t pooling) {
      sie::PlannedOp op =
          planned_op(output ? SIE_OP_POOL_OUTPUT : SIE_OP_POOL, in, output ? SIE_NO_VALUE : in);
      op.op.pooling = pooling;
      op.op.output = 6;
      op.op.vector = m->vector;
      op.in[0] = m->at(64);
      m->run(op);
      sie_pool_args a = m->calls.pool;
      const sie_pool_output_args &o = m->calls.pool_output;
      if (output) {
        a = {o.seqs, o.cu_seqlens, o.mode, o.longest, o.c, o.x, {}, o.w, o.index, o.cu_whole};
        CHECK(o.items == m->items[6] && o.out == m->outputs[6], "another output");
      }
      CHECK(a.x.p == m->memory.data() + 64 && a.w == m->vector, "other rows");
      return a;
    };
    sie_pool_args a = pooled(m->of_tokens, SIE_POOL_MEAN);
    CHECK(a.seqs.cap == 102 && a.cu_seqlens == m->offsets[tokens] && a.mode == SIE_POOL_MEAN && a.c == 64 &&
              a.index == nullptr && a.cu_whole == nullptr,
          "pooling %d", a.mode);
    CHECK(a.longest == 33, "a sequence of %d rows is the longest", a.longest);
    // At least one row: none would be a number that nobody knows.
    for (int64_t longest : {1, 0}) {
      m->slab.max_len = longest;
      a = pooled(m->of_tokens, SIE_POOL_MEAN);
      CHECK(a.longest == 1, "a sequence of %d rows is the longest", a.longest);
    }
    m->slab.max_len = 33;
    a = pooled(m->of_words, sie::each_row);
    CHECK(a.seqs.cap == 103 && a.cu_seqlens == nullptr && a.mode == SIE_POOL_CLS && a.c == 16, "each row");
    a = pooled(m->of_kept, SIE_POOL_MEAN);
    CHECK(a.index == nullptr && a.cu_whole == nullptr, "places that nobody needs");
    a = pooled(m->of_tokens, SIE_POOL_WEIGHTED_MEAN);
    CHECK(a.index == nullptr && a.cu_whole == nullptr, "places of all rows");
    a = pooled(m->of_kept, SIE_POOL_WEIGHTED_MEAN);
    CHECK(a.index == m->index[kept] && a.cu_whole == m->offsets[tokens], "places of kept rows");
  }
}

TEST(replayed_outputs) {
  const auto m = std::make_unique<Made>();
  m->r.nonfinite = m->first[7];
  sie::PlannedOp op = planned_op(SIE_OP_MUVERA, m->of_tokens);
  op.op.output = 3;
  m->run(op);
  const sie_muvera_args &mu = m->calls.muvera;
  CHECK(mu.simhash == nullptr && mu.ams == nullptr && mu.sketch == nullptr && mu.sketch_first == nullptr &&
            mu.sketch_source == nullptr && mu.items == m->items[3] && mu.out == m->outputs[3],
        "tables that are not there");
  op.op.muvera.simhash = &m->w;
  op.op.muvera.ams = &m->other;
  m->run(op);
  CHECK(
      mu.simhash == m->vector && mu.ams == reinterpret_cast<int32_t *>(m->vector + 1) && mu.sketch == nullptr,
      "other tables");

  op = planned_op(SIE_OP_SPANS, m->of_words);
  op.op.in[1] = m->of_words, op.op.in[2] = m->of_labels;
  op.op.output = 2;
  op.found = m->at(2048, SIE_I32);
  op.found.ld = 40;
  op.op.widest = 6;
  const sie_spans_args &s = m->calls.spans;
  for (bool writes : {false, true}) {
    op.writes = writes;
    m->run(op);
    CHECK(s.cu_words == m->offsets[words] && s.cu_labels == m->offsets[labels] && s.label_group == nullptr &&
              s.write == (writes ? 1 : 0) &&
              s.found == reinterpret_cast<int32_t *>(m->memory.data() + 2048) && s.found_ld == 40 &&
              s.widest == 6 && s.k == 16,
          "pass %d", s.write);
  }
  op.op.in[0] = op.op.in[1] = m->of_sequences;
  op.op.inputs[0] = group_of;
  m->run(op);
  CHECK(s.cu_words == m->r.one_row_each && s.label_group == m->inputs[group_of], "groups of labels");

  // Values, in the order of the batch, by share.
  m->n[sequences] = 5;
  m->slab.spaces[sequences].n = 5;
  std::vector<float> out(5 * 64);
  m->r.outputs[1] = out.data();
  for (int32_t dtype : {SIE_F32, SIE_BF16}) {
    for (bool one : {false, true}) {  // row a sequence
      for (int32_t parts : {1, 2, 3}) {
        const int64_t columns = one ? 32 : 6;
        const sie_value v = one ? m->of_sequences : m->of_words;
        m->p.values[v].columns = columns;
        op = planned_op(sie::op_output_values, v);
        op.op.output = 1;
        op.in[0] = m->at(512, dtype);
        op.in[0].ld = 40;
        std::vector<int32_t> places = {7, 0, 2, 5, 4};
        if (one) places = {3, 0, 4, 2, 1};
        for (int i = 0; i < 5; i++) m->first[one ? sequences : words][i] = places[static_cast<size_t>(i)];
        // Of words: one, two, none, one, one.
        const int32_t cu[] = {0, 1, 3, 3, 4, 5};
        for (int i = 0; i < 6; i++) m->offsets[words][i] = cu[i];
        for (int i = 0; i < 5 * 40; i++) {
          if (dtype == SIE_F32)
            reinterpret_cast<float *>(m->memory.data() + 512)[i] = static_cast<float>(i + 1);
          if (dtype == SIE_BF16)
            reinterpret_cast<uint16_t *>(m->memory.data() + 512)[i] =
                sie_bf16_from_f32(static_cast<float>(i + 1));
        }
        std::vector<float> want(out.size());
        for (int32_t part = 0; part < parts; part++) {
          std::fill(out.begin(), out.end(), -1.0f);
          std::fill(want.begin(), want.end(), -1.0f);
          m->r.share.part = part, m->r.share.parts = parts;
          m->run(op);
          // Each share has its own sequences, and no others.
          for (int64_t b = 5 * part / parts; b < 5 * (part + 1) / parts; b++) {
            for (int32_t row = one ? static_cast<int32_t>(b) : cu[b]; row < (one ? b + 1 : cu[b + 1]);
                 row++) {
              const int32_t to = places[static_cast<size_t>(b)] + (one ? 0 : row - cu[b]);
              for (int64_t i = 0; i < columns; i++) {
                want[static_cast<size_t>(to * columns + i)] =
                    dtype == SIE_F32
                        ? static_cast<float>(row * 40 + i + 1)
                        : sie_f32_from_bf16(sie_bf16_from_f32(static_cast<float>(row * 40 + i + 1)));
              }
            }
          }
          CHECK(out == want, "share %d of %d of type %d", part, parts, dtype);
        }
      }
    }
  }
  m->r.share.part = 0, m->r.share.parts = 1;
  // On a GPU rows are widened in place of that.
  m->device.kind = SIE_DEVICE_CUDA;
  op = planned_op(sie::op_output_values, m->of_tokens);
  op.op.output = 1;
  op.in[0] = m->at(64);
  m->run(op);
  CHECK(m->calls.pool.mode == SIE_POOL_CLS && m->calls.pool.y.p == out.data() && m->calls.pool.y.ld == 64 &&
            m->calls.pool.seqs.cap == 101,
        "rows are widened elsewhere");
}

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
