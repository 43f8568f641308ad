// cut.cc — decides where an executor may pause in an operation of a long slab.
//
// A block is at most max_block_flops of work for one executor, but at least row_block_step rows or
// queries. Blocks change no bits: a kernel computes each row from that row alone, and each query of
// attention from its own sequence. Row blocks are multiples of row_block_step, which is a multiple
// of every kernel's own block, so that no block is left half full.
#include "cut.h"

#include <algorithm>

namespace sie {

namespace {

Cut cut_of(const sie_program *p, const Op &op) {
  if (op.in[0] != SIE_NO_VALUE && of_seqs(p, op.in[0])) return Cut::none;
  switch (op.kind) {
    case SIE_OP_EMBED_LAYERNORM:
    case SIE_OP_LAYERNORM:
    case SIE_OP_LINEAR:
    case SIE_OP_LINEAR_NORM:
    case SIE_OP_QUANTISE_ROWS:
    case SIE_OP_LORA:
    case SIE_OP_QK_NORM_ROPE:
    case SIE_OP_JOIN_COLUMNS:
    case SIE_OP_PRODUCT:
    case SIE_OP_DOTS:
      return Cut::rows;
    case SIE_OP_ATTENTION:
      return Cut::queries;
    case SIE_OP_SPLADE:
    case SIE_OP_SPANS:
    case SIE_OP_PAIRS:
      return Cut::shares;
    default:
      return Cut::none;
  }
}

double flops_of(const sie_program *p, const Op &op) {
  if (op.kind == SIE_OP_ATTENTION) return pair_flops(op.attention);
  if (op.kind == SIE_OP_SPANS) return 2.0 * op.widest * static_cast<double>(p->values[op.in[0]].columns);
  if (has_matrix(op.kind) || op.kind == SIE_OP_PAIRS || op.kind == SIE_OP_LORA) {
    double n = static_cast<double>(op.weights[0]->n), k = static_cast<double>(op.weights[0]->k);
    return op.kind != SIE_OP_LORA ? 2 * n * k : 2.0 * op.max_rank * (n + k);
  }
  // These operations are bound by memory, not by arithmetic. Embedding costs most: it reads rows
  // all over a table and writes memory for the first time.
  double each = op.kind == SIE_OP_EMBED_LAYERNORM ? 512 : 32;
  if (op.kind == SIE_OP_QK_NORM_ROPE) return each * op.rope.head_dim * (op.rope.heads + op.rope.kv_heads);
  return each * static_cast<double>(p->values[op.kind == SIE_OP_DOTS ? op.in[0] : op.out].columns);
}

}  // namespace

void cut_plan(sie_program *program) {
  program->token_flops = 0;
  for (PlannedOp &planned : program->plan) {
    planned.cut = planned.writes ? Cut::none : cut_of(program, planned.op);
    planned.row_flops = planned.cut != Cut::none ? flops_of(program, planned.op) : 0;
    if (planned.cut == Cut::rows && has_matrix(planned.op.kind)) program->token_flops += planned.row_flops;
  }
  int32_t end = static_cast<int32_t>(program->plan.size());
  const PlannedOp *next = nullptr;  // the operation behind
  for (int32_t i = end - 1; i >= 0; i--) {
    PlannedOp &planned = program->plan[i];
    bool joins = next != nullptr && planned.cut == Cut::rows && next->cut == Cut::rows &&
                 cut_space(program, planned.op) == cut_space(program, next->op);
    if (!joins) end = i + 1;
    planned.stage_end = end;
    next = &planned;
  }
}

sie_space cut_space(const sie_program *program, const Op &op) {
  return program->values[op.out != SIE_NO_VALUE ? op.out : op.in[0]].space;
}

int64_t block_rows(const sie_program *program, const PlannedOp &planned, int64_t keys, int32_t parts) {
  double row = planned.row_flops * static_cast<double>(planned.cut == Cut::queries ? keys : 1);
  double rows = program->block_flops * (planned.cut == Cut::queries ? 1 : parts) / std::max(row, 1.0);
  int64_t steps = static_cast<int64_t>(std::min(rows, 1e9)) / row_block_step;
  return std::max<int64_t>(steps, 1) * row_block_step;
}

int64_t block_shares(const sie_program *program, const PlannedOp &planned, int64_t rows, int32_t parts) {
  double whole = planned.row_flops * static_cast<double>(rows) / parts;
  return static_cast<int64_t>(std::min(whole / program->block_flops, 4096.0)) + 1;
}

}  // namespace sie
