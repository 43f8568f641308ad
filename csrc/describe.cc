// describe.cc — a program as text, one operation a line.
#include <stdarg.h>
#include <stdio.h>

#include "program.h"

using namespace sie;

namespace {

// Appends to a buffer of fixed size and counts what it would have needed.
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
  text->add(" v%d[%s, %lld]", v, value.rows == Rows::tokens ? "T" : (value.rows == Rows::kept ? "K" : "B"),
            static_cast<ll>(value.columns));
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

void add_details(Text *text, const Op &op) {
  static const char *const acts[] = {"", " gelu", " tanh", " gelu_tanh", " relu", " silu"};
  static const char *const poolings[] = {"", " cls", " mean", " last"};
  static const char *const masks[] = {"full", "causal", "window"};
  switch (op.kind) {
    case SIE_OP_EMBED_LAYERNORM:
      text->add(" vocabulary %lld%s%s", static_cast<ll>(op.weights[0]->n),
                op.weights[1] != nullptr ? " position" : "", op.weights[2] != nullptr ? " type" : "");
      break;
    case SIE_OP_LINEAR:
      text->add(" %s%s%s", compute_name(op.weights[0]->compute), op.bias != nullptr ? " bias" : "",
                acts[op.act]);
      break;
    case SIE_OP_ATTENTION:
      text->add(" %d heads of %d, %s", op.attention.heads, op.attention.head_dim, masks[op.attention.mask]);
      break;
    case SIE_OP_GATHER_ROWS:
    case SIE_OP_POOL:
      text->add("%s", poolings[op.pooling]);
      break;
    case SIE_OP_POOL_OUTPUT:
      text->add("%s output %d", poolings[op.pooling], op.output);
      break;
    case SIE_OP_OUTPUT_ROWS:
    case op_output_values:
      text->add(" output %d", op.output);
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
  add_details(text, planned.op);
  add_inputs(text, p, planned.op);
  if (planned.op.out != SIE_NO_VALUE) {
    text->add(" ->");
    add_value(text, p, planned.op.out);
  }
  add_place(text, p, planned.out);
  add_place(text, p, planned.quantised);
  text->add("\n");
}

}  // namespace

size_t sie_program_describe(const sie_program *program, char *text, size_t cap) {
  if (text == nullptr) cap = 0;
  if (cap > 0) text[0] = '\0';
  Text out(text, cap);
  if (program == nullptr) return 0;
  out.add("batch of at most %lld tokens, %lld sequences, %lld tokens a sequence\n",
          static_cast<ll>(program->caps.max_tokens), static_cast<ll>(program->caps.max_seqs),
          static_cast<ll>(program->caps.max_len));
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
          "region of %lld tokens for longer sequences, %lld B: %lld B a token; scratch up to %lld B of a "
          "lane\n",
          static_cast<ll>(program->region_tokens), static_cast<ll>(region_bytes(program)),
          static_cast<ll>(program->long_row_bytes), static_cast<ll>(program->long_scratch_bytes));
    }
  }
  for (int64_t i = 0; i < program->plan.size(); i++) {
    out.add("%3lld ", static_cast<ll>(i));
    add_planned(&out, program, program->plan[i]);
  }
  return out.length();
}
