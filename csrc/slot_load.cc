// slot_load.cc — loads a batch into a slot: checks it, shares it out among slabs and copies it in
// slab order.
#include <string.h>

#include <algorithm>

#include "gpu.h"
#include "grow.h"
#include "slot.h"
#include "status.h"

using namespace sie;

namespace {

template <class T>
T *in(const Block &block) {
  return static_cast<T *>(block.p);
}

sie_status check_free(const sie_slot *slot, sie_error *err) {
  uint32_t state = slot->state.load(std::memory_order_acquire);
  SIE_FAIL_IF(state == run_started || state == run_done, SIE_INVALID_ARGUMENT, err,
              "the slot's run is in flight; sie_slot_wait frees it");
  return SIE_OK;
}

// Copies a batch slab by slab, so that the sequences of a slab are adjacent.
class Filler {
 public:
  Filler(sie_slot *slot, const sie_program *program, const BatchIn &batch, const SlotLayout &layout)
      : slot_(slot), program_(program), batch_(batch), layout_(layout) {}

  // Fills the parts that all slabs share: SHARED spaces, and where each sequence's rows of a subset
  // begin in the batch.
  void start() {
    for (int32_t s = 1; s <= max_spaces; s++) {
      if (kind_of(program_, s) == SIE_SPACE_SUBSET) count_marks(s);
      if (kind_of(program_, s) == SIE_SPACE_SHARED) copy_shared(s);
    }
  }

  void fill(const SlabShare &share, Slab *slab) {
    *slab = {};
    order_ = static_cast<const int32_t *>(slot_->order.p) + share.first;
    n_seqs_ = share.seqs;
    slab->max_len = slab->max_keys = share.max_len;
    slab->spaces[program_->seqs] = {n_seqs_, nullptr, nullptr, order_};
    for (int32_t s = 1; s <= max_spaces; s++) {
      if (kind_of(program_, s) == SIE_SPACE_ROWS) fill_rows(s, slab);
    }
    for (int32_t s = 1; s <= max_spaces; s++) {
      if (kind_of(program_, s) == SIE_SPACE_SUBSET) fill_subset(s, slab);
      if (kind_of(program_, s) == SIE_SPACE_SHARED) {
        slab->spaces[s] = {static_cast<int32_t>(batch_.rows[s]), at<int32_t>(layout_.offsets[s]), nullptr,
                           nullptr};
      }
    }
    for (int32_t i = 1; i <= max_inputs; i++) {
      if (program_->inputs[i].read) fill_input(i, slab);
    }
    if (program_->state.reads()) slab->max_keys = most_keys(*slab);
    for (int32_t o = 0; o < program_->n_outputs; o++) slab->items[o] = copy_items(*slab, o);
    for (int32_t s = 1; s <= max_spaces; s++) rows_[s] += slab->spaces[s].n;
    seqs_ += n_seqs_;
    offsets_ += n_seqs_ + 1;
  }

 private:
  template <class T>
  T *at(int64_t offset) {
    return reinterpret_cast<T *>(slot_->inputs.at(offset));
  }

  void count_marks(sie_space s) {
    int32_t *first = at<int32_t>(layout_.batch_first[s]);
    const int32_t *cu = batch_.offsets[whole_of(program_, s)];
    int64_t row = 0;
    for (int64_t b = 0; b < batch_.seqs; b++) {
      first[b] = static_cast<int32_t>(row);
      row += count_marked(marks_of(program_, batch_, s, cu[b]), otherwise(s), cu[b + 1] - cu[b]);
    }
  }

  bool otherwise(sie_space s) const { return program_->inputs[program_->spaces[s].marks].otherwise != 0; }

  void copy_shared(sie_space s) {
    int32_t *offsets = at<int32_t>(layout_.offsets[s]);
    offsets[0] = 0;
    size_t bytes = static_cast<size_t>(batch_.groups[s] + 1) * sizeof(int32_t);
    if (batch_.groups[s] > 0) memcpy(offsets, batch_.offsets[s], bytes);
    for (int32_t i = 1; i <= max_inputs; i++) {
      const Input &input = program_->inputs[i];
      if (!input.read || input.space != s) continue;
      // A batch without rows of the space may leave the input out.
      std::copy_n(static_cast<const float *>(batch_.inputs[i]), batch_.rows[s] * input.columns,
                  at<float>(layout_.inputs[i]));
    }
  }

  void fill_rows(sie_space s, Slab *slab) {
    const int32_t *cu = batch_.offsets[s];
    int32_t *offsets = at<int32_t>(layout_.offsets[s]) + offsets_;
    int32_t *first = at<int32_t>(layout_.first[s]) + seqs_;
    int32_t row = 0;
    for (int32_t i = 0; i < n_seqs_; i++) {
      int32_t b = order_[i];
      offsets[i] = row;
      first[i] = cu[b];
      row += cu[b + 1] - cu[b];
    }
    offsets[n_seqs_] = row;
    slab->spaces[s] = {row, offsets, nullptr, first};
  }

  void fill_subset(sie_space s, Slab *slab) {
    sie_space whole = whole_of(program_, s);
    const int32_t *cu = batch_.offsets[whole], *of_batch = at<int32_t>(layout_.batch_first[s]);
    const int32_t *rows = slab->spaces[whole].offsets;
    int32_t *index = at<int32_t>(layout_.index[s]) + rows_[s];
    int32_t *offsets = at<int32_t>(layout_.offsets[s]) + offsets_;
    int32_t *first = at<int32_t>(layout_.first[s]) + seqs_;
    int32_t row = 0;
    for (int32_t i = 0; i < n_seqs_; i++) {
      int32_t b = order_[i];
      offsets[i] = row;
      first[i] = of_batch[b];
      row += list_marked(marks_of(program_, batch_, s, cu[b]), otherwise(s), cu[b + 1] - cu[b], rows[i],
                         index + row);
    }
    offsets[n_seqs_] = row;
    slab->spaces[s] = {row, offsets, index, first};
  }

  void fill_input(sie_input i, Slab *slab) {
    const Input &input = program_->inputs[i];
    if (input.dtype == SIE_F32) slab->inputs[i] = at<float>(layout_.inputs[i]);
    if (input.dtype != SIE_I32) return;
    const int32_t *from = static_cast<const int32_t *>(batch_.inputs[i]);
    int32_t *to =
        at<int32_t>(layout_.inputs[i]) + (input.space == program_->seqs ? seqs_ : rows_[input.space]);
    slab->inputs[i] = to;
    if (from == nullptr) {
      std::fill_n(to, slab->spaces[input.space].n, input.otherwise);
    } else if (input.space == program_->seqs) {
      for (int32_t b = 0; b < n_seqs_; b++) to[b] = from[order_[b]];
    } else {
      copy_rows(from, slab->spaces[input.space], to);
    }
  }

  void copy_rows(const int32_t *from, const SlabRows &rows, int32_t *to) {
    for (int32_t i = 0; i < n_seqs_; i++) {
      size_t length = static_cast<size_t>(rows.offsets[i + 1] - rows.offsets[i]);
      if (length > 0) memcpy(to + rows.offsets[i], from + rows.first[i], length * sizeof(int32_t));
    }
  }

  // The longest prefix and own rows of a sequence together.
  int64_t most_keys(const Slab &slab) const {
    const int32_t *prefixes = static_cast<const int32_t *>(slab.inputs[program_->state.rows]);
    const int32_t *rows = slab.spaces[program_->rows].offsets;
    int32_t most = 0;
    for (int32_t i = 0; i < n_seqs_; i++) most = std::max(most, prefixes[i] + rows[i + 1] - rows[i]);
    return most;
  }

  const sie_out_item *copy_items(const Slab &slab, int32_t o) {
    const Output &output = program_->outputs[o];
    if (output.form == SIE_FORM_VALUES) return nullptr;
    bool spread = output.form == SIE_FORM_TOKEN_ROWS;
    const int32_t *offsets = slab.spaces[output.space].offsets;
    sie_out_item *to = at<sie_out_item>(layout_.items[o]) + (spread ? rows_[output.space] : seqs_);
    for (int32_t i = 0; i < n_seqs_; i++) {
      const sie_out_item &item = batch_.items[o][order_[i]];
      if (spread) {
        spread_item(item, output.columns, offsets[i + 1] - offsets[i], to + offsets[i]);
      } else {
        to[i] = item;
      }
    }
    return to;
  }

  sie_slot *slot_;
  const sie_program *program_;
  const BatchIn &batch_;
  const SlotLayout &layout_;
  const int32_t *order_ = nullptr;
  int32_t n_seqs_ = 0;
  // Where the parts of the next slab begin.
  int64_t rows_[max_spaces + 1] = {};
  int64_t seqs_ = 0, offsets_ = 0;
};

// Gives long slabs, which come first, places in the region. They are placed side by side while they
// fit, then from the region's start again; a slab placed there waits until all slabs before that
// restart are done.
void place_long(sie_slot *slot, const sie_program *program, Slab *slabs) {
  int32_t &count = slot->n_long, after = 0;
  int64_t end = 0, room = region_bytes(program);
  for (count = 0; count < slot->n_slabs && slabs[count].max_len > slab_tokens_max; count++) {
    int64_t bytes = long_bytes(program, slabs[count].max_len);
    if (end + bytes > room) {
      end = 0;
      after = count;
    }
    slabs[count].after = after;
    slabs[count].place = end;
    end += bytes;
  }
}

// The sequences' extents, summed up as offsets are. With one ROWS space they are its offsets.
const int32_t *sum_extents(sie_slot *slot, const sie_program *program, const BatchIn &batch) {
  if (!program->many) return batch.offsets[program->rows];
  int32_t *sums = in<int32_t>(slot->extents);
  sums[0] = 0;
  for (int64_t b = 0; b < batch.seqs; b++) {
    sums[b + 1] = sums[b] + static_cast<int32_t>(extent_of(program, batch, b));
  }
  return sums;
}

void load_slabs(sie_slot *slot, const sie_program *program, const BatchIn &batch, const SlotLayout &layout) {
  SlabLimits limits = {slot->device->threads, slab_tokens_max, program->slab_seqs, program->balance};
  SlabWork work = {in<SlabShare>(slot->shares), in<int32_t>(slot->order), in<int32_t>(slot->slab_of),
                   in<int32_t>(slot->heap), in<int32_t>(slot->by_length)};
  slot->n_slabs =
      plan_slabs(sum_extents(slot, program, batch), static_cast<int32_t>(batch.seqs), limits, work);
  Filler filler(slot, program, batch, layout);
  filler.start();
  Slab *slabs = in<Slab>(slot->slabs);
  for (int32_t s = 0; s < slot->n_slabs; s++) filler.fill(work.shares[s], slabs + s);
  memset(slot->nonfinite.p, 0, static_cast<size_t>(batch.seqs) * sizeof(int32_t));
  place_long(slot, program, slabs);
}

sie_status load_cpu(sie_slot *slot, const sie_program *program, const BatchIn &batch, sie_error *err) {
  SlotLayout layout;
  lay_out_slot(program, batch, &layout);
  SIE_FAIL_IF(layout.bytes > slot->caps.input_bytes, SIE_INVALID_ARGUMENT, err,
              "the batch's inputs need %lld bytes; the slot has input_bytes %lld",
              static_cast<long long>(layout.bytes), static_cast<long long>(slot->caps.input_bytes));
  load_slabs(slot, program, batch, layout);
  return SIE_OK;
}

}  // namespace

namespace sie {

void lay_out_slot(const sie_program *p, const BatchIn &sizes, SlotLayout *layout) {
  *layout = {};
  int64_t end = 0;
  auto place = [&end](int64_t *offset, int64_t count, size_t element) {
    *offset = end;
    end += round_up(count * static_cast<int64_t>(element), 64);
  };
  for (int32_t s = 1; s <= max_spaces; s++) {
    uint32_t kind = kind_of(p, s);
    bool subset = kind == SIE_SPACE_SUBSET;
    if (kind == SIE_SPACE_SHARED) place(&layout->offsets[s], sizes.groups[s] + 1, sizeof(int32_t));
    if (!subset && kind != SIE_SPACE_ROWS) continue;
    // Each slab has at least one sequence.
    place(&layout->offsets[s], 2 * sizes.seqs, sizeof(int32_t));
    place(&layout->first[s], sizes.seqs, sizeof(int32_t));
    if (subset) place(&layout->batch_first[s], sizes.seqs, sizeof(int32_t));
    if (subset) place(&layout->index[s], sizes.rows[whole_of(p, s)], sizeof(int32_t));
  }
  for (int32_t i = 1; i <= max_inputs; i++) {
    const Input &input = p->inputs[i];
    if (!input.read || input.dtype == SIE_U8) continue;
    place(&layout->inputs[i], sizes.rows[input.space] * input.columns, sizeof(int32_t));
  }
  for (int32_t o = 0; o < p->n_outputs; o++) {
    if (p->outputs[o].form == SIE_FORM_VALUES) continue;
    bool spread = p->outputs[o].form == SIE_FORM_TOKEN_ROWS;
    place(&layout->items[o], spread ? sizes.rows[whole_of(p, p->outputs[o].space)] : sizes.seqs,
          sizeof(sie_out_item));
  }
  layout->bytes = end;
}

}  // namespace sie

int64_t sie_program_input_bytes(const sie_program *program) {
  if (program == nullptr || !program->ended) return 0;
  if (program->device->is_gpu()) return gpu_program_input_bytes(program);
  BatchIn most = {};
  SlotLayout layout;
  most.seqs = program->caps.max_seqs;
  for (int32_t s = 1; s <= max_spaces; s++) {
    most.rows[s] = program->spaces[s].max_rows;
    most.groups[s] = program->caps.max_seqs;
  }
  lay_out_slot(program, most, &layout);
  return layout.bytes;
}

sie_status sie_slot_load(sie_slot *slot, const sie_program *program, const sie_batch *batch, sie_error *err) {
  SIE_FAIL_IF(slot == nullptr || program == nullptr || batch == nullptr, SIE_INVALID_ARGUMENT, err,
              "slot, program or batch is NULL");
  sie_batch known;
  SIE_TRY(take(batch, &known, "sie_batch", err));
  SIE_FAIL_IF(slot->device != program->device, SIE_INVALID_ARGUMENT, err,
              "slot and program are of two devices");
  SIE_FAIL_IF(!program->ended, SIE_INVALID_ARGUMENT, err, "the program is not ended");
  SIE_TRY(check_free(slot, err));
  slot->state.store(run_idle, std::memory_order_relaxed);  // drops an earlier load
  BatchIn in;
  SIE_TRY(check_batch(slot, program, known, &in, err));
  SIE_TRY(slot->device->is_gpu() ? gpu_slot_load(slot, program, in, err) : load_cpu(slot, program, in, err));
  slot->state_rows = in.state_rows;
  slot->program = program;
  slot->program_serial = program->serial;
  slot->state.store(run_loaded, std::memory_order_relaxed);
  return SIE_OK;
}
