// replay.cc — fills an operation's arguments from plan, arena lane and slab, and calls its kernel.
#include "replay.h"

#include <string.h>

#include <initializer_list>

#include "replay_parts.h"

namespace sie {

namespace {

sie_status embed_layernorm(const Replay &r, const PlannedOp &planned) {
  const Op &op = planned.op;
  sie_embed_layernorm_args a = {};
  a.tokens = rows(r, op.out);
  a.seqs = seqs(r);
  a.ids = indices(r, op.inputs[0]);
  a.type_ids = indices(r, op.inputs[1]);
  a.cu_seqlens = offsets(r, op.out);
  a.word = op.weights[0]->table;
  if (op.weights[1] != nullptr) a.position = op.weights[1]->table;
  if (op.weights[2] != nullptr) a.type = op.weights[2]->table;
  a.position_offset = op.position_offset + static_cast<int32_t>(r.first_row);
  a.norm = op.norm;
  a.gamma = op.gamma;
  a.beta = op.beta;
  a.eps = op.eps;
  a.weight_offset = op.weight_offset;
  a.word_scale = op.word_scale;
  a.c = columns(r, op.out);
  a.y = tensor(r, planned.out);
  a.yq = tensor(r, planned.quantised);
  return r.program->device->ops->embed_layernorm(&a, &r.share);
}

// A norm of x, without what layernorm adds to it.
sie_layernorm_args norm_args(const Replay &r, const PlannedOp &planned, const Operand &x) {
  const Op &op = planned.op;
  sie_layernorm_args a = {};
  a.rows = rows(r, op.out);
  a.c = columns(r, op.out);
  a.x = tensor(r, x);
  a.gamma = op.gamma;
  a.beta = op.beta;
  a.eps = op.eps;
  a.y = tensor(r, planned.out);
  a.norm = op.norm;
  a.weight_offset = op.weight_offset;
  return a;
}

sie_status layernorm(const Replay &r, const PlannedOp &planned) {
  sie_layernorm_args a = norm_args(r, planned, planned.in[0]);
  a.yq = tensor(r, planned.quantised);
  a.bias = planned.op.bias;
  a.residual = tensor(r, planned.residual);
  a.sum = tensor(r, planned.sum);
  return r.program->device->ops->layernorm(&a, &r.share);
}

}  // namespace

sie_linear_args linear_args(const Replay &r, const PlannedOp &planned) {
  const Op &op = planned.op;
  sie_linear_args a = {};
  a.rows = rows(r, op.out);
  a.n = op.weights[0]->n;
  a.k = op.weights[0]->k;
  a.x = tensor(r, planned.in[0]);
  a.w = op.weights[0]->packed_on(r.node);
  a.bias = op.bias;
  a.act = op.act;
  a.gate = op.gate;
  a.addend = tensor(r, planned.addend);
  a.residual = tensor(r, planned.residual);
  a.y = tensor(r, planned.out.present ? planned.out : planned.quantised);
  return a;
}

namespace {

sie_status linear(const Replay &r, const PlannedOp &planned) {
  const sie_linear_args a = linear_args(r, planned);
  return r.program->device->ops->linear(&a, &r.share);
}

// In place: the norm overwrites the linear's rows.
sie_status linear_norm(const Replay &r, const PlannedOp &planned) {
  const sie_linear_norm_args a = {linear_args(r, planned), norm_args(r, planned, planned.out)};
  return r.program->device->ops->linear_norm(&a, &r.share);
}

sie_status quantise_rows(const Replay &r, const PlannedOp &planned) {
  sie_quantise_rows_args a = {};
  a.rows = rows(r, planned.op.in[0]);
  a.c = columns(r, planned.op.in[0]);
  a.x = tensor(r, planned.in[0]);
  a.y = tensor(r, planned.quantised);
  return r.program->device->ops->quantise_rows(&a, &r.share);
}

sie_status attention(const Replay &r, const PlannedOp &planned) {
  const Op &op = planned.op;
  const int32_t *queries = offsets(r, op.in[0]);
  sie_attention_args a = {};
  a.q_rows = rows(r, op.in[0]);
  a.seqs = seqs(r);
  a.cu_q = queries != nullptr ? queries : r.one_row_each;
  a.cu_kv = offsets(r, op.in[1]);
  a.max_kv = has_prefix(op) ? r.slab->max_keys : r.slab->max_len;
  a.q = tensor(r, planned.in[0]);
  a.k = tensor(r, planned.in[1]);
  a.v = tensor(r, planned.in[2]);
  a.heads = op.attention.heads;
  a.kv_heads = op.attention.kv_heads;
  a.head_dim = op.attention.head_dim;
  a.mask = static_cast<int32_t>(op.attention.mask);
  a.window = op.attention.window;
  a.scale = op.attention.scale;
  a.alibi_slopes = op.vector;
  a.y = tensor(r, planned.out);
  if (planned.work >= 0) a.work = r.work[planned.work];
  a.q_first = r.q_first;
  a.q_last = r.q_last;
  a.queries_first = stands_first(op.attention) ? 1 : 0;
  if (op.attention.bias != nullptr) {
    a.bias = op.attention.bias->vector();
    a.bias_reach = static_cast<int32_t>(op.attention.bias->k / 2);
  }
  if (op.attention.buckets != nullptr) {
    const sie_weight *buckets = op.attention.buckets;
    if (op.attention.pos_key != nullptr) a.pos_key = op.attention.pos_key->table;
    if (op.attention.pos_query != nullptr) a.pos_query = op.attention.pos_query->table;
    a.buckets = static_cast<const int32_t *>(buckets->table.p);
    a.bucket_reach = static_cast<int32_t>(buckets->k / 2);
    a.position_rows = static_cast<int32_t>(position_rows(op.attention));
  }
  if (has_prefix(op) && r.state != nullptr) {
    a.prefix_k = segment_rows(r, op.attention.segment, 0);
    a.prefix_v = segment_rows(r, op.attention.segment, columns(r, op.in[1]));
    a.prefix_first = indices(r, r.program->state.first);
    a.prefix_keys = indices(r, r.program->state.rows);
  }
  return r.program->device->ops->attention(&a, &r.share);
}

// In place: the result overwrites the operands.
sie_status qk_norm_rope(const Replay &r, const PlannedOp &planned) {
  const sie_rope_params &rope = planned.op.rope;
  auto table = [](const sie_weight *w) { return w != nullptr ? w->vector() : nullptr; };
  sie_qk_norm_rope_args a = {};
  a.tokens = rows(r, planned.op.in[0]);
  a.seqs = seqs(r);
  a.cu_seqlens = offsets(r, planned.op.in[0]);
  a.heads = rope.heads;
  a.kv_heads = rope.kv_heads;
  a.head_dim = rope.head_dim;
  a.rot = rope.rot;
  a.q_gamma = table(rope.q_gamma);
  a.k_gamma = table(rope.k_gamma);
  a.eps = rope.eps;
  a.weight_offset = rope.weight_offset;
  a.cos = table(rope.cos);
  a.sin = table(rope.sin);
  a.positions = rope.cos != nullptr ? rope.cos->n : 0;
  a.position_offset = rope.position_offset + static_cast<int32_t>(r.first_row);
  if (rope.turns != nullptr) {
    a.turns = static_cast<const int32_t *>(rope.turns->table.p);
    a.whole_rows = r.whole_rows;
  }
  if (rope.behind != 0 && r.state != nullptr) a.first_position = indices(r, r.program->state.rows);
  a.q = tensor(r, planned.in[0]);
  a.k = tensor(r, planned.in[1]);
  return r.program->device->ops->qk_norm_rope(&a, &r.share);
}

sie_status join_columns(const Replay &r, const PlannedOp &planned) {
  const Op &op = planned.op;
  sie_join_columns_args a = {};
  a.rows = rows(r, op.out);
  for (int i = 0; i < SIE_MAX_JOINED && op.in[i] != SIE_NO_VALUE; i++) {
    a.c[i] = columns(r, op.in[i]);
    a.x[i] = tensor(r, planned.in[i]);
  }
  a.y = tensor(r, planned.out);
  return r.program->device->ops->join_columns(&a, &r.share);
}

sie_status gather_rows(const Replay &r, const PlannedOp &planned) {
  sie_gather_rows_args a = {};
  a.seqs = seqs(r);
  a.cu_seqlens = offsets(r, planned.op.in[0]);
  a.which = planned.op.pooling;
  a.c = columns(r, planned.op.out);
  a.x = tensor(r, planned.in[0]);
  a.y = tensor(r, planned.out);
  return r.program->device->ops->gather_rows(&a, &r.share);
}

// Also widens a value's rows (each_row).
sie_status pool(const Replay &r, const PlannedOp &planned) {
  const Op &op = planned.op;
  bool each = op.pooling == each_row;
  sie_pool_args a = {};
  a.seqs = each ? rows(r, op.in[0]) : seqs(r);
  a.cu_seqlens = each ? nullptr : offsets(r, op.in[0]);
  a.mode = each ? SIE_POOL_CLS : op.pooling;
  a.longest = longest(r);
  a.c = columns(r, op.in[0]);
  a.x = tensor(r, planned.in[0]);
  a.y = tensor(r, planned.out);
  a.w = op.vector;
  kept_places(r, op, &a.index, &a.cu_whole);
  return r.program->device->ops->pool(&a, &r.share);
}

sie_status keep_rows(const Replay &r, const PlannedOp &planned) {
  sie_keep_rows_args a = {};
  a.kept = rows(r, planned.op.out);
  a.index = r.slab->spaces[space_of(r, planned.op.out)].index;
  a.c = columns(r, planned.op.out);
  a.x = tensor(r, planned.in[0]);
  a.y = tensor(r, planned.out);
  return r.program->device->ops->keep_rows(&a, &r.share);
}

sie_status take_rows(const Replay &r, const PlannedOp &planned) {
  const Op &op = planned.op;
  sie_take_rows_args a = {};
  a.rows = rows(r, op.out);
  a.seqs = seqs(r);
  a.cu_seqlens = offsets(r, op.out);
  a.cu_x = offsets(r, op.in[0]);
  a.which = op.pooling;
  a.first = indices(r, op.inputs[0]);
  a.last = indices(r, op.inputs[1]);
  a.c = columns(r, op.out);
  a.x = tensor(r, planned.in[0]);
  a.y = tensor(r, planned.out);
  return r.program->device->ops->take_rows(&a, &r.share);
}

sie_status product(const Replay &r, const PlannedOp &planned) {
  sie_product_args a = {};
  a.rows = rows(r, planned.op.out);
  a.c = columns(r, planned.op.out);
  a.a = tensor(r, planned.in[0]);
  a.b = tensor(r, planned.in[1]);
  a.y = tensor(r, planned.out);
  return r.program->device->ops->product(&a, &r.share);
}

sie_status dots(const Replay &r, const PlannedOp &planned) {
  sie_dots_args a = {};
  a.rows = rows(r, planned.op.out);
  a.c = columns(r, planned.op.in[0]);
  a.a = tensor(r, planned.in[0]);
  a.b = tensor(r, planned.in[1]);
  a.y = tensor(r, planned.out);
  return r.program->device->ops->dots(&a, &r.share);
}

sie_status softmax(const Replay &r, const PlannedOp &planned) {
  sie_softmax_args a = {};
  a.rows = rows(r, planned.op.out);
  a.seqs = seqs(r);
  a.cu_seqlens = offsets(r, planned.op.out);
  a.scale = planned.op.eps;
  a.x = tensor(r, planned.in[0]);
  a.y = tensor(r, planned.out);
  return r.program->device->ops->softmax(&a, &r.share);
}

sie_status lstm(const Replay &r, const PlannedOp &planned) {
  const Op &op = planned.op;
  auto packed = [&r](const sie_weight *w) { return w != nullptr ? w->packed_on(r.node) : nullptr; };
  sie_lstm_args a = {};
  a.rows = rows(r, op.out);
  a.seqs = seqs(r);
  a.cu_seqlens = offsets(r, op.out);
  a.h = (op.weights[0] != nullptr ? op.weights[0] : op.weights[1])->k;
  a.w = packed(op.weights[0]);
  a.w_reverse = packed(op.weights[1]);
  a.gates = tensor(r, planned.in[0]);
  a.y = tensor(r, planned.out);
  return r.program->device->ops->lstm(&a, &r.share);
}

sie_status splade(const Replay &r, const PlannedOp &planned) {
  const Op &op = planned.op;
  sie_splade_args a = {};
  a.tokens = rows(r, op.in[0]);
  a.seqs = seqs(r);
  a.cu_seqlens = offsets(r, op.in[0]);
  a.n = op.weights[0]->n;
  a.k = op.weights[0]->k;
  a.x = tensor(r, planned.in[0]);
  a.w = op.weights[0]->packed_on(r.node);
  a.bias = op.bias;
  a.y = tensor(r, planned.out);
  return r.program->device->ops->splade(&a, &r.share);
}

sie_status maxsim(const Replay &r, const PlannedOp &planned) {
  const Op &op = planned.op;
  sie_maxsim_args a = {};
  a.rows = rows(r, op.in[0]);
  a.seqs = seqs(r);
  a.cu_seqlens = offsets(r, op.in[0]);
  a.c = columns(r, op.in[0]);
  a.x = tensor(r, planned.in[0]);
  a.queries = static_cast<const float *>(r.slab->inputs[op.inputs[0]]);
  a.cu_queries = r.slab->spaces[r.program->inputs[op.inputs[0]].space].offsets;
  a.partner = indices(r, op.inputs[1]);
  a.normalize = op.normalize;
  a.y = tensor(r, planned.out);
  return r.program->device->ops->maxsim(&a, &r.share);
}

sie_status lora(const Replay &r, const PlannedOp &planned) {
  const Op &op = planned.op;
  sie_lora_args a = {};
  a.rows = rows(r, op.in[0]);
  a.seqs = seqs(r);
  a.cu_seqlens = offsets(r, op.in[0]);
  a.adapter = indices(r, op.inputs[0]);
  a.n_adapters = r.program->n_adapters;
  a.max_rank = op.max_rank;
  a.adapters = r.lora_pairs + op.lora;
  a.n = op.weights[0]->n;
  a.k = op.weights[0]->k;
  a.x = tensor(r, planned.in[0]);
  a.y = tensor(r, planned.out);
  return r.program->device->ops->lora(&a, &r.share);
}

sie_status dispatch(const Replay &r, const PlannedOp &planned) {
  const sie_status marked = mark_nonfinite(r, planned);
  if (marked != SIE_OK) return marked;
  switch (planned.op.kind) {
    case SIE_OP_EMBED_LAYERNORM:
      return embed_layernorm(r, planned);
    case SIE_OP_LAYERNORM:
      return layernorm(r, planned);
    case SIE_OP_LINEAR:
      return linear(r, planned);
    case SIE_OP_LINEAR_NORM:
      return linear_norm(r, planned);
    case SIE_OP_QUANTISE_ROWS:
      return quantise_rows(r, planned);
    case SIE_OP_ATTENTION:
      return attention(r, planned);
    case SIE_OP_QK_NORM_ROPE:
      return qk_norm_rope(r, planned);
    case SIE_OP_JOIN_COLUMNS:
      return join_columns(r, planned);
    case SIE_OP_GATHER_ROWS:
      return gather_rows(r, planned);
    case SIE_OP_POOL:
      return pool(r, planned);
    case SIE_OP_KEEP_ROWS:
      return keep_rows(r, planned);
    case SIE_OP_TAKE_ROWS:
      return take_rows(r, planned);
    case SIE_OP_PRODUCT:
      return product(r, planned);
    case SIE_OP_DOTS:
      return dots(r, planned);
    case SIE_OP_SOFTMAX:
      return softmax(r, planned);
    case SIE_OP_LSTM:
      return lstm(r, planned);
    case SIE_OP_SPLADE:
      return splade(r, planned);
    case SIE_OP_MAXSIM:
      return maxsim(r, planned);
    case SIE_OP_LORA:
      return lora(r, planned);
    case op_state_rows:
      return write_state(r, planned);
    default:
      return replay_output(r, planned);
  }
}

#ifdef SIE_CHECK_ZONES
constexpr int redzone_byte = 0xa5;

char *redzone(const Replay &r, const Operand &o) {
  const Buffer &b = r.program->buffers[o.buffer];
  if (r.long_cap == 0) return r.values + b.offset + b.bytes;
  LongPlace place = long_place(r, b);
  return place.base + parts_of(b, place.cap).end;
}

bool intact(const char *zone) {
  for (int64_t i = 0; i < redzone_bytes; i++) {
    if (static_cast<unsigned char>(zone[i]) != redzone_byte) return false;
  }
  return true;
}

// Marks the bytes behind each result before the call, and checks them after it. Only for a caller
// that computes the whole operation alone.
sie_status dispatch_checked(const Replay &r, const PlannedOp &planned) {
  for (const Operand *o : {&planned.out, &planned.sum, &planned.quantised, &planned.found}) {
    if (o->present) memset(redzone(r, *o), redzone_byte, static_cast<size_t>(redzone_bytes));
  }
  sie_status status = dispatch(r, planned);
  for (const Operand *o : {&planned.out, &planned.sum, &planned.quantised, &planned.found}) {
    if (status == SIE_OK && o->present && !intact(redzone(r, *o))) status = SIE_INTERNAL;
  }
  return status;
}
#endif

}  // namespace

sie_status replay_op(const Replay &replay, int32_t index) {
  const PlannedOp &planned = replay.program->plan[index];
#ifdef SIE_CHECK_ZONES
  if (replay.share.parts == 1 && !replay.program->device->is_gpu()) return dispatch_checked(replay, planned);
#endif
  return dispatch(replay, planned);
}

}  // namespace sie
