// replay_output.cc — fills the arguments of the operations that write outputs.
#include <string.h>

#include "common/dtype.h"
#include "replay_parts.h"

namespace sie {

namespace {

sie_status output_rows(const Replay &r, const PlannedOp &planned) {
  sie_output_rows_args a = {};
  a.seqs = rows(r, planned.op.in[0]);
  a.c = columns(r, planned.op.in[0]);
  a.x = tensor(r, planned.in[0]);
  a.items = r.slab->items[planned.op.output];
  a.out = r.outputs[planned.op.output];
  return r.program->device->ops->output_rows(&a, &r.share);
}

sie_status pool_output(const Replay &r, const PlannedOp &planned) {
  const Op &op = planned.op;
  bool each = op.pooling == each_row;
  sie_pool_output_args a = {};
  a.seqs = each ? rows(r, op.in[0]) : seqs(r);
  a.cu_seqlens = each ? nullptr : offsets(r, op.in[0]);
  a.mode = each ? SIE_POOL_CLS : op.pooling;
  a.longest = longest(r);
  a.c = columns(r, op.in[0]);
  a.x = tensor(r, planned.in[0]);
  a.w = op.vector;
  kept_places(r, op, &a.index, &a.cu_whole);
  a.items = r.slab->items[op.output];
  a.out = r.outputs[op.output];
  return r.program->device->ops->pool_output(&a, &r.share);
}

sie_status output_sparse(const Replay &r, const PlannedOp &planned) {
  const Op &op = planned.op;
  sie_output_sparse_args a = {};
  a.seqs = seqs(r);
  a.c = columns(r, op.in[0]);
  a.x = tensor(r, planned.in[0]);
  a.transform = op.transform;
  a.items = r.slab->items[op.output];
  a.out = r.outputs[op.output];
  return r.program->device->ops->output_sparse(&a, &r.share);
}

const int32_t *table(const sie_weight *w) {
  return w != nullptr ? static_cast<const int32_t *>(w->table.p) : nullptr;
}

sie_status muvera(const Replay &r, const PlannedOp &planned) {
  const Op &op = planned.op;
  sie_muvera_args a = {};
  a.tokens = rows(r, op.in[0]);
  a.seqs = seqs(r);
  a.cu_seqlens = offsets(r, op.in[0]);
  a.c = columns(r, op.in[0]);
  a.x = tensor(r, planned.in[0]);
  a.repetitions = op.muvera.repetitions;
  a.simhash_bits = op.muvera.simhash_bits;
  a.projected = op.muvera.projected;
  a.final_dims = op.muvera.final_dims;
  a.is_query = op.muvera.is_query;
  a.fill_empty = op.muvera.fill_empty;
  a.center_tokens = op.muvera.center_tokens;
  a.normalize = op.muvera.normalize;
  if (op.muvera.simhash != nullptr) a.simhash = op.muvera.simhash->vector();
  a.ams = table(op.muvera.ams);
  a.sketch = table(op.muvera.sketch);
  a.sketch_output = table(op.muvera.sketch_output);
  a.sketch_source = table(op.muvera.sketch_source);
  a.items = r.slab->items[op.output];
  a.out = r.outputs[op.output];
  return r.program->device->ops->muvera(&a, &r.share);
}

sie_status smve(const Replay &r, const PlannedOp &planned) {
  const Op &op = planned.op;
  sie_smve_args a = {};
  a.rows = rows(r, op.in[0]);
  a.seqs = seqs(r);
  a.cu_seqlens = offsets(r, op.in[0]);
  a.c = columns(r, op.in[0]);
  a.x = tensor(r, planned.in[0]);
  a.repetitions = op.smve.repetitions;
  a.width = op.smve.width;
  a.top = op.smve.top;
  a.max_nonzeros = op.smve.max_nonzeros;
  a.is_query = op.smve.is_query;
  a.normalize = op.smve.normalize;
  a.anchors = op.smve.anchors->vector();
  a.items = r.slab->items[op.output];
  a.out = r.outputs[op.output];
  return r.program->device->ops->smve(&a, &r.share);
}

// Of an output that is found: what both passes of either operation read.
template <typename Args>
void fill_found(const Replay &r, const PlannedOp &planned, Args *a) {
  const Op &op = planned.op;
  const int32_t *words = offsets(r, op.in[0]);
  a->words = rows(r, op.in[0]);
  a->seqs = seqs(r);
  a->cu_words = words != nullptr ? words : r.one_row_each;
  a->cu_labels = offsets(r, op.in[2]);
  a->label_group = op.inputs[0] != 0 ? indices(r, op.inputs[0]) : nullptr;
  a->write = planned.writes ? 1 : 0;
  const sie_tensor found = tensor(r, planned.found);
  a->found = static_cast<int32_t *>(found.p);
  a->found_ld = found.ld;
  a->items = r.slab->items[op.output];
  a->out = r.outputs[op.output];
}

sie_status spans(const Replay &r, const PlannedOp &planned) {
  sie_spans_args a = {};
  fill_found(r, planned, &a);
  a.k = columns(r, planned.op.in[0]);
  a.starts = tensor(r, planned.in[0]);
  a.ends = tensor(r, planned.in[1]);
  a.labels = tensor(r, planned.in[2]);
  a.bias = tensor(r, planned.in[3]);
  a.widest = planned.op.widest;
  return r.program->device->ops->spans(&a, &r.share);
}

sie_status pairs(const Replay &r, const PlannedOp &planned) {
  const Op &op = planned.op;
  sie_pairs_args a = {};
  fill_found(r, planned, &a);
  a.n = op.weights[0]->n;
  a.k = op.weights[0]->k;
  a.words_x = tensor(r, planned.in[0]);
  a.words_u = tensor(r, planned.in[1]);
  a.labels_x = tensor(r, planned.in[2]);
  a.labels_u = tensor(r, planned.in[3]);
  a.w = op.weights[0]->packed_on(r.node);
  a.head = op.weights[1]->vector();
  a.head_bias = op.bias;
  a.n_logits = op.n_logits;
  return r.program->device->ops->pairs(&a, &r.share);
}

// On a GPU a batch is one slab in the batch's order, so pooling with one row a sequence widens all
// rows to the output.
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

// Widens rows to f32 and copies them to their places in the batch's order.
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
  const int32_t *cu = offsets(r, v), *places = r.slab->spaces[space_of(r, v)].first;
  int64_t c = columns(r, v), n = r.slab->spaces[r.program->seqs].n;
  float *out = static_cast<float *>(r.outputs[planned.op.output]);
  int64_t first = n * r.share.part / r.share.parts, last = n * (r.share.part + 1) / r.share.parts;
  for (int64_t b = first; b < last; b++) {
    if (cu == nullptr) {
      copy_rows(x, b, 1, c, out + places[b] * c);
    } else {
      copy_rows(x, cu[b], cu[b + 1] - cu[b], c, out + places[b] * c);
    }
  }
  return SIE_OK;
}

}  // namespace

sie_status replay_output(const Replay &r, const PlannedOp &planned) {
  switch (planned.op.kind) {
    case SIE_OP_OUTPUT_ROWS:
      return output_rows(r, planned);
    case SIE_OP_POOL_OUTPUT:
      return pool_output(r, planned);
    case SIE_OP_OUTPUT_SPARSE:
      return output_sparse(r, planned);
    case SIE_OP_SPANS:
      return spans(r, planned);
    case SIE_OP_PAIRS:
      return pairs(r, planned);
    case SIE_OP_MUVERA:
      return muvera(r, planned);
    case SIE_OP_SMVE:
      return smve(r, planned);
    case op_output_values:
      return r.program->device->is_gpu() ? output_values_on_gpu(r, planned) : output_values(r, planned);
    default:
      return SIE_INTERNAL;
  }
}

}  // namespace sie
