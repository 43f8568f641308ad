// program.h — the part of the stand-in that is linked into the program: it sends the program's
// kernels to the streams, and controls the stand-in.
#ifndef SIE_CSRC_CUDA_STANDIN_PROGRAM_H
#define SIE_CSRC_CUDA_STANDIN_PROGRAM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// Runs a command of the stand-in (README.md). Returns 0, with the command's answer in answer
// [size], or -1, with the reason; both are cut to fit. -1 also if the driver in use is not the
// stand-in.
int sie_standin_command(const char *command, char *answer, size_t size);

#ifdef __cplusplus
}
#endif

#endif  // SIE_CSRC_CUDA_STANDIN_PROGRAM_H
