// input.cc — lays out and writes a batch's input (input.h). Host code, no CUDA.
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

sie_op_bounds work_bounds(const sie_program *program, const WorkList &list, const InputLayout &layout) {
  sie_op_bounds bounds = {};
  bounds.kind = SIE_OP_ATTENTION;
  bounds.rows = list.queries == program->seqs ? layout.seqs : layout.tokens;
  bounds.seqs = layout.seqs;
  bounds.max_len = list.attention.segment != 0 ? layout.longest_keys : layout.longest;
  bounds.head_dim = list.attention.head_dim;
  bounds.heads = list.attention.heads;
  bounds.kv_heads = list.attention.kv_heads;
  return bounds;
}

bool has_gathered(const sie_program *program) {
  for (int32_t i = 0; i < program->n_work_lists; i++) {
    if (program->work_lists[i].queries == program->seqs) return true;
  }
  return false;
}

// Writes one batch's parts to their places.
class Writer {
 public:
  Writer(const sie_program *program, const InputLayout &layout, const BatchIn &batch, char *memory)
      : program_(program), layout_(layout), batch_(batch), memory_(memory) {}

  void write() {
    std::fill_n(at<int32_t>(layout_.nonfinite), batch_.seqs, 0);
    for (int32_t s = 1; s <= max_spaces; s++) {
      at<int32_t>(0)[s] = static_cast<int32_t>(batch_.rows[s]);
      write_space(s);
    }
    for (int32_t i = 1; i <= max_inputs; i++) {
      if (layout_.inputs[i] > 0) write_values(i);
    }
    if (layout_.pairs > 0) copy(layout_.pairs, program_->lora_pairs.begin(), program_->lora_pairs.size());
    for (int32_t o = 0; o < program_->n_outputs; o++) {
      if (layout_.items[o] > 0) write_items(o);
    }
  }

  // Writes all work lists of attention.
  sie_status write_work(sie_error *err) {
    for (int32_t i = 0; i < program_->n_work_lists; i++) {
      sie_attention_args view = host_view(program_->work_lists[i]);
      sie_status status = program_->device->ops->attention_work(&view, memory_ + layout_.work[i]);
      SIE_FAIL_IF(status != SIE_OK, status, err, "attention's work list %d failed with status %d", i,
                  static_cast<int>(status));
    }
    return SIE_OK;
  }

  // Where the batch's input ends, its SHARED rows included.
  int64_t end() const { return layout_.shared > 0 ? end_ : layout_.bytes; }

 private:
  template <class T>
  T *at(int64_t offset) {
    return reinterpret_cast<T *>(memory_ + offset);
  }

  template <class T>
  void copy(int64_t offset, const T *from, int64_t count) {
    if (count > 0) memcpy(memory_ + offset, from, static_cast<size_t>(count) * sizeof(T));
  }

  void write_space(sie_space s) {
    if (layout_.offsets[s] == 0) return;
    int32_t *offsets = at<int32_t>(layout_.offsets[s]);
    switch (kind_of(program_, s)) {
      case SIE_SPACE_SEQS:
        for (int32_t b = 0; b <= batch_.seqs; b++) offsets[b] = b;
        break;
      case SIE_SPACE_ROWS:
        copy(layout_.offsets[s], batch_.offsets[s], batch_.seqs + 1);
        break;
      case SIE_SPACE_SUBSET:
        write_subset(s);
        break;
      default:
        offsets[0] = 0;
        copy(layout_.offsets[s], batch_.offsets[s], batch_.groups[s] > 0 ? batch_.groups[s] + 1 : 0);
    }
  }

  void write_subset(sie_space s) {
    const int32_t *cu = batch_.offsets[whole_of(program_, s)];
    int32_t *index = at<int32_t>(layout_.index[s]), *offsets = at<int32_t>(layout_.offsets[s]), row = 0;
    bool otherwise = program_->inputs[program_->spaces[s].marks].otherwise != 0;
    for (int64_t b = 0; b < batch_.seqs; b++) {
      offsets[b] = row;
      row +=
          list_marked(marks_of(program_, batch_, s, cu[b]), otherwise, cu[b + 1] - cu[b], cu[b], index + row);
    }
    offsets[batch_.seqs] = row;
  }

  void write_values(sie_input i) {
    const Input &input = program_->inputs[i];
    int64_t values = batch_.rows[input.space] * input.columns;
    if (batch_.inputs[i] != nullptr) {
      copy(layout_.inputs[i], static_cast<const int32_t *>(batch_.inputs[i]), values);
    } else {
      std::fill_n(at<int32_t>(layout_.inputs[i]), values, input.otherwise);
    }
    if (input.dtype == SIE_F32) end_ = layout_.inputs[i] + bytes_of(values, sizeof(float));
  }

  void write_items(int32_t o) {
    const Output &output = program_->outputs[o];
    if (output.form != SIE_FORM_TOKEN_ROWS) return copy(layout_.items[o], batch_.items[o], batch_.seqs);
    const int32_t *cu = at<int32_t>(layout_.offsets[output.space]);
    sie_out_item *items = at<sie_out_item>(layout_.items[o]);
    for (int64_t b = 0; b < batch_.seqs; b++) {
      spread_item(batch_.items[o][b], output.columns, cu[b + 1] - cu[b], items + cu[b]);
    }
  }

  // Attention's view of the batch on the host: shapes and offsets, no data.
  sie_attention_args host_view(const WorkList &list) {
    const int32_t *counts = at<int32_t>(0);
    sie_space seqs = program_->seqs;
    sie_attention_args a = {};
    a.q_rows = {list.queries == seqs ? layout_.seqs : layout_.tokens, counts + list.queries};
    a.seqs = {layout_.seqs, counts + seqs};
    a.cu_q = at<int32_t>(layout_.offsets[list.queries]);
    a.cu_kv = at<int32_t>(layout_.offsets[list.keys]);
    a.max_kv = batch_.longest;
    if (list.attention.segment != 0) {
      a.max_kv = batch_.longest_keys;
      a.prefix_first = at<int32_t>(layout_.inputs[program_->state.first]);
      a.prefix_keys = at<int32_t>(layout_.inputs[program_->state.rows]);
    }
    a.heads = list.attention.heads;
    a.kv_heads = list.attention.kv_heads;
    a.head_dim = list.attention.head_dim;
    a.mask = static_cast<int32_t>(list.attention.mask);
    a.window = list.attention.window;
    a.queries_first = stands_first(list.attention) ? 1 : 0;
    a.scale = list.attention.scale;
    int64_t q_columns = int64_t{a.heads} * a.head_dim, kv_columns = int64_t{a.kv_heads} * a.head_dim;
    a.q = a.y = {nullptr, q_columns, list.dtype, 0, nullptr, nullptr, nullptr};
    a.k = a.v = {nullptr, kv_columns, list.dtype, 0, nullptr, nullptr, nullptr};
    if (a.prefix_keys != nullptr) a.prefix_k = a.prefix_v = a.k;
    return a;
  }

  const sie_program *program_;
  const InputLayout &layout_;
  const BatchIn &batch_;
  char *memory_;
  int64_t end_ = 0;
};

// Gives parts their places, one after another.
class Layout {
 public:
  Layout(const sie_program *program, InputLayout *layout) : program_(program), layout_(layout) {}

  void lay_out() {
    end_ = bytes_of(max_spaces + 1, sizeof(int32_t));
    place(&layout_->nonfinite, bytes_of(layout_->seqs, sizeof(int32_t)));
    for (int32_t s = 1; s <= max_spaces; s++) place_space(s);
    for (int32_t i = 1; i <= max_inputs; i++) {
      const Input &input = program_->inputs[i];
      if (!input.read || input.dtype != SIE_I32) continue;
      int64_t rows = input.space == program_->seqs ? layout_->seqs : layout_->tokens;
      place(&layout_->inputs[i], bytes_of(rows, sizeof(int32_t)));
    }
    if (program_->n_adapters > 0) {
      place(&layout_->pairs, bytes_of(program_->lora_pairs.size(), sizeof(sie_lora_pair)));
    }
    for (int32_t o = 0; o < program_->n_outputs; o++) {
      if (program_->outputs[o].form == SIE_FORM_VALUES) continue;
      bool spread = program_->outputs[o].form == SIE_FORM_TOKEN_ROWS;
      place(&layout_->items[o], bytes_of(spread ? layout_->tokens : layout_->seqs, sizeof(sie_out_item)));
    }
    for (int32_t i = 0; i < program_->n_work_lists; i++) {
      sie_op_bounds bounds = work_bounds(program_, program_->work_lists[i], *layout_);
      place(&layout_->work[i], round_up(program_->device->ops->attention_work_bytes(&bounds), 256));
    }
    for (int32_t i = 1; i <= max_inputs; i++) place_shared(i);
    layout_->bytes = end_;
  }

 private:
  void place(int64_t *offset, int64_t bytes) {
    *offset = end_;
    end_ += bytes;
  }

  void place_space(sie_space s) {
    uint32_t kind = kind_of(program_, s);
    bool gathered = kind == SIE_SPACE_SEQS && has_gathered(program_);
    int64_t groups = kind == SIE_SPACE_SHARED ? program_->caps.max_seqs : layout_->seqs;
    if (kind == SIE_SPACE_ROWS || kind == SIE_SPACE_SUBSET || kind == SIE_SPACE_SHARED || gathered) {
      place(&layout_->offsets[s], bytes_of(groups + 1, sizeof(int32_t)));
    }
    if (kind == SIE_SPACE_SUBSET) place(&layout_->index[s], bytes_of(layout_->tokens, sizeof(int32_t)));
  }

  void place_shared(sie_input i) {
    const Input &input = program_->inputs[i];
    if (!input.read || input.dtype != SIE_F32) return;
    if (layout_->shared == 0) layout_->shared = end_;
    place(&layout_->inputs[i],
          bytes_of(program_->spaces[input.space].max_rows * input.columns, sizeof(float)));
  }

  const sie_program *program_;
  InputLayout *layout_;
  int64_t end_ = 0;
};

}  // namespace

void lay_out_input(const sie_program *program, int32_t bucket, InputLayout *layout) {
  const Caps &caps = program->caps;
  *layout = {};
  layout->tokens = caps.max_rows;
  layout->seqs = caps.max_seqs;
  if (bucket < whole_bucket) {
    int64_t bound = graph_buckets[bucket];
    if (bound >= caps.max_rows) {
      layout->tokens = 0;
      return;
    }
    layout->tokens = bound;
    layout->seqs = std::min(bound, caps.max_seqs);
  }
  layout->longest = std::min(layout->tokens, caps.max_len);
  layout->longest_keys = longest_keys(program, layout->longest);
  Layout(program, layout).lay_out();
}

int32_t choose_bucket(const InputLayout *layouts, int64_t tokens, int64_t seqs) {
  for (int32_t i = 0; i < whole_bucket; i++) {
    if (layouts[i].tokens > 0 && tokens <= layouts[i].tokens && seqs <= layouts[i].seqs) return i;
  }
  return whole_bucket;
}

sie_status write_input(const sie_program *program, const InputLayout &layout, const BatchIn &batch,
                       char *memory, int64_t *bytes, sie_error *err) {
  Writer writer(program, layout, batch, memory);
  writer.write();
  *bytes = writer.end();
  return writer.write_work(err);
}

}  // namespace sie
