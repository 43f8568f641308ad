// replay_rig.h — a made-up plan, and a table of kernels that only notes what it is called with: for the tests of
// what replaying an operation asks of its kernel.
#ifndef SIE_CSRC_TESTS_REPLAY_RIG_H
#define SIE_CSRC_TESTS_REPLAY_RIG_H

#include <utility>
#include <vector>

#include "program.h"
#include "record.h"
#include "replay_parts.h"
#include "tests/check.h"

namespace noted {

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
  sie_linear_norm_args linear_norm;
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
inline Calls *c = nullptr;

template <class Args>
sie_status note(Args *to, const Args *a, const sie_share *share) {
  *to = *a;
  c->shares.push_back(*share);
  return c->calls++ == c->fails_at ? SIE_INTERNAL : SIE_OK;
}

inline sie_ops noting() {
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
  ops.linear_norm = [](const sie_linear_norm_args *a, const sie_share *s) {
    return note(&c->linear_norm, a, s);
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

inline sie::PlannedOp planned_op(uint32_t kind, sie_value in = SIE_NO_VALUE, sie_value out = SIE_NO_VALUE) {
  sie::PlannedOp planned = {};
  planned.op = sie::new_op(kind);
  planned.op.in[0] = in, planned.op.out = out;
  planned.work = -1;
  return planned;
}

inline bool is_at(const sie_tensor &t, const void *p, int64_t ld, int32_t dtype) {
  return t.p == p && t.ld == ld && t.dtype == dtype;
}
inline bool none(const sie_tensor &t) { return t.p == nullptr; }

}  // namespace noted

#endif
