// program.h — the side of the stand-in that is linked into the program: its kernels' way into the
// streams, and its control.
#ifndef SIE_CSRC_CUDA_STANDIN_PROGRAM_H
#define SIE_CSRC_CUDA_STANDIN_PROGRAM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// Runs a command of the stand-in (README.md): 0 and its answer, or -1 and why not, in answer
// [size], cut to that. Where the driver in use is not the stand-in: -1.
int sie_standin_command(const char *command, char *answer, size_t size);

#ifdef __cplusplus
}
#endif

#endif  // SIE_CSRC_CUDA_STANDIN_PROGRAM_H
