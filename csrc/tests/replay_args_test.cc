// replay_args_test.cc — what a kernel is called with: operands of a lane, of a long slab and of a state, on a
// made-up plan and a table that only notes.
#include <algorithm>
#include <memory>
#include <vector>

#include "common/dtype.h"
#include "tests/check.h"
#include "tests/replay_rig.h"

using namespace noted;

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

  // A norm of a linear's rows in place.
  op = planned_op(SIE_OP_LINEAR_NORM, m->of_tokens, m->of_words);
  op.op.weights[0] = &m->w;
  op.op.bias = m->vector;
  op.op.gamma = m->vector + 1, op.op.beta = m->vector + 2;
  op.op.eps = 0.5f, op.op.weight_offset = 1, op.op.norm = SIE_NORM_RMS;
  op.in[0] = m->at(0, SIE_BF16), op.residual = m->at(64, SIE_BF16), op.out = m->at(128, SIE_BF16);
  m->run(op);
  const sie_linear_args &l = m->calls.linear_norm.linear;
  const sie_layernorm_args &norm = m->calls.linear_norm.norm;
  char *const base = m->memory.data();
  CHECK(l.rows.cap == 103 && l.n == 48 && l.k == 64 && l.w == &m->w.packed && l.bias == m->vector &&
            is_at(l.x, base, 70, SIE_BF16) && is_at(l.residual, base + 64, 70, SIE_BF16) && none(l.addend) &&
            is_at(l.y, base + 128, 70, SIE_BF16),
        "another linear");
  CHECK(norm.rows.cap == 103 && norm.rows.n == l.rows.n && norm.c == 16 && norm.gamma == m->vector + 1 &&
            norm.beta == m->vector + 2 && norm.eps == 0.5f && norm.weight_offset == 1 &&
            norm.norm == SIE_NORM_RMS && is_at(norm.x, base + 128, 70, SIE_BF16) &&
            is_at(norm.y, base + 128, 70, SIE_BF16),
        "another norm");
  CHECK(none(norm.yq) && none(norm.residual) && none(norm.sum) && norm.bias == nullptr,
        "what belongs to the linear goes to the norm");

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
  CHECK(mu.simhash == nullptr && mu.ams == nullptr && mu.sketch == nullptr && mu.sketch_output == nullptr &&
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
