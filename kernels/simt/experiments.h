// experiments.h — one small kernel for each instruction that the emulator imitates, on random
// operands.
//
// record.cu runs them on a GPU and writes inputs and outputs to testdata/hopper/<name>.bin. The
// emulator's test runs the same kernels on the recorded inputs and compares the outputs. So the
// emulator is checked against a card, not against one reading of the manual.
#ifndef SIE_KERNELS_SIMT_EXPERIMENTS_H
#define SIE_KERNELS_SIMT_EXPERIMENTS_H

#include <stddef.h>
#include <stdint.h>

#include "ops.h"

namespace simt_record {

struct Experiment {
  const char *name;  // of the recording
  int32_t sm;        // runs on devices from here on
  bool wgmma;        // and only on 90 … 99
  size_t input_bytes, output_bytes;
  // The kind of values in the input.
  enum Input { bytes, small_integers, reals } input;
  enum Element { u8, f32, bf16, f16, e4m3 } element;
  // Outputs are floats within `tolerance` of each other, absolute and relative; 0 means the same
  // bits.
  float tolerance;
  // in, out: device memory, 1024-byte aligned; out is filled with 0xff before the run.
  sie_status (*run)(const sie_stream *on, const void *in, void *out);
};

// The list, in the order of the files.
const Experiment *experiments(size_t *count);

// Fills the experiment's input, from the seed alone.
void fill_input(const Experiment &experiment, uint32_t seed, uint8_t *input);

// The head of a recording; the input and the output follow.
struct Recording {
  char magic[8];  // "SIEREC01"
  char name[48];
  int32_t sm;
  uint32_t reserved;
  uint64_t input_bytes, output_bytes;
};

}  // namespace simt_record

#endif  // SIE_KERNELS_SIMT_EXPERIMENTS_H
