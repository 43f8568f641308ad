// input.cc — places and fills the parts of input.h. Host code, no CUDA.
#include "cuda/input.h"

#include <string.h>

#include <algorithm>

#include "status.h"

namespace sie {

namespace {

int64_t bytes_of(int64_t count, size_t element) {
  return round_up(count * static_cast<int64_t>(element), 256);
}

sie_op_bounds work_bounds(const WorkList &list, const InputLayout &layout) {
  sie_op_bounds bounds = {};
  bounds.kind = SIE_OP_ATTENTION;
  bounds.rows = list.gathered ? layout.seqs : layout.tokens;
  bounds.seqs = layout.seqs;
  bounds.max_len = layout.longest;
  bounds.head_dim = list.attention.head_dim;
  bounds.heads = list.attention.heads;
  bounds.kv_heads = list.attention.kv_heads;
  return bounds;
}

bool has_gathered(const sie_program *program) {
  for (int32_t i = 0; i < program->n_work_lists; i++) {
    if (program->work_lists[i].gathered) return true;
  }
  return false;
}

// Attention's view of the batch on the host: shapes and offsets, no data.
sie_attention_args host_view(const WorkList &list, const InputLayout &layout, const InputBatch &batch,
                             const int32_t *counts, const int32_t *one_each) {
  sie_attention_args a = {};
  a.q_rows = list.gathered ? sie_rows{layout.seqs, counts + 1} : sie_rows{layout.tokens, counts};
  a.seqs = {layout.seqs, counts + 1};
  a.cu_q = list.gathered ? one_each : batch.cu_seqlens;
  a.cu_kv = batch.cu_seqlens;
  a.max_kv = batch.longest;
  a.heads = list.attention.heads;
  a.kv_heads = list.attention.kv_heads;
  a.head_dim = list.attention.head_dim;
  a.mask = static_cast<int32_t>(list.attention.mask);
  a.window = list.attention.window;
  a.scale = list.attention.scale;
  int64_t q_columns = int64_t{a.heads} * a.head_dim, kv_columns = int64_t{a.kv_heads} * a.head_dim;
  a.q = a.y = {nullptr, q_columns, list.dtype, 0, nullptr, nullptr, nullptr};
  a.k = a.v = {nullptr, kv_columns, list.dtype, 0, nullptr, nullptr, nullptr};
  return a;
}

template <class T>
T *at(char *memory, int64_t offset) {
  return reinterpret_cast<T *>(memory + offset);
}

}  // namespace

void lay_out_input(const sie_program *program, int32_t bucket, InputLayout *layout) {
  const sie_caps &caps = program->caps;
  *layout = {};
  layout->tokens = caps.max_tokens;
  layout->seqs = caps.max_seqs;
  if (bucket < whole_bucket) {
    int64_t bound = graph_buckets[bucket];
    if (bound >= caps.max_tokens) {
      layout->tokens = 0;
      return;
    }
    layout->tokens = bound;
    layout->seqs = std::min(bound, caps.max_seqs);
  }
  layout->longest = std::min(layout->tokens, caps.max_len);
  int64_t end = bytes_of(2, sizeof(int32_t));
  auto place = [&end](int64_t *offset, int64_t bytes) {
    *offset = end;
    end += bytes;
  };
  place(&layout->ids, bytes_of(layout->tokens, sizeof(int32_t)));
  if (program->types > 0) place(&layout->type_ids, bytes_of(layout->tokens, sizeof(int32_t)));
  place(&layout->cu_seqlens, bytes_of(layout->seqs + 1, sizeof(int32_t)));
  if (has_gathered(program)) place(&layout->one_each, bytes_of(layout->seqs + 1, sizeof(int32_t)));
  if (program->has_output_rows) place(&layout->items, bytes_of(layout->seqs, sizeof(sie_out_item)));
  for (int32_t i = 0; i < program->n_work_lists; i++) {
    sie_op_bounds bounds = work_bounds(program->work_lists[i], *layout);
    place(&layout->work[i], round_up(program->device->ops->attention_work_bytes(&bounds), 256));
  }
  layout->bytes = end;
}

int32_t choose_bucket(const InputLayout *layouts, int64_t tokens, int64_t seqs) {
  for (int32_t i = 0; i < whole_bucket; i++) {
    if (layouts[i].tokens > 0 && tokens <= layouts[i].tokens && seqs <= layouts[i].seqs) return i;
  }
  return whole_bucket;
}

sie_status write_input(const sie_program *program, const InputLayout &layout, const InputBatch &batch,
                       char *memory, sie_error *err) {
  size_t id_bytes = static_cast<size_t>(batch.n_tokens) * sizeof(int32_t);
  int32_t *counts = at<int32_t>(memory, 0);
  counts[0] = static_cast<int32_t>(batch.n_tokens);
  counts[1] = static_cast<int32_t>(batch.n_seqs);
  if (id_bytes > 0) memcpy(at<int32_t>(memory, layout.ids), batch.ids, id_bytes);
  if (id_bytes > 0 && layout.type_ids > 0) {
    int32_t *types = at<int32_t>(memory, layout.type_ids);
    if (batch.type_ids != nullptr) {
      memcpy(types, batch.type_ids, id_bytes);
    } else {
      memset(types, 0, id_bytes);
    }
  }
  memcpy(at<int32_t>(memory, layout.cu_seqlens), batch.cu_seqlens,
         static_cast<size_t>(batch.n_seqs + 1) * sizeof(int32_t));
  int32_t *one_each = layout.one_each > 0 ? at<int32_t>(memory, layout.one_each) : nullptr;
  for (int32_t b = 0; one_each != nullptr && b <= batch.n_seqs; b++) one_each[b] = b;
  if (layout.items > 0 && batch.n_seqs > 0) {
    memcpy(at<sie_out_item>(memory, layout.items), batch.items,
           static_cast<size_t>(batch.n_seqs) * sizeof(sie_out_item));
  }
  for (int32_t i = 0; i < program->n_work_lists; i++) {
    sie_attention_args view = host_view(program->work_lists[i], layout, batch, counts, one_each);
    sie_status status = program->device->ops->attention_work(&view, memory + layout.work[i]);
    SIE_FAIL_IF(status != SIE_OK, status, err, "attention's work list %d failed with status %d", i,
                static_cast<int>(status));
  }
  return SIE_OK;
}

}  // namespace sie
