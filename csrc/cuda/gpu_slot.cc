// gpu_slot.cc — slots of a GPU: their pinned memory, and loading a batch into it.
#include "cuda/gpu_program.h"
#include "gpu.h"
#include "status.h"

namespace sie {

namespace {

sie_status allocate_pinned(void **memory, int64_t bytes, sie_error *err) {
  int result = cuMemHostAlloc(memory, static_cast<size_t>(bytes > 0 ? bytes : 1), 0);
  if (result == CUDA_SUCCESS) return SIE_OK;
  *memory = nullptr;
  return driver_failure(result, "pinned memory", err);
}

}  // namespace

sie_status gpu_slot_create(sie_slot *slot, sie_error *err) {
  GpuSlot *gpu = new_object<GpuSlot>();
  SIE_FAIL_IF(gpu == nullptr, SIE_OUT_OF_MEMORY, err, "no memory for a slot");
  slot->gpu = gpu;
  SIE_TRY(allocate_pinned(&gpu->input, slot->caps.input_bytes, err));
  void *flags;
  SIE_TRY(allocate_pinned(&flags, slot->caps.max_seqs * static_cast<int64_t>(sizeof(int32_t)), err));
  gpu->nonfinite = static_cast<int32_t *>(flags);
  for (uint32_t i = 0; i < slot->caps.n_outputs; i++) {
    SIE_TRY(allocate_pinned(&gpu->outputs[i], slot->caps.output_bytes[i], err));
  }
  return SIE_OK;
}

void gpu_slot_free(sie_slot *slot) {
  GpuSlot *gpu = slot->gpu;
  if (gpu == nullptr) return;
  // A lost device frees nothing, and no caller could be told.
  if (gpu->input != nullptr) (void)cuMemFreeHost(gpu->input);
  if (gpu->nonfinite != nullptr) (void)cuMemFreeHost(gpu->nonfinite);
  for (void *output : gpu->outputs) {
    if (output != nullptr) (void)cuMemFreeHost(output);
  }
  destroy_object(gpu);
  slot->gpu = nullptr;
}

const void *gpu_slot_output(const sie_slot *slot, int32_t index) { return slot->gpu->outputs[index]; }

const int32_t *gpu_slot_nonfinite(const sie_slot *slot, int64_t *offset) {
  if (offset != nullptr) *offset = slot->gpu->nonfinite_at;
  return slot->gpu->nonfinite;
}

sie_status gpu_slot_load(sie_slot *slot, const sie_program *program, const BatchIn &batch, sie_error *err) {
  GpuSlot *gpu = slot->gpu;
  gpu->bucket = choose_bucket(program->gpu->layouts, batch.max_rows, batch.seqs);
  const InputLayout &layout = program->gpu->layouts[gpu->bucket];
  SIE_FAIL_IF(layout.bytes > slot->caps.input_bytes, SIE_INVALID_ARGUMENT, err,
              "the batch's input has %lld bytes; the slot takes %lld", static_cast<long long>(layout.bytes),
              static_cast<long long>(slot->caps.input_bytes));
  gpu->nonfinite_at = layout.nonfinite;
  gpu->sizes.longest = batch.longest;
  gpu->sizes.longest_keys = batch.longest_keys;
  for (int32_t s = 1; s <= max_spaces; s++) gpu->sizes.rows[s] = batch.rows[s];
  return write_input(program, layout, batch, static_cast<char *>(gpu->input), &gpu->input_bytes, err);
}

}  // namespace sie

sie_status sie_slot_input(const sie_slot *slot, const void **host, int64_t *bytes, sie_error *err) {
  using namespace sie;
  SIE_FAIL_IF(slot == nullptr || host == nullptr || bytes == nullptr, SIE_INVALID_ARGUMENT, err,
              "slot, host or bytes is NULL");
  SIE_FAIL_IF(slot->gpu == nullptr, SIE_INVALID_ARGUMENT, err, "the slot is not of a GPU");
  SIE_FAIL_IF(slot->state.load(std::memory_order_acquire) != run_loaded, SIE_INVALID_ARGUMENT, err,
              "the slot is not loaded");
  *host = slot->gpu->input;
  *bytes = slot->gpu->input_bytes;
  return SIE_OK;
}
