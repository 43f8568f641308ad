// gpu.h — the functions that the GPU backend (csrc/cuda) provides. In a build without one,
// no_gpu.cc refuses them.
//
// All except gpu_open are called only with handles of an open GPU, whose context is current.
// Arguments have been checked as sie.h says.
#ifndef SIE_CSRC_GPU_H
#define SIE_CSRC_GPU_H

#include "slot.h"

namespace sie {

// Fills the device from the GPU that the caller opened. SIE_UNSUPPORTED: the message names the card
// and what it would need.
sie_status gpu_open(sie_device *device, const sie_gpu *gpu, sie_error *err);

// After planning: lays out the parts of a batch's input. Errors: SIE_OUT_OF_MEMORY.
sie_status gpu_program_end(sie_program *program, sie_error *err);
// Accepts a program whose GPU part was never made.
void gpu_program_free(sie_program *program);

// Pinned memory for the slot's input and outputs.
sie_status gpu_slot_create(sie_slot *slot, sie_error *err);
void gpu_slot_free(sie_slot *slot);

const void *gpu_slot_output(const sie_slot *slot, int32_t index);
const int32_t *gpu_slot_nonfinite(const sie_slot *slot, int64_t *offset);

// Bytes of the largest batch's input, for an ended program.
int64_t gpu_program_input_bytes(const sie_program *program);

// Writes the batch and its work lists to the slot's input.
sie_status gpu_slot_load(sie_slot *slot, const sie_program *program, const BatchIn &batch, sie_error *err);

// Enqueues the loaded batch on the device's stream. On an error some of it may run; its results are
// void.
sie_status gpu_submit(sie_program *program, sie_arena *arena, sie_slot *slot, sie_error *err);

}  // namespace sie

#endif  // SIE_CSRC_GPU_H
