// replay_blocks.cc — runs an operation of a long slab, block by block.
//
// A block of rows lies within the rows that are in the stage. To the kernel it is a small slab: the
// operands' rows from first_row on, as many as the block's slab has. A block of queries is one key
// head of the sequence and a range of its queries, against all keys.
#include <algorithm>

#include "common/found.h"
#include "cut.h"
#include "hooks.h"
#include "replay_parts.h"

namespace sie {

namespace {

sie_status by_rows(const Replay &whole, int32_t index, const PlannedOp &planned, Pause *pause) {
  const sie_program *program = whole.program;
  sie_space of = cut_space(program, planned.op);
  int64_t step = block_rows(program, planned, 0, whole.share.parts);
  int64_t end = whole.stage_first + whole.stage_n;
  for (int64_t first = whole.stage_first; first < end; first += step) {
    if (first > whole.stage_first) pause->take();
    hooks::runs_block(index, (first - whole.stage_first) / step);
    int32_t count = static_cast<int32_t>(std::min(step, end - first));
    const int32_t offsets[] = {0, count};
    Slab slab = *whole.slab;
    Replay block = whole;
    block.slab = &slab;
    for (int32_t s = 1; s <= max_spaces; s++) {
      if (kind_of(program, s) != SIE_SPACE_ROWS && kind_of(program, s) != SIE_SPACE_SUBSET) continue;
      slab.spaces[s].n = count;
      slab.spaces[s].offsets = offsets;
      block.rows[s].n = &slab.spaces[s].n;
    }
    // Inputs of the result's space begin at the block's first row.
    for (int32_t i = 1; i <= max_inputs; i++) {
      if (slab.inputs[i] == nullptr || program->inputs[i].space != of) continue;
      slab.inputs[i] = static_cast<const int32_t *>(slab.inputs[i]) + first;
    }
    block.first_row = first;
    block.whole_rows = whole.slab->spaces[of].n;
    sie_status status = replay_op(block, index);
    if (status != SIE_OK) return status;
  }
  return SIE_OK;
}

// Each block of queries of each key head is a work item: the heads that share its keys run
// together.
sie_status by_queries(const Replay &whole, int32_t index, const PlannedOp &planned, Pause *pause) {
  int64_t queries = whole.slab->spaces[space_of(whole, planned.op.in[0])].n;
  int64_t own = whole.slab->spaces[space_of(whole, planned.op.in[1])].n;
  int64_t keys = has_prefix(planned.op) ? whole.slab->max_keys : own;
  int64_t heads = planned.op.attention.kv_heads, group = planned.op.attention.heads / heads;
  int64_t step = block_rows(whole.program, planned, keys * group, 1), blocks = (queries + step - 1) / step;
  int64_t part = whole.share.part, parts = whole.share.parts;
  int64_t first = heads * blocks * part / parts, last = heads * blocks * (part + 1) / parts;
  for (int64_t item = first; item < last; item++) {
    int64_t head = item / blocks, block = item % blocks;
    if (item > first) pause->take();
    hooks::runs_block(index, item - first);
    Replay some = whole;
    some.share.part = static_cast<int32_t>(head);
    some.share.parts = static_cast<int32_t>(heads);
    some.q_first = static_cast<int32_t>(block * step);
    some.q_last = static_cast<int32_t>(std::min((block + 1) * step, queries));
    sie_status status = replay_op(some, index);
    if (status != SIE_OK) return status;
  }
  return SIE_OK;
}

// The labels of a long slab, which is one sequence.
int64_t labels_of(const Replay &r, const Op &op) {
  if (op.inputs[0] == 0) return r.slab->spaces[space_of(r, op.in[2])].n;
  return sie_labels_of(offsets(r, op.in[2]), indices(r, op.inputs[0]), 0).count;
}

sie_status by_shares(const Replay &whole, int32_t index, const PlannedOp &planned, Pause *pause) {
  int64_t rows = whole.slab->spaces[space_of(whole, planned.op.in[0])].n;
  if (finds(planned.op.kind)) rows *= labels_of(whole, planned.op);
  int64_t shares = block_shares(whole.program, planned, rows, whole.share.parts);
  for (int64_t i = 0; i < shares; i++) {
    if (i > 0) pause->take();
    hooks::runs_block(index, i);
    Replay some = whole;
    some.share.part = static_cast<int32_t>(whole.share.part * shares + i);
    some.share.parts = static_cast<int32_t>(whole.share.parts * shares);
    sie_status status = replay_op(some, index);
    if (status != SIE_OK) return status;
  }
  return SIE_OK;
}

}  // namespace

int64_t rows_of_stage(const Replay &replay, int32_t first) {
  const PlannedOp &planned = replay.program->plan[first];
  return planned.cut == Cut::rows ? replay.slab->spaces[cut_space(replay.program, planned.op)].n : 0;
}

sie_status replay_blocks(const Replay &replay, int32_t index, Pause *pause) {
  const PlannedOp &planned = replay.program->plan[index];
  switch (planned.cut) {
    case Cut::rows:
      return by_rows(replay, index, planned, pause);
    case Cut::queries:
      return by_queries(replay, index, planned, pause);
    case Cut::shares:
      return by_shares(replay, index, planned, pause);
    default:
      hooks::runs_block(index, 0);
      return replay_op(replay, index);
  }
}

}  // namespace sie
