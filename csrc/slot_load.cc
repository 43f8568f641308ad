// slot_load.cc — a batch's way into a slot: checked, shared out among slabs, copied in their order.
#include <string.h>

#include "gpu.h"
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

// Where the next slab's parts begin in the slot.
struct Place {
  int64_t token = 0, kept = 0, seq = 0, cu = 0;
};

// Copies a batch slab by slab: one slab's sequences behind one another.
class Filler {
 public:
  Filler(sie_slot *slot, const sie_program *program, const sie_batch &batch)
      : slot_(slot), program_(program), batch_(batch) {}

  // Where each sequence's kept rows begin in the batch, in the batch's order; before any slab.
  void count_kept() {
    if (!program_->has_kept) return;
    int32_t *first = in<int32_t>(slot_->first_kept);
    int32_t row = 0;
    for (int64_t b = 0; b < batch_.n_seqs; b++) {
      first[b] = row;
      for (int32_t i = batch_.cu_seqlens[b]; i < batch_.cu_seqlens[b + 1]; i++) {
        row += batch_.keep == nullptr || batch_.keep[i] != 0 ? 1 : 0;
      }
    }
  }

  // Queries are every slab's.
  void copy_queries() {
    if (program_->query_columns == 0) return;
    int32_t *cu = in<int32_t>(slot_->cu_queries);
    cu[0] = 0;
    if (batch_.n_queries == 0) return;
    memcpy(cu, batch_.cu_queries, static_cast<size_t>(batch_.n_queries + 1) * sizeof(int32_t));
    size_t bytes = static_cast<size_t>(cu[batch_.n_queries] * program_->query_columns) * sizeof(float);
    if (bytes > 0) memcpy(slot_->queries.p, batch_.queries, bytes);
  }

  void fill(const SlabShare &share, Slab *slab) {
    *slab = {};
    order_ = in<int32_t>(slot_->order) + share.first;
    slab->n_seqs = share.seqs;
    slab->max_len = share.max_len;
    slab->batch_seqs = order_;
    copy_tokens(slab);
    if (program_->has_kept) copy_kept(slab);
    if (program_->n_adapters > 0) slab->adapter = choose(slot_->adapter, batch_.adapter, slab->n_seqs);
    if (program_->query_columns > 0) {
      slab->partner = choose(slot_->partner, batch_.partner, slab->n_seqs);
      slab->queries = in<float>(slot_->queries);
      slab->cu_queries = in<int32_t>(slot_->cu_queries);
    }
    for (int32_t o = 0; o < program_->n_outputs; o++) slab->items[o] = copy_items(*slab, o);
    at_.token += slab->n_tokens;
    at_.kept += slab->n_kept;
    at_.seq += slab->n_seqs;
    at_.cu += slab->n_seqs + 1;
  }

 private:
  void copy_tokens(Slab *slab) {
    const int32_t *cu = batch_.cu_seqlens;
    int32_t *ids = in<int32_t>(slot_->ids) + at_.token, *types = in<int32_t>(slot_->type_ids) + at_.token;
    int32_t *offsets = in<int32_t>(slot_->cu_seqlens) + at_.cu;
    int32_t *batch_rows = in<int32_t>(slot_->batch_rows) + at_.seq;
    int32_t row = 0;
    for (int32_t i = 0; i < slab->n_seqs; i++) {
      int32_t b = order_[i], length = cu[b + 1] - cu[b];
      size_t bytes = static_cast<size_t>(length) * sizeof(int32_t);
      if (length > 0) {
        memcpy(ids + row, batch_.ids + cu[b], bytes);
        if (batch_.type_ids != nullptr) memcpy(types + row, batch_.type_ids + cu[b], bytes);
      }
      offsets[i] = row;
      batch_rows[i] = cu[b];
      row += length;
    }
    offsets[slab->n_seqs] = row;
    slab->n_tokens = row;
    slab->ids = ids;
    slab->type_ids = batch_.type_ids != nullptr ? types : nullptr;
    slab->cu_seqlens = offsets;
    slab->batch_rows = batch_rows;
  }

  void copy_kept(Slab *slab) {
    const int32_t *cu = batch_.cu_seqlens, *first = in<int32_t>(slot_->first_kept);
    int32_t *keep = in<int32_t>(slot_->keep) + at_.kept, *offsets = in<int32_t>(slot_->cu_kept) + at_.cu;
    int32_t *batch_kept = in<int32_t>(slot_->batch_kept) + at_.seq;
    int32_t row = 0;
    for (int32_t i = 0; i < slab->n_seqs; i++) {
      int32_t b = order_[i];
      offsets[i] = row;
      batch_kept[i] = first[b];
      row += list_kept(batch_.keep != nullptr ? batch_.keep + cu[b] : nullptr, cu[b + 1] - cu[b],
                       slab->cu_seqlens[i], keep + row);
    }
    offsets[slab->n_seqs] = row;
    slab->n_kept = row;
    slab->keep = keep;
    slab->cu_kept = offsets;
    slab->batch_kept = batch_kept;
  }

  const int32_t *choose(const Block &block, const int32_t *choices, int32_t n_seqs) {
    int32_t *to = in<int32_t>(block) + at_.seq;
    for (int32_t i = 0; i < n_seqs; i++) to[i] = choices != nullptr ? choices[order_[i]] : -1;
    return to;
  }

  const sie_out_item *copy_items(const Slab &slab, int32_t o) {
    const Output &output = program_->outputs[o];
    if (output.form == OutputForm::values) return nullptr;
    bool spread = output.form == OutputForm::token_rows, kept = output.rows == Rows::kept;
    const int32_t *offsets = kept ? slab.cu_kept : slab.cu_seqlens;
    sie_out_item *to = in<sie_out_item>(slot_->items[o]) + (spread ? (kept ? at_.kept : at_.token) : at_.seq);
    for (int32_t i = 0; i < slab.n_seqs; i++) {
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
  const sie_batch &batch_;
  const int32_t *order_ = nullptr;
  Place at_;
};

// Gives long slabs, which come first because they are dearer than any other, places in the region: side by side while they
// fit, then from its start again, where a slab waits until all before it are done.
void place_long(sie_slot *slot, const sie_program *program, Slab *slabs) {
  int32_t &count = slot->n_long, after = 0;
  int64_t end = 0, room = region_bytes(program);
  for (count = 0; count < slot->n_slabs && slabs[count].n_tokens > slab_tokens_max; count++) {
    int64_t bytes = long_bytes(program, slabs[count].n_tokens);
    if (end + bytes > room) {
      end = 0;
      after = count;
    }
    slabs[count].after = after;
    slabs[count].place = end;
    end += bytes;
  }
}

void load_slabs(sie_slot *slot, const sie_program *program, const sie_batch &batch) {
  SlabLimits limits = {slot->device->threads, slab_tokens_max, program->slab_seqs, program->balance};
  SlabWork work = {in<SlabShare>(slot->shares), in<int32_t>(slot->order), in<int32_t>(slot->slab_of),
                   in<int32_t>(slot->heap), in<int32_t>(slot->by_length)};
  slot->n_slabs = plan_slabs(batch.cu_seqlens, static_cast<int32_t>(batch.n_seqs), limits, work);
  Filler filler(slot, program, batch);
  filler.count_kept();
  filler.copy_queries();
  Slab *slabs = in<Slab>(slot->slabs);
  for (int32_t s = 0; s < slot->n_slabs; s++) filler.fill(work.shares[s], slabs + s);
  memset(slot->nonfinite.p, 0, static_cast<size_t>(batch.n_seqs) * sizeof(int32_t));
  place_long(slot, program, slabs);
}

}  // namespace

sie_status sie_slot_load(sie_slot *slot, const sie_program *program, const sie_batch *batch, sie_error *err) {
  SIE_FAIL_IF(slot == nullptr || program == nullptr || batch == nullptr, SIE_INVALID_ARGUMENT, err,
              "slot, program or batch is NULL");
  SIE_FAIL_IF(batch->struct_size != sizeof *batch, SIE_INVALID_ARGUMENT, err,
              "sie_batch has %u bytes; %zu expected", batch->struct_size, sizeof *batch);
  SIE_FAIL_IF(slot->device != program->device, SIE_INVALID_ARGUMENT, err,
              "slot and program are of two devices");
  SIE_FAIL_IF(!program->ended, SIE_INVALID_ARGUMENT, err, "the program is not ended");
  SIE_TRY(check_free(slot, err));
  slot->state.store(run_idle, std::memory_order_relaxed);  // an earlier load counts no more
  int64_t n_kept;
  SIE_TRY(check_batch(slot, program, *batch, &n_kept, err));
  if (slot->device->is_gpu()) {
    SIE_TRY(gpu_slot_load(slot, program, *batch, n_kept, err));
  } else {
    load_slabs(slot, program, *batch);
  }
  slot->program = program;
  slot->program_serial = program->serial;
  slot->state.store(run_loaded, std::memory_order_relaxed);
  return SIE_OK;
}
