// slot.cc — creates and frees slots.
#include "slot.h"

#include <algorithm>
#include <initializer_list>

#include "gpu.h"
#include "grow.h"
#include "long_team.h"
#include "status.h"

using namespace sie;

namespace {

using ll = long long;

// The bytes of a sequence besides its inputs; runtime/engine counts with this number.
static_assert(sizeof(Slab) + sizeof(SlabShare) + sizeof(Ticket) + 6 * sizeof(int32_t) <= 640,
              "slotBytes in footprint.go is too low");

bool allocate_slot(sie_slot *slot) {
  int64_t tokens = slot->caps.max_tokens, seqs = slot->caps.max_seqs;
  // Every long slab has a team.
  int64_t teams = std::max<int64_t>(slot->device->threads, tokens / slab_tokens_max);
  bool ok = allocate(static_cast<size_t>(slot->caps.input_bytes), &slot->inputs);
  ok = ok && array_of<int32_t>(&slot->nonfinite, seqs) != nullptr;
  ok = ok && array_of<Slab>(&slot->slabs, seqs) != nullptr;
  ok = ok && array_of<LongTeam>(&slot->teams, teams) != nullptr;
  ok = ok && array_of<SlabShare>(&slot->shares, seqs) != nullptr;
  // A run with teams has at most as many tickets as there are executors.
  ok = ok &&
       array_of<Ticket>(&slot->tickets_of_run, std::max<int64_t>(seqs, slot->device->threads)) != nullptr;
  for (Block *block : {&slot->order, &slot->slab_of, &slot->heap, &slot->by_length}) {
    ok = ok && array_of<int32_t>(block, seqs) != nullptr;
  }
  ok = ok && array_of<int32_t>(&slot->extents, seqs + 1) != nullptr;
  for (uint32_t i = 0; i < slot->caps.n_outputs; i++) {
    ok = ok && allocate(static_cast<size_t>(slot->caps.output_bytes[i]), &slot->outputs[i]);
  }
  return ok;
}

void release_slot(sie_slot *slot) {
  for (Block *block :
       {&slot->inputs, &slot->slabs, &slot->teams, &slot->tickets_of_run, &slot->shares, &slot->order,
        &slot->slab_of, &slot->heap, &slot->by_length, &slot->extents, &slot->nonfinite}) {
    release(block);
  }
  for (Block &block : slot->outputs) release(&block);
}

sie_status check_caps(const sie_device *device, const sie_slot_caps &caps, sie_error *err) {
  SIE_FAIL_IF(caps.n_outputs < 1 || caps.n_outputs > max_outputs, SIE_INVALID_ARGUMENT, err,
              "%u outputs; 1 to %d are possible", caps.n_outputs, max_outputs);
  SIE_FAIL_IF(caps.output_bytes == nullptr, SIE_INVALID_ARGUMENT, err, "output_bytes is NULL");
  SIE_FAIL_IF(caps.max_tokens < 1 || caps.max_tokens > max_batch_tokens, SIE_INVALID_ARGUMENT, err,
              "max_tokens is %lld; 1 to %lld is possible", static_cast<ll>(caps.max_tokens),
              static_cast<ll>(max_batch_tokens));
  SIE_FAIL_IF(caps.max_seqs < 1 || caps.max_seqs > max_batch_seqs, SIE_INVALID_ARGUMENT, err,
              "max_seqs is %lld; 1 to %lld is possible", static_cast<ll>(caps.max_seqs),
              static_cast<ll>(max_batch_seqs));
  for (uint32_t i = 0; i < caps.n_outputs; i++) {
    SIE_FAIL_IF(caps.output_bytes[i] < 0 || caps.output_bytes[i] > int64_t{1} << 40, SIE_INVALID_ARGUMENT,
                err, "output_bytes of output %u is %lld; 0 to %lld is possible", i,
                static_cast<ll>(caps.output_bytes[i]), static_cast<ll>(int64_t{1} << 40));
  }
  SIE_FAIL_IF(caps.input_bytes < 1 || caps.input_bytes > int64_t{1} << 40, SIE_INVALID_ARGUMENT, err,
              "input_bytes is %lld; sie_program_input_bytes says how many are needed",
              static_cast<ll>(caps.input_bytes));
  SIE_FAIL_IF(caps.reserved != 0, SIE_INVALID_ARGUMENT, err, "reserved is %u; it must be 0", caps.reserved);
  SIE_FAIL_IF(caps.done_fd < 0 || (device->is_gpu() && caps.done_fd != 0), SIE_INVALID_ARGUMENT, err,
              "done_fd is %d; an eventfd or 0 is possible, on a GPU 0 alone", caps.done_fd);
  return SIE_OK;
}

}  // namespace

sie_status sie_slot_create(sie_device *device, const sie_slot_caps *caps, sie_slot **slot, sie_error *err) {
  SIE_FAIL_IF(slot == nullptr, SIE_INVALID_ARGUMENT, err, "slot is NULL");
  *slot = nullptr;
  sie_slot_caps known;
  SIE_FAIL_IF(device == nullptr, SIE_INVALID_ARGUMENT, err, "device is NULL");
  SIE_TRY(take(caps, &known, "sie_slot_caps", err));
  SIE_TRY(check_caps(device, known, err));
  sie_slot *s = new_object<sie_slot>();
  SIE_FAIL_IF(s == nullptr, SIE_OUT_OF_MEMORY, err, "no memory for a slot");
  s->device = device;
  s->caps = known;
  s->done_fd = known.done_fd;
  for (uint32_t i = 0; i < known.n_outputs; i++) s->output_bytes[i] = known.output_bytes[i];
  s->caps.output_bytes = s->output_bytes;
  if (device->is_gpu()) {
    sie_status status = gpu_slot_create(s, err);
    if (status != SIE_OK) {
      sie_slot_free(s);
      return status;
    }
  } else if (!allocate_slot(s)) {
    sie_slot_free(s);
    return fail(err, SIE_OUT_OF_MEMORY, "no memory for a slot of %lld tokens and %lld sequences",
                static_cast<ll>(known.max_tokens), static_cast<ll>(known.max_seqs));
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

const void *sie_slot_output(const sie_slot *slot, int32_t index, int64_t *bytes) {
  bool has = slot != nullptr && index >= 0 && static_cast<uint32_t>(index) < slot->caps.n_outputs;
  if (bytes != nullptr) *bytes = has ? slot->output_bytes[index] : 0;
  if (!has) return nullptr;
  return slot->gpu != nullptr ? gpu_slot_output(slot, index) : slot->outputs[index].p;
}

const int32_t *sie_slot_nonfinite(const sie_slot *slot, int64_t *offset) {
  if (offset != nullptr) *offset = 0;
  if (slot == nullptr) return nullptr;
  return slot->gpu != nullptr ? gpu_slot_nonfinite(slot, offset)
                              : static_cast<const int32_t *>(slot->nonfinite.p);
}
