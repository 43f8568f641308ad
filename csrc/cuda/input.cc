// input.cc — places and fills the parts of input.h. Host code, no CUDA.
#include "cuda/input.h"

#include <string.h>

#include <algorithm>

#include "slot.h"
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
sie_attention_args host_view(const WorkList &list, const InputLayout &layout, const InputSizes &sizes,
                             const int32_t *cu_seqlens, const int32_t *cu_kept, const int32_t *counts,
                             const int32_t *one_each) {
  sie_attention_args a = {};
  a.q_rows = list.gathered ? sie_rows{layout.seqs, counts + 1} : sie_rows{layout.tokens, counts};
  a.seqs = {layout.seqs, counts + 1};
  a.cu_q = list.gathered ? one_each : cu_seqlens;
  a.cu_kv = list.kept_keys ? cu_kept : cu_seqlens;
  a.max_kv = sizes.longest;
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

// Writes one batch's parts to their places.
class Writer {
 public:
  Writer(const sie_program *program, const InputLayout &layout, const InputSizes &sizes,
         const sie_batch &batch, char *memory)
      : program_(program), layout_(layout), sizes_(sizes), batch_(batch), memory_(memory) {}

  void write() {
    int32_t *counts = at<int32_t>(0);
    counts[0] = static_cast<int32_t>(sizes_.tokens);
    counts[1] = static_cast<int32_t>(sizes_.seqs);
    counts[2] = static_cast<int32_t>(sizes_.kept);
    std::fill_n(at<int32_t>(layout_.nonfinite), sizes_.seqs, 0);
    copy(layout_.ids, batch_.ids, sizes_.tokens);
    if (layout_.type_ids > 0) copy_or(layout_.type_ids, batch_.type_ids, sizes_.tokens, 0);
    copy(layout_.cu_seqlens, batch_.cu_seqlens, sizes_.seqs + 1);
    for (int32_t b = 0; layout_.one_each > 0 && b <= sizes_.seqs; b++) at<int32_t>(layout_.one_each)[b] = b;
    if (layout_.keep > 0) write_kept();
    if (layout_.adapter > 0) {
      copy_or(layout_.adapter, batch_.adapter, sizes_.seqs, -1);
      copy(layout_.pairs, program_->lora_pairs.begin(), program_->lora_pairs.size());
    }
    if (layout_.partner > 0) {
      copy_or(layout_.partner, batch_.partner, sizes_.seqs, -1);
      at<int32_t>(layout_.cu_queries)[0] = 0;
      copy(layout_.cu_queries, batch_.cu_queries, batch_.n_queries > 0 ? batch_.n_queries + 1 : 0);
      copy(layout_.queries, batch_.queries, query_values());
    }
    for (int32_t o = 0; o < program_->n_outputs; o++) {
      if (layout_.items[o] > 0) write_items(o);
    }
  }

  // Every attention's work list.
  sie_status write_work(sie_error *err) {
    const int32_t *one_each = layout_.one_each > 0 ? at<int32_t>(layout_.one_each) : nullptr;
    const int32_t *cu_kept = layout_.cu_kept > 0 ? at<int32_t>(layout_.cu_kept) : nullptr;
    for (int32_t i = 0; i < program_->n_work_lists; i++) {
      sie_attention_args view = host_view(program_->work_lists[i], layout_, sizes_, batch_.cu_seqlens,
                                          cu_kept, at<int32_t>(0), one_each);
      sie_status status = program_->device->ops->attention_work(&view, memory_ + layout_.work[i]);
      SIE_FAIL_IF(status != SIE_OK, status, err, "attention's work list %d failed with status %d", i,
                  static_cast<int>(status));
    }
    return SIE_OK;
  }

  int64_t query_values() const {
    return batch_.n_queries > 0 ? batch_.cu_queries[batch_.n_queries] * program_->query_columns : 0;
  }

 private:
  template <class T>
  T *at(int64_t offset) {
    return reinterpret_cast<T *>(memory_ + offset);
  }

  template <class T>
  void copy(int64_t offset, const T *from, int64_t count) {
    if (count > 0) memcpy(memory_ + offset, from, static_cast<size_t>(count) * sizeof(T));
  }

  void copy_or(int64_t offset, const int32_t *from, int64_t count, int32_t otherwise) {
    if (from != nullptr) return copy(offset, from, count);
    std::fill_n(at<int32_t>(offset), count, otherwise);
  }

  void write_kept() {
    int32_t *keep = at<int32_t>(layout_.keep), *cu_kept = at<int32_t>(layout_.cu_kept), row = 0;
    for (int64_t b = 0; b < sizes_.seqs; b++) {
      int32_t first = batch_.cu_seqlens[b], length = batch_.cu_seqlens[b + 1] - first;
      cu_kept[b] = row;
      row += list_kept(batch_.keep != nullptr ? batch_.keep + first : nullptr, length, first, keep + row);
    }
    cu_kept[sizes_.seqs] = row;
  }

  void write_items(int32_t o) {
    const Output &output = program_->outputs[o];
    if (output.form != OutputForm::token_rows) return copy(layout_.items[o], batch_.items[o], sizes_.seqs);
    const int32_t *cu = output.rows == Rows::kept ? at<int32_t>(layout_.cu_kept) : batch_.cu_seqlens;
    sie_out_item *items = at<sie_out_item>(layout_.items[o]);
    for (int64_t b = 0; b < sizes_.seqs; b++) {
      spread_item(batch_.items[o][b], output.columns, cu[b + 1] - cu[b], items + cu[b]);
    }
  }

  const sie_program *program_;
  const InputLayout &layout_;
  const InputSizes &sizes_;
  const sie_batch &batch_;
  char *memory_;
};

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
  int64_t end = bytes_of(3, sizeof(int32_t));
  auto place = [&end](int64_t *offset, int64_t bytes) {
    *offset = end;
    end += bytes;
  };
  place(&layout->nonfinite, bytes_of(layout->seqs, sizeof(int32_t)));
  place(&layout->ids, bytes_of(layout->tokens, sizeof(int32_t)));
  if (program->types > 0) place(&layout->type_ids, bytes_of(layout->tokens, sizeof(int32_t)));
  place(&layout->cu_seqlens, bytes_of(layout->seqs + 1, sizeof(int32_t)));
  if (has_gathered(program)) place(&layout->one_each, bytes_of(layout->seqs + 1, sizeof(int32_t)));
  if (program->has_kept) {
    place(&layout->keep, bytes_of(layout->tokens, sizeof(int32_t)));
    place(&layout->cu_kept, bytes_of(layout->seqs + 1, sizeof(int32_t)));
  }
  if (program->n_adapters > 0) {
    place(&layout->adapter, bytes_of(layout->seqs, sizeof(int32_t)));
    place(&layout->pairs, bytes_of(program->lora_pairs.size(), sizeof(sie_lora_pair)));
  }
  if (program->query_columns > 0) {
    place(&layout->partner, bytes_of(layout->seqs, sizeof(int32_t)));
    place(&layout->cu_queries, bytes_of(caps.max_seqs + 1, sizeof(int32_t)));
  }
  for (int32_t o = 0; o < program->n_outputs; o++) {
    if (program->outputs[o].form == OutputForm::values) continue;
    bool spread = program->outputs[o].form == OutputForm::token_rows;
    place(&layout->items[o], bytes_of(spread ? layout->tokens : layout->seqs, sizeof(sie_out_item)));
  }
  for (int32_t i = 0; i < program->n_work_lists; i++) {
    sie_op_bounds bounds = work_bounds(program->work_lists[i], *layout);
    place(&layout->work[i], round_up(program->device->ops->attention_work_bytes(&bounds), 256));
  }
  if (program->query_columns > 0) {
    place(&layout->queries, bytes_of(caps.max_query_rows * program->query_columns, sizeof(float)));
  }
  layout->bytes = end;
}

int32_t choose_bucket(const InputLayout *layouts, int64_t tokens, int64_t seqs) {
  for (int32_t i = 0; i < whole_bucket; i++) {
    if (layouts[i].tokens > 0 && tokens <= layouts[i].tokens && seqs <= layouts[i].seqs) return i;
  }
  return whole_bucket;
}

sie_status write_input(const sie_program *program, const InputLayout &layout, const InputSizes &sizes,
                       const sie_batch &batch, char *memory, int64_t *bytes, sie_error *err) {
  Writer writer(program, layout, sizes, batch, memory);
  writer.write();
  *bytes =
      layout.queries > 0 ? layout.queries + bytes_of(writer.query_values(), sizeof(float)) : layout.bytes;
  return writer.write_work(err);
}

}  // namespace sie
