// replay.cc — fills an operation's arguments from plan, lane and slab, and calls its kernel.
#include "replay.h"

#include <string.h>

#include <initializer_list>

#include "common/dtype.h"

namespace sie {

namespace {

sie_tensor tensor(const Replay &r, const Operand &o) {
  if (!o.present) return {};
  sie_tensor t = {r.values + o.offset, o.ld, o.dtype, o.scale_group, nullptr, nullptr, nullptr};
  if (o.scale_group != 0) t.scale = reinterpret_cast<float *>(r.values + o.scale);
  if (o.dtype == SIE_U8) {
    t.zero = reinterpret_cast<int32_t *>(r.values + o.zero);
    if (o.outliers) t.outlier = reinterpret_cast<sie_outlier *>(r.values + o.outlier);
  }
  return t;
}

Rows rows_of(const Replay &r, sie_value v) { return r.program->values[v].rows; }
sie_rows rows(const Replay &r, sie_value v) { return rows_of(r, v) == Rows::tokens ? r.tokens : r.seqs; }
int64_t columns(const Replay &r, sie_value v) { return r.program->values[v].columns; }

sie_status embed_layernorm(const Replay &r, const PlannedOp &planned) {
  const Op &op = planned.op;
  sie_embed_layernorm_args a = {};
  a.tokens = r.tokens;
  a.seqs = r.seqs;
  a.ids = r.slab->ids;
  a.type_ids = r.slab->type_ids;
  a.cu_seqlens = r.slab->cu_seqlens;
  a.word = op.weights[0]->table;
  if (op.weights[1] != nullptr) a.position = op.weights[1]->table;
  if (op.weights[2] != nullptr) a.type = op.weights[2]->table;
  a.position_offset = op.position_offset;
  a.gamma = op.gamma;
  a.beta = op.beta;
  a.eps = op.eps;
  a.c = columns(r, op.out);
  a.y = tensor(r, planned.out);
  a.yq = tensor(r, planned.quantised);
  return r.program->device->ops->embed_layernorm(&a, &r.share);
}

sie_status layernorm(const Replay &r, const PlannedOp &planned) {
  const Op &op = planned.op;
  sie_layernorm_args a = {};
  a.rows = rows(r, op.out);
  a.c = columns(r, op.out);
  a.x = tensor(r, planned.in[0]);
  a.gamma = op.gamma;
  a.beta = op.beta;
  a.eps = op.eps;
  a.y = tensor(r, planned.out);
  a.yq = tensor(r, planned.quantised);
  return r.program->device->ops->layernorm(&a, &r.share);
}

sie_status linear(const Replay &r, const PlannedOp &planned) {
  const Op &op = planned.op;
  sie_linear_args a = {};
  a.rows = rows(r, op.out);
  a.n = op.weights[0]->n;
  a.k = op.weights[0]->k;
  a.x = tensor(r, planned.in[0]);
  a.w = &op.weights[0]->packed;
  a.bias = op.bias;
  a.act = op.act;
  a.residual = tensor(r, planned.residual);
  a.y = tensor(r, planned.out.present ? planned.out : planned.quantised);
  return r.program->device->ops->linear(&a, &r.share);
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
  bool gathered = rows_of(r, op.in[0]) == Rows::seqs;
  sie_attention_args a = {};
  a.q_rows = rows(r, op.in[0]);
  a.seqs = r.seqs;
  a.cu_q = gathered ? r.one_row_each : r.slab->cu_seqlens;
  a.cu_kv = r.slab->cu_seqlens;
  a.max_kv = r.slab->max_len;
  a.q = tensor(r, planned.in[0]);
  a.k = tensor(r, planned.in[1]);
  a.v = tensor(r, planned.in[2]);
  a.heads = op.attention.heads;
  a.kv_heads = op.attention.kv_heads;
  a.head_dim = op.attention.head_dim;
  a.mask = static_cast<int32_t>(op.attention.mask);
  a.window = op.attention.window;
  a.scale = op.attention.scale;
  a.y = tensor(r, planned.out);
  if (planned.work >= 0) a.work = r.work[planned.work];
  return r.program->device->ops->attention(&a, &r.share);
}

sie_status gather_rows(const Replay &r, const PlannedOp &planned) {
  sie_gather_rows_args a = {};
  a.seqs = r.seqs;
  a.cu_seqlens = r.slab->cu_seqlens;
  a.which = planned.op.pooling;
  a.c = columns(r, planned.op.out);
  a.x = tensor(r, planned.in[0]);
  a.y = tensor(r, planned.out);
  return r.program->device->ops->gather_rows(&a, &r.share);
}

sie_status pool(const Replay &r, const PlannedOp &planned) {
  const Op &op = planned.op;
  sie_pool_args a = {};
  a.seqs = r.seqs;
  a.cu_seqlens = rows_of(r, op.in[0]) == Rows::tokens ? r.slab->cu_seqlens : nullptr;
  a.mode = op.pooling;
  a.c = columns(r, op.in[0]);
  a.x = tensor(r, planned.in[0]);
  a.y = tensor(r, planned.out);
  return r.program->device->ops->pool(&a, &r.share);
}

sie_status output_rows(const Replay &r, const PlannedOp &planned) {
  sie_output_rows_args a = {};
  a.seqs = r.seqs;
  a.c = columns(r, planned.op.in[0]);
  a.x = tensor(r, planned.in[0]);
  a.items = r.slab->items;
  a.out = r.outputs[planned.op.output];
  return r.program->device->ops->output_rows(&a, &r.share);
}

sie_status pool_output(const Replay &r, const PlannedOp &planned) {
  const Op &op = planned.op;
  sie_pool_output_args a = {};
  a.seqs = r.seqs;
  a.cu_seqlens = rows_of(r, op.in[0]) == Rows::tokens ? r.slab->cu_seqlens : nullptr;
  a.mode = op.pooling;
  a.c = columns(r, op.in[0]);
  a.x = tensor(r, planned.in[0]);
  a.items = r.slab->items;
  a.out = r.outputs[op.output];
  return r.program->device->ops->pool_output(&a, &r.share);
}

// On a GPU, where a batch is one slab in its own order: pooling one row each is widening.
sie_status output_values_on_gpu(const Replay &r, const PlannedOp &planned) {
  sie_value v = planned.op.in[0];
  sie_pool_args a = {};
  a.seqs = rows(r, v);
  a.mode = SIE_POOL_CLS;
  a.c = columns(r, v);
  a.x = tensor(r, planned.in[0]);
  a.y = {r.outputs[planned.op.output], a.c, SIE_F32, 0, nullptr, nullptr, nullptr};
  return r.program->device->ops->pool(&a, &r.share);
}

// Copies rows, widened to f32, to where the batch has them.
void copy_rows(const sie_tensor &x, int64_t first, int64_t count, int64_t c, float *out) {
  for (int64_t i = 0; i < count; i++) {
    int64_t at = (first + i) * x.ld;
    if (x.dtype == SIE_F32) {
      memcpy(out + i * c, static_cast<const float *>(x.p) + at, static_cast<size_t>(c) * sizeof(float));
    } else {
      const uint16_t *row = static_cast<const uint16_t *>(x.p) + at;
      for (int64_t j = 0; j < c; j++) out[i * c + j] = sie_f32_from_bf16(row[j]);
    }
  }
}

sie_status output_values(const Replay &r, const PlannedOp &planned) {
  sie_value v = planned.op.in[0];
  sie_tensor x = tensor(r, planned.in[0]);
  int64_t c = columns(r, v), n = r.slab->n_seqs;
  float *out = static_cast<float *>(r.outputs[planned.op.output]);
  int64_t first = n * r.share.part / r.share.parts, last = n * (r.share.part + 1) / r.share.parts;
  for (int64_t b = first; b < last; b++) {
    if (rows_of(r, v) == Rows::seqs) {
      copy_rows(x, b, 1, c, out + r.slab->batch_seqs[b] * c);
    } else {
      int64_t begin = r.slab->cu_seqlens[b], end = r.slab->cu_seqlens[b + 1];
      copy_rows(x, begin, end - begin, c, out + r.slab->batch_rows[b] * c);
    }
  }
  return SIE_OK;
}

sie_status dispatch(const Replay &r, const PlannedOp &planned) {
  switch (planned.op.kind) {
    case SIE_OP_EMBED_LAYERNORM:
      return embed_layernorm(r, planned);
    case SIE_OP_LAYERNORM:
      return layernorm(r, planned);
    case SIE_OP_LINEAR:
      return linear(r, planned);
    case SIE_OP_QUANTISE_ROWS:
      return quantise_rows(r, planned);
    case SIE_OP_ATTENTION:
      return attention(r, planned);
    case SIE_OP_GATHER_ROWS:
      return gather_rows(r, planned);
    case SIE_OP_POOL:
      return pool(r, planned);
    case SIE_OP_OUTPUT_ROWS:
      return output_rows(r, planned);
    case SIE_OP_POOL_OUTPUT:
      return pool_output(r, planned);
    case op_output_values:
      return r.program->device->is_gpu() ? output_values_on_gpu(r, planned) : output_values(r, planned);
    default:
      return SIE_INTERNAL;
  }
}

#ifndef NDEBUG
constexpr int redzone_byte = 0xa5;

char *redzone(const Replay &r, const Operand &o) {
  const Buffer &b = r.program->buffers[o.buffer];
  return r.values + b.offset + b.bytes;
}

bool intact(const char *zone) {
  for (int64_t i = 0; i < redzone_bytes; i++) {
    if (static_cast<unsigned char>(zone[i]) != redzone_byte) return false;
  }
  return true;
}

// With the bytes behind each result marked before and looked at after. Only for a caller that works alone.
sie_status dispatch_checked(const Replay &r, const PlannedOp &planned) {
  for (const Operand *o : {&planned.out, &planned.quantised}) {
    if (o->present) memset(redzone(r, *o), redzone_byte, static_cast<size_t>(redzone_bytes));
  }
  sie_status status = dispatch(r, planned);
  for (const Operand *o : {&planned.out, &planned.quantised}) {
    if (status == SIE_OK && o->present && !intact(redzone(r, *o))) status = SIE_INTERNAL;
  }
  return status;
}
#endif

}  // namespace

sie_status replay_op(const Replay &replay, int32_t index) {
  const PlannedOp &planned = replay.program->plan[index];
#ifndef NDEBUG
  if (replay.share.parts == 1 && !replay.program->device->is_gpu()) return dispatch_checked(replay, planned);
#endif
  return dispatch(replay, planned);
}

}  // namespace sie
