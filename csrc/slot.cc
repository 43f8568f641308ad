// slot.cc — creates slots, and loads batches: every id, length, offset and cap is checked here, once.
#include "slot.h"

#include <string.h>

#include <initializer_list>

#include "gpu.h"
#include "status.h"

using namespace sie;

namespace {

using ll = long long;

bool allocate_slot(sie_slot *slot) {
  int64_t tokens = slot->caps.max_tokens, seqs = slot->caps.max_seqs;
  bool ok = array_of<int32_t>(&slot->ids, tokens) != nullptr;
  ok = ok && array_of<int32_t>(&slot->type_ids, tokens) != nullptr;
  ok = ok && array_of<int32_t>(&slot->cu_seqlens, 2 * seqs) != nullptr;  // one more than its sequences a slab
  ok = ok && array_of<sie_out_item>(&slot->items, seqs) != nullptr;
  ok = ok && array_of<int32_t>(&slot->batch_rows, seqs) != nullptr;
  ok = ok && array_of<Slab>(&slot->slabs, seqs) != nullptr;
  ok = ok && array_of<Team>(&slot->teams, slot->device->threads) != nullptr;
  ok = ok && array_of<SlabShare>(&slot->shares, seqs) != nullptr;
  for (Block *block : {&slot->order, &slot->slab_of, &slot->heap, &slot->by_length}) {
    ok = ok && array_of<int32_t>(block, seqs) != nullptr;
  }
  for (uint32_t i = 0; i < slot->caps.n_outputs; i++) {
    ok = ok && allocate(static_cast<size_t>(slot->caps.output_bytes[i]), &slot->outputs[i]);
  }
  return ok;
}

void release_slot(sie_slot *slot) {
  for (Block *block :
       {&slot->ids, &slot->type_ids, &slot->cu_seqlens, &slot->items, &slot->batch_rows, &slot->slabs,
        &slot->teams, &slot->shares, &slot->order, &slot->slab_of, &slot->heap, &slot->by_length}) {
    release(block);
  }
  for (Block &block : slot->outputs) release(&block);
}

sie_status check_free(const sie_slot *slot, sie_error *err) {
  uint32_t state = slot->state.load(std::memory_order_acquire);
  SIE_FAIL_IF(state == run_started || state == run_done, SIE_INVALID_ARGUMENT, err,
              "the slot's run is in flight; sie_slot_wait frees it");
  return SIE_OK;
}

sie_status check_sizes(const sie_slot *slot, const sie_program *p, int64_t tokens, int64_t seqs,
                       sie_error *err) {
  int64_t tokens_max =
      p->caps.max_tokens < slot->caps.max_tokens ? p->caps.max_tokens : slot->caps.max_tokens;
  int64_t seqs_max = p->caps.max_seqs < slot->caps.max_seqs ? p->caps.max_seqs : slot->caps.max_seqs;
  SIE_FAIL_IF(tokens < 0 || tokens > tokens_max, SIE_INVALID_ARGUMENT, err, "%lld tokens; at most %lld fit",
              static_cast<ll>(tokens), static_cast<ll>(tokens_max));
  SIE_FAIL_IF(seqs < 0 || seqs > seqs_max, SIE_INVALID_ARGUMENT, err, "%lld sequences; at most %lld fit",
              static_cast<ll>(seqs), static_cast<ll>(seqs_max));
  SIE_FAIL_IF(slot->caps.n_outputs < static_cast<uint32_t>(p->n_outputs), SIE_INVALID_ARGUMENT, err,
              "the slot has %u outputs; the program %d", slot->caps.n_outputs, p->n_outputs);
  return SIE_OK;
}

sie_status check_lengths(const sie_program *p, const int32_t *cu, int64_t tokens, int64_t seqs,
                         sie_error *err) {
  SIE_FAIL_IF(cu == nullptr, SIE_INVALID_ARGUMENT, err, "cu_seqlens is NULL");
  SIE_FAIL_IF(cu[0] != 0, SIE_INVALID_ARGUMENT, err, "cu_seqlens starts at %d, not at 0", cu[0]);
  int64_t longest = p->caps.max_len;
  if (p->positions > 0 && p->positions < longest) longest = p->positions;
  for (int64_t b = 0; b < seqs; b++) {
    int64_t length = int64_t{cu[b + 1]} - cu[b];
    SIE_FAIL_IF(length < 0, SIE_INVALID_ARGUMENT, err, "cu_seqlens falls from %d to %d at sequence %lld",
                cu[b], cu[b + 1], static_cast<ll>(b));
    SIE_FAIL_IF(length > longest, SIE_INVALID_ARGUMENT, err,
                "sequence %lld has %lld tokens; at most %lld are possible", static_cast<ll>(b),
                static_cast<ll>(length), static_cast<ll>(longest));
  }
  SIE_FAIL_IF(cu[seqs] != tokens, SIE_INVALID_ARGUMENT, err, "cu_seqlens ends at %d; there are %lld tokens",
              cu[seqs], static_cast<ll>(tokens));
  return SIE_OK;
}

// One pass without a branch an id, and a second one only to name the offender.
sie_status check_ids(const int32_t *ids, int64_t count, int64_t bound, const char *name, sie_error *err) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; i++) {
    uint32_t id = static_cast<uint32_t>(ids[i]);
    largest = id > largest ? id : largest;
  }
  if (count == 0 || largest < bound) return SIE_OK;
  int64_t at = 0;
  while (static_cast<uint32_t>(ids[at]) < bound) at++;
  return fail(err, SIE_INVALID_ARGUMENT, "%s %d of token %lld; 0 to %lld are possible", name, ids[at],
              static_cast<ll>(at), static_cast<ll>(bound - 1));
}

int64_t item_bytes(int32_t dtype, int64_t dims) {
  return dtype == SIE_BINARY ? (dims + 7) / 8 : dims * dtype_bytes(dtype);
}

sie_status check_item(const sie_slot *slot, const sie_program *p, const sie_out_item &item, int64_t b,
                      sie_error *err) {
  bool known = item.dtype == SIE_F32 || item.dtype == SIE_F16 || item.dtype == SIE_I8 ||
               item.dtype == SIE_U8 || item.dtype == SIE_BINARY;
  SIE_FAIL_IF(!known, SIE_UNSUPPORTED, err,
              "item %lld asks for dtype %d; f32, f16, i8, u8 and binary are possible", static_cast<ll>(b),
              item.dtype);
  SIE_FAIL_IF(item.normalize > 1, SIE_INVALID_ARGUMENT, err, "item %lld: normalize is %u, not 0 or 1",
              static_cast<ll>(b), item.normalize);
  SIE_FAIL_IF(item.offset < 0 || item.offset % dtype_bytes(item.dtype) != 0, SIE_INVALID_ARGUMENT, err,
              "item %lld: offset %lld is not a place for %s", static_cast<ll>(b),
              static_cast<ll>(item.offset), dtype_name(item.dtype));
  for (int32_t o = 0; o < p->n_outputs; o++) {
    if (!p->output_is_rows[o]) continue;
    int64_t dims = item.dims != 0 ? item.dims : p->output_columns[o];
    SIE_FAIL_IF(dims < 1 || dims > p->output_columns[o], SIE_INVALID_ARGUMENT, err,
                "item %lld asks for %d dims; 1 to %lld are possible", static_cast<ll>(b), item.dims,
                static_cast<ll>(p->output_columns[o]));
    int64_t bytes = item_bytes(item.dtype, dims), room = slot->caps.output_bytes[o];
    SIE_FAIL_IF(bytes > room || item.offset > room - bytes, SIE_INVALID_ARGUMENT, err,
                "item %lld writes %lld bytes from byte %lld of output %d, which has %lld", static_cast<ll>(b),
                static_cast<ll>(bytes), static_cast<ll>(item.offset), o, static_cast<ll>(room));
  }
  return SIE_OK;
}

sie_status check_outputs(const sie_slot *slot, const sie_program *p, int64_t tokens, int64_t seqs,
                         const sie_out_item *items, sie_error *err) {
  for (int32_t o = 0; o < p->n_outputs; o++) {
    if (p->output_is_rows[o]) continue;
    int64_t rows = p->output_rows_of[o] == Rows::tokens ? tokens : seqs;
    int64_t bytes = rows * p->output_columns[o] * 4;
    SIE_FAIL_IF(bytes > slot->caps.output_bytes[o], SIE_INVALID_ARGUMENT, err,
                "output %d needs %lld bytes; the slot has %lld", o, static_cast<ll>(bytes),
                static_cast<ll>(slot->caps.output_bytes[o]));
  }
  if (!p->has_output_rows) return SIE_OK;
  SIE_FAIL_IF(items == nullptr && seqs > 0, SIE_INVALID_ARGUMENT, err,
              "items is NULL; the program writes output rows");
  for (int64_t b = 0; b < seqs; b++) SIE_TRY(check_item(slot, p, items[b], b, err));
  return SIE_OK;
}

template <class T>
T *in(const Block &block) {
  return static_cast<T *>(block.p);
}

// Copies one slab's sequences behind one another and points the slab at them.
void fill_slab(sie_slot *slot, Slab *slab, const SlabShare &share, int64_t token, int64_t cu_at,
               const int32_t *ids, const int32_t *type_ids, const int32_t *cu, const sie_out_item *items) {
  const int32_t *order = in<int32_t>(slot->order) + share.first;
  int32_t *offsets = in<int32_t>(slot->cu_seqlens) + cu_at;
  int32_t row = 0;
  for (int32_t i = 0; i < share.seqs; i++) {
    int32_t b = order[i], length = cu[b + 1] - cu[b];
    size_t bytes = static_cast<size_t>(length) * sizeof(int32_t);
    if (length > 0) {
      memcpy(in<int32_t>(slot->ids) + token + row, ids + cu[b], bytes);
      if (type_ids != nullptr) memcpy(in<int32_t>(slot->type_ids) + token + row, type_ids + cu[b], bytes);
    }
    offsets[i] = row;
    if (items != nullptr) in<sie_out_item>(slot->items)[share.first + i] = items[b];
    in<int32_t>(slot->batch_rows)[share.first + i] = cu[b];
    row += length;
  }
  offsets[share.seqs] = row;
  slab->n_tokens = row;
  slab->n_seqs = share.seqs;
  slab->max_len = share.max_len;
  slab->ids = in<int32_t>(slot->ids) + token;
  slab->type_ids = type_ids != nullptr ? in<int32_t>(slot->type_ids) + token : nullptr;
  slab->cu_seqlens = offsets;
  slab->items = in<sie_out_item>(slot->items) + share.first;
  slab->batch_rows = in<int32_t>(slot->batch_rows) + share.first;
  slab->batch_seqs = order;
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

sie_status sie_slot_load(sie_slot *slot, const sie_program *program, int64_t n_tokens, int64_t n_seqs,
                         const int32_t *ids, const int32_t *type_ids, const int32_t *cu_seqlens,
                         const sie_out_item *items, sie_error *err) {
  SIE_FAIL_IF(slot == nullptr || program == nullptr, SIE_INVALID_ARGUMENT, err, "slot or program is NULL");
  SIE_FAIL_IF(slot->device != program->device, SIE_INVALID_ARGUMENT, err,
              "slot and program are of two devices");
  SIE_FAIL_IF(!program->ended, SIE_INVALID_ARGUMENT, err, "the program is not ended");
  SIE_TRY(check_free(slot, err));
  slot->state.store(run_idle, std::memory_order_relaxed);  // an earlier load counts no more
  SIE_TRY(check_sizes(slot, program, n_tokens, n_seqs, err));
  SIE_TRY(check_lengths(program, cu_seqlens, n_tokens, n_seqs, err));
  SIE_FAIL_IF(ids == nullptr && n_tokens > 0, SIE_INVALID_ARGUMENT, err, "ids is NULL");
  SIE_TRY(check_ids(ids, n_tokens, program->vocabulary, "id", err));
  if (type_ids != nullptr && program->types > 0) {
    SIE_TRY(check_ids(type_ids, n_tokens, program->types, "type id", err));
  }
  SIE_TRY(check_outputs(slot, program, n_tokens, n_seqs, items, err));
  if (slot->device->is_gpu()) {
    SIE_TRY(gpu_slot_load(slot, program, n_tokens, n_seqs, ids, type_ids, cu_seqlens, items, err));
    slot->program = program;
    slot->state.store(run_loaded, std::memory_order_relaxed);
    return SIE_OK;
  }

  SlabLimits limits = {slot->device->threads, slab_tokens_max, slab_seqs_max};
  SlabWork work = {in<SlabShare>(slot->shares), in<int32_t>(slot->order), in<int32_t>(slot->slab_of),
                   in<int32_t>(slot->heap), in<int32_t>(slot->by_length)};
  slot->n_slabs = plan_slabs(cu_seqlens, static_cast<int32_t>(n_seqs), limits, work);
  int64_t token = 0, cu_at = 0;
  for (int32_t s = 0; s < slot->n_slabs; s++) {
    Slab *slab = in<Slab>(slot->slabs) + s;
    fill_slab(slot, slab, work.shares[s], token, cu_at, ids, type_ids, cu_seqlens,
              program->has_output_rows ? items : nullptr);
    token += slab->n_tokens;
    cu_at += slab->n_seqs + 1;
  }
  slot->program = program;
  slot->state.store(run_loaded, std::memory_order_relaxed);
  return SIE_OK;
}

const void *sie_slot_output(const sie_slot *slot, int32_t index) {
  if (slot == nullptr || index < 0 || static_cast<uint32_t>(index) >= slot->caps.n_outputs) return nullptr;
  return slot->gpu != nullptr ? gpu_slot_output(slot, index) : slot->outputs[index].p;
}
