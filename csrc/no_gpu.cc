// no_gpu.cc — replaces csrc/cuda in a build without CUDA. No GPU opens, so the other functions are
// never reached.
#include "gpu.h"
#include "hooks.h"
#include "status.h"

namespace sie {

sie_status gpu_open(sie_device *, const sie_gpu *, sie_error *err) {
  return fail(err, SIE_UNSUPPORTED, "this build has no CUDA; it has CPU");
}

sie_status gpu_program_end(sie_program *, sie_error *err) {
  return hooks::gpu_input_bytes() != 0 ? SIE_OK : fail(err, SIE_INTERNAL, "no GPU");
}
void gpu_program_free(sie_program *) {}
sie_status gpu_slot_create(sie_slot *, sie_error *err) { return fail(err, SIE_INTERNAL, "no GPU"); }
void gpu_slot_free(sie_slot *) {}
const void *gpu_slot_output(const sie_slot *, int32_t) { return nullptr; }
const int32_t *gpu_slot_nonfinite(const sie_slot *, int64_t *) { return nullptr; }
int64_t gpu_program_input_bytes(const sie_program *) { return hooks::gpu_input_bytes(); }
sie_status gpu_slot_load(sie_slot *, const sie_program *, const BatchIn &, sie_error *err) {
  return fail(err, SIE_INTERNAL, "no GPU");
}
sie_status gpu_submit(sie_program *, sie_arena *, sie_slot *, sie_error *err) {
  return fail(err, SIE_INTERNAL, "no GPU");
}

}  // namespace sie

sie_status sie_gpu_check(int32_t, int32_t, int32_t, sie_error *err) {
  return sie::gpu_open(nullptr, nullptr, err);
}

sie_status sie_slot_input(const sie_slot *, const void **, int64_t *, sie_error *err) {
  return sie::fail(err, SIE_INVALID_ARGUMENT, "the slot is not of a GPU");
}
