// no_cpu_kernels.cc — replaces kernels/cpu in a build that is neither for x86-64 nor for arm64: no
// instruction set, no table.
#include "ops.h"

#if !defined(__x86_64__) && !defined(__aarch64__)

const sie_ops *sie_cpu_ops(uint32_t) { return nullptr; }

uint32_t sie_cpu_detect(void) { return 0; }

#endif
