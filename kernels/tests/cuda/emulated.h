// emulated.h — the CUDA tables without a GPU: kernels/cuda on kernels/simt, on host memory.
#ifndef SIE_KERNELS_TESTS_CUDA_EMULATED_H
#define SIE_KERNELS_TESTS_CUDA_EMULATED_H

namespace harness {

// Adds cuda-sm80, cuda-sm89 and cuda-sm90 to gpus().
void add_emulated_gpus();

// Starts the emulator's random order anew from the process's seed: SIE_SIMT_SEED, or the clock.
// Each group of cases starts with it, so a run of one group repeats what that group did in a run of
// all.
void restart_emulation();
// Prints in one line how to repeat this process's random order.
void print_emulation_seed();

}  // namespace harness

#endif  // SIE_KERNELS_TESTS_CUDA_EMULATED_H
