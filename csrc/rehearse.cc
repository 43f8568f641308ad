// rehearse.cc — asks the device what a planned program needs: scratch, and the form of every
// operation.
#include <stdio.h>

#include <algorithm>

#include "cut.h"
#include "float_state.h"
#include "program.h"
#include "replay.h"
#include "status.h"

namespace sie {

namespace {

// The bounds of a slab.
struct SlabCaps {
  int64_t tokens, seqs, longest;
};

// The bounds of the operation's arguments in any run.
sie_op_bounds bounds_of(const sie_program *p, const Op &op, const SlabCaps &caps) {
  const Value &in = p->values[op.in[0] != SIE_NO_VALUE ? op.in[0] : op.out];
  sie_op_bounds bounds = {};
  bounds.kind = op.kind;
  bounds.rows = in.space == p->seqs ? caps.seqs : caps.tokens;
  bounds.seqs = caps.seqs;
  bounds.c = in.columns;
  bounds.max_len = caps.longest;
  if (has_matrix(op.kind) || op.kind == SIE_OP_LORA) {
    bounds.compute = op.weights[0]->packed.compute;
    bounds.n = op.weights[0]->n;
    bounds.k = op.weights[0]->k;
    bounds.max_rank = op.max_rank;
  }
  if (op.kind == SIE_OP_LSTM) bounds.k = (op.weights[0] != nullptr ? op.weights[0] : op.weights[1])->k;
  if (op.kind == SIE_OP_ATTENTION) {
    bounds.head_dim = op.attention.head_dim;
    bounds.heads = op.attention.heads;
    bounds.kv_heads = op.attention.kv_heads;
    bounds.position_rows = static_cast<int32_t>(position_rows(op.attention));
    if (op.attention.buckets != nullptr)
      bounds.bucket_reach = static_cast<int32_t>(op.attention.buckets->k / 2);
    if (has_prefix(op)) bounds.max_len = longest_keys(p, caps.longest);
  }
  if (op.kind == SIE_OP_QK_NORM_ROPE) {
    bounds.head_dim = op.rope.head_dim;
    bounds.heads = op.rope.heads;
    bounds.kv_heads = op.rope.kv_heads;
  }
  if (op.kind == SIE_OP_MAXSIM) bounds.query_rows = rows_cap(p, p->inputs[op.inputs[0]].space);
  if (op.kind == SIE_OP_MUVERA) {
    bounds.repetitions = op.muvera.repetitions;
    bounds.simhash_bits = op.muvera.simhash_bits;
    bounds.projected = static_cast<int32_t>(op.muvera.projected != 0 ? op.muvera.projected : in.columns);
    bounds.final_dims = p->outputs[op.output].columns;
  }
  if (finds(op.kind)) {
    const sie_space labels = p->values[op.in[2]].space;
    bounds.labels = most_labels(p, labels);
    if (kind_of(p, labels) != SIE_SPACE_SHARED) bounds.labels = std::min(caps.tokens, bounds.labels);
    bounds.k = in.columns;
  }
  if (op.kind == SIE_OP_PAIRS) {
    bounds.compute = op.weights[0]->packed.compute;
    bounds.n = op.weights[0]->n;
  }
  if (op.kind == SIE_OP_SMVE) {
    bounds.repetitions = op.smve.repetitions;
    bounds.n = op.smve.width;
    bounds.top = op.smve.top;
  }
  return bounds;
}

sie_status fail_rehearsal(const sie_program *p, int32_t i, sie_status status, sie_error *err) {
  const PlannedOp &planned = p->plan[i];
  const Op &op = planned.op;
  char detail[96] = "";
  if (op.kind == SIE_OP_ATTENTION) {
    snprintf(detail, sizeof detail, ", head_dim %d, mask %u%s%s", op.attention.head_dim, op.attention.mask,
             op.attention.bias != nullptr ? ", bias" : "",
             op.attention.buckets != nullptr ? ", disentangled (pos_key, pos_query)" : "");
  }
  return fail(err, status, "operation %d, %s of %s rows%s: this device (%s) has no such form", i,
              op_name(op.kind), dtype_name(planned.in[0].present ? planned.in[0].dtype : planned.out.dtype),
              detail, p->device->ops->name);
}

}  // namespace

sie_status plan_scratch(sie_program *p, sie_error *err) {
  const SlabCaps lane = {p->slab_tokens, p->slab_seqs, std::min(p->slab_tokens, p->caps.max_len)};
  const SlabCaps alone = {p->caps.max_len, 1, p->caps.max_len};
  for (const PlannedOp &planned : p->plan) {
    if (planned.op.kind == op_output_values || planned.op.kind == op_state_rows) continue;
    sie_op_bounds bounds = bounds_of(p, planned.op, lane), longest = bounds_of(p, planned.op, alone);
    int64_t bytes = p->device->ops->scratch_bytes(&bounds);
    SIE_FAIL_IF(bytes < 0, SIE_INTERNAL, err, "%s has no scratch bound", op_name(planned.op.kind));
    p->scratch_bytes = std::max(p->scratch_bytes, bytes);
    if (p->device->threads > 1 && !p->device->is_gpu() && writes_levels_only(planned)) {
      p->late_bytes = std::max(p->late_bytes, late_bytes_of(p, planned));
    }
    if (p->region_tokens == 0) continue;
    if (planned.cut == Cut::rows) {
      longest.rows = std::min({longest.rows, block_rows(p, planned, 0, max_team), p->stage_rows});
    }
    p->long_scratch_bytes = std::max(p->long_scratch_bytes, p->device->ops->scratch_bytes(&longest));
  }
  p->scratch_bytes = round_up(p->scratch_bytes, 64);
  p->values_bytes = round_up(p->values_bytes, 64);
  p->late_bytes = round_up(p->late_bytes, 64);
  p->long_scratch_bytes = round_up(p->long_scratch_bytes, 64);
  return SIE_OK;
}

sie_status rehearse(const sie_program *p, sie_error *err) {
  FloatState plain;
  Block lane = {};
  const int32_t none = 0;
  alignas(64) const int32_t nothing[16] = {};
  const sie_out_item no_item = {};
  Slab slab = {};
  for (int32_t s = 1; s <= max_spaces; s++) {
    bool one = kind_of(p, s) == SIE_SPACE_SEQS;
    slab.spaces[s] = {0, one ? nullptr : nothing, nothing, nothing};
  }
  for (int32_t i = 1; i <= max_inputs; i++) slab.inputs[i] = nothing;
  for (const sie_out_item *&items : slab.items) items = &no_item;
  Replay replay = {};
  replay.program = p;
  replay.slab = &slab;
  int64_t tokens = p->slab_tokens, seqs = p->slab_seqs;
  replay.share = {0, 1, nullptr, p->scratch_bytes, nullptr};
  replay.lora_pairs = p->lora_pairs.begin();
  if (p->device->is_gpu()) {
    // With no room for a row, launchers still check their arguments, and they touch nothing.
    tokens = seqs = 0;
    replay.share.on = &p->device->on;
    replay.values = reinterpret_cast<char *>(uintptr_t{1} << 20);
  } else {
    int64_t bytes = std::max(lane_bytes(p), p->scratch_bytes + p->values_bytes);
    SIE_FAIL_IF(!allocate(static_cast<size_t>(bytes), &lane), SIE_OUT_OF_MEMORY, err,
                "no memory to plan a program");
    replay.share.scratch = lane.p;
    replay.values = lane.at(p->scratch_bytes);
  }
  replay.state = replay.values;
  replay.state_rows = state_cap(1);
  for (int32_t s = 1; s <= max_spaces; s++) replay.rows[s] = {s == p->seqs ? seqs : tokens, &none};
  sie_status status = SIE_OK;
  for (int32_t i = 0; i < p->plan.size() && status == SIE_OK; i++) {
    status = replay_op(replay, i);
    if (status != SIE_OK) status = fail_rehearsal(p, i, status, err);
  }
  release(&lane);
  return status;
}

}  // namespace sie
