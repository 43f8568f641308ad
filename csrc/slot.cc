// slot.cc — creates and frees slots.
#include "slot.h"

#include <algorithm>
#include <initializer_list>

#include "gpu.h"
#include "status.h"

using namespace sie;

namespace {

using ll = long long;

bool allocate_slot(sie_slot *slot) {
  int64_t tokens = slot->caps.max_tokens, seqs = slot->caps.max_seqs;
  int64_t teams =
      std::max<int64_t>(slot->device->threads, tokens / slab_tokens_max);  // every long slab has one
  bool ok = allocate(static_cast<size_t>(slot->caps.query_bytes), &slot->queries);
  for (Block *block : {&slot->ids, &slot->type_ids, &slot->keep}) {
    ok = ok && array_of<int32_t>(block, tokens) != nullptr;
  }
  // One more than its sequences a slab; one more than the queries.
  for (Block *block : {&slot->cu_seqlens, &slot->cu_kept, &slot->cu_queries}) {
    ok = ok && array_of<int32_t>(block, 2 * seqs) != nullptr;
  }
  ok = ok && array_of<int32_t>(&slot->nonfinite, seqs) != nullptr;
  ok = ok && array_of<Slab>(&slot->slabs, seqs) != nullptr;
  ok = ok && array_of<Team>(&slot->teams, teams) != nullptr;
  ok = ok && array_of<SlabShare>(&slot->shares, seqs) != nullptr;
  for (Block *block : {&slot->order, &slot->slab_of, &slot->heap, &slot->by_length, &slot->batch_rows,
                       &slot->batch_kept, &slot->first_kept, &slot->adapter, &slot->partner}) {
    ok = ok && array_of<int32_t>(block, seqs) != nullptr;
  }
  for (uint32_t i = 0; i < slot->caps.n_outputs; i++) {
    ok = ok && allocate(static_cast<size_t>(slot->caps.output_bytes[i]), &slot->outputs[i]);
    // Of sequences, or of their rows.
    ok = ok && array_of<sie_out_item>(&slot->items[i], tokens > seqs ? tokens : seqs) != nullptr;
  }
  return ok;
}

void release_slot(sie_slot *slot) {
  for (Block *block :
       {&slot->ids,     &slot->type_ids,   &slot->cu_seqlens, &slot->batch_rows, &slot->keep,
        &slot->cu_kept, &slot->batch_kept, &slot->first_kept, &slot->adapter,    &slot->partner,
        &slot->queries, &slot->cu_queries, &slot->slabs,      &slot->teams,      &slot->shares,
        &slot->order,   &slot->slab_of,    &slot->heap,       &slot->by_length,  &slot->nonfinite}) {
    release(block);
  }
  for (Block &block : slot->items) release(&block);
  for (Block &block : slot->outputs) release(&block);
}

}  // namespace

sie_status sie_slot_create(sie_device *device, const sie_slot_caps *caps, sie_slot **slot, sie_error *err) {
  SIE_FAIL_IF(slot == nullptr, SIE_INVALID_ARGUMENT, err, "slot is NULL");
  *slot = nullptr;
  SIE_FAIL_IF(device == nullptr || caps == nullptr, SIE_INVALID_ARGUMENT, err, "device or caps is NULL");
  SIE_FAIL_IF(caps->struct_size != sizeof *caps, SIE_INVALID_ARGUMENT, err,
              "sie_slot_caps has %u bytes; %zu expected", caps->struct_size, sizeof *caps);
  SIE_FAIL_IF(caps->n_outputs < 1 || caps->n_outputs > max_outputs, SIE_INVALID_ARGUMENT, err,
              "%u outputs; 1 to %d are possible", caps->n_outputs, max_outputs);
  SIE_FAIL_IF(caps->max_tokens < 1 || caps->max_tokens > max_batch_tokens, SIE_INVALID_ARGUMENT, err,
              "max_tokens is %lld; 1 to %lld is possible", static_cast<ll>(caps->max_tokens),
              static_cast<ll>(max_batch_tokens));
  SIE_FAIL_IF(caps->max_seqs < 1 || caps->max_seqs > max_batch_seqs, SIE_INVALID_ARGUMENT, err,
              "max_seqs is %lld; 1 to %lld is possible", static_cast<ll>(caps->max_seqs),
              static_cast<ll>(max_batch_seqs));
  for (uint32_t i = 0; i < caps->n_outputs; i++) {
    SIE_FAIL_IF(caps->output_bytes[i] < 0 || caps->output_bytes[i] > int64_t{1} << 40, SIE_INVALID_ARGUMENT,
                err, "output %u of %lld bytes", i, static_cast<ll>(caps->output_bytes[i]));
  }
  SIE_FAIL_IF(caps->query_bytes < 0 || caps->query_bytes > int64_t{1} << 40, SIE_INVALID_ARGUMENT, err,
              "query_bytes is %lld", static_cast<ll>(caps->query_bytes));
  sie_slot *s = new_object<sie_slot>();
  SIE_FAIL_IF(s == nullptr, SIE_OUT_OF_MEMORY, err, "no memory for a slot");
  s->device = device;
  s->caps = *caps;
  if (device->is_gpu()) {
    sie_status status = gpu_slot_create(s, err);
    if (status != SIE_OK) {
      sie_slot_free(s);
      return status;
    }
  } else if (!allocate_slot(s)) {
    sie_slot_free(s);
    return fail(err, SIE_OUT_OF_MEMORY, "no memory for a slot of %lld tokens and %lld sequences",
                static_cast<ll>(caps->max_tokens), static_cast<ll>(caps->max_seqs));
  }
  *slot = s;
  return SIE_OK;
}

void sie_slot_free(sie_slot *slot) {
  if (slot == nullptr) return;
  if (slot->device->is_gpu()) {
    gpu_slot_free(slot);
  } else if (slot->state.load(std::memory_order_acquire) == run_started) {
    slot->device->executors.wait(slot);
  }
  release_slot(slot);
  destroy_object(slot);
}

const void *sie_slot_output(const sie_slot *slot, int32_t index) {
  if (slot == nullptr || index < 0 || static_cast<uint32_t>(index) >= slot->caps.n_outputs) return nullptr;
  return slot->gpu != nullptr ? gpu_slot_output(slot, index) : slot->outputs[index].p;
}

const int32_t *sie_slot_nonfinite(const sie_slot *slot, int64_t *offset) {
  if (offset != nullptr) *offset = 0;
  if (slot == nullptr) return nullptr;
  return slot->gpu != nullptr ? gpu_slot_nonfinite(slot, offset)
                              : static_cast<const int32_t *>(slot->nonfinite.p);
}
