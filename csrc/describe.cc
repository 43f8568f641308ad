// describe.cc — writes a program as text, one operation a line.
#include <stdarg.h>
#include <stdio.h>

#include "program.h"

using namespace sie;

namespace {

// Appends to a buffer of fixed size, and counts the length of the whole text.
class Text {
 public:
  Text(char *text, size_t cap) : text_(text), cap_(cap) {}

  [[gnu::format(printf, 2, 3)]] void add(const char *format, ...) {
    va_list args;
    va_start(args, format);
    size_t room = length_ < cap_ ? cap_ - length_ : 0;
    int n = vsnprintf(room > 0 ? text_ + length_ : nullptr, room, format, args);
    va_end(args);
    if (n > 0) length_ += static_cast<size_t>(n);
  }

  size_t length() const { return length_; }

 private:
  char *text_;
  size_t cap_;
  size_t length_ = 0;
};

using ll = long long;

void add_value(Text *text, const sie_program *p, sie_value v) {
  const Value &value = p->values[v];
  text->add(" v%d[%s, %lld%s]", v, p->spaces[value.space].name.text, static_cast<ll>(value.columns),
            is_stream(p, v) ? ", stream" : "");
  if (value.base != v) {
    text->add(" (columns %lld to %lld of v%d)", static_cast<ll>(value.column),
              static_cast<ll>(value.column + value.columns - 1), value.base);
  }
}

void add_inputs(Text *text, const sie_program *p, const Op &op) {
  for (sie_value v : op.in) {
    if (v != SIE_NO_VALUE) add_value(text, p, v);
  }
  if (op.residual != SIE_NO_VALUE) {
    text->add(" + ");
    add_value(text, p, op.residual);
  }
}

void add_details(Text *text, const sie_program *p, const Op &op) {
  static const char *const norms[] = {"", " rms", " plain"};
  static const char *const gates[] = {"", " swiglu", " geglu", " geglu_tanh"};
  static const char *const acts[] = {"", " gelu", " tanh", " gelu_tanh", " relu", " silu"};
  static const char *const poolings[] = {"",           " cls",           " mean",    " last",
                                         " attention", " weighted_mean", " max",     " mean_sqrt",
                                         " sum",       " rms",           " abs_max", " abs_mean"};
  static const char *const masks[] = {"full", "causal", "window"};
  switch (op.kind) {
    case SIE_OP_EMBED_LAYERNORM:
      text->add("%s vocabulary %lld by %s%s", norms[op.norm], static_cast<ll>(op.weights[0]->n),
                p->inputs[op.inputs[0]].name.text, op.weights[1] != nullptr ? " position" : "");
      if (op.weights[2] != nullptr && op.inputs[1] == 0) text->add(" type");
      if (op.inputs[1] != 0) text->add(" rows by %s", p->inputs[op.inputs[1]].name.text);
      break;
    case SIE_OP_LAYERNORM:
      text->add("%s", norms[op.norm]);
      break;
    case SIE_OP_LINEAR:
    case SIE_OP_LINEAR_NORM:
      text->add(" %s%s%s%s", compute_name(op.weights[0]->compute), op.bias != nullptr ? " bias" : "",
                acts[op.act], gates[op.gate]);
      break;
    case op_state_rows:
      text->add(" to segment %d", op.segment);
      break;
    case SIE_OP_TAKE_ROWS:
      text->add("%s", op.pooling != 0 ? poolings[op.pooling] : " of its sequence");
      for (int i = 0; i < 2; i++) {
        if (op.inputs[i] != 0) text->add(" by %s", p->inputs[op.inputs[i]].name.text);
      }
      break;
    case SIE_OP_LSTM:
      text->add("%s%s", op.weights[0] != nullptr ? " forward" : "",
                op.weights[1] != nullptr ? " reverse" : "");
      break;
    case SIE_OP_SOFTMAX:
      text->add(" times %g", static_cast<double>(op.eps));
      break;
    case SIE_OP_JOIN_COLUMNS:
      if (op.in[0] == op.out) text->add(" rounded");
      break;
    case SIE_OP_LORA:
      text->add(" %d adapters by %s", p->n_adapters, p->inputs[op.inputs[0]].name.text);
      break;
    case SIE_OP_MAXSIM:
      text->add(" with %s by %s", p->inputs[op.inputs[0]].name.text, p->inputs[op.inputs[1]].name.text);
      break;
    case SIE_OP_QK_NORM_ROPE:
      text->add(" %d and %d heads of %d, %d columns%s, in place", op.rope.heads, op.rope.kv_heads,
                op.rope.head_dim, op.rope.rot,
                op.rope.q_gamma != nullptr || op.rope.k_gamma != nullptr ? ", norm" : "");
      if (op.rope.behind != 0) text->add(", behind the prefix");
      if (op.rope.turns != nullptr) {
        text->add(", by length beyond %lld", static_cast<long long>(op.rope.cos->n));
      }
      break;
    case SIE_OP_ATTENTION:
      text->add(" %d heads over %d of %d, %s%s", op.attention.heads, op.attention.kv_heads,
                op.attention.head_dim, masks[op.attention.mask], op.vector != nullptr ? ", alibi" : "");
      if (op.attention.bias != nullptr)
        text->add(", bias by distance to %lld", static_cast<long long>(op.attention.bias->k / 2));
      if (op.attention.buckets != nullptr)
        text->add(", disentangled%s%s by distance to %lld", op.attention.pos_key != nullptr ? " pos_key" : "",
                  op.attention.pos_query != nullptr ? " pos_query" : "",
                  static_cast<long long>(op.attention.buckets->k / 2));
      if (op.attention.first_keys != 0) text->add(", first keys");
      if (op.attention.segment != 0) text->add(", behind segment %d of the state", op.attention.segment);
      if (op.attention.which != 0) text->add(", one query:%s", poolings[op.attention.which]);
      break;
    case SIE_OP_GATHER_ROWS:
    case SIE_OP_POOL:
      text->add("%s", poolings[op.pooling]);
      break;
    case SIE_OP_POOL_OUTPUT:
      text->add("%s to %s", poolings[op.pooling], p->outputs[op.output].name.text);
      break;
    case SIE_OP_SPANS:
    case SIE_OP_PAIRS:
      if (op.kind == SIE_OP_SPANS) text->add(" of at most %d words", op.widest);
      if (op.kind == SIE_OP_PAIRS)
        text->add(" %s, %d logits", compute_name(op.weights[0]->compute), op.n_logits);
      if (op.inputs[0] != 0) text->add(", labels by %s", p->inputs[op.inputs[0]].name.text);
      text->add(" to %s", p->outputs[op.output].name.text);
      break;
    case SIE_OP_OUTPUT_ROWS:
    case SIE_OP_OUTPUT_SPARSE:
    case SIE_OP_MUVERA:
    case SIE_OP_SMVE:
    case op_output_values:
      text->add(" to %s", p->outputs[op.output].name.text);
      break;
    default:
      break;
  }
}

void add_place(Text *text, const sie_program *p, const Operand &o) {
  if (!o.present) return;
  const Buffer &b = p->buffers[o.buffer];
  text->add(" %s @%lld %lld B%s", dtype_name(o.dtype), static_cast<ll>(b.offset), static_cast<ll>(b.bytes),
            b.shares >= 0 ? " in place" : "");
}

void add_planned(Text *text, const sie_program *p, const PlannedOp &planned) {
  text->add("%-16s", op_name(planned.op.kind));
  add_details(text, p, planned.op);
  add_inputs(text, p, planned.op);
  if (planned.op.out != SIE_NO_VALUE) {
    text->add(" ->");
    add_value(text, p, planned.op.out);
  }
  if (planned.op.sum != SIE_NO_VALUE) {
    text->add(" and the sum");
    add_value(text, p, planned.op.sum);
  }
  add_place(text, p, planned.out);
  add_place(text, p, planned.sum);
  add_place(text, p, planned.quantised);
  if (planned.found.present) text->add(planned.writes ? ", written" : ", found");
  add_place(text, p, planned.found);
  text->add("\n");
}

void add_space(Text *text, const sie_program *p, const Space &space) {
  const char *name = space.name.text;
  switch (space.kind) {
    case SIE_SPACE_SEQS:
      text->add("space %s: one row a sequence, at most %lld\n", name, static_cast<ll>(space.max_rows));
      break;
    case SIE_SPACE_ROWS:
      text->add("space %s: at most %lld rows, %lld a sequence", name, static_cast<ll>(space.max_rows),
                static_cast<ll>(space.max_each));
      if (space.min_each > 0) text->add(", at least %lld", static_cast<ll>(space.min_each));
      text->add("\n");
      break;
    case SIE_SPACE_SUBSET:
      text->add("space %s: rows of %s by %s\n", name, p->spaces[p->inputs[space.marks].space].name.text,
                p->inputs[space.marks].name.text);
      break;
    case SIE_SPACE_SHARED:
      text->add("space %s: at most %lld rows of the batch\n", name, static_cast<ll>(space.max_rows));
      break;
    default:
      break;
  }
}

void add_input(Text *text, const sie_program *p, const Input &input) {
  if (input.space == 0) return;
  text->add("input %s: %s[%s", input.name.text, dtype_name(input.dtype), p->spaces[input.space].name.text);
  if (input.dtype == SIE_F32) text->add(", %d", input.columns);
  text->add("]");
  if (input.optional) text->add(", else %d", input.otherwise);
  text->add(input.read ? "\n" : ", not read\n");
}

void add_output(Text *text, const sie_program *p, const Output &output) {
  static const char *const forms[] = {
      "?", "values", "rows by items", "rows of sequences by items", "sparse by items", "found by items"};
  text->add("output %s: %s of %s, %lld columns\n", output.name.text, forms[output.form],
            p->spaces[output.space].name.text, static_cast<ll>(output.columns));
}

}  // namespace

size_t sie_program_describe(const sie_program *program, char *text, size_t cap) {
  if (text == nullptr) cap = 0;
  if (cap > 0) text[0] = '\0';
  Text out(text, cap);
  if (program == nullptr) return 0;
  for (const Space &space : program->spaces) add_space(&out, program, space);
  for (const Input &input : program->inputs) add_input(&out, program, input);
  for (int32_t o = 0; o < program->n_outputs; o++) add_output(&out, program, program->outputs[o]);
  if (program->state.declared) {
    out.add("state of at most %lld rows, %s: %lld B\n", static_cast<ll>(program->state.max_rows),
            program->state.writes() ? "written" : "read", static_cast<ll>(sie_program_state_bytes(program)));
  }
  if (!program->ended) {
    for (const Op &op : program->ops) {
      PlannedOp recorded = {};
      recorded.op = op;
      add_planned(&out, program, recorded);
    }
    return out.length();
  }
  if (program->device->is_gpu()) {
    out.add("arena: input %lld B, values %lld B, scratch %lld B; %d work lists\n",
            static_cast<ll>(sie_program_input_bytes(program)), static_cast<ll>(program->values_bytes),
            static_cast<ll>(program->scratch_bytes), program->n_work_lists);
  } else {
    out.add("slabs of at most %lld tokens, %lld sequences; %d lanes of %lld B, scratch %lld B of each\n",
            static_cast<ll>(program->slab_tokens), static_cast<ll>(program->slab_seqs),
            program->device->threads, static_cast<ll>(lane_bytes(program)),
            static_cast<ll>(program->scratch_bytes));
    if (program->region_tokens > 0) {
      out.add(
          "region of %lld tokens for longer sequences, %lld B: %lld B a token, and %lld B for each of %lld "
          "rows; scratch up to %lld B of a lane\n",
          static_cast<ll>(program->region_tokens), static_cast<ll>(region_bytes(program)),
          static_cast<ll>(program->long_row_bytes), static_cast<ll>(program->long_stage_bytes),
          static_cast<ll>(program->stage_rows), static_cast<ll>(program->long_scratch_bytes));
    }
  }
  for (int64_t i = 0; i < program->plan.size(); i++) {
    out.add("%3lld ", static_cast<ll>(i));
    add_planned(&out, program, program->plan[i]);
  }
  return out.length();
}
